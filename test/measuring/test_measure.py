"""`measure`: from a recording without transforms and a weight to a stiffness, without a file written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.cli import main
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.long_work import CTRL_C, TimeLimit, TimeUp
from soft_estimator.measuring.fit import fit_drops, scene_plain
from soft_estimator.measuring.looking import MeasureOptions, _turns, look_at
from soft_estimator.measuring.phases import find_drops, find_pokes, still_part, still_parts
from soft_estimator.measuring.sightings import Sighting
from soft_estimator.scene.scene import build_scene
from soft_estimator.schema import load


def sightings(heights_m: list[float], *, step_s: float = 1 / 30, x_m: float = 0.0) -> list[Sighting]:
    """An object 6 cm high whose lower edge is at these heights, 1 cm above the table at rest."""
    out = []
    for k, height in enumerate(heights_m):
        middle = np.array([x_m, 0.0, height + 0.03])
        out.append(
            Sighting(k, k * step_s, np.tile(middle, (30, 1)), np.full(30, 1e-3), np.ones(3), height + 0.01,
                     height + 0.07, middle, False)
        )  # fmt: skip
    return out


def fall(drop_m: float, frames: int = 40, keep: float = 0.6) -> list[float]:
    """Heights at 30 Hz of a body dropped from rest that bounces with restitution `keep`."""
    height, speed, out = drop_m, 0.0, []
    for _ in range(frames):
        out.append(height)
        for _ in range(100):
            speed -= 9.81 / 3000
            height += speed / 3000
            if height < 0:
                height, speed = -height, -keep * speed
    return out


def test_the_still_part_and_the_drop_are_found() -> None:
    """Ten still frames, then a fall from 12 cm: it lasts √(2h/g) = 156 ms, 4 frames at 30 Hz after the release, and
    ends at √(2gh) = 1.53 m/s; the speed at the last frame in the air is at most one frame's g/30 = 0.33 m/s less."""
    seen = sightings([0.0] * 10 + fall(0.12, 20))
    assert still_part(seen)[:10] == list(range(10))
    (drop,) = find_drops(seen, 0.01)
    assert drop.first == 10 and drop.touch == 15
    assert 1.53 - 0.33 - 0.05 < drop.speed_m_s < 1.53 + 0.05
    assert seen[drop.last].time_s - seen[drop.touch].time_s <= 0.31


def test_every_still_part_is_found() -> None:
    """Ten frames, seven after a hand came and moved it by 3 cm, and four, which are too few."""
    seen = sightings([0.0] * 10) + [replace(s, touched=True) for s in sightings([0.0] * 5)]
    seen += sightings([0.0] * 7, x_m=0.03) + sightings([0.0] * 4, x_m=0.06)
    seen = [replace(s, index=k, time_s=k / 30) for k, s in enumerate(seen)]
    assert still_parts(seen) == [list(range(10)), list(range(15, 22))]
    assert still_part(seen) == list(range(10))


def test_a_drop_begins_with_the_frames_that_show_the_object_alone() -> None:
    """Of the five frames in the air, a hand was cut off the first three, which left 4 mm of it above: two are left,
    enough for a pose and a speed, √(2gh) = 1.53 m/s less g times the 23 ms to the touch; with the others it would be
    2 % more. Where it was cut off the fourth, too, one frame is left, and the fall begins where it begins."""
    seen = sightings([0.0] * 10 + fall(0.12, 20))
    for cut, first in ((13, 13), (14, 10)):
        held = [replace(s, cut=True, high_m=s.high_m + 0.004) if s.index < cut else s for s in seen]
        (drop,) = find_drops(held, 0.01)
        assert (drop.first, drop.touch) == (first, 15)
        if cut == 13:
            assert drop.speed_m_s == pytest.approx(1.53 - 9.81 * 0.0233, rel=0.01)


