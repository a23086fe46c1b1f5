"""The posterior of a simulation's parameters: kept in a file, read again, and drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.estimation.variables import Variable, Variables
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.parameters import Parameters


@dataclass(frozen=True, eq=False)
class ParameterPosterior:
    """A Gaussian over the transformed variables θ, which makes every draw a possible material: E > 0, 0 < ν < ½.

    Attributes:
        variables: what θ stands for, around which reference. theta: the estimate, (P,). covariance: (P, P).
    """

    variables: Variables
    theta: np.ndarray
    covariance: np.ndarray

    def parameters(self) -> Parameters:
        """The estimate as parameters of a simulation."""
        return self.variables.parameters(self.theta)

    def draw(self, count: int, seed: int = 0) -> list[Parameters]:
        """Parameters drawn from the posterior; the same for the same seed, and the first of many those of few."""
        # By eigenvectors: a covariance that is singular to rounding has no Cholesky factor.
        values, vectors = np.linalg.eigh(0.5 * (self.covariance + self.covariance.T))
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(seed).standard_normal((count, len(self.theta)))
        return [self.variables.parameters(self.theta + factor @ z) for z in normal]

    def as_plain(self) -> dict[str, Any]:
        """Lists and numbers for a JSON file, every digit kept."""
        return {
            "reference": {k: np.asarray(v).tolist() for k, v in self.variables.reference.values.items()},
            "variables": [
                {"name": v.name, "index": v.index, "prior_mean": v.prior_mean, "prior_std": v.prior_std}
                for v in self.variables.variables
            ],
            "theta": self.theta.tolist(),
            "covariance": self.covariance.tolist(),
        }

    @classmethod
    def from_plain(cls, data: object, source: str) -> ParameterPosterior:
        """What `as_plain` gave. `source` names the file in errors."""
        remedy = "write the result anew with this version of soft-estimator"
        if not isinstance(data, Mapping):
            raise ValueError(f"{source} has no posterior; {remedy}")
        try:
            reference: dict[str, Any] = {k: v if np.ndim(v) == 0 else np.array(v) for k, v in data["reference"].items()}
            rows = [
                Variable(REGISTRY[v["name"]], v["index"], v["prior_mean"], v["prior_std"]) for v in data["variables"]
            ]
            variables = Variables(Parameters(values=reference), rows)
            theta = np.array(data["theta"], dtype=np.float64)
            covariance = np.array(data["covariance"], dtype=np.float64)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{source} has a posterior of another version ({error}); {remedy}") from error
        count = len(variables)
        if theta.shape != (count,) or covariance.shape != (count, count):
            raise ValueError(
                f"{source} has a posterior of {count} variables with theta {theta.shape} and covariance "
                f"{covariance.shape}; {remedy}"
            )
        if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
            raise ValueError(f"{source} has a posterior with numbers that are not finite; estimate again")
        return cls(variables, theta, covariance)
