"""A short part of benchmark/bench_fuzz.py: scenes, files, bags and messages with mistakes are taken, or one line.

A finding is named by its number; `python benchmark/bench_fuzz.py --only KIND --first NUMBER --KIND 1` tries it again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_fuzz import hunt
from fuzz_files import with_wrong_bytes
from fuzz_messages import try_message
from fuzz_scenes import check_line, mutated_scene

# As many as take a few seconds of one core.
COUNTS = {"scenes": 60, "files": 200, "bags": 40, "messages": 500}


@pytest.mark.parametrize("kind", COUNTS)
def test_mistakes_are_one_line(kind: str, tmp_path: Path) -> None:
    """No traceback, no message of several lines, nothing that takes over 20 s; and both outcomes occur.

    Were all refused, the cases would not get past the first check; were none refused, nothing would be wrong with them.
    """
    outcomes, findings = hunt(kind, range(COUNTS[kind]), tmp_path, limit_s=20.0)
    assert not findings, "\n".join(findings)
    assert outcomes["refused"] > 0.1 * COUNTS[kind] and len(outcomes) == 2


def test_a_number_is_the_same_case_anywhere() -> None:
    """Cases come from their number alone, so that a finding can be tried again."""
    import random

    assert mutated_scene(7) == mutated_scene(7) != mutated_scene(8)
    assert with_wrong_bytes(bytes(99), random.Random("a")) == with_wrong_bytes(bytes(99), random.Random("a"))
    assert try_message(3) == try_message(3)


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 2000, "\x1b[31mred"])
def test_the_hunt_sees_a_bad_message(text: str) -> None:
    with pytest.raises(AssertionError):
        check_line(ValueError(text))


def test_the_hunt_sees_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of another kind than ValueError, put into the reader, is found in every case that gets there."""
    import fuzz_messages

    def broken(_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(fuzz_messages, "points_of", broken)
    _, findings = hunt("messages", range(20), tmp_path, limit_s=20.0)
    assert any("KeyError" in line for line in findings)
