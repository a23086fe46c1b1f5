"""What a force-torque sensor behind a tool reads: minus the forces that the tool's contact presses on the body with.

Force and moment are given in the tool's frame, the moment about its origin. The reading ties E to newtons, so that it
needs no mass. Friction of the tool is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.estimation.residuals.interface import (
    ByLoss,
    FrameAdjoint,
    FrameChanges,
    FrameState,
)
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import SolidLaw, crossed
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.patch import Patch


@dataclass(frozen=True, eq=False)
class WrenchFrame:
    """One reading.

    Attributes:
        time_s: since the start of the simulation. wrench: force [N] and moment [N m] on the tool, (6,), in its frame.
        std: standard deviation of each, (6,). tool: which of the model's obstacles.
    """

    time_s: float
    wrench: np.ndarray
    std: np.ndarray
    tool: int = 0


@dataclass(frozen=True, eq=False)
class WrenchPrediction:
    """Residuals (model - measured)/std, (6,), and their derivatives by the places of the points, (6, F, 3).

    patch: the points, None where the tool touches nothing. nodes: of the body. regions: of its material. shifts: the
    parameters that shift the tool.
    """

    residual: np.ndarray
    slope: np.ndarray
    patch: Patch | None
    nodes: int
    regions: int
    shifts: tuple[str, ...] = ()
    far: int = 0

    def changes(self, changes: FrameChanges) -> np.ndarray:
        if self.patch is None:
            return np.zeros((6, changes.u.shape[2]))
        moved = self.patch.at(changes.u)
        # A shift of the tool is one of the body the other way: its origin goes along.
        shifts = [sum((getattr(d, name) for name in self.shifts), np.zeros(3)) for d in changes.parameters]
        return np.einsum("rfa,fak->rk", self.slope, moved - np.stack(shifts, axis=-1))

    def changes_adjoint(self, residual_bar: np.ndarray) -> FrameAdjoint:
        if self.patch is None:
            return FrameAdjoint(u=np.zeros((self.nodes, 3)))
        place_bar = np.einsum("r,rfa->fa", residual_bar, self.slope)
        parameters = ParameterGradient.zero(self.regions)
        for name in self.shifts:
            parameters.add(name, -place_bar.sum(axis=0))
        return FrameAdjoint(u=self.patch.spread(place_bar), parameters=parameters)


class ToolWrench(ByLoss):
    """Readings of the tools of a model: its obstacles, whose numbers are their own."""

    whitened = True

    def __init__(self, model: Model) -> None:
        self.device = DeviceBody(model.body, model.dirichlet.free, CpuBackend(), np.float64)
        self.laws = model.obstacles

    def takes(self, frame: object) -> bool:
        return isinstance(frame, WrenchFrame)

    def check(self, frame: WrenchFrame) -> str:
        if not 0 <= frame.tool < len(self.laws):
            return f"is of tool {frame.tool}, and the model has {len(self.laws)} obstacle(s); give the number of one"
        if not np.isfinite(frame.wrench).all():
            return "holds a force that is not finite; leave it out"
        return "" if (frame.std > 0).all() else "holds a standard deviation that is not positive; clean it"

    def count(self, frame: WrenchFrame) -> int:
        return 6

    def wrench(
        self, tool: int, u: np.ndarray, time_s: float, parameters: Parameters
    ) -> tuple[np.ndarray, np.ndarray, Patch | None]:
        """Force and moment on a tool (6,) in its frame, their derivatives by places (6, F, 3), and the points."""
        law = self.laws[tool]
        touched, (turn, origin) = law.touched(self.device, parameters), _frame_of(law, time_s)
        patch = touched.near(u, time_s)
        if patch is None:
            return np.zeros(6), np.zeros((6, 0, 3)), None
        # The moment is about the tool's own origin, which is shifted along with it.
        shift = law.obstacle.shift_of(parameters.values) if isinstance(law.obstacle, SolidLaw) else np.zeros(3)
        arm, force = patch.x - origin - shift, -patch.press[:, None] * patch.normal
        slope = (patch.factor * patch.slope)[:, None, None] * patch.normal[:, :, None] * patch.normal[:, None, :]
        curvature = touched.obstacle.curvature(patch.x, time_s)
        if curvature is not None:
            slope = slope - patch.press[:, None, None] * curvature
        turning = crossed(np, arm) @ slope - crossed(np, force)  # d(arm × f) = arm × df + dx × f
        whole = np.concatenate([turn.T @ force.sum(axis=0), turn.T @ np.cross(arm, force).sum(axis=0)])
        by_place = np.concatenate([np.einsum("ba,fbc->afc", turn, part) for part in (slope, turning)])
        return whole, by_place, patch

    def predict(self, frame: WrenchFrame, state: FrameState) -> WrenchPrediction:
        found, slope, patch = self.wrench(frame.tool, state.u, frame.time_s, state.parameters)
        residual, regions = (found - frame.wrench) / frame.std, state.parameters.regions
        place, slope = self.laws[frame.tool].obstacle, slope / frame.std[:, None, None]
        shifts = place.shifts if isinstance(place, SolidLaw) else ()
        return WrenchPrediction(residual, slope, patch, self.device.nodes, regions, shifts)

    def by_offset(self, frame: WrenchFrame) -> np.ndarray:
        return np.zeros(6)


def _frame_of(law: ContactLaw, time_s: float) -> tuple[np.ndarray, np.ndarray]:
    """The tool's frame in the world: of its path, or the world's own."""
    place = law.obstacle
    if isinstance(place, SolidLaw) and place.path is not None:
        return place.path.at(time_s)
    return np.eye(3), np.zeros(3)
