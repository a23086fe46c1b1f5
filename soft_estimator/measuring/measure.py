"""`measure`: one recording of an object that lies still and is dropped, and its weight; nothing else is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fitting.uncertainty import shown_label
from soft_estimator.estimation.long_work import TimeLimit, TimeUp
from soft_estimator.measuring.fit import TABLE, Fit, add_obstacles, fit_drops, let_rub, make_live, scene_plain
from soft_estimator.measuring.looking import MeasureOptions, NotMeasured, Seen, look_at
from soft_estimator.measuring.measurement import Measurement
from soft_estimator.measuring.sightings import Progress
from soft_estimator.perception.primitives import PLAIN
from soft_estimator.perception.scan import with_cells
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load

# Grid cells of bodies that are no ball, box, rod or ring where there is a GPU, which fits 2,500 in the time of 1,000
# (54 and 47 s of a duck).
_CELLS_ON_GPU = 4000
FRICTION = "friction_coefficient"
# More than anybody drops by hand: 158 without a unit is refused before minutes are spent on the recording. Other
# weights that cannot be show by the density alone, once the volume is known.
_HEAVIEST_KG = 50.0


def measure(
    path: Path | str,
    mass_kg: float,
    options: MeasureOptions | None = None,
    backend: Backend | str = "auto",
    progress: Progress | None = None,
    time: TimeLimit | None = None,
) -> Measurement:
    """Measure an object from one recording and its mass [kg]; a `NotMeasured` says why where it cannot be done.

    time: that it may take; then, as at Ctrl-C, what was dropped by then is the answer, and its `stopped` says so.
    """
    options = options or MeasureOptions()
    if not (np.isfinite(mass_kg) and mass_kg > 0):
        raise ValueError(f"mass {mass_kg:g} kg must be positive; weigh the object")
    if mass_kg > _HEAVIEST_KG:
        raise ValueError(f"nobody drops {mass_kg:g} kg by hand; where grams are meant, write '{mass_kg:g} g'")
    if isinstance(backend, str):
        backend = choose_backend(backend)
    seen = look_at(path, options, progress)
    if backend.name == "cuda" and options.cells is None and seen.body.prior not in PLAIN:
        seen = replace(seen, body=with_cells(seen.body, _CELLS_ON_GPU))
    up = None if options.up is None else np.asarray(options.up) / np.linalg.norm(options.up)
    plain = scene_plain(options.name, seen.body, mass_kg, seen.cloud, seen.noise, seen.survey.rate_hz, up)
    if options.friction is not None:
        let_rub(plain, options.friction)
    add_obstacles(plain, seen.around, TABLE)
    scene = build_scene(load(SceneConfig, plain, "scene"), Path(), grid=seen.body.grid, detail=seen.body.detail)
    try:
        fit = fit_drops(scene, seen.body, seen.survey.sightings, seen.drops, backend, progress, time)
    except TimeUp as ended:
        raise NotMeasured(f"{ended}, before a drop was worked out; give it more time") from None
    return _measurement(Path(path), mass_kg, scene, plain, seen, fit)


def _measurement(
    path: Path,
    mass_kg: float,
    scene: Scene,
    plain: dict[str, Any],
    seen: Seen,
    fit: Fit,
) -> Measurement:
    refusals = seen.survey.refusals.joined(fit.refusals)
    if not fit.after_drops:
        why = "; ".join(f"{item.count} frames: {item.example}" for item in refusals.most_first()[:3])
        raise NotMeasured(f"no drop gave an estimate ({why or 'too few frames'}); drop it again, in full view")
    last = fit.after_drops[-1][1]
    assert last.posterior is not None
    parameters = tuple(replace(e, label=shown_label(e.label, last.parameters)) for e in last.parameters)
    for e in parameters:
        if e.label in ("youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s"):
            plain["material"][e.label] = plain["estimate"]["guess"][e.label] = float(e.value)
        elif e.label == FRICTION:
            let_rub(plain, float(e.value))
    make_live(plain, seen.body, mass_kg, seen.around, seen.survey.rate_hz)
    return Measurement(
        path, mass_kg, seen.body, scene, plain, parameters, last.posterior, [drop for drop, _ in fit.after_drops],
        fit.estimates, [e for _, e in fit.after_drops], seen.survey.frames, fit.used, refusals,
        [*seen.notes, *fit.notes, *last.notes, *said_of_table(plain, fit)], seen.pokes, fit.stopped,
    )  # fmt: skip


def said_of_table(plain: dict[str, Any], fit: Fit) -> list[str]:
    """What to try where a drop does not fit and the table was taken for smooth."""
    left_out = len(fit.notes) > bool(fit.stopped) or not all(e.verdict.fits for _, e in fit.after_drops)
    if FRICTION in plain["estimate"]["parameters"] or not left_out:
        return []
    return ["the table was taken for smooth: --friction 0.5 lets what lands askew rub, and estimates by how much"]
