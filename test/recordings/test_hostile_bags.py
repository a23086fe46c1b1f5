"""Recordings that unpack or compute to gigabytes: one line each, within the bound of a message.

Measured by the peak of what Python takes (tracemalloc), against a bound of 8 MB and what the readers hold beside it.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import peak_bytes, refused

from soft_estimator.recordings import unpacking
from soft_estimator.recordings.bag_files import Bag
from soft_estimator.recordings.bag_writing import BagWriter


def one_message_bag(folder: Path, storage: str) -> Path:
    with BagWriter(folder, storage) as writer:
        writer.cloud("/camera/points", 10**9, "camera", np.ones((2, 4, 3)))
    return next(folder.glob("*.mcap" if storage == "mcap" else "*.db3"))


def read_all(path: Path) -> list[Any]:
    with Bag(path) as bag:
        return list(bag.messages([t.name for t in bag.topics]))


def mcap_with_chunk(compression: str, packed: bytes, size: int) -> bytes:
    """An MCAP file without an index, of one chunk that says it unpacks to this size."""

    def record(op: int, body: bytes) -> bytes:
        return bytes([op]) + struct.pack("<Q", len(body)) + body

    name = compression.encode()
    chunk = struct.pack("<QQQII", 0, 1, size, 0, len(name)) + name + struct.pack("<Q", len(packed)) + packed
    header = struct.pack("<I", 4) + b"ros2" + struct.pack("<I", 0)
    end = record(0x0F, struct.pack("<I", 0)) + record(0x02, bytes(20))
    return b"\x89MCAP0\r\n" + record(0x01, header) + record(0x06, chunk) + end + b"\x89MCAP0\r\n"


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("size", [1000, 300_000_000])
def test_a_chunk_that_unpacks_to_more_than_it_may_is_refused(
    tmp_path: Path, compression: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 MB of zeros; declared as 1000 bytes it is cut there, declared truly it is cut at a message's bound."""
    import lz4.frame

    monkeypatch.setattr(unpacking, "MOST_MESSAGE_BYTES", 8 << 20)
    zeros = bytes(300_000_000)
    packed = unpacking._zstd().compress(zeros) if compression == "zstd" else lz4.frame.compress(zeros)
    path = tmp_path / "a.mcap"
    path.write_bytes(mcap_with_chunk(compression, packed, size))
    del zeros
    assert peak_bytes(lambda: read_all(path)) < 40 << 20
    assert "unpacks to more than" in refused(lambda: read_all(path))


def test_a_message_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking.unpack_zstd, "__defaults__", (8 << 20,))
    path = one_message_bag(tmp_path / "bag", "sqlite3")
    base = sqlite3.connect(path)
    base.execute("UPDATE messages SET data = ?", (unpacking._zstd().compress(bytes(300_000_000)),))
    base.commit()
    base.close()
    assert peak_bytes(lambda: read_all(path)) < 40 << 20


def test_a_file_that_unpacks_to_more_than_a_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the bound is ever written, and nothing of it is left."""
    monkeypatch.setattr(unpacking, "_SMALL_BYTES", 4 << 20)
    monkeypatch.setattr(unpacking, "_MOST_RATIO", 1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "a.db3.zstd"
    path.write_bytes(unpacking._zstd().compress(bytes(100 << 20)))
    assert "unpacks to more than" in refused(lambda: read_all(path))
    assert [p.name for p in tmp_path.iterdir()] == ["a.db3.zstd"]


@pytest.mark.parametrize(
    "column", ["data BLOB GENERATED ALWAYS AS (zeroblob(900000000))", "data BLOB AS (zeroblob(900000000))"]
)
def test_a_database_that_computes_its_messages_is_refused(tmp_path: Path, column: str) -> None:
    path = one_message_bag(tmp_path / "bag", "sqlite3")
    base = sqlite3.connect(path)
    base.executescript(
        "ALTER TABLE messages RENAME TO old;"
        f"CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER,timestamp INTEGER,{column});"
        "INSERT INTO messages(id,topic_id,timestamp) SELECT id,topic_id,timestamp FROM old;"
    )
    base.commit()
    base.close()
    assert peak_bytes(lambda: read_all(path)) < 40 << 20
    assert "its table messages is not a plain one" in refused(lambda: read_all(path))


def test_plain_compressed_recordings_are_still_read(tmp_path: Path) -> None:
    plain = one_message_bag(tmp_path / "bag", "sqlite3")
    (tmp_path / "b.db3.zstd").write_bytes(unpacking._zstd().compress(plain.read_bytes()))
    assert bytes(read_all(tmp_path / "b.db3.zstd")[0].raw) == bytes(read_all(plain)[0].raw)
