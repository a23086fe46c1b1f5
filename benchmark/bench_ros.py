"""The ROS graph under load: clouds lost, latencies, estimates a second, and memory over a long run.

python benchmark/bench_ros.py                  640x480 clouds at 30 Hz for a minute, then the demo graph for two
python benchmark/bench_ros.py --seconds 20     shorter
python benchmark/bench_ros.py --soak 20        the demo graph for 20 minutes: memory growth of every node
python benchmark/bench_ros.py --reader         a 640x480 cloud read by us and by sensor_msgs_py, without any node
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

DOMAIN = int(os.environ.get("ROS_DOMAIN_ID", 1 + os.getpid() % 100))  # its own, where nobody gave it one
os.environ.update(ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST", ROS_DOMAIN_ID=str(DOMAIN))
os.environ.setdefault("ROS_LOG_DIR", tempfile.mkdtemp(prefix="ros_log_"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long clouds are sent (default: 60)")
    parser.add_argument("--graph-seconds", type=float, default=120.0, help="how long the demo runs (default: 120)")
    parser.add_argument("--scene", default="demo_drop", help="scene of the demo graph (default: demo_drop)")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="only the demo graph, for so long")
    parser.add_argument("--reader", action="store_true", help="only how fast a cloud is read, beside sensor_msgs_py")
    args = parser.parse_args()
    try:
        import rclpy  # noqa: F401
    except ImportError:
        print("rclpy is not installed: nothing to measure")
        return
    from soft_estimator.ros.graph import transport_environment

    os.environ.update(transport_environment())
    if args.reader:
        measure_reader()
        return
    if args.soak:
        soak(args.soak, args.scene)
        return
    if args.seconds > 0:
        measure_clouds(args.seconds)
    measure_graph(args.graph_seconds, args.scene)


def measure_reader(rounds: int = 60) -> None:
    """x, y, z of an organised cloud with colours, as a driver sends it, as numbers (n, 3): ours and a ROS install's."""
    from sensor_msgs.msg import PointCloud2, PointField
    from sensor_msgs_py import point_cloud2

    from soft_estimator.recordings.messages import points_of
    from soft_estimator.ros.conversions import byte_array

    names, offsets = ("x", "y", "z", "rgb"), (0, 4, 8, 16)
    points = np.random.default_rng(0).normal(size=(480, 640, 8)).astype(np.float32)
    fields = [PointField(name=n, offset=o, datatype=PointField.FLOAT32, count=1) for n, o in zip(names, offsets)]
    size = {"height": 480, "width": 640, "point_step": 32, "row_step": 640 * 32}
    message = PointCloud2(fields=fields, data=byte_array(points.view(np.uint8)), **size)

    def ours() -> np.ndarray:
        return points_of(message).reshape(-1, 3)

    def theirs() -> np.ndarray:
        found = point_cloud2.read_points(message, field_names=["x", "y", "z"], skip_nans=False)
        return np.stack([found[name] for name in "xyz"], axis=-1).reshape(-1, 3)

    assert np.array_equal(ours(), theirs())
    taken = []
    for read in (ours, theirs):
        each = []
        for _ in range(rounds):
            start = time.perf_counter()
            read()
            each.append(time.perf_counter() - start)
        taken.append(1e3 * float(np.median(each)))
    print(f"640x480 cloud: ours {taken[0]:.2f} ms, sensor_msgs_py {taken[1]:.2f} ms, {taken[1] / taken[0]:.1f} times")


class Nodes:
    """Processes that end with the block."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench_ros_"))
        self.running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Nodes:
        return self

    def start(self, spec: Any, **parameters: Any) -> None:
        from soft_estimator.ros.run import node_command

        spec.parameters.update(parameters)
        log = (self.folder / f"{spec.executable}.log").open("w")
        self.running[spec.executable] = subprocess.Popen(
            node_command(spec, self.folder), stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def memory_mb(self) -> dict[str, float]:
        """Resident memory without what is shared: the clouds' segments come and go."""
        return {name: private_mb(process.pid) for name, process in self.running.items()}

    def cpu_s(self) -> dict[str, float]:
        tick = os.sysconf("SC_CLK_TCK")
        out = {}
        for name, process in self.running.items():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            out[name] = (int(fields[11]) + int(fields[12])) / tick
        return out

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGINT)
        for name, process in self.running.items():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                print(f"{name} had to be killed")
                process.kill()


