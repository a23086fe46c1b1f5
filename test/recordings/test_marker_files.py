"""Markers from CSV files: what is read is what was written, and every mistake gets one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from soft_estimator.recordings.marker_files import MarkerTracks, read_markers

HEAD = "time_s,x0_m,y0_m,z0_m,x1_m,y1_m,z1_m"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "markers.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    tracks = read_markers(written(tmp_path, HEAD, "0.0,1,2,3,4,5,6", "0.5,1,2,3,nan,,6", "", "1.0,7,8,9,10,11,12"))
    np.testing.assert_array_equal(tracks.time_s, [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(tracks.position_m[0], [[1, 2, 3], [4, 5, 6]])
    assert np.isnan(tracks.position_m[1, 1]).tolist() == [True, True, False]
    np.testing.assert_allclose(tracks.mean_m()[0], [3, 4, 5])
    part = tracks.between(0.5, 1.0)
    assert isinstance(part, MarkerTracks) and part.time_s.tolist() == [0.5, 1.0] and part.position_m.shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (("time,x,y,z", "0,1,2,3"), "its first line 'time,x,y,z' must read time_s,x0_m,y0_m,z0_m"),
        (("",), "its first line '' must read time_s,x0_m,y0_m,z0_m"),
        ((HEAD, "0,1,2,3"), "line 2 has 4 fields where the first has 7; mend or remove it"),
        ((HEAD, "0,1,2,3,4,5,6", "1,1,2,three,4,5,6"), "line 3 holds '1,1,2,three,4,5,6', which are not all numbers"),
        ((HEAD, "0,1,2,3,4,5,6", "0,1,2,3,4,5,6"), "time_s must rise from line to line"),
        ((HEAD, "0,1,2,3,4,5,6"), "over at least two of them"),
        ((HEAD,), "time_s must rise"),
    ],
)
def test_a_mistake_gets_one_line(tmp_path: Path, lines: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(ValueError, match="markers") as refused:
        read_markers(written(tmp_path, *lines))
    assert wrong in str(refused.value) and "\n" not in str(refused.value)
