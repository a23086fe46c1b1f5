"""Shared by all tests: `gpu` tests are skipped where there is no CUDA device; which tests share a process."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

# Before NumPy is imported, here and in the commands that tests start: its linear algebra would wake a thread for each
# core, and those of two processes wait for one another. Turning 700,000 points then took 0.65 s instead of 0.02.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# How long an example takes says more of the machine than of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_configure() -> None:
    """Beside other processes one thread each; two are there for tests that compare their results.

    Started in the background of a shell, Ctrl-C is ignored, and would be by every process that a test starts and ends.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("PYTEST_XDIST_WORKER"):
        import numba

        import soft_estimator.backends.cpu  # noqa: F401  which says how threads wait, before Numba starts them

        numba.set_num_threads(1)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Three thousand tests and all that they import stay to the end: who looks through them for garbage, again and
    again, takes a fifth of the time in which they are collected."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    """A test that leaves more threads behind makes all after it in its process wait for one another: bodies of a few
    cells then took forty times as long."""
    numba = sys.modules.get("numba")
    before = None if numba is None else numba.get_num_threads()
    yield
    after = None if numba is None else numba.get_num_threads()
    if numba is not None and after != before:
        numba.set_num_threads(before)
        pytest.fail(f"leaves {after} threads behind instead of {before}: set them back")


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a ball for `measure`: it takes seconds to simulate, so those that ask for it share a group."""
    from measuring_film import write_ball

    bag = tmp_path_factory.mktemp("film") / "ball"
    write_ball(bag)
    return bag


def _why_no_gpu() -> str:
    """The reason why CuPy cannot reach a device, empty when it can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        return "" if cupy.cuda.runtime.getDeviceCount() > 0 else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device ({error})"


SLOW = Path(__file__).with_name("slow.txt")

# These start graphs, servers and browsers of their own: several at a time would be late for one another.
ONE_AT_A_TIME = (
    "test/ros/",
    "test/viewer/",
    "test/live/test_play.py",
    "test/report/test_in_browser.py",
    "test/test_readme.py::test_viewer_serves",
)


# The groups that take longest, from some three minutes to a quarter of one, in that order: begun first, two processes
# end together.
LONGEST = (
    "graphs and browsers",
    "test/test_readme.py",
    "README's scenes",
    "test/estimation/test_honest_answers.py",
    "test/live/test_poked_block.py",
    "test/live/test_long_replay.py",
    "test/live/test_replay.py",
    "test/studies/test_estimate.py",
    "test/physics/test_gradients.py",
    "test/backends/test_whole_obstacles.py",
    "test/perception/test_scan.py",
    "test/perception/test_scan_sides.py",
    "test/estimation/test_cloud_fit.py",
    "test/physics/test_multigrid.py",
    "test/physics/test_solids.py",
    "test/physics/test_neo_hookean_steps.py",
    "test/estimation/test_horizon.py",
    "test/studies/test_beam.py",
    "test/measuring/test_own_weight.py",
)


def _group(item: pytest.Item) -> str:
    """Tests of one file share its fixtures, so they share a process, unless they say themselves with which they do."""
    own = item.get_closest_marker("xdist_group")
    if own is not None:
        return str(own.args[0])
    return "graphs and browsers" if item.nodeid.startswith(ONE_AT_A_TIME) else item.nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    _skip_without_gpu(items)
    listed = tuple(line for line in SLOW.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")
    for item in items:
        if item.nodeid.startswith(listed):
            item.add_marker(pytest.mark.slow)
    slow = {_group(item) for item in items if item.get_closest_marker("slow")}
    place = {group: k for k, group in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(_group(item), len(place)), _group(item) not in slow))


def _skip_without_gpu(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
