"""The twin in the viewer's scene: smoothly shaded, coloured at its vertices, and without flicker."""

from __future__ import annotations

from typing import Any

import numpy as np
import trimesh

from soft_estimator.viewer.updates import MeshNow


class TwinDrawing:
    """The mesh twice: one is shown while the browser unpacks the other.

    Attributes:
        waiting: whether a mesh was sent that is not shown yet.
    """

    def __init__(self, scene: Any) -> None:
        self._scene, self.waiting = scene, False
        self._nodes: list[Any] = []

    def send(self, glb: bytes) -> None:
        """Send a mesh for the browser to unpack."""
        if len(self._nodes) < 2:
            self._nodes.insert(0, self._scene.add_glb(f"/twin/{len(self._nodes)}", glb, visible=False))
        else:
            self._nodes[0].glb_data = glb
        self.waiting = True

    def swap(self, visible: bool) -> None:
        """Show what was sent last instead of what was shown."""
        self._nodes.append(self._nodes.pop(0))
        self._nodes[-1].visible = visible
        if len(self._nodes) == 2:
            self._nodes[0].visible = False
        self.waiting = False

    def show(self, visible: bool) -> None:
        """Show it, or not."""
        if self._nodes:
            self._nodes[-1].visible = visible


class SharedCorners:
    """Triangles that come corner by corner, as a Marker has them, put together to a mesh.

    Corners of one vertex are equal; which ones are does not change while the body moves, so it is looked for once.
    """

    def __init__(self) -> None:
        self._count, self._first, self._faces = -1, np.zeros(0, np.int64), np.zeros((0, 3), np.int64)

    def mesh(self, corners_m: np.ndarray, tones: np.ndarray, name: str) -> MeshNow:
        """The mesh of corners (3 F, 3) [m] with tones (3 F, 3), or one tone (1, 3), in 0..1 under a name."""
        count = len(corners_m)
        if count == 0 or count % 3:
            raise ValueError(f"a mesh of {count} corners cannot be drawn; a list of triangles has three for each")
        if not np.isfinite(corners_m).all():
            raise ValueError("a mesh with NaN or infinite corners cannot be drawn; is the twin still finite?")
        if count != self._count:
            _, first, faces = np.unique(corners_m, axis=0, return_index=True, return_inverse=True)
            self._count, self._first, self._faces = count, first, faces.reshape(-1, 3)
        every = np.nan_to_num(tones[self._first] if len(tones) == count else np.tile(tones, (len(self._first), 1)))
        return MeshNow(corners_m[self._first], self._faces, {name: every})


def mesh_glb(mesh: MeshNow, colours: np.ndarray | None) -> bytes:
    """The mesh with vertex colours (V, 3) in 0..1 as binary glTF, which carries them smoothly shaded."""
    body = trimesh.Trimesh(np.asarray(mesh.vertices_m, dtype=np.float64), mesh.faces, process=False)
    tones = np.full((len(body.vertices), 3), 0.7) if colours is None else np.clip(colours, 0.0, 1.0)
    linear = np.where(tones <= 0.04045, tones / 12.92, ((tones + 0.055) / 1.055) ** 2.4)  # as glTF has colours
    rgba = np.concatenate([np.rint(255 * linear), np.full((len(tones), 1), 255)], axis=1).astype(np.uint8)
    body.visual = trimesh.visual.ColorVisuals(body, vertex_colors=rgba)
    data = body.export(file_type="glb", include_normals=True, tree_postprocessor=_as_rubber)
    assert isinstance(data, bytes)
    return data


def _as_rubber(tree: dict[str, Any]) -> None:
    """A matt material; without one glTF takes everything for metal."""
    tree["materials"] = [{"pbrMetallicRoughness": {"metallicFactor": 0.0, "roughnessFactor": 0.75}}]
    for mesh in tree["meshes"]:
        for primitive in mesh["primitives"]:
            primitive["material"] = 0
