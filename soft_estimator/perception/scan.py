"""A rest shape from a scan: static frames fused, the unseen closed by a prior, and how much was really seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.mesh_file import mesh_distance
from soft_estimator.geometry.shapes import refine
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3, vertex_areas_m2, vertex_normals
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.fusion import Field, View, fuse
from soft_estimator.perception.inner_balls import inner_balls, union_m
from soft_estimator.perception.objects import ObjectPoints, Why
from soft_estimator.perception.poisson import poisson_distance_m
from soft_estimator.perception.rest_shape import REFINEMENT, grid_with_cells
from soft_estimator.perception.scan_frames import Frame, ScanData, Support, gather
from soft_estimator.perception.settings import FinderSettings, NoiseSettings, ScanSettings
from soft_estimator.perception.symmetry import find_symmetry

# Of points that draw a surface to them: so many, in so many rounds; on a side that looks at the camera by this cosine;
# with neighbours whose normals differ by no more than that one; and as many of no opinion.
_MOST_POINTS, _DRAWINGS, _LEAST_FACING, _ALIKE, _FEW = 60_000, 2, 0.3, 0.5, 10.0
# What `fuse` takes beside the views: frame, lowest and highest corner, voxel, truncation, noise, node budget.
_Box = tuple[Frame, np.ndarray, np.ndarray, float, float, NoiseSettings, int]


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
        prior: what closed the unseen side: revolution, half_turn, mirror, balls, extrusion, poisson or none.
        volume_std_m3: standard deviation of the volume [m³]; None where it was not judged (see `choose_body`).
        misfit_m: how far the body, drawn as the cameras saw it, lies off what they saw [m]; None where not judged.
        detail: signed distance on the grid refined, for edges and thin parts.
        bent_std_m: how far off its surface may be [m], rms, since it was only seen bent by its weight.
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
    prior: str = ""
    volume_std_m3: float | None = None
    misfit_m: float | None = None
    detail: SignedDistanceGrid | None = None
    bent_std_m: float = 0.0


def with_cells(body: ScannedBody, cells: int) -> ScannedBody:
    """The same body on a grid of about so many cells."""
    grid, detail = _gridded(body.vertices_m, body.faces, cells)
    return replace(body, grid=grid, detail=detail)


def _gridded(vertices_m: np.ndarray, faces: np.ndarray, cells: int) -> tuple[SignedDistanceGrid, SignedDistanceGrid]:
    """φ of a closed mesh with about so many cells, and on that grid refined."""
    grid = grid_with_cells(vertices_m, faces, cells)
    return grid, refine(mesh_distance(vertices_m, faces), grid, REFINEMENT)


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
    settings = settings or ScanSettings()
    return close_body(gather(clouds, settings, finder or FinderSettings(), masks), settings)


def close_body(data: ScanData, settings: ScanSettings) -> ScannedBody:
    """A closed body from what was seen, the unseen closed by the prior of the settings."""
    views, frame, notes = data.views, data.frame, list(data.notes)
    grow = data.truncation_m + 2 * data.voxel_m
    low, high = data.local_m.min(axis=0) - grow, data.local_m.max(axis=0) + grow
    budget = (data.truncation_m, data.noise, settings.node_budget)
    reach = 0.6 * float(np.max((high - low)[:2])) * np.array([1.0, 1.0, 0.0])  # back as far as the body's shadow
    copies: list[View] = []
    if settings.prior == "symmetry":
        around = fuse(views, frame, low - reach, high + reach, data.voxel_m, *budget)
        symmetry = find_symmetry(around, data.local_m, settings.symmetry)
        notes.append(symmetry.described)
        copies = _symmetric_views(views, frame, symmetry.motions)
        mapped = np.concatenate([data.local_m @ q.T + b for q, b in symmetry.motions])
        low, high = np.minimum(low, mapped.min(axis=0) - grow), np.maximum(high, mapped.max(axis=0) + grow)
    elif settings.prior in ("none", "balls"):
        low, high = low - reach, high + reach
    box = (frame, low, high, data.voxel_m, *budget)
    real = _without_tables(fuse(views, *box), data, box)
    tables = [(support, fuse(support.others, *box).weight > 0) for support in data.supports]
    fused = fuse([*views, *copies], *box) if copies else real
    seen = fuse([view.of_body() for view in views], *box)
    truncation = data.truncation_m
    unknown = np.array(-truncation)
    if settings.prior == "extrusion":
        unknown = np.where(_columns(real, data.frames, frame)[:, :, None], -truncation, truncation)
    elif settings.prior == "poisson":
        unknown = np.clip(poisson_distance_m(real, views, frame, data.stands), -truncation, truncation)
    elif settings.prior == "balls":
        unknown = union_m(real, *inner_balls(real, seen, data.stands))
    return _finish(seen, fused, unknown, data, settings, notes, tables)


def _without_tables(field: Field, data: ScanData, box: _Box) -> Field:
    """A field in which the space below each of the tables that the object stood on is free, from a voxel on, and that
    just above them where they were seen bare."""
    free, unseen, h = field.free.copy(), field.weight == 0, field.spacing_m
    for support in data.supports:
        bare = fuse(support.own, *box)
        above = (bare.weight > 0) & (bare.total > 0.5 * h * bare.weight)
        free += len(data.views) * (unseen & (above | (field.heights_above_m(support.plane, support.bend) < -h)))
    return replace(field, free=free)


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
    data: ScanData,
    settings: ScanSettings,
    notes: list[str],
    tables: list[tuple[Support, np.ndarray]],
) -> ScannedBody:
    """tables: of sides that were joined, each with the nodes around which it was seen standing otherwise."""
    distance, stands = fused.distance_m, data.stands
    phi = np.where(np.isnan(distance), unknown, distance)
    if settings.prior == "balls":  # a trail of stray pixels along a ray touches no ball from within
        phi = np.fmax(phi, unknown - fused.spacing_m)
    if stands:
        # What shows the support and nothing of the body is outside: the support's noise would leave a film on it else.
        bare = (fused.weight > 0) & (seen_by.weight == 0) & (np.abs(fused.heights_m()) < fused.truncation_m)
        phi = np.where(bare, np.maximum(phi, 0.5 * fused.spacing_m), phi)
        phi = np.maximum(phi, -fused.heights_m())
    for support, otherwise in tables:
        below = np.minimum(-fused.heights_above_m(support.plane, support.bend), fused.truncation_m)
        phi = np.where(otherwise, phi, np.maximum(phi, below))
    phi = _without_fins(phi, fused)
    phi = _one_piece(phi, fused.truncation_m, near_surface(seen_by))
    rough = SignedDistanceGrid(phi, fused.origin_m, fused.spacing_m)
    surface = extract_surface(rough)
    vertices = surface.positions_m(rough.node_positions_m())
    grid, detail = _gridded(vertices, surface.faces, settings.target_cells)
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
        grid, vertices, surface.faces, seen, coverage, volume, *data.frame, fused.spacing_m, len(data.frames),
        tuple(notes), settings.symmetry if settings.prior == "symmetry" else settings.prior, detail=detail,
    )  # fmt: skip


def drawn_to_points(body: ScannedBody, data: ScanData, cells: int) -> ScannedBody:
    """The body with its surface moved along its normals to the mean of the points around, on about so many cells.

    What is seen free cuts into what is seen solid where views disagree by a part of a voxel: surfaces fused from all
    around lie 0.3 to 0.5 mm within their points (voxels of 4 mm), which lie on the true surface to 0.1 mm.
    """
    chosen = np.random.default_rng(0).permutation(len(data.local_m))[:_MOST_POINTS]
    points, toward, h = data.local_m[chosen], data.toward[chosen], body.voxel_m
    vertices = body.vertices_m
    for _ in range(_DRAWINGS):
        normals, tree = vertex_normals(vertices, body.faces), cKDTree(vertices)
        above, nearest = mesh_distance(vertices, body.faces)(points), tree.query(points)[1]
        own = (np.abs(above) < h) & ((normals[nearest] * toward).sum(axis=1) > _LEAST_FACING)
        if not own.any():
            return body
        total = np.bincount(nearest[own], weights=above[own], minlength=len(vertices))
        count = np.bincount(nearest[own], minlength=len(vertices)).astype(float)
        pair = tree.sparse_distance_matrix(tree, 2 * h, output_type="coo_matrix")
        alike = (normals[pair.row] * normals[pair.col]).sum(axis=1) > _ALIKE
        weight = alike * np.exp(-((pair.data / h) ** 2)) * (pair.row != pair.col)
        total += np.bincount(pair.row, weights=weight * total[pair.col], minlength=len(vertices))
        count += np.bincount(pair.row, weights=weight * count[pair.col], minlength=len(vertices))
        # Where few points are near, as far as everywhere else.
        off = (total + _FEW * np.median(above[own])) / (count + _FEW)
        vertices = vertices + normals * off[:, None]
    volume = mesh_volume_m3(vertices, body.faces)
    return with_cells(replace(body, vertices_m=vertices, volume_m3=volume), cells)


def _without_fins(phi: np.ndarray, fused: Field) -> np.ndarray:
    """φ without thin sheets that no view measured.

    Along the outline of the body a view cannot tell free space within a pixel. Where two views face each other, these
    uncertain sheets coincide and nothing else carves them away.
    """
    inside = phi < 0
    thick = ndimage.binary_opening(inside, ndimage.generate_binary_structure(3, 1), iterations=2)
    return np.where(inside & ~thick & (fused.weight == 0), 0.25 * fused.truncation_m, phi)


def _one_piece(phi: np.ndarray, truncation: float, seen: np.ndarray) -> np.ndarray:
    """φ with only the piece of inside that was seen most, without bubbles, and with outside all around.

    seen: nodes that a view measured near the body's surface, of φ's shape. A mirrored copy beside the body may be the
    larger piece, but no camera saw it.
    """
    phi = phi.copy()
    for axis in range(3):
        np.moveaxis(phi, axis, 0)[[0, -1]] = np.maximum(np.moveaxis(phi, axis, 0)[[0, -1]], 0.5 * truncation)
    label, count = ndimage.label(phi < 0)
    if count == 0:
        raise ValueError("the scan encloses no volume: too few frames, or a voxel larger than the object")
    around = ndimage.grey_dilation(label, size=3)  # what was measured just outside counts for its piece, too
    votes = np.bincount(around[seen], minlength=count + 1)[1:].astype(float)
    votes += np.bincount(label.ravel(), minlength=count + 1)[1:] / label.size  # where nothing was seen, the largest
    kept = int(np.argmax(votes)) + 1
    phi[(phi < 0) & (label != kept)] = 0.25 * truncation
    outside, _ = ndimage.label(phi >= 0)
    phi[(phi >= 0) & (outside != outside[0, 0, 0])] = -0.25 * truncation
    return phi


def _seen(body: Field, node_a: np.ndarray, node_b: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which surface vertices, each on an edge between two nodes, a view surely measured, and which probably.

    A node is near if it was measured no farther from the body's surface than a voxel. Where both nodes of an edge are,
    the surface surely crosses it; where only one is, it may be the rim of what was seen, or lead to another surface or
    to none. Noise breaks this here and there, so a vertex and its neighbours vote.
    """
    near = near_surface(body).ravel()
    surely = _voted(near[node_a] & near[node_b], faces, 0.4)
    return surely, surely | _voted(near[node_a] | near[node_b], faces, 0.5)


def near_surface(body: Field) -> np.ndarray:
    """Which nodes were measured no farther from the body's surface than a voxel, of the field's shape."""
    return (body.weight > 0) & (np.abs(body.total) <= body.spacing_m * body.weight)


def _voted(alone: np.ndarray, faces: np.ndarray, share: float) -> np.ndarray:
    """Vertices for which more than this share of themselves and their neighbours are in `alone`."""
    pairs = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])  # closed: each edge both ways
    votes = alone + np.bincount(pairs[:, 0], weights=alone[pairs[:, 1]], minlength=len(alone))
    return votes > share * (1 + np.bincount(pairs[:, 0], minlength=len(alone)))
