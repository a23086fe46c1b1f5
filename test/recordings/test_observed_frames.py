"""Recorded frames: what is read comes back as it was, what cannot be used is set aside with its reason."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.recordings.observed_frames import check_any_left, read_frames, rising, without_strays, write_frames
from soft_estimator.recordings.point_files import CompressedPcd, read_point_file

POINTS = np.random.default_rng(0).normal(size=(20, 3))


def noise_of(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full(len(points), 0.002), np.full(len(points), 0.25)


def folder_with(folder: Path, stamps: str, **arrays: np.ndarray) -> Path:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "stamps.csv").write_text(stamps)
    return folder


def reasons(made: object) -> dict[str, str]:
    return {item.file: item.reason for item in made.set_aside}  # type: ignore[attr-defined]


def test_written_frames_come_back_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frames = [
        ObservedFrame(0.1 * k + 1 / 3, rng.normal(size=(5 + k, 3)), rng.random(5 + k) + 0.1, rng.random(5 + k))
        for k in range(3)
    ]
    write_frames(tmp_path / "frames", frames)
    read = read_frames(tmp_path / "frames", noise_of)
    assert read.set_aside == () and read.nan_points == 0 and read.points == 18
    for a, b in zip(frames, read.frames, strict=True):
        assert a.time_s == b.time_s
        for name in ("points_m", "std_m", "curvature_share"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_noise_comes_from_the_file_or_from_the_sensor(tmp_path: Path) -> None:
    std = np.linspace(0.001, 0.003, 20)
    std[3] = np.nan  # a point whose deviation is not known
    folder_with(tmp_path, "a.npy,0.1\nb.npy,0.2\n", a=POINTS, b=np.column_stack([POINTS, std]))
    bare, full = read_frames(tmp_path, noise_of).frames
    np.testing.assert_array_equal(bare.std_m, 0.002)
    np.testing.assert_array_equal(full.std_m, np.where(np.isnan(std), 0.002, std))


def pcd(data: str, points: np.ndarray) -> bytes:
    kind = "4 4 4 4"
    head = f"# .PCD\nVERSION 0.7\nFIELDS x y z std_m\nSIZE {kind}\nTYPE F F F F\nCOUNT 1 1 1 1\nWIDTH {len(points)}\n"
    head += f"HEIGHT 1\nPOINTS {len(points)}\nDATA {data}\n"
    rows = np.column_stack([points, np.full(len(points), 0.004)]).astype("<f4")
    text = "\n".join(" ".join(f"{x:.9g}" for x in row) for row in rows)
    return head.encode() + (text.encode() if data == "ascii" else rows.tobytes())


def test_ply_and_pcd_hold_the_same_points(tmp_path: Path) -> None:
    # All three store float32: 1.2e-7 of numbers up to 3.
    head = f"ply\nformat ascii 1.0\nelement vertex {len(POINTS)}\n" + "".join(
        f"property float {n}\n" for n in ("x", "y", "z", "std_m")
    )
    rows = "".join(" ".join(f"{x:.9g}" for x in (*p, 0.004)) + "\n" for p in POINTS)
    (tmp_path / "a.ply").write_text(head + "end_header\n" + rows)
    (tmp_path / "b.pcd").write_bytes(pcd("ascii", POINTS))
    (tmp_path / "c.pcd").write_bytes(pcd("binary", POINTS))
    folder_with(tmp_path, "file,seconds\na.ply,0\nb.pcd,0.5\nc.pcd,1\n")
    read = read_frames(tmp_path, noise_of)
    assert len(read.frames) == 3
    for frame in read.frames:
        np.testing.assert_allclose(frame.points_m, POINTS, atol=5e-7)
        np.testing.assert_allclose(frame.std_m, 0.004, rtol=1e-6)


def test_what_cannot_be_used_is_set_aside_and_counted(tmp_path: Path) -> None:
    holed = POINTS.copy()
    holed[:4, 1] = np.nan
    (tmp_path / "torn.npy").write_bytes(b"not an array")
    folder_with(
        tmp_path,
        "name,seconds\ngood.npy,0.1\nempty.npy,0.2\nnan.npy,0.3\nlate.npy,9\nholed.npy,0.4\ngone.npy,0.5\n"
        "torn.npy,0.6\nearly.npy,-1\nwordy.npy,soon\nagain.npy,0.4\nend.npy,0.7\n",
        good=POINTS,
        empty=np.zeros((0, 3)),
        nan=np.full((5, 3), np.nan),
        holed=holed,
        late=POINTS,
        early=POINTS,
        wordy=POINTS,
        again=POINTS,
        end=POINTS,
    )
    read = read_frames(tmp_path, noise_of, duration_s=1.0)
    assert read.names == ("good.npy", "holed.npy", "end.npy")
    assert read.nan_points == 4 and len(read.frames[1].points_m) == 16
    assert reasons(read) == {
        "empty.npy": "without points",
        "nan.npy": "with nothing but NaN",
        "late.npy": "stamped out of order",
        "gone.npy": "missing from the folder",
        "torn.npy": "unreadable",
        "early.npy": "stamped out of order",
        "wordy.npy": "without a stamp",
        "again.npy": "stamped out of order",
    }


def test_frames_outside_the_watched_time_are_set_aside(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.npy,-0.5\nb.npy,0.5\nc.npy,1.5\n", a=POINTS, b=POINTS, c=POINTS)
    read = read_frames(tmp_path, noise_of, duration_s=1.0)
    assert reasons(read) == {"a.npy": "before the scene's time 0", "c.npy": "after the watched 1 s"}


def test_points_far_from_the_body_are_set_aside(tmp_path: Path) -> None:
    mixed = np.vstack([0.1 * POINTS, [[10.0, 0, 0]]])
    folder_with(tmp_path, "a.npy,0\nb.npy,1\n", a=POINTS + 10.0, b=mixed)
    read = without_strays(read_frames(tmp_path, noise_of), [np.zeros((1, 3))] * 2, 1.0)
    assert read.names == ("b.npy",) and read.stray_points == 1 and len(read.frames[0].points_m) == 20
    assert reasons(read) == {"a.npy": "with every point over 1 m from the body"}


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (1000 * POINTS, "as points in millimetres do; write metres"),
        (POINTS + 50.0, "comes within 8... m of where the body"),
    ],
)
def test_why_every_point_is_far_is_said(points: np.ndarray, expected: str, tmp_path: Path) -> None:
    folder_with(tmp_path, "a.npy,0\n", a=points)
    made = without_strays(read_frames(tmp_path, noise_of), [POINTS], 1.0)
    with pytest.raises(
        ValueError, match=rf"\(1 with every point over 1 m from the body\); the first: a.npy .*{expected}"
    ):
        check_any_left(made, tmp_path)


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        ("a.npy,0\n", r"has no usable frame \(1 with nothing but NaN\)"),
        ("file,seconds\n", "names no frames"),
        ("", "names no frames"),
    ],
)
def test_nothing_left_is_an_error(stamps: str, expected: str, tmp_path: Path) -> None:
    folder_with(tmp_path, stamps, a=np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match=expected):
        read_frames(tmp_path, noise_of)


@pytest.mark.parametrize(
    ("camera", "expected"),
    [
        (None, r"\(1 unreadable\); the first: .*is a depth image of shape \(30, 40\) and needs camera\.json beside it"),
        ('{"width": 40, "height": 30}', r"\(1 unreadable\); the first: .*camera\.json lacks 'fx'; it needs width"),
    ],
)
def test_why_no_file_could_be_read_is_said(camera: str | None, expected: str, tmp_path: Path) -> None:
    folder_with(tmp_path, "a.npy,0\n", a=np.full((30, 40), 500, dtype=np.uint16))
    if camera is not None:
        (tmp_path / "camera.json").write_text(camera)
    with pytest.raises(ValueError, match=expected):
        read_frames(tmp_path, noise_of)


def test_a_colour_picture_is_no_cloud(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.npy,0\n", a=np.zeros((30, 40, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"a\.npy is a colour picture of the shape \(30, 40, 3\); give points"):
        read_frames(tmp_path, noise_of)


def test_a_budget_keeps_points_as_they_are(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.npy,0\n", a=POINTS)
    kept = read_frames(tmp_path, noise_of, budget=7, seed=3).frames[0].points_m
    assert len(kept) == 7 and all((row == POINTS).all(axis=1).any() for row in kept)


def test_compressed_pcd_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.pcd").write_bytes(b"FIELDS x y z\nDATA binary_compressed\n")
    with pytest.raises(CompressedPcd, match="DATA binary or ascii"):
        read_point_file(tmp_path / "a.pcd")


@given(st.lists(st.integers(0, 8), max_size=7))
def test_the_longest_rising_selection(values: list[int]) -> None:
    # Against all 2^n selections.
    kept = sorted(rising(values))
    chosen = [values[i] for i in kept]
    assert all(a < b for a, b in itertools.pairwise(chosen))
    best = 0
    for mask in range(1 << len(values)):
        some = [v for i, v in enumerate(values) if mask >> i & 1]
        if all(a < b for a, b in itertools.pairwise(some)):
            best = max(best, len(some))
    assert len(kept) == best
