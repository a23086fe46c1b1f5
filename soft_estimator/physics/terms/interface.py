"""What a physical term gives to a step, to its tangent and to its adjoint.

A step solves A Δu = r on the free nodes, with the coefficients of `integrator`:

    A = c_m M + c_d D + c_k K        r = M (p_v v + p_a a) + D (q_v v + q_a a) + f - f_int(u)

Every term adds its share of A (`add_blocks`) and of r (`add_force`). What a term makes linear it makes linear at a
guess of Δu: the last motion carried on, or, in steps of several Newton rounds, the last round's Δu. With g = r - A Δu,
the tangent adds the change of g at fixed Δu (`push`) and the adjoint the derivatives of λᵀg (`pull`), both by the state
before the step, by the guess and by the parameters. So a law is written once for each of these, in one file, and step,
tangent, adjoint and guard hold no law.

A term whose force depends on more of the past than u, v and a names its memory: an array that joins the state, moved on
at the end of a step (`advance_memory`), with its own `push_memory` and `pull_memory`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import Integrator
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State

At = TypeVar("At")


@dataclass(frozen=True, eq=False)
class Stage:
    """A step that is being taken: where it starts, by which scheme, and where its terms are made linear.

    Attributes:
        device: the body. scheme: coefficients. state: before the step. guess: of Δu [m], (N, 3).
        all_implicit: nothing may be extrapolated in time (the backward-Euler fallback).
        definite: blocks serve a solve alone, and may leave out what makes them indefinite; derivatives need them true.
        iterated: the step is made linear again at its solution until that rests; otherwise the guess is the last
            motion's. minimised: and that by a search along Newton's directions, which ends at blocks that are true.
    """

    device: DeviceBody
    scheme: Integrator
    state: State
    guess: Array
    all_implicit: bool = False
    definite: bool = False
    iterated: bool = False
    minimised: bool = False

    @cached_property
    def turned_at(self) -> Array:
        """Displacement at which the cells' rotations are taken."""
        return self.state.u + self.scheme.predictor * self.guess

    @cached_property
    def rotations(self) -> Array:
        """Of the cells, (C, 9), shared by all terms that turn with them."""
        return self.device.rotations(self.turned_at)

    @cached_property
    def rotations_before(self) -> Array:
        """Of the cells in the state before the step, (C, 9)."""
        return self.rotations if self.scheme.predictor == 0.0 else self.device.rotations(self.state.u)

    @cached_property
    def predicted(self) -> Array:
        """Displacement at which the force balance of the step is expected to hold."""
        return self.state.u + self.scheme.c_k * self.guess

    @cached_property
    def known_velocity(self) -> Array | None:
        """The part q_v v + q_a a of the damped velocity that is known before the solve; None where there is none."""
        return self.scheme.known_velocity(self.state.v, self.state.a)

    @property
    def balance_time_s(self) -> float:
        """When the force balance of the step holds."""
        return self.state.time_s + self.scheme.c_k * self.scheme.step_s


