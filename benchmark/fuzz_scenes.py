"""Scenes with mistakes of all kinds: text and values that are changed at random, read and built.

A scene is either built or refused by a ValueError of one line; anything else is a finding.
"""

from __future__ import annotations

import copy
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from soft_estimator.config import load_scene
from soft_estimator.scene.scene import build_scene

MEMORY_BYTES = 60e6  # about 10,000 nodes: a scene is built in a moment
MOST_LINE = 1000

# Every section of the format at least once, on a grid of a few cells.
BASE: dict[str, Any] = {
    "name": "fuzz",
    "description": "a ball and a bar",
    "body": {
        "shape": {"union": {"of": [
            {"sphere": {"radius_m": 0.05, "center_m": [0.0, 0.05, 0.0]}},
            {"box": {"size_m": [0.1, 0.04, 0.04], "center_m": [0.05, 0.05, 0.0], "rotation_rad": [0.0, 0.1, 0.0]}},
            {"capsule": {"radius_m": 0.02, "start_m": [0.0, 0.05, 0.0], "end_m": [0.0, 0.12, 0.0]}},
            {"torus": {"major_radius_m": 0.04, "minor_radius_m": 0.015, "axis": "y", "center_m": [0.0, 0.05, 0.0]}},
        ]}},
        "spacing_m": 0.02, "min_fill": 0.02, "snap_fraction": 0.02, "subdivision": 1, "stabilisation": 0.1,
        "align": "bounds",
    },
    "material": {
        "youngs_modulus_pa": "8 kPa", "poissons_ratio": 0.4, "density_kg_m3": 1000, "mass_damping_per_s": 0.1,
        "stiffness_damping_s": 0.001,
        "regions": [{"low_m": [0.03, 0, -0.1], "high_m": [0.2, 0.2, 0.1], "youngs_modulus_pa": 9000}],
    },
    "gravity_m_s2": [0, -9.81, 0],
    "initial": {"translation_m": [0, 0.1, 0], "rotation_rad": [0, 0, 0.1], "velocity_m_s": [0, 0, 0.1],
                "angular_velocity_rad_s": [1, 0, 0]},
    "fixed": [{"low_m": [0.08, 0, -0.1], "high_m": [0.2, 0.2, 0.1], "method": "strong",
               "path": [{"time_s": 0.0}, {"time_s": 0.5, "translation_m": [0.01, 0, 0], "rotation_rad": [0, 0.1, 0]}]}],
    "loads": [{"low_m": [-0.1, -0.1, -0.1], "high_m": [0.0, 0.1, 0.1], "force_n": [0, 0, 0.1]}],
    "contact": {"normal": [0, 1, 0.1], "offset_m": 0.0, "stiffness_pa_per_m": 1e7, "sharpness_per_m": 2000,
                "method": "implicit", "friction": {"coefficient": 0.3, "slip_speed_m_s": 0.002}},
    "obstacles": [
        {"shape": {"sphere": {"radius_m": 0.03, "center_m": [-0.3, 0.05, 0.0]}}, "friction": {"coefficient": 0.2},
         "stiffness_pa_per_m": 1e7, "sharpness_per_m": 2000,
         "path": [{"time_s": 0.0}, {"time_s": 0.1, "translation_m": [0.05, 0, 0], "rotation_rad": [0, 0.1, 0]}]},
        {"shape": {"box": {"size_m": [0.1, 0.02, 0.1], "center_m": [0.0, -0.3, 0.0]}}, "edge_m": 0.001},
        {"shape": {"plane": {"normal": [1, 0, 0], "through_m": [-0.5, 0, 0]}}},
        {"shape": {"capsule": {"radius_m": 0.01, "start_m": [0.0, -0.3, 0.0], "end_m": [0.4, -0.3, 0.0]}}},
    ],
    "time": {"step_s": 0.005, "duration_s": 0.1, "integrator": "theta", "theta": 0.5, "rotation": "midpoint"},
    "solver": {"relative_tolerance": 1e-6, "max_iterations": 500, "precision": "float64"},
    "picture": {"eye_m": [0.3, 0.3, 0.5], "target_m": [0, 0, 0], "up": [0, 1, 0], "frames": 4, "width_px": 400},
    "observe": {"cameras": [{"eye_m": [0.3, 0.3, 0.5], "target_m": [0, 0.05, 0], "width_px": 64, "height_px": 48}],
                "duration_s": 0.1, "wrenches": [{"obstacle": 0, "force_std_n": 0.05, "moment_std_nm": 0.001}]},
    "estimate": {"parameters": ["youngs_modulus_pa", "obstacle_2_shift_m"],
                 "guess": {"obstacles": [{"obstacle": 2, "shift_m": [0.001, 0, 0], "turn_rad": [0, 0.1, 0]}]},
                 "known_to": {"obstacles": [{"obstacle": 1, "turn_rad": 0.01}]}},
}  # fmt: skip

