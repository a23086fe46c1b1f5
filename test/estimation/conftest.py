from __future__ import annotations

from estimation_experiments import ball, torus

__all__ = ["ball", "torus"]
