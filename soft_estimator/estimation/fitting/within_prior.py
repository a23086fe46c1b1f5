"""What is known without any data stays known: no deviation is wider than the prior leaves it.

With errors of fixed numbers that move the estimate by S c, variances C + S Sᵀ (`consider`) may be any size where the
data say next to nothing of a variable. Under its prior of mean m and deviation σ the truth is off an estimate θ by
√(σ² + (θ - m)²), root mean square, whatever the data did.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.uncertainty import Posterior, describe
from soft_estimator.estimation.variables import Variables


def within_prior(variables: Variables, found: Posterior) -> Posterior:
    """The posterior with deviations that the prior leaves narrower as narrow as that; correlations stay."""
    most = np.hypot(variables.prior_std, found.theta - variables.prior_mean)
    share = np.minimum(1.0, most / np.sqrt(np.diag(found.covariance)))
    if (share == 1.0).all():
        return found
    both = np.outer(share, share)
    statistical = found.statistical * both
    effects = tuple(replace(effect, moves=effect.moves * share[:, None]) for effect in found.effects)
    described = describe(variables, found.theta, found.information, statistical, found.touched, effects, found.verdict)
    # Which are observable, and why not, does not change: what is as wide as its prior is not.
    estimates = tuple(
        replace(new, observable=old.observable, reason=old.reason, mostly=old.mostly)
        for new, old in zip(described, found.estimates)
    )
    covariance = found.covariance * both
    return replace(found, covariance=covariance, statistical=statistical, effects=effects, estimates=estimates)
