"""A picture of what was kept, what was removed, and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.objects import NothingFound, ObjectPoints, Why

# dark where there is nothing to see, muted for what was removed, one strong colour for what was kept
COLOURS = {
    Why.KEPT: (0xE8, 0x6B, 0x4D),
    Why.NOT_MEASURED: (0x1B, 0x1E, 0x26),
    Why.OUT_OF_RANGE: (0x3A, 0x3F, 0x4C),
    Why.OUTSIDE_CROP: (0x5A, 0x62, 0x72),
    Why.EXCLUDED: (0x7C, 0x5C, 0x9E),
    Why.MASKED: (0x9B, 0x7F, 0xB8),
    Why.PLANE: (0x8F, 0xB8, 0xBD),
    Why.BELOW_PLANE: (0x4C, 0x86, 0x94),
    Why.FLYING: (0xF2, 0xC1, 0x4E),
    Why.SPECK: (0xD8, 0x9A, 0x2B),
    Why.OTHER_PIECE: (0x4F, 0x7F, 0xC4),
    Why.BEYOND_TRACK: (0x8E, 0xB0, 0xE6),
    Why.TOOL: (0x9E, 0xA8, 0xB8),
}
_LEGEND_PX = 230


def draw_frame(cloud: Cloud, result: ObjectPoints | NothingFound) -> np.ndarray:
    """uint8 (h, w + legend, 3): the frame from the sensor, each point in the colour of its `Why`, and a legend with
    counts."""
    why = result.why if cloud.organised else _drawn(cloud, result.why)
    palette = np.array([COLOURS[code] for code in Why], dtype=np.float64)
    picture = palette[why] * _shade(cloud, why.shape)[..., None]
    grow = max(1, round(360 / max(why.shape)))
    picture = np.kron(picture, np.ones((grow, grow, 1)))
    height = max(picture.shape[0], 24 * (len(Why) + 4))
    canvas = Image.new("RGB", (picture.shape[1] + _LEGEND_PX, height), (0xF6, 0xF7, 0xF9))
    canvas.paste(Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)), (0, 0))
    _legend(ImageDraw.Draw(canvas), picture.shape[1] + 12, result)
    return np.asarray(canvas)


def write_png(path: str | Path, picture: np.ndarray) -> None:
    """Write a uint8 (h, w, 3) picture."""
    Image.fromarray(picture).save(path)


def _legend(draw: ImageDraw.ImageDraw, left: int, result: ObjectPoints | NothingFound) -> None:
    try:
        font = ImageFont.load_default(13)
    except TypeError:  # Pillow before 10.1 has one small bitmap font
        font = ImageFont.load_default()
    count = np.bincount(result.why.ravel(), minlength=len(Why))
    found = isinstance(result, ObjectPoints)
    lines = [f"object: {len(result.points_m)} points" if isinstance(result, ObjectPoints) else "no object", ""]
    if result.plane is not None:
        lines.insert(1, f"plane: {result.plane.share:.0%} of the points")
    for row, text in enumerate(lines):
        draw.text((left, 10 + 20 * row), text, fill=(40, 44, 52) if found else (190, 40, 30), font=font)
    top = 14 + 20 * len(lines)
    for code in (c for c in Why if count[c]):
        draw.rectangle((left, top, left + 14, top + 14), fill=COLOURS[code])
        draw.text(
            (left + 22, top), f"{code.name.lower().replace('_', ' ')}  {count[code]}", fill=(40, 44, 52), font=font
        )
        top += 22


def _shade(cloud: Cloud, shape: tuple[int, ...]) -> np.ndarray:
    """Brightness (h, w) from depth, nearer is brighter; flat for clouds without an image."""
    if not cloud.organised:
        return np.ones(shape)
    depth = (cloud.points_m - cloud.sensor_m) @ cloud.axis
    seen = np.isfinite(depth)
    if not seen.any():
        return np.ones(shape)
    near, far = np.quantile(depth[seen], (0.02, 0.98))
    place = np.clip((depth - near) / max(far - near, 1e-9), 0.0, 1.0)
    return np.where(seen, 1.08 - 0.38 * place, 1.0)


def _drawn(cloud: Cloud, why: np.ndarray, longer_px: int = 480) -> np.ndarray:
    """Codes of an unorganised cloud seen from its sensor and as upright as the sensor is: the object is drawn last."""
    image: np.ndarray = np.full((longer_px, longer_px), int(Why.NOT_MEASURED), dtype=np.int64)
    offset = cloud.flat_m - cloud.sensor_m
    depth = offset @ cloud.axis
    seen = np.flatnonzero(np.isfinite(depth) & (depth > 0))
    if len(seen) == 0:
        return image
    ray = offset[seen] @ _right_and_down(cloud).T / depth[seen, None]
    low, high = np.quantile(ray, 0.01, axis=0), np.quantile(ray, 0.99, axis=0)
    scale = (longer_px - 1) / max(float((high - low).max()), 1e-9)
    width, height = np.rint((high - low) * scale).astype(np.int64) + 1
    image = image[:height, :width]
    pixel = np.rint((ray - low) * scale).astype(np.int64)
    fits = ((pixel >= 0) & (pixel < (width, height))).all(axis=1)
    seen, pixel = seen[fits], pixel[fits]
    order = np.argsort(np.where(why[seen] == Why.KEPT, 1, 0), kind="stable")
    image[pixel[order, 1], pixel[order, 0]] = why[seen[order]]
    return image


def _right_and_down(cloud: Cloud) -> np.ndarray:
    """The picture's axes in the fixed frame, (2, 3): x and y of an optical frame, -y and -z of one with x ahead."""
    _, y, z = cloud.rotation.T
    ahead = float(cloud.axis @ z)
    down = np.sign(ahead) * y if abs(ahead) > np.sqrt(0.5) else -z
    right = np.cross(down, cloud.axis)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(cloud.axis, right)])
