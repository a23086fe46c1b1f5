"""Files that would hang, fill the memory or end inside the YAML library: each is one line that says what to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from soft_estimator.config import load_scene
from soft_estimator.schema import ConfigError
from soft_estimator.schema.section import shown
from soft_estimator.schema.yaml_file import MOST_BYTES, MOST_DEPTH, MOST_NODES

SCENE = "name: x\nmaterial: {youngs_modulus_pa: 1000}\nbody:\n  spacing_m: 0.01\n  shape: "


def laughs(first: str, again: str, levels: int) -> str:
    """Lists of ten aliases each, `levels` deep: 10^levels values when written out, in about 60 bytes a level."""
    lines = [f"x0: &x0 {first}"]
    lines += [f"x{k}: &x{k} {again.format(', '.join([f'*x{k - 1}'] * 10))}" for k in range(1, levels)]
    return "\n".join(lines) + "\n"


BOMBS = {
    "lists": laughs("[a, b]", "[{}]", 30),
    "merges": laughs("{a: 1, b: 2}", "{{<<: [{}]}}", 30),
    "unions": laughs("{sphere: {radius_m: 0.1}}", "{{union: {{of: [{}]}}}}", 30) + SCENE + "*x29",
    "values": "a: [" + "1, " * (MOST_NODES + 1) + "1]",
    "bytes": "a: " + "x" * MOST_BYTES,
    "flow depth": "[" * 5000 + "]" * 5000,
    "block depth": "- " * 5000 + "a",
    "mapping depth": "\n".join(" " * k + "a:" for k in range(500)),
    "long whole number": SCENE + "{sphere: {radius_m: 0x" + "f" * 9000 + "}}",
    "long key": SCENE + "{sphere: {? 0x" + "f" * 9000 + "\n: 1}}",
    "minutes of minutes": "a: 1" + ":1" * 100_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_has_no_end_is_refused_at_once(name: str, tmp_path: Path) -> None:
    """The loader takes about 50 µs a value, 1.5 s of this thread's time for the most there may be; 10 s leave room for
    slow machines, and a bomb of 10^30 values has no end."""
    path = tmp_path / "scene.yaml"
    path.write_text(BOMBS[name])
    begun = time.thread_time()
    with pytest.raises(ConfigError) as caught:
        load_scene(path)
    assert time.thread_time() - begun < 10.0
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: !!int ''", "has '' on line 1, which is no int"),
        ("a: !!int x", "which is no int"),
        ("a: !!float ''", "which is no float"),
        ("a: !!bool maybe", "has 'maybe' on line 1, which is no bool"),
        ("a: !!timestamp x", "which is no timestamp"),
        ("a: 2026-02-31", "has '2026-02-31' on line 1, which is no timestamp"),
        ("a: !!binary x", "not valid YAML"),
        ("a: !!map x", "not valid YAML"),
        ("a: !!set [x]", "not valid YAML"),
        ("a: !!omap x", "not valid YAML"),
        ("a: !!seq {b: 1}", "not valid YAML"),
        ("a: &b [*b]", "line 1 that contains itself"),
        ("a: &b {c: {d: *b}}", "line 1 that contains itself"),
        ("a: &b {<<: *b}", "line 1 that contains itself"),
        ("a: *b", "not valid YAML"),
        ('a: "\\Uffffffff"', "not valid YAML"),
        ("a: =", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("\x1b[31ma: 1", "not valid YAML"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), f"deeper than {MOST_DEPTH} levels"),
    ],
)
def test_what_the_library_stumbles_over_is_one_line(text: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_scene(path)
    assert part in str(caught.value) and "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_repeated_parts_are_still_allowed(tmp_path: Path) -> None:
    """Anchors and merges are how a scene says something once; only their excess is refused."""
    path = tmp_path / "scene.yaml"
    text = "{union: {of: [{sphere: &ball {radius_m: 0.1}}, {sphere: {<<: *ball, center_m: [0.1, 0, 0]}}]}}"
    path.write_text(SCENE + text)
    first, second = load_scene(path).body.shape.of  # type: ignore[union-attr]
    assert first.radius_m == second.radius_m == 0.1 and second.center_m == (0.1, 0.0, 0.0)


def test_a_value_is_cut_while_it_is_written() -> None:
    """A list that holds itself has an endless text; the first 57 characters and dots are what a message shows."""
    endless: list[object] = []
    endless.append(endless)
    assert shown(endless) == "[" * 57 + "..."
    assert shown({"a": [1, 2.5], "b": ("c",), 3: None}) == "{'a': [1, 2.5], 'b': ('c',), 3: None}"
    assert shown(16**5000) == "a whole number of 20001 bits"
    assert shown("x" * 100) == "'" + "x" * 56 + "..."
