"""Open3D where it is needed, and the remedy where it cannot be imported: its wheels expect libraries of the system."""

from __future__ import annotations

from typing import Any

# System libraries that Open3D's wheels expect, and the Debian package that brings each.
SYSTEM_LIBRARIES = {
    "libusb": "libusb-1.0-0",
    "libgfortran": "libgfortran5",
    "libgomp": "libgomp1",
    "libGL.": "libgl1",
    "libEGL": "libegl1",
    "libX11": "libx11-6",
}


def open3d_remedy(reason: str) -> str:
    """The command that mends an import that failed for a reason."""
    package = next((package for library, package in SYSTEM_LIBRARIES.items() if library in reason), None)
    return f"apt install {package}" if package else "pip install 'soft_estimator[perception]'"


def import_open3d() -> Any:
    """Open3D, or an error that says how to get it."""
    try:
        import open3d
    except (ImportError, OSError) as error:  # a system library it links to may be missing
        reason = " ".join(str(error).split())
        raise ValueError(f"this needs Open3D ({reason}); run: {open3d_remedy(reason)}") from error
    return open3d
