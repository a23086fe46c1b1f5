"""A depth camera that is running: clouds or depth images in, estimates and the digital twin out.

ros2 launch soft_estimator estimate.launch.py --show-args
"""

from launch import LaunchDescription
from soft_estimator.ros.launching import launch_description


def generate_launch_description() -> LaunchDescription:
    return launch_description("live")
