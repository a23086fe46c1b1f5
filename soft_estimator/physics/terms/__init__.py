"""Physical effects, one file each: energy, force, stiffness, tangent and adjoint side by side."""
