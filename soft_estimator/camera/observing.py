"""Frames of observed points made from a simulated state: ideal points, or what depth cameras would see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.ndimage import maximum_filter, minimum_filter

from soft_estimator.camera.depth_sensor import DepthNoise, incidence_cosine
from soft_estimator.camera.pinhole import PinholeCamera, depth_image, points_from_depth
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.carried_surface import onto_surface
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.physics.body import Body

# A ray whose search ends farther off the surface than this part of a cell has not met it. Newton's steps along a ray
# either converge, to 1e-14 of a cell, or the ray grazes the outline and passes by at over 1e-4: of 53,000 rays in three
# scenes, at rest and deformed, with and without jitter, none ended between 1e-12 and 1e-4.
ON_SURFACE_CELLS = 1e-6
# A residual cannot be believed below this, even without noise: the arithmetic and the solver's tolerance stand behind
# it.
LEAST_STD_M = 1e-5
# Points seen at a more grazing angle than this are left out, as any depth pipeline does.
LEAST_COSINE = 0.35


class UnseenBody(ValueError):
    """No camera sees anything of the body."""


def surface_hits(
    camera: PinholeCamera, body: Body, field: CarriedField, u: np.ndarray, rays: np.ndarray, depth_m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where rays meet the deformed body: points (n, 3) [m] in the world, and whether each lies on the surface (n,).

    The body is where its carried distance field is zero, which residuals are measured to; its triangles, where the
    search along the rays starts, cut a curved surface short.

    Args:
        rays: in the camera frame, third component 1, (n, 3). depth_m: depth of the triangles along each, (n,).
    """
    start_m = camera.to_world_frame(rays * depth_m[:, None])
    hits = onto_surface(body, field, u, start_m, rays @ camera.rotation.T)
    off_m = np.abs(point_residuals(body, field, ObservedFrame.of(0.0, hits, 0.0), u).value_m)
    return hits, off_m < ON_SURFACE_CELLS * field.spacing_m


