"""What a released body does, in the words of a laboratory: frequency, damping ratio, slow tail, final place.

    x(t) = x_end + b e^{-t/T} + e^{-ζ ω t} (c cos ω_d t + s sin ω_d t),   ω_d = ω √(1 - ζ²)

fitted to one coordinate over time by least squares. Measured and simulated motions go through the same function, so
that what it makes of a motion is the same on both sides of a comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares


@dataclass(frozen=True)
class Oscillation:
    """frequency_hz: ω_d/2π. damping_ratio: ζ. tail_m: b, what was still to come at the first time. tail_s: T.

    residual_m: root mean square of what the formula leaves.
    """

    frequency_hz: float
    damping_ratio: float
    tail_m: float
    tail_s: float
    residual_m: float


def describe_oscillation(time_s: np.ndarray, x_m: np.ndarray) -> Oscillation:
    """Of evenly spaced places x (T,) at times (T,) that hold at least two periods."""
    t, scale = time_s - time_s[0], float(np.ptp(x_m)) or 1.0
    x = x_m / scale
    f = _strongest(t, x)

    def parts(p: np.ndarray) -> np.ndarray:
        """The linear parts' shapes at (ω_d, ζ, T): constant, tail, cosine, sine; (T, 4)."""
        decay = np.exp(-p[1] / np.sqrt(1.0 - p[1] ** 2) * p[0] * t)
        return np.stack(
            [np.ones_like(t), np.exp(-t / p[2]), decay * np.cos(p[0] * t), decay * np.sin(p[0] * t)], axis=1
        )

    def off(p: np.ndarray) -> np.ndarray:
        shapes = parts(p)
        return np.asarray(shapes @ np.linalg.lstsq(shapes, x, rcond=None)[0] - x)

    longest = float(t[-1])
    start, low, high = (
        [2 * np.pi * f, 0.05, 0.2 * longest],
        [np.pi * f, 1e-4, 1.0 / f],
        [4 * np.pi * f, 0.9, 10 * longest],
    )
    start[2] = float(np.clip(start[2], 1.1 * low[2], 0.9 * high[2]))
    found = least_squares(off, start, bounds=(low, high), x_scale=[1.0, 0.01, 0.1])
    linear = np.linalg.lstsq(parts(found.x), x, rcond=None)[0]
    rms = float(np.sqrt(np.mean(found.fun**2)))
    return Oscillation(
        float(found.x[0] / (2 * np.pi)), float(found.x[1]), scale * float(linear[1]), float(found.x[2]), scale * rms
    )


def _strongest(t: np.ndarray, x: np.ndarray) -> float:
    """The frequency [Hz] of the highest peak of the spectrum, in a window and padded to eight times the length."""
    steps = np.diff(t)
    if len(t) < 16 or np.ptp(steps) > 1e-3 * steps.mean():
        raise ValueError(f"an oscillation needs at least 16 evenly spaced times, and {len(t)} are given")
    slow = np.polynomial.Polynomial.fit(t, x, 3)
    spectrum = np.abs(np.fft.rfft((x - slow(t)) * np.hanning(len(t)), 8 * len(t)))
    return float(np.fft.rfftfreq(8 * len(t), float(steps.mean()))[int(np.argmax(spectrum))])