class Assembly:
    """A step's matrix in the making: blocks of the body's pattern, and what is still to be added to them.

    Attributes:
        diagonal: [N/m], (N,), times the unit matrix on the nodes. inertia: [N/m], (B,), one number for each block of
            the pattern, times the unit matrix; None for nothing. blocks: (B, 9), None before the first loop wrote them.
        rubbing: what friction adds to the trace of each node's diagonal block [N/m], (N,), on the host; None without
            friction.
        dilatation: rows B (C, 24) of the part BᵀB of the blocks that makes a body nearly incompressible, for the
            preconditioner (`pressure`); None where it is not worth it.
    """

    def __init__(self, device: DeviceBody) -> None:
        self.device = device
        self.inertia: Array | None = None
        self.dilatation: Array | None = None
        self.rubbing: np.ndarray | None = None
        self.blocks: Array | None = None

    def add_inertia(self, values: Array) -> None:
        """One number for each block of the pattern, (B,), times the unit matrix."""
        self.inertia = values if self.inertia is None else self.inertia + values

    @cached_property
    def diagonal(self) -> Array:
        """Zeros when it is first asked for: most bodies have nothing there."""
        return self.device.xp.zeros(self.device.nodes, self.device.dtype)

    @property
    def has_diagonal(self) -> bool:
        return "diagonal" in vars(self)

    def take_inertia(self) -> Array:
        """Inertia and diagonal so far, (B,), for a loop that writes them along with its blocks."""
        d, taken = self.device, self.inertia
        taken = d.xp.zeros(len(d.column), d.dtype) if taken is None else taken
        if self.has_diagonal:
            taken[d.slot[:, 13]] += self.diagonal
            del self.diagonal
        self.inertia = None
        return taken

    def copy(self) -> Assembly:
        """The same so far, to be gone on with."""
        out = Assembly(self.device)
        if self.has_diagonal:
            out.diagonal += self.diagonal
        out.inertia = None if self.inertia is None else self.inertia.copy()
        out.blocks = None if self.blocks is None else self.blocks.copy()
        out.dilatation = self.dilatation
        out.rubbing = None if self.rubbing is None else self.rubbing.copy()
        return out

    def times(self, x: Array) -> Array:
        """The matrix so far times a nodal vector (N, 3)."""
        d, out = self.device, self.diagonal[:, None] * x if self.has_diagonal else None
        if self.inertia is not None:
            product = d.xp.empty_like(x)
            d.backend.multiply_scalars(d.row_start, d.column, self.inertia, x, product)
            out = product if out is None else out + product
        if self.blocks is not None:
            product = d.xp.empty_like(x)
            d.backend.multiply(d.row_start, d.column, self.blocks, x, product)
            out = product if out is None else out + product
        return d.xp.zeros_like(x) if out is None else out

    def writable(self) -> Array:
        """The blocks, zero before the first term."""
        if self.blocks is None:
            self.blocks = self.device.xp.zeros((len(self.device.column), 9), self.device.dtype)
        return self.blocks

    def add_blocks(self, slots: np.ndarray, values: np.ndarray) -> None:
        """Blocks (S, 9) of the host at places (S,) of the pattern."""
        d = self.device
        d.backend.add_blocks(d.backend.to_device(slots), d.up(values), self.writable())

    def add_rubbing(self, traces: np.ndarray) -> None:
        """What friction adds to the traces of the diagonal blocks [N/m], (N,)."""
        self.rubbing = traces if self.rubbing is None else self.rubbing + traces

    def finished(self) -> Array:
        """The blocks with everything in them."""
        blocks = self.writable()
        if self.inertia is not None or self.has_diagonal:
            blocks[:, ::4] += self.take_inertia()[:, None]
        return blocks


@dataclass(frozen=True, eq=False)
class Columns:
    """Changes along several directions before a step, each (N, 3, width).

    Attributes:
        u, v, a: of the state. guess: of the guess of Δu. known: of the known velocity, None where there is none.
        memory: of the terms' memories, (..., width) each; one that is missing does not change.
    """

    u: Array
    v: Array
    a: Array
    guess: Array
    known: Array | None
    memory: Mapping[str, Array] = field(default_factory=dict)


class Directions:
    """Directions of the parameters, side by side in columns as wide as the backend's loops take.

    Attributes:
        list: the directions. width: columns, filled up with zeros.
        start_m: change of the initial displacement along each, (N, 3) [m], on the host.
    """

    def __init__(
        self, directions: Sequence[ParameterGradient], backend: Backend, start_m: Sequence[np.ndarray] = ()
    ) -> None:
        self.list, self.backend, self.start_m = list(directions), backend, start_m
        self.width = padded(len(self.list), backend)
        self._columns: dict[str, np.ndarray] = {}

    def column(self, name: str) -> np.ndarray:
        """The directions' changes of a parameter, (..., width), on the host."""
        if name not in self._columns:
            values = np.array([getattr(d, name) for d in self.list], dtype=np.float64)
            out = np.zeros((self.width, *values.shape[1:]))
            out[: len(self.list)] = values
            self._columns[name] = np.moveaxis(out, 0, -1)
        return self._columns[name]

    def any(self, name: str) -> bool:
        """Whether some direction changes the parameter."""
        return bool(self.column(name).any())

    def on_device(self, values: np.ndarray, dtype: npt.DTypeLike | None = None) -> Array:
        return self.backend.to_device(values, dtype)


