"""The scenes of `soft-estimator bench`, under the name the benchmarks know them by."""

from soft_estimator.studies.bench_scenes import block, dragon, model_of, torus

__all__ = ["block", "dragon", "model_of", "torus"]
