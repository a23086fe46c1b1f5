"""The table of a replay's estimates: every digit, and nothing that depends on the machine's clock."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from soft_estimator.estimation.window.live_estimate import LiveEstimate

ESTIMATES = "estimates.csv"


def estimate_table(labels: list[str], rows: Sequence[Sequence[str]]) -> bytes:
    """estimates.csv; labels: of the parameters, rows: see `estimate_row`."""
    return csv_bytes([_header(labels), *rows])


def _header(labels: list[str]) -> list[str]:
    """Columns of estimates.csv."""
    columns = ["stamp_s", "status", "frames_in_window", "rms_residual_m", "noise_scale"]
    for label in labels:
        columns += [label, f"{label}.std", f"{label}.low", f"{label}.high", f"{label}.observable"]
    return columns


def estimate_row(estimate: LiveEstimate) -> list[str]:
    """One line of estimates.csv."""
    row = [
        repr(float(estimate.stamp_s)),
        estimate.status,
        str(estimate.frames_in_window),
        repr(float(estimate.rms_residual_m)),
        repr(float(estimate.noise_scale)),
    ]
    for item in estimate.parameters:
        row += [repr(float(x)) for x in (item.value, item.std, item.low, item.high)]
        row.append("1" if item.observable else "0")
    return row


def csv_bytes(table: Sequence[Sequence[str]]) -> bytes:
    """A table as the content of a CSV file."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(table)
    return stream.getvalue().encode()
