"""Sections as ROS parameters: nothing is lost on the way, and the sections say no in their own words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy")

import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter

from soft_estimator.config_live import WindowConfig
from soft_estimator.perception.settings import BoxSettings, ColourSettings, FinderSettings
from soft_estimator.ros.parameters import NodeParameters, parameter_values, section_from
from soft_estimator.ros.settings import EstimatorSettings, FrameSettings, SceneSettings
from soft_estimator.schema import ConfigError, describe

BOX = BoxSettings(low_m=(0.0, 0.0, 0.0), high_m=(1.0, 2.0, 3.0))
SECTIONS = [
    FinderSettings(),
    FinderSettings(crop=BOX, excluded=(BOX, BOX), colour=ColourSettings(hue_rad=1.0)),
    WindowConfig(),
    WindowConfig(time_budget_s=0.25, frames=5),
    EstimatorSettings(sensor_m=(1.0, 2.0, 3.0)),
    FrameSettings(),
]


@pytest.fixture
def node(domain: int) -> Iterator[Node]:
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    made = rclpy.create_node("parameters_test", context=context)
    yield made
    made.destroy_node()
    rclpy.shutdown(context=context)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: type(s).__name__)
def test_a_section_comes_back_from_its_parameters(section: Any) -> None:
    values = parameter_values(type(section), section, "a.b")
    assert all(name.startswith("a.b.") for name in values)
    assert section_from(type(section), values, "a.b") == section


def test_what_ros_holds_is_the_section_again(node: Node) -> None:
    wanted = SECTIONS[1]
    assert NodeParameters(node).add(FinderSettings, "finder", wanted) == wanted


def test_a_parameter_tells_its_unit_bounds_and_sentence(node: Node) -> None:
    NodeParameters(node).add(WindowConfig, "window", changed=lambda _: None)
    frames = node.describe_parameter("window.frames")
    row = next(r for r in describe(WindowConfig) if r.key == "frames")
    assert row.doc in frames.description
    assert (frames.integer_range[0].from_value, frames.integer_range[0].to_value) == (row.low, row.high)
    assert not frames.read_only
    lost = node.describe_parameter("window.lost_after_s")
    assert "[s]" in lost.description and lost.floating_point_range[0].from_value == 0.0
    start = node.describe_parameter("window.start")
    assert start.additional_constraints == "one of register, scene"


def set_now(node: Node, **values: Any) -> Any:
    return node.set_parameters_atomically([Parameter(name.replace("__", "."), value=v) for name, v in values.items()])


def test_a_change_is_told_and_a_bad_one_refused_in_the_sections_words(node: Node) -> None:
    told: list[WindowConfig] = []
    NodeParameters(node).add(WindowConfig, "window", changed=told.append)
    assert set_now(node, window__frames=6).successful
    assert told[-1].frames == 6
    refused = set_now(node, window__frames=20, window__grow_to_frames=10)
    with pytest.raises(ConfigError) as own:
        WindowConfig(frames=20, grow_to_frames=10)
    assert not refused.successful
    assert refused.reason == f"window.{own.value}"
    assert node.get_parameter("window.frames").value == 6
    assert len(told) == 1
    assert not set_now(node, window__lost_after_s=0.0).successful  # an open bound, which a ROS range cannot tell
    assert set_now(node, window__frames=20, window__grow_to_frames=30).successful


def test_two_sections_change_together_or_not_at_all(node: Node) -> None:
    told: list[Any] = []
    parameters = NodeParameters(node)
    parameters.add(WindowConfig, "one", changed=told.append)
    parameters.add(FinderSettings, "two", changed=told.append)
    assert not set_now(node, one__frames=7, two__noise__min_depth_m=20.0).successful
    assert told == []


def test_the_owner_may_refuse_too(node: Node) -> None:
    def refuse(_: WindowConfig) -> None:
        raise ValueError("not now")

    NodeParameters(node).add(WindowConfig, "window", changed=refuse)
    assert set_now(node, window__frames=7).reason == "not now"


def test_a_section_without_an_owner_is_read_only(node: Node) -> None:
    NodeParameters(node).add(FrameSettings)
    assert node.describe_parameter("fixed_frame").read_only
    assert not set_now(node, fixed_frame="map").successful


def test_a_box_that_is_given_in_part_is_refused() -> None:
    values = parameter_values(FinderSettings, None, "finder")
    assert section_from(FinderSettings, values, "finder").crop is None
    values["finder.crop.low_m"] = [0.0, 0.0, 0.0]
    with pytest.raises(ConfigError, match="high_m"):
        section_from(FinderSettings, values, "finder")
    values["finder.crop.low_m"], values["finder.excluded"] = [math.nan] * 3, [1.0, 2.0]
    with pytest.raises(ConfigError, match="2 numbers; give 6"):
        section_from(FinderSettings, values, "finder")


def test_what_must_be_given_says_so(node: Node) -> None:
    with pytest.raises(ConfigError, match="scene"):
        NodeParameters(node).add(SceneSettings)
