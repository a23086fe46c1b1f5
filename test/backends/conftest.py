"""Backends, bodies and scenes that these tests share: small, with cut cells, held nodes and contact."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.backends import choose_backend
from soft_estimator.backends.reference import ReferenceBackend
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.terms.contact import ContactLaw

MOVING = RigidPath(np.array([0.0, 0.1]), np.array([[0, 0, 0], [0.01, 0.004, 0]]), np.array([[0, 0, 0], [0, 0, 0.4]]))
ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The CPU simulates in double precision alone; only its loose solves of several columns are compiled for float32,
    and have a test of their own in test_loops."""
    items[:] = [item for item in items if not _on_the_cpu_in_float32(item)]


def _on_the_cpu_in_float32(item: pytest.Item) -> bool:
    values = getattr(getattr(item, "callspec", None), "params", {})
    return values.get("fast") == "cpu" and np.float32 in (values.get("arrays"), values.get("real"))


@pytest.fixture(scope="session")
def reference():
    """The oracle."""
    return ReferenceBackend()


@pytest.fixture(scope="session", params=["cpu", ON_GPU])
def fast(request):
    """Each backend that is compared with the oracle, loop by loop."""
    return choose_backend(request.param)


@pytest.fixture(scope="session", params=["reference", ON_GPU])
def whole(request):
    """Each backend that runs whole steps."""
    return choose_backend(request.param)


@pytest.fixture(scope="session")
def cuda():
    return choose_backend("cuda")


def torus_of(spacing_m):
    grid = sample(Torus(0.08, 0.03, axis=(0.3, 1.0, 0.2)), spacing_m)
    return build_body(grid, region_of=lambda x: (x[:, 0] > 0).astype(np.int32))


@pytest.fixture(scope="session")
def torus():
    """About 2,000 nodes, two material regions."""
    return torus_of(0.0115)


@pytest.fixture(scope="session")
def small_torus():
    """About 500 nodes, two material regions; nearly all cells are cut."""
    return torus_of(0.022)


@pytest.fixture(scope="session")
def smallest_torus():
    """About 300 nodes, two cells through the ring."""
    return torus_of(0.03)


@pytest.fixture(scope="session")
def whole_torus(request, whole):
    """What a backend with whole steps has time for: a GPU kernel needs more than a few nodes to be tried at all."""
    return request.getfixturevalue("smallest_torus" if whole.name == "reference" else "torus")


@pytest.fixture(scope="session")
def rounding(whole):
    """How far whole steps may be from the CPU's in float64 with solves to 1e-13: rounding that the dynamics carry on.
    The reference was seen to be within 3e-11; a GPU, which sums in another order, within 1e-7."""
    return {"reference": 1e-9, "cuda": 1e-7}[whole.name]


def scene_of(body, kind, dtype=np.float64, tolerance=1e-13):
    """Model and parameters; the words of kind say what is in it: theta, held, moving, contact (implicit), explicit."""
    scheme = theta_scheme(0.005, 0.6) if "theta" in kind else hht_scheme(0.005, -0.1)
    grip = FixedRegion(Box((0.04, 0.2, 0.2), (-0.1, 0.0, 0.0)), path=MOVING if "moving" in kind else RigidPath())
    load = (Box((0.04, 0.2, 0.2), (0.1, 0.0, 0.0)), np.array([0.0, 0.3, 0.1]))
    laws = {"contact": ContactLaw(2e6, 800.0), "explicit": ContactLaw(2e5, 400.0, implicit=False)}
    model = build_model(
        body,
        scheme,
        fixed=[grip] if "held" in kind or "moving" in kind else [],
        loads=[load] if "held" in kind else [],
        contact=next((law for name, law in laws.items() if name in kind), None),
        solver=SolverSettings(tolerance, 3000),
        dtype=dtype,
    )
    parameters = Parameters(
        np.array([3e4, 6e4]),
        0.35,
        900.0,
        mass_damping_per_s=0.4,
        stiffness_damping_s=2e-3,
        plane_normal=np.array([0.1, 0.97, -0.05]),
        plane_offset_m=0.055,
        rotation_rad=np.array([0.1, 0.2, -0.3]),
        velocity_m_s=np.array([0.1, -0.8, 0.2]),
        angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
    )
    return model, parameters


@pytest.fixture
def make_scene(torus):
    """`scene_of` the larger torus."""
    return lambda *arguments, **named: scene_of(torus, *arguments, **named)


@pytest.fixture
def make_whole_scene(whole_torus):
    """`scene_of` the torus that the backend with whole steps has time for."""
    return lambda *arguments, **named: scene_of(whole_torus, *arguments, **named)
