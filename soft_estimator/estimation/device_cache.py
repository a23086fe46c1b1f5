"""What all runs of one model share on a backend that runs whole steps: device arrays, observers, views of frames."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from soft_estimator.backends.interface import Backend, Observer, View
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.residuals.surface_observer import build_observer, watch
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

_KEPT = 2  # models: an estimate and its refinement take turns, and a third would only hold memory
_POINTS_KEPT = 2_000_000  # in views, each with some 300 bytes on the device
_CACHES: list[DeviceCache] = []  # the last few


class DeviceCache:
    """One model on one backend: simulations with any parameters, and views of any frames."""

    def __init__(self, model: Model, parameters: Parameters, backend: Backend) -> None:
        self.model, self.backend = model, backend
        self._first = FusedSimulation(model, parameters, backend)
        self._observer: tuple[SurfaceDistance, Observer] | None = None
        self._views: OrderedDict[tuple[int, ...], tuple[list[ObservedFrame], View]] = OrderedDict()

    def simulation(self, parameters: Parameters) -> FusedSimulation:
        return self._first.renewed(parameters)

    def view(self, frames: Sequence[ObservedFrame], kind: SurfaceDistance) -> View:
        """The observer's view of frames; that of the same frames again is kept for the next look."""
        if self._observer is None or self._observer[0].field is not kind.field:
            self._observer = (kind, build_observer(self.model.body, kind.field, self.backend))
            self._views.clear()
        key = tuple(map(id, frames))
        if key not in self._views:
            # Holding the frames keeps their ids theirs.
            self._views[key] = (list(frames), watch(self._observer[1], list(frames)))
        self._views.move_to_end(key)
        kept = sum(len(view.points) for _, view in self._views.values())
        while kept > _POINTS_KEPT and len(self._views) > 1:
            kept -= len(self._views.popitem(last=False)[1][1].points)
        return self._views[key][1]


def device_cache_for(model: Model, parameters: Parameters, backend: Backend) -> DeviceCache:
    """The cache of a model; built where there is none yet."""
    for k, cache in enumerate(_CACHES):
        if cache.model is model and cache.backend.name == backend.name:
            _CACHES.append(_CACHES.pop(k))
            return cache
    while len(_CACHES) >= _KEPT:
        _CACHES.pop(0)  # before the next one asks for memory
    _CACHES.append(DeviceCache(model, parameters, backend))
    return _CACHES[-1]
