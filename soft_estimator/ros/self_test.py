"""Two processes, clouds from one to the other: does this machine's ROS 2 carry what a depth camera sends?

python -m soft_estimator.ros.self_test          # starts the second process itself, prints one line of JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from array import array

import rclpy
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import PointCloud2, PointField

TOPIC = "soft_estimator_self_test"
# What a depth camera sends, for a third of a second.
CLOUDS, RATE_HZ = 10, 30.0
SIZE_PX = (640, 480)
MARK = "soft-estimator-probe:"


def publish(wait_s: float = 10.0) -> None:
    """Send the clouds as soon as someone listens, stamped with the clock both processes share."""
    rclpy.init()
    node = rclpy.create_node("self_test_sender")
    sender = node.create_publisher(PointCloud2, TOPIC, qos_profile_sensor_data)
    cloud = PointCloud2(width=SIZE_PX[0], height=SIZE_PX[1], point_step=12, row_step=12 * SIZE_PX[0])
    cloud.fields = [PointField(name=n, offset=4 * k, datatype=PointField.FLOAT32, count=1) for k, n in enumerate("xyz")]
    cloud.data = array("B", bytes(12 * SIZE_PX[0] * SIZE_PX[1]))
    end = time.monotonic() + wait_s
    while sender.get_subscription_count() == 0 and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)  # the listener's side of the match may come a little later
    for _ in range(CLOUDS):
        now = time.time_ns()
        cloud.header.stamp.sec, cloud.header.stamp.nanosec = now // 10**9, now % 10**9
        sender.publish(cloud)
        time.sleep(1.0 / RATE_HZ)
    end = time.monotonic() + 1.0
    while rclpy.ok() and time.monotonic() < end:  # until the listener, which has all of them, ends it
        time.sleep(0.02)
    node.destroy_node()
    rclpy.try_shutdown()


def listen(wait_s: float = 12.0) -> dict[str, float | int]:
    """Count what arrives from a second process, and how late it is."""
    rclpy.init()
    node = rclpy.create_node("self_test_listener")
    delays: list[float] = []

    def take(cloud: PointCloud2) -> None:
        stamp = cloud.header.stamp
        delays.append(time.time() - stamp.sec - 1e-9 * stamp.nanosec)

    node.create_subscription(PointCloud2, TOPIC, take, qos_profile_sensor_data)
    sender = subprocess.Popen([sys.executable, "-m", "soft_estimator.ros.self_test", "publish"])
    try:
        end = time.monotonic() + wait_s
        while len(delays) < CLOUDS and time.monotonic() < end:
            rclpy.spin_once(node, timeout_sec=0.1)
            if sender.poll() is not None:
                break
    finally:
        sender.terminate()
        sender.wait()
        node.destroy_node()
        rclpy.try_shutdown()
    median_s = sorted(delays)[len(delays) // 2] if delays else float("nan")
    return {"sent": CLOUDS, "received": len(delays), "median_ms": round(1e3 * median_s, 2) if delays else -1.0}


if __name__ == "__main__":
    if sys.argv[1:] == ["publish"]:
        publish()
    else:
        print(MARK + json.dumps(listen()), flush=True)
