"""Measure an object: a recording in which it lies still on a table and is dropped, and its weight.

python examples/measure_an_object.py my_bag "158 g" out/mine
"""

import sys

import soft_estimator as se

recording, mass, out = sys.argv[1:4]
result = se.measure(recording, mass=mass)
print(result)
print(f"E = {result.value:.0f} ± {result.std:.0f} Pa, 95 %: {result.interval[0]:.0f} to {result.interval[1]:.0f} Pa")
print("scene, rest shape and numbers are in", result.save(out))
