"""The viewer's page, in a real browser, fed with a ball that breathes; and what it is made of, without one."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
import yaml
from headless_chromium import DRAWN, complaints, pixels, wait_until

from soft_estimator.viewer.page import Viewer
from soft_estimator.viewer.plots import value_range
from soft_estimator.viewer.twin import mesh_glb
from soft_estimator.viewer.updates import MeshNow, ParameterNow, ViewUpdate

ROOT = Path(__file__).resolve().parents[2]
CORAL = np.array((0.91, 0.42, 0.30))


def ball(stretch: float = 1.0) -> MeshNow:
    shape = trimesh.creation.icosphere(3, radius=0.05)
    vertices = shape.vertices * [stretch, stretch, 1.0] + [0, 0, 0.06]
    colours = {"residual": np.tile(CORAL, (len(vertices), 1)), "strain": np.tile([0.1, 0.2, 0.9], (len(vertices), 1))}
    return MeshNow(vertices, np.asarray(shape.faces), colours)


def update_at(time_s: float) -> ViewUpdate:
    stiffness = 2e4 * (1 + np.exp(-time_s))
    twin = ball(1 + 0.1 * np.sin(time_s))
    return ViewUpdate(
        time_s, "tracking", twin.vertices_m[::5], twin, (np.array([0.0, 0, 1]), 0.0),
        (
            ParameterNow("youngs_modulus_pa", "Pa", stiffness, 0.8 * stiffness, 1.2 * stiffness, truth=2e4),
            ParameterNow("poissons_ratio", "", 0.4, 0.2, 0.45, False, "the body hardly moved sideways"),
        ),
        "7 frames in the window",
    )  # fmt: skip


class Fed:
    """A viewer that gets an update five times a second, and what its buttons did."""

    def __init__(self) -> None:
        pytest.importorskip("viser", reason="needs viser: pip install 'soft_estimator[viewer]'")
        self.resets, self.pauses, self._stop = 0, [], threading.Event()
        self.viewer = Viewer(port=free_port(), title="breathing ball", on_reset=self.reset, on_pause=self.pause)
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    def reset(self) -> str:
        self.resets += 1
        return "began anew"

    def pause(self, paused: bool) -> str:
        self.pauses.append(paused)
        return "stands still" if paused else ""

    def _feed(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(0.2):
            self.viewer.show(update_at(time.monotonic() - begun))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.viewer.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def fed() -> Iterator[Fed]:
    made = Fed()
    yield made
    made.close()


@pytest.fixture(scope="module")
def opened(fed: Fed, browser: Any) -> Any:
    browser.get(fed.viewer.url)
    wait_until(lambda: "Young's modulus" in text_of(browser), what="the panel")
    return browser


def text_of(page: Any) -> str:
    return str(page.execute_script("return document.body.innerText"))


def button(page: Any, label: str) -> Any:
    return next(b for b in page.find_elements("css selector", "button") if b.text.strip() == label)


def scene_pixels(page: Any) -> np.ndarray:
    return pixels(page, page.find_element("tag name", "body"))[:, : round(880 * DRAWN)]


def coral_pixels(page: Any) -> int:
    # Left of x = 330 the library may tell that WebGL runs in software.
    image = scene_pixels(page)[:, round(330 * DRAWN) :]
    return int(((image[..., 0] > image[..., 2] + 40) & (image[..., 0] > image[..., 1] + 25)).sum())


def test_the_twin_is_drawn_in_its_colours(opened: Any) -> None:
    wait_until(lambda: coral_pixels(opened) > 5000 * DRAWN**2, what="a coral ball")


def test_plots_have_data(opened: Any, fed: Fed) -> None:
    words = text_of(opened)
    assert "Young's modulus" in words and "not observable: the body hardly moved sideways" in words
    assert "tracking at" in words and "7 frames in the window" in words
    place = "const r = document.querySelectorAll('.uplot canvas')[0].getBoundingClientRect();"
    assert opened.execute_script("return document.querySelectorAll('.uplot canvas').length") == 2
    sides = opened.execute_script(place + "return [r.x, r.y, r.width, r.height]")
    x, y, width, height = (round(DRAWN * side) for side in sides)
    image = pixels(opened, opened.find_element("tag name", "body"))[y : y + height, x : x + width]
    teal = (image[..., 1] > image[..., 0] + 40) & (image[..., 2] > image[..., 0] + 40)
    assert teal.sum() > 100 * DRAWN**2  # the curve; its band is paler
    assert fed.viewer._plots["youngs_modulus_pa"].samples > 10


def test_pause_stands_still_and_goes_on(opened: Any, fed: Fed) -> None:
    button(opened, "Pause").click()
    wait_until(lambda: "stands still" in text_of(opened), what="the answer")
    time.sleep(0.5)
    before = fed.viewer._plots["youngs_modulus_pa"].samples
    time.sleep(1.0)
    assert fed.viewer._plots["youngs_modulus_pa"].samples == before and fed.pauses == [True]
    button(opened, "Go on").click()
    wait_until(lambda: fed.viewer._plots["youngs_modulus_pa"].samples > before, what="going on")
    assert fed.pauses == [True, False]


def test_reset_asks_the_source_and_empties_the_plots(opened: Any, fed: Fed) -> None:
    before = fed.viewer._plots["youngs_modulus_pa"].samples
    button(opened, "Reset").click()
    wait_until(lambda: "began anew" in text_of(opened), what="the answer")
    assert fed.resets == 1
    assert fed.viewer._plots["youngs_modulus_pa"].samples < before + 5


def test_the_page_fetches_nothing_and_complains_about_nothing(opened: Any, fed: Fed) -> None:
    loaded = opened.execute_script("return performance.getEntriesByType('resource').map(r => r.name)")
    assert all(name.startswith((fed.viewer.url, "blob:", "data:")) for name in loaded), loaded
    assert complaints(opened) == []


def test_it_listens_on_this_machine_only(fed: Fed) -> None:
    """An address of this machine that others could use is refused."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing; tells which address would be used
        except OSError:
            pytest.skip("this machine has no address but its own")
        outside = s.getsockname()[0]
    if outside.startswith("127."):
        pytest.skip("this machine has no address but its own")
    socket.create_connection(("127.0.0.1", fed.viewer.port), 5).close()
    with pytest.raises(OSError):
        socket.create_connection((outside, fed.viewer.port), 2).close()


