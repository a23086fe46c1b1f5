"""Pictures without a graphics card: meshes under a soft lamp and a bright sky, on a checkered ground, with shadows.

Each lamp of a disc (the key light) and of a hemisphere (the sky) gets a depth map from the rasteriser; what a point
receives is a sum over the lamps that see it. Contact shadows, self-shadowing and the darkening under a body all come
from that sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from soft_estimator.backends.cpu.raster import rasterise
from soft_estimator.backends.cpu.shading import shade_samples, surface_samples
from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.geometry.surface import face_crosses_m2
from soft_estimator.pictures.colours import CORAL, to_linear, to_srgb
from soft_estimator.pictures.ground import Backdrop, Ground, backdrop, ground_light
from soft_estimator.pictures.lamps import (
    KEY_COLOUR,
    KEY_STRENGTH,
    SKY_COLOUR,
    SKY_STRENGTH,
    TURNS,
    Lamps,
    frame_around,
    make_lamps,
)

BOUNCE_STRENGTH = 0.16  # by eye: light from below that keeps undersides from going black
CREASE_COSINE = np.cos(np.radians(40.0))  # a corner normal farther than this from its face marks a sharp edge


@dataclass(frozen=True, eq=False)
class SceneObject:
    """A mesh to draw.

    Attributes:
        vertices_m: positions [m], shape (nv, 3).
        faces: triangles, shape (nf, 3).
        colour: sRGB in 0..1, shape (3,) or per vertex (nv, 3), as `colour_map` gives.
        gloss: strength of the highlight, 0 for a matt surface.
    """

    vertices_m: np.ndarray
    faces: np.ndarray
    colour: Sequence[float] | np.ndarray = CORAL
    gloss: float = 0.2


def auto_camera(
    points_low_m: Sequence[float] | np.ndarray,
    points_high_m: Sequence[float] | np.ndarray,
    up: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0),
    width_px: int = 640,
    height_px: int = 480,
    azimuth_rad: float = -1.0,
    elevation_rad: float = 0.36,
    margin: float = 1.12,
) -> PinholeCamera:
    """A three-quarter view in which the whole box low..high [m] just fits, with `margin` around it."""
    low, high = np.asarray(points_low_m, dtype=np.float64), np.asarray(points_high_m, dtype=np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (high >= low).all()):
        raise ValueError(f"box {low}..{high} is empty or not finite: give its lowest and highest corner in metres")
    axis, side, across = frame_around(up)
    outward = np.cos(elevation_rad) * (np.cos(azimuth_rad) * side + np.sin(azimuth_rad) * across)
    outward = outward + np.sin(elevation_rad) * axis
    centre = 0.5 * (low + high)
    fov_rad = 0.55  # a long lens: little perspective distortion
    view = PinholeCamera.looking_at(centre + outward, centre, axis, width_px, height_px, fov_rad)
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 3)
    x, y, z = ((corners - centre) @ view.rotation).T
    tangent = np.array([[0.5 * width_px], [0.5 * height_px]]) / view.fx_px / margin
    distance = float((np.abs([x, y]) / tangent - z).max())
    return replace(view, position_m=centre + max(distance, 1e-6) * outward)


def render(
    scene_objects: Sequence[SceneObject],
    camera: PinholeCamera,
    ground: Ground | None = None,
    up: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0),
    supersampling: int = 2,
) -> np.ndarray:
    """An sRGB picture, uint8, shape (height, width, 3). `up` is where the sky is; a ground's normal replaces it."""
    axis = np.asarray(up if ground is None else ground.normal, dtype=np.float64)
    axis = axis / np.linalg.norm(axis)
    fine = _finer(camera, supersampling)
    key, sky = make_lamps(*_joined(scene_objects), camera, axis)
    behind, light = backdrop(ground, camera, fine), ground_light(ground, camera, key, sky)
    picture = behind.picture(light)
    _paint_objects(picture, behind, light, scene_objects, fine, axis, key, sky)
    return np.rint(255.0 * to_srgb(np.clip(picture, 0.0, 1.0))).astype(np.uint8)


