"""Friction and obstacles in whole steps: states, gradients, tangents and the guard's sums are the CPU's."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from soft_estimator.backends.layout import POSE, place
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench, WrenchFrame
from soft_estimator.estimation.runs import FusedRun, PlainRun, run_through
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.live_path import LivePath
from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.energy import balance
from soft_estimator.physics.fused import FusedBatch, FusedSimulation, can_fuse
from soft_estimator.physics.fused_adjoint import FusedAdjoint
from soft_estimator.physics.fused_obstacles import ObstaclePoses, Touchable
from soft_estimator.physics.fused_tangent import FusedTangent
from soft_estimator.physics.gradient import ParameterGradient, shifted
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.solids import SHIFT, TURN, Field, HalfSpace, Round, SolidLaw
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent
from soft_estimator.physics.terms.contact import ContactLaw

STEPS = 3
SCHEMES = {"theta": theta_scheme(0.005), "hht": hht_scheme(0.005, -0.1)}
TURNED = rotation_matrix(np.array([0.3, -0.2, 0.5]))
NAMES = [
    *(("youngs_modulus_pa", 1), ("density_kg_m3", None), ("plane_normal", 0), ("plane_offset_m", None)),
    *(("translation_m", 2), ("velocity_m_s", 1), ("contact_stiffness_pa_per_m", None)),
    *(("contact_sharpness_per_m", None), ("friction_coefficient", None), ("obstacle_shift_m", 0)),
    *(("obstacle_shift_m", 1), ("stiffness_damping_s", None)),
]


def led(start, end):
    """From one place to another, with a turn."""
    turns = np.stack([TURNED, rotation_matrix(np.array([0.2, 0.4, -0.1])) @ TURNED])
    return PosePath(np.array([0.0, 0.1]), turns, np.array([start, end]))


def obstacle(solid, centre_m=(0.0, 0.0, 0.0), friction=None, path=None, own=True):
    place = SolidLaw(solid, TURNED, np.array(centre_m), path)
    return ContactLaw(1.5e6, 700.0, obstacle=place, friction=friction, own=own, slip_speed_m_s=0.05)


def around_the_ring():
    """One obstacle of each kind: against the torus' underside, its rim and its inside; some rub, some are led."""
    rising, nearing = led((-0.08, -0.019, 0), (-0.07, -0.01, 0)), led((0, -0.08, 0.08), (0, -0.07, 0.07))
    return {
        "ball": obstacle(Round((0.0, 0.0, 0.0), 0.03), (0.08, -0.1, 0.0), 0.3),
        "capsule": obstacle(Round((0.0, 0.0, 0.03), 0.02), friction=0.5, path=rising),
        "box": obstacle(Round((0.02, 0.01, 0.03), 0.004), (0.0, 0.01, 0.0), path=nearing),
        "wall": obstacle(HalfSpace(), (-0.09, -0.02, -0.137), 0.2),
        "field": obstacle(Field(sample(Sphere(0.03), 0.008, margin_cells=8)), (0.0, -0.059, -0.08), 0.4),
        "shared": obstacle(Round((0.0, 0.0, 0.0), 0.02), (0.06, -0.055, 0.05), own=False),
    }  # fmt: skip


# What more may place some of them: own shifts, own turns about points of theirs, the turn of all about one point.
PIVOT_M = np.array([-0.04, -0.03, -0.09])
OF_ALL = {"pivot_m": PIVOT_M}
POSED = {
    "ball": {
        "shifts": (SHIFT, "obstacle_0_shift_m"), "turn": "obstacle_0_turn_rad", "pivot_m": np.array([0.06, -0.05, 0.02])
    },
    "capsule": {"shifts": (SHIFT, "obstacle_1_shift_m")},  # which is led, as is the box
    "wall": OF_ALL,
    "field": OF_ALL,
    "shared": {"turn": "obstacle_5_turn_rad", "pivot_m": np.array([0.07, -0.06, 0.03])},
}  # fmt: skip
OWN = {
    TURN: (0.15, -0.1, 0.2),
    "obstacle_0_shift_m": (0.002, -0.001, 0.003),
    "obstacle_0_turn_rad": (-0.1, 0.2, 0.1),
    "obstacle_1_shift_m": (-0.001, 0.002, 0.001),
    "obstacle_5_turn_rad": (0.1, 0.1, -0.2),
}