def padded(count: int, backend: Backend) -> int:
    """The width in which so many columns are handed over."""
    return -(-count // backend.column_multiple) * backend.column_multiple


@dataclass
class Pulled:
    """Derivatives of λᵀg, to which every term adds its share.

    Attributes:
        u, v, a: by the state before the step, (N, 3). guess: by the guess of Δu. known: by the known velocity.
        rotations: by the cells' rotations, (C, 9), None where no term turns with them; `by_rotations` makes them.
        start: by the initial displacement, (N, 3), on the host. gradient: by the parameters.
        memory: by the terms' memories before the step.
    """

    u: Array
    v: Array
    a: Array
    guess: Array
    known: Array
    start: np.ndarray
    gradient: ParameterGradient
    rotations: Array | None = None
    memory: dict[str, Array] = field(default_factory=dict)

    def by_rotations(self, device: DeviceBody) -> Array:
        """The derivatives by the cells' rotations, to add to; zero at first."""
        if self.rotations is None:
            self.rotations = device.xp.zeros((device.cells, 9))
        return self.rotations

    def add_memory(self, name: str, bar: Array) -> None:
        """Add to the derivative by a term's memory."""
        self.memory[name] = self.memory[name] + bar if name in self.memory else bar


class Term(Generic[At]):
    """One physical effect of a body, with parameters, on a backend; what it does not have it leaves out.

    Attributes:
        parameters: names of the registered parameters that change it. rests_undeformed: whether an undeformed body at
            rest in any pose does not feel it, nor a small rigid motion of it. curved: its share of g is not linear in
            Δu and is the slope of a potential; `add_residual` and `potential_j` give both. minimised: steps with it are
            taken by `newton`, in which all terms are curved or linear in Δu.
        memory: the name of what it carries along in `State.memory`, "" for a term without.
    """

    parameters: ClassVar[tuple[str, ...]] = ()
    rests_undeformed: ClassVar[bool] = False
    curved: ClassVar[bool] = False
    minimised: ClassVar[bool] = False
    memory: str = ""

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> None:
        """device: the body's arrays. values: of the parameters. start: initial displacement (N, 3) [m]."""
        self.device, self.values, self.start = device, values, start

    def substeps(self, state: State, scheme: Integrator) -> int:
        """How many shorter steps a step from here must be cut into."""
        return 1

    def prepare(self, stage: Stage) -> At:
        """What the step is made linear at; handed to the calls below."""
        return None  # type: ignore[return-value]

    def add_blocks(self, stage: Stage, at: At, assembly: Assembly) -> None:
        """Add the share of A."""

    def add_force(self, stage: Stage, at: At, rhs: Array) -> None:
        """Add the share of r [N], (N, 3)."""

    def add_residual(self, stage: Stage, at: At, out: Array) -> None:
        """Of a curved term: add the share of g = r - A Δu at Δu = the guess [N], (N, 3)."""

    def potential_j(self, stage: Stage, at: At) -> Array:
        """Of a curved term: what g is minus the slope of by Δu, at Δu = the guess [J], as numbers whose sum it is."""
        return self.device.xp.zeros(1)

    def whole_slope(self, stage: Stage, at: At) -> bool:
        """Whether, at Δu = the guess, its share of A is all that its share of g changes by with Δu."""
        return True

    def push(
        self, stage: Stage, at: At, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        """Add the change of g = r - A Δu at fixed Δu to out, (N, 3, width)."""

    def pull(self, stage: Stage, at: At, increment: Array, lmbda: Array, out: Pulled) -> None:
        """Add the derivatives of λᵀ(r - A Δu) to out."""

    def advance_memory(self, stage: Stage, at: At, increment: Array) -> Array:
        """The memory after a step by Δu; asked of terms that name one."""
        raise NotImplementedError(f"{type(self).__name__} names a memory and does not advance it")

    def push_memory(
        self, stage: Stage, at: At, increment: Array, changes: Columns, moved: Array, directions: Directions
    ) -> Array:
        """Change of the memory after a step (..., width), given those before it and moved, that of Δu (N, 3, width)."""
        raise NotImplementedError(f"{type(self).__name__} names a memory and does not push it")

    def pull_memory(self, stage: Stage, at: At, increment: Array, bar: Array, out: Pulled) -> Array:
        """Hand the derivative by the memory after a step on to what was before it (out) and to Δu (returned, N x 3)."""
        raise NotImplementedError(f"{type(self).__name__} names a memory and does not pull it")

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        """Energy [J] the term holds at a state, by the entry of `energy.Balance` it belongs to."""
        return {}

    def force_n(self, state: State) -> np.ndarray:
        """Total contact force on the body [N], (3,); zero for everything else."""
        return np.zeros(3)

    def work_j(self, before: State, after: State) -> float:
        """Work [J] that what the term moves by itself (a driven support) puts into the body within a step."""
        return 0.0

    def resists(self) -> np.ndarray | None:
        """Directions (k, 3) in which it exchanges momentum with the world by stored energy; None for all of them."""
        return None

    def unsound(self, stage: Stage, at: At, after: State, blocks: Array) -> bool:
        """Whether the step left what the term was made linear for."""
        return False


class Law(Protocol):
    """A term's fixed part: what a model holds and what is bound to a body with `bind`.

    Attributes:
        fused: name under which a backend's whole steps know it, "" where none does.
    """

    @property
    def fused(self) -> str: ...

    def defaults(self) -> Mapping[str, Any]:
        """Values of the parameters it owns, where a simulation does not give them."""
        ...

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Term[Any]:
        """The term of a body."""
        ...
