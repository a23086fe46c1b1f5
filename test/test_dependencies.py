"""What the package needs is declared: in setup.py with bounds, in package.xml by keys of rosdep's, or in README.

rosdep itself needs a network; the keys it resolves are kept in rosdep_keys.txt.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
# What a key of rosdep installs, by its name on PyPI.
PROVIDED = {
    "python3-numpy": "numpy", "python3-scipy": "scipy", "python3-yaml": "pyyaml", "python3-trimesh-pip": "trimesh",
    "python3-matplotlib": "matplotlib", "python3-tqdm": "tqdm", "python3-pil": "pillow", "python3-numba": "numba",
    "python3-rosbags-pip": "rosbags", "python3-pytest": "pytest", "python3-hypothesis": "hypothesis",
    "python3-skimage": "scikit-image",
}  # fmt: skip
# A module whose ROS package has another name: `tf2_ros` holds the C++ library alone.
PACKAGE_OF = {"tf2_ros": "tf2_ros_py"}
ROS_IMPORT = re.compile(r"rclpy|launch|launch_ros|tf2_ros|ament_index_python|std_srvs|\w+_msgs(_py)?|\w+_interfaces")


def keys() -> set[str]:
    manifest = ElementTree.parse(ROOT / "package.xml").getroot()
    return {node.text or "" for node in manifest if node.tag.endswith("depend")}


def requirements() -> dict[str, list[str]]:
    """Requirements of setup.py by list: "" for those always needed, the extras by name."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    wheels = next(n for n in ast.walk(tree) if isinstance(n, ast.Assign) and n.targets[0].id == "ROS_REQUIREMENTS")  # type: ignore[attr-defined]
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "setup")
    given = {k.arg: k.value for k in call.keywords}
    extras = given["extras_require"]
    assert isinstance(extras, ast.Dict)
    named = {k.value: v for k, v in zip(extras.keys, extras.values)}  # type: ignore[union-attr]
    named["ros"] = wheels.value
    return {"": texts_in(given["install_requires"]), **{str(name): texts_in(node) for name, node in named.items()}}


def texts_in(node: ast.AST) -> list[str]:
    """Texts of a list; of f-strings what stands before the first hole."""
    assert isinstance(node, ast.List)
    firsts = [item.values[0] if isinstance(item, ast.JoinedStr) else item for item in node.elts]
    return [str(first.value) for first in firsts]  # type: ignore[attr-defined]


def pip_line() -> list[str]:
    """What README tells a ROS user to install with pip."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    pip install ('numba.*)$", readme, re.MULTILINE)
    return shlex.split(line, comments=True)


def resolved() -> dict[str, str]:
    """Keys that rosdep resolves, with the version that Ubuntu has; "" for packages of ROS."""
    lines = (ROOT / "test" / "rosdep_keys.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows}


def test_rosdep_resolves_every_key() -> None:
    assert keys() - set(resolved()) == set(), "no rule of rosdep's; see rosdep_keys.txt"


def test_ubuntu_has_what_a_key_names_and_it_is_new_enough() -> None:
    """`rosdep install` fails for a package that a rule names and Ubuntu has not (python3-numba); what it installs must
    be within the bounds of setup.py, or come by the pip line."""
    versions = resolved()
    assert {key for key in keys() if versions[key] == "none"} == set()
    bounds = {made.name: made.specifier for made in map(Requirement, requirements()[""])}
    for key in keys() & set(PROVIDED):
        name, version = PROVIDED[key], versions[key]
        assert version, f"say in rosdep_keys.txt which version of {key} there is"
        if version != "pip" and name in bounds:
            assert bounds[name].contains(version), f"{key} is {version}, setup.py asks for {name}{bounds[name]}"


def test_rosdep_may_use_pip_where_readme_has_it_do_so() -> None:
    """Ubuntu 24.04 keeps pip off the system's packages: rosdep 0.27 then installs nothing more, and ends with 1."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if any(version == "pip" for key, version in resolved().items() if key in keys()):
        assert readme.index("export PIP_BREAK_SYSTEM_PACKAGES=1") < readme.index("rosdep install")


def test_every_ros_package_that_is_imported_is_declared() -> None:
    found = set()
    for path in [*(ROOT / "soft_estimator" / "ros").rglob("*.py"), *(ROOT / "launch").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
    wanted = {PACKAGE_OF.get(name, name) for name in found if ROS_IMPORT.fullmatch(name)}
    assert {"rclpy", "rosgraph_msgs", "sensor_msgs"} <= wanted  # the search finds something
    assert wanted - keys() == set(), "declare it in package.xml"


def test_launch_files_bring_the_command_that_starts_them() -> None:
    """`launch` and `launch_ros` are libraries; `ros2 launch` is a package of its own."""
    assert "ros2launch" in keys() or not list((ROOT / "launch").glob("*.launch.py"))


def test_every_library_comes_by_a_key_or_by_the_pip_line() -> None:
    """What setup.py always needs is installed by rosdep or by README's pip line, with the same bounds."""
    needed = requirements()[""]
    by_key = {PROVIDED[key] for key in keys() if key.startswith("python3-")}
    by_pip = {re.split(r"[<>=]", text)[0]: text for text in pip_line()}
    for text in needed:
        name = re.split(r"[<>=]", text)[0]
        assert name in by_key or name in by_pip, f"{name} has neither a rosdep key nor a place in README's pip line"
        assert by_pip.get(name, text) == text, "README and setup.py name other versions"
    assert set(by_pip) <= {re.split(r"[<>=]", text)[0] for text in needed}


@pytest.mark.parametrize("extra", sorted(requirements()))
def test_every_requirement_has_an_upper_bound(extra: str) -> None:
    """A release of tomorrow is tried before it is allowed."""
    for text in requirements()[extra]:
        version = text.split(";")[0]
        assert re.search(r"<\d|==\d", version), f"{text} has no upper bound"
        assert re.search(r">=\d|==\d", version), f"{text} has no lower bound"


def test_the_build_has_an_upper_bound() -> None:
    (line,) = re.findall(r"^requires = (.*)$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert all("<" in text for text in ast.literal_eval(line))
