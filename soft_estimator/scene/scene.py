"""From a scene's configuration to a problem that is ready to be simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from soft_estimator.config import FixedBoxConfig, SceneConfig, TimeConfig
from soft_estimator.config_body import BodyConfig, Vector
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.rigid import RigidPath, rotation_matrix
from soft_estimator.geometry.shapes import Box
from soft_estimator.physics.body import Body, build_body, felt_by
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.matrices import assemble_matrices
from soft_estimator.physics.model import Model, build_model, surface_shares
from soft_estimator.physics.modes import lowest_modes
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.interface import Law
from soft_estimator.physics.terms.relaxation import RelaxationLaw
from soft_estimator.physics.terms.support import SupportLaw
from soft_estimator.physics.terms.weights import WeightsLaw
from soft_estimator.scene.body_grid import BodyField, build_field, build_grid
from soft_estimator.scene.obstacles import SceneObstacle, build_obstacles, check_apart, posing, with_friction
from soft_estimator.scene.wrenches import read_wrench_logs, read_wrenches, rough_tools
from soft_estimator.schema import ConfigError

__all__ = ["Scene", "build_grid", "build_scene"]

# A separate piece of the body below this part of its volume is an artefact of the field, not something to simulate.
SPECK_VOLUME_SHARE = 0.01


@dataclass(frozen=True)
class Scene:
    """A scene made ready: its configuration, body, model and parameters, and what was noticed on the way.

    detail: φ on a finer grid than the body's, where its shape is known better. obstacles: beside the ground plane.
    readings: of force-torque sensors, from files. wrench_logs: the same by stamps, (n, 7) of each by its number.
    """

    config: SceneConfig
    body: Body
    model: Model
    parameters: Parameters
    warnings: tuple[str, ...] = ()
    detail: SignedDistanceGrid | None = None
    obstacles: tuple[SceneObstacle, ...] = ()
    readings: tuple[WrenchFrame, ...] = ()
    wrench_logs: Mapping[int, np.ndarray] = field(default_factory=dict)

    @property
    def mass_kg(self) -> float:
        return self.parameters.density_kg_m3 * self.body.volume_m3

    def held_points(self) -> np.ndarray:
        """Which surface points lie in a fixed box at rest, (V,)."""
        points = self.body.surface_positions_m()
        held = np.zeros(len(points), dtype=bool)
        for fixed in self.config.fixed:
            held |= box_of(fixed.low_m, fixed.high_m).distance_m(points) <= 1e-9
        return held


def build_scene(
    config: SceneConfig,
    folder: Path,
    data: Path | None = None,
    memory_bytes: float | None = None,
    grid: SignedDistanceGrid | None = None,
    detail: SignedDistanceGrid | None = None,
) -> Scene:
    """Make a scene ready.

    Args:
        config: the scene. folder: where its file lies. data: the data folder.
        memory_bytes: what the simulation may take; what the machine has left by default.
        grid, detail: of the body, where they are at hand already and no file is to be read.
    """
    made = build_field(config.body, folder, data, memory_bytes) if grid is None else BodyField(grid, detail)
    body, warnings = build_clean_body(made.grid, config.body, _region_of(config), made.detail)
    scene = assemble_scene(config, body, build_obstacles(config, folder, data))
    readings, warnings = read_wrenches(config, folder, data), [*warnings, *rough_tools(config)]
    logs = read_wrench_logs(config, folder, data)
    return replace(scene, warnings=tuple(warnings), detail=made.detail, readings=readings, wrench_logs=logs)


def body_of(
    grid: SignedDistanceGrid, config: SceneConfig, *, correct: bool = True, detail: SignedDistanceGrid | None = None
) -> Body:
    """The scene's body on a grid, with all that hangs on it; correct, detail: as of `build_body`."""
    return _body(grid, config.body, _region_of(config), detail, correct)


def assemble_scene(config: SceneConfig, body: Body, obstacles: tuple[SceneObstacle, ...] = ()) -> Scene:
    """Model and parameters of a scene around its body and among its obstacles."""
    _check_regions(config, body)
    body = felt_by(body, min((obstacle.narrow_m for obstacle in obstacles), default=np.inf))
    parameters = build_parameters(config)
    model = build_model(
        body,
        build_integrator(config.time),
        fixed=[_fixed_region(fixed, body, parameters) for fixed in config.fixed],
        loads=[(box_of(load.low_m, load.high_m), np.array(load.force_n)) for load in config.loads],
        contact=_contact_law(config),
        solver=SolverSettings(config.solver.relative_tolerance, config.solver.max_iterations),
        dtype=np.dtype(config.solver.precision).type,
        material=config.material.law,
        more=_more_laws(config, body),
        rests=config.start.equilibrium is not None,
        obstacles=[obstacle.law for obstacle in obstacles],
    )
    if config.start.modes is not None:
        matrices = assemble_matrices(Simulation(model, parameters))
        model = replace(model, modes=lowest_modes(*matrices.parts, config.start.modes.count))
    check_apart(obstacles, body, parameters)
    return Scene(config, body, model, parameters, obstacles=obstacles)


