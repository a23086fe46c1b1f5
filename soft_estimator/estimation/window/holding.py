"""How much of a window need not be simulated again when its variables move.

Before a body touches anything its motion is that of a rigid one: stiffness, damping and plane do not show in it, and a
start that is moved moves it along, rigidly. So a window that is tried at other variables is simulated from where it
begins to depend on them; at a first touch that is less than half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from soft_estimator.estimation.carried_changes import CarriedChanges
from soft_estimator.estimation.trajectory import Moment, PredictedFrame
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.body import Body
from soft_estimator.physics.state import State
from soft_estimator.physics.tangent import ColumnChanges

# Parts of the body's size: stiffness and the like may show by so much, and start and plane move by no more than this.
_SHOWS, _FARTHEST = 1e-5, 0.05
_BENT = 2e-4  # the same of a body in rigid motion: its spin stretches it, and a body that swings is none
_MOST_TURN_RAD = 0.05  # by which a start may turn the body; to first order it then stands off by half the square of it
# What is left out begins this many times as far from the first frame that a variable shows in as start and plane move:
# a plane that is moved towards the body is met earlier.
_MARGIN = 2.0


class Holding:
    """How far a motion holds.

    Args:
        pose: which variables move the start alone. step_s: of the simulation. steps_of: how far each variable may go
            before it is made linear anew, (P,): what does not show over that is not there, however little it moves.
    """

    def __init__(self, variables: Variables, pose: np.ndarray, body: Body, step_s: float, steps_of: np.ndarray) -> None:
        self.body, self.steps_of = body, steps_of
        size_m = float(np.linalg.norm(np.ptp(body.node_position_m, axis=0)))
        names = [v.name for v in variables.variables]
        self.pose, self.lasting = pose, np.setdiff1d(np.arange(len(names)), pose)
        self.turn, self.spin = (
            [j for j, name in enumerate(names) if name == kind] for kind in ("rotation_rad", "angular_velocity_rad_s")
        )
        # How far each lasting variable moves what the body touches [m].
        units = {"m": 1.0, "tangent": size_m}
        kinds = [variables.variables[j] for j in self.lasting]
        self.reach_m = np.array([units.get(v.transform, units.get(v.unit, 0.0)) for v in kinds])
        self.size_m, self.step_s = size_m, step_s

    def frames(self, predicted: Sequence[PredictedFrame], by: np.ndarray, since: np.ndarray) -> int:
        """How many of a window's first frames hold when its variables move: by so much (P,), and by so much since the
        frames' changes were worked out."""
        moves = (by, since)
        if not len(self.lasting):
            return 0
        clear = 0
        while clear < len(predicted) and all(self._unseen(predicted[clear], move) for move in moves):
            clear += 1
        if clear < 2 or clear == len(predicted):  # a body that has met nothing yet takes a few cheap steps
            return 0
        first, last = predicted[0], predicted[clear - 1]
        far_m = max(self._shift_m(last, move) for move in moves)
        if far_m > _FARTHEST * self.size_m or not self._turns_little(last, first, by):
            return 0
        ends = [np.asarray(frame.after.state.u).mean(axis=0) for frame in predicted[:clear]]
        kept = [k for k, end in enumerate(ends) if np.linalg.norm(ends[-1] - end) >= _MARGIN * far_m and k < clear - 1]
        return max(kept) + 1 if kept else 0

    def _unseen(self, frame: PredictedFrame, by: np.ndarray) -> bool:
        """Whether the lasting variables do not show at a frame."""
        changes = frame.after.changes
        if not isinstance(changes, ColumnChanges):
            return False
        own, step = (
            getattr(changes, "coarse", changes),
            np.maximum(np.abs(by[self.lasting]), self.steps_of[self.lasting]),
        )
        u, v = ((np.abs(part[:, :, self.lasting]) @ step).max() for part in (own.u, own.v))
        if max(u, self.step_s * v) > _SHOWS * self.size_m:
            return False
        state = frame.after.state
        return bool(np.abs(made_rigid(self.body, state).u - state.u).max() <= _BENT * self.size_m)

    def _turns_little(self, frame: PredictedFrame, first: PredictedFrame, by: np.ndarray) -> bool:
        gone_s = frame.after.state.time_s - first.before.state.time_s
        angle = np.linalg.norm(by[self.turn]) + gone_s * np.linalg.norm(by[self.spin])
        return bool(angle <= _MOST_TURN_RAD)

    def _shift_m(self, frame: PredictedFrame, by: np.ndarray) -> float:
        """How far the start's variables move the body at a frame, and the others what it touches."""
        changes = frame.after.known_changes
        own = getattr(changes, "coarse", changes)
        body = np.linalg.norm(own.u[:, :, self.pose] @ by[self.pose], axis=1).max()
        return float(body + self.reach_m @ np.abs(by[self.lasting]))


def moved_rigidly(moment: Moment, by: np.ndarray, body: Body) -> Moment:
    """A moment of a rigid motion with its variables moved by `by` (P,): to first order, then freed of the strain that
    a turn to first order makes."""
    there = moment.moved(by)
    changes = there.changes
    if isinstance(changes, CarriedChanges):
        state = made_rigid(changes.grids.model.body, changes.state)
        changes = CarriedChanges(changes.coarse, state, changes.grids, changes.fine)
    return Moment(made_rigid(body, there.state), changes)


def made_rigid(body: Body, state: State) -> State:
    """The undeformed body in the nearest pose and motion, in the mean over its volume."""
    weight = body.node_volume_m3 / body.volume_m3
    rest = body.node_position_m - weight @ body.node_position_m
    place = body.node_position_m + state.u
    middle, drift = weight @ place, weight @ state.v
    left, _, right = np.linalg.svd((weight[:, None] * (place - middle)).T @ rest)
    turn = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
    arm = rest @ turn.T
    inertia = (weight @ (arm**2).sum(axis=1)) * np.eye(3) - (weight[:, None] * arm).T @ arm
    spin = np.linalg.solve(inertia, weight @ np.cross(arm, state.v - drift))
    return replace(state, u=middle + arm - body.node_position_m, v=drift + np.cross(spin, arm))
