"""Verdicts on residuals whose cause is known, without a simulation: a plate of points with noise and what is added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.estimation.fitting.verdict import Evidence, FitVerdict, Limits, judge, patch_table
from soft_estimator.estimation.residuals.local_noise import neighbours_of

FRAMES, POINTS, STD = 8, 300, 1e-3
ALLOWANCE = 3e-4


def evidence(
    seed: int, stated_m: float = STD, noise_m: float = STD, add: object = None, scattered: float = 0.0
) -> Evidence:
    """Points of a plate of 10 cm in 12 patches; `add` gives what they are off by besides [m], by place and frame."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 0.1, (FRAMES * POINTS, 2))
    frame = np.repeat(np.arange(FRAMES), POINTS)
    off = noise_m * rng.normal(size=len(place))
    if callable(add):
        off = off + add(place, frame)
    stray = rng.uniform(size=len(off)) < scattered
    off = np.where(stray, rng.uniform(-0.05, 0.05, len(off)), off)
    patch = (place[:, 0] // 0.025).astype(int) * 3 + (place[:, 1] // 0.0334).astype(int)
    start = POINTS * frame
    neighbour = np.concatenate([neighbours_of(np.column_stack([place, off])[frame == k]) for k in range(FRAMES)])
    one = np.ones((len(off), 1)) / stated_m
    growing = one * frame[:, None]
    return Evidence(
        off / stated_m, np.full(len(off), stated_m), frame, patch, start + neighbour, 0.05 * np.arange(1, FRAMES + 1),
        np.zeros((len(off), 1)), {"pose": one, "start": growing}, ALLOWANCE,
    )  # fmt: skip


def test_medians_of_patches_are_those_of_their_points() -> None:
    """The table sorts once; group by group, np.median says the same, and groups of under six points are left out."""
    e = evidence(3)
    few = (e.frame == 2) & (e.patch == 4)
    patch = np.where(few & (np.cumsum(few) > 5), 5, e.patch)
    table = patch_table(Evidence(**{**vars(e), "patch": patch}))
    off = e.residual * e.std_m
    assert (2, 4) not in set(zip(table.frame, table.patch))
    assert len(table.z) == FRAMES * 12 - 1
    for k, p, z, count in zip(table.frame, table.patch, table.z, table.count):
        members = (e.frame == k) & (patch == p)
        assert count == members.sum()
        assert np.sign(z) == np.sign(np.median(off[members]))
    one = [abs(np.median(off[(e.frame == 0) & (patch == p)])) for p in range(12)]
    ratio = one / np.abs(table.z[:12]) / np.sqrt(1.57 / table.count[:12] + (ALLOWANCE / STD) ** 2)
    assert np.allclose(ratio, STD, rtol=0.2)  # the noise is that of neighbours, 300 points: 4 %


def test_clean_residuals_fit() -> None:
    """200 plates of pure noise, of half to twice the stated size: none is called wrong (0.0 % of false alarms)."""
    for seed in range(200):
        verdict = judge(evidence(seed, noise_m=STD * (0.5 + 1.5 * seed / 200)))
        assert verdict.fits and verdict.reason == "", (seed, verdict)


def test_a_few_strays_are_not_a_misfit() -> None:
    assert judge(evidence(1, scattered=0.04)).fits


@pytest.mark.parametrize(
    ("add", "cause"),
    [
        (lambda place, frame: 0.003, "pose"),
        (lambda place, frame: 0.001 * frame, "start"),
        (lambda place, frame: 0.003 * np.sin(60 * place[:, 0]) * np.cos(70 * place[:, 1]), "shape"),
        (lambda place, frame: np.where(frame >= 5, 0.004 * np.sin(60 * place[:, 0]), 0.0), "touched"),
        (lambda place, frame: np.where(frame < 2, 0.004 * np.sin(60 * place[:, 0]), 0.0), "start"),
    ],
)
def test_what_is_off_together_is_named(add: object, cause: str) -> None:
    for seed in range(5):
        verdict = judge(evidence(seed, add=add))
        assert not verdict.fits and verdict.cause == cause and "mm" in verdict.reason, verdict


def test_a_stated_noise_that_is_too_large_hides_nothing() -> None:
    """Patches off by 2 mm rms where the stated noise is 10 mm and the points' own is 1 mm."""
    wavy = lambda place, frame: 0.003 * np.sin(60 * place[:, 0])  # noqa: E731
    verdict = judge(evidence(0, stated_m=0.01, add=wavy))
    assert not verdict.fits and verdict.figures["scatter"] < 1 < Limits().patches < verdict.figures["patches"]


def test_what_a_finer_grid_changes_is_no_misfit() -> None:
    """Patches 3 mm off in waves along x from the sixth frame on, and a finer grid that changes them by as much in waves
    along y: nobody knows which of the two is right, z² is about one there. It excuses no frame that it does not change,
    nor points that are ten times as far off as it moves them."""
    late = lambda place, frame: np.where(frame >= 5, 0.003 * np.sin(60 * place[:, 0]), 0.0)  # noqa: E731
    far = lambda place, frame: late(place, frame) + np.where(frame >= 5, 0.03, 0.0)  # noqa: E731
    early = lambda place, frame: np.where(frame < 2, 0.003 * np.sin(60 * place[:, 0]), 0.0)  # noqa: E731
    for seed in range(5):
        rng = np.random.default_rng(seed)  # the places are the first that `evidence` draws
        place, frame = rng.uniform(0, 0.1, (FRAMES * POINTS, 2)), np.repeat(np.arange(FRAMES), POINTS)
        change = np.where(frame >= 5, 0.003 * np.sin(60 * place[:, 1]), 0.0)
        bare = evidence(seed, add=late)
        judged = judge(replace(bare, refined_m=change))
        assert not judge(bare).fits and judged.fits and judged.figures["frames"] < 2.0
        for add in (far, early):
            assert not judge(replace(evidence(seed, add=add), refined_m=change)).fits


def test_a_few_points_that_a_finer_grid_moves_far_excuse_no_others() -> None:
    """Patches 3 mm off in waves, and one point of each frame, beyond an edge, that a finer grid moves by 30 mm: it lies
    on a patch of its own, of too few points to be judged. A mean over thirteen patches would be 8 mm, of which nothing
    is off; this made a ball of another body's points, 3 mm off, that fitted."""
    wavy = lambda place, frame: 0.003 * np.sin(60 * place[:, 0])  # noqa: E731
    for seed in range(5):
        bare = evidence(seed, add=wavy)
        rim = np.diff(bare.frame, prepend=-1) > 0
        change = np.where(rim, 0.03, 1e-4)
        judged = judge(replace(bare, patch=np.where(rim, 12, bare.patch), refined_m=change))
        assert not judged.fits and judged.cause == judge(bare).cause


def test_scatter_without_a_pattern_is_noise() -> None:
    verdict = judge(evidence(0, noise_m=5 * STD))
    assert not verdict.fits and verdict.cause == "noise" and "noisier than stated" in verdict.reason


def test_the_verdict_is_plain() -> None:
    assert FitVerdict().as_plain() == {"fits": True, "reason": "", "cause": "", "figures": {}}
    plain = judge(evidence(0)).as_plain()
    assert set(plain["figures"]) == {"patches", "frames", "scatter", "far"}  # type: ignore[call-overload]
