"""Compressed parts of a recording, unpacked within bounds: kilobytes of zstd may hold gigabytes of nothing."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

MOST_MESSAGE_BYTES = 512 << 20  # one message, or one chunk of several; a cloud of 20 million points has 240 MB
_PIECE_BYTES = 1 << 20
# A whole file may unpack to so many times its size, and small ones to this much: depth images of an empty room shrink
# a thousandfold.
_MOST_RATIO, _SMALL_BYTES = 1000, 256 << 20


def unpack_zstd(data: bytes, most_bytes: int = MOST_MESSAGE_BYTES) -> bytes:
    """The bytes that zstd packed, if they are no more than this."""
    with _zstd().open(io.BytesIO(data), "rb") as stream:
        return _bounded(stream, most_bytes)


def unpack_lz4(data: bytes, most_bytes: int = MOST_MESSAGE_BYTES) -> bytes:
    """The bytes that lz4 packed, if they are no more than this."""
    import lz4.frame  # rosbags needs it

    with lz4.frame.open(io.BytesIO(data), "rb") as stream:
        return _bounded(stream, most_bytes)


def unpack_file(file: Path, folder: Path) -> Path:
    """Unpack a .zstd file into a folder, as far as there is room."""
    out = folder / file.name.removesuffix(".zstd")
    left = min(_SMALL_BYTES + _MOST_RATIO * file.stat().st_size, int(0.9 * shutil.disk_usage(folder).free))
    with _zstd().open(file, "rb") as packed, out.open("wb") as plain:
        while piece := packed.read(_PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"it unpacks to more than {plain.tell()} bytes, which is no recording or has no room")
            plain.write(piece)
    return out


def bound_chunks() -> None:
    """Have rosbags unpack no chunk of an MCAP file beyond the size its record declares, nor a message's bound."""
    from rosbags.rosbag2.storage_mcap import DECOMPRESSORS

    DECOMPRESSORS["zstd"] = lambda data, size: unpack_zstd(data, min(size, MOST_MESSAGE_BYTES))
    DECOMPRESSORS["lz4"] = lambda data, size: unpack_lz4(data, min(size, MOST_MESSAGE_BYTES))


def _bounded(stream: Any, most_bytes: int) -> bytes:
    pieces, left = [], most_bytes
    while piece := stream.read(min(_PIECE_BYTES, left + 1)):
        left -= len(piece)
        if left < 0:
            raise ValueError(f"it unpacks to more than the {most_bytes} bytes it may have")
        pieces.append(piece)
    return b"".join(pieces)


def _zstd() -> Any:
    """Whichever zstd module came with Python or with rosbags."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            return __import__(name, fromlist=["open"])
        except ImportError:
            continue
    raise ValueError("the bag is compressed with zstd; run: pip install backports.zstd")
