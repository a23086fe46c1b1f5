"""A ball that MuJoCo drops onto a plane, given to our estimator as clouds of one side of it.

python benchmark/bench_mujoco_ball.py [--speeds 0.6,0.2] [--spacing-mm 10] [--draws 3] [--noise-mm 0.5] [--causes]
                                      [--workers 1] [--json FILE]

MuJoCo 4 (`pip install -e '.[export-test]'`) simulates a flex: linear tetrahedra with lumped mass, the law of Saint
Venant and Kirchhoff, its own soft contact of vertices with the plane. Nothing of that is ours but where the mesh's
vertices lie at rest. What an exact solid would need for the same lowest free frequency is printed first, MuJoCo's own
effective E, mesh included. Its law is not ours: compressed to λ of its length, a bar of Saint Venant and Kirchhoff
pushes back by E λ (1 + λ)(1 - λ)/2 where Hooke's, turned along, pushes by E (1 - λ): 14 % less at λ = 0.9, 28 % at 0.8.
Its vertices sink into the plane, where our pressure begins a little above it. What comes back is not MuJoCo's E to the
last per cent; how far off it is, and whether the interval says so, is what this shows.

Each draw picks points of the side that faces a camera, 90 frames a second from before the touch until the ball is in
the air again, and adds noise in all directions. E, ν and damping are estimated; density, plane and shape are held
where a user would have them, with the deviations that a scene states of itself.

--causes takes the difference apart: points without noise, the same three numbers fitted to balls of MuJoCo's that
differ from ours by less and less, and to our own ball on half the spacing and with half the step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from mujoco_ball import CENTRE_M, RADIUS_M, TIMES_S, TRUE, Ball, Motion, dropped, effective_young_pa, scene_of

import soft_estimator as se
from soft_estimator.backends import choose_backend
from soft_estimator.estimation.fitting.least_squares import LeastSquaresSettings, fit
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.motion import displacements

POINTS, EYE_M = 600, np.array([0.4, 0.2, 0.15])
FIRST, OFFSET = "youngs_modulus_pa", "plane_offset_m"
# What MuJoCo simulates, or None for ourselves on a finer grid; the law it is fitted with; what is fitted beside TRUE.
CAUSES: tuple[tuple[str, Ball | None, str, tuple[str, ...]], ...] = (
    ("our own, finer", None, "corotated", ()),
    ("as it is", Ball(), "corotated", ()),
    ("plane found, too", Ball(), "corotated", (OFFSET,)),
    ("our contact", Ball(contact="ours"), "corotated", ()),
    ("our contact, 14 mm", Ball(0.014, contact="ours"), "corotated", ()),
    ("our contact, neo-Hookean", Ball(law="neo_hookean", contact="ours"), "neo_hookean", ()),
    ("our contact, neo-Hookean, 14 mm", Ball(0.014, "neo_hookean", "ours"), "neo_hookean", ()),
)


def clouds(motion: Motion, noise_m: float, seed: int) -> list[tuple[float, np.ndarray]]:
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
        out.append((float(time_s), on_sphere + moved + noise_m * rng.normal(size=rest.shape)))
    return out


def trial(item: tuple[Motion, float, float, int]) -> dict[str, Any]:
    """One draw of points and noise, estimated."""
    motion, speed_m_s, noise_m, seed = item
    found = se.estimate(scene_of(speed_m_s), clouds(motion, noise_m, seed), noise_m=noise_m, backend="cpu")
    verdict = found.detail.posterior.verdict
    answers = {name: {"value": q.value, "std": q.std, "interval": q.interval} for name, q in found.items()}
    return {"seed": seed, "fits": verdict.fits, "reason": verdict.reason, "answers": answers}


def our_own(speed_m_s: float) -> Motion:
    """The ball by our own simulation, on half the spacing and with half the step."""
    scene = se.read_scene(scene_of(speed_m_s, finer=2))
    simulation = Simulation(scene.model, scene.parameters, choose_backend("cpu"))
    rest_m = scene.body.surface_positions_m()
    u_m = [scene.body.surface_positions_m(u) - rest_m for u in displacements(simulation, list(TIMES_S))]
    return Motion(rest_m, scene.body.surface.faces, TIMES_S, np.stack(u_m))


def cause(item: tuple[int, float, float]) -> dict[str, Any]:
    """A row of CAUSES: what is fitted to points without noise, which weigh as if they had some."""
    row, speed_m_s, noise_m = item
    clock, (name, ball, law, more) = perf_counter(), CAUSES[row]
    motion = our_own(speed_m_s) if ball is None else dropped(speed_m_s, ball)
    scene = se.read_scene(scene_of(speed_m_s, law))
    variables = make_variables(scene.parameters, [*TRUE, *more])
    frames = [ObservedFrame.of(time_s, points, noise_m) for time_s, points in clouds(motion, 0.0, 0)]
    problem = Problem(scene.model, variables, frames, backend=choose_backend("cpu"))
    settings = LeastSquaresSettings(step_tolerance=2e-3)
    found = fit(problem, variables.start(), windows=[len(frames)], settings=settings).evaluation
    values = dict(zip(variables.labels, variables.natural(found.theta).tolist(), strict=True))
    return {
        "cause": name,
        "speed_m_s": speed_m_s,
        "squashed": motion.squashed,
        "values": values,
        "rms_mm": 1e3 * noise_m * float(np.sqrt((found.residual**2).mean())),
        "seconds": perf_counter() - clock,
    }


def show_cause(row: dict[str, Any]) -> None:
    found = [row["values"][next(k for k in row["values"] if k.startswith(name))] for name in TRUE]
    told = ", ".join(
        f"{name} {100 * (value / true - 1):+5.1f} %"
        for name, value, true in zip(("E", "ν", "α₂"), found, TRUE.values(), strict=True)
    )
    offset = f", plane {1e3 * row['values'][OFFSET]:+.2f} mm" if OFFSET in row["values"] else ""
    print(
        f"  {row['cause']:32s} {row['speed_m_s']:g} m/s, squashed by {100 * row['squashed']:4.1f} %: {told}{offset}; "
        f"rms {row['rms_mm']:.2f} mm ({row['seconds']:.0f} s)",
        flush=True,
    )


def show(speed_m_s: float, squashed: float, effective_pa: float, rows: list[dict[str, Any]]) -> None:
    print(f"set off at {speed_m_s:g} m/s, squashed by {100 * squashed:.0f} %: {len(rows)} draws")
    for name, true in TRUE.items():
        answers = [r["answers"][name] for r in rows]
        value, std = (np.array([a[key] for a in answers]) for key in ("value", "std"))
        low, high = np.array([a["interval"] for a in answers]).T
        held = ((low <= true) & (true <= high)).sum()
        beside = f"; {100 * (value.mean() / effective_pa - 1):+.1f} % of the effective E" if name == FIRST else ""
        print(
            f"  {name:20s} {100 * (value.mean() / true - 1):+6.1f} % (spread {100 * value.std() / true:.1f} %, "
            f"stated {100 * std.mean() / true:.1f} %, held {held} of {len(rows)}){beside}",
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
    parser.add_argument("--causes", action="store_true", help="what the difference comes from, without noise")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    speeds, noise_m, ball = (
        [float(v) for v in args.speeds.split(",")],
        1e-3 * args.noise_mm,
        Ball(1e-3 * args.spacing_mm),
    )
    effective_pa = effective_young_pa(ball)
    share = 100 * (effective_pa / TRUE[FIRST] - 1)
    print(
        f"E given to MuJoCo {TRUE[FIRST]:g} Pa; by its lowest free frequency {effective_pa:.0f} Pa, {share:+.1f} %",
        flush=True,
    )
    out: dict[str, Any] = {"effective_pa": effective_pa, "drops": [], "causes": []}
    for library in ("NUMBA", "OMP", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    with get_context("spawn").Pool(args.workers) as pool:
        if args.causes:
            longest_first = [(row, speed, noise_m) for row in reversed(range(len(CAUSES))) for speed in speeds]
            for row in pool.imap(cause, longest_first):
                show_cause(row)
                out["causes"].append(row)
        motions = pool.starmap(dropped, [(speed, ball) for speed in speeds]) if args.draws else []
        for speed, motion in zip(speeds, motions, strict=False):
            rows = pool.map(trial, [(motion, speed, noise_m, seed) for seed in range(args.draws)], chunksize=1)
            show(speed, motion.squashed, effective_pa, rows)
            out["drops"].append({"speed_m_s": speed, "squashed": motion.squashed, "draws": rows})
    if args.json:
        args.json.write_text(json.dumps(out, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
