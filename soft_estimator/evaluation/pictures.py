"""Pictures without a graphics card: meshes under a soft lamp and a bright sky, on a checkered ground, with shadows.

Each lamp of a disc (the key light) and of a hemisphere (the sky) gets a depth map from the rasteriser; what a point
receives is a sum over the lamps that see it. Contact shadows, self-shadowing and the darkening under a body all come
from that sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from soft_estimator.backends.cpu.raster import gather_light, rasterise, rasterise_depth
from soft_estimator.evaluation.camera import PinholeCamera

# dark violet over teal to yellow: lightness rises evenly, so the order survives in grey and for colour-blind readers
_STOPS = "440154 482475 414487 355f8d 2a788e 21918d 22a884 44bf70 7ad151 bddf26 fde725"
COLOUR_STOPS = np.array([list(bytes.fromhex(stop)) for stop in _STOPS.split()]) / 255.0
CORAL = (0.91, 0.42, 0.30)
TEAL = (0.16, 0.56, 0.58)
BACKGROUND_TOP, BACKGROUND_BOTTOM = (0.87, 0.90, 0.94), (0.965, 0.97, 0.98)
KEY_COLOUR, SKY_COLOUR = np.array((1.00, 0.95, 0.87)), np.array((0.88, 0.94, 1.00))
KEY_STRENGTH, SKY_STRENGTH, BOUNCE_STRENGTH = 0.72, 0.50, 0.16
KEY_LAMPS, SKY_LAMPS, MAP_SIZE_PX = 40, 56, 128
LAMP_DISTANCE = 12.0  # of the scene's radius: far enough that rays are nearly parallel
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


@dataclass(frozen=True, eq=False)
class Ground:
    """The checkered plane normal . x + offset_m = 0.

    Attributes:
        normal: points to the side the camera is on, shape (3,).
        offset_m: d in n . x + d = 0, n of unit length [m].
        tile_m: side of a tile [m]; a round number that fits the view by default.
        colours: sRGB of the two kinds of tile, shape (2, 3).
    """

    normal: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0)
    offset_m: float = 0.0
    tile_m: float | None = None
    colours: tuple[Sequence[float], Sequence[float]] = ((0.92, 0.925, 0.935), (0.835, 0.85, 0.875))


@dataclass(frozen=True, eq=False)
class _Lamps:
    """Lamps of one colour: frames (nl, 3, 3), positions [m] (nl, 3), weights (nl,) and their depth maps [m]."""

    rotations: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    focal_px: float
    maps_m: np.ndarray
    bias_m: float

    def light(self, points_m: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """Light at these points, shape (n,)."""
        # lifting the point off the surface by a texel keeps a surface from shadowing itself
        lifted = np.ascontiguousarray(points_m + self.bias_m * normals)
        frames = (self.positions, self.rotations, self.weights, self.focal_px)
        return gather_light(lifted, np.ascontiguousarray(normals), *frames, self.maps_m, self.bias_m)


def colour_map(values: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    """sRGB colours, shape (n, 3), of scalars, shape (n,), from low (dark violet) to high (yellow); range by default."""
    scalar = np.asarray(values, dtype=np.float64)
    finite = scalar[np.isfinite(scalar)]
    low = low if low is not None else float(finite.min() if finite.size else 0.0)
    high = high if high is not None else float(finite.max() if finite.size else 1.0)
    place = np.nan_to_num(np.clip((scalar - low) / max(high - low, 1e-300), 0.0, 1.0))
    stops = np.linspace(0.0, 1.0, len(COLOUR_STOPS))
    return np.stack([np.interp(place, stops, COLOUR_STOPS[:, i]) for i in range(3)], axis=-1)


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
    axis, side, across = _frame(up)
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
    key, sky = _make_lamps(scene_objects, camera, axis)
    picture = _background(fine)
    depth = np.full(picture.shape[:2], np.inf)
    if ground is not None:
        depth = _paint_ground(picture, ground, camera, fine, key, sky)
    _paint_objects(picture, depth, scene_objects, fine, axis, key, sky)
    size = (camera.height_px, supersampling, camera.width_px, supersampling, 3)
    encoded = _to_srgb(np.clip(picture.reshape(size).mean(axis=(1, 3)), 0.0, 1.0))
    return np.rint(255.0 * encoded).astype(np.uint8)


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


def _frame(up: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit vectors (up, side, across), right-handed as (side, across, up), side near world x where that is possible."""
    axis = np.asarray(up, dtype=np.float64)
    length = np.linalg.norm(axis)
    if not length > 0:
        raise ValueError(f"up direction {up} has no length: give three numbers, not all zero")
    axis = axis / length
    side = np.array((1.0, 0.0, 0.0)) if abs(axis[0]) < 0.9 else np.array((0.0, 1.0, 0.0))
    side = side - (side @ axis) * axis
    side /= np.linalg.norm(side)
    return axis, side, np.cross(axis, side)