def posed(model, parameters, kinds):
    """The scene with obstacles that are each somewhere else; what of OWN is a parameter of it, on top of a shift of
    all."""
    laws = [
        replace(law, obstacle=replace(law.obstacle, **POSED.get(name, {})))
        for name, law in zip([name for name in around_the_ring() if name in kinds], model.obstacles)
    ]
    model = replace(model, obstacles=tuple(laws))
    parameters = model.complete(parameters)
    own = {name: value for name, value in OWN.items() if name in parameters}
    return model, parameters.replace(obstacle_shift_m=(0.001, -0.002, 0.001), **own), tuple(own)


@pytest.fixture
def make(make_whole_scene):
    def scene(scheme, ground="contact", kinds=(), friction=0.4, dtype=np.float64, tolerance=1e-13):
        model, parameters = make_whole_scene(ground, dtype, tolerance)
        contact = model.contact and replace(model.contact, friction=friction, slip_speed_m_s=0.02)
        chosen = [law for name, law in around_the_ring().items() if name in kinds]
        return replace(model, integrator=SCHEMES[scheme], contact=contact, obstacles=tuple(chosen)), parameters

    return scene


def cost_bars(body):
    return np.random.default_rng(3).normal(size=(2, STEPS + 1, body.node_count, 3))


def gradient(adjoint, states, w):
    sim = adjoint.simulation
    bar = adjoint.zero_state()
    for k in range(STEPS, -1, -1):
        bar.u += sim.backend.to_device(w[0, k])
        bar.v += sim.backend.to_device(w[1, k])
        if k:
            bar, _ = adjoint.step_back(states[k - 1], states[k], bar)
    return adjoint.finish(bar)


def of_the_cpu(model, parameters, directions):
    """States, their changes along the directions at the end, and the gradient of a linear cost."""
    sim = Simulation(model, parameters)
    states, tangent = [sim.initial_state()], Tangent(sim, directions)
    changes = tangent.initial()
    for _ in range(STEPS):
        after, _, lin = sim.step_keeping(states[-1])
        assert not after.fallback_parts
        changes, _ = tangent.step(states[-1], after, lin, changes)
        states.append(after)
    return states, changes, gradient(Adjoint(sim), states, cost_bars(model.body))


def near(got, want, tolerance, what, least=0.0):
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want) + least, what


CASES = [
    ("theta", "contact", ()),
    ("hht", "explicit", ()),
    ("hht", "held contact", ("ball", "capsule", "box", "wall", "field", "shared")),
    ("theta", "moving contact", ("capsule", "field")),
]


@pytest.mark.parametrize(("scheme", "ground", "kinds"), CASES)
def test_states_gradient_and_tangent(whole, rounding, make, scheme, ground, kinds):
    model, parameters = make(scheme, ground, kinds)
    assert can_fuse(model, whole)
    compare_with_the_cpu(whole, rounding, model, parameters, kinds)


@pytest.mark.parametrize(("scheme", "ground"), [("hht", "held contact"), ("theta", "contact")])
def test_own_shifts_and_turns(whole, rounding, make, scheme, ground):
    """Of obstacles that rest, rub and are led; and of one whose stiffness is the ground's."""
    kinds = tuple(around_the_ring())
    model, parameters, own = posed(*make(scheme, ground, kinds), kinds)
    assert can_fuse(model, whole) and set(own) == set(OWN)
    compare_with_the_cpu(whole, rounding, model, parameters, kinds, own)