def test_what_lies_on_the_table_does_not_fall_however_rarely_it_is_seen() -> None:
    """Two heights fit any parabola: at 7.5 Hz a body at rest could have been thrown up by 2 cm and come back between
    them, at g Δt / 2 = 0.65 m/s. Heights of a body at rest with 0.5 mm of noise hold no drop, at no rate."""
    rng = np.random.default_rng(3)
    for rate_hz in (5.0, 7.5, 15.0, 30.0):
        assert find_drops(sightings(list(5e-4 * rng.standard_normal(300)), step_s=1 / rate_hz), 0.01) == []
    # a finger before its lower part: for two frames its lower edge seems to be 12 mm higher
    hidden = sightings([0.0] * 5 + [0.012] * 2 + [0.0] * 5, step_s=1 / 7.5)
    assert find_drops(hidden, 0.01) == []


def test_a_finger_that_comes_and_goes_is_a_poke_and_no_drop() -> None:
    """Ten frames alone on the table; in five something is cut off it, in three it is not found; ten alone again. A hand
    that lifts it in between, or a gap in the recording without frames, is no poke."""
    seen = sightings([0.0] * 28)
    poked = [replace(s, cut=True) if 10 <= s.index < 15 else s for s in seen if not 15 <= s.index < 18]
    (poke,) = find_pokes(poked, 0.01)
    assert (poke.first_s, poke.last_s, poke.frames) == (pytest.approx(9 / 30), pytest.approx(18 / 30), 8)
    assert find_drops(poked, 0.01) == []
    lifted = [replace(s, low_m=0.05) if s.index == 12 else s for s in poked]
    assert find_pokes(lifted, 0.01) == []
    assert find_pokes(seen[:10] + [replace(s, time_s=s.time_s + 2.0) for s in seen[10:]], 0.01) == []
    assert _turns(poke, [poke.last_s + 0.2]) and _turns(poke, [9.0, poke.last_s])
    assert not _turns(poke, []) and not _turns(poke, [poke.last_s + 2.0, poke.first_s - 1.0])


def test_a_drop_whose_last_frame_in_the_air_is_as_low_as_one_that_lies_is_found() -> None:
    """A box seen twice in its fall, 0.85 m/s, the second time 4 mm above where it lies; then it touches, and leaves."""
    later = [replace(s, time_s=s.time_s + 2.0) for s in sightings([0.0325, 0.0043, -0.0005, 0.019, 0.027, 0.022])]
    (drop,) = find_drops(sightings([0.0] * 10) + later, 0.01)
    assert (drop.first, drop.touch) == (10, 12)


def test_a_fall_begins_when_the_hand_lets_go() -> None:
    """Held at 6 cm, let go with the fifth frame, √(2h/g) = 111 ms before it touches: a frame in which it was still held
    would fit a parabola that begins upwards within 2 mm, and would make the body faster than it is."""
    held = [replace(s, time_s=s.time_s + 2.0) for s in sightings([0.06] * 4 + fall(0.06, 12))]
    (drop,) = find_drops(sightings([0.0] * 10) + held, 0.01)
    assert drop.first == 14


def test_what_a_hand_places_is_no_drop() -> None:
    """Lowered at a steady 0.4 m/s: no free fall. Dropped from 2 mm: too slow to tell anything."""
    lowered = [0.12 - 0.4 / 30 * k for k in range(10)] + [0.0] * 10
    assert find_drops(sightings(lowered), 0.01) == []
    assert find_drops(sightings([0.002, 0.0] + [0.0] * 10), 0.01) == []


def test_later_bounces_are_no_drops_of_their_own() -> None:
    """A body that keeps 0.9 of its speed bounces for seconds after a fall from 15 cm: one drop is looked at, for 0.3 s
    after its touch. What comes after begins with a bounce, in the middle of which nobody knows how a body is bent."""
    seen = sightings([0.0] * 6 + fall(0.15, 60, keep=0.9))
    (drop,) = find_drops(seen, 0.01)
    assert drop.first == 6 and seen[drop.last].time_s - seen[drop.touch].time_s <= 0.31


