"""From a camera's clouds to estimates, frame by frame: live, or over a recording. No ROS."""
