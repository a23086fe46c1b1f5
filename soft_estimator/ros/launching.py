"""The graphs for `ros2 launch`; the launch files hold nothing but a call of this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.actions import DeclareLaunchArgument, ExecuteProcess, LogInfo, OpaqueFunction, Shutdown, TimerAction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchDescription  # type: ignore[attr-defined]
from soft_estimator.ros.graph import Graph, GraphOptions, build_graph, options_from_text
from soft_estimator.ros.run import EXIT_MISTAKE, RESTART_AFTER_S, meaning
from soft_estimator.ros.transport import transport_note
from soft_estimator.schema.section import Kind, kinds_of


def launch_description(kind: str) -> LaunchDescription:
    """The graph of a kind (live, replay, demo), with an argument for each of its options."""
    kinds = kinds_of(GraphOptions)
    arguments = [DeclareLaunchArgument(k.name, default_value=_default(k), description=_described(k)) for k in kinds]

    def start(context: Any) -> list[Any]:
        given = {k.name: LaunchConfiguration(k.name).perform(context) for k in kinds}
        return graph_actions(build_graph(kind, options_from_text(given)))

    return LaunchDescription([*arguments, OpaqueFunction(function=start)])


def graph_actions(graph: Graph) -> list[Any]:
    """The actions that start a graph; when its player ends, or a node that is not started anew, all ends.

    Where one of them failed, so does `ros2 launch`: its exit code is 1, as that of `soft-estimator run`.
    """
    actions: list[Any] = [
        Node(
            package="soft_estimator",
            respawn=graph.restart,
            respawn_delay=RESTART_AFTER_S,
            on_exit=after_end(spec.executable, [Shutdown(reason=f"{spec.executable} ended")], graph.restart),
            executable=spec.executable,
            namespace=spec.namespace,
            parameters=[_typed(told) for told in spec.told],
            remappings=list(spec.remappings),
            additional_env=graph.environment,
            output="screen",
        )
        for spec in graph.nodes
    ]
    for command in graph.commands:
        end = TimerAction(period=graph.linger_s, actions=[Shutdown(reason="the bag was played")])
        actions.append(
            ExecuteProcess(
                cmd=list(command),
                name="player",
                additional_env=graph.environment,
                output="screen",
                on_exit=after_end("player", [end]),
            )
        )
    actions += [ExecuteProcess(cmd=list(command), name=command[0], output="log") for command in graph.beside]
    note = transport_note()
    return [LogInfo(msg=note), *actions] if note else actions


def after_end(name: str, actions: list[Any], restart: bool = False) -> Callable[[Any, Any], list[Any] | None]:
    """What follows the end of a process: the actions, or where it failed the launch's own end, told in one line.

    Of one that is started anew only a mistake in its parameters ends the launch: it would only be made again.
    """

    def react(event: Any, context: Any) -> list[Any] | None:
        if context.is_shutdown or (restart and event.returncode != EXIT_MISTAKE):
            return None
        if event.returncode != 0:
            raise RuntimeError(f"{name} ended with {meaning(event.returncode)}")
        return actions

    return react


def _typed(told: dict[str, Any] | Path) -> Any:
    if isinstance(told, Path):
        return str(told)
    # launch would read a text such as "1" as a number.
    return {name: ParameterValue(v, value_type=str) if isinstance(v, str) else v for name, v in told.items()}


def _default(kind: Kind) -> str:
    if kind.default is None:
        return ""
    return str(kind.default).lower() if kind.form == "truth value" else str(kind.default)


def _described(kind: Kind) -> str:
    choices = ", ".join(word for word in kind.rule.choices if word)
    unit = f" [{kind.rule.unit}]" if kind.rule.unit else ""
    return f"{kind.rule.doc}{unit}{f' ({choices})' if choices else ''}"