def test_slopes_by_shifts_and_turns_are_differences(whole, make):
    """Adjoint and tangent of a cost linear in all states agree along each of the parameters; along all of them at once,
    so far that each has the same part in it, they are its central difference over up to 1e-6 m or rad either way.

    Ten times as far that is 5e-5 of the slope off, which falls by the square: friction's smooth onset is 0.1 mm a step
    wide. Rounding is the rest."""
    kinds = tuple(around_the_ring())
    model, parameters, own = posed(*make("theta", "held contact", kinds), kinds)
    w = cost_bars(model.body)
    rng = np.random.default_rng(5)
    directions = []
    for name in (SHIFT, *own):
        directions.append(ParameterGradient.zero(2))
        setattr(directions[-1], name, rng.normal(size=3))

    def states_at(p):
        fused = FusedSimulation(model, p, whole)
        return fused, fused.roll(fused.initial_state(), STEPS)[0]

    def cost(p):
        parts = [(whole.to_host(at.u), whole.to_host(at.v)) for at in states_at(p)[1]]
        return sum(float((w[0, k] * u).sum() + (w[1, k] * v).sum()) for k, (u, v) in enumerate(parts))

    fused, states = states_at(parameters)
    by_adjoint, tangent = gradient(FusedAdjoint(fused), states, w), FusedTangent(fused, directions)
    changes = tangent.through(states, tangent.initial())
    slopes = []
    for j, d in enumerate(directions):
        found = [(whole.to_host(at[j].u), whole.to_host(at[j].v)) for at in changes]
        slopes.append(sum(float((w[0, k] * u).sum() + (w[1, k] * v).sum()) for k, (u, v) in enumerate(found)))
        assert abs(slopes[-1]) > 1e-3, d.values  # a test that can fail
        assert by_adjoint.dot(d) == pytest.approx(slopes[-1], rel=3e-6), d.values
    least, every = min(map(abs, slopes)), ParameterGradient.zero(2)
    for (name, d), slope in zip(zip((SHIFT, *own), directions), slopes):
        setattr(every, name, least / slope * getattr(d, name))
    ends = [cost(shifted(parameters, every, sign * 1e-6)) for sign in (1.0, -1.0)]
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(len(slopes) * least, rel=3e-6)


def compare_with_the_cpu(whole, rounding, model, parameters, kinds, own=()):
    """Returns the states of the whole steps."""
    names = [*NAMES, *((name, k) for name in own for k in (0, 2))]
    directions = [ParameterGradient.unit(2, *name) for name in names]
    states, changes, by_cpu = of_the_cpu(model, parameters, directions)
    fused = FusedSimulation(model, parameters, whole)
    rolled, reports = fused.roll(fused.initial_state(), STEPS)
    assert not any(state.fallback_parts for state in rolled) and not any(r.rescued for r in reports)
    for part in ("u", "v", "a"):
        pairs = [(whole.to_host(getattr(a, part)), getattr(b, part)) for a, b in zip(rolled, states)]
        near(*map(np.array, zip(*pairs)), rounding, part)
    tangent = FusedTangent(fused, directions)
    moved = tangent.initial()
    for before, after in pairwise(rolled):
        moved = tangent.step(before, after, moved)
    assert tangent.settled()
    for name, a, b in zip(names, moved, changes):
        assert np.any(b.u) or (not kinds and name[0] == "obstacle_shift_m"), name  # a test that can fail
        for part in ("u", "v", "a"):
            near(whole.to_host(getattr(a, part)), getattr(b, part), rounding, (name, part), 1e-14)
    found = gradient(FusedAdjoint(fused), rolled, cost_bars(model.body))
    for name in (*REGISTRY.names(), *own):
        near(getattr(found, name), getattr(by_cpu, name), rounding, name)
    return rolled


