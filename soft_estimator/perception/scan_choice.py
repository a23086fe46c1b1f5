"""Which prior closes the unseen side of a scan: each is tried, drawn as the cameras saw the object, and judged."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from soft_estimator.backends.cpu.raster import rasterise_depth
from soft_estimator.geometry.shapes import sample
from soft_estimator.geometry.surface import extract_surface, vertex_areas_m2
from soft_estimator.perception.fusion import View
from soft_estimator.perception.primitives import FittedShape, fit_primitives
from soft_estimator.perception.rest_shape import rest_shape_from_primitive
from soft_estimator.perception.scan import ScannedBody, close_body, drawn_to_points
from soft_estimator.perception.scan_frames import ScanData
from soft_estimator.perception.settings import ScanSettings

# The priors in the order in which they are believed where the data contradict none: the more a prior demands, the less
# likely it is to fit by chance.
PRIORS = ("revolution", "mirror", "balls", "extrusion")
# How far off the volume is that balls from within give: 6.8 % rms of 14 bodies of two to five balls and rods seen from
# one side (seeds 100 to 113 of `bench_measure.py`), and a fifth more, as well as 14 bodies tell it.
_BALLS_STD = 0.08
ALL_ROUND = 0.6  # with this share of the surface seen, nothing has to be guessed
_HARDLY_ANYTHING_LEFT = 0.95  # with more of it seen, it does not matter what the rest is closed by
_MISFIT_VOXELS = 0.5  # a fused surface lies this near to what was seen, rms; a wrong symmetry pulls it off by voxels
_MISFIT_SIGMAS = 0.5  # or within this part of a point's noise, which fusion averages
_OUTLINE = 0.04  # share of the object's pixels that may lie on the wrong side of its outline
_CUT_VOXELS = 5.0  # differences count up to this: one stray pixel must not decide
_RIM_PX = 1  # the outline itself is only known to a pixel
_LEAST_SEEN = 0.08  # less of the surface seen than this is no scan: a ball shows a third of itself to one camera
_PLAIN_COST = 0.45  # a plain shape must explain what was seen as well as a fused surface does
_SHARED = 0.4  # part of the misfit that all of the surface may share, outwards or inwards
_SEEN_WITHIN_VOXELS = 2.0  # surface with a point this near was seen
_LARGEST = 1.6  # times longer than what was seen along any side: no prior may invent more

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judgement:
    """A body drawn as the cameras saw the object, against what they saw.

    Attributes:
        misfit_m: rms distance of the drawn surface from the seen one [m]. outline: share of the object's pixels where
            the body is missing, or hides what was seen behind it. cost: 1 at the limits of what noise explains.
    """

    misfit_m: float
    outline: float
    cost: float


def choose_body(data: ScanData, settings: ScanSettings) -> ScannedBody:
    """The body that the data support; a ValueError that says why where no shape will do.

    Seen all round, it is what was seen; what nobody saw of sides that were joined is closed by balls. Else plain shapes
    come first: one that explains every pixel leaves nothing to guess. Then a body of revolution, which demands most,
    and else the largest balls that touch what was seen from within.
    """
    whole = close_body(data, replace(settings, prior="none"))
    if whole.coverage >= ALL_ROUND:
        if data.supports and whole.coverage < _HARDLY_ANYTHING_LEFT:  # unseen space would count as body
            whole = close_body(data, replace(settings, prior="balls"))
            whole = replace(whole, volume_std_m3=_BALLS_STD * whole.volume_m3)
        whole = drawn_to_points(whole, data, settings.target_cells)
        judged = judge_body(whole, data)
        return checked_body(_stated(whole, judged, []), judged, data)
    plain = [(body, _judged(body, data)) for body in _primitives(data, settings)]
    plain = [pair for pair in plain if pair[1].cost <= _PLAIN_COST]
    if plain:
        body, judged = min(plain, key=lambda pair: pair[1].cost)
        return checked_body(_stated(body, judged, []), judged, data)
    tried = {body.prior: (body, _judged(body, data)) for body in _closed(data, settings)}
    supported = {prior: pair for prior, pair in tried.items() if pair[1].cost <= 1.0}
    if "revolution" in supported or "balls" not in supported:
        body, judged = next(iter(supported.values())) if supported else min(tried.values(), key=lambda p: p[1].cost)
        others = [other for other, _ in supported.values() if other is not body]
        return checked_body(_stated(body, judged, others), judged, data)
    body, judged = supported["balls"]
    return checked_body(_stated(replace(body, volume_std_m3=_BALLS_STD * body.volume_m3), judged, []), judged, data)


def _judged(body: ScannedBody, data: ScanData) -> Judgement:
    """`judge_body`, told to the log."""
    found = judge_body(body, data)
    said = (body.prior, 1e6 * body.volume_m3, 1e3 * found.misfit_m, 100 * found.outline, found.cost)
    _log.info("as %s: %.0f cm³, %.2f mm off what was seen, %.1f %% of the outline wrong, cost %.2f", *said)
    return found


def _primitives(data: ScanData, settings: ScanSettings) -> list[ScannedBody]:
    """Plain shapes at their best; without those that reach far beyond what was seen, as a rod does that was fitted to
    something else."""
    out, widest = [], float(np.ptp(data.local_m, axis=0).max())
    for fitted in fit_primitives(data):
        low, high = fitted.shape.bounds_m()
        if float((high - low).max()) <= _LARGEST * widest + 2 * data.voxel_m:
            out.append(from_primitive(fitted, data, settings))
        else:
            _log.info("as %s: %.2g m long, far more than was seen", fitted.name, float((high - low).max()))
    return out


def _closed(data: ScanData, settings: ScanSettings) -> list[ScannedBody]:
    """The bodies of all priors that give one, in their order."""
    out, failed = [], []
    for prior in PRIORS:
        try:
            out.append(close_body(data, with_prior(settings, prior)))
        except ValueError as error:
            failed.append(f"{prior}: {error}")
    if not out:
        raise ValueError(f"no shape closes what was seen ({'; '.join(failed)}); scan from several sides")
    return out


def from_primitive(fitted: FittedShape, data: ScanData, settings: ScanSettings) -> ScannedBody:
    """A fitted shape as a body whose frame has the shape's own axes: its flat faces then lie along the grid's.

    Which of its surface was seen is told by the points near it.
    """
    c, s = np.cos(fitted.yaw_rad), np.sin(fitted.yaw_rad)
    turn, shift = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]), np.array([*fitted.place_m, 0.0])
    rotation, translation = data.frame[0] @ turn, data.frame[0] @ shift + data.frame[1]
    fine = sample(fitted.shape, data.voxel_m)
    surface = extract_surface(fine)
    vertices = surface.positions_m(fine.node_positions_m())
    grid, detail = rest_shape_from_primitive(fitted.shape, settings.target_cells)
    points = (data.local_m - shift) @ turn
    gap = cKDTree(points).query(vertices, distance_upper_bound=_SEEN_WITHIN_VOXELS * data.voxel_m)[0]
    seen = np.isfinite(gap)
    areas = vertex_areas_m2(vertices, surface.faces)
    return ScannedBody(
        grid, vertices, surface.faces, seen, float(areas[seen].sum() / areas.sum()), fitted.volume_m3, rotation,
        translation, data.voxel_m, len(data.frames), data.notes, fitted.name, fitted.volume_std_m3, detail=detail,
    )  # fmt: skip


def with_prior(settings: ScanSettings, prior: str) -> ScanSettings:
    """The settings with a prior by its short name: a symmetry's, extrusion, poisson or none."""
    if prior in ("revolution", "half_turn", "mirror"):
        return replace(settings, prior="symmetry", symmetry=prior)
    return replace(settings, prior=prior)


