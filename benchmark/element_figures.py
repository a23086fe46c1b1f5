"""The figures that elements on a grid are judged by: beams, a free sphere, Cook's membrane, a patch test.

Each returns errors in per cent against a converged solid: CalculiX or scikit-fem (`reference_beam.py`) for the beam,
the closed form for the sphere, quadratic quadrilaterals for the membrane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from cell_elements import factorise, hold, lame, mass, modes, stiffness

from soft_estimator.geometry.cut_cells import boundary_products
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Align, Box, Placed, Shape, Sphere, refine, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.matrices import assemble_matrices
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation

LENGTH, THICKNESS, WIDTH, YOUNG, LOAD, DENSITY = 0.2, 0.02, 0.03, 5e4, 0.01, 1000.0
TILTED = rotation_matrix(np.array([0, 0, np.pi / 6])) @ rotation_matrix(np.array([np.pi / 6, 0, 0]))
SOLID_TIP_PERCENT = {0.0: 0.0, 0.3: -1.07, 0.45: -2.68, 0.49: -3.29, 0.499: -3.4}  # CalculiX against Timoshenko
# f1-f3 and torsion [Hz]: CalculiX at ν = .3, quadratic hexahedra (`python benchmark/reference_beam.py`) else
BEAM_HZ = {
    0.3: (0.5707, 0.8468, 3.4223, 4.7011),
    0.45: (0.5749, 0.8512, 3.4340, 4.4537),
    0.49: (0.5769, 0.8534, 3.4418, 4.3954),
}
# The five lowest torsional and spheroidal modes of a free sphere, ωR/c_s at ν = .3.
SPHERE = (2.50113, 2.64622)


@dataclass(frozen=True)
class Settings:
    """An element: its law, the consistent share of its mass, `build_body`'s settings and the detail of the shape.

    The law "package" is what the package itself simulates with: its own matrices, and its own share of consistent mass.
    """

    law: str = "mean dilatation"
    consistent: float = 0.5
    stabilisation: float = 0.1
    min_fill: float = 0.02
    detail: int = 1

    def body(self, shape: Shape, spacing_m: float, align: Align = "origin") -> Body:
        grid = sample(shape, spacing_m, align=align)
        fine = refine(shape.distance_m, grid, self.detail) if self.detail > 1 else None
        return build_body(grid, min_fill=self.min_fill, stabilisation=self.stabilisation, detail=fine)


def matrices(
    body: Body, settings: Settings, young_pa: float, poissons_ratio: float, held: Shape | None = None
) -> tuple[sp.csc_matrix, sp.csc_matrix]:
    """K [N/m] and M [kg], (3N, 3N); the surface in the region `held` is held weakly."""
    if settings.law == "package":
        fixed = [] if held is None else [FixedRegion(held, "nitsche")]
        model = build_model(body, theta_scheme(0.01), fixed=fixed)
        found = assemble_matrices(Simulation(model, Parameters(young_pa, poissons_ratio, DENSITY)))
        return found.stiffness.tocsc(), found.mass.tocsc()
    lam, mu = lame(young_pa, poissons_ratio)
    k = stiffness(body, settings.law, lam, mu)
    if held is not None:
        k = k + hold(body, held, settings.law, lam, mu)
    return k, mass(body, DENSITY, settings.consistent)


def reference_tip_m(poissons_ratio: float) -> float:
    """F L³/3EI + F L/(kAG) with Cowper's k, less what the clamped solid bends less (CalculiX)."""
    shear = 0.5 * YOUNG / (1 + poissons_ratio)
    k = 10 * (1 + poissons_ratio) / (12 + 11 * poissons_ratio)
    bending = LOAD * LENGTH**3 / (3 * YOUNG * WIDTH * THICKNESS**3 / 12)
    return (bending + LOAD * LENGTH / (k * WIDTH * THICKNESS * shear)) * (1 + SOLID_TIP_PERCENT[poissons_ratio] / 100)


def surface_weights(body: Body, region: Shape) -> np.ndarray:
    """Nodal weights (N,), with sum 1, of an even load on the surface within a region."""
    select, _, products, _ = boundary_products(body.cells, body.grid, lambda x: region.distance_m(x) <= 1e-9)
    weight = np.zeros(body.node_count)
    np.add.at(weight, body.cell_nodes[select], products.sum(axis=2))
    return weight / weight.sum()


def beam(cells: int, settings: Settings, poissons_ratio: float, turned: bool) -> tuple[float, np.ndarray]:
    """Errors [%] of the tip's deflection and of the frequencies f1-f3 and torsion (empty without a reference)."""
    h = THICKNESS / cells
    turn = TILTED if turned else np.eye(3)
    body = settings.body(Placed(Box((LENGTH, THICKNESS, WIDTH)), turn), h, "origin" if turned else "bounds")
    # Cut through cells, the ends are the surface within a part of a sub-cell of the end's plane.
    thin = 0.2 * h / settings.detail if turned else 1e-6
    root = Placed(Box((thin, 1, 1), (-LENGTH / 2, 0, 0)), turn)
    tip = Placed(Box((0.6 * thin, 1, 1), (LENGTH / 2, 0, 0)), turn)
    k, m = matrices(body, settings, YOUNG, poissons_ratio, root if turned else None)
    load = LOAD * (surface_weights(body, tip)[:, None] * turn[:, 1]).ravel()
    if not turned:
        free = np.repeat(body.node_position_m[:, 0] > -LENGTH / 2 + 1e-9, 3)
        k, m, load = k[free][:, free].tocsc(), m[free][:, free].tocsc(), load[free]
    solve = factorise(k)
    error = 100 * (load @ solve(load) / LOAD / reference_tip_m(poissons_ratio) - 1)
    if poissons_ratio not in BEAM_HZ:
        return error, np.zeros(0)
    return error, 100 * (modes(k, m, 4, solve=solve)[0] / np.array(BEAM_HZ[poissons_ratio]) - 1)


