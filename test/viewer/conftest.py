"""Who takes a source's updates in tests and keeps them; the browser that pages are opened in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from headless_chromium import chromium, complaints

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


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all pages: without a graphics card a fresh one compiles the same shaders for ten seconds and more."""
    with chromium(tmp_path_factory.mktemp("profile"), 1280, 800) as page:
        yield page


@pytest.fixture(scope="module")
def browser(_chromium: Any) -> Iterator[Any]:
    """Handed back empty, with nothing in its console."""
    yield _chromium
    _chromium.get("about:blank")
    complaints(_chromium)
