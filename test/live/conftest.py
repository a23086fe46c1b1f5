"""The recordings of the small ball are shared with the tests of recordings."""

from __future__ import annotations

from ball_recordings import bag, scene, short_bag, short_scene

__all__ = ["bag", "scene", "short_bag", "short_scene"]
