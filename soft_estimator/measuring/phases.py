"""What happens in a recording: where the object lies still on the table, and where it is dropped onto it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from soft_estimator.measuring.sightings import Sighting

GRAVITY_M_S2 = 9.81
_STILL_M = 0.0025  # an object that lies still keeps its middle within this, noise and lost pixels included
_LEAST_STILL = 5  # frames
_ON_TABLE_M = 0.02  # the lower edge of what is seen of an object on the table lies below this, or half its height
AIRBORNE_M = 0.008  # above where its lower edge lies at rest: it flies, or is held
_BOUNCE_M = 0.05  # a turn upwards at most this far above the table is a bounce: 1.5 m/s for one frame at 30 Hz
TOGETHER_S = 0.15  # frames farther apart do not belong to one motion
_FALL_RMS_M = 0.002  # how well heights must follow a free fall: three at 30 Hz with a steady speed are off by 2.6 mm
_LEAST_FALL = 3  # frames that can show an acceleration
_LEAST_SPEED_M_S = 0.5  # in the last frame in the air: slower is no drop but a placing
_SURE_SPEED_M_S = 0.9  # at the touch: faster than a hand places things, and two frames suffice
_TWO_FRAMES_S = 0.056  # apart: through two heights goes any fall, and farther apart even one that began at rest
# Upwards, as a fall begins: what is let go has none. A frame of 15 ms before the release lies 1 mm off a parabola that
# begins upwards with this; one of 33 ms before it, still within the 2 mm above with the others, lies 5 mm off.
_UPWARD_M_S = 0.15
_LEAP_M_S = 0.5  # speeds from one frame to the next are this sure
# Of a drop, looked at after the first touch: two bounces. By the third a grid of some hundred cells is off by several
# deviations of the noise, however right its numbers: a box was, from 0.3 s on, and fitted 8 % too stiff.
_AFTER_S = 0.3
_LEAST_POKE = 3  # frames: fewer without the object alone are the camera's
_LONGEST_POKE_S = 10.0
_REST_FRAMES = 4  # a body that lay still for so many frames has told all it will


@dataclass(frozen=True)
class Drop:
    """A drop: numbers of its sightings, from free fall on, first to last; the first that touches; its speed [m/s]."""

    first: int
    touch: int
    last: int
    speed_m_s: float


@dataclass(frozen=True)
class Poke:
    """Something came to the object on the table and left it there: between which stamps [s], in how many frames."""

    first_s: float
    last_s: float
    frames: int

    def as_plain(self) -> dict[str, float]:
        """For JSON files."""
        return {"first_s": self.first_s, "last_s": self.last_s, "frames": self.frames}


def still_parts(sightings: list[Sighting]) -> list[list[int]]:
    """Numbers of the sightings of every part in which the object lies still on the table, in order of time."""
    parts: list[list[int]] = []
    run: list[int] = []
    for k, seen in enumerate(sightings):
        on_table = seen.low_m < max(_ON_TABLE_M, 0.5 * seen.high_m) and not seen.touched
        if run and on_table:
            before = sightings[run[-1]]
            apart = not 0 < seen.time_s - before.time_s <= TOGETHER_S
            middle = np.median([sightings[i].middle_m for i in run], axis=0)
            if apart or np.linalg.norm(seen.middle_m - middle) > _STILL_M:
                parts.append(run)
                run = []
        elif run:
            parts.append(run)
            run = []
        run = [*run, k] if on_table else []
    return [part for part in [*parts, run] if len(part) >= _LEAST_STILL]


def still_part(sightings: list[Sighting]) -> list[int]:
    """Numbers of the sightings in which the object lies still on the table: the longest run of them."""
    return max(still_parts(sightings), key=len, default=[])


def find_drops(sightings: list[Sighting], rest_low_m: float) -> list[Drop]:
    """The drops of a recording.

    Args:
        rest_low_m: height of the lower edge of what is seen of the object at rest [m].
    """
    drops: list[Drop] = []
    k, after, until_s = 1, 0, -np.inf  # when the last motion that was looked at ended
    while k < len(sightings):
        fall = _fall_before(sightings, k, after) if _touches(sightings, k, rest_low_m) else None
        if fall is None:
            k += 1
            continue
        last, rests = _end_of(sightings, k, _AFTER_S), _end_of(sightings, k, np.inf)
        if sightings[fall[0]].time_s - until_s > TOGETHER_S:
            first = _first_alone(sightings, fall[0], k)
            drops.append(Drop(first, k, last, _falling(sightings[first:k])[0]))
        # else it is the last one's next bounce, bent as it begins
        k = after = rests + 1
        until_s = sightings[rests].time_s
    return drops


def find_pokes(sightings: list[Sighting], rest_low_m: float) -> list[Poke]:
    """Where something touches the object that lies on the table, and goes again without having lifted it: a finger, a
    tool, a hand that straightens it. Frames without a sighting in between are ones in which it was not alone."""
    alone = [k for k, seen in enumerate(sightings) if not (seen.touched or seen.cut)]
    out = []
    for k, after in pairwise(alone):
        one, other = sightings[k], sightings[after]
        frames = other.index - one.index - 1
        between = sightings[k + 1 : after]
        on_table = all(seen.low_m < rest_low_m + AIRBORNE_M for seen in (one, *between, other))
        if frames >= _LEAST_POKE and on_table and 0 < other.time_s - one.time_s < _LONGEST_POKE_S:
            out.append(Poke(one.time_s, other.time_s, frames))
    return out


def _touches(sightings: list[Sighting], k: int, rest_low_m: float) -> bool:
    """Whether the object meets the table at a sighting: it comes down to it, or is on its way up again after it, for a
    stiff one bounces between two frames."""
    low, before = sightings[k].low_m, sightings[k - 1].low_m
    if low < rest_low_m + AIRBORNE_M <= before:
        return True
    after = sightings[k + 1].low_m if k + 1 < len(sightings) else low
    # The heights of what lies on the table have lowest ones, too, by noise; and the last frame before a touch may show
    # a body as low as one that lies.
    flew = max(seen.low_m for seen in sightings[max(0, k - 2) : k]) >= rest_low_m + AIRBORNE_M
    return flew and before > low > rest_low_m - AIRBORNE_M and after > low and low < rest_low_m + _BOUNCE_M


def _fall_before(sightings: list[Sighting], touch: int, after: int) -> tuple[int, float] | None:
    """The first sighting of the free fall that ends at a touch, and the speed before it [m/s]; None where it did not
    fall freely: then a hand placed it."""
    best = None
    for first in range(touch - 2, after - 1, -1):
        part = sightings[first:touch]
        times = np.array([seen.time_s for seen in part]) - part[-1].time_s
        if (np.diff(times) > TOGETHER_S).any() or (np.diff(times) <= 0).any() or any(seen.touched for seen in part):
            break
        speed, rms = _falling(part)
        if rms > _FALL_RMS_M or speed + GRAVITY_M_S2 * times[0] < -_UPWARD_M_S:
            break
        best = (first, speed)
    if best is None:
        return None
    if touch - best[0] >= _LEAST_FALL:
        return best if best[1] > _LEAST_SPEED_M_S else None
    to_touch = sightings[touch].time_s - sightings[touch - 1].time_s
    sure = best[1] + GRAVITY_M_S2 * to_touch > _SURE_SPEED_M_S and to_touch < _TWO_FRAMES_S
    return best if sure and not _leaps(sightings, best[0], best[1], after) else None


def _falling(part: list[Sighting]) -> tuple[float, float]:
    """Speed downwards [m/s] in the last of two or more sightings, were they of a free fall; and how far off one their
    heights are, rms [m]: z = z₀ + v t - ½ g t², z₀ and v fitted. Of the middle, which a turn of the body moves little.
    """
    times = np.array([seen.time_s for seen in part]) - part[-1].time_s
    height = np.array([0.5 * (seen.low_m + seen.high_m) for seen in part]) + 0.5 * GRAVITY_M_S2 * times**2
    basis = np.stack([np.ones_like(times), times], axis=1)
    fitted = np.linalg.lstsq(basis, height, rcond=None)[0]
    return -float(fitted[1]), float(np.sqrt(np.mean((height - basis @ fitted) ** 2)))


def _first_alone(sightings: list[Sighting], first: int, touch: int) -> int:
    """The sighting that a drop is looked at from: the first of those that show the object and nothing else, where there
    are two or more before the touch, from which its pose and speed are found. What is left of a hand that was cut off
    lies on the object, and pulls both off."""
    alone = touch
    while alone > first and not sightings[alone - 1].cut:
        alone -= 1
    return alone if touch - alone >= 2 else first


def _leaps(sightings: list[Sighting], first: int, speed_m_s: float, after: int) -> bool:
    """Whether an object that falls through two frames, the later one at a speed [m/s], would have had to begin with a
    leap: no fall gains more than g Δt from one frame to the next, and what seemed to move is another part of it."""
    if first - 1 < after or sightings[first].time_s - sightings[first - 1].time_s > TOGETHER_S:
        return False
    (t0, h0), (t1, h1), (t2, _) = ((s.time_s, 0.5 * (s.low_m + s.high_m)) for s in sightings[first - 1 : first + 2])
    before = (h0 - h1) / (t1 - t0)
    expected = speed_m_s - GRAVITY_M_S2 * (t2 - t1 + 0.5 * (t1 - t0))
    return before < expected - _LEAP_M_S


def _end_of(sightings: list[Sighting], touch: int, longest_s: float) -> int:
    """The last sighting of a motion that is looked at for so long after a touch [s]: before it rests, something touches
    it, or the recording has a gap."""
    last, resting = touch, 0
    for k in range(touch + 1, len(sightings)):
        seen, before = sightings[k], sightings[k - 1]
        apart = not 0 < seen.time_s - before.time_s <= TOGETHER_S
        if apart or seen.touched or seen.time_s - sightings[touch].time_s > longest_s:
            break
        resting = resting + 1 if np.linalg.norm(seen.middle_m - before.middle_m) < 0.5 * _STILL_M else 0
        last = k
        if resting >= _REST_FRAMES:
            break
    return last
