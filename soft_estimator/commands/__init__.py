"""The commands of `soft-estimator`, one module each."""
