"""Where the hot loops run."""

from soft_estimator.backends.choose import BackendError, BackendUnavailable, choose_backend

__all__ = ["BackendError", "BackendUnavailable", "choose_backend"]