def _to_linear(srgb: Sequence[float] | np.ndarray) -> np.ndarray:
    srgb = np.asarray(srgb, dtype=np.float64)
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _to_srgb(linear: np.ndarray) -> np.ndarray:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


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


def _background(camera: PinholeCamera) -> np.ndarray:
    """Linear RGB of an empty picture, shape (height, width, 3)."""
    down = np.linspace(0.0, 1.0, camera.height_px)[:, None, None]
    colour = (1 - down) * _to_linear(BACKGROUND_TOP) + down * _to_linear(BACKGROUND_BOTTOM)
    return np.broadcast_to(colour, (camera.height_px, camera.width_px, 3)).copy()


def _make_lamps(objects: Sequence[SceneObject], camera: PinholeCamera, up: np.ndarray) -> tuple[_Lamps, _Lamps]:
    """The key light, over the viewer's left shoulder, and the sky."""
    right, _, forward = camera.rotation.T
    towards = up + 0.75 * _level(-right, up) - 0.35 * _level(forward, up)
    towards /= np.linalg.norm(towards)
    _, side, across = _frame(towards)
    turn, fraction = _spiral(KEY_LAMPS)
    spread = 0.12 * np.sqrt(fraction)[:, None]
    key = towards + spread * (np.cos(turn)[:, None] * side + np.sin(turn)[:, None] * across)
    _, side, across = _frame(up)
    turn, height = _spiral(SKY_LAMPS)
    flat = np.sqrt(1 - height**2)[:, None]
    sky = height[:, None] * up + flat * (np.cos(turn)[:, None] * side + np.sin(turn)[:, None] * across)
    return _lamps(objects, key, np.full(KEY_LAMPS, 1 / KEY_LAMPS)), _lamps(
        objects, sky, np.ones(SKY_LAMPS) / height.sum()
    )


