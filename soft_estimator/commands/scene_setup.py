"""What the commands that work on a scene share: arguments, checks before the work starts, and the scene made ready."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import ProgressBar, stderr_line

if TYPE_CHECKING:
    from soft_estimator.backends.interface import Backend
    from soft_estimator.config import SceneConfig
    from soft_estimator.scene.scene import Scene


def add_scene(parser: argparse.ArgumentParser) -> None:
    """The argument SCENE."""
    parser.add_argument("scene", metavar="SCENE", help="a scene file, or the name of a built-in scene")


def add_out(parser: argparse.ArgumentParser) -> None:
    """The folder for results."""
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the results; made if needed")


def add_computing(parser: argparse.ArgumentParser) -> None:
    """Where to compute, and where the scene's files are."""
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    parser.add_argument("--data", metavar="DIR", type=Path, help="folder with the mesh and .sdf files a scene names")


def add_progress(parser: argparse.ArgumentParser) -> None:
    """The progress bar where nobody watches."""
    parser.add_argument("--progress", action="store_true", help="show the progress bar even outside a terminal")


def check_data(args: argparse.Namespace) -> None:
    """Refuse a folder of data that is none."""
    if args.data is not None and not args.data.is_dir():
        raise ValueError(f"--data {args.data} is not a folder; give the one that holds the scene's files")


def check_out(args: argparse.Namespace) -> None:
    """Refuse a folder for results that is a file."""
    if args.out.exists() and not args.out.is_dir():
        raise ValueError(f"--out {args.out} is a file; give a folder")


def read_scene_argument(args: argparse.Namespace) -> tuple[SceneConfig, Path]:
    """The scene's configuration, and the folder its files are looked for in."""
    from soft_estimator.scene.files import read_scene

    found = read_scene(args.scene)
    check_data(args)
    return found


def make_ready(
    args: argparse.Namespace, config: SceneConfig, folder: Path, progress: ProgressBar
) -> tuple[Scene, Backend]:
    """The scene built and where it is computed; what a user should know of it goes to stderr."""
    from soft_estimator.backends import choose_backend
    from soft_estimator.scene.scene import build_scene

    progress("preparing", 0, 1)
    backend = choose_backend(args.backend, config.solver.precision)
    scene = build_scene(config, folder, args.data)
    for warning in scene.warnings:
        stderr_line(warning, label="note")
    return scene, backend
