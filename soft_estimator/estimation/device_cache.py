"""What all runs of one model share on a backend that runs whole steps: device arrays, observer, views of frames."""

from __future__ import annotations

from collections import OrderedDict

from soft_estimator.backends.interface import Backend, View
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_observer import build_observer, watch
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

_KEPT = 2
_POINTS_KEPT = 2_000_000  # in views, each with some 300 bytes on the device
_WORKSHOPS: list[Workshop] = []  # the last few


class Workshop:
    """One model on one backend: simulations with any parameters, and views of any frames."""

    def __init__(self, model: Model, parameters: Parameters, backend: Backend, field: CarriedField) -> None:
        self.model, self.backend, self.field = model, backend, field
        self._first = FusedSimulation(model, parameters, backend)
        self.observer = build_observer(model.body, field, backend)
        self._views: OrderedDict[tuple[int, ...], tuple[list[ObservedFrame], View]] = OrderedDict()

    def simulation(self, parameters: Parameters) -> FusedSimulation:
        return self._first.renewed(parameters)

    def view(self, frames: list[ObservedFrame]) -> View:
        """The observer's view of frames; that of the same frames again is kept for the next look."""
        key = tuple(map(id, frames))
        if key not in self._views:
            self._views[key] = (frames, watch(self.observer, frames))  # holding the frames keeps their ids theirs
        self._views.move_to_end(key)
        kept = sum(len(view.points) for _, view in self._views.values())
        while kept > _POINTS_KEPT and len(self._views) > 1:
            kept -= len(self._views.popitem(last=False)[1][1].points)
        return self._views[key][1]


def workshop_for(model: Model, parameters: Parameters, backend: Backend, field: CarriedField) -> Workshop:
    """The workshop of a model; built where there is none yet."""
    for k, shop in enumerate(_WORKSHOPS):
        if shop.model is model and shop.field is field and shop.backend.name == backend.name:
            _WORKSHOPS.append(_WORKSHOPS.pop(k))
            return shop
    while len(_WORKSHOPS) >= _KEPT:
        _WORKSHOPS.pop(0)  # before the next one asks for memory
    _WORKSHOPS.append(Workshop(model, parameters, backend, field))
    return _WORKSHOPS[-1]