def surface_frame(
    time_s: float, body: Body, field: CarriedField, u: np.ndarray, count: int, std_m: float, rng: np.random.Generator
) -> ObservedFrame:
    """Points spread evenly over the whole deformed surface, with isotropic Gaussian noise."""
    vertices, faces = body.surface_positions_m(u), body.surface.faces
    corners = vertices[faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    chosen = corners[rng.choice(len(faces), count, p=area / area.sum())]
    points = onto_surface(body, field, u, np.einsum("nk,nka->na", rng.dirichlet(np.ones(3), count), chosen))
    return ObservedFrame.of(time_s, points + std_m * rng.normal(size=points.shape), max(std_m, LEAST_STD_M))


def camera_frame(
    time_s: float,
    body: Body,
    field: CarriedField,
    u: np.ndarray,
    cameras: Sequence[PinholeCamera],
    noise: DepthNoise | None,
    rng: np.random.Generator,
    budget: int | None = None,
    isotropic_std_m: float = 0.0,
) -> ObservedFrame:
    """What the cameras see together at one time.

    The rays' hits on the triangles are moved along the rays onto the surface that residuals are measured to, so that
    exact frames have no residual at the truth.

    Args:
        noise: of the depth images, None for exact ones. budget: most points to keep, drawn at random.
        isotropic_std_m: noise added to every point in all directions besides, as Weiss' thesis does.
    """
    parts = [_one_camera(camera, body, field, u, noise, rng) for camera in cameras]
    points, std, share, along = (np.concatenate([part[k] for part in parts]) for k in range(4))
    if len(points) == 0:
        raise UnseenBody(f"no camera sees the body at {time_s:g} s; turn a camera towards it")
    if budget is not None and len(points) > budget:
        keep = np.sort(rng.choice(len(points), budget, replace=False))
        points, std, share, along = points[keep], std[keep], share[keep], along[keep]
    if isotropic_std_m == 0:
        return ObservedFrame(float(time_s), points, std, share, None if noise is None else along)
    points = points + isotropic_std_m * rng.normal(size=points.shape)
    share = (share * std**2 + isotropic_std_m**2) / (std**2 + isotropic_std_m**2)
    return ObservedFrame(float(time_s), points, np.hypot(std, isotropic_std_m), share)


def away_from_edges(depth_m: np.ndarray, relative_step: float = 0.02) -> np.ndarray:
    """Pixels of a depth image (H, W) whose eight neighbours were all measured, without a jump in depth.

    Along an outline a camera sees the points its jitter throws outwards and loses those thrown inwards: what it reports
    there is off to one side, however many points there are.
    """
    low, high = minimum_filter(depth_m, 3, mode="nearest"), maximum_filter(depth_m, 3, mode="nearest")
    return (low > 0) & (high - low <= relative_step * high)


def _one_camera(
    camera: PinholeCamera,
    body: Body,
    field: CarriedField,
    u: np.ndarray,
    noise: DepthNoise | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 3), their deviation along the surface normal (n,), the share of curvature seen (n,), and the rays over
    their cosines to the normal, backwards (n, 3)."""
    depth = depth_image(camera, body.surface_positions_m(u), body.surface.faces)
    seen = depth > 0
    if not seen.any():
        return np.zeros((0, 3)), np.zeros(0), np.zeros(0), np.zeros((0, 3))
    # What a ray that only grazes the body hits on the triangles is no observation.
    hits, on = surface_hits(camera, body, field, u, camera.rays()[seen], depth[seen])
    depth[seen] = np.where(on, camera.to_camera_frame(hits)[:, 2], 0.0)
    if noise is None:
        hits = hits[on]
        return hits, np.full(len(hits), LEAST_STD_M), np.zeros(len(hits)), np.zeros_like(hits)
    cosine = incidence_cosine(camera, depth)
    measured = replace(noise, lateral_std_px=0.0).apply(
        _jittered_depth(camera, body, field, u, depth, noise.lateral_std_px, rng), camera, rng
    )
    kept = away_from_edges(measured) & (cosine > LEAST_COSINE)
    z, cos = measured[kept], cosine[kept]
    rays = camera.rays()[kept]
    length = np.linalg.norm(rays, axis=-1)
    along, across = noise.std_m(z, camera) * length, noise.lateral_std_px * z / camera.fx_px
    std = np.maximum(np.sqrt((along * cos) ** 2 + across**2 * (1 - cos**2)), LEAST_STD_M)
    # Along the ray the noise sees half of Δφ times tan²θ. A pixel that looks beside itself and reports the depth it
    # finds there on its own ray sees a convex surface too deep, by ½ across² Σ ∂²depth over both directions: half of Δφ
    # each, one of them over cos² for the slant.
    share = 0.5 * (cos**-2 - 1) - 0.5 * (across / std) ** 2 * (1 + cos**-2)
    backwards = -(rays / (length * cos)[:, None]) @ camera.rotation.T
    return points_from_depth(camera, np.where(kept, measured, 0.0)), std, share, backwards


def _jittered_depth(
    camera: PinholeCamera,
    body: Body,
    field: CarriedField,
    u: np.ndarray,
    depth: np.ndarray,
    std_px: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Depth where each pixel looks a little beside itself, by the rays themselves: interpolating between pixels would
    cut convex surfaces short.
    """
    if std_px == 0:
        return depth
    seen = depth > 0
    rays = camera.rays()[seen]
    rays[:, 0] += std_px * rng.standard_normal(len(rays)) / camera.fx_px
    rays[:, 1] += std_px * rng.standard_normal(len(rays)) / camera.fy_px
    hits, on = surface_hits(camera, body, field, u, rays, depth[seen])
    out = depth.copy()
    out[seen] = np.where(on, camera.to_camera_frame(hits)[:, 2], 0.0)
    return out
