"""Recorded frames: bags, folders of point files, depth images; reading and writing them. No ROS."""
