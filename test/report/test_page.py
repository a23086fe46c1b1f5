"""The report's text: what it says, that it is one file, and that numbers are rounded the way people write them."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.pictures.wording import choose_unit, plain_name, rounded, seconds, with_deviation
from soft_estimator.report import Plane, ReportContent, Series, report_html, write_report
from soft_estimator.report.plots import line_plot, log_ticks, ticks
from soft_estimator.report.view3d import plane_corners, plotly_packed, scene_data, upright


@pytest.fixture(scope="module")
def html(content: ReportContent) -> str:
    return report_html(content)


def test_the_page_says_what_was_found(html: str) -> None:
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", html, flags=re.S)
    for expected in ("Young's modulus", "20.049", "± 0.022 kPa", "20.005 … 20.093 kPa", "off by +0.24 %", "80 kPa"):
        assert expected in text.replace("&#x27;", "'"), expected
    assert "Poisson's ratio was not observable: the body hardly moved sideways to its load." in text.replace(
        "&#x27;", "'"
    )
    assert "Two frames were set aside." in text and "1.25 s" in text and "34 ms" in text
    assert "ball &lt;&amp;&gt; plane" in html and "name: &lt;ball&gt;" in html  # nothing of the user's becomes markup


@pytest.mark.slow
def test_the_page_is_one_file_the_same_for_the_same_content(html: str, content: ReportContent, tmp_path: Path) -> None:
    path = write_report(tmp_path / "new folder" / "report.html", content)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == html


def test_the_page_fetches_nothing(html: str) -> None:
    assert not re.search(r'(src|href)="(?!data:)[^"]', html)
    assert "@import" not in html and "url(" not in html
    assert len(html) < 4e6


def test_the_moments_survive_packing(content: ReportContent) -> None:
    """Up is turned to z by a rotation, so lengths and heights above the plane stay what they are."""
    turned = dataclasses.replace(content, up=(0.0, 1.0, 0.0))
    data = scene_data(turned)
    for moment, packed in zip(content.moments, data["moments"]):
        vertices = np.frombuffer(base64.b64decode(packed["vertices"]), "<f4").reshape(-1, 3)
        assert np.linalg.norm(vertices, axis=1) == pytest.approx(np.linalg.norm(moment.vertices_m, axis=1), rel=1e-6)
        assert vertices[:, 2] == pytest.approx(moment.vertices_m[:, 1], abs=1e-7)
        residual = np.frombuffer(base64.b64decode(packed["residual_mm"]), "<f4")
        assert residual == pytest.approx(1e3 * moment.residual_m, nan_ok=True)
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize("up", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, -2), (1, 2, 3)])
def test_upright_is_a_rotation_to_z(up: tuple[float, float, float]) -> None:
    turn = upright(up)
    assert turn @ turn.T == pytest.approx(np.eye(3), abs=1e-12)
    assert np.linalg.det(turn) == pytest.approx(1)
    assert turn @ up == pytest.approx([0, 0, np.linalg.norm(up)])


def test_the_drawn_plane_lies_in_the_plane() -> None:
    plane = Plane((0.0, 1.2, 1.6), 0.1)  # not of unit length: 0.05 m
    corners = plane_corners(plane, np.array([-1.0, -1, -1]), np.array([1.0, 1, 1]))
    assert corners @ np.array([0, 0.6, 0.8]) + 0.05 == pytest.approx(np.zeros(4), abs=1e-12)


@pytest.mark.slow
def test_without_plotly_there_are_still_pictures(content: ReportContent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    plotly_packed.cache_clear()
    html = report_html(content)
    plotly_packed.cache_clear()
    assert "pip install plotly" in html and "data:image/png;base64," in html
    assert "<script" not in html


def test_a_report_may_be_empty() -> None:
    html = report_html(ReportContent(title="nothing"))
    assert "<h1>nothing</h1>" in html and "<section" not in html


@pytest.mark.parametrize(
    ("value", "std", "expected"),
    [
        (20.0487, 0.0224, ("20.049", "0.022")),
        (-0.043, 0.094, ("−0.043", "0.094")),
        (123456.0, 2300.0, ("123500", "2300")),
        (1.0, 0.0, ("1", "0")),
        (-0.0001, 0.5, ("0.00", "0.50")),
    ],
)
def test_a_value_has_as_many_digits_as_its_deviation_allows(
    value: float, std: float, expected: tuple[str, str]
) -> None:
    assert with_deviation(value, std) == expected


def test_numbers_for_people() -> None:
    assert [rounded(v) for v in (0, 0.5, 12345.678, -6.4e-17, 2e9, np.nan)] == [
        "0", "0.5", "12346", "−6.4·10⁻¹⁷", "2·10⁹", "–"
    ]  # fmt: skip
    assert choose_unit("Pa", [2e4]) == (1e3, "kPa") and choose_unit("", [0.3]) == (1.0, "")
    assert seconds(125) == "2 min 5 s" and seconds(0.0341) == "34.1 ms"
    assert plain_name("youngs_modulus_pa[1]") == "Young's modulus, region 1"
    assert plain_name("velocity_m_s[2]") == "Initial velocity, z"


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert log_ticks(0.5, 2000) == pytest.approx([1, 10, 100, 1000])
    assert all(3 <= t <= 8 for t in log_ticks(3, 8)) and len(log_ticks(3, 8)) >= 2


def test_a_curve_goes_through_its_values() -> None:
    """Values on a straight line lie on a straight line in the picture, and rise upwards."""
    svg = line_plot(Series("x", "", np.array([0.0, 1, 2, 3]), np.array([5.0, 6, 7, 8])))
    (points,) = re.findall(r'class="curve" points="([^"]*)"', svg)
    xy = np.array([[float(v) for v in p.split(",")] for p in points.split()])
    assert np.diff(xy, 2, axis=0) == pytest.approx(np.zeros((2, 2)), abs=0.21)  # written to a tenth of a pixel
    assert (np.diff(xy[:, 0]) > 0).all() and (np.diff(xy[:, 1]) < 0).all()


@pytest.mark.parametrize(
    "value", [np.array([1.0]), np.array([np.nan, 2.0, np.nan]), np.array([np.nan]), np.zeros(3), np.full(3, 1e-12)]
)
def test_odd_curves_are_drawn_without_fuss(value: np.ndarray) -> None:
    svg = line_plot(Series("x", "m", np.arange(len(value), dtype=float), value, value, value, truth=1.0))
    assert "nan" not in svg and "inf" not in svg


def test_plotly_is_packed_whole() -> None:
    offline = pytest.importorskip("plotly.offline")
    packed = plotly_packed()
    assert packed is not None and gzip.decompress(base64.b64decode(packed)).decode() == offline.get_plotlyjs()
