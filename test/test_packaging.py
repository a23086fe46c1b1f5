"""The package's shape: what may import what, what a bare interpreter needs, and that both manifests agree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "soft_estimator"

# Each room and what it may import, from the ground up. Nothing is exempt: the fronts, at the top, have their lines too.
_GROUND = {
    "parameters",
    "schema",
    "config",
    "config_body",
    "config_contact",
    "config_estimation",
    "config_live",
    "config_parameters",
}
_CORE = _GROUND | {"backends", "geometry", "physics"}
_SEEN = _CORE | {"estimation", "scene", "camera", "perception", "recordings"}
_ALL = _SEEN | {"pictures", "studies", "live", "measuring", "report", "viewer", "export"}
ALLOWED: dict[str, set[str]] = {
    "schema": set(),
    "parameters": set(),
    "config_body": {"schema"},
    "config_parameters": {"parameters", "schema", "config_body"},
    "config_estimation": {"parameters", "schema", "config_body", "config_parameters"},
    "config_live": {"schema"},
    "config_contact": {"schema", "config_body"},
    "config": {"schema", "config_body", "config_contact", "config_estimation"},
    "backends": set(),
    "geometry": _GROUND | {"backends"},
    "physics": _GROUND | {"backends", "geometry"},
    "estimation": _CORE,
    "scene": _CORE | {"estimation"},
    "camera": _CORE | {"estimation", "scene"},
    "pictures": _CORE | {"estimation", "scene", "camera"},
    "perception": _CORE | {"estimation"},
    "recordings": _CORE | {"estimation", "scene", "camera", "perception"},
    "studies": _SEEN | {"pictures"},
    "live": _SEEN,
    "measuring": _SEEN | {"pictures", "live"},
    "report": _SEEN | {"pictures", "studies", "live"},
    "viewer": _SEEN | {"pictures", "live"},
    "export": _CORE | {"estimation", "scene"},
    "ros": _ALL,
    "commands": _ALL | {"ros", "__init__"},
    "cli": {"commands"},
    "__main__": {"cli"},
    "api": _ALL,
    "__init__": {"api"},
}

# Foreign packages that live in one room each.
ROOMS = [
    (re.compile(r"rclpy|launch|launch_ros|tf2_ros|\w+_msgs(_py)?|\w+_interfaces"), "ros"),
    # rosbags is plain Python: reading a recorded bag needs no ROS.
    (re.compile(r"rosbags"), "recordings"),
    (re.compile(r"cupy"), "backends/cuda"),
    (re.compile(r"numba|llvmlite"), "backends/cpu"),
    (re.compile(r"open3d"), "perception"),
    (re.compile(r"viser"), "viewer"),
    (re.compile(r"plotly"), "report"),
    (re.compile(r"dask|distributed"), "live"),
]


@cache
def parsed(source: str) -> ast.Module:
    """Two rules read every file."""
    return ast.parse(source)


def statements(body: Sequence[ast.stmt], inside: bool = False, typing: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement, and whether it stands in a function; typing: also what only type checkers read."""
    for node in body:
        if not typing and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node, inside
        deeper = inside or isinstance(node, ast.FunctionDef)
        parts = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
        for name in ("body", "orelse", "finalbody"):
            for part in parts:
                yield from statements(getattr(part, name, ()), deeper, typing)


def imported(source: str, module: list[str], typing: bool = True) -> Iterator[tuple[list[str], bool]]:
    """Every import in a module as (dotted name in parts, whether it stands at module level)."""
    for node, inside in statements(parsed(source).body, typing=typing):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split("."), not inside
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield [*base, alias.name], not inside


def violations(source: str, path: Path) -> list[str]:
    """What a module at `path` (relative to the package) imports against the rules."""
    room = path.with_suffix("").parts[0]
    module = ["soft_estimator", *path.with_suffix("").parts]
    found = []
    for name, at_module_level in imported(source, module):
        if name[0] == "soft_estimator":
            target = name[1] if len(name) > 1 else "__init__"
            if target not in ALLOWED[room] | {room}:
                found.append(f"{path}: {room} must not import {target}")
        for pattern, home in ROOMS:
            if pattern.fullmatch(name[0]):
                homes = (home,) if isinstance(home, str) else home
                if not path.as_posix().startswith(tuple(f"{room}/" for room in homes)):
                    found.append(f"{path}: {name[0]} belongs in {home}")
                elif name[0] == "open3d" and at_module_level:
                    found.append(f"{path}: import open3d inside the function that needs it")
    return found


def test_imports_keep_their_directions() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 10
    found = [v for f in files for v in violations(f.read_text(encoding="utf-8"), f.relative_to(PACKAGE))]
    assert not found, "\n".join(found)


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Which modules each module imports as it is imported itself; sources by dotted name, packages by their own."""
    graph: dict[str, set[str]] = {}
    for name, source in sources.items():
        at_once = [parts for parts, top in imported(source, name.split("."), typing=False) if top]
        # `from a.b import c` means the module a.b.c where there is one, else a name of a.b
        found = (next((n for n in (".".join(p), ".".join(p[:-1])) if n in sources), name) for p in at_once)
        graph[name] = set(found) - {name}
    return graph


def circles(graph: dict[str, set[str]]) -> list[str]:
    """What is left after modules that import nothing left, and then those that nothing left imports, are taken away."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        ends = {n for n, targets in left.items() if not targets & set(left)}
        ends |= set(left) - {t for targets in left.values() for t in targets}
        if not ends:
            return sorted(left)
        left = {name: targets for name, targets in left.items() if name not in ends}


