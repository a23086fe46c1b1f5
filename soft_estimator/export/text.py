"""Numbers, remarks and rotations as the formats write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def numbers(values: Iterable[float]) -> str:
    """Numbers with nine digits, a hundred times finer than single precision keeps, between blanks."""
    return " ".join(f"{float(x):.9g}" for x in values)


def tuples(rows: np.ndarray) -> str:
    """Rows of numbers as USD writes them: (1, 2, 3), (4, 5, 6)."""
    if rows.dtype.kind in "iu":
        return ", ".join("(" + ", ".join(map(str, row)) + ")" for row in rows.tolist())
    return ", ".join("(" + ", ".join(f"{x:.9g}" for x in row) + ")" for row in rows.tolist())


def xml_comment(lines: Sequence[str]) -> list[str]:
    """Lines of an XML comment, in which "--" must not stand."""
    clean = [line.replace("--", "- -") for line in lines]
    return ["<!--", *(f"  {line}" for line in clean), "-->"]


def rotation_from_z(direction: np.ndarray) -> np.ndarray:
    """The unit quaternion (w, x, y, z) that turns the z axis to a unit direction on the shortest way, (4,)."""
    x, y, z = direction
    if z < -1 + 1e-12:  # straight down: half a turn about x
        return np.array([0.0, 1.0, 0.0, 0.0])
    quaternion = np.array([1.0 + z, -y, x, 0.0])
    return quaternion / np.linalg.norm(quaternion)
