"""How old the estimates of the running graph are: the demo's four nodes, by the clock on the wall. Needs rclpy.

python benchmark/bench_live_graph.py [--seconds 60] [--scene demo_drop] [--backend auto] [--pause 2.5] [--cores 2]
                                     [--busy 0] [--json FILE]

The simulated camera sends 30 frames a second in drops. The age of an estimate is that of its newest frame when the
first estimate with it arrives here; one that says more of the same frames later, in a pause, counts as refined.
--cores ties all processes to so many processors; --busy adds processes that do nothing but
compute, on the same ones. Counted are frames sent, taken in and left out, the estimates at level OK that are off by
more than four of their own deviations, and how long after the first touch E is within 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench_ros import Listener, Nodes, start_graph

from soft_estimator.physics.energy import balance
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import build_scene

TOO_FAR = 4.0  # stated deviations
CLOSE = 0.05  # part of E


@dataclass
class Heard:
    """What came of the graph: by arrival, age [s], E [Pa], its deviation, whether its level was OK."""

    arrival_s: list[float] = field(default_factory=list)
    stamp_s: list[float] = field(default_factory=list)
    age_s: list[float] = field(default_factory=list)
    stated_age_s: list[float] = field(default_factory=list)
    value_pa: list[float] = field(default_factory=list)
    std_pa: list[float] = field(default_factory=list)
    sound: list[bool] = field(default_factory=list)
    true_pa: float = float("nan")
    frames: list[tuple[float, float]] = field(default_factory=list)  # arrival, time in the scene

    def on_estimate(self, message: Any) -> None:
        from soft_estimator.recordings.messages import seconds_of
        from soft_estimator.ros.reports import OK, values_in

        rows, levels = values_in(message), {s.name: s.level for s in message.status}
        if "youngs_modulus_pa" not in rows or rows["window"].get("status") != "tracking":
            return
        row, window = rows["youngs_modulus_pa"], rows["window"]
        self.arrival_s.append(time.monotonic())
        self.stamp_s.append(seconds_of(message.header.stamp))
        self.age_s.append(time.time() - seconds_of(message.header.stamp))
        self.stated_age_s.append(float(window.get("age_s", "nan")))
        self.value_pa.append(float(row["value"]))
        self.std_pa.append(float(row["std"]))
        self.sound.append(levels["window"] == OK and levels["youngs_modulus_pa"] == OK)

    def on_truth(self, message: Any) -> None:
        from soft_estimator.ros.reports import values_in

        rows = values_in(message)
        self.true_pa = float(rows["youngs_modulus_pa[0]"]["value"])
        self.frames.append((time.monotonic(), float(rows["scene"]["time_s"])))


def first_touch_s(scene_name: str) -> float:
    """When the scene's body first meets its plane [s]: contact holds a ten-thousandth of the energy of motion."""
    scene = build_scene(*read_scene(scene_name))
    simulation = Simulation(scene.model, scene.parameters)
    state = simulation.initial_state()
    while state.time_s < scene.config.time.duration_s:
        held = balance(simulation, state)
        if held.contact_j > 1e-4 * held.kinetic_j > 0:
            break
        state, _ = simulation.step(state)
    return state.time_s


def summary(heard: Heard, seconds: float, counts: dict[str, str], touch_s: float) -> dict[str, Any]:
    value, std = np.array(heard.value_pa), np.array(heard.std_pa)
    first = np.diff(heard.stamp_s, prepend=-np.inf) != 0
    age, stated = np.array(heard.age_s)[first], np.array(heard.stated_age_s)[first]
    sound = np.array(heard.sound, dtype=bool)
    touched = next((at for at, scene_s in heard.frames if scene_s >= touch_s), float("nan"))
    close = next(
        (at for at, e in zip(heard.arrival_s, value) if at > touched and abs(e / heard.true_pa - 1) < CLOSE), None
    )
    off = sound & (np.abs(value - heard.true_pa) > TOO_FAR * std) if len(value) else sound
    return {
        "seconds": seconds,
        "frames_sent": len(heard.frames),
        "frames_used": int(counts.get("frames_used", 0)),
        "frames_skipped": int(counts.get("frames_skipped", 0)),
        "frames_dropped": int(counts.get("frames_dropped", 0)),
        "estimates": len(age),
        "refined": int((~first).sum()),
        "age_median_s": float(np.median(age)) if len(age) else None,
        "age_p99_s": float(np.percentile(age, 99)) if len(age) else None,
        "age_max_s": float(age.max()) if len(age) else None,
        "stated_age_off_s": float(np.nanmax(np.abs(age - stated))) if len(age) else None,
        "within_5_percent_after_touch_s": None if close is None else close - touched,
        "sound_estimates": int(sound.sum()),
        "sound_but_off": int(off.sum()),
        "last_error": float(value[-1] / heard.true_pa - 1) if len(value) else None,
        "series": [
            [at - touched, age_s, e, e_std, ok]
            for at, age_s, e, e_std, ok in zip(heard.arrival_s, heard.age_s, heard.value_pa, heard.std_pa, heard.sound)
        ],
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    from diagnostic_msgs.msg import DiagnosticArray

    touch_s, heard = first_touch_s(args.scene), Heard()
    spin = "while True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(args.busy)]
    try:
        with Nodes() as nodes:
            listener = Listener()
            start_graph(nodes, args.scene, backend=args.backend, pause_s=args.pause)
            listener.node.create_subscription(DiagnosticArray, "estimate", heard.on_estimate, 100)
            listener.node.create_subscription(DiagnosticArray, "ground_truth", heard.on_truth, 100)
            listener.until(lambda: heard.frames, 300, "the camera films")
            listener.spin(args.seconds)
            counts = dict(listener.diagnostics.get("estimator_node", {}))
            listener.close()
    finally:
        for process in busy:
            process.kill()
    return {"scene": args.scene, "busy": args.busy, **summary(heard, args.seconds, counts, touch_s)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="from the first frame on (default: 60)")
    parser.add_argument("--scene", default="demo_drop")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--pause", type=float, default=2.5, help="seconds between two drops (default: 2.5)")
    parser.add_argument("--cores", type=int, help="processors that everything is tied to (default: all)")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside it (default: 0)")
    parser.add_argument("--json", type=Path, help="write all of it: every estimate's arrival after the touch, too")
    args = parser.parse_args()
    try:
        import rclpy  # noqa: F401
    except ImportError:
        print("rclpy is not installed: nothing to measure")
        return
    from soft_estimator.ros.graph import transport_environment

    os.environ.update(transport_environment())
    if args.cores:  # before the nodes start: they and their threads inherit it
        own = sorted(os.sched_getaffinity(0))[: args.cores]
        os.sched_setaffinity(0, own)
        os.environ["NUMBA_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(len(own))
    result = {"processors": len(os.sched_getaffinity(0)), **measure(args)}
    print(json.dumps({name: value for name, value in result.items() if name != "series"}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
