"""Estimates as diagnostics and as the state a twin takes over."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time
from std_msgs.msg import Header
from tiny_ball import scene_of

from soft_estimator.estimation.fitting.uncertainty import Estimate
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.bands import true_values
from soft_estimator.physics.parameters import Parameters
from soft_estimator.ros import reports
from soft_estimator.scene.variables import variables_of

RNG = np.random.default_rng(0)


def estimate(regions: int = 1, **changes: object) -> LiveEstimate:
    values = Parameters(
        youngs_modulus_pa=np.arange(1.0, regions + 1), poissons_ratio=0.3, density_kg_m3=900.0, plane_offset_m=0.1
    )
    rows = (
        *(Estimate(f"youngs_modulus_pa[{k}]", "Pa", 1.0 + k, 0.1, 0.8, 1.2, True, "") for k in range(regions)),
        Estimate("plane_normal[1]", "rad", 0.1, 0.5, -0.9, 1.1, False, "the body never touched the plane"),
    )
    nodal = [RNG.normal(size=(7, 3)) for _ in range(3)]
    made = LiveEstimate(12.5, "tracking", rows, values, *nodal, 1.0, 3.0, 0.001, np.zeros(4), np.zeros((4, 3)), 5, 0.2)
    return replace(made, **changes)


def test_each_parameter_has_a_status_with_its_numbers() -> None:
    message = reports.estimate_message(Header(), estimate(), "ball")
    values = reports.values_in(message)
    assert list(values) == ["window", "youngs_modulus_pa", "plane_normal[1]"]
    row = values["youngs_modulus_pa"]
    assert [float(row[k]) for k in ("value", "std", "low", "high")] == [1.0, 0.1, 0.8, 1.2]
    assert (row["unit"], row["level"]) == ("Pa", "0")
    assert values["plane_normal[1]"]["level"] == "1"
    assert "never touched" in message.status[2].message


def test_a_lost_object_makes_every_parameter_stale() -> None:
    message = reports.estimate_message(Header(), estimate(status="lost", notes=("hidden",)), "ball")
    assert {s.level for s in message.status} == {reports.STALE}
    assert "hidden" in message.status[0].message


@pytest.mark.parametrize(("late", "level", "said"), [(False, "0", "tracking"), (True, "1", "2.5 s old")])
def test_an_estimate_says_how_old_it_is(late: bool, level: str, said: str) -> None:
    """Its age and the frames left out so far are numbers of the window; one that is too late is a warning."""
    message = reports.estimate_message(Header(), estimate(), "ball", reports.Delay(2.5, late, 7))
    row = reports.values_in(message)["window"]
    assert (float(row["age_s"]), row["frames_skipped"], row["level"]) == (2.5, "7", level)
    assert said in message.status[0].message


def test_several_materials_keep_their_numbers() -> None:
    names = reports.shown_names(estimate(regions=2).parameters)
    assert names[:2] == ["youngs_modulus_pa[0]", "youngs_modulus_pa[1]"]
    assert [reports.topic_of(n) for n in names] == ["youngs_modulus_pa_0", "youngs_modulus_pa_1", "plane_normal_1"]


def test_a_number_is_published_under_the_name_that_its_truth_has() -> None:
    """So the demo's table, report and metrics find the truth beside every number, the stiffness, too."""
    scene = scene_of()
    assert scene.config.estimate is not None
    labels = variables_of(scene, scene.config.estimate).labels
    assert "youngs_modulus_pa[0]" in labels
    rows = tuple(Estimate(label, "", 1.0, 0.1, 0.8, 1.2, True, "") for label in labels)
    published = reports.values_in(reports.estimate_message(Header(), estimate(parameters=rows), "ball"))
    assert set(published) - {"window"} == set(true_values(scene))


@pytest.mark.parametrize("regions", [1, 3])
def test_the_state_comes_back_exactly(regions: int) -> None:
    sent = estimate(regions)
    stamp, values, (u, v, a) = reports.state_of(reports.state_message(Time(sec=7, nanosec=123456789), sent))
    assert (stamp.sec, stamp.nanosec) == (7, 123456789)
    for got, wanted in zip((u, v, a), (sent.u_m, sent.v_m_s, sent.a)):
        np.testing.assert_array_equal(got, wanted)
    assert values == sent.values


def test_what_terms_remember_travels_with_the_state() -> None:
    remembered, sent = np.arange(48.0).reshape(2, 24), estimate()
    message = reports.state_message(Time(sec=7), replace(sent, memory={"relaxation": remembered}))
    found = reports.memory_of(message)
    assert list(found) == ["relaxation"]
    np.testing.assert_array_equal(found["relaxation"], remembered.ravel())
    np.testing.assert_array_equal(reports.state_of(message)[2][0], sent.u_m)
    assert reports.memory_of(reports.state_message(Time(), estimate())) == {}


def test_the_scenes_start_travels_with_the_state_where_tools_count_from_it() -> None:
    """The twin takes no frames, and would not know when a path of the scene's own began."""
    message = reports.state_message(Time(sec=7), estimate(), Time(sec=6, nanosec=500_000_000))
    assert reports.began_of(message) == 6.5 and reports.state_of(message)[0].sec == 7
    assert reports.began_of(reports.state_message(Time(sec=7), estimate())) is None


def test_a_state_of_another_version_is_refused() -> None:
    message = reports.state_message(Time(), estimate())
    message.layout.dim.pop()
    with pytest.raises(ValueError, match="lacks a;"):
        reports.state_of(message)


def test_the_saved_estimate_is_strict_json() -> None:
    text = reports.estimate_json(estimate(noise_scale=float("nan")), "ball", {"frames_in": 3})
    saved = json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
    assert saved["noise_scale"] is None
    assert saved["parameters"][0] == {
        "name": "youngs_modulus_pa", "unit": "Pa", "value": 1.0, "std": 0.1, "low": 0.8, "high": 1.2,
        "observable": True, "reason": "", "mostly": "",
    }  # fmt: skip
