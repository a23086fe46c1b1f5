"""A recorded bag instead of the camera.

ros2 launch soft_estimator replay.launch.py --show-args
"""

from launch import LaunchDescription
from soft_estimator.ros.launching import launch_description


def generate_launch_description() -> LaunchDescription:
    return launch_description("replay")