VALUES: list[Any] = [
    None, True, False, "", "x", "~", [], {}, [[]], {"a": 1}, [1, 2, 3], [0, 0, 0], [1, 2], ["a", "b", "c"],
    math.nan, math.inf, -math.inf, 0, -1, 1, 2, 0.5, -0.0, 1e-300, 1e300, -1e300, 1e-30, 1e30, 1e-16, 1e-15, 1e15, 1e16,
    1e-9, 1e9, 1e6, 1e-6, 10**400, -(10**30), 5e-324, 1.7976931348623157e308, "5 kPa", "3 furlongs", "1e400 m",
    "1/0", "0x10", "1e-3 mm", "10 deg", [1e300, 1e300, 1e300], [1e-300, 0, 0], [math.nan, 0, 0], "nitsche", "hht",
    "lagged", "extrapolated", "float32", "../../etc/passwd", "/", "a\0b", "é€😀", "\u202e", "x" * 300,
    {"sphere": {"radius_m": 0.05}}, {"mesh": {"file": "none.obj"}}, {"sdf": {"file": "x.sdf", "size_m": 1}},
    {"scan": {"file": "body.npz"}}, {"union": {"of": []}},
]  # fmt: skip
TEXTS = [b"!!int ''", b"!!float x", b"!!binary =", b"&a [*a]", b"*b", b"<<: {}", b"? ", b": ", b"- ", b"\t", b"\x00",
         b"\xff", b"{", b"}", b"[", b"]", b"'", b'"', b"|", b">", b"%", b"@", b"!", b"---\n", b"...\n", b"\n\n  ", b"#",
         b"1e999", b".nan", b"2026-02-31", b"1:2:3", b"0o9", b"\xe2\x80\xa8", b"~", b"=", b"!!set",
         b"!!python/x"]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value below."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key in keys for p in places(value[key], (*path, key))]


def parent_of(scene: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        scene = scene[key]
    return scene


def mutate_values(scene: Any, rng: random.Random) -> None:
    """Change one value of nested dictionaries in place: replace, scale, remove, repeat, rename or move it."""
    path = rng.choice(places(scene))
    parent, key = parent_of(scene, path), path[-1]
    kind = rng.choice([0, 1, 2, 3, 3, 3, 4, 5, 6, 7])  # most numbers stay allowed, and the scene is built
    if kind <= 2:
        parent[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == 3 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
        parent[key] *= rng.choice([-1, 1e-6, 1e6, 1e-3, 1e3, 1e-20, 1e20, 0.5, 2])
    elif kind == 4:
        del parent[key]
    elif kind == 5 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif kind == 6 and isinstance(parent, dict):
        parent[rng.choice([key + "s", key.upper(), "", "body", "of"])] = parent.pop(key)
    else:
        other = rng.choice(places(scene))
        if other[: len(path)] != path and path[: len(other)] != other:
            parent[key] = copy.deepcopy(parent_of(scene, other)[other[-1]])


def mutate_text(text: bytes, rng: random.Random) -> bytes:
    """Change bytes: put some in, take some out, repeat a part."""
    at, length = rng.randrange(len(text)), rng.choice([1, 1, 2, 5, 40])
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + rng.choice(TEXTS) + text[at:]
    if kind == 1:
        return text[:at] + text[at + length :]
    if kind == 2:
        return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
    return text[: at + length] + text[at:]


def mutated_scene(seed: int) -> bytes:
    """A scene file with up to four mistakes."""
    rng = random.Random(f"scene {seed}")
    scene = copy.deepcopy(BASE)
    if rng.random() < 0.5:  # a body of one shape reaches farther than a union of four
        scene["body"]["shape"] = copy.deepcopy(rng.choice(BASE["body"]["shape"]["union"]["of"]))
    for key in rng.sample(["fixed", "loads", "contact", "observe", "estimate", "initial", "picture"], rng.randrange(5)):
        del scene[key]
    if "observe" not in scene:
        scene.pop("estimate", None)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        mutate_values(scene, rng)
    text = yaml.safe_dump(scene, sort_keys=False, allow_unicode=True).encode()
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        text = mutate_text(text, rng)
    return text


def try_scene(seed: int, folder: Path) -> str:
    """Read and build the scene of a seed: "built" or "refused"; anything but one line is raised."""
    path = folder / "scene.yaml"
    path.write_bytes(mutated_scene(seed))
    try:
        with np.errstate(all="ignore"):
            build_scene(load_scene(path), folder, None, MEMORY_BYTES)
    except ValueError as error:
        check_line(error)
        return "refused"
    return "built"


def check_line(error: Exception) -> None:
    """A message is one line that a terminal can show."""
    text = str(error)
    if not text or len(text) > MOST_LINE or not text.isprintable():
        raise AssertionError(f"not a line to read: {text[:200]!r}") from error
