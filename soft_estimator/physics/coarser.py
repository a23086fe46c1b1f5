"""The same body on a grid twice as coarse, and nodal fields between the two grids.

An eighth of the cells, and an eighth of the work: how a motion changes with its parameters is smoother than the motion,
and a direction of descent needs no more than a few digits of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.physics.between_grids import prolongation
from soft_estimator.physics.body import Body, build_body, felt_by
from soft_estimator.physics.dirichlet import bind_dirichlet
from soft_estimator.physics.integrator import Integrator
from soft_estimator.physics.model import Model
from soft_estimator.physics.state import State

# Cells of the coarse grid through the body, as a ball of its volume over surface counts them. A ball of 5.3 of them
# states the deviations of its stiffness within 10 % of those of the fine grid; with fewer nobody has looked.
LEAST_CELLS = 4.5
_NEAR = 16  # fine nodes that a coarse node outside of the fine grid's is extrapolated from


@dataclass(frozen=True, eq=False)
class CoarserModel:
    """A model on the coarser grid, and the way to and fro.

    Attributes:
        fine, model: the given one and the coarser one.
    """

    fine: Body
    model: Model

    @cached_property
    def prolongation(self) -> sp.csr_matrix:
        """Trilinear interpolation from coarse nodes to fine ones, (N, n); exact for affine fields."""
        return prolongation(self.fine, self.model.body)

    @cached_property
    def restriction(self) -> sp.csr_matrix:
        """Values at the coarse nodes, (n, N): those of the fine nodes there, extrapolated beyond; exact for affine
        fields."""
        return _restriction(self.fine, self.model.body)

    def with_step(self, integrator: Integrator) -> CoarserModel:
        """The same for another time scheme; the same one for the same scheme."""
        if integrator not in self._by_step:
            other = CoarserModel(self.fine, self.model.with_step(integrator))
            alike = ("prolongation", "restriction", "_by_step")
            other.__dict__.update({n: getattr(self, n) for n in alike})  # as they are
            self._by_step[integrator] = other
        return self._by_step[integrator]

    @cached_property
    def _by_step(self) -> dict[Integrator, CoarserModel]:
        """Each one is made once, so that what a backend keeps of it stays its own."""
        return {self.model.integrator: self}

    def prolonged(self, nodal: np.ndarray) -> np.ndarray:
        """A coarse nodal array (n, ...) at the fine nodes."""
        return _applied(self.prolongation, nodal)

    def restricted(self, nodal: np.ndarray) -> np.ndarray:
        """A fine nodal array (N, ...) at the coarse nodes."""
        return _applied(self.restriction, nodal)

    def restricted_state(self, state: State) -> State:
        """A state of the fine body, on the coarse one."""
        return State(self.restricted(state.u), self.restricted(state.v), self.restricted(state.a), state.time_s)

    def prolonged_state(self, state: State) -> State:
        """A state of the coarse body, on the fine one."""
        return State(self.prolonged(state.u), self.prolonged(state.v), self.prolonged(state.a), state.time_s)

    def followed(self, coarse: State, fine: State) -> State:
        """A state of the coarse body, moved rigidly to where the fine body is, and to its mean motion: two bodies that
        bounce by themselves part in the course of time."""
        body = self.model.body
        weight = body.node_volume_m3 / body.volume_m3
        arm = body.node_position_m + coarse.u
        arm = arm - weight @ arm
        modes = np.concatenate([np.broadcast_to(np.eye(3), (len(arm), 3, 3)), _turns(arm)], axis=2).reshape(-1, 6)
        weighted = modes * np.repeat(weight, 3)[:, None]

        def towards(name: str) -> np.ndarray:
            own = np.asarray(getattr(coarse, name))
            off = (self.restricted(getattr(fine, name)) - own).reshape(-1)
            return own + (modes @ np.linalg.solve(weighted.T @ modes, weighted.T @ off)).reshape(-1, 3)

        return replace(coarse, u=towards("u"), v=towards("v"), a=towards("a"))


def coarser_model(model: Model) -> CoarserModel | None:
    """The model on a grid of twice the spacing; None where the body has too few cells for that, or where more acts on
    it than gravity and contact: parts that are held, loads, laws with a memory. Nor where it begins bent along modes:
    of a ball's lowest two, ten milliseconds later, the changes on a grid of five cells were off by up to a quarter."""
    body = model.body
    bound = model.dirichlet.held or model.dirichlet.weak or bool(np.any(model.load_n))
    if bound or model.more or model.material != "corotated" or model.rests or model.modes is not None:
        return None
    if body.thickness_m < LEAST_CELLS * 2 * body.grid.spacing_m:
        return None
    grid = body.grid
    whole = np.pad(grid.phi_m, [(0, (n - 1) % 2) for n in grid.shape], mode="reflect", reflect_type="odd")
    detail = SignedDistanceGrid(whole, grid.origin_m, grid.spacing_m)
    halved = SignedDistanceGrid(whole[::2, ::2, ::2], grid.origin_m, 2 * grid.spacing_m)
    fine_cells = cKDTree(_centres(body))

    def region_of(centres_m: np.ndarray) -> np.ndarray:
        return body.cell_region[fine_cells.query(centres_m)[1]]

    coarse = build_body(halved, correct=False, detail=detail, region_of=region_of)
    coarse = felt_by(coarse, body.contact_points.edge_m)
    if coarse.cell_region.max() != body.cell_region.max():
        return None
    load_n = np.zeros((coarse.node_count, 3))
    return CoarserModel(body, replace(model, body=coarse, dirichlet=bind_dirichlet(coarse, []), load_n=load_n))


def _centres(body: Body) -> np.ndarray:
    return body.node_position_m[body.cell_nodes].mean(axis=1)


def _turns(arm: np.ndarray) -> np.ndarray:
    """Moves (n, 3, 3) of arms (n, 3) that turn about the axes."""
    return np.stack([np.cross(axis, arm) for axis in np.eye(3)], axis=2)


def _applied(matrix: sp.csr_matrix, nodal: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(nodal).reshape(len(nodal), -1)
    return (matrix @ flat).reshape(matrix.shape[0], *nodal.shape[1:])


def _restriction(fine: Body, coarse: Body) -> sp.csr_matrix:
    spacing = coarse.grid.spacing_m
    distance, nearest = cKDTree(fine.node_position_m).query(coarse.node_position_m, k=min(_NEAR, fine.node_count))
    rows, columns, values = [], [], []
    for c, (far, near) in enumerate(zip(distance, nearest)):
        weight = np.zeros(len(near))
        weight[0] = 1.0
        if far[0] > 1e-6 * spacing:
            # An affine field fitted to the nodes around, the nearest ones first, and taken at the coarse node.
            base = np.c_[np.ones(len(near)), (fine.node_position_m[near] - coarse.node_position_m[c]) / spacing]
            trust = 1.0 / (0.25 + (far / spacing) ** 2)
            weight = np.linalg.lstsq((base * np.sqrt(trust)[:, None]).T, np.eye(4)[0], rcond=None)[0] * np.sqrt(trust)
        rows.append(np.full(len(near), c))
        columns.append(near)
        values.append(weight)
    where = (np.concatenate(rows), np.concatenate(columns))
    out = sp.csr_matrix((np.concatenate(values), where), (coarse.node_count, fine.node_count))
    out.eliminate_zeros()
    return out
