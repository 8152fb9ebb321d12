"""Rows and columns of what a kernel keeps in shared memory.

Debug information has the members of a struct with their types. What it does not have is taken from
the declarations: `T Q[Br * d]` has rows of d, and `K_smem = Q_smem + Br * d` says the same of
Q_smem."""

import re

TYPES = {
    "float": "float",
    "Half": "half",
    "Bfloat16": "bfloat16",
    "int": "int",
    "unsigned int": "unsigned",
}
CONSTANT = re.compile(r"constexpr int (\w+) = ([^;:]+(?:\?[^;:]+:[^;:]+)?);")
CONDITIONAL = re.compile(r"^(.+?)\?(.+?):(.+)$")


def constants(source, d):
    """{name: number} of those that can be computed, for this head dimension."""
    known = {"d": d}
    for name, text in CONSTANT.findall(source):
        value = evaluate(text, known)
        if value is not None:
            known.setdefault(name, value)
    return known


def evaluate(text, known):
    if choice := CONDITIONAL.match(text):
        condition = evaluate(choice[1], known)
        return None if condition is None else evaluate(choice[2 if condition else 3], known)
    names = set(re.findall(r"[A-Za-z_]\w*", text))
    if not names <= known.keys() or not re.fullmatch(r"[\w\s+*/()<>=!-]+", text):
        return None
    return eval(text.replace("/", "//"), {"__builtins__": {}}, dict(known))


def of_declaration(name, source, known):
    """(rows, columns, whether it is 16-bit elements in bytes) of `name[rows * columns]`."""
    found = re.search(rf"\b{name}\[(\w+) \* (\w+)( \* 2)?\]", source)
    if not found:
        return None
    rows, columns = evaluate(found[1], known), evaluate(found[2], known)
    return None if rows is None or columns is None else (rows, columns, bool(found[3]))


def of_offsets(source, known):
    """Tiles that constants NAME_smem place in floats, each behind the one before."""
    names = [name for name, _ in CONSTANT.findall(source) if name.endswith("_smem")]
    shapes = {}
    for begin, rows, columns in re.findall(r"= (\w+_smem) \+ (\w+)(?: \* (\w+))?;", source):
        shapes[begin] = (evaluate(columns or "1", known), evaluate(rows, known))
    for name in dict.fromkeys(names):
        if name in known and name in shapes and None not in shapes[name]:
            columns, rows = shapes[name]
            yield {
                "name": name.removesuffix("_smem"),
                "at": 4 * known[name],
                "bytes": 4 * rows * columns,
                "type": "float",
                "rows": rows,
                "columns": columns,
            }


def complete(trace, source):
    """Gives the variables of a recording rows, columns and what their swizzle is."""
    kernel = trace["run"]["kernel"]
    numbers = [int(text) for text in re.findall(r"\b\d+\b", kernel.partition("<")[2])]
    known = constants(source, numbers[0] if numbers else 64)
    sixteen = "bfloat16" if "Bfloat16" in kernel else "half"
    shared = trace["shared"]
    for variable in shared["variables"]:
        shape(variable, source, known, sixteen)
    if shared["dynamic"] and not any(v["at"] < shared["dynamic"] for v in shared["variables"]):
        shared["variables"] += of_offsets(source, known)
    complete_buffers(trace)


def complete_buffers(trace):
    """Rows of the tensors in global memory: head_dim elements."""
    arguments = trace["run"]["arguments"]
    head_dim = int(
        arguments[arguments.index("--head-dim") + 1] if "--head-dim" in arguments else 64
    )
    sixteen = re.search("Half|Bfloat16", trace["run"]["kernel"])
    for buffer in trace["buffers"]:
        if re.fullmatch("d?[QKVO]", buffer["name"]):
            buffer["row_bytes"] = head_dim * (2 if sixteen else 4)


def shape(variable, source, known, sixteen):
    kind, dims = variable.get("type", ""), variable.get("dims") or []
    variable["type"] = TYPES.get(kind, "")
    if tile := re.match(r"SwizzledTile<(\d+), (\d+)>", kind):
        columns, rows = int(tile[1]), int(tile[2])
        row_bytes = 2 * columns if columns < 64 else 128
        variable |= {"type": sixteen, "rows": rows, "columns": columns}
        variable["swizzle"] = {"row_bytes": row_bytes, "rows": rows}
    elif len(dims) > 1:
        variable["columns"] = dims[-1]
        variable["rows"] = variable["bytes"] // (dims[-1] * variable["element"])
    elif len(dims) == 1:
        declared = of_declaration(variable["name"], source, known)
        rows, columns, in_bytes = declared or (1, dims[0], False)
        variable |= {"rows": rows, "columns": columns}
        if in_bytes:
            variable["type"] = sixteen
            row_bytes = 2 * columns if columns < 64 else 128
            if "swizzled(" in source:
                variable["swizzle"] = {"row_bytes": row_bytes, "rows": rows}
    variable.pop("dims", None)
