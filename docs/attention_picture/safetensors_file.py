"""Reads safetensors files with nothing but Python's standard library.

The format: 8 bytes, the header's length, little endian; the header, JSON; then the tensors' bytes, row-major.
"""

import json
import math
import struct


class BadFile(Exception):
    """What is wrong with the file, for people."""


def is_entry(entry):
    """Whether a value of the header describes a tensor: dtype, shape, data_offsets."""

    def sizes(key):
        values = entry.get(key)
        return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)

    return (
        isinstance(entry, dict)
        and sizes("shape")
        and sizes("data_offsets")
        and len(entry["data_offsets"]) == 2
    )


class SafetensorsFile:
    """The header of a file, checked; tensors are read when asked for."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                prefix = file.read(8)
                length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
                self._size = file.seek(0, 2)
                if not 2 <= length <= self._size - 8:
                    raise BadFile(
                        f"{path} is no safetensors file: its header does not fit into its {self._size} bytes"
                    )
                file.seek(8)
                header = json.loads(file.read(length))
        except OSError as error:
            raise BadFile(f"cannot read {path}: {error.strerror}") from None
        except ValueError:
            raise BadFile(f"{path} is no safetensors file: its header is not JSON") from None
        if not isinstance(header, dict):
            raise BadFile(f"{path} is no safetensors file: its header is not a JSON object")
        self._data_begin = 8 + length
        self.metadata = header.pop("__metadata__", {})
        self._entries = header
        if not all(is_entry(e) for e in header.values()) or not isinstance(self.metadata, dict):
            raise BadFile(f"{path} is no safetensors file: its header does not describe tensors")

    def shape(self, name):
        return tuple(self._entry(name)["shape"])

    def _entry(self, name):
        if name not in self._entries:
            raise BadFile(
                f"{self.path} has no tensor '{name}' (it has: {', '.join(sorted(self._entries)) or 'none'})"
            )
        return self._entries[name]

    def floats(self, name, begin, count):
        """`count` elements from element `begin` on, of an F32, F16 or BF16 tensor, as a list of floats."""
        entry = self._entry(name)
        size = {"F32": 4, "F16": 2, "BF16": 2}.get(entry.get("dtype"))
        if size is None:
            raise BadFile(
                f"{self.path}: tensor '{name}' is {entry.get('dtype')}; F32, F16 and BF16 can be read"
            )
        first, last = entry["data_offsets"]
        if last - first != math.prod(entry["shape"]) * size or self._data_begin + last > self._size:
            raise BadFile(
                f"{self.path}: tensor '{name}' does not have the bytes that its header promises"
            )
        with open(self.path, "rb") as file:
            file.seek(self._data_begin + first + begin * size)
            data = file.read(count * size)
        if entry["dtype"] == "BF16":  # the upper half of an fp32
            data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return list(struct.unpack(f"<{count}{'e' if entry['dtype'] == 'F16' else 'f'}", data))
