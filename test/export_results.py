"""Results to export: written as `estimate` writes them, with a posterior that the test knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tiny_ball import scene_of

from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.variables import make_variables
from soft_estimator.scene.rest_shape import REST_SHAPE, rest_shape_bytes
from soft_estimator.scene.scene import Scene
from soft_estimator.schema import to_plain

RADIUS_M = 0.05


def free_ball(spacing: str = "10 mm", **material: Any) -> Scene:
    """A ball about the origin without gravity and plane, 8 kPa, undamped: its modes have closed forms."""
    return scene_of(
        name="free ball",
        body={"shape": {"sphere": {"radius_m": RADIUS_M}}, "spacing_m": spacing},
        material={"youngs_modulus_pa": 8e3, "poissons_ratio": 0.3, "density_kg_m3": 1000, **material},
        gravity_m_s2=[0, 0, 0],
        initial={},
        contact=None,
        estimate={"parameters": ["youngs_modulus_pa"]},
    )


def write_result(folder: Path, scene: Scene, std: float = 0.1) -> Path:
    """The files of an estimate whose answer is the scene's own parameters, with a deviation `std` of every θ."""
    assert scene.config.estimate is not None
    names = list(scene.config.estimate.names)
    variables = make_variables(scene.parameters, names)
    posterior = ParameterPosterior(variables, variables.start(), std**2 * np.eye(len(variables)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "estimate.json").write_text(json.dumps({"posterior": posterior.as_plain()}))
    (folder / "scene.yaml").write_text(yaml.safe_dump(to_plain(scene.config)))
    (folder / REST_SHAPE).write_bytes(rest_shape_bytes(scene.body))
    return folder