def test_steps_that_are_cut(whole, rounding, make):
    """Where something rubs a step is taken in parts, as on the CPU, and its derivatives go through these."""
    kinds = ("capsule", "wall", "shared")
    model, parameters, own = posed(*make("theta", "contact", kinds), kinds)
    model = replace(model, contact=replace(model.contact, friction=0.3, substeps=3))
    assert can_fuse(model, whole)
    states = compare_with_the_cpu(whole, rounding, model, parameters, kinds, own)
    assert [state.substeps for state in states[1:]] == [3] * STEPS
    uncut = FusedSimulation(replace(model, contact=replace(model.contact, substeps=1)), parameters, whole)
    off = states[-1].u - uncut.roll(uncut.initial_state(), STEPS)[0][-1].u
    assert float(abs(off).max()) > 1e-3 * float(abs(states[-1].u).max())  # a test that can fail


def test_only_what_rubs_is_cut(whole, make):
    """A body falls for some steps before it comes near the ground; a roll of all stops where the first is cut."""
    model, parameters = make("theta", "contact", ())
    model = replace(model, contact=replace(model.contact, friction=0.3, substeps=2))
    parameters = parameters.replace(translation_m=[0.0, 0.03, 0.0], velocity_m_s=[0.4, -1.0, 0.0])
    fused, plain = FusedSimulation(model, parameters, whole), Simulation(model, parameters)
    states, reports = fused.roll(fused.initial_state(), 2 * STEPS)
    at, cut = plain.initial_state(), []
    for state in states[1:]:
        at, _ = plain.step(at)
        cut.append(at.substeps)
        assert state.substeps == at.substeps and state.time_s == pytest.approx(at.time_s)
    assert cut[0] == 1 and cut[-1] == 2, cut
    assert len(reports) == 2 * STEPS
    near(whole.to_host(states[-1].u), at.u, 1e-8, "u")


def test_sums_are_the_energies(whole, make):
    """Contact's energy with all obstacles, and the work of those that are led, are what the terms say."""
    kinds = ("ball", "capsule", "box", "field")
    model, parameters, _ = posed(*make("hht", "contact", kinds), kinds)
    fused = FusedSimulation(model, parameters, whole)
    fused.batch.serve(fused)
    roll = fused.batch.roll([fused.initial_state()], 2)
    sums, states = whole.to_host(roll.guard)[:, 0], roll.states()
    plain = Simulation(model, parameters, whole)
    for row, state in zip(sums, states):
        assert row[5] == pytest.approx(balance(plain, state).contact_j, rel=1e-9)
    for row, (before, after) in zip(sums[1:], pairwise(states)):
        work = sum(term.work_j(before, after) for term in plain.terms)
        assert row[4] == pytest.approx(work, rel=1e-7) and abs(work) > 1e-6


def test_batch_equals_single_runs(whole, make):
    """Systems of a batch differ in friction, contact, shifts and turns; each is as if it ran alone, and its gradient,
    too."""
    kinds = ("ball", "capsule", "field", "shared")
    model, base, own = posed(*make("theta", "contact", kinds), kinds)
    direction = ParameterGradient.zero(2)
    direction.friction_coefficient, direction.contact_stiffness_pa_per_m = 0.1, 3e5
    direction.obstacle_shift_m[:] = (0.002, -0.001, 0.001)
    for name in own:
        setattr(direction, name, np.array(OWN[name]) * 0.2)
    sets = [shifted(base, direction, amount) for amount in np.linspace(0.0, 1.0, 4)]
    batch = FusedBatch(model, sets, whole)
    roll = batch.roll(batch.initial(), STEPS)
    ends = [whole.to_host(roll.u[-1, j]) for j in range(len(sets))]
    w = cost_bars(model.body)
    bars = whole.to_device(np.repeat(w[:, :, None], len(sets), axis=2))
    gradients, _ = batch.roll_back(roll, lambda k: (bars[0, k], bars[1, k], None))
    for j in (0, 2):
        fused = FusedSimulation(model, sets[j], whole)
        states, _ = fused.roll(fused.initial_state(), STEPS)
        near(ends[j], whole.to_host(states[-1].u), 1e-9, j)
        alone = gradient(FusedAdjoint(fused), states, w)
        for name in (SHIFT, *own):
            near(getattr(gradients[j], name), getattr(alone, name), 1e-8, (j, name))
    assert np.linalg.norm(ends[3] - ends[0]) > 1e-4 * np.linalg.norm(ends[0])


