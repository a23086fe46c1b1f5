"""NumPy's files, read within bounds: what a header promises is compared with what is there before memory is taken.

numpy.load opens a zip archive that is called .npy, takes the memory a header asks for, and unpacks what is compressed
without end; a file of a few kilobytes is then gigabytes.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

MOST_BYTES = 1 << 30  # of one array
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_HEADER_BYTES = 20_000  # more than the longest that is read


def read_npy(path: str | Path, most_bytes: int = MOST_BYTES) -> np.ndarray:
    """The array of a .npy file; every failure is a ValueError of one line."""
    try:
        with Path(path).open("rb") as stream:
            return _read_array(stream, os.fstat(stream.fileno()).st_size, most_bytes)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)}); write it with numpy.save") from error


def read_npz(path: str | Path, names: Sequence[str], most_bytes: int = MOST_BYTES) -> list[np.ndarray]:
    """These arrays of a .npz file; OSError where it cannot be opened, else a ValueError of one line."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [_read_member(archive, f"{name}.npy", most_bytes) for name in names]
    except (ValueError, OSError):
        raise
    except Exception as error:  # zlib, struct, encryption: an archive breaks in many ways
        raise ValueError(one_line(error)) from error


def has_array(path: str | Path, name: str) -> bool:
    """Whether a .npz file holds an array of that name; False for what is no such file, too."""
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{name}.npy" in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def one_line(error: Exception) -> str:
    """What an error says, on one line and not too long."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _read_member(archive: zipfile.ZipFile, name: str, most_bytes: int) -> np.ndarray:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ValueError(f"it lacks {name.removesuffix('.npy')}") from None
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed in a way numpy.savez does not")  # and that has no bounded reader
    if info.file_size > most_bytes + _HEADER_BYTES:
        raise ValueError(f"{name} unpacks to {info.file_size} bytes, over the {most_bytes} that are allowed")
    with archive.open(info) as member:
        data = member.read(info.file_size + 1)
    return _read_array(io.BytesIO(data), len(data), most_bytes)


def _read_array(stream: BinaryIO | io.BytesIO, length: int, most_bytes: int) -> np.ndarray:
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran, dtype = _HEADERS[version](stream)
    except Exception as error:  # the header is Python text: its parser may raise anything
        raise ValueError(f"it has no header of NumPy's: {one_line(error)}") from error
    if dtype.kind not in "fiub" or min(shape, default=0) < 0:
        raise ValueError(f"it holds {dtype} of shape {shape}, not numbers")
    needed, there = math.prod(shape) * dtype.itemsize, length - stream.tell()
    if needed > there:
        raise ValueError(f"its header says shape {_short(shape)}, {needed} bytes, but {there} are there")
    if needed > most_bytes:
        raise ValueError(f"its shape {_short(shape)} takes {needed} bytes, over the {most_bytes} that are allowed")
    array = np.frombuffer(stream.read(needed), dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C").copy()


def _short(shape: tuple[Any, ...]) -> str:
    return str(shape)[:60]
