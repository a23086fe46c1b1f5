"""Opening a recording of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from soft_estimator.recordings.adjusted import AdjustedRecording, Choice
from soft_estimator.recordings.bag_files import BAG_ENDINGS, is_recording
from soft_estimator.recordings.bag_frames import BagRecording
from soft_estimator.recordings.frame_folder import FrameFolder
from soft_estimator.recordings.interface import Frame, Recording
from soft_estimator.recordings.point_files import POINT_ENDINGS


def open_recording(
    path: str | Path, topic: str | None = None, fixed_frame: str | None = None, choice: Choice | None = None
) -> AdjustedRecording:
    """A recording, to be used in a `with` block.

    Args:
        path: a folder with stamps.csv, a point file, or a bag (a folder with metadata.yaml, .mcap or .db3).
        topic: which topic of a bag; needed only if it has several.
        fixed_frame: frame of a bag's transform tree to give points in; the root above the sensor if left out.
        choice: which frames, and a camera pose in place of the recording's own.
    """
    return AdjustedRecording(_opened(Path(path), topic, fixed_frame), choice)


def _opened(path: Path, topic: str | None, fixed_frame: str | None) -> Recording:
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a folder with stamps.csv, a point file or a bag")
    if is_recording(path):
        return BagRecording(path, topic, fixed_frame)
    if path.is_dir():
        return FrameFolder(path)
    if path.suffix.lower() in (*POINT_ENDINGS, ".png"):
        return FrameFolder.of_file(path)
    known = ", ".join((*POINT_ENDINGS, *BAG_ENDINGS))
    raise ValueError(f"{path} has the ending {path.suffix!r}; give one of {known}, or a folder with stamps.csv")


def read_frames(
    path: str | Path,
    topic: str | None = None,
    fixed_frame: str | None = None,
    choice: Choice | None = None,
    notes: list[str] | None = None,
) -> Iterator[Frame]:
    """The frames of a recording where each of them counts: the first that cannot be used is an error.

    What a reader should know of the recording is added to `notes` once a frame was read.
    """
    with open_recording(path, topic, fixed_frame, choice) as recording:
        read = 0
        for frame in recording:
            frame.usable()
            read += 1
            if notes is not None:
                notes[:] = recording.notes
            yield frame
        if read < len(recording):
            raise ValueError(
                f"{path} has {len(recording)} messages on {recording.source}, but {read} could be read; record it again"
            )