def judge_body(body: ScannedBody, data: ScanData) -> Judgement:
    """Draw a body into every view and compare."""
    cut = _CUT_VOXELS * data.voxel_m
    squares, count, wrong, pixels = 0.0, 0, 0, 0
    for view in data.views:
        off, outside, own = _compared(body, view, data, cut)
        squares, count = squares + float((off**2).sum()), count + len(off)
        wrong, pixels = wrong + outside, pixels + own
    misfit = float(np.sqrt(squares / count)) if count else cut
    outline = wrong / max(pixels, 1)
    limit = float(np.hypot(_MISFIT_VOXELS * data.voxel_m, _MISFIT_SIGMAS * data.std_m))
    return Judgement(misfit, outline, float(np.sqrt(0.5 * (misfit / limit) ** 2 + 0.5 * (outline / _OUTLINE) ** 2)))


def _compared(body: ScannedBody, view: View, data: ScanData, cut_m: float) -> tuple[np.ndarray, int, int]:
    """Distances (n,) [m] of the drawn surface from the seen one, cut off; pixels on the wrong side of the outline; and
    pixels of the object."""
    there = body.vertices_m if view.bend is None else body.vertices_m + view.bend.at(body.vertices_m)
    world = there @ body.rotation.T + body.translation_m
    local = (world - view.translation_m) @ view.rotation
    lens = view.lens
    picture = (lens.fx_px, lens.fy_px, lens.cx_px, lens.cy_px, lens.width_px, lens.height_px)
    depth, face = rasterise_depth(local, body.faces, *picture)
    drawn, seen = face >= 0, view.depth_m > 0
    both = drawn & view.body & seen
    off = np.clip((depth - view.depth_m)[both] * view.cosine[both], -cut_m, cut_m)
    tolerance = data.voxel_m + 3 * data.std_m
    hides = drawn & seen & ~view.body & (np.where(drawn, depth, np.inf) < view.depth_m - tolerance)
    rim = ndimage.generate_binary_structure(2, 2)
    missing = ndimage.binary_erosion(view.body, rim, iterations=_RIM_PX) & ~drawn
    hides &= ~ndimage.binary_dilation(view.body, rim, iterations=_RIM_PX)
    return off, int(missing.sum() + hides.sum()), int(view.body.sum())


