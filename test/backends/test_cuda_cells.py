"""What the GPU's products without a matrix take of a body, checked where there is no GPU."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cuda.cell_layout import (
    ROW,
    cell_moments,
    few_blocks,
    lay_out_cells,
    lumped_volume,
    mass_scale,
    mode_weights,
)

SIGNS = np.array([[(-1) ** bin(m & ~p).count("1") for p in range(8)] for m in range(8)], float)


def arrays_of(body):
    cells = body.cells
    return {
        "cell_nodes": body.cell_nodes,
        "gradient_index": cells.gradient_index,
        "cell_region": body.cell_region,
        "point_start": np.zeros(len(body.cell_nodes) + 1, np.int64),
        "free": np.ones(body.node_count),
    }


def test_moments_make_up_the_table(torus):
    """A full cell of size h has ∫(ξ^m)² (2/h)² / 64 = h/16 · Π 1/(2 m_a + 1) and no stabilisation; cut cells have less
    volume and some. A table that is not made of moments is told: one entry of gradients, means or masses off by 1 %."""
    table, masses = torus.cells.element_table, torus.cells.consistent_mass_table_m3
    moments = cell_moments(table, masses)
    h = torus.grid.spacing_m
    full = np.zeros((3, 3, 3))
    full[::2, ::2, ::2] = np.einsum("i,j,k->ijk", *[[1.0, 1 / 3]] * 3) * h / 16
    assert np.allclose(moments[0, :27], full.ravel(), rtol=0, atol=1e-14 * h) and abs(moments[0, 27]) < 1e-15 * h
    assert (moments[1:, 0] < moments[0, 0]).all() and (moments[1:, 27] > 0).all()
    assert moments.shape == (len(table), ROW)
    for given, entry in ((table, 47), (table, 340), (masses, 11)):
        wrong = [x.copy() for x in (table, masses)]
        changed = wrong[0 if given is table else 1]
        changed[3, entry] += 0.01 * np.abs(changed[3]).max()
        assert cell_moments(*wrong) is None


def test_cells_and_nodes_share_the_mass(torus):
    """M x = what the nodes keep times x + Σ of the cells' s Σ_mn H_mp H_nq moment(ξ^m ξ^n) x_q, to rounding."""
    cells = torus.cells
    moments = cell_moments(cells.element_table, cells.consistent_mass_table_m3)
    assert moments is not None
    place = [[sum(3**e * ((m >> e & 1) + (n >> e & 1)) for e in range(3)) for n in range(8)] for m in range(8)]
    matrices = SIGNS.T @ moments[:, place] @ SIGNS * mass_scale(moments, cells.consistent_mass_table_m3)
    kept = lumped_volume(torus.node_volume_m3, torus.cell_nodes, cells.gradient_index, cells.consistent_mass_table_m3)
    assert (kept > 0).all()
    x = np.random.default_rng(2).normal(size=torus.node_count)
    product = kept * x
    np.add.at(
        product,
        torus.cell_nodes,
        np.einsum("cpq,cq->cp", matrices[cells.gradient_index], x[torus.cell_nodes]),
    )
    np.testing.assert_allclose(product, torus.mass_matrix_m3 @ x, rtol=0, atol=1e-13 * np.abs(product).max())


def test_weights_of_modes():
    """Σ_p weight_p u_p = Σ_m out_m (H u)_m for any weights and values."""
    rng = np.random.default_rng(0)
    weight, u = rng.normal(size=(5, 8)), rng.normal(size=8)
    assert np.allclose(mode_weights(weight) @ (SIGNS @ u), weight @ u, rtol=1e-13)


def test_faces_gather_what_corners_do(torus):
    """Adding up face by face, through the places, gives each node the sum of its corners' values, exactly in
    integers."""
    arrays = arrays_of(torus)
    rng = np.random.default_rng(1)
    for pieces in (1, 7, 100, 10 * len(torus.cell_nodes)):
        cells, start, place = lay_out_cells(arrays, pieces)
        values = rng.integers(-100, 100, size=torus.cell_nodes.shape)
        faces = np.zeros((cells[:, 8].max() + 2, 4), np.int64)
        np.add.at(faces, cells[:, 8], values[:, ::2])
        np.add.at(faces, cells[:, 8] + 1, values[:, 1::2])
        want = np.zeros(torus.node_count, np.int64)
        np.add.at(want, torus.cell_nodes, values)
        got = np.add.reduceat(faces.ravel()[place], start[:-1])
        assert np.array_equal(got, want) and start[-1] == faces.size
        ends = len(torus.cell_nodes) * np.arange(1, pieces + 1) // pieces - 1
        assert (cells[ends[ends >= 0], 10] & 2).all()  # nothing is carried from piece to piece


def test_few_blocks(torus):
    """Diagonal blocks of all rows, whole rows of held nodes, columns as in the whole pattern."""
    held = np.full(torus.node_count, -1)
    held[[3, 40]] = 0
    slot, start, column = few_blocks(torus.slot, torus.column, held)
    for i in (0, 3, 17, 40):
        kept = np.nonzero(slot[i] >= 0)[0]
        assert np.array_equal(kept, np.nonzero(torus.slot[i] >= 0)[0] if held[i] >= 0 else [13])
        assert np.array_equal(slot[i, kept], np.arange(start[i], start[i + 1]))
        assert np.array_equal(column[slot[i, kept]], torus.column[torus.slot[i, kept]])
