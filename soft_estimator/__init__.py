"""Stiffness, damping and contact plane of a soft object from depth-camera clouds.

    import soft_estimator as se
    se.simulate("bouncing_ball")                 # a motion
    se.estimate("swinging_torus")                # a posterior, from what its cameras would see
    se.measure("my_bag", mass="158 g")           # a posterior, from a recording of an object that is dropped

See `soft_estimator.api`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from soft_estimator.api import Quantity, Result, Simulated, estimate, measure, read_scene, simulate

__all__ = ["Quantity", "Result", "Simulated", "__version__", "estimate", "measure", "read_scene", "simulate"]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the program that imports it listens


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("soft_estimator")
    except PackageNotFoundError:
        return "0+unknown"  # run from a source tree that was never installed


def __getattr__(name: str) -> Any:
    """The names of `api`, imported when they are asked for."""
    if name == "__version__":
        return _version()
    if name in __all__:
        from soft_estimator import api

        return getattr(api, name)
    raise AttributeError(f"module 'soft_estimator' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
