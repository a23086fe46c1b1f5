"""From a rest shape and drops to an estimate: the scene that explains them, and a window over each drop."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import ceil, hypot
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.long_work import CTRL_C, TimeLimit, TimeUp
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.geometry.surface import vertex_areas_m2
from soft_estimator.live.setup import build_window
from soft_estimator.measuring.measurement import BODY_FILE
from soft_estimator.measuring.phases import GRAVITY_M_S2, Drop
from soft_estimator.measuring.refining import GridError
from soft_estimator.measuring.resting import floats_by_m
from soft_estimator.measuring.sightings import Progress, Sighting
from soft_estimator.measuring.surroundings import Surroundings
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.primitives import PLAIN
from soft_estimator.perception.scan import ScannedBody
from soft_estimator.perception.settings import NoiseSettings
from soft_estimator.physics.body import build_body
from soft_estimator.scene.scene import Scene

# A bounce of a hand-sized object lasts 10 to 60 ms. A ring of 25 kPa whose shape was known came back 13 % too stiff in
# steps of 2 ms, and 4 % in steps of 1 ms (`measure_ablation.py`).
LONGEST_STEP_S = 0.001
# Of the scene for `replay` and `run live`, which cannot wait: a window takes off what its steps do to first order.
LONGEST_LIVE_STEP_S = 0.004
# The same where it bounces off something besides: a blow at a box's edge goes another way in longer ones. A ball
# of 9 cm that met one at 1 m/s was 10 mm off after 0.2 s in steps of 3.7 ms, 1.4 mm in 2 ms, 0.2 mm in 1.7 ms.
LONGEST_STEP_AMONG_OBSTACLES_S = 0.0017
_DENSITIES_KG_M3 = (1.0, 25e3)  # a little under that of air, a little over that of osmium
_SETTLE_ITERATIONS = 24  # at most, of a whole drop, after its frames were taken in with one each
# The plane: twice the usual 0.5 mm, for a base that nobody saw.
_WINDOW = WindowConfig(iterations=1, jacobian_grid="fine", bent_patience_s=0.0, lost_after_s=10.0, plane_std_m=0.001)


@dataclass(frozen=True)
class Table:
    """A table that gives: its stiffness [Pa/m], and what of depth it is felt within, as an inverse [1/m]."""

    stiffness_pa_per_m: float
    sharpness_per_m: float


# As stiff as steps of 1 ms can follow, and felt within a twelfth of a millimetre. With a twelfth of its stiffness a box
# of 40 kPa came back 19 % too stiff; what is left of that is in the intervals (`refining.give_of_contact`).
TABLE = Table(6e7, 12000.0)
LIVE_TABLE = Table(3e7, 6000.0)  # the longer steps of live scenes follow no harder one
_GUESS_SPEED_M_S = 7.0  # √(E/ρ), what a bounce shows: 4 m/s of a gel, 7 of a foam of 15 kPa, 15 of soft rubber
_GUESS_NU = 0.35  # with a deviation of 0.8 in log(ν / (½ - ν)): 0.16 to 0.46 in 95 of 100

# Order of the grid's error of bodies with creases: strains grow without limit towards a re-entrant edge, and energies
# err by the first order of the spacing. The lowest frequency of a duck, its head on its neck, is 7.51, 7.00, 6.77, 6.57
# and 6.50 Hz on cells of 8.6, 6.3, 4.3, 3.5 and 3.15 mm; a ball's 33.65, 33.83 and 33.95 on the first three. (Cells
# that tie parts together which do not hang together are few, 8 of the duck's 1,468; without them it is 7.31 Hz.)
_CREASED = 1
_BEYOND = "half the spacing moves its answer too far to be told, and the drops before it tell more without it"
_SUBSTEPS = 2  # of 1 ms: what slides in a blow wants steps of half of that, or shorter still
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Fit:
    """What the drops gave.

    Attributes:
        estimates: every estimate, in order of time. after_drops: the last of each drop that gave one, and of which.
        used: frames used. refusals: frames of drops that were not, and why.
        notes: drops that were left out, and why. stopped: why it was ended before the last drop; "" where it was not.
    """

    estimates: list[LiveEstimate]
    after_drops: list[tuple[Drop, LiveEstimate]]
    used: int
    refusals: Refusals
    notes: list[str]
    stopped: str = ""


def scene_plain(
    name: str,
    body: ScannedBody,
    mass_kg: float,
    cloud: Cloud,
    noise: NoiseSettings,
    rate_hz: float,
    up: np.ndarray | None = None,
) -> dict[str, Any]:
    """The scene of a measurement as its file says it, in the body frame of the scan: z up from the table.

    Args:
        cloud: a frame of the recording, for the camera. up: against gravity in the recording's frame, (3,), a unit
            vector; the table's normal if left out.
    """
    gravity = -GRAVITY_M_S2 * (np.array([0.0, 0.0, 1.0]) if up is None else up @ body.rotation)
    density = density_kg_m3(mass_kg, _grid_volume_m3(body))
    guess_pa = density * _GUESS_SPEED_M_S**2
    return {
        "name": name,
        "description": f"An object of {mass_kg:g} kg as it was measured: z is up from the table it lay on.",
        "body": {"shape": {"scan": {"file": BODY_FILE}}, "skin": "detail"},
        "material": {
            "youngs_modulus_pa": guess_pa,
            "poissons_ratio": _GUESS_NU,
            "density_kg_m3": density,
            "stiffness_damping_s": 0.002,
        },
        "gravity_m_s2": [round(float(g), 6) for g in gravity],
        "contact": contact_plain(body, mass_kg, TABLE),
        "time": {"step_s": step_s(rate_hz, LONGEST_STEP_S), "duration_s": 1.0},
        "picture": {"up": [0, 0, 1]},
        "observe": {
            "cameras": [camera_plain(cloud, body)],
            "frame_rate_hz": round(rate_hz, 6),
            "noise": {"axial_floor_m": noise.floor_m, "axial_per_m": noise.per_m},
        },
        "estimate": {
            "parameters": ["youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s", "plane_offset_m"],
            "guess": {"youngs_modulus_pa": guess_pa, "poissons_ratio": _GUESS_NU, "stiffness_damping_s": 0.002},
            "prior_std": {"youngs_modulus_pa": 1.5, "poissons_ratio": 0.8, "stiffness_damping_s": 1.5},
            "known_to": _known_to(body),
        },
    }


def density_kg_m3(mass_kg: float, volume_m3: float) -> float:
    """Density of an object; one that none can have is a weight in another unit, or another object's."""
    density = float(mass_kg / volume_m3)
    if not _DENSITIES_KG_M3[0] <= density <= _DENSITIES_KG_M3[1]:
        raise ValueError(
            f"a mass of {mass_kg:g} kg in the {1e6 * volume_m3:.3g} cm³ of the object is {density:.2g} kg/m³, which "
            "nothing solid has; give its unit, as in --mass '158 g', and look at its size with soft-estimator scan"
        )
    return density