def write_strip(
    path_png: str | Path, images: Sequence[np.ndarray], captions: Sequence[str] = (), columns: int | None = None
) -> None:
    """Pictures side by side (in rows of `columns`), uint8 (height, width, 3) each, small captions in their corners."""
    if not images:
        raise ValueError("a picture strip needs at least one image: images is empty")
    height, width = images[0].shape[:2]
    if any(image.shape != images[0].shape for image in images):
        raise ValueError(
            f"strip images differ in size {sorted({i.shape for i in images})}: render them with one camera"
        )
    columns = min(columns or len(images), len(images))
    gap = max(width // 80, 2)
    rows = -(-len(images) // columns)
    sheet = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), "white")
    for i, image in enumerate(images):
        tile = Image.fromarray(np.asarray(image, dtype=np.uint8))
        if i < len(captions):
            _caption(tile, captions[i])
        sheet.paste(tile, (i % columns * (width + gap), i // columns * (height + gap)))
    sheet.save(path_png, optimize=True)


def write_gif(
    path: str | Path,
    images: Sequence[np.ndarray],
    seconds_per_frame: float,
    captions: Sequence[str] = (),
    colours: int = 192,
) -> None:
    """A looping animation of uint8 (height, width, 3) images. GIF time runs in steps of 0.01 s, at least 0.02 s."""
    if not images:
        raise ValueError("an animation needs at least one image: images is empty")
    frames = [Image.fromarray(np.asarray(image, dtype=np.uint8)) for image in images]
    for frame, caption in zip(frames, captions, strict=False):
        _caption(frame, caption)
    # one palette for all, and no dithering: what stands still stays the same to the bit and costs nothing in the file
    palette = _shared_palette([frames[i] for i in np.unique(np.linspace(0, len(frames) - 1, 8).astype(int))], colours)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    milliseconds = max(round(seconds_per_frame * 100) * 10, 20)
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=milliseconds, loop=0, optimize=True)


def _shared_palette(frames: Sequence[Image.Image], colours: int) -> Image.Image:
    """A palette image for all frames. Colours count by a root of their pixels: the ground must not take all."""
    pixels = np.concatenate([np.asarray(frame).reshape(-1, 3) for frame in frames]).astype(np.int64) >> 2
    keys, counts = np.unique((pixels[:, 0] << 12) + (pixels[:, 1] << 6) + pixels[:, 2], return_counts=True)
    keys = np.repeat(keys, np.ceil(counts**0.4).astype(int))
    shades = (np.stack([keys >> 12, keys >> 6 & 63, keys & 63], axis=-1) << 2) + 2
    return Image.fromarray(shades[None].astype(np.uint8)).quantize(colours, method=Image.Quantize.MEDIANCUT, kmeans=3)


def _caption(image: Image.Image, text: str) -> None:
    """Small dark text in the lower left corner, in place."""
    size = max(image.height // 22, 11)
    try:
        font = ImageFont.load_default(size)
    except TypeError:  # Pillow before 10.1 has one small bitmap font
        font = ImageFont.load_default()
    draw = ImageDraw.Draw(image)
    draw.text((size * 0.7, image.height - 1.8 * size), text, fill=(70, 76, 88), font=font)


@lru_cache(maxsize=1)
def _finer(camera: PinholeCamera, factor: int) -> PinholeCamera:
    """The same view with factor x factor pixels in place of one."""
    return PinholeCamera(
        camera.width_px * factor,
        camera.height_px * factor,
        camera.fx_px * factor,
        camera.fy_px * factor,
        factor * (camera.cx_px + 0.5) - 0.5,  # pixel centres are at integers, so their edges at halves
        factor * (camera.cy_px + 0.5) - 0.5,
        camera.position_m,
        camera.rotation,
    )


def _joined(objects: Sequence[SceneObject]) -> tuple[np.ndarray, np.ndarray]:
    """All vertices [m] (nv, 3) and all faces (nf, 3)."""
    shifts = np.cumsum([0] + [len(item.vertices_m) for item in objects])
    vertices = [np.asarray(item.vertices_m, dtype=np.float64).reshape(-1, 3) for item in objects]
    faces = [np.asarray(o.faces, dtype=np.int64).reshape(-1, 3) + s for o, s in zip(objects, shifts, strict=False)]
    return np.concatenate([*vertices, np.empty((0, 3))]), np.concatenate([*faces, np.empty((0, 3), dtype=np.int64)])


def corner_normals(vertices_m: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit normals for smooth shading, shape (nf, 3 corners, 3): area-weighted, but the face's own at sharp edges."""
    area = face_crosses_m2(vertices_m[faces])
    flat = area / np.maximum(np.linalg.norm(area, axis=1, keepdims=True), 1e-300)
    summed = np.stack(
        [np.bincount(faces.ravel(), np.repeat(area[:, i], 3), minlength=len(vertices_m)) for i in range(3)], axis=-1
    )
    smooth = (summed / np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-300))[faces]
    sharp = np.einsum("fci,fi->fc", smooth, flat) < CREASE_COSINE
    return np.where(sharp[..., None], flat[:, None, :], smooth)


def _paint_objects(
    picture: np.ndarray,
    behind: Backdrop,
    light: np.ndarray,
    objects: Sequence[SceneObject],
    camera: PinholeCamera,
    up: np.ndarray,
    key: Lamps,
    sky: Lamps,
) -> None:
    """Paint the objects into a linear RGB picture, in place, sample by sample where they are nearer than what is behind
    them. camera: that of the samples."""
    vertices, faces = _joined(objects)
    optics = (camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px, camera.width_px, camera.height_px)
    mesh_depth, face, weight = rasterise(camera.to_camera_frame(vertices), faces, *optics)
    seen = mesh_depth < behind.depth_m
    if not seen.any():
        return
    quarters = [np.nonzero(seen[turn // 2 :: 2, turn % 2 :: 2]) for turn in range(TURNS)]
    row, column = (
        np.concatenate([2 * q[k] + offset for q, offset in zip(quarters, offsets)])
        for k, offsets in enumerate(((0, 0, 1, 1), (0, 1, 0, 1)))
    )
    turn = np.repeat(np.arange(TURNS), [len(q[0]) for q in quarters])
    shaded = _shaded(objects, vertices[faces], face[row, column], weight[row, column], turn,
                     (camera.position_m, up), (key, sky))  # fmt: skip
    height, width = picture.shape[:2]
    each = camera.width_px // width
    pixel = row // each * width + column // each
    covered = np.bincount(pixel, minlength=height * width)
    sums = np.stack([np.bincount(pixel, shaded[:, k], minlength=height * width) for k in range(3)], axis=-1)
    edge = np.flatnonzero((covered > 0) & (covered < each * each))  # what is behind shows through some samples
    rows, columns = edge // width, edge % width
    empty = ~seen.reshape(height, each, width, each)[rows, :, columns]
    lit = np.broadcast_to(light, picture.shape)[rows, columns]
    sums[edge] += (behind.samples(rows, columns, lit) * empty[..., None]).sum(axis=(1, 2))
    inside = covered > 0
    picture.reshape(-1, 3)[inside] = sums[inside] / (each * each)


def _shaded(
    objects: Sequence[SceneObject],
    corners_m: np.ndarray,
    face: np.ndarray,
    weight: np.ndarray,
    turn: np.ndarray,
    seen_from: tuple[np.ndarray, np.ndarray],
    lamps: tuple[Lamps, Lamps],
) -> np.ndarray:
    """Linear RGB of points on faces (n,) at barycentric weights (n, 3); turn: as in `Lamps.light`. seen_from: the eye
    [m], and which way is up."""
    (eye_m, up), (key, sky) = seen_from, lamps
    points, normals, views, out = (np.empty((len(face), 3)) for _ in range(4))
    smooth = np.concatenate([corner_normals(np.asarray(o.vertices_m, float), np.asarray(o.faces)) for o in objects])
    surface_samples(face, weight, corners_m, smooth, eye_m, points, normals, views)
    colours = np.concatenate(
        [np.broadcast_to(to_linear(o.colour), (len(o.vertices_m), 3))[np.asarray(o.faces)] for o in objects]
    )
    gloss = np.repeat([o.gloss for o in objects], [len(o.faces) for o in objects])
    reached = (key.light(points, normals, turn), sky.light(points, normals, turn))
    strengths = (KEY_STRENGTH * KEY_COLOUR, SKY_STRENGTH * SKY_COLOUR)
    towards = -key.rotations[:, :, 2].mean(axis=0)
    shade_samples(face, weight, colours, gloss, normals, views, up, towards, *reached, *strengths, BOUNCE_STRENGTH, out)
    return out
