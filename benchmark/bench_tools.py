"""A ball that falls onto a tray, is carried by it and set down: followed live with the tray's pose from tf. A block
that lies on a table, is gripped by two fingers with force sensors and lifted. And that block under a thumb that presses
14 mm deep beside its middle.

The truth is on half the spacing in steps a quarter as long, with a depth camera's noise. Prints E over time, and how
many frames were used, touched and started anew. Two to five minutes of one slow core each.

    python benchmark/bench_tools.py
    python benchmark/bench_tools.py gripper
    python benchmark/bench_tools.py thumb
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from soft_estimator.backends import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.replay import ReplayResult, replay_bag
from soft_estimator.live.replay_config import load_replay
from soft_estimator.recordings.record import record_scene
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load

TRAY = {"size_m": [0.3, 0.02, 0.3]}
LAW = {"stiffness_pa_per_m": 2e7, "friction": {"coefficient": 0.6}}
AWAY = {"translation_m": [0, 0.01, 0.03]}
PATH = [{"time_s": 0}, {"time_s": 0.35}, {"time_s": 0.55, **AWAY}, {"time_s": 0.9, **AWAY}]
SCENE: dict[str, Any] = {
    "name": "carried",
    "body": {"shape": {"sphere": {"radius_m": 0.05, "center_m": [0, 0.075, 0]}}, "spacing_m": "20 mm"},
    "material": {"youngs_modulus_pa": "30 kPa", "poissons_ratio": 0.4, "stiffness_damping_s": "6 ms"},
    "initial": {"velocity_m_s": [0, -0.3, 0]},
    "time": {"step_s": "5 ms", "duration_s": 0.78},
    "observe": {
        "cameras": [
            {"eye_m": [0.45, 0.25, 0], "target_m": [0, 0.05, 0], "width_px": 160, "height_px": 120}
            | {"horizontal_fov_rad": 0.7}
        ],
        "every_steps": 6,
        "noise": {"kind": "depth_camera"},
    },
    "estimate": {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "60 kPa"}},
}


FINGER: dict[str, Any] = {"start_m": [0, -0.03, 0], "end_m": [0, 0.03, 0], "radius_m": 0.01}
FINGERS_M = ([-0.0415, 0.0, 0.026], [0.0415, 0.0, 0.026])
GRIPPED: dict[str, Any] = {
    "name": "gripped",
    "body": {
        "shape": {"box": {"size_m": [0.06, 0.048, 0.048], "center_m": [0, 0, 0.0241]}},
        "spacing_m": "12 mm",
    },
    "material": {"youngs_modulus_pa": "14 kPa", "poissons_ratio": 0.38, "density_kg_m3": 400}
    | {"stiffness_damping_s": "4 ms"},
    "gravity_m_s2": [0, 0, -9.81],
    "contact": {"normal": [0, 0, 1], "friction": {"coefficient": 0.5}},
    "start": {"equilibrium": {}},
    "time": {"step_s": "5 ms", "duration_s": 0.6},
    "observe": {
        "cameras": [
            {"eye_m": [0.12, 0.35, 0.25], "target_m": [0, 0, 0.04], "up": [0, 0, 1], "width_px": 200, "height_px": 150}
            | {"horizontal_fov_rad": 0.6}
        ],
        "every_steps": 6,
        "noise": {"kind": "depth_camera"},
        "wrenches": [{"obstacle": 0, "force_std_n": "50 mN"}, {"obstacle": 1, "force_std_n": "50 mN"}],
    },
    "estimate": {
        "parameters": ["youngs_modulus_pa", "plane_offset_m"],
        "guess": {"youngs_modulus_pa": "25 kPa"},
    },
}


class Printed:
    """A listener that prints every estimate."""

    def begin(self, scene: Scene) -> None:
        print(f"{scene.config.name}: {scene.body.cell_count} cells")

    def add(self, estimate: LiveEstimate) -> None:
        e = estimate.parameters[0]
        vouched = "" if e.observable else "  not vouched for"
        print(f"{estimate.stamp_s - 1.0:5.2f} s  {1e-3 * e.value:6.2f} ± {1e-3 * e.std:.2f} kPa{vouched}", flush=True)

    def files(self, result: ReplayResult) -> dict[str, bytes]:
        return {}


def carried() -> tuple[dict[str, Any], dict[str, Any]]:
    """The scene that is recorded, and the one that is told of the tray by tf."""
    told = {**SCENE, "obstacles": [{"shape": {"box": {**TRAY, "center_m": [0, -0.01, 0]}}, **LAW, "path": PATH}]}
    return told, {**SCENE, "obstacles": [{"shape": {"box": TRAY}, **LAW, "tool_frame": "tool"}]}


def gripped() -> tuple[dict[str, Any], dict[str, Any]]:
    """The same of the gripper: each finger closes by 8 mm, 1.5 mm of it air, and rises by 3 cm."""
    told, known = [], []
    for frame, place in zip(("tool", "tool_2"), FINGERS_M):
        inward = 0.008 if place[0] < 0 else -0.008
        ends = {name: [a + b for a, b in zip(FINGER[name], place)] for name in ("start_m", "end_m")}
        path: list[dict[str, Any]] = [{"time_s": 0.06}, {"time_s": 0.24, "translation_m": [inward, 0, 0]}]
        path += [{"time_s": 0.5, "translation_m": [inward, 0, 0.03]}]
        friction = {"friction": {"coefficient": 0.6}}
        told.append({"shape": {"capsule": {**FINGER, **ends}}, **friction, "path": path})
        known.append({"shape": {"capsule": FINGER}, **friction, "tool_frame": frame})
    return {**GRIPPED, "obstacles": told}, {**GRIPPED, "obstacles": known}


def pressed() -> tuple[dict[str, Any], dict[str, Any]]:
    """The same of the thumb: it goes down by 16 mm, 2 mm of it air."""
    thumb = {"start_m": [0, 0, -0.03], "end_m": [0, 0, 0.03], "radius_m": 0.01}
    place = {"start_m": [0.018, 0, 0.0601], "end_m": [0.018, 0, 0.1201]}
    path = [{"time_s": 0.03}, {"time_s": 0.15, "translation_m": [0, 0, -0.016]}]
    wrenches = {"observe": {**GRIPPED["observe"], "wrenches": GRIPPED["observe"]["wrenches"][:1]}}
    scene = {**GRIPPED, **wrenches, "name": "pressed", "time": {"step_s": "5 ms", "duration_s": 0.24}}
    friction = {"friction": {"coefficient": 0.6}}
    told = {"shape": {"capsule": {**thumb, **place}}, **friction, "path": path}
    known = {"shape": {"capsule": thumb}, **friction, "tool_frame": "tool"}
    return {**scene, "obstacles": [told]}, {**scene, "obstacles": [known]}


SCENES = {(): carried, ("gripper",): gripped, ("thumb",): pressed}


def main() -> None:
    told, known = SCENES[tuple(sys.argv[1:])]()
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        scene = build_scene(load(SceneConfig, told, "scene"), Path())
        record_scene(on_finer_grid(scene), choose_backend("cpu"), bag, topics=("points",))
        config, _ = load_replay({"scene": known}, Path())
        frames = replay_bag(bag, config, Path(), backend="cpu", listener=Printed()).metrics["frames"]
    print({name: frames[name] for name in ("in_bag", "frames_used", "frames_touched", "resets")})


if __name__ == "__main__":
    main()