def contact_plain(body: ScannedBody, mass_kg: float, table: Table) -> dict[str, Any]:
    """The table as a scene's file says it, as far below z = 0 as the body floats on it."""
    law = (table.stiffness_pa_per_m, table.sharpness_per_m)
    floats_m = floats_by_m(body.vertices_m, body.faces, mass_kg * GRAVITY_M_S2, *law)
    return {
        "normal": [0, 0, 1],
        "offset_m": round(floats_m, 6),
        "stiffness_pa_per_m": law[0],
        "sharpness_per_m": law[1],
    }


def let_rub(plain: dict[str, Any], coefficient: float) -> None:
    """Give a scene's table friction, and have its coefficient estimated from there."""
    plain["contact"]["friction"] = {"coefficient": coefficient, "substeps": _SUBSTEPS}
    estimate = plain["estimate"]
    estimate["guess"]["friction_coefficient"] = coefficient
    if "friction_coefficient" not in estimate["parameters"]:
        estimate["parameters"].append("friction_coefficient")


def add_obstacles(plain: dict[str, Any], around: Surroundings, table: Table) -> None:
    """Add to a scene what stands beside the object, as hard as its table, and how far off each may be.

    The side that touches it is known no better than all of the shape is.
    """
    if not around.obstacles:
        return
    law = {"stiffness_pa_per_m": table.stiffness_pa_per_m, "sharpness_per_m": table.sharpness_per_m}
    plain["obstacles"] = [{"shape": shape, **law} for shape in around.obstacles]
    known = plain["estimate"]["known_to"]
    known["obstacle_shift_m"] = 0.0  # of all of them; each has its own
    known["obstacles"] = [
        {"obstacle": k, "shift_m": round(hypot(std_m, known["shape_offset_m"]), 6)}
        for k, std_m in enumerate(around.stds_m)
    ]


