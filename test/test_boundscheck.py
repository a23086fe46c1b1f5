"""Loops that take foreign data, with a check of every index: none of them reads beside its arrays.

`make test` runs them uncompiled, `make boundscheck` compiled with the check and the fuzz tests beside them,
`make boundscheck ALL=1` the whole suite of the CPU so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
LOOPS = ("test/perception/test_kernels.py", "test/perception/test_thinning.py")


@pytest.mark.skipif(not CHECKED, reason="runs inside `make boundscheck`")
def test_the_check_is_on() -> None:
    """A read behind the end is an IndexError; without the check it is whatever lies there."""
    from numba import njit, prange

    @njit
    def behind(a: np.ndarray) -> float:
        return a[a.shape[0]]

    @njit(parallel=True)
    def behind_in_parallel(a: np.ndarray, out: np.ndarray) -> None:
        for i in prange(a.shape[0] + 1):
            out[0] = a[i]

    with pytest.raises(IndexError):
        behind(np.zeros(3))
    with pytest.raises((IndexError, SystemError)):  # how numba tells of an error inside a parallel loop
        behind_in_parallel(np.zeros(3), np.zeros(1))


@pytest.mark.slow
@pytest.mark.skipif(CHECKED, reason="already inside")
def test_loops_on_foreign_data_stay_inside_their_arrays() -> None:
    """The tests of these loops pass uncompiled, where NumPy checks every index, in a process of their own: whether to
    compile is asked once, at the start. How long a sort takes says nothing of its indices, and is left out."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not n_log_n", *LOOPS]
    uncompiled = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, cwd=ROOT, env=uncompiled, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
