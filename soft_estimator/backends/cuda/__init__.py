"""The CUDA backend: hot loops as CUDA C++ kernels through CuPy, the same bits on every run."""

from __future__ import annotations

from types import ModuleType

from soft_estimator.backends.choose import BackendUnavailable
from soft_estimator.backends.interface import Backend

_FEWEST_FREE_BYTES = 256 * 1024**2


def load_cuda_backend() -> Backend:
    """The backend, after making sure that CuPy, its CUDA libraries, a device and some memory are there.

    Raises:
        BackendUnavailable: with one line that says what is wrong and how to mend it.
    """
    try:
        import cupy
    except ImportError as error:
        if getattr(error, "name", None) in ("cupy", None) and not isinstance(error, ModuleNotFoundError):
            raise BackendUnavailable(f"CuPy cannot be loaded ({_line(error)}); {_INSTALL}") from None
        raise BackendUnavailable(f"CuPy is not installed; {_INSTALL}") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy reports a missing or too old driver as its own or the loader's error
        raise BackendUnavailable(_no_driver(cupy, error)) from None
    if count == 0:
        raise BackendUnavailable("no CUDA device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES")
    _try_device(cupy)
    from soft_estimator.backends.cuda.backend import CudaBackend

    return CudaBackend()


_INSTALL = "install soft_estimator[cuda13] or [cuda12], to match the CUDA version that nvidia-smi prints"


def _no_driver(cupy: ModuleType, error: Exception) -> str:
    text = _line(error)
    if "InsufficientDriver" in text:
        return f"the NVIDIA driver is missing or older than the CUDA of this CuPy wheel needs ({text}); {_INSTALL}"
    return f"no CUDA device can be reached ({text}); install the NVIDIA driver and check nvidia-smi"


def _try_device(cupy: ModuleType) -> None:
    """Allocate, compile and run something small, so that a wrong wheel shows here and not in the middle of a run."""
    try:
        free = cupy.cuda.runtime.memGetInfo()[0]
    except Exception as error:
        raise BackendUnavailable(f"the CUDA device does not answer ({_line(error)}); check nvidia-smi") from None
    if free < _FEWEST_FREE_BYTES:
        need = _FEWEST_FREE_BYTES // 1024**2
        raise BackendUnavailable(
            f"only {free // 1024**2} MiB of GPU memory are free and at least {need} are needed; end other GPU programs"
        )
    try:
        cupy.RawKernel('extern "C" __global__ void probe(int *out) { *out = 7; }', "probe")(
            (1,),
            (1,),
            (cupy.zeros(1, "i4"),),
        )
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:
        raise BackendUnavailable(
            f"this CuPy wheel and the CUDA on this machine do not fit together ({_line(error)}); {_INSTALL}"
        ) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
