"""Simulated depth cameras: a pinhole, the noise of a stereo RGB-D sensor, and the frames they give.

Camera frame as in ROS optical frames: x right, y down, z forward; pixel (u, v) has its centre at integer u, v. Depth is
measured along z, not along the ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from soft_estimator.backends.cpu.raster import rasterise_depth

Mesh = tuple[np.ndarray, np.ndarray]  # vertices in the world [m] (nv, 3), faces (nf, 3)


@dataclass(frozen=True, eq=False)
class PinholeCamera:
    """A pinhole camera and where it stands.

    Attributes:
        width_px, height_px: image size [px].
        fx_px, fy_px, cx_px, cy_px: focal lengths and principal point [px].
        position_m: optical centre in the world [m], shape (3,).
        rotation: camera frame to world, shape (3, 3).
    """

    width_px: int
    height_px: int
    fx_px: float
    fy_px: float
    cx_px: float
    cy_px: float
    position_m: np.ndarray
    rotation: np.ndarray

    def __post_init__(self) -> None:
        if self.width_px < 1 or self.height_px < 1:
            raise ValueError(f"image of {self.width_px}x{self.height_px} px: width_px and height_px must be at least 1")
        if not (self.fx_px > 0 and self.fy_px > 0):
            raise ValueError(f"focal lengths fx_px {self.fx_px}, fy_px {self.fy_px}: both must be positive")
        position = np.array(self.position_m, dtype=np.float64).reshape(3)
        rotation = np.array(self.rotation, dtype=np.float64).reshape(3, 3)
        if not np.isfinite(position).all():
            raise ValueError(f"camera position_m {position} is not finite: give three numbers in metres")
        if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-6) or np.linalg.det(rotation) < 0:
            raise ValueError(
                f"camera rotation {rotation.tolist()} is no rotation: give an orthonormal matrix with det +1"
            )
        position.flags.writeable = rotation.flags.writeable = False
        object.__setattr__(self, "position_m", position)
        object.__setattr__(self, "rotation", rotation)

    @classmethod
    def looking_at(
        cls,
        eye_m: Sequence[float] | np.ndarray,
        target_m: Sequence[float] | np.ndarray,
        up: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0),
        width_px: int = 640,
        height_px: int = 480,
        horizontal_fov_rad: float = 1.2,
    ) -> PinholeCamera:
        """A camera at eye_m [m] with target_m [m] in the image centre, `up` upwards in the image, square pixels."""
        if not 0 < horizontal_fov_rad < np.pi:
            raise ValueError(f"horizontal_fov_rad {horizontal_fov_rad} must lie between 0 and pi")
        eye = np.asarray(eye_m, dtype=np.float64)
        forward = np.asarray(target_m, dtype=np.float64) - eye
        right = np.cross(forward, np.asarray(up, dtype=np.float64))
        if np.linalg.norm(right) <= 1e-9 * np.linalg.norm(forward) * np.linalg.norm(up):
            raise ValueError(f"camera view {forward} and up {up} are parallel or zero: choose another up direction")
        forward = forward / np.linalg.norm(forward)
        right = right / np.linalg.norm(right)
        rotation = np.stack([right, np.cross(forward, right), forward], axis=1)
        focal_px = 0.5 * width_px / np.tan(0.5 * horizontal_fov_rad)
        centre_px = (0.5 * (width_px - 1), 0.5 * (height_px - 1))
        return cls(width_px, height_px, focal_px, focal_px, *centre_px, position_m=eye, rotation=rotation)

    def to_camera_frame(self, points_m: np.ndarray) -> np.ndarray:
        """World points [m] in the camera frame [m], shape (n, 3)."""
        return (np.asarray(points_m, dtype=np.float64) - self.position_m) @ self.rotation

    def to_world_frame(self, points_m: np.ndarray) -> np.ndarray:
        """Camera-frame points [m] in the world [m], shape (n, 3)."""
        return np.asarray(points_m, dtype=np.float64) @ self.rotation.T + self.position_m

    def rays(self) -> np.ndarray:
        """Ray of every pixel in the camera frame, third component 1, shape (height, width, 3); not to be written to."""
        return _rays(self.width_px, self.height_px, self.fx_px, self.fy_px, self.cx_px, self.cy_px)


@lru_cache(maxsize=4)  # each frame of a film asks for those of its cameras several times
def _rays(width_px: int, height_px: int, fx_px: float, fy_px: float, cx_px: float, cy_px: float) -> np.ndarray:
    u, v = np.meshgrid(np.arange(width_px), np.arange(height_px))
    rays = np.stack([(u - cx_px) / fx_px, (v - cy_px) / fy_px, np.ones(u.shape)], axis=-1)
    rays.flags.writeable = False
    return rays


def ring_of_cameras(
    count: int,
    target_m: Sequence[float] | np.ndarray,
    radius_m: float,
    height_m: float,
    up: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0),
    width_px: int = 640,
    height_px: int = 480,
    horizontal_fov_rad: float = 1.2,
    first_angle_rad: float = 0.0,
) -> tuple[PinholeCamera, ...]:
    """Cameras evenly spaced on a circle around the `up` axis through target_m, height_m above it, all looking at it."""
    if count < 1 or not radius_m > 0:
        raise ValueError(f"ring of {count} cameras, radius_m {radius_m}: both must be positive")
    axis = np.asarray(up, dtype=np.float64) / np.linalg.norm(up)
    side = np.eye(3)[np.argmin(np.abs(axis))]
    side = side - (side @ axis) * axis
    side /= np.linalg.norm(side)
    cameras = []
    for angle in first_angle_rad + 2 * np.pi * np.arange(count) / count:
        outward = np.cos(angle) * side + np.sin(angle) * np.cross(axis, side)
        eye = np.asarray(target_m, dtype=np.float64) + radius_m * outward + height_m * axis
        cameras.append(PinholeCamera.looking_at(eye, target_m, axis, width_px, height_px, horizontal_fov_rad))
    return tuple(cameras)


def depth_and_mesh_images(camera: PinholeCamera, meshes: Sequence[Mesh]) -> tuple[np.ndarray, np.ndarray]:
    """Depth [m] (0 where nothing) and index of the mesh seen (int32, -1 where nothing), shape (height, width) each."""
    counts = [len(faces) for _, faces in meshes]
    shifts = np.cumsum([0] + [len(vertices) for vertices, _ in meshes])
    vertices = np.concatenate([np.asarray(v, dtype=np.float64).reshape(-1, 3) for v, _ in meshes] or [np.empty((0, 3))])
    faces = [
        np.asarray(f, dtype=np.int64).reshape(-1, 3) + shift for (_, f), shift in zip(meshes, shifts, strict=False)
    ]
    depth, face = rasterise_depth(
        camera.to_camera_frame(vertices),
        np.concatenate(faces or [np.empty((0, 3), dtype=np.int64)]),
        camera.fx_px,
        camera.fy_px,
        camera.cx_px,
        camera.cy_px,
        camera.width_px,
        camera.height_px,
    )
    owner = np.append(np.repeat(np.arange(len(counts), dtype=np.int32), counts), np.int32(-1))  # face -1 finds the -1
    return np.where(face >= 0, depth, 0.0), owner[face]


def depth_image(camera: PinholeCamera, vertices_world_m: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Depth [m] of one mesh, shape (height, width), 0 where nothing."""
    return depth_and_mesh_images(camera, [(vertices_world_m, faces)])[0]


def points_from_depth(camera: PinholeCamera, depth_m: np.ndarray) -> np.ndarray:
    """World points [m] of the pixels with positive depth, row by row, shape (n, 3)."""
    seen = depth_m > 0
    if seen.shape != (camera.height_px, camera.width_px):
        raise ValueError(
            f"depth image {seen.shape} for a camera of {(camera.height_px, camera.width_px)}: sizes differ"
        )
    return camera.to_world_frame(camera.rays()[seen] * depth_m[seen][:, None])
