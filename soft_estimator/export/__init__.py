"""What was measured goes to work: a result as a body for other simulators, with samples of its posterior."""

from soft_estimator.export.exporting import FORMATS, export
from soft_estimator.export.result import Result, read_result

__all__ = ["FORMATS", "Result", "export", "read_result"]
