"""`soft-estimator bench` as a user meets it."""

from __future__ import annotations

import json

import pytest

from soft_estimator.cli import main

SMALL = ["bench", "--backend", "cpu", "--sizes", "300", "--precisions", "float64", "--repeats", "1", "--no-jax"]


def test_numbers_for_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    """One row a part; the floor is bytes over bandwidth, the ratio is time over floor, and a step's bytes are at least
    those of its iterations."""
    assert main([*SMALL, "--scenes", "torus", "--steps", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = {row["what"]: row for row in result["rows"]}
    assert list(rows) == ["iteration", "step", "gradient", "cost"] and result["backend"] == "cpu"
    for row in rows.values():
        assert row["nodes"] > 100 and row["precision"] == "float64" and row["jax_ms"] is None
        assert row["floor_ms"] == pytest.approx(1e3 * row["bytes"] / result["copy_bytes_per_s"])
        assert row["ratio"] == pytest.approx(row["ms"] / row["floor_ms"]) and row["ms"] > 0
    assert rows["step"]["bytes"] > rows["step"]["iterations"] * rows["iteration"]["bytes"] > 0
    assert rows["gradient"]["steps"] == rows["cost"]["steps"] == 2
    # Two steps forward and two back are more work than one step.
    assert rows["gradient"]["iterations"] > rows["step"]["iterations"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--scenes", "torus,block", "--parts", "iteration"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "GB/s" in lines[0] and "floor ms" in lines[1]
    assert [line.split()[:2] for line in lines[2:]] == [["iteration", "torus"], ["iteration", "block"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scenes", "cube"], "--scenes cube is not known; choose from torus, block"),
        (["--parts", "walk"], "--parts walk is not known; choose from iteration, step, gradient, cost"),
        (["--precisions", "float16"], "--precisions float16 is not known; choose from float32, float64"),
        (["--backend", "cpu", "--precisions", "float32"], "cpu computes in float64 alone; leave float32 to a GPU"),
        (["--sizes", "many"], "'many' is not a whole number above 0"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err
