"""Colours of pictures: a scale for numbers, one for how far points lie off a surface, and sRGB as light."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# dark violet over teal to yellow: lightness rises evenly, so the order survives in grey and for colour-blind readers
_STOPS = "440154 482475 414487 355f8d 2a788e 21918d 22a884 44bf70 7ad151 bddf26 fde725"
COLOUR_STOPS = np.array([list(bytes.fromhex(stop)) for stop in _STOPS.split()]) / 255.0
# Warm for outside, cold for inside; grey where nothing was seen.
CORAL = (0.91, 0.42, 0.30)
TEAL = (0.16, 0.56, 0.58)
NEUTRAL, UNSEEN = np.array((0.95, 0.95, 0.95)), np.array((0.60, 0.62, 0.66))


def colour_map(values: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    """sRGB colours, shape (n, 3), of scalars, shape (n,), from low (dark violet) to high (yellow); range by default."""
    scalar = np.asarray(values, dtype=np.float64)
    finite = scalar[np.isfinite(scalar)]
    low = low if low is not None else float(finite.min() if finite.size else 0.0)
    high = high if high is not None else float(finite.max() if finite.size else 1.0)
    place = np.nan_to_num(np.clip((scalar - low) / max(high - low, 1e-300), 0.0, 1.0))
    stops = np.linspace(0.0, 1.0, len(COLOUR_STOPS))
    return np.stack([np.interp(place, stops, COLOUR_STOPS[:, i]) for i in range(3)], axis=-1)


def to_linear(srgb: Sequence[float] | np.ndarray) -> np.ndarray:
    srgb = np.asarray(srgb, dtype=np.float64)
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def to_srgb(linear: np.ndarray) -> np.ndarray:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def residual_colours(residual_m: np.ndarray, full_m: float) -> np.ndarray:
    """Teal for points inside the surface, coral for points outside, grey where there are none; (V, 3) in 0..1."""
    share = np.clip(np.nan_to_num(residual_m) / full_m, -1.0, 1.0)[:, None]
    side = np.where(share > 0, np.array(CORAL), np.array(TEAL))
    colour = (1 - np.abs(share)) * NEUTRAL + np.abs(share) * side
    return np.where(np.isfinite(residual_m)[:, None], colour, UNSEEN)
