"""A rest shape from a scan: static frames fused, the unseen closed by a prior, and how much was really seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3, vertex_areas_m2
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.fusion import Field, View, fuse, make_view, ray_pitch
from soft_estimator.perception.objects import NothingFound, ObjectFinder, ObjectPoints, Why
from soft_estimator.perception.plane import PlaneFit
from soft_estimator.perception.poisson import poisson_distance_m
from soft_estimator.perception.rest_shape import grid_with_cells
from soft_estimator.perception.settings import FinderSettings, ScanSettings
from soft_estimator.perception.symmetry import find_symmetry

Frame = tuple[np.ndarray, np.ndarray]  # rotation and translation, body frame to fixed frame


@dataclass(frozen=True, eq=False)
class ScannedBody:
    """A body from a scan, in its own frame: z up from the support plane at z = 0.

    Attributes:
        grid: signed distance with about the wanted number of cells.
        vertices_m, faces: preview mesh, (nv, 3) [m] and (nf, 3), outward.
        seen: which of its vertices a camera surely saw, (nv,) bool.
        coverage: share of the surface's area that was really seen, its rim included.
        volume_m3: enclosed volume [m³].
        rotation, translation_m: body frame to fixed frame, (3, 3) and (3,) [m]: where it stood in the scan.
        voxel_m: voxel of the fusion [m].
        frames: frames that were fused.
        notes: what a reader should know.
    """

    grid: SignedDistanceGrid
    vertices_m: np.ndarray
    faces: np.ndarray
    seen: np.ndarray
    coverage: float
    volume_m3: float
    rotation: np.ndarray
    translation_m: np.ndarray
    voxel_m: float
    frames: int
    notes: tuple[str, ...] = ()


def fuse_scan(
    clouds: Iterable[Cloud],
    settings: ScanSettings | None = None,
    finder: FinderSettings | None = None,
    masks: Iterable[np.ndarray | None] | None = None,
) -> ScannedBody:
    """Fuse static frames, each with its camera's pose, into a closed body.

    Args:
        clouds: frames of the body at rest on its support, from one pose or several.
        masks: per frame, which points may belong to the object; see `ObjectFinder.process`.
    """
    settings, finder = settings or ScanSettings(), finder or FinderSettings()
    frames, notes = _find_in_frames(clouds, finder, masks)
    plane = _mean_plane([found.plane for _, found in frames if found.plane is not None])
    points = np.concatenate([found.points_m for _, found in frames])
    frame = _body_frame(plane, points)
    local = (points - frame[1]) @ frame[0]
    voxel, truncation, smooth = _resolution(frames, local, settings, finder)
    views = [_view(cloud, found, finder, smooth) for cloud, found in frames]
    grow = truncation + 2 * voxel
    low, high = local.min(axis=0) - grow, local.max(axis=0) + grow
    budget = (truncation, finder.noise, settings.node_budget)
    reach = 0.6 * float(np.max((high - low)[:2])) * np.array([1.0, 1.0, 0.0])  # back as far as the body's shadow
    copies: list[View] = []
    if settings.prior == "symmetry":
        around = fuse(views, frame, low - reach, high + reach, voxel, *budget)
        symmetry = find_symmetry(around, local, settings.symmetry)
        notes.append(symmetry.described)
        copies = _symmetric_views(views, frame, symmetry.motions)
        mapped = np.concatenate([local @ q.T + b for q, b in symmetry.motions])
        low, high = np.minimum(low, mapped.min(axis=0) - grow), np.maximum(high, mapped.max(axis=0) + grow)
    elif settings.prior == "none":
        low, high = low - reach, high + reach
    real = fuse(views, frame, low, high, voxel, *budget)
    fused = fuse([*views, *copies], frame, low, high, voxel, *budget) if copies else real
    seen = fuse([view.of_body() for view in views], frame, low, high, voxel, *budget)
    unknown = np.array(-truncation)
    if settings.prior == "extrusion":
        unknown = np.where(_columns(real, frames, frame)[:, :, None], -truncation, truncation)
    elif settings.prior == "poisson":
        unknown = np.clip(poisson_distance_m(real, views, frame, plane is not None), -truncation, truncation)
    return _finish(seen, fused, unknown, plane is not None, frame, settings, len(frames), notes)


def _find_in_frames(
    clouds: Iterable[Cloud], finder: FinderSettings, masks: Iterable[np.ndarray | None] | None
) -> tuple[list[tuple[Cloud, ObjectPoints]], list[str]]:
    frames: list[tuple[Cloud, ObjectPoints]] = []
    notes: list[str] = []
    last = "there are no frames"
    masks = iter(masks) if masks is not None else None
    # Pixels at grazing incidence complete the object in a single frame. In a field, where each stands for the space
    # before and behind it, they do more harm than good.
    search = ObjectFinder(replace(finder, steepest_incidence_rad=0.0))
    for index, cloud in enumerate(clouds):
        if frames and not np.allclose(frames[-1][0].rotation, cloud.rotation):
            search.forget()  # another pose sees another side: the piece's size does not carry over
        found = search.process(cloud, next(masks) if masks is not None else None)
        if isinstance(found, NothingFound):
            last = found.reason
            notes.append(f"frame {index} left out: {found.reason}")
        else:
            frames.append((cloud, found))
    if not frames:
        raise ValueError(f"no frame of the scan shows the object: {last}")
    return frames, notes


def _mean_plane(planes: list[PlaneFit]) -> np.ndarray | None:
    """Mean (n, d) of the frames' planes, (4,), None without any."""
    if not planes:
        return None
    row = np.mean([plane.as_row for plane in planes], axis=0)
    tilt = max(float(np.arccos(np.clip(plane.normal @ row[:3] / np.linalg.norm(row[:3]), -1, 1))) for plane in planes)
    if tilt > 0.09:
        raise ValueError(
            f"the frames' support planes differ by up to {np.degrees(tilt):.1f} degrees; check the camera poses"
        )
    return row / np.linalg.norm(row[:3])


