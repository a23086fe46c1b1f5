"""Lanes against NumPy, number by number; and what is kept of a cell's stiffness."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from soft_estimator.backends.cpu import stiffness
from soft_estimator.backends.cpu.lanes import (
    LANES,
    all_alike,
    first_three,
    four_of,
    in_double,
    lanes_of,
    no_four,
    nothing_of,
    put,
    roots,
)


@njit
def mixed(a, b, factor, out):
    """Every operation once, on the lanes that begin at the third number."""
    x, y = lanes_of(a, 2), lanes_of(b, 2)
    total = nothing_of(a)
    total += factor * x
    total -= y
    put(roots(x * x + y * y) / (x + y) + total, out, 2)


@njit
def sums_of_three(a, out):
    total = no_four(a)
    for at in range(0, a.shape[0] - 3, 4):
        total += four_of(a, at)
    out[0] = first_three(total)


@njit
def spread(number, out):
    put(all_alike(number), out, 0)


@njit
def widened(a, out):
    put(in_double(lanes_of(a, 0)), out, 0)


@njit
def into_another(a, out):
    put(lanes_of(a, 0), out, 0)


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_lanes_are_what_numpy_says(real):
    rng = np.random.default_rng(1)
    a, b = rng.uniform(1, 2, (2, 3 + LANES)).astype(real)
    out, kept = np.full((2, 3 + LANES), 7, real)
    mixed(a, b, 3.0, out)
    inside = slice(2, 2 + LANES)
    expected = np.sqrt(a * a + b * b) / (a + b) + real(3) * a - b
    np.testing.assert_allclose(out[inside], expected[inside], rtol=4 * np.finfo(real).eps)
    np.testing.assert_array_equal(np.delete(out, np.r_[inside]), kept[:3])  # nothing beside them is written
    few = np.zeros(1, real)
    sums_of_three(a[:8].copy(), few)
    assert few[0] == pytest.approx(a[[0, 1, 2, 4, 5, 6]].sum(), rel=4 * np.finfo(real).eps)


def test_one_number_and_more_digits():
    out = np.zeros(LANES)
    spread(2.5, out)
    np.testing.assert_array_equal(out, 2.5)
    single = np.linspace(0, 1, LANES, dtype=np.float32)
    widened(single, out)
    np.testing.assert_array_equal(out, single.astype(np.float64))


def test_arrays_that_cannot_hold_them_are_no_programs():
    row = np.zeros((2 * LANES, 2))[:, 0]
    for wrong in (row, np.zeros(LANES, np.float32), np.zeros(LANES, np.int64)):
        with pytest.raises(TypingError):
            into_another(np.zeros(LANES), wrong)


def test_a_cells_stiffness_is_made_once_and_kept_as_long_as_its_table(small_torus):
    table = small_torus.cells.element_table.copy()
    own = stiffness.stiffness_of(table, 1.0, 0.5)
    assert stiffness.stiffness_of(table, 1.0, 0.5) is own
    matrix = own.reshape(len(table), 8, 3, 3, 8).transpose(0, 4, 3, 1, 2).reshape(len(table), 24, 24)
    np.testing.assert_allclose(matrix, matrix.transpose(0, 2, 1), atol=1e-15 * abs(matrix).max())
    rest = np.tile(np.eye(3), (8, 1))  # moved as a whole nothing is strained
    assert abs(matrix @ rest).max() < 1e-13 * abs(matrix).max()
    for k in range(5):
        stiffness.stiffness_of(table, 1.0, 0.1 * k)
    assert stiffness.stiffness_of(table, 1.0, 0.5) is not own  # the oldest goes
    name = id(table)
    assert name in stiffness._known
    del table
    gc.collect()
    assert name not in stiffness._known
