"""The small tables beside recorded frames: stamps.csv and poses.csv."""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath, PureWindowsPath

MOST_TABLE_BYTES = 16 << 20


def read_table(path: Path) -> list[tuple[int, list[str]]]:
    """The lines of a .csv file that hold anything, with their numbers; every failure is a ValueError of one line."""
    try:
        size = path.stat().st_size
        if size > MOST_TABLE_BYTES:
            raise ValueError(f"it has {size} bytes, over the {MOST_TABLE_BYTES} that are read")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            return [(number, line) for number, line in enumerate(csv.reader(stream), 1) if "".join(line).strip()]
    except (OSError, ValueError, csv.Error) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{path} is not a text table ({said}); write it anew") from None


def file_inside(folder: Path, name: str) -> Path | None:
    """The file a table names, or None where the name leads out of the table's folder: it may come from anyone."""
    parts = PurePosixPath(name).parts + PureWindowsPath(name).parts
    absolute = PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive or PureWindowsPath(name).root
    return None if absolute or ".." in parts or "\0" in name or not name else folder / name
