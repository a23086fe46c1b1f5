"""Names, messages and meshes of topics and files are shown as text or refused: none of them runs, none ends `view`."""

from __future__ import annotations

import html
import re
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from headless_chromium import wait_until
from hypothesis import given
from hypothesis import strategies as st

from soft_estimator.pictures.wording import plain_name
from soft_estimator.viewer.markdown import as_text
from soft_estimator.viewer.page import MOST_PLOTS, Viewer
from soft_estimator.viewer.twin import SharedCorners
from soft_estimator.viewer.updates import MeshNow, ParameterNow, ViewUpdate

SCRIPT = "<iframe srcdoc='<script>parent.document.title=&quot;taken&quot;</script>'></iframe>"
HOSTILE = [
    SCRIPT,
    "**bold** _x_ `y`",
    "# head",
    "![x](http://example.invalid/x.png)",
    "{1+1}",
    "- a\n- b",
    "a<br>b",
    "$x$",
]
SIGNS = re.compile(r"[^\w\s]", re.ASCII)


@given(st.text(max_size=200))
def test_a_word_is_letters_and_character_references(words: str) -> None:
    """Read back as HTML it is what went in, on one line; as it stands there is no sign that Markdown or HTML reads."""
    text = as_text(words)
    assert not SIGNS.search(re.sub(r"&#\d+;", "", text).translate({ord(c): None for c in text if c.isalnum()}))
    expected = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(words.split()))
    assert html.unescape(text) == expected


def test_a_long_word_is_cut() -> None:
    assert html.unescape(as_text("x" * 10_000_000, 10)) == "x" * 9 + "…"


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    pytest.importorskip("viser", reason="needs viser: pip install 'soft_estimator[viewer]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = Viewer(port=port, title=f"title {SCRIPT}")
    yield made
    made.close()


def hostile_update(time_s: float, words: str) -> ViewUpdate:
    parameter = ParameterNow(words, words, 1.0, 0.5, 1.5, False, words)
    return ViewUpdate(time_s, words, parameters=(parameter,), line=words)


@pytest.mark.parametrize("words", HOSTILE)
def test_words_of_a_topic_are_text_in_the_panel(viewer: Viewer, words: str) -> None:
    """In what the browser is told there is no < but that of our own <br>, and no brace at all."""
    viewer.show(hostile_update(1.0, words))
    wait_until(lambda: words in viewer._plots, what="the plot")
    wait_until(lambda: "1.00 s" in viewer._head.content, what="the head")
    for content in (viewer._head.content, viewer._plots[words]._text.content):
        assert not re.search(r"[<{\[`$]", content.replace("<br>", ""))


@pytest.mark.parametrize(
    "name",
    ["plane_normal[x]", "translation_m[9]", "velocity_m_s[", "", "[", f"plane_normal[{'9' * 5000}]"],
)
def test_any_name_has_words(name: str) -> None:
    assert isinstance(plain_name(name), str)


def test_what_cannot_be_drawn_is_said_and_the_next_is_drawn(viewer: Viewer) -> None:
    """A mesh whose face names vertex 7 of 3 is one line in the panel; what comes after it is shown as ever."""
    broken = MeshNow(np.eye(3), np.array([[0, 1, 7]]), {"x": np.zeros((3, 3))})
    viewer.show(ViewUpdate(1.0, "tracking", mesh=broken, line="<b>"))
    wait_until(lambda: "not drawn" in viewer._head.content, what="the complaint")
    viewer.show(ViewUpdate(2.0, "tracking", line="goes on"))
    wait_until(lambda: "2.00 s" in viewer._head.content, what="the next update")
    assert viewer._thread.is_alive()


def test_charts_are_bounded(viewer: Viewer) -> None:
    many = tuple(ParameterNow(f"p{k}", "", 1.0, 0.5, 1.5) for k in range(MOST_PLOTS + 30))
    viewer.show(ViewUpdate(1.0, "tracking", parameters=many))
    wait_until(lambda: "1.00 s" in viewer._head.content, what="the head")
    assert len(viewer._plots) == MOST_PLOTS


def test_corners_that_make_no_triangles_are_refused_in_one_line() -> None:
    """A Marker of four points is no list of triangles, and NaN is no place; then a good one is put together again."""
    shared, grey = SharedCorners(), np.full((1, 3), 0.5)
    with pytest.raises(ValueError, match=r"^a mesh of 4 corners cannot be drawn; a list of triangles has three"):
        shared.mesh(np.zeros((4, 3)), grey, "x")
    with pytest.raises(ValueError, match=r"^a mesh with NaN"):
        shared.mesh(np.full((3, 3), np.nan), grey, "x")
    vertices, faces = np.random.default_rng(0).random((5, 3)), np.array([[0, 1, 2], [2, 1, 3], [4, 0, 2]])
    for moved in (vertices, vertices + 1.0):
        mesh = shared.mesh(moved[faces].reshape(-1, 3), np.repeat(faces.reshape(-1, 1), 3, axis=1) / 5.0, "x")
        assert np.array_equal(mesh.vertices_m[mesh.faces], moved[faces]) and len(mesh.vertices_m) == 5
        assert np.array_equal(mesh.colours["x"][mesh.faces][..., 0], faces / 5.0)


def test_no_script_runs_in_a_browser(viewer: Viewer, browser: Any) -> None:
    """Title, status, line, name, unit and reason with an <iframe> that would rename the page: nothing of it is made."""
    viewer.show(hostile_update(1.0, SCRIPT))
    browser.get(viewer.url)
    wait_until(lambda: "srcdoc" in text_of(browser), what="the words, as text")
    assert browser.execute_script("return document.querySelectorAll('iframe').length") == 0
    assert browser.execute_script("return document.title") != "taken"


def text_of(page: Any) -> str:
    return str(page.execute_script("return document.body.innerText"))