def sphere(
    cells: int, settings: Settings, shift: Sequence[float] = (0.0, 0.0, 0.0)
) -> tuple[np.ndarray, np.ndarray, int]:
    """Errors [%] of the five torsional and the five spheroidal modes of a free sphere `cells` across, and its nodes."""
    radius = 0.05
    h = 2 * radius / cells
    centre = h * np.asarray(shift)
    body = settings.body(Sphere(radius, tuple(centre)), h)
    rate = np.sqrt(lame(YOUNG, 0.3)[1] / DENSITY) / radius
    hertz, shapes = modes(*matrices(body, settings, YOUNG, 0.3), 16, shift=-((0.3 * rate) ** 2))
    first = np.argsort(hertz)[6:16]
    away = body.node_position_m - centre
    away /= np.linalg.norm(away, axis=1, keepdims=True) + 1e-12
    # torsion moves nothing along the radius
    radial = [body.node_volume_m3 @ (shapes[:, k].reshape(-1, 3) * away).sum(axis=1) ** 2 for k in first]
    value = 2 * np.pi * hertz[first] / rate
    order = np.argsort(radial)
    return (
        100 * (np.sort(value[order[:5]]) / SPHERE[0] - 1),
        100 * (np.sort(value[order[5:]]) / SPHERE[1] - 1),
        body.node_count,
    )


class Membrane(Shape):
    """Cook's: corners (0, 0), (48, 44), (48, 60), (0, 44), extruded along z; the largest distance to its planes."""

    def __init__(self, depth: float) -> None:
        corners = np.array([(0.0, 0.0), (48.0, 44.0), (48.0, 60.0), (0.0, 44.0)])
        along = np.roll(corners, -1, axis=0) - corners
        normal = np.stack([along[:, 1], -along[:, 0]], axis=1) / np.linalg.norm(along, axis=1, keepdims=True)
        self.normal = np.concatenate([np.pad(normal, ((0, 0), (0, 1))), [(0, 0, 1), (0, 0, -1)]])
        self.offset = np.concatenate([(normal * corners).sum(axis=1), [0.5 * depth, 0.5 * depth]])
        self.corners = np.concatenate(
            [np.pad(corners, ((0, 0), (0, 1)), constant_values=z) for z in (-depth / 2, depth / 2)]
        )

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        return (points_m @ self.normal.T - self.offset).max(axis=1)

    def support_m(self, direction: np.ndarray) -> float:
        return float((self.corners @ direction).max())


# Mean deflection of the loaded side for E = 1 and a force of 1 a unit depth, plane strain: see `bench_elements.py`.
MEMBRANE = {0.3333: 21.59, 0.499: 18.58}


def membrane(cells: int, settings: Settings, poissons_ratio: float = 0.499) -> float:
    """Error [%] of the mean deflection of Cook's membrane with `cells` cells along it, in plane strain."""
    h = 48.0 / cells
    body = settings.body(Membrane(2 * h), h, "bounds")  # one cell alone would have no node inside
    k, _ = matrices(body, settings, 1.0, poissons_ratio)
    weight = surface_weights(body, Box((1e-6, 200.0, 200.0), (48.0, 30.0, 0.0)))
    load = np.zeros((body.node_count, 3))
    load[:, 1] = weight * 2 * h
    free = np.zeros((body.node_count, 3), dtype=bool)
    free[:, :2] = (body.node_position_m[:, 0] > 1e-9)[:, None]
    chosen = free.ravel()
    solved = factorise(k[chosen][:, chosen].tocsc())(load.ravel()[chosen])
    return 100 * (load.ravel()[chosen] @ solved / (2 * h) / MEMBRANE[poissons_ratio] - 1)


def patch(settings: Settings) -> float:
    """Largest nodal force of K (A x) besides the surface's own σ ∫N n, over the largest of those: rounding only."""
    body = settings.body(Placed(Box((0.2, 0.1, 0.06)), TILTED), 0.014)
    lam, mu = lame(YOUNG, 0.3)
    a = np.random.default_rng(1).normal(size=(3, 3))
    strain = 0.5 * (a + a.T)
    stress = lam * np.trace(strain) * np.eye(3) + 2 * mu * strain
    traction = np.zeros((body.node_count, 3))
    np.add.at(traction, body.cell_nodes, body.cells.dilatation_table_m2[body.cells.gradient_index] @ stress)
    force = (matrices(body, settings, YOUNG, 0.3)[0] @ (body.node_position_m @ a.T).ravel()).reshape(-1, 3)
    return float(np.abs(force - traction).max() / np.abs(traction).max())
