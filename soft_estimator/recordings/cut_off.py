"""A recording whose disk ran full: what was written up to there is made readable again."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_MAGIC = b"\x89MCAP0\r\n"
_DATA_END, _FOOTER, _CHUNK_INDEX = 0x0F, 0x02, 0x08
# DataEnd without a checksum, and a footer that says there is no index: readers then go through the file.
_END = bytes([_DATA_END]) + struct.pack("<QI", 4, 0) + bytes([_FOOTER]) + struct.pack("<Q", 20) + bytes(20) + _MAGIC


class RecordingCutOff(ValueError):
    """The disk took no more; the recording up to there can be read."""


def finish_mcap(path: Path) -> None:
    """End an MCAP file after its last whole record. Cutting off the last half record frees the few bytes this takes."""
    with path.open("r+b") as stream:
        size, ends = os.fstat(stream.fileno()).st_size, [len(_MAGIC)]
        while True:
            stream.seek(ends[-1])
            head = stream.read(9)
            if len(head) < 9 or head[0] in (_DATA_END, _FOOTER, _CHUNK_INDEX):
                break
            end = ends[-1] + 9 + struct.unpack("<Q", head[1:])[0]
            if end > size:
                break
            ends.append(end)
        while len(ends) > 1 and size - ends[-1] < len(_END):  # another record goes, to make room
            ends.pop()
        stream.truncate(ends[-1])
        stream.seek(ends[-1])
        stream.write(_END)
