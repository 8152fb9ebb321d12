"""Reads and writes safetensors files with nothing but Python's standard library.

The format: 8 bytes, the header's length, little endian; the header, JSON; then the tensors' bytes,
row-major.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.ladder import LabError

Tensor = tuple[str, Sequence[int], bytes]  # type, shape, what it holds

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
FORMATS = {"F64": "d", "F32": "f", "F16": "e", "BF16": "f"}  # of struct


def is_entry(entry: Any) -> bool:
    """Whether a value of the header describes a tensor: dtype, shape, data_offsets."""
    try:
        first, last = entry["data_offsets"]
        return all(type(size) is int and size >= 0 for size in (*entry["shape"], first, last))
    except (KeyError, TypeError, ValueError):
        return False


class SafetensorsFile:
    """The header of a file, checked; tensors are read when asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
                self._size = file.seek(0, 2)
            self._data_begin = 8 + length
            self.metadata = header.pop("__metadata__", {})
            self._entries = header
            sound = all(map(is_entry, header.values())) and isinstance(self.metadata, dict)
        except OSError as error:
            raise LabError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, AttributeError, OverflowError, MemoryError):
            sound = False
        if not sound:
            raise LabError(f"{path} is no safetensors file: its header does not describe tensors")

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entry(name)["shape"])

    def dtype(self, name: str) -> str:
        """As the format spells it: "F32"."""
        return self._entry(name).get("dtype", "")

    def _entry(self, name: str) -> dict[str, Any]:
        if name not in self._entries:
            known = ", ".join(sorted(self._entries)) or "none"
            raise LabError(f"{self.path} has no tensor '{name}' (it has: {known})")
        return self._entries[name]

    def data(self, name: str, begin: int = 0, count: int | None = None) -> bytes:
        """The bytes of `count` elements from element `begin` on, or of all."""
        entry, size = self._entry(name), SIZES.get(self.dtype(name), 0)
        elements = math.prod(entry["shape"])
        first, last = entry["data_offsets"]
        whole = size and last - first == elements * size and self._data_begin + last <= self._size
        if not whole:
            raise LabError(
                f"{self.path}: tensor '{name}' does not have the bytes that its header promises, "
                f"or is of another type than {', '.join(SIZES)}"
            )
        with open(self.path, "rb") as file:
            file.seek(self._data_begin + first + begin * size)
            return file.read((elements if count is None else count) * size)

    def floats(self, name: str, begin: int, count: int) -> list[float]:
        """`count` elements from element `begin` on, as a list of floats."""
        data, dtype = self.data(name, begin, count), self.dtype(name)
        if dtype == "BF16":  # the upper half of an fp32
            data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return list(struct.unpack(f"<{count}{FORMATS[dtype]}", data))


def write(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes {name: (dtype, shape, bytes)} and the metadata, a string for each key."""
    header: dict[str, Any] = {"__metadata__": dict(metadata or {})}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        offsets = [offset, offset + len(data)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data begins at a multiple of 8
    data = b"".join(data for _, _, data in tensors.values())
    try:
        Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from None
