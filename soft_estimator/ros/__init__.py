"""The ROS 2 front: conversions, parameters and one file per node. Nothing else of the package imports it."""
