"""The report as a reader meets it: opened from a file in a real browser, wide, on a phone, and printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from headless_chromium import DRAWN, chromium, complaints, pixels, printed, shown_as, wait_until

from soft_estimator.report import ReportContent, write_report


@pytest.fixture(scope="module")
def report(content: ReportContent, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(tmp_path_factory.mktemp("report") / "report.html", content).as_uri()


@pytest.fixture(scope="module")
def opened(report: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        open_report(page, report)
        yield page


def open_report(page: Any, url: str) -> None:
    page.get(url)
    wait_until(lambda: page.execute_script("return document.body.dataset.view"), what="the 3D view")
    assert page.execute_script("return document.body.dataset.view") == "ready"


def view(page: Any) -> np.ndarray:
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return pixels(page, page.find_element("id", "view"))


def colourful(image: np.ndarray, strongest: int) -> int:
    """How many pixels are clearly of the colour of one channel."""
    others = [k for k in range(3) if k != strongest]
    return int((image[..., strongest] > image[..., others].max(axis=-1) + 25).sum())


def test_the_3d_view_shows_the_mesh(opened: Any, content: ReportContent) -> None:
    lengths = opened.execute_script("return document.getElementById('view').data.map(t => t.x.length)")
    # The body, the measured points, the plane's corners, the tool and the scale's line of three strokes.
    last = content.moments[-1]
    assert lengths == [len(last.vertices_m), len(last.points_m), 4, len(last.tools["tip"][0]), 9]
    image = view(opened)
    # One side is coral (points outside), the other teal: each covers a thousand pixels, or nothing is drawn.
    many = 1000 * DRAWN**2
    assert colourful(image, 0) > many
    assert ((image[..., 1] > image[..., 0] + 25) & (image[..., 2] > image[..., 0] + 25)).sum() > many


def test_the_slider_moves_body_clock_and_marks(opened: Any, content: ReportContent) -> None:
    after = view(opened)
    move = "const s = document.getElementById('moment'); s.value = 0; s.dispatchEvent(new Event('input'));"
    opened.execute_script(move)
    wait_until(lambda: opened.find_element("id", "clock").text == "0.000 s", what="the clock")
    drawn = "return Array.from(document.getElementById('view').data[0].z)"
    highest = float(content.moments[0].vertices_m[:, 2].max())
    wait_until(lambda: abs(max(opened.execute_script(drawn)) - highest) < 1e-6, what="the first moment")
    assert (np.abs(view(opened) - after).max(axis=-1) > 20).sum() > 1000 * DRAWN**2
    marks = opened.execute_script("return [...document.querySelectorAll('.now')].map(l => l.style.visibility)")
    assert marks and set(marks) == {"visible"}
    # Looked at from outside, a clock that goes on may be missed at a time, round after round.
    note = (
        "const clock = document.getElementById('clock'); window.times = [];"
        "new MutationObserver(() => window.times.push(clock.textContent)).observe(clock, {childList: true});"
    )
    opened.execute_script(note)
    opened.find_element("id", "play").click()
    wait_until(lambda: len(opened.execute_script("return window.times")) >= 3, what="playing")
    opened.find_element("id", "play").click()
    assert opened.execute_script("return window.times.slice(0, 3)") == ["0.100 s", "0.250 s", "0.000 s"]


def test_colours_and_boxes_work(opened: Any) -> None:
    opened.find_element("css selector", "#colour option[value=strain]").click()
    assert opened.find_element("id", "ramp-strain").is_displayed()
    assert not opened.find_element("id", "ramp-residual").is_displayed()
    opened.find_element("id", "show-body").click()
    visible = "return document.getElementById('view').data.map(t => t.visible)"
    wait_until(lambda: opened.execute_script(visible)[:3] == [False, True, True], what="the body to go")
    opened.find_element("id", "show-body").click()
    opened.find_element("css selector", "#colour option[value=residual]").click()


def test_plots_have_data(opened: Any) -> None:
    count = "return [...document.querySelectorAll('svg.plot .curve')].map(c => c.points.length)"
    assert opened.execute_script(count) == [6, 6, 6]
    assert opened.execute_script("return document.querySelectorAll('svg.plot .band').length") == 2


def test_there_is_no_complaint_and_no_request(opened: Any) -> None:
    assert complaints(opened) == []
    assert opened.execute_script("return performance.getEntriesByType('resource').map(r => r.name)") == []


def test_on_a_phone_in_the_dark_nothing_sticks_out(opened: Any) -> None:
    with shown_as(opened, width=390, height=844, dark=True) as page:
        wide = "return document.documentElement.scrollWidth"
        wait_until(lambda: page.execute_script(wide) == 390, what="the page to be no wider than a phone")
        drawn = page.find_element("id", "view").size["width"]
        assert 200 < drawn <= 390
        background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert max(int(v) for v in background[4:-1].split(",")) < 60
        assert complaints(page) == []


def test_paper_gets_pictures_instead_of_the_view(opened: Any) -> None:
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not opened.find_element("id", "view").is_displayed()
        stills = opened.find_elements("css selector", ".stills img")
        assert len(stills) == 3 and all(s.is_displayed() and int(s.get_property("naturalWidth")) > 100 for s in stills)
        assert printed(opened).startswith(b"%PDF")
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
