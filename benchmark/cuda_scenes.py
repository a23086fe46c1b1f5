"""The scenes of `soft-estimator bench`, under the name the benchmarks know them by."""

from soft_estimator.studies.bench_scenes import Scene, block, dragon, model_of, torus

__all__ = ["Scene", "block", "dragon", "model_of", "torus"]
