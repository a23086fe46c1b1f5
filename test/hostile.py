"""How tests meet what is hostile: a call refuses in one line, and with so much memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest


def refused(call: Callable[[], Any]) -> str:
    """The one line a call refuses with."""
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert text.isprintable() and len(text) < 1000
    return text


def peak_bytes(call: Callable[[], Any]) -> int:
    """Most memory a refused call takes."""
    tracemalloc.start()
    try:
        refused(call)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
