"""What every command that opens a recording takes: which part of it, and where its camera stood."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soft_estimator.perception.settings import FinderSettings
    from soft_estimator.recordings.adjusted import Choice


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """The options about the recording and about finding the object in it."""
    group = parser.add_argument_group("the recording")
    group.add_argument("--topic", help="topic of the camera, if a bag has several")
    group.add_argument("--fixed-frame", metavar="FRAME", help="frame of a bag's transforms to work in")
    group.add_argument("--frames", metavar="A:B", type=_frames, default="", help="which frames: 20, 10:80 or 10:80:2")
    group.add_argument(
        "--sensor-pose", metavar="POSE", type=_pose, help="'x y z qx qy qz qw' of the camera, instead of its tf"
    )
    group.add_argument("--settings", metavar="FILE", type=Path, help="YAML file with finder settings")
    group.add_argument(
        "--crop", type=float, nargs=6, metavar=("X0", "Y0", "Z0", "X1", "Y1", "Z1"),
        help="only look in this box of the fixed frame [m]",
    )  # fmt: skip
    group.add_argument("--seed", type=float, nargs=3, metavar=("X", "Y", "Z"), help="a point on the object [m]")
    group.add_argument(
        "--up", metavar="AXIS", type=_direction, help="direction against gravity: x, y, z, -y or three numbers"
    )


def choice_of(args: argparse.Namespace) -> Choice:
    """The part of a recording that the options choose."""
    from soft_estimator.recordings.adjusted import Choice, frames_of

    return Choice(frames=frames_of(args.frames), sensor_pose=args.sensor_pose)


def finder_of(args: argparse.Namespace, start: FinderSettings | None = None) -> FinderSettings:
    """Finder settings: those given to start from or a file's, with the options put in."""
    from soft_estimator.perception.settings import BoxSettings, FinderSettings
    from soft_estimator.schema import load, read_yaml

    settings = start or FinderSettings()
    if args.settings is not None:
        settings = load(FinderSettings, read_yaml(args.settings) or {}, name="finder")
    if args.crop is not None:
        settings = replace(settings, crop=BoxSettings(low_m=tuple(args.crop[:3]), high_m=tuple(args.crop[3:])))
    if args.seed is not None:
        settings = replace(settings, track=replace(settings.track, seed_m=tuple(args.seed)))
    if args.up is not None:
        settings = replace(settings, plane=replace(settings.plane, expected_normal=args.up))
    return settings


def _frames(text: str) -> str:
    from soft_estimator.recordings.adjusted import frames_of

    try:
        frames_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _pose(text: str) -> tuple[float, ...]:
    numbers = _numbers(text)
    if len(numbers) != 7 or abs(sum(x * x for x in numbers[3:]) - 1.0) > 0.02:
        raise argparse.ArgumentTypeError(f"'{text}' is no pose; write 'x y z qx qy qz qw' with a unit quaternion")
    return tuple(numbers)


def _direction(text: str) -> tuple[float, float, float]:
    axes = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
    name = text.strip().lower().lstrip("+-")
    if name in axes:
        sign = -1.0 if text.strip().startswith("-") else 1.0
        x, y, z = (sign * a for a in axes[name])
        return (x, y, z)
    numbers = _numbers(text)
    if len(numbers) != 3 or not any(numbers):
        raise argparse.ArgumentTypeError(f"'{text}' is no direction; write x, y, z, -y or three numbers")
    return (numbers[0], numbers[1], numbers[2])


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        return []
