"""Questions put to a fresh interpreter: a broken library may crash it, hang or print, and the doctor still answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MARK = "soft-estimator-probe:"

_HEAD = f"""
import json, sys
out = {{}}
def tell():
    print("{MARK}" + json.dumps(out), flush=True)
try:
"""
_TAIL = """
except ModuleNotFoundError as error:
    out["missing"] = error.name or str(error)
except BaseException as error:
    out["error"] = " ".join(f"{type(error).__name__}: {error}".split())
tell()
"""

VERSION = """
    import importlib
    module = importlib.import_module({name!r})
    out["version"] = str(getattr(module, "__version__", "") or "")
"""

NUMBA = """
    import numba
    from numba import njit
    out["version"] = numba.__version__
    out["threads"] = numba.config.NUMBA_NUM_THREADS
    @njit
    def double(x):
        return 2 * x
    out["works"] = double(21) == 42
"""

DRIVER = """
    import ctypes
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        library = None
    if library is not None:
        number = ctypes.c_int(0)
        out["cuda"] = number.value if library.cuDriverGetVersion(ctypes.byref(number)) else number.value
        out["init"] = library.cuInit(0)
        out["devices"] = number.value if out["init"] == 0 and library.cuDeviceGetCount(ctypes.byref(number)) == 0 else 0
"""

CUPY = """
    import cupy
    out["version"] = cupy.__version__
    runtime = cupy.cuda.runtime
    for key, ask in (("runtime", "runtimeGetVersion"), ("driver", "driverGetVersion")):
        try:
            out[key] = int(getattr(runtime, ask)())
        except Exception as error:
            out[key] = 0
    out["devices"] = int(runtime.getDeviceCount())
    numbers = cupy.arange(1000, dtype=cupy.float64)
    out["works"] = float((numbers * numbers).sum()) == 332833500.0
"""

BACKEND = """
    from soft_estimator.backends import choose_backend
    out["name"] = choose_backend("auto").name
"""

RCLPY = """
    import rclpy
    out["file"] = rclpy.__file__
    out["rmw"] = rclpy.get_rmw_implementation_identifier()
    from sensor_msgs.msg import PointCloud2
    from diagnostic_msgs.msg import DiagnosticArray
    from lifecycle_msgs.msg import State
"""


def ask(body: str, timeout_s: float = 60.0, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a probe; its answers, with `missing` (a module) or `error` (one line) where it failed."""
    return run_python(["-c", _HEAD + body + _TAIL], timeout_s, environment)


def run_python(
    arguments: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run an interpreter that prints its answers as JSON after MARK."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {timeout_s:.0f} s"}
    except OSError as error:
        return {"error": f"cannot start {sys.executable} ({error.strerror})"}
    answers = [line[len(MARK) :] for line in done.stdout.splitlines() if line.startswith(MARK)]
    if answers:
        return dict(json.loads(answers[-1]))
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode < 0:
        return {"error": f"the interpreter was killed by signal {-done.returncode} ({last})"}
    return {"error": last}
