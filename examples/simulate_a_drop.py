"""A soft box falls onto a table: its energy, and where its surface ends up."""

import soft_estimator as se

motion = se.simulate(
    {
        "body": {"shape": {"box": {"size_m": [0.06, 0.04, 0.04], "center_m": [0, 0.06, 0]}}, "spacing_m": 0.01},
        "material": {"youngs_modulus_pa": "10 kPa", "stiffness_damping_s": "5 ms"},
        "contact": {"stiffness_pa_per_m": "2 kPa/mm"},
        "time": {"step_s": "5 ms", "duration_s": 0.4},
    }
)
print(motion)
lowest = motion.surfaces_m[:, :, 1].min(axis=1)
print(f"its lowest point goes from {1e3 * lowest[0]:.0f} to {1e3 * lowest[-1]:.1f} mm above the table")
print(f"of {motion.energy_j[0]:.3f} J it keeps {motion.energy_j[-1]:.3f} J")
