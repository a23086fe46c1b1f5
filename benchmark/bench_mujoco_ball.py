"""A ball that MuJoCo drops onto a plane, given to our estimator as clouds of one side of it.

python benchmark/bench_mujoco_ball.py [--speeds 0.6,0.2] [--spacing-mm 10] [--draws 3] [--noise-mm 0.5] [--workers 1]
                                      [--json FILE]

MuJoCo (`pip install -e '.[export-test]'`) simulates a flex: linear tetrahedra with lumped mass, the law of Saint Venant
and Kirchhoff, explicit steps, its own soft contact of vertices with the plane. Nothing of that is ours but where the
mesh's vertices lie at rest. Its law is not ours: compressed to λ of its length, a bar of Saint Venant and Kirchhoff
pushes back by E λ (1 + λ)(1 - λ)/2 where Hooke's, turned along, pushes by E (1 - λ): 14 % less at λ = 0.9, 28 % at 0.8.
Its vertices sink into the plane and leave it in their own way, too. What comes back is not MuJoCo's E to the last per
cent; how far off it is, and whether the interval says so, is what this shows.

Each draw picks points of the side that faces a camera, 90 frames a second from before the touch until the ball is in
the air again, and adds noise in all directions. E, ν and damping are estimated; density, plane and shape are held
where a user would have them, with the deviations that a scene states of itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import soft_estimator as se
from soft_estimator.export.asset import Asset, ContactPlane
from soft_estimator.export.mjcf import mjcf_text
from soft_estimator.geometry.isosurface_stuffing import tetrahedralise_volume

try:
    import mujoco
except ModuleNotFoundError as missing:
    print(f"left out: no module {missing.name}; pip install -e '.[export-test]'", file=sys.stderr)
    sys.exit(0)

RADIUS_M, GAP_M, FRAMES_PER_S, FRAMES, POINTS = 0.045, 0.003, 90.0, 14, 600
CENTRE_M, EYE_M = np.array([0.0, RADIUS_M + GAP_M, 0.0]), np.array([0.4, 0.2, 0.15])
TRUE = {"youngs_modulus_pa": 20e3, "poissons_ratio": 0.35, "stiffness_damping_s": 2e-3}
SCENE: dict[str, Any] = {
    "name": "ball of another solver",
    "body": {"shape": {"sphere": {"radius_m": RADIUS_M, "center_m": CENTRE_M.tolist()}}, "spacing_m": 0.009},
    "material": {**TRUE, "density_kg_m3": 400.0},
    "contact": {"stiffness_pa_per_m": "20 kPa/mm", "sharpness_per_m": "2 1/mm"},
    "time": {"step_s": 1 / 360, "duration_s": FRAMES / FRAMES_PER_S},
    "estimate": {"parameters": list(TRUE), "guess": {"youngs_modulus_pa": "40 kPa", "poissons_ratio": 0.3}},
}


@dataclass(frozen=True, eq=False)
class Motion:
    """rest_m: vertices, (V, 3). faces: of the surface, (F, 3). time_s: of the frames, (T,). u_m: there, (T, V, 3)."""

    rest_m: np.ndarray
    faces: np.ndarray
    time_s: np.ndarray
    u_m: np.ndarray


def scene_of(speed_m_s: float) -> dict[str, Any]:
    """The ball as the estimate has it."""
    return {**SCENE, "initial": {"velocity_m_s": [0, -speed_m_s, 0]}}


def dropped(speed_m_s: float, spacing_m: float, folder: Path) -> Motion:
    """MuJoCo's motion of the ball with tetrahedra of this size."""
    scene = se.read_scene(scene_of(speed_m_s))
    p, contact = scene.parameters, scene.config.contact
    assert contact is not None
    mesh = tetrahedralise_volume(scene.body.grid, scene.body.volume_m3, spacing_m)
    plane = ContactPlane(p.plane_normal, p.plane_offset_m, contact.stiffness_pa_per_m)
    asset = Asset("ball", mesh, np.zeros(len(mesh.elements), dtype=np.int64), p, plane, ())
    file = folder / f"ball_{speed_m_s:g}.xml"
    file.write_text(mjcf_text(asset).replace('priority="1"', 'priority="1" condim="1"'))  # without friction
    model = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(model)
    data.qvel[1::3] = -speed_m_s
    time_s, u_m = np.arange(1, FRAMES + 1) / FRAMES_PER_S, []
    before = data.qpos.copy()
    for wanted in time_s:
        while data.time < wanted:
            before, since = data.qpos.copy(), data.time
            mujoco.mj_step(model, data)
        share = (wanted - since) / (data.time - since)
        u_m.append(((1 - share) * before + share * data.qpos).reshape(-1, 3))
    return Motion(mesh.vertices_m, mesh.surface_faces(), time_s, np.stack(u_m))


