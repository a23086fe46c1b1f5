"""Whole runs over a scene and the files they leave: simulate, estimate, check gradients, time."""
