"""One self-contained page about an estimate: `write_report(path, content)`. It opens anywhere, without a network."""

from soft_estimator.report.content import Moment, Plane, ReportContent, ReportParameter, Series
from soft_estimator.report.page import report_html, write_report

__all__ = ["Moment", "Plane", "ReportContent", "ReportParameter", "Series", "report_html", "write_report"]
