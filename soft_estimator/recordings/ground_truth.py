"""What a simulated scene knows about itself, as rows of text that travel beside its clouds, and back.

The rows are those of a diagnostics message: a name, a value and a unit. Recordings and the simulated camera write them;
an evaluation compares its estimates with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.parameters import Parameters

# Names under which ground truth travels, relative to a camera's namespace.
TRUTH_TOPIC, TRUTH_MESH_TOPIC = "ground_truth", "ground_truth/mesh"


@dataclass(frozen=True)
class TruthRow:
    """One true number: youngs_modulus_pa[0], plane_normal[2], ... with its unit."""

    label: str
    value: float
    unit: str


def truth_rows(parameters: Parameters, *, plane: bool = True) -> list[TruthRow]:
    """Every true number of a scene; those of the contact plane only if it has one.

    A scene's first pose and motion are left out: by the time an object is tracked they are history.
    """
    rows = []
    for name, entry in parameters.values.items():
        kind = REGISTRY[name]
        if not kind.truth or (kind.term == "contact" and not plane):
            continue
        # the entry is the normal itself, a direction; its tilt in radians is the estimator's affair
        unit = "" if kind.shape == "direction" else kind.unit
        value = np.asarray(entry, dtype=np.float64)
        if value.ndim == 0:
            rows.append(TruthRow(name, float(value), unit))
        else:
            rows += [TruthRow(f"{name}[{k}]", float(part), unit) for k, part in enumerate(value)]
    return rows


def parameters_from_rows(rows: Iterable[TruthRow], reference: Parameters) -> tuple[Parameters, frozenset[str]]:
    """The reference with the true numbers put in, and the names of the entries that the rows give whole.

    Rows that are not finite, or name what the reference does not have, are passed over: a recording may come from
    elsewhere.
    """
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        name, _, index = row.label.partition("[")
        place = index.rstrip("]") or "0"
        if name in reference and REGISTRY[name].truth and place.isdigit() and math.isfinite(row.value):
            found.setdefault(name, {})[int(place)] = row.value
    changed: dict[str, np.ndarray | float] = {}
    for name, parts in found.items():
        size = np.asarray(getattr(reference, name)).size
        if set(parts) != set(range(size)):
            continue
        scalar = np.ndim(getattr(reference, name)) == 0
        changed[name] = parts[0] if scalar else np.array([parts[k] for k in range(size)])
    return reference.replace(**changed), frozenset(changed)
