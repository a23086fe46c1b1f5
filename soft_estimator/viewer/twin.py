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
