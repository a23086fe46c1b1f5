"""What errors of the numbers held fixed do to an estimate: the "consider" covariance (METHOD §15).

At the minimum of ½ rᵀWr + prior the estimate moves by S c with an error c of fixed numbers, where
S = -(JᵀWJ + prior)⁻¹ JᵀW C and C are their columns. With columns of one standard deviation each, S Sᵀ adds to the
covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soft_estimator.estimation.inspection import Inspection
from soft_estimator.estimation.variables import Variables

# What contributes less than this part of a variance does not dominate it.
DOMINATES = 0.5
MODEL = ("model", "the model itself", "use a finer grid")
DETAILS = ("shape_details", "the details of the shape", "let it move more, or scan it finely")


@dataclass(frozen=True, eq=False)
class Effect:
    """What one source does to the estimate.

    Attributes:
        name, title, remedy: of the source. moves: of θ with a standard deviation of each of its components, (P, k).
    """

    name: str
    title: str
    remedy: str
    moves: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        return self.moves @ self.moves.T

    @property
    def std(self) -> np.ndarray:
        """Of θ, (P,)."""
        return np.sqrt((self.moves**2).sum(axis=1))


def effects(
    inspection: Inspection, jacobian: np.ndarray, weight: np.ndarray, frame: np.ndarray, covariance: np.ndarray
) -> list[Effect]:
    """The effect of every source.

    Args:
        jacobian, weight, frame: of the residuals, as in `Evaluation`, (n, P), (n,), (n,).
        covariance: (JᵀWJ + prior)⁻¹, (P, P).
    """
    gain = -covariance @ (jacobian * weight[:, None]).T
    out = []
    for source, columns in zip(inspection.sources, inspection.columns):
        if source.each_frame:
            count = int(frame.max()) + 1
            moves = np.concatenate([gain[:, frame == k] @ columns[frame == k] for k in range(count)], axis=1)
        else:
            moves = gain @ columns
        out.append(Effect(source.name, source.title, source.remedy, moves))
    return out


def details_effect(
    inspection: Inspection, jacobian: np.ndarray, weight: np.ndarray, covariance: np.ndarray, std_m: float
) -> Effect:
    """Patches of the surface that lie somewhat off, each by itself and the same in all frames: std_m each [m].

    A fit that is off by as much is not called wrong for it. A body that hardly moves can be bent to explain it; one
    that falls and bounces carries its shape with it, and its stiffness does not come from where its patches lie.
    """
    gain = -covariance @ (jacobian * (weight * inspection.by_offset)[:, None]).T
    used, place = np.unique(inspection.patch, return_inverse=True)
    moves = np.stack([np.bincount(place, row, len(used)) for row in gain])
    return Effect(*DETAILS, std_m * moves[:, used >= 0])


def model_effect(variables: Variables, relative: float) -> Effect:
    """Errors of grid and law themselves: a part of every stiffness, damping and density that is estimated."""
    scaled = [relative if v.transform in ("log", "logit") else 0.0 for v in variables.variables]
    return Effect(*MODEL, np.diag(scaled))


def mostly(effects: Sequence[Effect], variance: np.ndarray) -> list[str]:
    """What each variable's total variance (P,) mostly comes from, as a sentence's end; "" for the noise of the data."""
    out = []
    for j, total in enumerate(variance):
        worst = max(effects, key=lambda e: float(e.std[j]), default=None)
        told = worst is not None and float(worst.std[j]) ** 2 > DOMINATES * total
        out.append(f"mostly {worst.title}: {worst.remedy}" if told and worst is not None else "")
    return out
