"""What is estimated of a scene, out of its `estimate` section: names, first guesses, priors, and the truth in the same
variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from soft_estimator.config import SceneConfig
from soft_estimator.config_estimation import PARAMETERS, EstimateConfig
from soft_estimator.estimation.variables import KINDS, Variables, make_variables
from soft_estimator.physics.parameters import Parameters
from soft_estimator.scene.scene import Scene
from soft_estimator.schema import ConfigError


def check_names(config: SceneConfig, names: Sequence[str]) -> None:
    """Refuse parameters that the scene does not have."""
    regions = 1 + len(config.material.regions)
    for i, name in enumerate(names):
        base, _, component = name.partition("[")
        key = f"estimate.parameters[{i}]"
        if base.startswith("plane_") and config.contact is None:
            raise ConfigError(f"= '{name}' needs a contact section, and the scene has none; add one", key)
        if base == "youngs_modulus_pa" and component and int(component.rstrip("]")) >= regions:
            raise ConfigError(f"= '{name}' does not exist; the last one is {base}[{regions - 1}]", key)


def guess_of(scene: Scene) -> Parameters:
    """The scene's parameters with the first guesses put in."""
    estimate = scene.config.estimate
    changed: dict[str, np.ndarray | float] = {}
    for name in PARAMETERS if estimate is not None else ():
        value = getattr(estimate.guess, name)  # type: ignore[union-attr]
        if value is None:
            continue
        if name == "youngs_modulus_pa":
            changed[name] = np.full(len(scene.parameters.youngs_modulus_pa), value)
        elif name == "plane_normal":
            changed[name] = np.array(value) / np.linalg.norm(value)
        else:
            changed[name] = np.array(value) if isinstance(value, tuple) else float(value)
    return replace(scene.parameters, **changed)  # type: ignore[arg-type]


def variables_of(scene: Scene, estimate: EstimateConfig) -> Variables:
    """The variables of an estimate around the scene's guesses."""
    check_names(scene.config, estimate.names)
    prior = {name: getattr(estimate.prior_std, name) for name in PARAMETERS}
    guess = guess_of(scene)
    # What is guessed but not estimated would silently be held at the guess.
    bases = {name.partition("[")[0] for name in estimate.names}
    kept = {n: getattr(scene.parameters, n) for n in PARAMETERS if n not in bases}
    return make_variables(
        replace(guess, **kept), list(estimate.names), {n: std for n, std in prior.items() if std is not None}
    )


def shown_labels(variables: Variables) -> list[str]:
    """The variables' labels; the stiffness of a body of one material carries no number."""
    alone = len(variables.reference.youngs_modulus_pa) == 1
    return [v.name if alone and v.name == "youngs_modulus_pa" else v.label for v in variables.variables]


def natural_of(variables: Variables, parameters: Parameters) -> np.ndarray:
    """The natural values that `parameters` have in these variables, (P,); a plane's tilts by its tangent steps."""
    out = []
    for v in variables.variables:
        if v.transform == "tangent":
            normal = parameters.plane_normal
            out.append(float(normal @ variables.tangents[v.index or 0]) / float(normal @ variables.normal))
        else:
            value = np.asarray(getattr(parameters, v.name), dtype=np.float64)
            out.append(float(value if v.index is None else value[v.index]))
    return np.array(out)


def applicable_names(scene: Scene) -> list[str]:
    """Every parameter that the scene has and whose value its transform can take."""
    out = []
    for name, (transform, _, _) in KINDS.items():
        value = np.asarray(getattr(scene.parameters, name))
        if name.startswith("plane_") and scene.config.contact is None:
            continue
        if transform in ("log", "logit") and not (value > 0).all():
            continue
        out.append(name)
    return out
