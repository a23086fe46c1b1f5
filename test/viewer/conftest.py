"""Who takes a source's updates in tests: it keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from soft_estimator.viewer.updates import ViewUpdate


class Keeper:
    """Takes updates as the viewer does."""

    def __init__(self) -> None:
        self.updates: list[ViewUpdate] = []
        self.cleared = 0
        self._changed = threading.Condition()

    def show(self, update: ViewUpdate) -> None:
        with self._changed:
            self.updates.append(update)
            self._changed.notify_all()

    def clear(self) -> None:
        self.cleared += 1

    def wait(self, wanted: Callable[[ViewUpdate], bool], seconds: float = 60.0) -> ViewUpdate:
        """The first update that is wanted."""

        def found() -> ViewUpdate | None:
            return next((u for u in self.updates if wanted(u)), None)

        with self._changed:
            assert self._changed.wait_for(lambda: found() is not None, seconds), "no such update came"
        update = found()
        assert update is not None
        return update


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()
