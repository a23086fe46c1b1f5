"""Simulated depth cameras: pinhole, noise, and what they see of a scene as it moves."""
