"""Loads the .cu files and launches their kernels; CuPy compiles each once for a precision and a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import precision
from soft_estimator.backends.layout import kernel_text

# What each kernel file needs before its own text. CuPy caches by source text and options and does not look into
# #include, so the parts are put together here.
_CELLS = ("common.cuh", "rotation.cuh", "elasticity.cuh", "contact.cuh")
PARTS = {
    "rotation": ("common.cuh", "rotation.cuh"),
    "elasticity": ("common.cuh", "elasticity.cuh"),
    "neo_hookean": ("common.cuh",),
    "contact": ("common.cuh", "contact.cuh"),
    "linear": ("common.cuh",),
    "conjugate_gradient_resident": (
        "common.cuh",
        "conjugate_gradient.cuh",
        "coarse.cuh",
        "pressures.cuh",
        "resident.cuh",
    ),
    "conjugate_gradient_streamed": ("common.cuh", "conjugate_gradient.cuh", "streamed.cuh"),
    "conjugate_gradient_streamed_coarse": ("common.cuh", "conjugate_gradient.cuh", "coarse.cuh", "streamed.cuh"),
    "conjugate_gradient_pressure": ("common.cuh", "conjugate_gradient.cuh", "streamed.cuh", "pressures.cuh"),
    "pressure": (*_CELLS, "step.cuh"),
    "step": (*_CELLS, "step.cuh"),
    "conjugate_gradient_columns": (
        "common.cuh",
        "conjugate_gradient.cuh",
        "coarse.cuh",
        "columns.cuh",
        "columns_solve.cuh",
    ),
    "coarse": ("common.cuh",),
    "coarse_inverse": ("common.cuh", "conjugate_gradient.cuh"),
    "conjugate_gradient_cells": (*_CELLS, "step.cuh", "conjugate_gradient.cuh", "cell_sums.cuh", "cells.cuh"),
    "lanes": ("common.cuh",),
    "obstacles": (*_CELLS, "step.cuh", "obstacles.cuh"),
    "obstacles_adjoint": (*_CELLS, "step.cuh", "obstacles.cuh"),
    "obstacles_tangent": (*_CELLS, "step.cuh", "obstacles.cuh"),
    "step_adjoint": (*_CELLS, "step.cuh"),
    "step_tangent": (*_CELLS, "step.cuh"),
    "guard": (*_CELLS, "step.cuh", "obstacles.cuh"),
    "points": ("common.cuh", "points.cuh"),
}
REAL_NAMES = {"float32": "float", "float64": "double"}
_THREADS = 128  # of a block, as in common.cuh, but for kernels that are launched with a number of their own


def source(name: str) -> str:
    """The text of a kernel file as it is compiled."""
    folder = files("soft_estimator.backends.cuda")
    parts = [(folder / part).read_text(encoding="utf-8") for part in (*PARTS[name], f"{name}.cu")]
    return "\n".join([kernel_text(), *parts] if "elasticity.cuh" in PARTS[name] else parts)


def options(real: str) -> tuple[str, ...]:
    """Compiler options for a precision, float32 or float64."""
    return ("-std=c++17", f"-DREAL={REAL_NAMES[real]}")


@cache
def kernel(name: str, function: str, real: str, *defines: str) -> cupy.RawKernel:
    """A kernel of `name`.cu for float32 or float64, compiled or taken from CuPy's cache; defines: such as "SIZE=3"."""
    ahead = _started.get((name, real, *defines))
    if ahead is not None:
        ahead.result()
    return _module(name, real, *defines).get_function(function)


_started: dict[tuple[str, ...], Future[None]] = {}


def compile_ahead(*modules: tuple[str, ...]) -> None:
    """Start compiling what will be needed, each (name, precision, *defines) on a thread of its own; does not wait.

    One after the other, the kernels of an estimation take more than 20 s to compile.
    """
    for module in modules:
        if module not in _started:
            _started[module] = _threads().submit(_compile, cupy.cuda.Device().id, module)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 2, "compile")


def _compile(device: int, module: tuple[str, ...]) -> None:
    with cupy.cuda.Device(device):
        _module(*module).compile()


@cache
def _module(name: str, real: str, *defines: str) -> cupy.RawModule:
    # Blocks of a persistent kernel wait for each other: a cooperative launch makes sure that all run at once.
    return cupy.RawModule(
        code=source(name),
        options=(*options(real), *(f"-D{define}" for define in defines)),
        backend="nvrtc",
        enable_cooperative_groups=name.startswith("conjugate") or name == "coarse_inverse",
    )


@cache
def _real_name(real: np.dtype) -> str:
    """NumPy spells a type's name out anew each time it is asked."""
    return real.name


# As the kernels declare them: int as 32 bits, float as double, None as a null pointer; arrays as they are.
_AS_DECLARED: dict[type, Callable[[Any], object]] = {
    type(None): lambda _: np.uint64(0),
    bool: np.int32,
    int: np.int32,
    float: np.float64,
}


def launch(
    name: str, function: str, real: npt.DTypeLike, threads: int, *arguments: object, grid: tuple[int, ...] = ()
) -> None:
    """Run a kernel with at least so many threads along x; grid: the further dimensions."""
    if threads <= 0:
        return
    blocks = (threads + _THREADS - 1) // _THREADS
    given = tuple([convert(x) if (convert := _AS_DECLARED.get(type(x))) else x for x in arguments])
    kernel(name, function, _real_name(precision(real)))((blocks, *grid), (_THREADS,), given)


def allow_shared_bytes(function: cupy.RawKernel, count: int) -> None:
    """Let a kernel take so much shared memory for a block; never less than another of its users asked for."""
    if count > function.max_dynamic_shared_size_bytes:
        function.max_dynamic_shared_size_bytes = count
