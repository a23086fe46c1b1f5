"""Plain JSON: everything the other formats are made of, for whoever writes an own importer."""

from __future__ import annotations

import json
from typing import Any

from soft_estimator.export.asset import Asset


def json_text(asset: Asset) -> str:
    """The body as a JSON object; every key carries its unit."""
    p, mesh = asset.parameters, asset.mesh
    content: dict[str, Any] = {
        "name": asset.name,
        "remarks": list(asset.remarks),
        "vertices_m": mesh.vertices_m.tolist(),
        "tetrahedra": mesh.elements.tolist(),
        "surface_triangles": mesh.surface_faces().tolist(),
        "vertex_mass_kg": asset.vertex_masses_kg().tolist(),
        "region": asset.region.tolist(),
        "material": {
            "youngs_modulus_pa": p.youngs_modulus_pa.tolist(),
            "poissons_ratio": p.poissons_ratio,
            "density_kg_m3": p.density_kg_m3,
            "mass_damping_per_s": p.mass_damping_per_s,
            "stiffness_damping_s": p.stiffness_damping_s,
        },
        "gravity_m_s2": p.gravity_m_s2.tolist(),
        "contact_plane": None
        if asset.plane is None
        else {
            "normal": asset.plane.normal.tolist(),
            "offset_m": asset.plane.offset_m,
            "stiffness_pa_per_m": asset.plane.stiffness_pa_per_m,
            "friction_coefficient": asset.plane.friction,
        },
        "stable_step_s": asset.stable_step_s(),
    }
    return json.dumps(content, allow_nan=False) + "\n"
