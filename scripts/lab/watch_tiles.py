"""Rows and columns of what a block keeps in shared memory, as its recording shows them.

Debug information has the members of a struct with their types, and so the rows of float K[32][65].
Where it says less, as of T Q[Br * d] or of memory that is a plain float*, the run itself tells: a
store of what the warp has just read from row 3 of K, column 17, is K[3][17].
"""

import re
from collections import defaultdict
from collections.abc import Iterator

TYPES = {
    "float": "float",
    "Half": "half",
    "Bfloat16": "bfloat16",
    "int": "int",
    "unsigned int": "unsigned",
}

Places = dict[int, tuple[int, int]]  # address in shared memory: row of a tensor, byte in it
Copies = dict[tuple[str, int], Places]  # of each tensor: its name, and the bytes of a row


def complete(trace: dict) -> None:
    """Gives the tensors of a recording their rows, and what lies in shared memory its rows, its
    columns and its swizzle."""
    arguments, kernel = trace["run"]["arguments"], trace["run"]["kernel"]
    dim = arguments[arguments.index("--head-dim") + 1] if "--head-dim" in arguments else 64
    sixteen = re.search("Half|Bfloat16", kernel)
    element = TYPES[sixteen[0]] if sixteen else "float"
    for buffer in trace["buffers"]:
        if re.fullmatch("d?[QKVO]", buffer["name"]):
            buffer["row_bytes"] = int(dim) * (2 if sixteen else 4)
    shared, seen = trace["shared"], copies(trace)
    for variable in shared["variables"]:
        shape(variable, seen, element)
    if shared["dynamic"] and not any(v["at"] < shared["dynamic"] for v in shared["variables"]):
        shared["variables"] += tiles_of(seen, element, shared["dynamic"])


def shape(variable: dict, seen: Copies, element: str) -> None:
    """By its type, else by what was copied into it."""
    kind, dims = variable.get("type", ""), variable.pop("dims", None) or []
    variable["type"] = TYPES.get(kind, "")
    if tile := re.match(r"SwizzledTile<(\d+), (\d+)>", kind):
        columns, rows = int(tile[1]), int(tile[2])
        variable |= {"type": element, "rows": rows, "columns": columns}
        variable["swizzle"] = {"row_bytes": min(2 * columns, 128), "rows": rows}
    elif len(dims) > 1:
        variable["columns"] = dims[-1]
        variable["rows"] = variable["bytes"] // (dims[-1] * variable["element"])
    elif len(dims) == 1:
        variable |= {"rows": 1, "columns": dims[0]}
        end = variable["at"] + variable["bytes"]
        for tensor, of in seen.items():
            inside = {at: where for at, where in of.items() if variable["at"] <= at < end}
            if inside and (found := rows_in(variable, inside, tensor[1])):
                variable |= found | {"type": variable["type"] or element}


def copies(trace: dict) -> Copies:
    """Where the elements of tensors went first."""
    loads: dict[tuple, list] = defaultdict(list)
    stores: dict[tuple, list] = defaultdict(list)
    for key, is_store, pieces in accesses(trace):
        (stores if is_store else loads)[key].append(pieces)
    tensors = [buffer for buffer in trace["buffers"] if "row_bytes" in buffer]
    found: Copies = defaultdict(dict)
    for key, stored in stores.items():
        for to, read in zip(stored, loads[key]):
            for address, source in zip(to, read):
                for one in tensors:
                    if 0 <= (byte := source - one["at"]) < one["bytes"]:
                        own = found[one["name"], one["row_bytes"]]
                        own.setdefault(address, divmod(byte, one["row_bytes"]))
    return found


def accesses(trace: dict) -> Iterator[tuple[tuple, bool, list[int]]]:
    """What each step that loads from global memory or stores to shared memory touches: (its warp,
    line, lanes and bytes), whether it stores, and the address of each lane."""
    steps = trace["steps"]
    bases: dict[tuple, int] = defaultdict(int)
    for warp, number, pattern, base in zip(
        *(steps[c] for c in ("warp", "site", "pattern", "base"))
    ):
        site = trace["sites"][number]
        if warp < 0:
            continue
        bases[warp, number] += base
        what = site["operation"], site.get("space")
        if what in (("load", "global"), ("store", "shared")):
            lanes, offsets = (trace["patterns"][pattern][part] for part in ("lanes", "offsets"))
            place = warp, site["file"], site["line"], lanes, site["bytes"]
            yield place, what[0] == "store", [bases[warp, number] + one for one in offsets]


def stride_of(seen: Places) -> tuple[int, int] | None:
    """(where its first row begins, bytes from row to row), if rows lie one after the other."""
    at, (row, byte) = next(iter(seen.items()))
    for other, (other_row, other_byte) in seen.items():
        if other_row != row:
            stride = ((other - other_byte) - (at - byte)) // (other_row - row)
            begin = at - byte - row * stride
            plain = all(a == begin + r * stride + b for a, (r, b) in seen.items())
            return (begin + min(r for r, _ in seen.values()) * stride, stride) if plain else None
    return None


def rows_in(variable: dict, seen: Places, row_bytes: int) -> dict | None:
    """Rows and columns of a variable that is filled with rows of a tensor; and its swizzle."""
    rows = variable["bytes"] // row_bytes
    element = 2 if variable["type"] in ("half", "bfloat16", "") else 4
    shape = {"rows": rows, "columns": row_bytes // element}
    if rows < 2:
        return None
    if found := stride_of(seen):
        return shape if found == (variable["at"], row_bytes) else None
    first, width = min(row for row, _ in seen.values()), min(row_bytes, 128)

    def swizzled(row: int, byte: int) -> int:
        half, byte = divmod(byte, width)
        key = row // 2 % 4 if width < 128 else row % 8
        return variable["at"] + (half * rows + row) * width + (byte ^ key << 4)

    if all(at == swizzled(row - first, byte) for at, (row, byte) in seen.items()):
        return shape | {"swizzle": {"row_bytes": width, "rows": rows}}
    return None


def tiles_of(seen: Copies, element: str, dynamic: int) -> list[dict]:
    """The tiles of a kernel whose shared memory has no names: each is called as the tensor that it
    is filled from, and what lies between them is what the block has computed."""
    width = 4 if element == "float" else 2
    found: list[dict] = []
    for (name, row_bytes), of in seen.items():
        if begin_and_stride := stride_of(of):
            at, stride = begin_and_stride
            rows = len({row for row, _ in of.values()})
            shape = {"rows": rows, "columns": row_bytes // width, "stride": stride // width}
            found.append({"name": name, "at": at, "bytes": rows * stride, "type": element} | shape)
    end = 0
    for begin, bytes_ in [*sorted((tile["at"], tile["bytes"]) for tile in found), (dynamic, 0)]:
        if begin > end:
            rest = {"name": "computed", "at": end, "bytes": begin - end, "type": element}
            found.append(rest | {"rows": 1, "columns": (begin - end) // width})
        end = begin + bytes_
    return found
