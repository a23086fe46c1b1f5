"""A brick thrown onto a rough table (config/scenes/tumbling_brick.yaml): what its steps do, and what its clouds tell.

`adjoint`: what friction adds to the adjoint of the first 0.1 s, in which the brick lands, slides and leaves the table:
iterations a solve and CPU time a step, with friction and without, taken in turns. A step in substeps is compared with
one of a table whose coefficient is 0: as many solves, of matrices without friction. `--scene ball_on_ball` takes
another scene.

`steps`: where the brick's surface is after 0.2 s, in steps of 2 ms that are cut into 1 to 16 while it rubs, against
0.0625 ms all along, and the time that took. `answers`: E, damping and the coefficient of friction, together with start,
plane and contact, none of which is taken to be known, from clouds of a truth on half the spacing, in steps of 0.125 ms,
on a table twice as hard as the scene has it: a truth of our own simulator with another grid, other steps and another
table. Some four minutes of a core a draw.

    python benchmark/bench_friction.py adjoint
    python benchmark/bench_friction.py steps
    python benchmark/bench_friction.py answers --draws 4 --workers 2
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from multiprocessing import get_context
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from soft_estimator.backends import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.config_contact import FrictionConfig
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.estimate_setup import observe_truth

AFTER_S = 0.2
ASKED = ("youngs_modulus_pa[0]", "stiffness_damping_s", "friction_coefficient")
# Nothing that a user could not know is taken to be known.
MORE = (
    *("translation_m", "rotation_rad", "velocity_m_s", "angular_velocity_rad_s", "plane_normal", "plane_offset_m"),
    *("contact_sharpness_per_m", "contact_stiffness_pa_per_m"),
)
GUESS = {"contact_sharpness_per_m": 1500.0, "contact_stiffness_pa_per_m": 1.5e7}


def scene_of(step_s: float, substeps: int, *, finer: int = 1, harder: float = 1.0, seed: int = 0) -> Scene:
    """The scene in other steps, on cells a part as large, on a table so many times as hard."""
    config, folder = read_scene("tumbling_brick")
    contact, observe = config.contact, config.observe
    assert contact is not None and contact.friction is not None and config.body.spacing_m is not None
    assert observe is not None and observe.every_steps is not None
    rough = replace(contact.friction, substeps=substeps)
    every = round(observe.every_steps * config.time.step_s / step_s)
    config = replace(
        config,
        body=replace(config.body, spacing_m=config.body.spacing_m / finer),
        contact=replace(contact, friction=rough, stiffness_pa_per_m=harder * contact.stiffness_pa_per_m),
        time=replace(config.time, step_s=step_s),
        observe=replace(observe, every_steps=every, seed=seed),
    )
    return build_scene(config, folder)


def surface_after(scene: Scene) -> tuple[np.ndarray, float]:
    """The surface's places (T, 3) [m] after 0.2 s, and the seconds that took."""
    clock = perf_counter()
    (u,) = displacements(Simulation(scene.model, scene.parameters, choose_backend("cpu")), np.array([AFTER_S]))
    return scene.body.surface_positions_m(u), perf_counter() - clock


def show_steps() -> None:
    surface_after(scene_of(0.002, 1))  # compiled
    fine, _ = surface_after(scene_of(0.0000625, 1))
    print(f"surface after {AFTER_S:g} s, root mean square off steps of 0.0625 ms")
    for step_s, substeps in ((0.002, 1), (0.002, 4), (0.002, 8), (0.002, 16), (0.0005, 1), (0.00025, 1), (0.000125, 1)):
        at, seconds = surface_after(scene_of(step_s, substeps))
        off_m = np.sqrt(((at - fine) ** 2).sum(axis=1).mean())
        print(f"  {1e3 * step_s:5g} ms in {substeps:2d}   {1e3 * off_m:7.3f} mm   {seconds:5.2f} s", flush=True)


class Backwards(NamedTuple):
    """A motion's adjoint: iterations of a solve, and CPU time of a step [s]."""

    iterations: float
    seconds: float


def rubbing_scene(name: str, step_s: float, substeps: int, share: float | None) -> Scene:
    """A scene in other steps, with a share of its friction; None for none at all."""
    config, folder = read_scene(name)

    def rubs(given: FrictionConfig | None) -> FrictionConfig | None:
        if given is None or share is None:
            return None
        return replace(given, coefficient=share * given.coefficient, substeps=substeps)

    assert config.contact is not None
    config = replace(
        config,
        contact=replace(config.contact, friction=rubs(config.contact.friction)),
        obstacles=tuple(replace(o, friction=rubs(o.friction)) for o in config.obstacles),
        time=replace(config.time, step_s=step_s),
        observe=None,
        estimate=None,
    )
    return build_scene(config, folder)