def test_what_only_seems_to_leap_does_not_fall() -> None:
    """Lowered at 0.3 m/s by a hand whose points were part of it up to a frame, and are not any more in the next: its
    middle leaps down by 6 cm, 1.8 m/s at once, where a fall gains 0.33 m/s in a frame. Let go at the same height it is
    a drop: 1.8 m/s are 16 cm."""
    lowered = sightings([0.10 - 0.01 * k for k in range(7)])
    leaps = [*lowered, *sightings([-0.02, -0.021, -0.02])]
    seen = [replace(s, index=k, time_s=k / 30, low_m=max(s.low_m, 0.01)) for k, s in enumerate(leaps)]
    assert find_drops(seen, 0.01) == []
    assert len(find_drops(sightings([0.16] * 4 + fall(0.16, 20)), 0.01)) == 1


def test_an_object_that_moves_has_no_still_part() -> None:
    moving = [s for k in range(12) for s in sightings([0.0], x_m=0.004 * k)]
    seen = [Sighting(k, k / 30, *(getattr(s, n) for n in ("points_m", "std_m", "sensor_m", "low_m", "high_m",
                     "middle_m", "touched"))) for k, s in enumerate(moving)]  # fmt: skip
    assert still_part(seen) == []


@pytest.mark.slow
@pytest.mark.xdist_group("test/test_readme.py")  # which measures the same film
def test_what_cannot_be_measured_is_said(film: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", str(film), "--mass", "190 g", "--frames", "6"]) == 1
    # One line, beside those of the progress, which a slow machine prints.
    said = [line for line in capsys.readouterr().err.splitlines() if "following the object" not in line]
    assert len(said) == 1 and "no drop was found" in said[0] and "drop it from 5 to 20 cm" in said[0]
    assert main(["measure", str(film), "--mass", "190 g", "--frames", "8:"]) == 1
    assert "never lies still" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.xdist_group("test/test_readme.py")
def test_what_was_dropped_by_then_is_kept(film: Path) -> None:
    """Ctrl-C in the second drop, here the first once more, leaves what the first says; before that there is nothing.
    What a drop tells is none of this: it is looked at until the ball touches."""
    seen, mass_kg = look_at(film, MeasureOptions(cells=60)), 0.158
    plain = scene_plain("ball", seen.body, mass_kg, seen.cloud, seen.noise, seen.survey.rate_hz, None)
    scene = build_scene(load(SceneConfig, plain, "scene"), Path(), grid=seen.body.grid, detail=seen.body.detail)
    drop = replace(seen.drops[0], last=seen.drops[0].touch)
    given = (scene, seen.body, seen.survey.sightings, [drop, drop], CpuBackend())

    def press(what: str, done: int, total: int) -> None:
        if done > drop.last - drop.first + 1:
            raise KeyboardInterrupt

    fit = fit_drops(*given, press)
    assert fit.stopped == CTRL_C and len(fit.after_drops) == 1
    assert fit.notes[-1] == "not finished (Ctrl-C): 1 of 2 drops were worked out"
    with pytest.raises(TimeUp, match="are over"):
        fit_drops(*given, time=TimeLimit(1e-9))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mass", "158 m"], "does not measure kg"),
        (["--mass", "-3 g"], "is no mass"),
        (["--mass", "158"], "write '158 g'"),
        (["--mass", "1 kg", "--up", "w"], "is no direction"),
        (["--mass", "1 kg", "--sensor-pose", "1 2 3"], "is no pose"),
        (["--mass", "1 kg", "--frames", "a"], "no choice of frames"),
        (["--mass", "1 kg"], "nowhere does not exist"),
        ([], "--mass"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "nowhere", *words]) == 2
    assert said in capsys.readouterr().err