def glb_parts(glb: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON and the binary chunk of a glTF file."""
    (length,) = struct.unpack_from("<I", glb, 12)
    return json.loads(glb[20 : 20 + length]), glb[28 + length :]


def view_of(tree: dict[str, Any], data: bytes, accessor: int) -> bytes:
    view = tree["bufferViews"][tree["accessors"][accessor]["bufferView"]]
    return data[view["byteOffset"] : view["byteOffset"] + view["byteLength"]]


def test_colours_travel_in_the_mesh() -> None:
    """glTF keeps linear values: sRGB c becomes ((c + 0.055) / 1.055)^2.4, to the nearest of 256 steps."""
    twin = ball()
    tree, data = glb_parts(mesh_glb(twin, twin.colours["residual"]))
    (primitive,) = tree["meshes"][0]["primitives"]
    assert tree["materials"][primitive["material"]]["pbrMetallicRoughness"]["metallicFactor"] == 0
    places = np.frombuffer(view_of(tree, data, primitive["attributes"]["POSITION"]), "<f4").reshape(-1, 3)
    assert places == pytest.approx(twin.vertices_m, abs=1e-6)
    colour = np.frombuffer(view_of(tree, data, primitive["attributes"]["COLOR_0"]), np.uint8).reshape(-1, 4)[0, :3]
    assert colour / 255 == pytest.approx(((CORAL + 0.055) / 1.055) ** 2.4, abs=0.5 / 255 + 1e-9)


def test_the_range_of_a_plot_follows_the_curve_not_a_wide_first_band() -> None:
    value = np.array([10.0, 8, 7, 6.5])
    half = np.array([1000.0, 50, 1, 0.2])
    low, high = value_range(value, value - half, value + half, truth=6.0)
    assert low < 6.0 - 0.2 and high > 10 and high - low < 10


def test_without_viser_it_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from soft_estimator.cli import main

    monkeypatch.setitem(sys.modules, "viser", None)
    assert main(["view", "--demo"]) == 2
    assert "soft_estimator[viewer]" in capsys.readouterr().err


def test_a_missing_bag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from soft_estimator.cli import main

    pytest.importorskip("viser")
    assert main(["view", "--replay", "nowhere"]) == 2
    assert "--replay nowhere does not exist" in capsys.readouterr().err


def topics_in(value: Any) -> set[str]:
    """Every text of nested values that looks like a topic, without what follows a dot."""
    if isinstance(value, dict):
        return topics_in([*value, *value.values()])
    if isinstance(value, list):
        return set().union(*(topics_in(v) for v in value)) if value else set()
    return {value.partition(".")[0]} if isinstance(value, str) and value.startswith("/") else set()


def test_layouts_name_topics_that_are_published() -> None:
    source = "\n".join(p.read_text() for p in (ROOT / "soft_estimator" / "ros").glob("*.py"))
    rviz = yaml.safe_load((ROOT / "config/rviz/soft_estimator.rviz").read_text())
    foxglove = json.loads((ROOT / "config/foxglove/soft_estimator.json").read_text())
    for topics in (topics_in(rviz), topics_in(foxglove)):
        assert {"/object_points", "/mesh", "/contact_plane_marker"} <= topics
        for topic in topics:
            name = topic.lstrip("/")
            published = (f'"{name}"', f'"/{name}"')
            composed = name.startswith("estimate/") or name == "estimator_node/reset"
            assert composed or any(p in source for p in published), topic