def make_live(plain: dict[str, Any], body: ScannedBody, mass_kg: float, around: Surroundings, rate_hz: float) -> None:
    """Turn the scene of a measurement into that for `replay` and `run live`: in longer steps, on a table to match."""
    longest_s = LONGEST_STEP_AMONG_OBSTACLES_S if around.obstacles else LONGEST_LIVE_STEP_S
    plain["time"]["step_s"] = step_s(rate_hz, longest_s)
    rubs = {key: value for key, value in plain.get("contact", {}).items() if key == "friction"}
    plain["contact"] = {**contact_plain(body, mass_kg, LIVE_TABLE), **rubs}
    add_obstacles(plain, around, LIVE_TABLE)


def step_s(rate_hz: float, longest_s: float) -> float:
    """The longest step that frames of this rate are a whole number of."""
    return 1.0 / rate_hz / ceil(1.0 / rate_hz / longest_s - 1e-9)


def _known_to(body: ScannedBody) -> dict[str, float]:
    """How far off the shape may be, and the density, which is the weighed mass over its volume."""
    relative = float((body.volume_std_m3 or 0.05 * body.volume_m3) / body.volume_m3)
    area = float(vertex_areas_m2(body.vertices_m, body.faces).sum())
    return {
        "density_kg_m3": round(relative, 4),
        "shape_scale": round(relative / 3, 4),  # V ~ L³
        "shape_offset_m": round(hypot(float(relative * body.volume_m3 / area), body.bent_std_m), 6),
    }


def _grid_volume_m3(body: ScannedBody) -> float:
    """Volume of the body as its grid has it, cut at edges by a per cent or two: the mass must be the weighed one."""
    return build_body(body.grid, detail=body.detail).volume_m3


def camera_plain(cloud: Cloud, body: ScannedBody) -> dict[str, Any]:
    """The camera of a recording, in the scene's frame."""
    turn = body.rotation.T @ cloud.rotation
    eye = (cloud.sensor_m - body.translation_m) @ body.rotation
    height, width = cloud.points_m.shape[:2] if cloud.organised else (480, 640)
    pitch = cloud.pixel_pitch or 0.002
    return {
        "eye_m": _plain(eye),
        "target_m": _plain(eye + 0.5 * turn[:, 2]),
        "up": _plain(-turn[:, 1]),
        "width_px": int(width),
        "height_px": int(height),
        "horizontal_fov_rad": float(np.clip(2 * np.arctan(0.5 * width * pitch), 0.01, 3.0)),
    }


def _plain(vector: np.ndarray) -> list[float]:
    return [round(float(x), 9) for x in vector]


def in_scene(seen: Sighting, body: ScannedBody) -> tuple[np.ndarray, np.ndarray]:
    """A sighting's points (n, 3) and its camera's place (3,) [m] in the scene's frame."""
    return (seen.points_m - body.translation_m) @ body.rotation, (seen.sensor_m - body.translation_m) @ body.rotation


