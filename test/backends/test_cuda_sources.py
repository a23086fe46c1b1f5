"""What can be checked of the CUDA backend where there is no GPU."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import soft_estimator.backends.cuda as package
from soft_estimator.backends import BackendError, BackendUnavailable, choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.backends.layout import kernel_text
from soft_estimator.backends.loops import CellLoops, ContactLoops, MatrixLoops, PointLoops
from soft_estimator.backends.neo_hookean_loops import NeoHookeanLoops

FOLDER = Path(package.__file__).parent
CHAPTERS = (CellLoops, NeoHookeanLoops, ContactLoops, MatrixLoops, PointLoops)
LOOPS = {name for chapter in CHAPTERS for name in vars(chapter) if not name.startswith("_")}


def parts() -> dict[str, tuple[str, ...]]:
    """The loader's lists of parts, taken from its text since importing it needs CuPy."""
    wanted = [n for n in ast.parse((FOLDER / "kernels.py").read_text()).body if isinstance(n, ast.Assign)]
    names: dict = {}
    for node in wanted[:2]:  # _CELLS and PARTS
        names[node.targets[0].id] = eval(ast.unparse(node.value), names)
    return names["PARTS"]


def test_every_kernel_file_is_known():
    assert set(parts()) == {p.stem for p in FOLDER.glob("*.cu")}
    assert {part for each in parts().values() for part in each} == {p.name for p in FOLDER.glob("*.cuh")}


REALS = ("float", "double")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The PTX of a kernel file in both precisions, each in a namespace of its own: most of the time nvcc reads CUDA's
    headers."""

    @cache
    def compiled(name):
        folder = tmp_path_factory.mktemp("kernel")
        texts = [(FOLDER / part).read_text() for part in (*parts()[name], f"{name}.cu")]
        text = "\n".join([kernel_text(), *texts] if "elasticity.cuh" in parts()[name] else texts)
        text = text.replace('extern "C" ', "")  # whose names no namespace keeps apart
        both = [f"#define REAL {real}\nnamespace of_{real} {{\n{text}\n}}\n#undef REAL\n" for real in REALS]
        (folder / "kernel.cu").write_text("".join(both))
        options = ["-std=c++17", "-arch=sm_80", "-Xcicc", "-O0"]
        command = ["nvcc", *options, "-ptx", "-o", folder / "out", folder / "kernel.cu"]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return text.count("__global__"), (folder / "out").read_text()

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.cu")))
def test_compiles(name, real, compiled):
    """nvcc takes every kernel file, for the oldest architecture that CUDA 13 builds for; as far as PTX and without
    optimising, which takes four times as long and finds no mistake."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    kernels, ptx = compiled(name)
    assert len(re.findall(rf"\.entry _ZN\d+of_{real}", ptx)) >= kernels > 0


def test_every_member_of_the_interface():
    """By the names in the class body, since importing it needs CuPy."""
    body = next(n for n in ast.parse((FOLDER / "backend.py").read_text()).body if isinstance(n, ast.ClassDef)).body
    names = {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets} | {
        n.name for n in body if isinstance(n, ast.FunctionDef)
    }
    assert {name for name in dir(Backend) if not name.startswith("_")} == names


def test_same_arguments_as_the_interface():
    """Each loop takes the interface's arguments in its order."""
    found = set()
    for text in ("loops", "neo_hookean", "linear", "points"):
        for node in ast.parse((FOLDER / f"{text}.py").read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in LOOPS:
                found.add(node.name)
                wanted = [p for p in inspect.signature(getattr(Backend, node.name)).parameters if p != "self"]
                assert [a.arg for a in node.args.args] == wanted, node.name
    assert found == LOOPS


def test_without_cupy(monkeypatch):
    """One line that names CuPy and the extra that brings it; `auto` takes the CPU instead."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable, match=r"^CuPy is not installed; install soft_estimator\[cuda13\]"):
        package.load_cuda_backend()
    assert choose_backend("auto").name == "cpu"
    with pytest.raises(BackendError, match=r"^backend 'cuda' cannot be used: CuPy is not installed.*$"):
        choose_backend("cuda")