def test_readings_of_a_tool(whole, make):
    """Residuals, Jacobian and gradient of the forces on a tool that pushes and rubs, by E, μ and where the tool is."""
    model, parameters, _ = posed(*make("theta", "held contact", ("capsule",)), ("capsule",))
    names = ["youngs_modulus_pa", "friction_coefficient", "obstacle_shift_m", "obstacle_1_shift_m"]
    variables = make_variables(model.complete(parameters), names)
    theta, kinds, step_s = variables.start(), Kinds([ToolWrench(model)]), model.integrator.step_s
    std = np.array([0.1, 0.1, 0.1, 0.01, 0.01, 0.01])
    frames = [WrenchFrame(at * step_s, np.linspace(-1.0, 1.0, 6), std) for at in (1.0, 2.5)]
    directions = variables.directions(theta)
    backends = (Simulation(model, parameters).backend, whole)
    runs = [run_through(model, variables.parameters(theta), frames, directions, b, kinds) for b in backends]
    assert isinstance(runs[0], PlainRun) and isinstance(runs[1], FusedRun)
    cpu, fused = runs
    bar = np.cos(np.arange(12))
    near(np.concatenate(fused.residuals), np.concatenate(cpu.residuals), 1e-8, "residuals")
    for k, column in enumerate(cpu.jacobian.T):
        assert column.any()
        near(fused.jacobian[:, k], column, 1e-6, k)
    gradients = [run.gradient(bar) for run in runs]
    slopes = [np.array([sum(g.dot(d) for g in found) for d in directions]) for found in gradients]
    near(slopes[1], slopes[0], 1e-6, "gradient")
    near(slopes[1], cpu.jacobian.T @ bar, 1e-6, "adjoint and tangent")


def test_poses_that_come_in_later_are_not_those_of_before() -> None:
    """A tool's path goes on as it went until its next pose says otherwise; and times may count from another stamp."""
    path = LivePath("tool")
    path.extend([(0.0, np.eye(3), np.zeros(3)), (0.01, np.eye(3), np.array([0.01, 0.0, 0.0]))])
    touched = (Touchable(obstacle(Round((0.0, 0.0, 0.0), 0.03), path=path), presses=True, rubs=False),)
    poses, step = ObstaclePoses(touched, SCHEMES["theta"]), np.array([[0.01, 0.02]])
    x = place(POSE, "end_origin_m").start
    assert poses.of_steps(step)[0, 0, x] == pytest.approx(0.02)
    path.extend([(0.02, np.eye(3), np.array([0.0, 0.0, 0.0]))])
    assert poses.of_steps(step)[0, 0, x] == pytest.approx(0.0)
    path.since_s = -0.01
    assert poses.of_steps(step)[0, 0, x] == pytest.approx(0.01)


def test_what_whole_steps_do_not_know(whole, make):
    """Shapes of one's own and extrapolated contact of an obstacle take the loops one by one."""

    class Own(HalfSpace):
        pass

    model, _ = make("hht", "contact")
    for law in (obstacle(Own()), replace(obstacle(HalfSpace()), implicit=False)):
        assert not can_fuse(replace(model, obstacles=(law,)), whole)
        assert not can_fuse(replace(model, obstacles=(replace(law, friction=0.3),)), whole)
    again = replace(ContactLaw(1e6, 800.0), implicit=False)  # the same plane once more
    assert can_fuse(replace(model, obstacles=(replace(again, implicit=True),)), whole)
    assert not can_fuse(replace(model, obstacles=(again,)), whole)
