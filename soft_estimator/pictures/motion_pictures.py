"""Pictures of a simulated motion: a strip of moments and an animation, coloured by strain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.pictures.colours import CORAL, colour_map
from soft_estimator.pictures.ground import Ground
from soft_estimator.pictures.renderer import SceneObject, auto_camera, render, write_gif, write_strip
from soft_estimator.scene.scene import Scene

# By eye: a long lens, and animations that load quickly.
FIELD_OF_VIEW_RAD = 0.55
GIF_SIZE_PX = (420, 315)
_TILE_MIN_PX = 360
_INK = (70, 76, 88)
OBSTACLE = (0.62, 0.66, 0.72)


@dataclass(frozen=True)
class Frame:
    """One moment: time [s], surface points (V, 3) [m] and their equivalent strain (V,)."""

    time_s: float
    vertices_m: np.ndarray
    strain: np.ndarray


def draw_strip(path: Path, scene: Scene, frames: Sequence[Frame], progress: Callable | None = None) -> None:
    """A PNG of the frames side by side, in rows."""
    wide = max(1, scene.config.picture.width_px // _TILE_MIN_PX)
    rows = -(-len(frames) // wide)
    columns = -(-len(frames) // rows)
    width = max(64, scene.config.picture.width_px // columns - 4)
    images = _render_all(scene, frames, (width, width * 3 // 4), "drawing the strip", progress)
    write_strip(path, images, [f"{1e3 * f.time_s:.0f} ms" for f in frames], columns)


def draw_animation(
    path: Path, scene: Scene, frames: Sequence[Frame], seconds_per_frame: float, progress: Callable | None = None
) -> None:
    """A looping GIF of the frames; the caption says by how much it is slowed down, if it is."""
    images = _render_all(scene, frames, GIF_SIZE_PX, "drawing the animation", progress)
    span = frames[-1].time_s - frames[0].time_s
    slower = seconds_per_frame * max(len(frames) - 1, 1) / span if span > 0 else 1.0
    speed = "" if abs(slower - 1) < 0.1 else f", {slower:.1f}x slower" if slower > 1 else f", {1 / slower:.1f}x faster"
    write_gif(path, images, seconds_per_frame, [f"{1e3 * f.time_s:.0f} ms{speed}" for f in frames])


def _render_all(
    scene: Scene, frames: Sequence[Frame], size_px: tuple[int, int], stage: str, progress: Callable | None
) -> list[np.ndarray]:
    camera, ground = choose_camera(scene, frames, size_px), _ground(scene)
    full = strain_scale(frames)
    images = []
    for number, (frame, colour) in enumerate(zip(frames, frame_colours(scene, frames), strict=True), start=1):
        thing = SceneObject(frame.vertices_m.astype(np.float64), scene.body.surface.faces, colour)
        beside = [SceneObject(*obstacle.mesh(frame.time_s), OBSTACLE, 0.0) for obstacle in scene.obstacles]
        image = render([thing, *beside], camera, ground, up=scene.config.picture.up)
        images.append(_with_legend(image, full, bool(scene.config.fixed)))
        if progress is not None:
            progress(stage, number, len(frames))
    return images


def choose_camera(scene: Scene, frames: Sequence[Frame], size_px: tuple[int, int]) -> PinholeCamera:
    """The scene's camera; what it leaves open is chosen so that the whole motion is seen."""
    picture = scene.config.picture
    low = np.min([frame.vertices_m.min(axis=0) for frame in frames], axis=0)
    high = np.max([frame.vertices_m.max(axis=0) for frame in frames], axis=0)
    chosen = auto_camera(low, high, picture.up, *size_px)
    if picture.eye_m is not None:
        target = 0.5 * (low + high) if picture.target_m is None else picture.target_m
        return PinholeCamera.looking_at(picture.eye_m, target, picture.up, *size_px, FIELD_OF_VIEW_RAD)
    if picture.target_m is not None:
        return replace(chosen, position_m=chosen.position_m + picture.target_m - 0.5 * (low + high))
    return chosen


def _ground(scene: Scene) -> Ground | None:
    contact = scene.config.contact
    return None if contact is None else Ground(contact.unit_normal, contact.offset_m)


def strain_scale(frames: Sequence[Frame]) -> float:
    """The strain at the bright end of the colours, a round number that few points of the motion exceed."""
    high = max(float(np.percentile(frame.strain, 99)) for frame in frames)
    power = 10.0 ** np.floor(np.log10(max(high, 1e-4)))
    return float(power * min(step for step in (1, 2, 5, 10) if step * power >= 0.9 * max(high, 1e-4)))


def frame_colours(scene: Scene, frames: Sequence[Frame]) -> list[np.ndarray]:
    """Colours (V, 3) in 0..1 of each frame: by strain on one scale for all, held points in coral."""
    full, held = strain_scale(frames), scene.held_points()
    return [np.where(held[:, None], CORAL, colour_map(frame.strain, 0.0, full)) for frame in frames]


def _with_legend(image: np.ndarray, full: float, held: bool) -> np.ndarray:
    """The picture with the meaning of its colours in the lower right corner."""
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    height, width = image.shape[:2]
    size = max(height // 22, 11)
    try:
        font = ImageFont.load_default(size)
    except TypeError:  # Pillow before 10.1 has one small bitmap font
        font = ImageFont.load_default()
    text = f"{100 * full:g} % strain"
    bar = colour_map(np.linspace(0, 1, width // 8))
    left, top = int(width - 1.2 * size - draw.textlength(text, font) - len(bar)), height - 1.6 * size
    draw.text((left + len(bar) + 0.5 * size, height - 1.8 * size), text, _INK, font)
    draw.text((left - 0.4 * size - draw.textlength("0", font), height - 1.8 * size), "0", _INK, font)
    for i, colour in enumerate(np.rint(255 * bar).astype(int)):
        draw.line([(left + i, top), (left + i, top + 0.75 * size)], fill=tuple(colour))
    if held:
        coral = tuple(round(255 * c) for c in CORAL)
        draw.text((left + len(bar) + 0.5 * size, height - 3.3 * size), "held", _INK, font)
        box = (left + len(bar) - 1.5 * size, height - 3.1 * size, left + len(bar), height - 2.35 * size)
        draw.rectangle(box, fill=coral)
    return np.asarray(picture)