def build_parameters(config: SceneConfig) -> Parameters:
    """Material, plane and start of a scene."""
    material, start, contact = config.material, config.initial, config.contact
    plane: dict[str, Any] = {}
    if contact is not None:
        plane = {
            "plane_normal": contact.unit_normal,
            "plane_offset_m": contact.offset_m,
            "contact_stiffness_pa_per_m": contact.stiffness_pa_per_m,
            "contact_sharpness_per_m": contact.sharpness_per_m,
        }
        if contact.friction is not None:
            plane["friction_coefficient"] = contact.friction.coefficient
    relaxation: dict[str, Any] = {}
    if material.relaxation is not None:
        relaxation = {
            "relaxation_share": material.relaxation.share,
            "relaxation_time_s": material.relaxation.time_s,
        }
    support: dict[str, Any] = {}
    if config.support is not None:
        support = {
            "support_until_s": config.support.until_s,
            "support_gone_within_s": config.support.gone_within_s,
        }
    posed: dict[str, Any] = {name: np.zeros(3) for name in posing(config)}
    return Parameters(
        youngs_modulus_pa=np.array([material.youngs_modulus_pa, *(r.youngs_modulus_pa for r in material.regions)]),
        poissons_ratio=material.poissons_ratio,
        density_kg_m3=material.density_kg_m3,
        mass_damping_per_s=material.mass_damping_per_s,
        stiffness_damping_s=material.stiffness_damping_s,
        gravity_m_s2=np.array(config.gravity_m_s2),
        translation_m=np.array(start.translation_m),
        rotation_rad=np.array(start.rotation_rad),
        velocity_m_s=np.array(start.velocity_m_s),
        angular_velocity_rad_s=np.array(start.angular_velocity_rad_s),
        **plane,
        **relaxation,
        **support,
        **posed,
    )


def build_integrator(time: TimeConfig) -> Integrator:
    """The time scheme of a scene."""
    lagged = time.rotation == "lagged"
    if time.integrator == "theta":
        return theta_scheme(time.step_s, time.theta, lagged=lagged)
    return hht_scheme(time.step_s, time.hht_alpha, lagged=lagged)


def build_clean_body(
    grid: SignedDistanceGrid,
    config: BodyConfig,
    region_of: Callable[[np.ndarray], np.ndarray] | None = None,
    detail: SignedDistanceGrid | None = None,
) -> tuple[Body, list[str]]:
    """The body of a field without its specks, and a line for what was removed or is in several pieces."""
    warnings = []
    removed, share = 0, 0.0
    for _ in range(4):  # putting a speck outside may rarely cut off another
        body = _body(grid, config, region_of, detail)
        label, volume = _surface_pieces(body, detail)
        specks = np.flatnonzero(volume < SPECK_VOLUME_SHARE)
        if specks.size == 0:
            break
        removed, share = removed + len(specks), share + float(volume[specks].sum())
        outside = np.isin(label, specks + 1)
        if detail is not None:
            every = round(grid.spacing_m / detail.spacing_m)
            detail, outside = _without(detail, outside), outside[::every, ::every, ::every]
        grid = _without(grid, outside)
    if removed:
        warnings.append(f"removed {removed} loose speck(s) of the body's field, {100 * share:.2g} % of its volume")
    parts = _held_together(body)
    if len(parts) > 1:
        listed = ", ".join(f"{100 * part:.3g} %" for part in sorted(parts, reverse=True))
        warnings.append(f"the body is in {len(parts)} pieces that do not hold together ({listed} of its volume)")
    return body, warnings


def _body(
    grid: SignedDistanceGrid,
    config: BodyConfig,
    region_of: Callable[[np.ndarray], np.ndarray] | None,
    detail: SignedDistanceGrid | None,
    correct: bool = True,
) -> Body:
    return build_body(
        grid,
        min_fill=config.min_fill,
        snap_fraction=config.snap_fraction,
        subdivision=config.subdivision,
        stabilisation=config.stabilisation,
        correct=correct,
        region_of=region_of,
        detail=detail,
        sharp=config.skin == "detail",
    )


