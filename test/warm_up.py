"""Compile the loops that most tests share, once and in one process; they are kept on disk.

python test/warm_up.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tiny_ball import ball, scene_of

from soft_estimator.backends import choose_backend
from soft_estimator.commands.doctor_self_test import fall_error, gradient_error
from soft_estimator.live.replay import replay_bag
from soft_estimator.live.replay_config import load_replay
from soft_estimator.recordings.record import record_scene


def main() -> None:
    """Simulate, differentiate, record and estimate."""
    fall_error()
    gradient_error()
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        record_scene(scene_of(), choose_backend("cpu"), bag)
        replay_bag(bag, load_replay({"scene": ball()}, Path())[0], Path(), backend="cpu")


if __name__ == "__main__":
    main()
