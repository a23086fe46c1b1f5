"""Which backend computes: the one asked for, or the best one there is."""

from __future__ import annotations

import importlib

import numpy.typing as npt

from soft_estimator.backends.interface import Backend

BACKENDS = ("auto", "cpu", "cuda", "reference")
WHERE_TO_COMPUTE = "where to compute; reference is plain NumPy, slow, to check the others by"  # for people
PRECISIONS = ("float32", "float64")


class BackendError(ValueError):
    """A backend that was asked for and cannot be had; one line."""


class BackendUnavailable(RuntimeError):
    """Raised by a backend's loader where its device or its library is missing; the message is the reason."""


def choose_backend(name: str = "auto", dtype: npt.DTypeLike = "float64") -> Backend:
    """The backend of that name; "auto" takes CUDA where it works and the CPU elsewhere.

    Args:
        name: auto, cpu, cuda, or reference (plain NumPy: slow, the oracle of the others).
        dtype: precision of the simulation, which every backend must know.
    """
    if name not in BACKENDS:
        raise BackendError(f"backend '{name}' does not exist; use one of {', '.join(BACKENDS)}")
    precision = getattr(dtype, "__name__", str(dtype))
    if precision not in PRECISIONS:
        raise BackendError(f"precision '{precision}' is not supported; use one of {', '.join(PRECISIONS)}")
    if name == "reference":
        from soft_estimator.backends.reference import ReferenceBackend

        return ReferenceBackend()
    if name != "cpu":
        try:
            return _load_cuda()
        except BackendUnavailable as error:
            if name == "cuda":
                raise BackendError(f"backend 'cuda' cannot be used: {error}; use --backend cpu or auto") from None
    from soft_estimator.backends.cpu import CpuBackend

    return CpuBackend()


def _load_cuda() -> Backend:
    try:
        package = importlib.import_module("soft_estimator.backends.cuda")
        return package.load_cuda_backend()
    except ModuleNotFoundError as error:
        if error.name == "soft_estimator.backends.cuda":
            raise BackendUnavailable("this version of soft_estimator does not have it yet") from None
        raise BackendUnavailable(f"the Python package '{error.name}' is not installed") from None
    except Exception as error:  # a driver or its library may fail in any way; the reason is passed on
        raise BackendUnavailable(" ".join(str(error).split()) or type(error).__name__) from error