def _level(direction: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The horizontal part of a direction, of unit length (or zero)."""
    flat = direction - (direction @ up) * up
    return flat / max(np.linalg.norm(flat), 1e-9)


def _spiral(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles [rad] and evenly spaced fractions in (0, 1) of a golden-angle spiral, shape (count,) each."""
    return np.pi * (3 - np.sqrt(5)) * np.arange(count), (np.arange(count) + 0.5) / count


def _lamps(objects: Sequence[SceneObject], directions: np.ndarray, weights: np.ndarray) -> _Lamps:
    """Lamps in these directions (nl, 3), far from the objects, each with its depth map of them."""
    vertices, faces = _joined(objects)
    low, high = (vertices.min(axis=0), vertices.max(axis=0)) if len(vertices) else (np.zeros(3), np.ones(3))
    centre, radius = 0.5 * (low + high), max(0.5 * float(np.linalg.norm(high - low)), 1e-6)
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    positions = centre + LAMP_DISTANCE * radius * directions
    frames = [_frame(-direction) for direction in directions]
    rotations = np.stack([np.stack([side, across, axis], axis=1) for axis, side, across in frames])
    focal = 0.5 * (MAP_SIZE_PX - 4) * (LAMP_DISTANCE - 1.0)
    middle = 0.5 * (MAP_SIZE_PX - 1)
    optics = (focal, focal, middle, middle, MAP_SIZE_PX, MAP_SIZE_PX, 0.5 * radius)
    seen = [
        rasterise_depth((vertices - position) @ rotation, faces, *optics)[0]
        for position, rotation in zip(positions, rotations, strict=True)
    ]
    return _Lamps(rotations, positions, weights, focal, np.stack(seen), 2.5 * radius / MAP_SIZE_PX)


def _joined(objects: Sequence[SceneObject]) -> tuple[np.ndarray, np.ndarray]:
    """All vertices [m] (nv, 3) and all faces (nf, 3)."""
    shifts = np.cumsum([0] + [len(item.vertices_m) for item in objects])
    vertices = [np.asarray(item.vertices_m, dtype=np.float64).reshape(-1, 3) for item in objects]
    faces = [np.asarray(o.faces, dtype=np.int64).reshape(-1, 3) + s for o, s in zip(objects, shifts, strict=False)]
    return np.concatenate([*vertices, np.empty((0, 3))]), np.concatenate([*faces, np.empty((0, 3), dtype=np.int64)])


def corner_normals(vertices_m: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit normals for smooth shading, shape (nf, 3 corners, 3): area-weighted, but the face's own at sharp edges."""
    corners = vertices_m[faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    flat = area / np.maximum(np.linalg.norm(area, axis=1, keepdims=True), 1e-300)
    summed = np.stack(
        [np.bincount(faces.ravel(), np.repeat(area[:, i], 3), minlength=len(vertices_m)) for i in range(3)], axis=-1
    )
    smooth = (summed / np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-300))[faces]
    sharp = np.einsum("fci,fi->fc", smooth, flat) < CREASE_COSINE
    return np.where(sharp[..., None], flat[:, None, :], smooth)


def _paint_ground(
    picture: np.ndarray, ground: Ground, camera: PinholeCamera, fine: PinholeCamera, key: _Lamps, sky: _Lamps
) -> np.ndarray:
    """Paint the plane into a linear RGB picture; returns its depth [m], inf where it is not seen."""
    normal, side, across = _frame(ground.normal)
    height = float(normal @ fine.position_m + ground.offset_m / np.linalg.norm(ground.normal))
    depth = _plane_depth(fine, normal, height)
    if height <= 0:  # seen from below it would only hide the scene
        return np.full(depth.shape, np.inf)
    seen = np.isfinite(depth)
    points = fine.to_world_frame((fine.rays() * np.where(seen, depth, 0.0)[..., None]).reshape(-1, 3))
    points = points.reshape(*depth.shape, 3)
    # everything scales with where the view's axis meets the plane, so a fixed camera gives a steady ground
    forward = fine.rotation[:, 2]
    reach = min(height / max(-float(forward @ normal), 1e-3), 6 * height)
    focus = fine.position_m + reach * forward
    tile = ground.tile_m or _round_length(reach / 11)
    u, v = points @ side / tile, points @ across / tile
    blend = _checker(u, v)[..., None]
    colour = (1 - blend) * _to_linear(ground.colours[0]) + blend * _to_linear(ground.colours[1])
    away = np.linalg.norm(points - focus, axis=-1) / reach
    fade = np.clip((away - 0.35) / 0.75, 0.0, 1.0)
    fade = np.where(seen, fade * fade * (3 - 2 * fade), 1.0)[..., None]
    lit = _ground_light(camera, fine, normal, height, key, sky)
    picture[:] = fade * picture * (0.5 + 0.5 * lit) + (1 - fade) * colour * lit
    return depth


def _plane_depth(camera: PinholeCamera, normal: np.ndarray, height: float) -> np.ndarray:
    """Depth [m] of a plane `height` [m] below the camera, shape (height, width), inf above the horizon."""
    towards = -(camera.rays() @ (normal @ camera.rotation))
    return np.where(towards > 1e-9, height / np.where(towards > 1e-9, towards, 1.0), np.inf)


def _ground_light(
    camera: PinholeCamera, fine: PinholeCamera, normal: np.ndarray, height: float, key: _Lamps, sky: _Lamps
) -> np.ndarray:
    """Light on the plane relative to that on open ground, linear RGB per fine pixel; computed per coarse pixel."""
    depth = _plane_depth(camera, normal, height)
    seen = np.isfinite(depth)
    points = camera.to_world_frame(camera.rays()[seen] * depth[seen][:, None])
    normals = np.broadcast_to(normal, points.shape)
    open_key = float(np.maximum(-key.rotations[:, :, 2] @ normal, 0) @ key.weights)
    open_sky = float(np.maximum(-sky.rotations[:, :, 2] @ normal, 0) @ sky.weights)
    shares = KEY_STRENGTH * open_key * KEY_COLOUR, SKY_STRENGTH * open_sky * SKY_COLOUR
    light = np.ones((*depth.shape, 3))
    light[seen] = (key.light(points, normals) / open_key)[:, None] * shares[0]
    light[seen] += (sky.light(points, normals) / open_sky)[:, None] * shares[1]
    light[seen] /= shares[0] + shares[1]
    factor = fine.width_px // camera.width_px
    return np.repeat(np.repeat(light, factor, axis=0), factor, axis=1)


def _checker(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """0..1 checkerboard of unit tiles, averaged over each pixel's footprint in u and in v."""
    waves = []
    for coordinate in (u, v):
        footprint = np.maximum(sum(np.abs(np.gradient(coordinate, axis=axis)) for axis in (0, 1)), 1e-9)
        low, high = (0.5 * (coordinate + sign * 0.5 * footprint) for sign in (-1, 1))
        triangle = [np.abs(x - np.floor(x) - 0.5) for x in (low, high)]  # the integral of a square wave
        waves.append(2.0 * (triangle[0] - triangle[1]) / footprint)
    return 0.5 - 0.5 * np.clip(waves[0], -1, 1) * np.clip(waves[1], -1, 1)


def _round_length(length_m: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above length_m [m]."""
    power = 10.0 ** np.floor(np.log10(length_m))
    return float(power * max(step for step in (1, 2, 5) if step * power <= length_m * (1 + 1e-9)))


def _paint_objects(
    picture: np.ndarray,
    depth: np.ndarray,
    objects: Sequence[SceneObject],
    camera: PinholeCamera,
    up: np.ndarray,
    key: _Lamps,
    sky: _Lamps,
) -> None:
    """Shade the pixels where an object is nearer than `depth` [m], in place."""
    vertices, faces = _joined(objects)
    optics = (camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px, camera.width_px, camera.height_px)
    mesh_depth, face, weight = rasterise(camera.to_camera_frame(vertices), faces, *optics)
    seen = mesh_depth < depth
    if not seen.any():
        return
    face, weight = face[seen], weight[seen]
    points = np.einsum("nc,nci->ni", weight, vertices[faces[face]])
    normals = np.concatenate([corner_normals(np.asarray(o.vertices_m, float), np.asarray(o.faces)) for o in objects])
    normal = np.einsum("nc,nci->ni", weight, normals[face])
    view = camera.position_m - points
    view /= np.linalg.norm(view, axis=1, keepdims=True)
    normal *= np.where((normal * view).sum(axis=1) < -0.2, -1.0, 1.0)[:, None]  # the inside of an open mesh
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    colours = [np.broadcast_to(_to_linear(o.colour), (len(o.vertices_m), 3)) for o in objects]
    albedo = np.einsum("nc,nci->ni", weight, np.concatenate(colours)[faces[face]])
    gloss = np.repeat([o.gloss for o in objects], [len(o.faces) for o in objects])[face]
    picture[seen] = _shaded(points, normal, view, albedo, gloss, up, key, sky)


def _shaded(
    points: np.ndarray,
    normal: np.ndarray,
    view: np.ndarray,
    albedo: np.ndarray,
    gloss: np.ndarray,
    up: np.ndarray,
    key: _Lamps,
    sky: _Lamps,
) -> np.ndarray:
    """Linear RGB of surface points, shape (n, 3): key, sky, light from the ground, highlight and a faint bright rim."""
    from_key, from_sky = key.light(points, normal), sky.light(points, normal)
    bounce = 0.5 - 0.5 * normal @ up
    light = KEY_STRENGTH * from_key[:, None] * KEY_COLOUR + SKY_STRENGTH * from_sky[:, None] * SKY_COLOUR
    light += BOUNCE_STRENGTH * (0.35 + bounce)[:, None]
    towards = -key.rotations[:, :, 2].mean(axis=0)
    half = view + towards
    half /= np.linalg.norm(half, axis=1, keepdims=True)
    shine = np.maximum((half * normal).sum(axis=1), 0.0) ** 40 * np.minimum(from_key * 2, 1.0)
    rim = (1.0 - np.clip((view * normal).sum(axis=1), 0.0, 1.0)) ** 4 * from_sky
    return albedo * light + (gloss * (shine + 0.5 * rim))[:, None]
