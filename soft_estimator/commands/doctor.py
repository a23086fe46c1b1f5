"""`soft-estimator doctor`: is everything there, does it work, and what to do if not."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from soft_estimator.commands.console import HelpFormatter, stderr_line, wants_colour
from soft_estimator.commands.doctor_checks import (
    FAILED,
    OK,
    VARIABLES,
    WARNING,
    Check,
    check_backend,
    check_cupy,
    check_gpu,
    check_numba,
    check_optional,
    check_python,
    check_required,
    check_ros,
    check_write_access,
    own_profile,
)
from soft_estimator.commands.doctor_probes import run_python

DESCRIPTION = """Look at everything soft-estimator uses, and try it: Python, NumPy, Numba, GPU, driver, CuPy, ROS 2, its
middleware and shared memory, Open3D, bags, the viewer, write access; then simulate a falling box, compare a gradient
with differences, and send clouds from one process to another. Each line says ok, or what to do."""

EPILOG = """each line is one of
  ok        it is there and works
  warning   it is there, but not as it should be; the rest works without it
  missing   it is not there, and only some commands need it
  failed    the core does not work without it

exit code:
  0  the core works: scenes can be simulated and estimated
  1  it does not; a line that begins with `failed` or `missing` says why

examples:
  soft-estimator doctor
  soft-estimator doctor --quick
  soft-estimator doctor --json | jq '.checks[] | select(.status != "ok")'"""

_COLOURS = {OK: "32", WARNING: "33", "missing": "2", FAILED: "1;31"}


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check what is installed and whether it works",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="leave out the self-test of about ten seconds")
    parser.add_argument("--json", action="store_true", help="print everything as JSON on stdout, and nothing else")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    clock = perf_counter()
    checks: list[Check] = []

    def show(found: list[Check]) -> None:
        checks.extend(found)
        if not args.json:
            for check in found:
                print(_line(check), flush=True)

    for found in examine():
        show(found)
    if not args.quick:
        if not args.json:
            stderr_line("trying it; the first time its loops are compiled, for about half a minute")
        for found in self_test(any(c.name == "ROS 2" and c.status == OK for c in checks)):
            show(found)
    good = core_works(checks)
    if args.json:
        rows = [vars(check) for check in checks]
        print(json.dumps({"core_works": good, "seconds": perf_counter() - clock, "checks": rows}, indent=1))
    else:
        print(f"\n{_verdict(checks, good)}")
    return 0 if good else 1


def core_works(checks: list[Check]) -> bool:
    """Whether everything essential is as it should be."""
    return all(check.status in (OK, WARNING) for check in checks if check.essential)


def examine() -> Any:
    """The checks in order, each as soon as it is known; the slow ones run side by side."""
    with ThreadPoolExecutor(3) as pool:
        later: list[Any] = [pool.submit(job) for job in _jobs()]
        yield [check_python()]
        for future in later:
            yield future.result()
    yield check_write_access()


def _jobs() -> list[Callable[[], list[Check]]]:
    def accelerator() -> list[Check]:
        gpu, facts = check_gpu()
        return [gpu, check_cupy(facts)]

    return [
        lambda: [check_required()],
        lambda: [check_numba()],
        accelerator,
        lambda: [check_backend()],
        check_ros,
        check_optional,
    ]


def self_test(with_ros: bool) -> Any:
    """Simulate, compare a gradient with differences, send clouds."""
    from soft_estimator.commands.doctor_self_test import FALL_TOLERANCE, GRADIENT_TOLERANCE

    answer = run_python(["-m", "soft_estimator.commands.doctor_self_test"], 600)
    found = []
    for key, name, limit in (("fall", "simulate", FALL_TOLERANCE), ("gradient", "gradient", GRADIENT_TOLERANCE)):
        error = answer.get(key)
        if error is None or not error <= limit:
            why = answer.get(f"{key}_failed") or answer.get("error") or f"off by {error:.1e}, more than {limit:g}"
            advice = "the lines above may say why; else please report this line"
            found.append(Check(name, FAILED, why, advice, essential=True))
            continue
        what = "a box fell as ½ g t² says" if key == "fall" else "adjoint, tangent and differences agree"
        detail = f"{what}, to {error:.0e}, in {answer[f'{key}_s']:.1f} s"
        found.append(Check(name, OK, detail, essential=True))
    yield found
    if with_ros:
        yield [_clouds()]


def _clouds() -> Check:
    """Two processes in a domain of their own, with our shared-memory profile unless another one is set."""
    profile = own_profile()
    given = any(os.environ.get(name) for name in VARIABLES)
    environment = {"ROS_DOMAIN_ID": str(random.randint(1, 100)), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    if profile is not None and not given:
        environment.update({name: str(profile) for name in VARIABLES})
    with tempfile.TemporaryDirectory() as logs:
        answer = run_python(["-m", "soft_estimator.ros.self_test"], 40, {**environment, "ROS_LOG_DIR": logs})
    if "received" not in answer:
        return Check("clouds by ROS 2", WARNING, answer.get("error", "no answer"), "see the line on ROS 2")
    got, sent = answer["received"], answer["sent"]
    detail = f"{got} of {sent} clouds of 3.7 MB came from another process, {answer['median_ms']:.0f} ms each"
    if got == 0:
        advice = "is multicast on lo allowed, and /dev/shm writable? try ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST"
        return Check("clouds by ROS 2", WARNING, f"none of {sent} clouds came from another process", advice)
    lost = got < sent - 1
    return Check("clouds by ROS 2", WARNING if lost else OK, detail, "see the line on shared memory" if lost else "")


def _line(check: Check) -> str:
    status = check.status.ljust(7)
    if wants_colour(sys.stdout):
        status = f"\033[{_COLOURS[check.status]}m{status}\033[0m"
    advice = f"\n{'':27}→ {check.advice}" if check.advice else ""
    return f"{status}  {check.name:<17} {check.detail}{advice}"


def _verdict(checks: list[Check], good: bool) -> str:
    if not good:
        broken = [c.name for c in checks if c.essential and c.status not in (OK, WARNING)]
        return f"The core does not work: see {', '.join(broken)}."
    count = sum(check.status == WARNING for check in checks)
    return "The core works." + (f" {count} warning(s)." if count else "")
