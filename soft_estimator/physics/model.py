"""What a simulation is made of: a body, a time scheme, held regions and the laws of its physics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.geometry.shapes import Shape
from soft_estimator.geometry.surface import face_areas_m2
from soft_estimator.physics.body import Body
from soft_estimator.physics.dirichlet import Dirichlet, FixedRegion, bind_dirichlet
from soft_estimator.physics.integrator import Integrator, with_step
from soft_estimator.physics.modes import Modes
from soft_estimator.physics.newton import MOST_ROUNDS
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.start import initial_displacement, initial_velocity
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.corotated import CorotatedLaw
from soft_estimator.physics.terms.friction import FrictionLaw
from soft_estimator.physics.terms.inertia import InertiaLaw
from soft_estimator.physics.terms.interface import Law
from soft_estimator.physics.terms.loads import LoadsLaw
from soft_estimator.physics.terms.neo_hookean import NeoHookeanLaw
from soft_estimator.physics.terms.nitsche import NitscheLaw

__all__ = ["Model", "State", "build_model", "initial_displacement", "initial_velocity"]


MATERIALS: dict[str, Callable[[], Law]] = {"corotated": CorotatedLaw, "neo_hookean": NeoHookeanLaw}


@dataclass(frozen=True)
class Model:
    """Everything fixed about a simulation.

    Attributes:
        body: the discretised body. integrator: time scheme. dirichlet: held parts. contact: law, None without a plane.
        load_n: dead load on the nodes [N], (N, 3). solver: settings of the linear solver.
        dtype: precision of the simulation, np.float32 or np.float64. more: laws of physics beside the package's own.
        material: one of MATERIALS. rests: a motion starts at rest under its loads, instead of undeformed.
        obstacles: contact with what is there beside the plane, with numbers of its own.
        modes: along which the body may be bent and swing when its motion starts, None for none.
    """

    body: Body
    integrator: Integrator
    dirichlet: Dirichlet
    contact: ContactLaw | None = None
    load_n: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    solver: SolverSettings = field(default_factory=SolverSettings)
    dtype: type = np.float64
    more: tuple[Law, ...] = ()
    material: str = "corotated"
    rests: bool = False
    obstacles: tuple[ContactLaw, ...] = ()
    modes: Modes | None = None

    @property
    def laws(self) -> tuple[Law, ...]:
        """All laws, in the order in which they add to a step's matrix."""
        weak = tuple(NitscheLaw(cells, path) for cells, path in self.dirichlet.weak)
        contacts = (*(() if self.contact is None else (self.contact,)), *self.obstacles)
        rough = (FrictionLaw(contact) for contact in contacts if contact.friction is not None)
        own = (InertiaLaw(), MATERIALS[self.material](), LoadsLaw(self.load_n))
        return (*own, *weak, *contacts, *rough, *self.more)

    def complete(self, parameters: Parameters) -> Parameters:
        """The parameters with the laws' own values where they give none."""
        for law in self.laws:
            parameters = parameters.with_defaults(law.defaults())
        return parameters if self.modes is None else parameters.with_defaults(self.modes.defaults())

    def with_step(self, integrator: Integrator) -> Model:
        """The same with another time scheme."""
        return replace(self, integrator=integrator)

    def in_double(self) -> Model:
        """The same in double precision."""
        return self if self.dtype is np.float64 else replace(self, dtype=np.float64)

    def in_parts(self, parts: int) -> Model:
        """The same with every step cut into so many."""
        return self.with_step(with_step(self.integrator, self.integrator.step_s / parts))


def build_model(
    body: Body,
    integrator: Integrator,
    *,
    fixed: list[FixedRegion] | None = None,
    loads: list[tuple[Shape, np.ndarray]] | None = None,
    contact: ContactLaw | None = None,
    solver: SolverSettings | None = None,
    dtype: type = np.float64,
    more: Sequence[Law] = (),
    rests: bool = False,
    material: str = "corotated",
    obstacles: Sequence[ContactLaw] = (),
) -> Model:
    """Bind held regions and loads, given in the body's rest coordinates, to a body.

    Args:
        loads: (region, total force (3,) [N]) pairs, each spread evenly over the surface triangles in its region.
        more: laws of physics beside the package's own (docs/extending.md).
        rests: a motion starts at rest under its loads.
        material: "corotated" or "neo_hookean"; the latter takes Newton rounds, 60 a step unless `solver` says so.
        obstacles: contact with what is there beside the plane.
    """
    fixed, solver = fixed or [], solver or SolverSettings()
    _check_material(material, fixed, contact)
    if material == "neo_hookean" and solver.rounds == 1:
        solver = replace(solver, rounds=MOST_ROUNDS)
    total = np.zeros((body.node_count, 3))
    for k, (region, force) in enumerate(loads or []):
        total += surface_shares(body, region, f"loads[{k}]")[:, None] * np.asarray(force)
    return Model(
        body=body,
        integrator=integrator,
        dirichlet=bind_dirichlet(body, fixed),
        contact=contact,
        load_n=total,
        solver=solver,
        dtype=dtype,
        more=tuple(more),
        rests=rests,
        material=material,
        obstacles=tuple(obstacles),
    )


def _check_material(material: str, fixed: list[FixedRegion], contact: ContactLaw | None) -> None:
    if material not in MATERIALS:
        raise ValueError(f"material law '{material}' does not exist; use one of {', '.join(MATERIALS)}")
    if material != "neo_hookean":
        return
    for k, region in enumerate(fixed):
        if region.method != "strong":
            raise ValueError(
                f"fixed[{k}].method = {region.method} knows the linear material alone; use strong with neo_hookean"
            )
    if contact is not None and not contact.implicit:
        raise ValueError("contact.method = extrapolated goes with the linear material; use implicit with neo_hookean")


def surface_shares(body: Body, region: Shape, name: str) -> np.ndarray:
    """The nodes' shares (N,) of something that is spread evenly over the surface triangles in a region; their sum is 1.

    name: of what is spread, for the error.
    """
    vertices = body.surface_positions_m()
    triangles = vertices[body.surface.faces]
    inside = region.distance_m(triangles.mean(axis=1)) <= 0
    if not inside.any():
        raise ValueError(f"{name} meets no surface of the body; move or enlarge its box")
    area = np.where(inside, face_areas_m2(vertices, body.surface.faces), 0.0)
    share = np.bincount(body.surface.faces.ravel(), np.repeat(area / (3 * area.sum()), 3), len(vertices))
    nodal = np.bincount(body.surface.node_a, (1 - body.surface.weight_b) * share, body.node_count)
    nodal += np.bincount(body.surface.node_b, body.surface.weight_b * share, body.node_count)
    return np.asarray(nodal)
