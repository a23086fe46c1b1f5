"""twin_node: the digital twin. It goes on from the newest estimate, in its own time, and shows itself as a mesh."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from scipy.spatial import cKDTree
from sensor_msgs.msg import PointCloud2
from shape_msgs.msg import Mesh
from std_msgs.msg import Float64MultiArray
from visualization_msgs.msg import Marker

from soft_estimator.backends import choose_backend
from soft_estimator.estimation.window.tool_paths import ToolPaths
from soft_estimator.live.setup import live_scene
from soft_estimator.live.tools import tools_of
from soft_estimator.physics.model import State
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.pictures.surface_values import equivalent_strain
from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import header_at, message_from_points, object_from_message, stamp_of
from soft_estimator.ros.drawings import heat_colours, mesh_marker, mesh_message
from soft_estimator.ros.frames import Frames
from soft_estimator.ros.health import Health
from soft_estimator.ros.parameters import NodeParameters
from soft_estimator.ros.reports import began_of, memory_of, state_of
from soft_estimator.ros.running import run_node
from soft_estimator.ros.scene import scene_config, scene_of
from soft_estimator.ros.settings import FrameSettings, SceneSettings, TwinSettings
from soft_estimator.ros.tool_feed import ToolFeed
from soft_estimator.ros.worker import Worker
from soft_estimator.scene.scene import Scene

_REST_COLOUR = np.array([0.6, 0.6, 0.6])
_TOOL_COLOUR = np.array([0.45, 0.5, 0.55])
_UNSEEN_VOXELS = 2.0  # a vertex farther from every point than this was not seen


@dataclass(frozen=True, eq=False)
class Moment:
    """The twin at a time: the estimate it goes on from, its simulation, and where that has come to."""

    since_s: float
    simulation: Simulation
    state: State  # its time is seconds since since_s

    @property
    def stamp_s(self) -> float:
        return self.since_s + self.state.time_s


class TwinNode(Node):
    """Takes over parameters and state, simulates on to now, publishes the mesh at its own rate."""

    def __init__(self) -> None:
        super().__init__("twin_node")
        parameters = NodeParameters(self)
        self.scene_settings = parameters.add(SceneSettings)
        self.settings = parameters.add(TwinSettings, changed=self._change)
        frames = parameters.add(FrameSettings)
        self.frame = frames.fixed_frame
        told = scene_config(self.scene_settings)[0]
        self.health = Health(self, lambda: {"states_dropped": self.worker.dropped})
        led = any(obstacle.tool_frame for obstacle in told.obstacles)
        self.feed = ToolFeed(self, told, Frames(self, frames) if led else None, self.health)
        self.scene: Scene | None = None
        self.moment: Moment | None = None
        self.seen: tuple[float, np.ndarray] | None = None
        self.sent: tuple[float, list[int]] = (-1.0, [])  # the moment last published, and who looked
        self.worker: Worker[Float64MultiArray] = Worker(self._take_over, self._failed)
        self.worker.ask("build", self._build)
        latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        self.mesh = self.create_publisher(Marker, "mesh", 10)
        self.mesh_rest = self.create_publisher(Marker, "mesh_rest", latched)
        self.mesh_shape = self.create_publisher(Mesh, "mesh_shape", 10)
        self.points = self.create_publisher(PointCloud2, "predicted_points", 10)
        self.tool_mesh = self.create_publisher(Marker, "tool_mesh", 10)
        self.create_subscription(Float64MultiArray, "estimate_state", self.worker.put, latched)
        self.create_subscription(PointCloud2, "object_points", self._on_points, 10)
        self.timer = self.create_timer(1.0 / self.settings.rate_hz, self._on_timer)

    def _change(self, settings: TwinSettings) -> None:
        self.timer.timer_period_ns = int(1e9 / settings.rate_hz)
        self.settings = settings

    def _build(self) -> None:
        scene = live_scene(scene_of(self.scene_settings))
        self.backend = choose_backend(self.scene_settings.backend, scene.config.solver.precision)
        header = header_at(self.get_clock().now().to_msg(), self.frame)
        rest, faces = scene.body.surface_positions_m(), scene.body.surface.faces
        self.mesh_rest.publish(mesh_marker(header, rest, faces, _REST_COLOUR, namespace="rest", alpha=0.3))
        self.tools = tools_of(scene)
        self.scene = scene

    def _on_points(self, message: PointCloud2) -> None:
        if self.settings.colour_by != "residual" or self.scene is None:
            return
        try:
            self.seen = seconds_of(message.header.stamp), object_from_message(message)[0]
        except ValueError as error:
            self.health.warn("points", str(error))

    def _take_over(self, message: Float64MultiArray) -> None:
        """Go on from a new estimate."""
        if self.scene is None:
            return
        stamp, values, (u, v, a) = state_of(message)
        nodes = self.scene.body.node_count
        if len(u) != nodes:
            raise ValueError(f"estimate_state has {len(u)} nodes, the twin's body {nodes}; give both the same scene")
        began_s = began_of(message)
        if began_s is not None:
            self.tools.begin_at(began_s)
        model = self.tools.model or self.scene.model
        simulation = Simulation(model, values, self.backend)
        u, v, a = (self.backend.to_device(x, model.dtype) for x in (u, v, a))
        memory = {name: self.backend.to_device(part, model.dtype) for name, part in memory_of(message).items()}
        self.moment = Moment(seconds_of(stamp), simulation, State(u, v, a, 0.0, memory=memory))
        self.health.count("states")
        self._show()

    def _on_timer(self) -> None:
        if self.moment is not None and self.worker.waiting == 0:
            self.worker.ask("show", self._show)

    def _show(self) -> None:
        """Simulate on to now, as far as the horizon allows, and publish; nothing where nobody looks. One that has come
        to its horizon is published again to those who come to look later."""
        shown = (self.mesh, self.mesh_shape, self.points, self.tool_mesh)
        lookers = [p.get_subscription_count() for p in shown]
        if not any(lookers) or self.moment is None:
            return
        begun_s = monotonic()
        moment = self._simulated(self.moment)
        if (moment.stamp_s, lookers) == self.sent:
            return
        self.moment, self.sent = moment, (moment.stamp_s, lookers)
        self._publish(moment)
        self.health.count("meshes")
        self.health.took("work", monotonic() - begun_s)

    def _simulated(self, moment: Moment) -> Moment:
        step = moment.simulation.model.integrator.step_s
        paths = ToolPaths(moment.simulation.model)
        self.feed.follow(self.tools, moment.stamp_s + step, wait=False)
        if paths.missing(moment.since_s):
            return moment  # where a tool is nobody knows: it shows what was estimated
        paths.count_from(moment.since_s)
        now_s = 1e-9 * self.get_clock().now().nanoseconds
        end_s = min(now_s - moment.since_s, self.settings.horizon_s)
        # Half a period at most, so that a machine too slow for real time still shows something.
        until = monotonic() + 0.5 / self.settings.rate_hz
        state = moment.state
        while state.time_s + step <= end_s and monotonic() < until:
            state, _ = moment.simulation.step(state)
        return replace(moment, state=state)

    def _publish(self, moment: Moment) -> None:
        assert self.scene is not None
        body = self.scene.body
        u = self.backend.to_host(moment.state.u).astype(np.float64)
        surface, header = body.surface_positions_m(u), header_at(stamp_of(moment.stamp_s), self.frame)
        if self.mesh.get_subscription_count():
            colours = heat_colours(self._values(u, surface), self.settings.colour_top)
            self.mesh.publish(mesh_marker(header, surface, body.surface.faces, colours, namespace="twin"))
        if self.mesh_shape.get_subscription_count():
            self.mesh_shape.publish(mesh_message(surface, body.surface.faces))
        if self.points.get_subscription_count():
            self.points.publish(message_from_points(header, surface))
        if self.tool_mesh.get_subscription_count():
            for name, (vertices, faces) in self.tools.meshes(moment.stamp_s).items():
                marker = mesh_marker(header, vertices, faces, _TOOL_COLOUR, namespace=name, lifetime_s=1.0)
                self.tool_mesh.publish(marker)

    def _values(self, u: np.ndarray, surface: np.ndarray) -> np.ndarray:
        """What the colours show: strain, or how far the seen points are from the surface, in voxels."""
        assert self.scene is not None
        body = self.scene.body
        if self.settings.colour_by == "strain":
            return np.maximum(body.surface.interpolate(equivalent_strain(body, u)), 0.0)
        if self.seen is None or len(self.seen[1]) == 0:
            return np.full(len(surface), np.nan)
        distance = cKDTree(self.seen[1]).query(surface)[0] / body.grid.spacing_m
        return np.where(distance < _UNSEEN_VOXELS, distance, np.nan)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, SolverError):
            self.moment = None  # it waits for the next estimate
        self.health.error("twin", str(error))

    def close(self) -> bool:
        """End the worker; whether it ended."""
        return self.worker.stop(3.0)


def main(arguments: list[str] | None = None) -> int:
    """Run the node."""
    return run_node(TwinNode, arguments)


if __name__ == "__main__":
    sys.exit(main())