def fit_drops(
    scene: Scene,
    body: ScannedBody,
    sightings: list[Sighting],
    drops: list[Drop],
    backend: Backend,
    progress: Progress | None = None,
    time: TimeLimit | None = None,
) -> Fit:
    """A window over each drop, one after the other; what is known of the material goes from drop to drop.

    A drop that the model does not fit is left out and noted: something touched the object, or it landed on a part of it
    that nobody saw. Where none fits, the last one is all there is. Left out, too, is one after which less would be
    known than before it, since nobody can tell what the grid does to it: a box of 40 kPa that fell on an edge, ν known
    to 0.03 after its first drop, and to 0.11, 0.20 or 0.56 after the second (three noises, truth on cells of 3.85 mm).

    Ended by Ctrl-C, or by its time, it gives what the drops till then say; before there is one it gives nothing.
    """
    longest = max(drop.last - drop.first + 1 for drop in drops)
    config = replace(_window_of(scene), grow_to_frames=max(longest, _WINDOW.frames))
    window = build_window(scene, config, backend=backend, sensor_m=in_scene(sightings[drops[0].first], body)[1])
    window.know_plane(
        np.array([0.0, 0.0, 1.0]), scene.parameters.plane_offset_m, config.plane_std_rad, config.plane_std_m
    )
    grid = GridError(scene, backend, 2 if body.prior in PLAIN else _CREASED)
    estimates: list[LiveEstimate] = []
    fitting: list[tuple[Drop, LiveEstimate]] = []
    others: list[tuple[Drop, LiveEstimate]] = []
    notes = []
    total, done, stopped, time = sum(drop.last - drop.first + 1 for drop in drops), 0, "", time or TimeLimit()
    try:
        for number, drop in enumerate(drops):
            for seen in sightings[drop.first : drop.last + 1]:
                time.check()
                points, _ = in_scene(seen, body)
                estimate = window.add_frame(seen.time_s, points, seen.std_m)
                if estimate is not None and estimate.status == "tracking":
                    estimates.append(estimate)
                done += 1
                if progress is not None:
                    progress("estimating", done, total)
            settled = window.settle(_SETTLE_ITERATIONS, grid.look)
            if settled is None:
                window.reset(keep_parameters=True)
                continue
            _log.info("after drop %d: %s", number + 1, _in_words(settled))
            estimates.append(settled)
            why = why_left_out(settled, fitting[-1][1] if fitting else None, grid.beyond)
            if why:
                notes.append(f"drop {number + 1} of {len(drops)} is left out: {why}")
                others.append((drop, settled))
                window.abandon()
                grid.abandon_drop()
            else:
                fitting.append((drop, settled))
                window.reset(keep_parameters=True)
    except (KeyboardInterrupt, TimeUp) as ended:
        if not (fitting or others):
            raise
        stopped = str(ended) or CTRL_C
        notes.append(f"not finished ({stopped}): {len(fitting) + len(others)} of {len(drops)} drops were worked out")
    after = (fitting, notes) if fitting else (others[-1:], notes[-1:] if stopped else [])
    return Fit(estimates, after[0], window.counters.frames_used, window.refusals, after[1], stopped)


def _window_of(scene: Scene) -> WindowConfig:
    """The window's settings for a body whose shape may be off: so may be the surface that is seen, and the side that
    touches, which nobody saw, by twice as much as all of it is off on average.

    14 bodies closed by balls from within, whose surfaces are known to 1.1 mm, met a table 1.8 mm off rms when tilted
    by 0.2 rad (`bench_measure.py --shapes 14`).
    """
    known = KnownToConfig() if scene.config.estimate is None else scene.config.estimate.known_to
    return replace(
        _WINDOW,
        surface_std_m=hypot(_WINDOW.surface_std_m, known.shape_offset_m),
        plane_std_m=hypot(_WINDOW.plane_std_m, 2.0 * known.shape_offset_m),
    )


def why_left_out(settled: LiveEstimate, before: LiveEstimate | None, beyond: bool) -> str:
    """Why the drop that settled last is to be left out; "" where it is not. before: what the others before it gave;
    beyond: as of `GridError`."""
    if not settled.verdict.fits:
        return settled.verdict.reason
    return _BEYOND if beyond and before is not None and _spread(settled) > _spread(before) else ""


def _spread(estimate: LiveEstimate) -> float:
    """Deviation of the stiffness over its value."""
    return estimate.parameters[0].std / estimate.parameters[0].value


def _in_words(estimate: LiveEstimate) -> str:
    return ", ".join(f"{e.label} {e.value:.4g} ± {e.std:.2g}" for e in estimate.parameters)