def _stated(body: ScannedBody, judged: Judgement, others: list[ScannedBody]) -> ScannedBody:
    """The body with the deviation of its volume: the surface's own error, and what other priors would have made."""
    area = float(vertex_areas_m2(body.vertices_m, body.faces).sum())
    surface = area * _SHARED * float(np.hypot(judged.misfit_m, 0.1 * body.voxel_m))
    # A prior that the data support as well might be the right one: half as likely each as the chosen one.
    spread = [0.5 * (other.volume_m3 - body.volume_m3) ** 2 for other in others]
    fitted = body.volume_std_m3 or 0.0
    std = float(np.sqrt(surface**2 + fitted**2 + sum(spread) / (1 + 0.5 * len(others))))
    if judged.cost > 1:  # nothing fits well: what is unseen may be anything between half and all of it
        std = float(np.hypot(std, 0.3 * (1 - body.coverage) * body.volume_m3))
    note = f"closed by {body.prior.replace('_', ' ')}: {1e3 * judged.misfit_m:.1f} mm off what was seen"
    return replace(body, volume_std_m3=std, misfit_m=judged.misfit_m, notes=(*body.notes, note))


def checked_body(body: ScannedBody, judged: Judgement, data: ScanData) -> ScannedBody:
    """The body, or a ValueError that says why it will not do."""
    size, seen = np.ptp(body.vertices_m, axis=0), np.ptp(data.local_m, axis=0)
    limit_m = 3 * float(np.hypot(_MISFIT_VOXELS * data.voxel_m, _MISFIT_SIGMAS * data.std_m))
    why = ""
    if body.coverage < _LEAST_SEEN:
        why = f"only {body.coverage:.0%} of its surface was seen; move the camera nearer, or scan from several sides"
    elif (size[:2] > _LARGEST * seen[:2].max() + 2 * data.voxel_m).any():
        mm = " x ".join(f"{1e3 * side:.0f}" for side in size)
        why = f"it is {mm} mm, far more than was seen; scan from several sides, or crop to the object"
    elif judged.misfit_m > limit_m:
        why = (
            f"it lies {1e3 * judged.misfit_m:.1f} mm off what was seen, more than {1e3 * limit_m:.1f} mm; was the "
            "object still, and is it alone?"
        )
    elif judged.outline > 4 * _OUTLINE:
        why = f"{judged.outline:.0%} of the object's outline is wrong; was the object still, and is it alone?"
    if why:
        raise ValueError(f"this shape will not do: {why}")
    return body
