"""Compiled loops: what a process compiles and what it loads from the disk give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENERGIES = """
import numpy as np
from soft_estimator.backends.cpu.elasticity import MEAN, cell_energies
rng = np.random.default_rng(0)
u, r = 1e-3 * rng.normal(size=(50, 3)), np.eye(3).ravel() + 1e-2 * rng.normal(size=(64, 9))
nodes, row, table = rng.integers(0, 50, (64, 8)), rng.integers(0, 5, 64), rng.normal(size=(5, MEAN + 25))
out = np.zeros(64)
cell_energies(u, np.zeros_like(u), r, nodes, row, table, np.ones(64), 1.4, 0.3, 0.02, out)
print(out.tobytes().hex())
"""


def test_a_process_that_compiles_gives_the_bits_of_one_that_loads(tmp_path: Path) -> None:
    """Energies of cells, whose parts are loops of their own that fuse sums: 52 of these 64 differed."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_NUM_THREADS": "1"}
    call = [sys.executable, "-c", ENERGIES]
    first, later = (
        subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert list(tmp_path.rglob("*.nbi"))
    assert first == later