def _body_frame(plane: np.ndarray | None, points: np.ndarray) -> Frame:
    """z along the plane's normal, origin on the plane under the middle of the points."""
    up = np.array([0.0, 0.0, 1.0]) if plane is None else plane[:3]
    side = np.eye(3)[int(np.argmin(np.abs(up)))]
    x = side - (side @ up) * up
    x /= np.linalg.norm(x)
    rotation = np.stack([x, np.cross(up, x), up], axis=1)
    middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
    if plane is not None:
        middle = middle - (up @ middle + plane[3]) * up
    return rotation, middle


def _resolution(
    frames: list[tuple[Cloud, ObjectPoints]], local: np.ndarray, settings: ScanSettings, finder: FinderSettings
) -> tuple[float, float, int]:
    """Voxel [m], truncation [m] and smoothing radius [px]: as fine as the pixels, no finer than the wanted cells
    need."""
    noise, depths, pitches = finder.noise, [], []
    for cloud, found in frames:
        depths.append(float(np.median((found.points_m - cloud.sensor_m) @ cloud.axis)))
        pitches.append(ray_pitch(cloud))
    depth = float(np.median(depths))
    std, pixel = noise.floor_m + noise.per_m * depth**2, float(np.median(pitches)) * depth
    extent = np.ptp(local, axis=0)
    cell = float((0.5 * np.prod(np.maximum(extent, 1e-6)) / settings.target_cells) ** (1 / 3))
    voxel = settings.voxel_m or float(np.clip(0.6 * cell, 1.5 * pixel, max(extent.max() / 12, 1.5 * pixel)))
    smooth = int(np.clip(np.ceil(voxel / max(pixel, 1e-9) - 0.5), 1, 4))
    return voxel, max(2.5 * voxel, 4 * std), smooth


def _view(cloud: Cloud, found: ObjectPoints, finder: FinderSettings, smooth_px: int) -> View:
    body, support = found.why == Why.KEPT, found.why == Why.PLANE
    ignored = (found.why == Why.FLYING) | (found.why == Why.SPECK) | (found.why == Why.NOT_MEASURED)
    return make_view(cloud, body, support, ignored, finder.noise, smooth_px)


def _symmetric_views(views: list[View], frame: Frame, motions: list[Frame]) -> list[View]:
    """Copies of the views moved by motions of the body frame."""
    copies = []
    for q, b in motions:
        turn = frame[0] @ q @ frame[0].T
        shift = frame[0] @ b + frame[1] - turn @ frame[1]
        copies += [view.seen_from(turn, shift) for view in views]
    return copies


def _columns(field: Field, frames: list[tuple[Cloud, ObjectPoints]], frame: Frame) -> np.ndarray:
    """(nx, ny): columns of nodes over which a point of the object was seen, with lost pixels filled in but not a
    ring's hole."""
    footprint = np.zeros(field.total.shape[:2], dtype=bool)
    for cloud, found in frames:
        points = (cloud.flat_m[found.why.ravel() == Why.KEPT] - frame[1]) @ frame[0]
        column = np.rint((points[:, :2] - field.origin_m[:2]) / field.spacing_m).astype(np.int64)
        column = np.clip(column, 0, np.array(footprint.shape) - 1)
        footprint[column[:, 0], column[:, 1]] = True
    holes = ndimage.binary_fill_holes(footprint) & ~footprint
    label, count = ndimage.label(holes)
    for hole in range(1, count + 1):
        if (label == hole).sum() <= max(4, 0.02 * footprint.sum()):
            footprint[label == hole] = True
    return footprint