def private_mb(pid: int) -> float:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(lines[key].split()[0]) for key in ("Private_Clean", "Private_Dirty")) / 1024


class Listener:
    """This process' node: notes when messages come, by their stamps."""

    def __init__(self) -> None:
        import rclpy

        rclpy.init()
        self.node = rclpy.create_node("bench")
        self.rclpy = rclpy
        self.late: dict[str, dict[float, float]] = {}
        self.diagnostics: dict[str, dict[str, str]] = {}
        from diagnostic_msgs.msg import DiagnosticArray

        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 100)

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            self.diagnostics[status.name] = {v.key: v.value for v in status.values}

    def latency(self, kind: type, topic: str) -> dict[float, float]:
        """Stamp → seconds from the stamp to the arrival, filled as messages come."""
        from soft_estimator.recordings.messages import seconds_of

        box = self.late.setdefault(topic, {})

        def note(message: Any) -> None:
            stamp = seconds_of(message.header.stamp)
            box[stamp] = time.time() - stamp

        self.node.create_subscription(kind, topic, note, 100)
        return box

    def spin(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.rclpy.spin_once(self.node, timeout_sec=0.05)

    def until(self, condition: Any, timeout_s: float, what: str) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                sys.exit(f"after {timeout_s:g} s still not: {what}")
            self.spin(0.1)

    def close(self) -> None:
        self.node.destroy_node()
        self.rclpy.shutdown()


def shown(seconds: Any) -> str:
    values = 1e3 * np.array(list(seconds))
    if not values.size:
        return "no message"
    return (
        f"p50 {np.percentile(values, 50):.1f} ms, p99 {np.percentile(values, 99):.1f} ms, max {np.max(values):.1f} ms"
    )


def measure_clouds(seconds: float) -> None:
    """640x480 clouds at 30 Hz into cloud_node, from this process."""
    from sensor_msgs.msg import PointCloud2
    from std_msgs.msg import Header

    from soft_estimator.backends import choose_backend
    from soft_estimator.camera.rendering import watch_scene
    from soft_estimator.ros.conversions import message_from_points, stamp_of
    from soft_estimator.ros.graph import CAMERA_FRAME, GraphOptions, build_graph
    from soft_estimator.scene.files import read_scene
    from soft_estimator.scene.scene import build_scene

    config, folder = read_scene("demo_drop")
    scene = build_scene(config, folder)
    film = []
    for seen in watch_scene(scene, choose_backend("cpu", config.solver.precision)):
        film.append(message_from_points(Header(frame_id=CAMERA_FRAME), seen.points_m[0].astype(np.float32)))
        if len(film) == 8:
            break
    film = film + film[-2:0:-1]  # forth and back, so that the object moves without a jump
    with Nodes() as nodes:
        nodes.start(build_graph("demo", GraphOptions()).nodes[0])
        listener = Listener()
        arrived = listener.latency(PointCloud2, "object_points")
        publisher = listener.node.create_publisher(PointCloud2, "camera/points", 10)
        listener.until(publisher.get_subscription_count, 60, "cloud_node listens")

        def send(count: int) -> None:
            begin = time.monotonic()
            for k in range(count):
                message = film[k % len(film)]
                message.header.stamp = stamp_of(time.time())
                publisher.publish(message)
                while time.monotonic() < begin + (k + 1) / 30.0:
                    listener.rclpy.spin_once(
                        listener.node, timeout_sec=max(begin + (k + 1) / 30.0 - time.monotonic(), 0)
                    )

        send(60)  # compiled code is loaded with the first ones
        listener.spin(3.0)
        before = dict(listener.diagnostics.get("cloud_node", {}))
        arrived.clear()
        cpu = nodes.cpu_s()["cloud_node"]
        count = round(30 * seconds)
        send(count)
        listener.spin(3.0)
        used = nodes.cpu_s()["cloud_node"] - cpu
        after = listener.diagnostics.get("cloud_node", {})
        listener.close()
    received = int(after.get("clouds", 0)) - int(before.get("clouds", 0))
    dropped = int(after.get("clouds_dropped", 0)) - int(before.get("clouds_dropped", 0))
    print(f"clouds 640x480 at 30 Hz for {seconds:g} s: sent {count}, received {received}, left out as late {dropped}")
    print(f"  cloud → object_points   {shown(arrived.values())}, {len(arrived)} answers")
    print(f"  cloud_node              {1e3 * used / max(received, 1):.1f} ms of processor a cloud")


def start_graph(nodes: Nodes, scene: str, **options: Any) -> None:
    from soft_estimator.ros.graph import GraphOptions, build_graph

    for spec in build_graph("demo", GraphOptions(scene=scene, **options)).nodes:
        nodes.start(spec)


def measure_graph(seconds: float, scene: str) -> None:
    """The demo graph: latencies and rates."""
    from diagnostic_msgs.msg import DiagnosticArray
    from sensor_msgs.msg import PointCloud2
    from visualization_msgs.msg import Marker

    from soft_estimator.ros.reports import values_in

    with Nodes() as nodes:
        listener = Listener()
        start_graph(nodes, scene)
        points, estimates = (
            listener.latency(PointCloud2, "object_points"),
            listener.latency(DiagnosticArray, "estimate"),
        )
        truth = listener.latency(DiagnosticArray, "ground_truth")
        listener.latency(Marker, "mesh")
        history: list[tuple[float, float]] = []
        true: dict[str, float] = {}

        def note(message: Any) -> None:
            row = values_in(message).get("youngs_modulus_pa")
            if row is not None:
                history.append((time.monotonic(), float(row["value"])))

        def note_truth(message: Any) -> None:
            true.setdefault("e", float(values_in(message)["youngs_modulus_pa[0]"]["value"]))

        listener.node.create_subscription(DiagnosticArray, "estimate", note, 100)
        listener.node.create_subscription(DiagnosticArray, "ground_truth", note_truth, 10)
        begin = time.monotonic()
        listener.until(lambda: truth, 300, "the camera films")
        print(f"demo graph, scene {scene}: filming after {time.monotonic() - begin:.1f} s")
        filmed, cpu = time.monotonic(), nodes.cpu_s()
        listener.spin(seconds)
        used = {name: (s - cpu[name]) / seconds for name, s in nodes.cpu_s().items()}
        counts = listener.diagnostics.get("estimator_node", {})
        listener.close()
    print(f"  camera → object_points  {shown(points.values())}")
    print(f"  camera → estimate       {shown(estimates.values())}")
    dropped = counts.get("frames_dropped")
    print(f"  estimates               {len(history) / seconds:.2f} a second; frames dropped {dropped}")
    close = next((t for t, e in history if abs(e / true["e"] - 1) < 0.05), None)
    when = "never" if close is None else f"{close - filmed:.1f} s after the first frame"
    last = f", at the end {100 * (history[-1][1] / true['e'] - 1):+.2f} %" if history else ""
    print(f"  E within 5 %            {when}{last}")
    print(f"  processors used         {', '.join(f'{name} {share:.2f}' for name, share in used.items())}")


def soak(minutes: float, scene: str) -> None:
    """Memory of every node of the demo graph, once a minute."""
    from visualization_msgs.msg import Marker

    with Nodes() as nodes:
        listener = Listener()
        start_graph(nodes, scene, pause_s=0.5)
        listener.latency(Marker, "mesh")
        listener.until(lambda: int(listener.diagnostics.get("camera_node", {}).get("frames", 0)) > 0, 300, "it films")
        listener.spin(60.0)  # caches fill in the first minute
        first = nodes.memory_mb()
        print("minute " + " ".join(f"{name:>16}" for name in first) + "   MB")
        for minute in range(int(minutes) + 1):
            now = nodes.memory_mb()
            print(f"{minute:>6} " + " ".join(f"{mb:>16.1f}" for mb in now.values()), flush=True)
            if minute < int(minutes):
                listener.spin(60.0)
        listener.close()
    for name, mb in now.items():
        print(f"{name}: {100 * (mb / first[name] - 1):+.2f} % in {minutes:g} minutes")
    total = 100 * (sum(now.values()) / sum(first.values()) - 1)
    print(f"all together: {total:+.2f} %")


if __name__ == "__main__":
    main()
