"""What is kept of the last time: the same is not made again, anything else is, and nothing of it is written."""

from __future__ import annotations

import pickle

import numpy as np

from soft_estimator.estimation.window.newest import Newest, NewestOfEach


def test_a_value_is_made_once_while_it_is_asked_for_the_same() -> None:
    """Numbers and bytes by value, arrays by identity: an equal one may be changed by somebody else."""
    known: Newest[int] = Newest()
    made, array = iter(range(10)), np.zeros(2)
    asked = [
        (array, 0.5),
        (array, 1.0 - 0.5),
        (array, 0.6),
        (array.copy(), 0.6),
        (array,),
        (array.tobytes(),),
        (array.tobytes(),),
    ]
    assert [known.of(key, lambda: next(made)) for key in asked] == [0, 0, 1, 2, 3, 4, 4]
    assert known.of((), lambda: next(made)) == 5


def test_members_of_the_last_list_are_known() -> None:
    """A window that slides asks for its own frames but the first, and a new one."""
    frames, made = [np.zeros(3) for _ in range(5)], []
    known: NewestOfEach[int] = NewestOfEach()

    def ask(chosen: list[int], scale: float = 1.0) -> list[int]:
        def make(k: int) -> int:
            made.append(chosen[k])
            return chosen[k]

        return known.of([(frames[j], scale) for j in chosen], make)

    assert ask([0, 1, 2]) == [0, 1, 2] and ask([1, 2, 3]) == [1, 2, 3]
    assert made == [0, 1, 2, 3]
    ask([0, 1, 2, 3])  # 0 was forgotten
    assert made == [0, 1, 2, 3, 0]
    ask([3, 4], scale=2.0)
    assert made == [0, 1, 2, 3, 0, 3, 4]


def test_a_state_that_is_written_holds_none_of_it() -> None:
    known, each = Newest[int](), NewestOfEach[int]()
    known.of((b"a",), lambda: 1)
    each.of([(known,)], lambda k: 1)
    again, other = pickle.loads(pickle.dumps((known, each)))
    assert again.of((b"a",), lambda: 2) == 2 and other.of([(known,)], lambda k: 2) == [2]
