"""The USD stage as OpenUSD reads it, and the body in Newton."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ball_modes import crossing_hz, our_first_hz, torsion_hz, torsion_shape
from export_results import RADIUS_M, free_ball, write_result
from tiny_ball import scene_of

from soft_estimator.export import export
from soft_estimator.export.usd import neo_hookean_pa

pxr = pytest.importorskip("pxr", reason="needs OpenUSD: pip install -e '.[export-test]'")


def open_stage(path: Path) -> Any:
    from pxr import Usd

    return Usd.Stage.Open(str(path))


def test_the_stage_says_units_and_axes_and_holds_the_body(tmp_path: Path) -> None:
    """Metres, kilograms, gravity and up axis of the scene; points to float32's 6e-8; triangles as USD finds them."""
    from pxr import UsdGeom, UsdPhysics, UsdShade

    scene = scene_of(gravity_m_s2=[0, 0, -9.81])
    summary = export(write_result(tmp_path, scene), "usd", tmp_path)
    stage = open_stage(tmp_path / "tiny_ball.usda")
    assert UsdGeom.GetStageMetersPerUnit(stage) == 1 and UsdPhysics.GetStageKilogramsPerUnit(stage) == 1
    assert UsdGeom.GetStageUpAxis(stage) == "Z" and "units: m, kg, s" in stage.GetRootLayer().documentation
    physics = UsdPhysics.Scene(stage.GetPrimAtPath("/World/PhysicsScene"))
    assert tuple(physics.GetGravityDirectionAttr().Get()) == (0, 0, -1)
    assert physics.GetGravityMagnitudeAttr().Get() == pytest.approx(9.81)
    mesh = UsdGeom.TetMesh(stage.GetPrimAtPath("/World/Body/Tetrahedra"))
    points, elements = np.array(mesh.GetPointsAttr().Get()), np.array(mesh.GetTetVertexIndicesAttr().Get())
    assert len(points) == summary["mesh"]["vertices"] and len(elements) == summary["mesh"]["tetrahedra"]
    a, b, c, d = (points[elements[:, k]].astype(float) for k in range(4))
    volumes = np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a)) / 6
    assert volumes.min() > 0 and volumes.sum() == pytest.approx(scene.body.volume_m3, rel=1e-5)
    triangles = np.array(UsdGeom.TetMesh.ComputeSurfaceFaces(mesh))
    written = np.array(mesh.GetSurfaceFaceVertexIndicesAttr().Get())
    assert as_set(triangles) == as_set(written)
    assert np.array(mesh.GetExtentAttr().Get()) == pytest.approx(np.stack([points.min(0), points.max(0)]))
    material, _ = UsdShade.MaterialBindingAPI(mesh.GetPrim()).ComputeBoundMaterial("physics")
    prim = material.GetPrim()
    assert prim.GetAttribute("physics:youngsModulus").Get() == pytest.approx(30e3)
    assert prim.GetAttribute("physics:poissonsRatio").Get() == pytest.approx(0.4)
    assert prim.GetAttribute("softEstimator:stiffnessDampingS").Get() == pytest.approx(1e-3)


def as_set(triangles: np.ndarray) -> set[tuple[int, ...]]:
    """Triangles by their corners, turned so that the smallest comes first: the same only if wound alike."""
    first = triangles.argmin(axis=1)
    return {tuple(np.roll(t, -k).tolist()) for t, k in zip(triangles, first)}