def _finish(
    seen_by: Field,
    fused: Field,
    unknown: np.ndarray,
    stands: bool,
    frame: Frame,
    settings: ScanSettings,
    frames: int,
    notes: list[str],
) -> ScannedBody:
    distance = fused.distance_m
    phi = np.where(np.isnan(distance), unknown, distance)
    if stands:
        # What shows the support and nothing of the body is outside: the support's noise would leave a film on it else.
        bare = (fused.weight > 0) & (seen_by.weight == 0) & (np.abs(fused.heights_m()) < fused.truncation_m)
        phi = np.where(bare, np.maximum(phi, 0.5 * fused.spacing_m), phi)
        phi = np.maximum(phi, -fused.heights_m())
    phi = _without_fins(phi, fused)
    phi = _one_piece(phi, fused.truncation_m)
    rough = SignedDistanceGrid(phi, fused.origin_m, fused.spacing_m)
    surface = extract_surface(rough)
    vertices = surface.positions_m(rough.node_positions_m())
    grid = grid_with_cells(vertices, surface.faces, settings.target_cells)
    seen, probably = _seen(seen_by, surface.node_a, surface.node_b, surface.faces)
    above = (vertices[:, 2] >= 0.5 * fused.spacing_m) | (not stands)
    areas = vertex_areas_m2(vertices, surface.faces)
    coverage = float(np.sum(areas[probably & above])) / float(np.sum(areas))
    seen &= above
    volume = mesh_volume_m3(vertices, surface.faces)
    if settings.prior == "none" and coverage < 0.6:
        notes.append(
            f"only {coverage:.0%} of the surface was seen, and all unseen space counts as body; choose a prior"
        )
    return ScannedBody(
        grid, vertices, surface.faces, seen, coverage, volume, *frame, fused.spacing_m, frames, tuple(notes)
    )


def _without_fins(phi: np.ndarray, fused: Field) -> np.ndarray:
    """φ without thin sheets that no view measured.

    Along the outline of the body a view cannot tell free space within a pixel. Where two views face each other, these
    uncertain sheets coincide and nothing else carves them away.
    """
    inside = phi < 0
    thick = ndimage.binary_opening(inside, ndimage.generate_binary_structure(3, 1), iterations=2)
    return np.where(inside & ~thick & (fused.weight == 0), 0.25 * fused.truncation_m, phi)


def _one_piece(phi: np.ndarray, truncation: float) -> np.ndarray:
    """φ with only the largest piece of inside, without bubbles, and with outside all around."""
    phi = phi.copy()
    for axis in range(3):
        np.moveaxis(phi, axis, 0)[[0, -1]] = np.maximum(np.moveaxis(phi, axis, 0)[[0, -1]], 0.5 * truncation)
    label, count = ndimage.label(phi < 0)
    if count == 0:
        raise ValueError("the scan encloses no volume: too few frames, or a voxel larger than the object")
    largest = int(np.argmax(np.bincount(label.ravel())[1:])) + 1
    phi[(phi < 0) & (label != largest)] = 0.25 * truncation
    outside, _ = ndimage.label(phi >= 0)
    phi[(phi >= 0) & (outside != outside[0, 0, 0])] = -0.25 * truncation
    return phi


def _seen(body: Field, node_a: np.ndarray, node_b: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which surface vertices, each on an edge between two nodes, a view surely measured, and which probably.

    A node is near if it was measured no farther from the body's surface than a voxel. Where both nodes of an edge are,
    the surface surely crosses it; where only one is, it may be the rim of what was seen, or lead to another surface or
    to none. Noise breaks this here and there, so a vertex and its neighbours vote.
    """
    near = ((body.weight > 0) & (np.abs(body.total) <= body.spacing_m * body.weight)).ravel()
    surely = _voted(near[node_a] & near[node_b], faces, 0.4)
    return surely, surely | _voted(near[node_a] | near[node_b], faces, 0.5)


def _voted(alone: np.ndarray, faces: np.ndarray, share: float) -> np.ndarray:
    """Vertices for which more than this share of themselves and their neighbours are in `alone`."""
    pairs = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])  # closed: each edge both ways
    votes = alone + np.bincount(pairs[:, 0], weights=alone[pairs[:, 1]], minlength=len(alone))
    return votes > share * (1 + np.bincount(pairs[:, 0], minlength=len(alone)))
