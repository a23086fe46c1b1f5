"""Looking back in the viewer: twin and points of one moment, their age, and a slider that reaches all of the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from headless_chromium import wait_until

from soft_estimator.viewer.history import History
from soft_estimator.viewer.page import Viewer
from soft_estimator.viewer.updates import MeshNow, ViewUpdate


def ball() -> MeshNow:
    """A tetrahedron will do."""
    vertices = 0.05 * np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    return MeshNow(vertices, np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]]), {"residual": np.full((4, 3), 0.5)})


def update_at(time_s: float) -> ViewUpdate:
    return ViewUpdate(time_s, "tracking", ball().vertices_m, ball(), (np.array([0.0, 0, 1]), 0.0), line="7 frames")


def cloud(time_s: float) -> np.ndarray:
    """A point whose x says of when it is."""
    return np.array([[time_s, 0.0, 0.0]])


def test_a_twin_that_comes_late_finds_the_points_of_its_own_moment() -> None:
    """Clouds at 30 Hz; the twin of 1 s comes when the cloud of 2 s is there: it is 1 s old, and shown with its own."""
    history = History()
    for k in range(61):
        assert history.add(ViewUpdate(k / 30, points_m=cloud(k / 30))) is None
    moment = history.add(ViewUpdate(1.001, mesh=ball()))
    assert moment is not None and moment.points_m is not None
    np.testing.assert_allclose(moment.points_m, cloud(1.0))
    assert history.age_in_words(moment) == "twin and points of 1.00 s, 1.00 s old"
    assert history.at(0.3) is moment
    alone = history.add(ViewUpdate(3.0, mesh=ball()))  # no cloud within a frame of it
    assert alone is not None and alone.points_m is None and history.age_in_words(alone) == "twin of 3.00 s, 0.00 s old"


def test_a_long_run_is_thinned_but_stays_whole() -> None:
    """Ten times as many moments as are kept: the first and the last stay, and none between is farther from one that is
    kept than half the spacing of half as many, 100 s / 50 / 2."""
    history = History(most=100)
    for k in range(1000):
        history.add(ViewUpdate(k / 10, points_m=cloud(k / 10), mesh=ball()))
    kept = [history.at(t / 10) for t in range(1000)]
    times = np.array([moment.time_s for moment in kept if moment is not None])
    assert len(set(times)) <= 100 and times.min() == 0.0 and times.max() == pytest.approx(99.9)
    assert np.abs(times - np.arange(1000) / 10).max() <= 1.0


def test_the_slider_looks_back_and_the_page_says_how_old_it_is() -> None:
    pytest.importorskip("viser", reason="needs viser: pip install 'soft_estimator[viewer]'")
    viewer = Viewer(port=0, title="breathing ball")
    try:
        for time_s in (1.0, 2.0, 3.0):
            viewer.show(update_at(time_s))
        wait_until(lambda: "twin and points of 3.00 s, 0.00 s old" in viewer._head.content, 20)
        wait_until(lambda: min(viewer._time.max, viewer._time.value) == pytest.approx(3.0), 20)  # moved after the words
        viewer._time.value = 1.2  # as a browser does, which then says so
        viewer._look_back(by_user=True)
        wait_until(lambda: "looking back: twin and points of 1.00 s, 2.00 s old" in viewer._head.content, 20)
        tip, beside = ball(), np.array([0.1, 0.0, 0.0])
        viewer.show(replace(update_at(4.0), tools={"tip": (tip.vertices_m + beside, tip.faces)}))
        wait_until(lambda: "twin and points of 1.00 s, 3.00 s old" in viewer._head.content, 20)
        wait_until(lambda: viewer._time.max == pytest.approx(4.0), 20)
        assert viewer._time.value == pytest.approx(1.2)
        viewer._time.value = 4.0
        viewer._look_back(by_user=True)
        wait_until(lambda: "looking" not in viewer._head.content and "of 4.00 s" in viewer._head.content, 20)
        (shown,) = viewer._tools.values()
        np.testing.assert_allclose(shown.vertices.mean(axis=0), tip.vertices_m.mean(axis=0) + beside, atol=1e-6)
    finally:
        viewer.close()
