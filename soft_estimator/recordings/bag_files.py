"""Opening rosbag2 recordings of any making: a folder or single files, MCAP or SQLite, split, compressed, without
metadata.

The storage files themselves are read, never the folder: its metadata.yaml may be missing after a crash, and may tell
other QoS than the files do, which hides topics. Message types are the standard ones; definitions stored in the bag,
which may be of any package, are not needed.
"""

from __future__ import annotations

import heapq
import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from soft_estimator.recordings.unpacking import bound_chunks, unpack_file, unpack_zstd
from soft_estimator.schema.section import printable

BAG_ENDINGS = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"  # no CDR message starts like this


@dataclass(frozen=True)
class Topic:
    """A topic of a bag: its name, the type of its messages and how many there are."""

    name: str
    kind: str
    count: int


@dataclass(frozen=True, eq=False)
class BagMessage:
    """A message as it was recorded: when it was received [ns], on which topic, and its bytes."""

    stamp_ns: int
    topic: str
    kind: str
    raw: bytes


class Bag:
    """A bag opened for reading; use it in a `with` block."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.files = storage_files(self.path)
        self._stack = ExitStack()
        self._readers: list[Any] = []
        self._store: Any = None

    def __enter__(self) -> Bag:
        reader, self._store = _import_rosbags()
        try:
            for file in self.files:
                self._readers.append(self._open(reader, file))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._readers.clear()
        self._stack.close()

    def _open(self, reader: Any, file: Path) -> Any:
        try:
            if file.suffix == ".zstd":
                folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="soft_estimator_bag_")))
                file = unpack_file(file, folder)
            if file.suffix == ".db3":
                check_plain_tables(file)
            opened = reader(file)
            opened.open()
        except Exception as error:  # a damaged file fails in any way: struct, assertion, SQLite, ...
            raise ValueError(_damaged(file, error)) from error
        self._stack.callback(opened.close)
        return opened

    @property
    def topics(self) -> list[Topic]:
        """What is in the bag, by name."""
        found: dict[tuple[str, str], int] = {}
        for reader in self._readers:
            for c in reader.connections:
                found[c.topic, c.msgtype] = found.get((c.topic, c.msgtype), 0) + c.msgcount
        return [Topic(name, kind, count) for (name, kind), count in sorted(found.items())]

    def messages(self, topics: Collection[str]) -> Iterator[BagMessage]:
        """Messages of these topics in the order in which they were received."""
        streams = [self._stream(number, reader, topics) for number, reader in enumerate(self._readers)]
        for _, _, message in heapq.merge(*streams, key=lambda item: item[:2]):
            yield message

    def _stream(self, number: int, reader: Any, topics: Collection[str]) -> Iterator[tuple[int, int, BagMessage]]:
        wanted = [c for c in reader.connections if c.topic in topics]
        if not wanted:
            return
        messages = reader.messages(wanted)
        while True:
            try:
                connection, stamp_ns, raw = next(messages)
                if bytes(raw[:4]) == _ZSTD_MAGIC:
                    raw = unpack_zstd(bytes(raw))
            except StopIteration:
                return
            except Exception as error:
                raise ValueError(_damaged(self.files[number], error)) from error
            yield stamp_ns, number, BagMessage(stamp_ns, connection.topic, connection.msgtype, raw)

    def decode(self, message: BagMessage) -> Any:
        """The message itself; a ValueError where its bytes are not what its type says."""
        try:
            return self._store.deserialize_cdr(message.raw, message.kind)
        except Exception as error:
            said = printable(" ".join(str(error).split())) or type(error).__name__
            kind, topic = printable(message.kind), printable(message.topic)
            raise ValueError(f"a {kind} on {topic} cannot be decoded ({said})") from error


def is_recording(path: Path) -> bool:
    """Whether a path is a storage file, or a recording's folder; one that was cut off has no metadata.yaml."""
    if path.is_dir():
        return (path / "metadata.yaml").is_file() or any(file.name.endswith(BAG_ENDINGS) for file in path.iterdir())
    return path.name.endswith(BAG_ENDINGS)


def storage_files(path: Path) -> list[Path]:
    """The storage files of a bag in their order: bag_2 before bag_10."""
    if not path.exists():
        raise ValueError(f"bag {path} does not exist; give the folder of a recording, or its .mcap or .db3 file")
    if path.is_file():
        if not path.name.endswith(BAG_ENDINGS):
            raise ValueError(f"{path} is no bag; give the folder of a recording, or its .mcap or .db3 file")
        return [path]
    files = [file for file in path.iterdir() if file.is_file() and file.name.endswith(BAG_ENDINGS)]
    # where a file lies beside its unpacked twin, one of them is enough
    plain = {file.name for file in files}
    files = [file for file in files if not (file.suffix == ".zstd" and file.name.removesuffix(".zstd") in plain)]
    if not files:
        raise ValueError(f"bag {path} holds no .mcap or .db3 file; was the recording copied completely?")
    return sorted(files, key=lambda file: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", file.name)])


def list_topics(topics: Collection[Topic]) -> str:
    """Topics for an error message: /tf (tf2_msgs/msg/TFMessage, 12 messages), ..."""
    if not topics:
        return "it is empty"
    return "it has " + printable(", ".join(f"{t.name} ({t.kind}, {t.count} messages)" for t in topics), 600)


def check_plain_tables(file: Path) -> None:
    """Refuse a database whose tables compute what they hold: a few bytes of SQL make a message of a gigabyte."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
        for table in ("messages", "topics"):
            hidden = [row[1] for row in base.execute(f"PRAGMA table_xinfo({table})") if row[6]]
            (sql,) = base.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone() or ("",)
            if hidden or "virtual" in sql.lower().split("(")[0]:
                raise ValueError(f"its table {table} is not a plain one, as a recorder writes it")


def _damaged(file: Path, error: Exception) -> str:
    said = printable(" ".join(str(error).split())) or type(error).__name__
    remedy = "mcap recover" if ".mcap" in file.name else "sqlite3 .recover"
    return f"bag file {file} cannot be read ({said}); it is damaged or was cut short: try `{remedy}` on it"


def _import_rosbags() -> tuple[Any, Any]:
    try:
        from rosbags.rosbag2 import Reader
    except ImportError as error:
        raise ValueError("reading a bag needs rosbags; run: pip install 'rosbags>=0.11.6,<0.12'") from error
    bound_chunks()
    return Reader, message_types()


@cache
def message_types() -> Any:
    """ROS 2's messages, as rosbags reads and writes them. It compiles how for each type, which for another bag took as
    long again: 70 ms."""
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_JAZZY)
