"""Meshes, planes and poses as messages, and poses back."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from scipy.spatial.transform import Rotation
from shape_msgs.msg import Mesh, MeshTriangle
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker

from soft_estimator.geometry.rigid import quaternion


def mesh_marker(
    header: Header,
    vertices_m: np.ndarray,
    faces: np.ndarray,
    colours: np.ndarray,
    *,
    namespace: str,
    alpha: float = 1.0,
    lifetime_s: float = 0.0,
) -> Marker:
    """A TRIANGLE_LIST of vertices (V, 3) [m], faces (F, 3), and colours (V, 3) or one colour (3,), 0 to 1."""
    marker = Marker(header=header, ns=namespace, id=0, type=Marker.TRIANGLE_LIST, action=Marker.ADD)
    marker.scale.x = marker.scale.y = marker.scale.z = 1.0
    marker.pose.orientation.w = 1.0
    marker.lifetime.sec, marker.lifetime.nanosec = int(lifetime_s), int(1e9 * (lifetime_s % 1.0))
    order = np.asarray(faces).ravel().tolist()
    corners = [Point(x=x, y=y, z=z) for x, y, z in np.asarray(vertices_m, dtype=np.float64).tolist()]
    marker.points = [corners[i] for i in order]  # corners are shared: one object a vertex, not one a corner
    tones = np.asarray(colours, dtype=np.float64)
    if tones.ndim == 1:
        marker.color = ColorRGBA(r=tones[0], g=tones[1], b=tones[2], a=alpha)
        return marker
    marker.color = ColorRGBA(r=1.0, g=1.0, b=1.0, a=alpha)
    shades = [ColorRGBA(r=r, g=g, b=b, a=alpha) for r, g, b in np.clip(tones, 0.0, 1.0).tolist()]
    marker.colors = [shades[i] for i in order]
    return marker


def vertices_of(marker: Marker) -> np.ndarray:
    """The corners of a TRIANGLE_LIST, (3 F, 3) [m]."""
    return np.array([(p.x, p.y, p.z) for p in marker.points]).reshape(-1, 3)


def mesh_message(vertices_m: np.ndarray, faces: np.ndarray) -> Mesh:
    """A shape_msgs/Mesh."""
    return Mesh(
        triangles=[MeshTriangle(vertex_indices=face) for face in np.asarray(faces, dtype=np.uint32)],
        vertices=[Point(x=x, y=y, z=z) for x, y, z in np.asarray(vertices_m, dtype=np.float64).tolist()],
    )


def heat_colours(values: np.ndarray, top: float) -> np.ndarray:
    """Colours (n, 3) from blue (0) over green and yellow to red (`top` and above), grey where values are NaN."""
    share = np.clip(np.nan_to_num(values) / max(top, 1e-12), 0.0, 1.0)
    stops = np.array([0.0, 0.33, 0.66, 1.0])
    tones = np.array([[0.17, 0.35, 0.72], [0.25, 0.70, 0.45], [0.96, 0.83, 0.30], [0.84, 0.19, 0.15]])
    out = np.stack([np.interp(share, stops, tones[:, k]) for k in range(3)], axis=1)
    out[~np.isfinite(values)] = 0.6
    return out


def pose_of(rotation: np.ndarray, position_m: np.ndarray) -> Pose:
    """A pose from a rotation (3, 3) and a position (3,) [m]."""
    x, y, z, w = quaternion(rotation).tolist()
    px, py, pz = np.asarray(position_m, dtype=np.float64).tolist()
    return Pose(position=Point(x=px, y=py, z=pz), orientation=Quaternion(x=x, y=y, z=z, w=w))


def plane_pose(header: Header, normal: np.ndarray, offset_m: float, near_m: np.ndarray) -> PoseStamped:
    """The plane n·x + d = 0 as a pose: z along n, at the foot of a point near_m (3,) [m]."""
    unit = np.asarray(normal, dtype=np.float64) / np.linalg.norm(normal)
    foot = np.asarray(near_m) - (unit @ near_m + offset_m) * unit
    first = np.cross(unit, np.eye(3)[int(np.argmin(np.abs(unit)))])
    first /= np.linalg.norm(first)
    return PoseStamped(header=header, pose=pose_of(np.stack([first, np.cross(unit, first), unit], axis=1), foot))


def plane_of(message: PoseStamped) -> tuple[np.ndarray, float]:
    """Normal (3,) and offset [m] of a plane given as a pose."""
    q, p = message.pose.orientation, message.pose.position
    length = float(np.sqrt(q.x**2 + q.y**2 + q.z**2 + q.w**2))
    if not abs(length - 1.0) < 0.01 or not np.isfinite([p.x, p.y, p.z]).all():
        raise ValueError(f"the plane's pose has the quaternion {[q.x, q.y, q.z, q.w]}; give one of unit length")
    normal = Rotation.from_quat([q.x, q.y, q.z, q.w]).as_matrix()[:, 2]
    return normal, -float(normal @ [p.x, p.y, p.z])


def plane_marker(pose: PoseStamped, size_m: float, colour: tuple[float, float, float, float]) -> Marker:
    """A thin square plate on a plane."""
    marker = Marker(header=pose.header, ns="contact_plane", id=0, type=Marker.CUBE, action=Marker.ADD, pose=pose.pose)
    marker.scale.x = marker.scale.y = float(size_m)
    marker.scale.z = 0.001
    marker.color = ColorRGBA(r=colour[0], g=colour[1], b=colour[2], a=colour[3])
    return marker
