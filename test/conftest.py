"""Shared by all tests: `gpu` tests are skipped where there is no CUDA device."""

from __future__ import annotations

import pytest


def _why_no_gpu() -> str:
    """The reason why CuPy cannot reach a device, empty when it can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        return "" if cupy.cuda.runtime.getDeviceCount() > 0 else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device ({error})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
