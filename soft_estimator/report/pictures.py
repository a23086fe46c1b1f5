"""Still pictures of a few moments, for paper and for browsers without WebGL."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.pictures.colours import TEAL, colour_map, residual_colours
from soft_estimator.pictures.ground import Ground
from soft_estimator.pictures.motion_pictures import OBSTACLE
from soft_estimator.pictures.renderer import SceneObject, render
from soft_estimator.report.content import Moment, ReportContent
from soft_estimator.report.view3d import bounds_m, eye_direction, residual_scale_m, strain_scale

# Two beside each other on paper, with a long lens.
SIZE_PX = (420, 340)
FIELD_OF_VIEW_RAD = 0.5


def still_pictures(content: ReportContent, most: int = 3) -> list[tuple[float, str]]:
    """(time [s], PNG as a data URL) of evenly chosen moments, in the colours of the 3D view."""
    if not content.moments:
        return []
    chosen = np.unique(np.linspace(0, len(content.moments) - 1, most).round().astype(int))
    moments = [content.moments[k] for k in chosen]
    low, high = bounds_m(list(content.moments))
    middle, radius = 0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low))
    eye = middle + eye_direction(content) * 1.12 * max(radius, 1e-6) / np.sin(0.5 * FIELD_OF_VIEW_RAD)
    camera = PinholeCamera.looking_at(eye, middle, content.up, *SIZE_PX, FIELD_OF_VIEW_RAD * SIZE_PX[0] / SIZE_PX[1])
    pictures = []
    for moment in moments:
        thing = SceneObject(moment.vertices_m, content.faces, moment_colours(moment, list(content.moments)), 0.08)
        tools = [SceneObject(vertices, faces, OBSTACLE, 0.0) for vertices, faces in moment.tools.values()]
        ground = None if moment.plane is None else Ground(np.asarray(moment.plane.normal), moment.plane.offset_m)
        pictures.append((moment.time_s, _data_url(render([thing, *tools], camera, ground, up=content.up))))
    return pictures


def moment_colours(moment: Moment, moments: list[Moment]) -> np.ndarray:
    """sRGB (V, 3) in 0..1: by residual where there is one, else by strain, else plain."""
    if moment.residual_m is not None and np.isfinite(moment.residual_m).any():
        return residual_colours(moment.residual_m, residual_scale_m(moments))
    if moment.strain is not None:
        return colour_map(moment.strain, 0.0, strain_scale(moments))
    return np.broadcast_to(np.array(TEAL), moment.vertices_m.shape)


def _data_url(image: np.ndarray) -> str:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
