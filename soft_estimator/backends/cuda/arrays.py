"""Arrays as the kernels expect them: contiguous and of the declared type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.interface import Array


def precision(real: npt.DTypeLike) -> np.dtype:
    """A precision as a dtype. Written here once: the type checker takes two seconds for each call of `np.dtype`."""
    return np.dtype(real)


def real_of(array: Array) -> np.dtype:
    """The precision a loop runs in, that of its main array."""
    return np.dtype(array.dtype)


def typed(array: Array, dtype: npt.DTypeLike) -> cupy.ndarray:
    """The array itself where it has the type and is contiguous, else a copy."""
    return cupy.ascontiguousarray(array, dtype=dtype)


def near_power_of_two(largest: Array) -> cupy.ndarray:
    """Powers of two near positive numbers, which divide and multiply without rounding; 1 for all others."""
    return cupy.where(largest > 0, cupy.exp2(cupy.floor(cupy.log2(cupy.where(largest > 0, largest, 1.0)))), 1.0)


@contextmanager
def writing(out: cupy.ndarray, dtype: npt.DTypeLike) -> Iterator[cupy.ndarray]:
    """An array of the given type to write or add into, whose values end up in out."""
    inner = typed(out, dtype)
    yield inner
    if inner is not out and inner.data.ptr != out.data.ptr:
        out[...] = inner
