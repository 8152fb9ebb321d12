"""Rows and columns of what a block keeps in shared memory, as its recording shows them.

Debug information has the members of a struct with their types, and so the rows of float K[32][65].
Where it says less, as of T Q[Br * d] or of memory that is a plain float*, the run itself tells: a
store of what the warp has just read from row 3 of K, column 17, is K[3][17].
"""

import re
from collections import defaultdict

TYPES = {
    "float": "float",
    "Half": "half",
    "Bfloat16": "bfloat16",
    "int": "int",
    "unsigned int": "unsigned",
}


def complete(trace):
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


def shape(variable, seen, element):
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
                variable |= found | {"type": element}


def copies(trace):
    """{(name, bytes of a row) of a tensor: {address in shared memory: (row, byte in it)}}: where
    its elements went first."""
    loads, stores = defaultdict(list), defaultdict(list)
    for key, is_store, pieces in accesses(trace):
        (stores if is_store else loads)[key].append(pieces)
    tensors = [buffer for buffer in trace["buffers"] if "row_bytes" in buffer]
    found = defaultdict(dict)
    for key, stored in stores.items():
        for to, read in zip(stored, loads[key]):
            for address, source in zip(to, read):
                for one in tensors:
                    if 0 <= (byte := source - one["at"]) < one["bytes"]:
                        own = found[one["name"], one["row_bytes"]]
                        own.setdefault(address, divmod(byte, one["row_bytes"]))
    return found


def accesses(trace):
    """What each step that loads from global memory or stores to shared memory touches: (its warp,
    line, lanes and bytes), whether it stores, and the address of each lane."""
    steps, bases = trace["steps"], defaultdict(int)
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


def stride_of(seen):
    """(where its first row begins, bytes from row to row), if rows lie one after the other."""
    (at, (row, byte)), first = next(iter(seen.items())), min(row for row, _ in seen.values())
    other = next(((a, *w) for a, w in seen.items() if w[0] != row), None)
    if other is None:
        return None
    stride, rest = divmod((other[0] - other[2]) - (at - byte), other[1] - row)
    begin = at - byte - row * stride
    plain = all(a == begin + r * stride + b for a, (r, b) in seen.items())
    return (begin + first * stride, stride) if plain and not rest else None


def rows_in(variable, seen, row_bytes):
    """Rows and columns of a variable that is filled with rows of a tensor; and its swizzle."""
    rows = variable["bytes"] // row_bytes
    element = 2 if variable["type"] in ("half", "bfloat16", "") else 4
    shape = {"rows": rows, "columns": row_bytes // element}
    if found := stride_of(seen):
        return shape if found == (variable["at"], row_bytes) else None
    first, width = min(row for row, _ in seen.values()), min(row_bytes, 128)

    def swizzled(row, byte):
        half, byte = divmod(byte, width)
        key = row // 2 % 4 if width < 128 else row % 8
        return variable["at"] + (half * rows + row) * width + (byte ^ key << 4)

    if all(at == swizzled(row - first, byte) for at, (row, byte) in seen.items()):
        return shape | {"swizzle": {"row_bytes": width, "rows": rows}}
    return None


def tiles_of(seen, element, dynamic):
    """The tiles of a kernel whose shared memory has no names: each is called as the tensor that it
    is filled from, and what lies between them is what the block has computed."""
    width = 4 if element == "float" else 2
    found = []
    for (name, row_bytes), of in seen.items():
        if tile := stride_of(of):
            at, stride = tile
            rows = len({row for row, _ in of.values()})
            shape = {"rows": rows, "columns": row_bytes // width, "stride": stride // width}
            found.append({"name": name, "at": at, "bytes": rows * stride, "type": element} | shape)
    end = 0
    for tile in [*sorted(found, key=lambda one: one["at"]), {"at": dynamic, "bytes": 0}]:
        if tile["at"] > end:
            rest = {"name": "computed", "at": end, "bytes": tile["at"] - end, "type": element}
            found.append(rest | {"rows": 1, "columns": rest["bytes"] // width})
        end = tile["at"] + tile["bytes"]
    return found