def rolled(scene: Scene, duration_s: float) -> tuple[Simulation, list[State]]:
    simulation = Simulation(scene.model, scene.parameters, choose_backend("cpu"))
    states = [simulation.initial_state()]
    while states[-1].time_s < duration_s - 1e-9:
        states.append(simulation.step(states[-1])[0])
    return simulation, states


def backwards(simulation: Simulation, states: list[State]) -> Backwards:
    """The adjoint of ½ |u - u₀|², taken each 20 ms."""
    adjoint, iterations, solves = Adjoint(simulation), 0, 0
    every, bar, clock = round(0.02 / simulation.model.integrator.step_s), adjoint.zero_state(), process_time()
    for k in range(len(states) - 1, 0, -1):
        if k % every == 0:
            bar.u += states[k].u - states[0].u
        bar, report = adjoint.step_back(states[k - 1], states[k], bar)
        iterations, solves = iterations + report.iterations, solves + states[k].substeps
    return Backwards(iterations / solves, (process_time() - clock) / (len(states) - 1))


def show_adjoint(name: str, duration_s: float, turns: int) -> None:
    print(f"adjoint of {name}, first {duration_s:g} s, without and with friction: iterations a solve, CPU time a step")
    for step_s, substeps in ((0.002, 1), (0.0005, 1), (0.000125, 1), (0.002, 16)):
        without = None if substeps == 1 else 0.0
        motions = [rolled(rubbing_scene(name, step_s, substeps, share), duration_s) for share in (without, 1.0)]
        turned = zip(*([backwards(*motion) for motion in motions] for _ in range(turns)))
        (count, ms), (more, more_ms) = ((runs[0].iterations, 1e3 * min(r.seconds for r in runs)) for runs in turned)
        print(
            f"  {1e3 * step_s:5g} ms in {substeps:2d}   {count:5.2f} {more:5.2f}, {more / count:4.2f} times   "
            f"{ms:6.2f} {more_ms:6.2f} ms, {more_ms / ms:4.2f} times",
            flush=True,
        )


def asked_for(config: SceneConfig) -> SceneConfig:
    """With everything that is not known among what is estimated."""
    estimate = config.estimate
    assert estimate is not None
    more = replace(estimate, parameters=(*estimate.parameters, *MORE), guess=replace(estimate.guess, **GUESS))
    return replace(config, estimate=more)


def answer(seed: int) -> tuple[int, list[tuple[float, float]], str]:
    """Relative error and stated deviation of what is asked for, and what the fit says of itself."""
    cpu = choose_backend("cpu")
    truth = scene_of(0.000125, 1, finer=2, harder=2.0, seed=seed)
    frames = observe_truth(truth, carry_field(truth.body), cpu)
    given = scene_of(0.002, 16)
    result = estimate_scene(build_scene(asked_for(given.config), read_scene("tumbling_brick")[1]), cpu, frames=frames)
    found = {e.label: e for e in result.posterior.estimates}
    true = [float(np.ravel(getattr(truth.parameters, name.partition("[")[0]))[0]) for name in ASKED]
    rows = [(found[name].value / value - 1.0, found[name].std / value) for name, value in zip(ASKED, true)]
    verdict = result.posterior.verdict
    return seed, rows, "fits" if verdict.fits else verdict.reason


def show_answers(draws: int, first: int, workers: int) -> None:
    print("   seed   " + "".join(f"{name:>24s}" for name in ASKED))
    with get_context("spawn").Pool(workers) as pool:
        held = np.zeros(len(ASKED), dtype=int)
        for seed, rows, said in pool.imap_unordered(answer, range(first, first + draws)):
            print(
                f"   {seed:4d}   " + "".join(f"{100 * e:+12.1f} ± {100 * s:5.1f} %  " for e, s in rows) + said,
                flush=True,
            )
            held += [abs(e) <= 1.96 * s for e, s in rows]
    print("   inside 95 % " + "".join(f"{h:16d} of {draws}" for h in held))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("adjoint", "steps", "answers"), help="one of them")
    parser.add_argument("--scene", default="tumbling_brick", help="of `adjoint` (tumbling_brick)")
    parser.add_argument("--duration", type=float, default=0.1, help="of `adjoint` [s] (0.1)")
    parser.add_argument("--turns", type=int, default=3, help="of `adjoint` (3)")
    parser.add_argument("--draws", type=int, default=2, help="of the noise (2)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw (0)")
    parser.add_argument("--workers", type=int, default=1, help="draws at a time (1)")
    args = parser.parse_args()
    if args.what in (None, "adjoint"):
        show_adjoint(args.scene, args.duration, args.turns)
    if args.what in (None, "steps"):
        show_steps()
    if args.what in (None, "answers"):
        show_answers(args.draws, args.first, args.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