def test_no_import_goes_in_a_circle() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    sources = {name: file.read_text(encoding="utf-8") for name, file in zip(names, files)}
    assert len(sources) > 100
    assert circles(import_graph(sources)) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (
            {"p.a": "import p.b", "p.b": "from p import c", "p.c": "from p.a import x", "p.d": "import p.a"},
            "p.a p.b p.c",
        ),
        ({"p.a": "import p.b", "p.b": "def f():\n    from p.a import x"}, ""),
        ({"p.a": "import p.b", "p.b": "if TYPE_CHECKING:\n    from p.a import x"}, ""),
        ({"p.a": "from p.b import f\nimport p.c", "p.b": "import p.c", "p.c": "import os"}, ""),
    ],
)
def test_circles_are_seen(sources: dict[str, str], expected: str) -> None:
    assert circles(import_graph(sources)) == expected.split()


def test_every_room_has_a_rule() -> None:
    rooms = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in PACKAGE.rglob("*.py")}
    assert rooms <= set(ALLOWED), "give the new room its line in ALLOWED"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("geometry/a.py", "from soft_estimator.physics import body"),
        ("geometry/a.py", "from ..physics import body"),
        ("geometry/a.py", "from soft_estimator import physics"),
        ("physics/a.py", "def f():\n    import soft_estimator.estimation"),
        ("backends/cpu/a.py", "from soft_estimator.geometry.grid import CORNER_OFFSETS"),
        ("studies/a.py", "import soft_estimator.ros.node"),
        ("perception/a.py", "from soft_estimator.recordings import bags"),
        ("perception/a.py", "def f():\n    from soft_estimator.commands import console"),
        ("ros/a.py", "def f():\n    from soft_estimator.commands.simulate import run"),
        ("commands/a.py", "from soft_estimator.cli import main"),
        ("live/a.py", "from soft_estimator.studies import estimate"),
        ("physics/a.py", "import numba"),
        ("backends/cpu/a.py", "import cupy as cp"),
        ("cli.py", "def f():\n    from rclpy.node import Node"),
        ("estimation/a.py", "from sensor_msgs.msg import PointCloud2"),
        ("perception/a.py", "import open3d"),
    ],
)
def test_the_rule_sees_a_wrong_import(path: str, source: str) -> None:
    assert len(violations(source, Path(path))) >= 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("physics/a.py", "from soft_estimator.geometry.grid import CORNER_OFFSETS\nimport numpy as np"),
        ("physics/a.py", "from . import b\nfrom .b import c\nfrom ..geometry import grid"),
        ("backends/cpu/a.py", "from numba import njit"),
        ("backends/cuda/a.py", "import cupy"),
        ("perception/a.py", "def f():\n    import open3d"),
        ("ros/a.py", "import rclpy\nfrom soft_estimator import scene"),
        ("commands/a.py", "def f():\n    from soft_estimator.ros import graph"),
    ],
)
def test_the_rule_lets_a_right_import_pass(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


def test_the_core_imports_without_ros_cupy_and_open3d() -> None:
    program = """
import importlib, pkgutil, sys
import soft_estimator
for module in pkgutil.walk_packages(soft_estimator.__path__, "soft_estimator.", onerror=lambda name: None):
    apart = module.name.startswith(("soft_estimator.ros", "soft_estimator.backends.cuda"))
    if not apart and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
heads = {name.partition(".")[0] for name in sys.modules}
print(*sorted(h for h in heads if h in ("rclpy", "cupy", "open3d") or h.endswith("_msgs")))
print(*sorted(name for name in sys.modules if name.startswith("soft_estimator")))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    foreign, own = done.stdout.split("\n")[:2]
    assert foreign == ""
    assert {"soft_estimator.config", "soft_estimator.geometry.grid"} <= set(own.split())


def setup_arguments() -> dict[str, object]:
    """The literal keyword arguments of setup() in setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "setup")
    return {k.arg: k.value.value for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)}


def test_package_xml_and_setup_agree() -> None:
    manifest = ElementTree.parse(ROOT / "package.xml").getroot()
    arguments = setup_arguments()
    assert manifest.get("format") == "3"
    assert manifest.findtext("version") == arguments["version"]
    assert manifest.findtext("license") == arguments["license"]
    assert manifest.findtext("export/build_type") == "ament_python"
    assert manifest.findtext("name") == PACKAGE.name
    assert (ROOT / "resource" / PACKAGE.name).is_file()


def test_the_license_is_said_once() -> None:
    """setuptools from 77 on takes the SPDX name and warns of a classifier beside it, at every colcon build."""
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert 'license="Apache-2.0"' in text
    assert "License ::" not in text
