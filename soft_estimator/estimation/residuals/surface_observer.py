"""Residuals of a whole window at once, on a backend that measures points by itself (`backend.observer`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from soft_estimator.backends.interface import Backend, Observer, View
from soft_estimator.estimation.residuals.carried_field import HALO_CELLS, CarriedField
from soft_estimator.estimation.residuals.carried_surface import LEAST_SLOPE, REACH_CELLS
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, line_bias, point_bias
from soft_estimator.physics.body import Body


def build_observer(body: Body, field: CarriedField, backend: Backend) -> Observer:
    """The backend's observer of a body: the carried field's nodes, then the surface's vertices."""
    if backend.observer is None:
        raise ValueError(f"backend '{backend.name}' measures no whole windows; use point_residuals, frame by frame")
    s = body.surface
    vertices = np.arange(len(s.node_a))
    rows, columns = np.concatenate([vertices, vertices]), np.concatenate([s.node_a, s.node_b])
    share = np.concatenate([1 - s.weight_b, s.weight_b])
    ride = sp.csr_matrix((share, (rows, columns)), (len(vertices), body.node_count))
    follow = sp.vstack([field.follow, ride]).tocsr()
    follow.sort_indices()
    follower = follow.T.tocsr()
    follower.sort_indices()
    arrays: dict[str, Any] = {
        "rest": np.concatenate([field.position_m, body.surface_positions_m()]),
        "phi": field.phi_m,
        "laplacian": field.laplacian_per_m,
        "cell_nodes": field.cell_nodes,
        "node_cells": _node_cells(field),
        "in_body": field.in_body,
    }
    for name, matrix in (("follow", follow), ("follower", follower)):
        arrays |= {
            f"{name}_start": matrix.indptr,
            f"{name}_column": matrix.indices,
            f"{name}_share": matrix.data,
        }
    return backend.observer(arrays, len(vertices), field.spacing_m, HALO_CELLS, LEAST_SLOPE, REACH_CELLS)


def watch(observer: Observer, frames: list[ObservedFrame]) -> View:
    """The observer's view of some frames."""
    join = np.concatenate
    return observer.watch(
        join([f.points_m for f in frames]),
        join([np.zeros_like(f.points_m) if f.along is None else f.along for f in frames]),
        join([point_bias(f) for f in frames]),
        join([line_bias(f) for f in frames]),
        join([1 / f.std_m for f in frames]),
        np.array([len(f.points_m) for f in frames]),
    )


def _node_cells(field: CarriedField) -> np.ndarray:
    """The cell whose corner p a node is, (M, 8), -1 for none."""
    out = np.full((len(field.phi_m), 8), -1, np.int32)
    for p in range(8):
        out[field.cell_nodes[:, p], p] = np.arange(len(field.cell_nodes))
    return out
