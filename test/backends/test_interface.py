"""Every backend has every member of the interface, and its loops take the interface's arguments in its order."""

from __future__ import annotations

import inspect
import json

import pytest
import yaml

from soft_estimator.backends import BackendError, choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.backends.joint_loops import JointLoops
from soft_estimator.backends.pressure_loops import PressureLoops

MEMBERS = {name: getattr(Backend, name) for name in dir(Backend) if not name.startswith("_")}
LOOPS = sorted(name for name, member in MEMBERS.items() if inspect.isfunction(member))


def parameters(function):
    return [p for p in inspect.signature(getattr(function, "py_func", function)).parameters if p != "self"]


def test_the_interface_is_not_empty():
    assert {"rotations", "assemble", "conjugate_gradient", "find_cells", "to_device", "stepper"} < set(MEMBERS)


@pytest.fixture(scope="module", params=["cpu", "reference"])
def backend(request):
    return choose_backend(request.param)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_take_the_interface_s_arguments(backend, name):
    assert parameters(getattr(backend, name)) == parameters(MEMBERS[name])


@pytest.mark.parametrize("name", [name for name in vars(PressureLoops) if not name.startswith("_")])
def test_pressures_take_the_interface_s_arguments(backend, name):
    assert parameters(getattr(backend.pressures, name)) == parameters(getattr(PressureLoops, name))


@pytest.mark.parametrize("name", [name for name in vars(JointLoops) if not name.startswith("_")])
def test_joints_take_the_interface_s_arguments(backend, name):
    assert parameters(getattr(backend.joints, name)) == parameters(getattr(JointLoops, name))


def test_capabilities(backend):
    """All four or none: whoever finds a stepper may ask for the rest."""
    whole = [getattr(backend, name) is not None for name in ("stepper", "guard", "tangent_stepper", "observer")]
    assert whole == [backend.name == "reference"] * 4
    assert backend.device_name() and backend.column_multiple >= 1


def test_nothing_beside_the_interface(backend):
    assert {name for name in vars(type(backend)) if not name.startswith("_")} == set(MEMBERS)


def test_the_command_line_takes_both(tmp_path, capsys):
    """The same three steps of a small ball: the same energy to what solves to 1e-6 leave open."""
    from soft_estimator.cli import main

    ball = {"shape": {"sphere": {"radius_m": 0.02, "center_m": [0, 0.021, 0]}}, "spacing_m": 0.01}
    scene = {"name": "small", "body": ball, "contact": {}, "time": {"step_s": 0.005, "duration_s": 0.015}}
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump({**scene, "material": {"youngs_modulus_pa": 2e4}}))
    energies = []
    for name in ("cpu", "reference"):
        call = ["simulate", str(tmp_path / "scene.yaml"), "--no-pictures", "--json", "--out", str(tmp_path / name)]
        assert main([*call, "--backend", name]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert summary["backend"] == name
        energies.append([summary["series"][part][-1] for part in ("kinetic_j", "elastic_j", "contact_j")])
    assert min(energies[0]) > 0 and energies[1] == pytest.approx(energies[0], rel=1e-5)


def test_an_unknown_backend_is_one_line():
    with pytest.raises(BackendError, match=r"^backend 'gpu' does not exist; use one of auto, cpu, cuda, reference$"):
        choose_backend("gpu")


def test_steppers_of_another_backend_are_refused():
    """A guard reads its stepper's systems: one line where they are not there."""
    guard, tangent = (getattr(choose_backend("reference"), name) for name in ("guard", "tangent_stepper"))
    for make in (guard, tangent):
        with pytest.raises(TypeError, match=r"^a object has no systems to read; hand over one made by .*$"):
            make(object(), 3)