def test_the_plane_lies_where_it_was_estimated(tmp_path: Path) -> None:
    """The prim's z axis is n, and its origin solves n·x + d = 0, to the nine digits of the file."""
    from pxr import UsdGeom

    normal = np.array([0.2, 1.0, -0.3]) / np.linalg.norm([0.2, 1.0, -0.3])
    scene = scene_of(contact={"normal": normal.tolist(), "offset_m": -0.07})
    export(write_result(tmp_path, scene), "usd", tmp_path, spacing_m=0.03)
    stage = open_stage(tmp_path / "tiny_ball.usda")  # kept: its prims die with it
    prim = stage.GetPrimAtPath("/World/Plane")
    matrix = np.array(UsdGeom.Xformable(prim).GetLocalTransformation())  # rows, as USD keeps them
    assert matrix[2, :3] == pytest.approx(normal, abs=1e-8)
    assert normal @ matrix[3, :3] - 0.07 == pytest.approx(0, abs=1e-9)


ROUGH = {"stiffness_pa_per_m": "20 kPa/mm", "friction": {"coefficient": 0.35}}


def test_the_plane_s_friction_is_that_of_its_material(tmp_path: Path) -> None:
    from pxr import UsdPhysics, UsdShade

    export(write_result(tmp_path, scene_of(contact=ROUGH)), "usd", tmp_path, spacing_m=0.04)
    stage = open_stage(tmp_path / "tiny_ball.usda")
    binding = UsdShade.MaterialBindingAPI(stage.GetPrimAtPath("/World/Plane"))
    physics = UsdPhysics.MaterialAPI(binding.ComputeBoundMaterial("physics")[0].GetPrim())
    assert physics.GetDynamicFrictionAttr().Get() == pytest.approx(0.35)
    assert physics.GetStaticFrictionAttr().Get() == pytest.approx(0.35)


def test_two_materials_are_bound_to_their_tetrahedra(tmp_path: Path) -> None:
    from pxr import UsdGeom, UsdShade

    edge_m = 0.0013  # between the centres of tetrahedra, so that float32 puts none on the other side
    soft = {"low_m": [-1, -1, -1], "high_m": [edge_m, 1, 1], "youngs_modulus_pa": 2e3}
    export(write_result(tmp_path, free_ball("20 mm", regions=[soft])), "usd", tmp_path)
    stage = open_stage(tmp_path / "free_ball.usda")
    mesh = UsdGeom.TetMesh(stage.GetPrimAtPath("/World/Body/Tetrahedra"))
    points, elements = np.array(mesh.GetPointsAttr().Get()), np.array(mesh.GetTetVertexIndicesAttr().Get())
    left = points[elements].mean(axis=1)[:, 0] < edge_m
    for subset in UsdGeom.Subset.GetAllGeomSubsets(mesh):
        chosen = np.zeros(len(elements), dtype=bool)
        chosen[np.array(subset.GetIndicesAttr().Get())] = True
        material, _ = UsdShade.MaterialBindingAPI(subset.GetPrim()).ComputeBoundMaterial("physics")
        young = material.GetPrim().GetAttribute("physics:youngsModulus").Get()
        assert np.array_equal(chosen, left if young == 2e3 else ~left)


def test_the_moduli_of_the_neo_hookean_law_are_hooke_s_at_rest() -> None:
    """P = k_mu F (1 - 1/(I + 1)) + k_lambda (J - α) ∂J/∂F with α = 1 + 3/4 k_mu/k_lambda: its derivative at F = 1 is
    λ tr ε + 2 μ ε, by central differences of 1e-5, good to 1e-9 of the moduli."""
    lam, mu = 700.0, 300.0
    k_lambda, k_mu = neo_hookean_pa(lam, mu)
    alpha = 1 + k_mu / k_lambda - k_mu / (4 * k_lambda)

    def stress(f: np.ndarray) -> np.ndarray:
        cofactor = np.linalg.det(f) * np.linalg.inv(f).T
        return k_mu * f * (1 - 1 / (np.sum(f**2) + 1)) + k_lambda * (np.linalg.det(f) - alpha) * cofactor

    assert stress(np.eye(3)) == pytest.approx(np.zeros((3, 3)), abs=1e-9 * lam)
    for strain in (np.diag([1.0, 0, 0]), np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])):
        slope = (stress(np.eye(3) + 1e-5 * strain) - stress(np.eye(3) - 1e-5 * strain)) / 2e-5
        assert slope == pytest.approx(lam * np.trace(strain) * np.eye(3) + 2 * mu * strain, abs=1e-6 * lam)


