"""Tracked markers from a CSV file: a line of names, then a line for each time.

    time_s,x0_m,y0_m,z0_m,x1_m,y1_m,z1_m,...

in seconds and metres. An empty field or `nan` is a marker that was not seen.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class MarkerTracks:
    """Places of K markers at T times.

    Attributes:
        time_s: rising, (T,). position_m: (T, K, 3), NaN where a marker was not seen.
    """

    time_s: np.ndarray
    position_m: np.ndarray

    def between(self, start_s: float, end_s: float) -> MarkerTracks:
        """What was recorded from one time to another, both included."""
        chosen = (self.time_s >= start_s - 1e-9) & (self.time_s <= end_s + 1e-9)
        return MarkerTracks(self.time_s[chosen], self.position_m[chosen])

    def mean_m(self) -> np.ndarray:
        """Mean places, (K, 3) [m]."""
        return np.asarray(np.nanmean(self.position_m, axis=0))


def read_markers(path: Path | str) -> MarkerTracks:
    """Read a file; a mistake in it is a ValueError of one line."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        names = [name.strip() for name in next(rows, [])]
        count = (len(names) - 1) // 3
        expected = ["time_s", *(f"{axis}{k}_m" for k in range(count) for axis in "xyz")]
        if count < 1 or names != expected:
            first = ",".join(names)[:60]
            raise ValueError(f"{path}: its first line '{first}' must read time_s,x0_m,y0_m,z0_m,... (seconds, metres)")
        numbers = np.array(list(_numbers(path, rows, len(names)))).reshape(-1, len(names))
    time_s = numbers[:, 0]
    if len(time_s) < 2 or not np.isfinite(time_s).all() or (np.diff(time_s) <= 0).any():
        raise ValueError(f"{path}: time_s must rise from line to line, over at least two of them; sort the lines")
    return MarkerTracks(time_s, numbers[:, 1:].reshape(len(numbers), count, 3))


def _numbers(path: Path | str, rows: Iterator[list[str]], width: int) -> Iterator[list[float]]:
    for k, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != width:
            raise ValueError(f"{path}: line {k} has {len(row)} fields where the first has {width}; mend or remove it")
        try:
            yield [float(field) if field.strip() else np.nan for field in row]
        except ValueError:
            raise ValueError(f"{path}: line {k} holds '{','.join(row)[:60]}', which are not all numbers") from None
