"""What is estimated of a scene, out of its `estimate` section: names, first guesses, priors, and the truth in the same
variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soft_estimator.config import SceneConfig
from soft_estimator.config_estimation import EstimateConfig
from soft_estimator.config_parameters import PARAMETERS
from soft_estimator.estimation.held_pose import held_pose
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.parameters import MOST_MODES, REGISTRY
from soft_estimator.physics.parameters import Parameters
from soft_estimator.scene.scene import Scene
from soft_estimator.schema import ConfigError


def check_names(config: SceneConfig, names: Sequence[str]) -> None:
    """Refuse parameters that the scene does not have."""
    regions = 1 + len(config.material.regions)
    for i, name in enumerate(names):
        base, _, component = name.partition("[")
        key = f"estimate.parameters[{i}]"
        if REGISTRY[base].term == "contact" and config.contact is None:
            raise ConfigError(f"= '{name}' needs a contact section, and the scene has none; add one", key)
        if REGISTRY[base].term == "friction" and (config.contact is None or config.contact.friction is None):
            raise ConfigError(f"= '{name}' needs contact.friction, and the scene has none; add it", key)
        if REGISTRY[base].term == "obstacle" and not config.obstacles:
            raise ConfigError(f"= '{name}' needs obstacles, and the scene has none; add one", key)
        own = REGISTRY.numbered(base)
        if own is not None and own[1] >= len(config.obstacles):
            raise ConfigError(f"= '{name}' does not exist; the last obstacle is {len(config.obstacles) - 1}", key)
        if REGISTRY[base].term == "modes" and config.start.modes is None:
            raise ConfigError(f"= '{name}' needs start.modes, and the scene has none; add it", key)
        if REGISTRY[base].term == "relaxation" and config.material.relaxation is None:
            raise ConfigError(f"= '{name}' needs material.relaxation, and the scene has none; add it", key)
        if REGISTRY[base].term == "support" and config.support is None:
            raise ConfigError(f"= '{name}' needs a support section, and the scene has none; add one", key)
        if REGISTRY[base].shape == "regions" and component and int(component.rstrip("]")) >= regions:
            raise ConfigError(f"= '{name}' does not exist; the last one is {base}[{regions - 1}]", key)


def guess_of(scene: Scene) -> Parameters:
    """The scene's parameters with the first guesses put in."""
    estimate = scene.config.estimate
    changed: dict[str, np.ndarray | float] = {}
    for name in dict.fromkeys((*PARAMETERS, *scene.parameters)) if estimate is not None else ():
        value = estimate.guess.of(name)  # type: ignore[union-attr]
        if value is None:
            continue
        if REGISTRY[name].shape == "modes":
            changed[name] = np.full(MOST_MODES, value)
        elif REGISTRY[name].shape == "regions":
            changed[name] = np.full(scene.parameters.regions, value)
        elif REGISTRY[name].shape == "direction":
            changed[name] = np.array(value) / np.linalg.norm(value)
        else:
            changed[name] = np.array(value) if isinstance(value, tuple) else float(value)
    return scene.parameters.replace(**changed)


def variables_of(scene: Scene, estimate: EstimateConfig, *, refine_pose: bool = False) -> Variables:
    """The variables of an estimate around the scene's guesses; refine_pose: that of a held body, too (`held_pose`)."""
    check_names(scene.config, estimate.names)
    guess = scene.model.complete(guess_of(scene))
    names = [*estimate.names, *_start_names(scene, estimate)]
    # What is guessed but not estimated would silently be held at the guess.
    bases = {name.partition("[")[0] for name in names}
    kept = {n: value for n, value in scene.parameters.values.items() if n not in bases}
    given = priors_of(scene, estimate)
    pose = held_pose(scene.model, estimate.known_to) if refine_pose else {}
    pose = {name: std for name, std in pose.items() if name not in bases}
    return make_variables(guess.replace(**kept), names, {**pose, **given}, list(pose))


def priors_of(scene: Scene, estimate: EstimateConfig) -> dict[str, float]:
    """Standard deviations of the guesses, by parameter, where the estimate gives them."""
    told = {name: estimate.prior_std.of(name) for name in dict.fromkeys((*PARAMETERS, *scene.parameters))}
    return {name: std for name, std in told.items() if std is not None}


def _start_names(scene: Scene, estimate: EstimateConfig) -> list[str]:
    """What an unknown start adds to what is estimated: the modes' amplitudes and, of a free body, its rigid motion."""
    modes, named = scene.model.modes, {name.partition("[")[0] for name in estimate.names}
    if modes is None:
        return []
    rigid = () if scene.config.fixed else ("translation_m", "rotation_rad", "velocity_m_s", "angular_velocity_rad_s")
    return [name for name in (*rigid, *modes.names) if name.partition("[")[0] not in named]


def shown(variables: Variables) -> list[int]:
    """Which of the variables people are told: not those that come along, nor amplitudes of modes, which are of this one
    start, and dozens."""
    return [j for j, v in enumerate(variables.variables) if not v.beside and v.kind.shape != "modes"]


def shown_labels(variables: Variables) -> list[str]:
    """The variables' labels; the stiffness of a body of one material carries no number."""
    alone = variables.reference.regions == 1
    return [v.name if alone and v.kind.shape == "regions" else v.label for v in variables.variables]


def applicable_names(scene: Scene) -> list[str]:
    """Every parameter that the scene has and whose value its transform can take."""
    out = []
    for name, value in scene.parameters.values.items():
        kind = REGISTRY[name]
        if kind.term == "contact" and scene.config.contact is None:
            continue
        if kind.transform in ("log", "logit") and not (np.asarray(value) > 0).all():
            continue
        out.append(name)
    return out