def clouds(motion: Motion, noise_m: float, seed: int) -> list[tuple[float, np.ndarray, float]]:
    """Points of the side that faces the camera.

    A point is chosen on a facet at rest, put onto the sphere that the facet stands for, and moved as the facet is.
    """
    rng, out = np.random.default_rng(seed), []
    for time_s, u in zip(motion.time_s, motion.u_m, strict=True):
        corner = (motion.rest_m + u)[motion.faces]
        normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
        seen = np.maximum(np.einsum("fi,fi->f", normal, EYE_M - corner.mean(axis=1)), 0.0)
        face = rng.choice(len(seen), POINTS, p=seen / seen.sum())
        share = rng.dirichlet(np.ones(3), POINTS)
        rest, moved = (np.einsum("pk,pki->pi", share, x[motion.faces[face]]) for x in (motion.rest_m, u))
        away = rest - CENTRE_M
        on_sphere = CENTRE_M + RADIUS_M * away / np.linalg.norm(away, axis=1, keepdims=True)
        out.append((float(time_s), on_sphere + moved + noise_m * rng.normal(size=rest.shape), noise_m))
    return out


def trial(item: tuple[Motion, float, float, int]) -> dict[str, Any]:
    """One draw of points and noise, estimated."""
    motion, speed_m_s, noise_m, seed = item
    found = se.estimate(scene_of(speed_m_s), clouds(motion, noise_m, seed), backend="cpu")
    verdict = found.detail.posterior.verdict
    answers = {name: {"value": q.value, "std": q.std, "interval": q.interval} for name, q in found.items()}
    return {"seed": seed, "fits": verdict.fits, "reason": verdict.reason, "answers": answers}


def show(speed_m_s: float, squashed: float, rows: list[dict[str, Any]]) -> None:
    print(f"set off at {speed_m_s:g} m/s, squashed by {100 * squashed:.0f} %: {len(rows)} draws")
    for name, true in TRUE.items():
        value, std, low, high = (
            np.array([pick(r["answers"][name]) for r in rows])
            for pick in (
                lambda a: a["value"],
                lambda a: a["std"],
                lambda a: a["interval"][0],
                lambda a: a["interval"][1],
            )
        )
        held = ((low <= true) & (true <= high)).sum()
        print(
            f"  {name:20s} {100 * (value.mean() / true - 1):+6.1f} % (spread {100 * value.std() / true:.1f} %, "
            f"stated {100 * std.mean() / true:.1f} %, held {held} of {len(rows)})",
            flush=True,
        )
    wrong = sorted({r["reason"] for r in rows if not r["fits"]})
    print(f"  called a misfit: {sum(not r['fits'] for r in rows)} of {len(rows)} {'; '.join(wrong)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speeds", default="0.6,0.2", help="downwards, 3 mm above the plane [m/s]")
    parser.add_argument("--spacing-mm", type=float, default=10.0, help="of MuJoCo's tetrahedra")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--noise-mm", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    out = []
    with TemporaryDirectory() as folder:
        for speed_m_s in map(float, args.speeds.split(",")):
            motion = dropped(speed_m_s, 1e-3 * args.spacing_mm, Path(folder))
            height = np.ptp((motion.rest_m + motion.u_m)[..., 1], axis=1)
            items = [(motion, speed_m_s, 1e-3 * args.noise_mm, seed) for seed in range(args.draws)]
            if args.workers > 1:
                with get_context("spawn").Pool(args.workers) as pool:
                    rows = pool.map(trial, items)
            else:
                rows = [trial(item) for item in items]
            squashed = 1.0 - float(height.min()) / (2 * RADIUS_M)
            show(speed_m_s, squashed, rows)
            out.append({"speed_m_s": speed_m_s, "squashed": squashed, "draws": rows})
    if args.json:
        args.json.write_text(json.dumps(out, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