def _surface_pieces(body: Body, detail: SignedDistanceGrid | None) -> tuple[np.ndarray, np.ndarray]:
    """The closed piece of surface each inside node lies in, counted from 1, and each piece's part of the volume.

    Nodes are those of the detail where there is one, else of the grid. The surface goes round inside nodes that are
    linked along grid edges. Cells of different pieces may still share an outside node; a speck that hangs on one would
    flap about beside the body.
    """
    field = body.grid if detail is None else detail
    label, count = ndimage.label(field.phi_m < 0)
    parts = round(body.grid.spacing_m / field.spacing_m)
    low = parts * np.stack(np.unravel_index(body.cells.cell, body.grid.shape), axis=1)
    piece = np.max([label[tuple((low + step).T)] for step in np.ndindex(*(parts + 1,) * 3)], axis=0) - 1
    known = piece >= 0  # a cell may hold no more of the body than its curvature's correction gave it
    volume = np.bincount(piece[known], body.cells.volume_weights_m3.sum(axis=1)[known], count)
    return label, volume / volume.sum()


def _held_together(body: Body) -> np.ndarray:
    """The parts of the volume that hang together by shared nodes."""
    count = body.node_count
    first = np.repeat(body.cell_nodes[:, :1], 7, axis=1).ravel()
    links = coo_matrix((np.ones(len(first), dtype=bool), (first, body.cell_nodes[:, 1:].ravel())), (count, count))
    _, part = connected_components(links, directed=False)
    volume = np.bincount(part[body.cell_nodes[:, 0]], body.cells.volume_weights_m3.sum(axis=1))
    return volume / volume.sum()


def _without(grid: SignedDistanceGrid, nodes: np.ndarray) -> SignedDistanceGrid:
    """The field with some nodes, a mask of its shape, put outside."""
    phi = np.where(nodes, np.maximum(np.abs(grid.phi_m), 0.5 * grid.spacing_m), grid.phi_m)
    return SignedDistanceGrid(phi, grid.origin_m, grid.spacing_m)


def _region_of(config: SceneConfig) -> Callable[[np.ndarray], np.ndarray] | None:
    """The material region of cell centres (C, 3) [m]; 0 outside every box, and where boxes overlap the last wins."""
    if not config.material.regions:
        return None

    def region_of(centres_m: np.ndarray) -> np.ndarray:
        number = np.zeros(len(centres_m), dtype=np.int32)
        for k, region in enumerate(config.material.regions, start=1):
            number[box_of(region.low_m, region.high_m).distance_m(centres_m) <= 0] = k
        return number

    return region_of


def _check_regions(config: SceneConfig, body: Body) -> None:
    cells = np.bincount(body.cell_region, minlength=len(config.material.regions) + 1)
    for k, region in enumerate(config.material.regions, start=1):
        if cells[k] == 0:
            raise ConfigError(
                f"from {list(region.low_m)} to {list(region.high_m)} m holds no cell of the body, or later boxes cover "
                "it; move or enlarge it, or leave it out",
                f"material.regions[{k - 1}]",
            )


def _fixed_region(fixed: FixedBoxConfig, body: Body, parameters: Parameters) -> FixedRegion:
    region = box_of(fixed.low_m, fixed.high_m)
    if not fixed.path:
        return FixedRegion(region, fixed.method)
    # The box is given at rest, but turns about where the initial pose puts its centre.
    arm = 0.5 * np.add(fixed.low_m, fixed.high_m) - body.centroid_m
    centre = body.centroid_m + rotation_matrix(parameters.rotation_rad) @ arm + parameters.translation_m
    path = RigidPath(
        time_s=np.array([waypoint.time_s for waypoint in fixed.path]),
        translation_m=np.array([waypoint.translation_m for waypoint in fixed.path]),
        rotation_rad=np.array([waypoint.rotation_rad for waypoint in fixed.path]),
        centre_m=centre,
    )
    return FixedRegion(region, fixed.method, path)


def _contact_law(config: SceneConfig) -> ContactLaw | None:
    contact = config.contact
    if contact is None:
        return None
    law = ContactLaw(contact.stiffness_pa_per_m, contact.sharpness_per_m, contact.method == "implicit")
    if contact.friction is None:
        return law
    return with_friction(law, contact.friction)


def _more_laws(config: SceneConfig, body: Body) -> list[Law]:
    """What the material does beside its elasticity, weights that ride on the body, and what carries them at first."""
    out: list[Law] = []
    relaxation, support = config.material.relaxation, config.support
    if relaxation is not None:
        out.append(RelaxationLaw(relaxation.share, relaxation.time_s))
    weights_kg = np.zeros(body.node_count)
    for k, load in enumerate(config.loads):
        if load.mass_kg > 0:
            weights_kg += load.mass_kg * surface_shares(body, box_of(load.low_m, load.high_m), f"loads[{k}]")
    if weights_kg.any():
        out.append(WeightsLaw(weights_kg))
    if support is not None:
        out.append(SupportLaw(support.until_s, support.gone_within_s, weights_kg))
    return out


def box_of(low_m: Vector, high_m: Vector) -> Box:
    low, high = np.array(low_m), np.array(high_m)
    return Box(tuple(high - low), tuple(0.5 * (low + high)))
