"""From one recording of an object to what it is made of: its rest shape, its drops, its stiffness. No ROS."""
