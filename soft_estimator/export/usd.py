"""OpenUSD: a TetMesh with a volume-deformable material and the plane, as text (.usda).

The schemas are UsdGeom, UsdShade, UsdPhysics and the deformable schemas of the physics proposal, which Newton and Isaac
read: PhysicsDeformableBodyAPI, PhysicsVolumeDeformableSimAPI, PhysicsVolumeDeformableMaterialAPI. USD has no place for
Rayleigh damping and penalty stiffness; they stand under `softEstimator:`, as do the moduli that one solver of Newton's
needs instead of Lamé's (`neo_hookean_pa`).
"""

from __future__ import annotations

import numpy as np

from soft_estimator.export.asset import Asset
from soft_estimator.export.text import rotation_from_z, tuples
from soft_estimator.physics.parameters import lame


def usd_text(asset: Asset) -> str:
    """The stage as text."""
    regions = np.unique(asset.region)
    lines = [
        "#usda 1.0",
        "(",
        '    defaultPrim = "World"',
        f"    doc = {_quoted(chr(10).join(asset.remarks))}",
        "    kilogramsPerUnit = 1",
        "    metersPerUnit = 1",
        f'    upAxis = "{up_axis(asset.parameters.gravity_m_s2)}"',
        ")",
        "",
        'def Xform "World"',
        "{",
        *_indented(_scene(asset)),
        *_indented(_body(asset, regions)),
        *(line for k in regions for line in _indented(_material(asset, int(k)))),
        *_indented(_plane(asset)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def neo_hookean_pa(lam_pa: float, mu_pa: float) -> tuple[float, float]:
    """(k_lambda, k_mu) [Pa] with which the law of Newton's SolverSemiImplicit is Hooke's with λ, μ for small strains.

    Its energy is k_mu/2 (I - 3) - k_mu/2 log(I + 1) + k_lambda/2 (J - α)² (Smith et al. 2018, eq. 14), which at rest
    has μ = 3/4 k_mu and λ = k_lambda - 5/8 k_mu. Newton's importer gives it λ and μ themselves, and the body would
    swing 13 % too slowly. SolverVBD does this by itself.
    """
    return lam_pa + 5 / 6 * mu_pa, 4 / 3 * mu_pa


def up_axis(gravity_m_s2: np.ndarray) -> str:
    """Y or Z, the axes that USD knows, whichever gravity points down more; Z without gravity."""
    return "Y" if abs(gravity_m_s2[1]) > abs(gravity_m_s2[2]) else "Z"


def _scene(asset: Asset) -> list[str]:
    gravity = asset.parameters.gravity_m_s2
    size = float(np.linalg.norm(gravity))
    direction = gravity / size if size else np.array([0.0, 0.0, -1.0])
    return [
        'def PhysicsScene "PhysicsScene"',
        "{",
        f"    vector3f physics:gravityDirection = {tuples(direction[None])}",
        f"    float physics:gravityMagnitude = {size:.9g}",
        "}",
    ]


def _body(asset: Asset, regions: np.ndarray) -> list[str]:
    mesh = asset.mesh
    bounds = np.stack([mesh.vertices_m.min(axis=0), mesh.vertices_m.max(axis=0)])
    subsets = [line for k in regions for line in _subset(asset, int(k))] if len(regions) > 1 else []
    return [
        'def Xform "Body" (',
        '    prepend apiSchemas = ["PhysicsDeformableBodyAPI"]',
        ")",
        "{",
        '    def TetMesh "Tetrahedra" (',
        '        prepend apiSchemas = ["MaterialBindingAPI", "PhysicsVolumeDeformableSimAPI", "PhysicsCollisionAPI"]',
        "    )",
        "    {",
        f"        float3[] extent = [{tuples(bounds)}]",
        f"        rel material:binding:physics = </World/Material{regions[0]}>",
        '        uniform token orientation = "rightHanded"',
        f"        point3f[] points = [{tuples(mesh.vertices_m)}]",
        # a TetMesh's triangles are wound as its tetrahedra ask for: outward
        f"        int3[] surfaceFaceVertexIndices = [{tuples(mesh.surface_faces())}]",
        f"        int4[] tetVertexIndices = [{tuples(mesh.elements)}]",
        *(f"        {line}" for line in subsets),
        "    }",
        "}",
    ]


def _subset(asset: Asset, k: int) -> list[str]:
    chosen = ", ".join(map(str, np.flatnonzero(asset.region == k)))
    return [
        f'def GeomSubset "Region{k}" (',
        '    prepend apiSchemas = ["MaterialBindingAPI"]',
        ")",
        "{",
        '    uniform token elementType = "tetrahedron"',
        '    uniform token familyName = "materialBind"',
        f"    int[] indices = [{chosen}]",
        f"    rel material:binding:physics = </World/Material{k}>",
        "}",
    ]


def _material(asset: Asset, k: int) -> list[str]:
    p = asset.parameters
    lam, mu = (p.youngs_modulus_pa[k] * x for x in lame(p.poissons_ratio))
    k_lambda, k_mu = neo_hookean_pa(lam, mu)
    return [
        f'def Material "Material{k}" (',
        '    prepend apiSchemas = ["PhysicsMaterialAPI", "PhysicsVolumeDeformableMaterialAPI"]',
        ")",
        "{",
        f"    float physics:density = {p.density_kg_m3:.9g}",
        f"    float physics:poissonsRatio = {p.poissons_ratio:.9g}",
        f"    float physics:youngsModulus = {p.youngs_modulus_pa[k]:.9g}",
        f"    custom float softEstimator:massDampingPerS = {p.mass_damping_per_s:.9g}",
        f"    custom float softEstimator:semiImplicit:kLambda = {k_lambda:.9g}",
        f"    custom float softEstimator:semiImplicit:kMu = {k_mu:.9g}",
        f"    custom float softEstimator:stiffnessDampingS = {p.stiffness_damping_s:.9g}",
        "}",
    ]


def _plane(asset: Asset) -> list[str]:
    if asset.plane is None:
        return []
    size = 20.0 * float(np.ptp(asset.mesh.vertices_m, axis=0).max())
    turn = rotation_from_z(asset.plane.normal)
    rough = asset.plane.friction is not None
    binding = '"MaterialBindingAPI", ' if rough else ""
    return [
        *_friction(asset.plane.friction),
        'def Plane "Plane" (',
        f'    prepend apiSchemas = [{binding}"PhysicsCollisionAPI"]',
        ")",
        "{",
        *(["    rel material:binding:physics = </World/PlaneMaterial>"] if rough else []),
        '    uniform token axis = "Z"',
        f"    double length = {size:.9g}",
        f"    double width = {size:.9g}",
        f"    custom float softEstimator:stiffnessPaPerM = {asset.plane.stiffness_pa_per_m:.9g}",
        f"    quatd xformOp:orient = {tuples(turn[None])}",
        f"    double3 xformOp:translate = {tuples(asset.plane.point_m[None])}",
        '    uniform token[] xformOpOrder = ["xformOp:translate", "xformOp:orient"]',
        "}",
    ]


def _friction(coefficient: float | None) -> list[str]:
    """The plane's own material, where its friction is known: the same at rest as in motion."""
    if coefficient is None:
        return []
    return [
        'def Material "PlaneMaterial" (',
        '    prepend apiSchemas = ["PhysicsMaterialAPI"]',
        ")",
        "{",
        f"    float physics:dynamicFriction = {coefficient:.9g}",
        f"    float physics:staticFriction = {coefficient:.9g}",
        "}",
    ]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _quoted(text: str) -> str:
    return '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'