def newton_model(path: Path) -> Any:
    newton = pytest.importorskip("newton", reason="needs Newton: pip install -e '.[export-test]'")
    pytest.importorskip("newton_usd_schemas", reason="needs Newton's schemas: pip install -e '.[export-test]'")
    builder = newton.ModelBuilder()
    builder.default_particle_radius = 1e-4  # by default 0.1 m: vertices closer than that would push each other apart
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Newton's own
        builder.add_usd(str(path))
    return builder.finalize(device="cpu")


def test_newton_reads_mass_and_moduli(tmp_path: Path) -> None:
    """Σ m = ρ V and Lamé's moduli of every tetrahedron, to float32; the plane is a shape, as rough as estimated."""
    scene = scene_of(gravity_m_s2=[0, 0, -9.81], contact=ROUGH)
    summary = export(write_result(tmp_path, scene), "usd", tmp_path, spacing_m=0.03)
    model = newton_model(tmp_path / "tiny_ball.usda")
    assert model.tet_count == summary["mesh"]["tetrahedra"] and model.particle_count == summary["mesh"]["vertices"]
    assert model.particle_mass.numpy().sum() == pytest.approx(scene.mass_kg, rel=1e-4)
    moduli = model.tet_materials.numpy()
    assert moduli[:, 0] == pytest.approx(30e3 / 2.8, rel=1e-5)
    assert moduli[:, 1] == pytest.approx(30e3 * 0.4 / (1.4 * 0.2), rel=1e-5)
    assert model.shape_count == 1 and model.shape_material_mu.numpy()[0] == pytest.approx(0.35)


def test_the_first_frequency_in_newton_is_ours(tmp_path: Path) -> None:
    """Released from 1 % of torsion, by explicit steps: within 5 % of ours. The tetrahedra of 20 mm are 4.4 % below the
    closed form, in MuJoCo as here; Newton's float32 and steps add no more than 0.3 %."""
    newton = pytest.importorskip("newton", reason="needs Newton: pip install -e '.[export-test]'")
    scene = free_ball()
    summary = export(write_result(tmp_path, scene), "usd", tmp_path, spacing_m=0.02)
    path = tmp_path / "free_ball.usda"
    model = newton_model(path)
    stage = open_stage(path)
    material = stage.GetPrimAtPath("/World/Material0")
    moduli = model.tet_materials.numpy()
    moduli[:, 0] = material.GetAttribute("softEstimator:semiImplicit:kMu").Get()
    moduli[:, 1] = material.GetAttribute("softEstimator:semiImplicit:kLambda").Get()
    model.tet_materials.assign(moduli)
    model.set_gravity((0.0, 0.0, 0.0))
    solver = newton.solvers.SolverSemiImplicit(model, enable_tri_contact=False)
    now, after, control = model.state(), model.state(), model.control()
    rest = model.particle_q.numpy()
    u = torsion_shape(rest.astype(float), RADIUS_M, 1e-2)
    now.particle_q.assign((rest + u).astype(np.float32))
    weight = model.particle_mass.numpy()[:, None] * u
    exact, step_s = torsion_hz(8e3, 0.3, 1000.0, RADIUS_M), summary["mesh"]["stable_step_s"]
    time_s = np.arange(0, 1.5 / exact, step_s)
    along = np.empty(len(time_s))
    for k in range(len(time_s)):
        along[k] = np.sum(weight * (now.particle_q.numpy() - rest))
        now.clear_forces()
        solver.step(now, after, control, None, step_s)
        now, after = after, now
    found = crossing_hz(time_s, along)
    assert found == pytest.approx(our_first_hz(scene), rel=0.05)
    assert found / exact == pytest.approx(1 - 0.044, abs=0.003)
