"""From points and a shape to a posterior: a soft bar, held at one end, sags and swings; its points are seen."""

import numpy as np

import soft_estimator as se

bar = {
    "body": {"shape": {"box": {"size_m": [0.10, 0.02, 0.02]}}, "spacing_m": 0.01},
    "material": {"youngs_modulus_pa": "20 kPa", "poissons_ratio": 0.4},
    "fixed": [{"low_m": [-0.06, -0.02, -0.02], "high_m": [-0.045, 0.02, 0.02]}],
    "time": {"step_s": "10 ms", "duration_s": 0.3},
}
# What was seen: here a simulated motion with half a millimetre of noise; yours comes from a camera.
rng, seen = np.random.default_rng(0), se.simulate(bar)
frames = [
    (t, x + 5e-4 * rng.standard_normal(x.shape), 5e-4)
    for t, x in zip(seen.times_s[3::3], seen.surfaces_m[3::3].astype(float))
]
guess = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "60 kPa"}}
result = se.estimate({**bar, "estimate": guess}, frames)
print(result)
print("value", result.value, "std", result.std, "interval", result.interval, "draws", result.samples(3))
