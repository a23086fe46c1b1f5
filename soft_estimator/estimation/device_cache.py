"""What all runs of one model share on a backend that runs whole steps: device arrays, observers, views of frames."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from soft_estimator.backends.interface import Backend, Observer, View
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.residuals.surface_observer import build_observer, watch
from soft_estimator.physics.body import Body
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_coarser import DeviceGrids
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

# Models are kept as long as all of them have so many times the nodes of the largest: an estimate and its refinement
# take turns, and a window's coarser grid, an eighth of it, in steps of three lengths; more would only hold memory.
_KEPT_NODES = 3
_KEPT_BODIES = 2  # whose views are kept
_KEPT_GRIDS = 4
_POINTS_KEPT = 2_000_000  # in views, each with some 300 bytes on the device
_CACHES: list[DeviceCache] = []  # the last few, and of the others, too
_VIEWS: list[DeviceViews] = []
_GRIDS: list[DeviceGrids] = []


class DeviceViews:
    """One body's observer on one backend, and its views of any frames."""

    def __init__(self, body: Body, backend: Backend) -> None:
        self.body, self.backend = body, backend
        self._observer: tuple[SurfaceDistance, Observer] | None = None
        self._views: OrderedDict[tuple[int, ...], tuple[list[ObservedFrame], View]] = OrderedDict()

    def view(self, frames: Sequence[ObservedFrame], kind: SurfaceDistance) -> View:
        """The observer's view of frames; that of the same frames again is kept for the next look."""
        if self._observer is None or self._observer[0].field is not kind.field:
            self._observer = (kind, build_observer(self.body, kind.field, self.backend))
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


class DeviceCache:
    """One model on one backend: simulations with any parameters, and views of any frames.

    Attributes:
        columns: what carries changes through steps, as a trajectory made it last, and of what: a window that goes on
            where it stands makes a trajectory for every frame.
    """

    def __init__(self, model: Model, parameters: Parameters, backend: Backend) -> None:
        self.model, self.backend = model, backend
        self._first = FusedSimulation(model, parameters, backend)
        self.columns: tuple[tuple[object, ...], Any] | None = None

    def simulation(self, parameters: Parameters) -> FusedSimulation:
        return self._first.renewed(parameters)

    def view(self, frames: Sequence[ObservedFrame], kind: SurfaceDistance) -> View:
        """As `DeviceViews.view`."""
        return views_for(self.model.body, self.backend).view(frames, kind)


def device_cache_for(model: Model, parameters: Parameters, backend: Backend) -> DeviceCache:
    """The cache of a model; built where there is none yet."""
    for k, cache in enumerate(_CACHES):
        if cache.model is model and cache.backend.name == backend.name:
            _CACHES.append(_CACHES.pop(k))
            return cache
    nodes = [model.body.node_count, *(cache.model.body.node_count for cache in _CACHES)]
    while len(nodes) > 1 and sum(nodes) > _KEPT_NODES * max(nodes):
        nodes.pop(1)
        _CACHES.pop(0)  # before the next one asks for memory
    _CACHES.append(DeviceCache(model, parameters, backend))
    return _CACHES[-1]


def views_for(body: Body, backend: Backend) -> DeviceViews:
    """The views of a body; those of all its models are the same."""
    for k, views in enumerate(_VIEWS):
        if views.body is body and views.backend.name == backend.name:
            _VIEWS.append(_VIEWS.pop(k))
            return _VIEWS[-1]
    del _VIEWS[: len(_VIEWS) - _KEPT_BODIES + 1]
    _VIEWS.append(DeviceViews(body, backend))
    return _VIEWS[-1]


def grids_for(coarser: CoarserModel, backend: Backend) -> DeviceGrids:
    """What leads from a coarser model's grid to the body's own and back."""
    for k, known in enumerate(_GRIDS):
        if known.grids is coarser and known.backend.name == backend.name:
            _GRIDS.append(_GRIDS.pop(k))
            return _GRIDS[-1]
    del _GRIDS[: len(_GRIDS) - _KEPT_GRIDS + 1]
    _GRIDS.append(DeviceGrids(coarser, backend))
    return _GRIDS[-1]
