"""Fields between a body's grid and the coarser one where a backend computes; the counterpart of `CoarserModel`."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.state import State


class DeviceGrids:
    """Both grids of a coarser model, and the way to and fro on a backend.

    Nodal arrays are as a backend's whole steps have them: (n, 3), or (columns, n, 3) of several at once.
    """

    def __init__(self, grids: CoarserModel, backend: Backend) -> None:
        self.grids, self.backend = grids, backend
        self.model = grids.model

    @cached_property
    def _prolongation(self) -> _Matrix:
        return _Matrix(self.grids.prolongation, self.model.dtype, self.backend)

    @cached_property
    def _restriction(self) -> _Matrix:
        return _Matrix(self.grids.restriction, self.model.dtype, self.backend)

    def prolonged(self, nodal: Array) -> Array:
        """A coarse nodal array at the fine nodes."""
        return self._prolongation.times(nodal)

    def restricted(self, nodal: Array) -> Array:
        """A fine nodal array at the coarse nodes."""
        return self._restriction.times(nodal)

    def restricted_state(self, state: State) -> State:
        """A state of the fine body, on the coarse one."""
        u, v, a = self.restricted(self.backend.xp.stack([state.u, state.v, state.a]))
        return State(u, v, a, state.time_s)

    def prolonged_state(self, state: State) -> State:
        """A state of the coarse body, on the fine one."""
        u, v, a = self.prolonged(self.backend.xp.stack([state.u, state.v, state.a]))
        return State(u, v, a, state.time_s)

    @cached_property
    def _rest(self) -> tuple[Array, Array]:
        """The coarse nodes' places (n, 3) [m], and their shares of the volume (n,)."""
        body = self.model.body
        up = self.backend.to_device
        return up(body.node_position_m), up(body.node_volume_m3 / body.volume_m3)

    def followed(self, coarse: State, fine: State) -> State:
        """As `CoarserModel.followed`; waits."""
        xp, (place, weight) = self.backend.xp, self._rest
        arm = place + coarse.u
        arm = arm - weight @ arm
        modes = xp.zeros((len(arm), 3, 6))
        for axis in range(3):
            after, last = (axis + 1) % 3, (axis + 2) % 3
            modes[:, axis, axis] = 1.0
            modes[:, after, 3 + axis], modes[:, last, 3 + axis] = -arm[:, last], arm[:, after]  # the axis × the arm
        own = xp.stack([coarse.u, coarse.v, coarse.a]).astype(np.float64)
        off = self.restricted(xp.stack([fine.u, fine.v, fine.a])) - own
        flat = modes.reshape(-1, 6)
        weighted = (weight[:, None, None] * modes).reshape(-1, 6)
        sums = self.backend.to_host(weighted.T @ xp.concatenate([flat, off.reshape(3, -1).T], axis=1))
        by = self.backend.to_device(np.linalg.solve(sums[:, :6], sums[:, 6:]))
        u, v, a = (own + (flat @ by).T.reshape(own.shape)).astype(self.model.dtype)
        return replace(coarse, u=u, v=v, a=a)


class _Matrix:
    """A sparse matrix between nodal arrays, (rows, n)."""

    def __init__(self, matrix: sp.csr_matrix, real: type, backend: Backend) -> None:
        self.backend, self.rows = backend, matrix.shape[0]
        self.row_start = backend.to_device(matrix.indptr, np.int64)
        self.column = backend.to_device(matrix.indices, np.int32)
        self.values = backend.to_device(matrix.data, real)

    def times(self, nodal: Array) -> Array:
        """Of one nodal array (n, 3) or of several (columns, n, 3)."""
        xp, several = self.backend.xp, nodal.ndim == 3
        beside = xp.moveaxis(nodal, 1, 0) if several else nodal
        flat = xp.ascontiguousarray(beside).reshape(len(beside), -1)
        out = xp.empty((self.rows, flat.shape[1]), self.values.dtype)
        self.backend.multiply_scalars(self.row_start, self.column, self.values, flat, out)
        return xp.ascontiguousarray(xp.moveaxis(out.reshape(self.rows, -1, 3), 1, 0)) if several else out
