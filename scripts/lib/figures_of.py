"""Figures of the records in docs/records, as docs/quoted.toml names them in its expressions.

A row of a record is found by its program, and by what is said of its problem: batch, heads, N, d, causal. What is not
said is as in the record's first row, so that tflops("bench_h200", "13") is at (4, 16, 4096, 64), full.
"""

import math
import re
from functools import cache

from made_tables import table_of
from records import read_record

PROBLEM = ("batch", "heads", "N", "d", "causal")


def number(text):
    """The first number of a text."""
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", text)
    if not found:
        raise ValueError(f"no number in '{text}'")
    digits = found[0].replace(",", "")
    return float(digits) if re.search(r"[.e]", digits) else int(digits)


@cache
def rows_of(record):
    """The rows of a record, with program and problem in the same places for all records."""
    try:
        rows = read_record(record)["rows"]
    except OSError as error:
        raise ValueError(f"there is no record {record}") from error
    flat = []
    for row in rows:
        problem = row.get("problem") if isinstance(row.get("problem"), dict) else row.get("shape", {})
        flat.append({**row, **problem, "program": row.get("program", row.get("rung"))})
    return flat


def rows(record, **where):
    """The rows of a record that have these fields, as dictionaries."""
    return [row for row in rows_of(record) if all(row.get(name) == value for name, value in where.items())]


def row_of(record, program, **where):
    """The one row of a program (its beginning is enough) that has these fields."""
    first = rows_of(record)[0]
    named = {**{name: first[name] for name in PROBLEM if name in first}, **where}
    found = [row for row in rows(record, **named) if str(row["program"]).startswith(program)]
    found = [row for row in found if row["program"] == program] or found
    if len(found) != 1:
        raise ValueError(f"{record} has {len(found)} rows of {program} with {named}, and it should be one")
    return found[0]


def ms(record, program, **where):
    """Milliseconds: the median."""
    return row_of(record, program, **where)["median_s"] * 1e3


def tflops(record, program, **where):
    """TFLOP/s, of the median."""
    row = row_of(record, program, **where)
    return row["flops"] / row["median_s"] / 1e12


def faster(record, program, than, **where):
    """How many times as fast as another program on the same problem, by the medians."""
    return ms(record, than, **where) / ms(record, program, **where)


def field(record, program, name, **where):
    """Another number of a program's row."""
    return row_of(record, program, **where)[name]


def counter(record, program, name, kernel=None):
    """What ncu counted in a rung, summed over its kernels, or in one of them."""
    counters = read_record(record)["counters"]
    found = [kernels for rung, kernels in counters.items() if rung.startswith(program)]
    if len(found) != 1 or (kernel and kernel not in found[0]):
        raise ValueError(f"{record} has no counters of {program} {kernel or ''}")
    return sum(counts[name] for of, counts in found[0].items() if kernel in (None, of))


def tried(program, name):
    """What ncu counted of an experiment of rung 09, or of that rung itself."""
    found = [one["counts"] for one in read_record("gpu_experiments")["variants"] if one["program"].startswith(program)]
    if len(found) != 1 or not found[0]:
        raise ValueError(f"gpu_experiments has no counts of {program}")
    return found[0][name]


def ceiling(record, name):
    """What a unit of the machine reached by itself, in operations or bytes a second."""
    return read_record(record)["ceilings"][name]


def stated(record, name):
    """A number that the record states of its machine, for example of max_sm_clock."""
    return number(read_record(record)[name])


def counted(side, program, name, kernel=None, problem=1):
    """What the GPU ("gpu") or the SIMT backend ("simt") counted on one of the problems of the record gpu_counters."""
    options = list(dict.fromkeys(row["problem"] for row in rows_of("gpu_counters")))[problem - 1]
    found = [row[side] for row in rows("gpu_counters", problem=options, counter=name)
             if row["rung"].startswith(program) and kernel in (None, row["kernel"])]
    if not found:
        raise ValueError(f"gpu_counters has no '{name}' of {program} {kernel or ''}, problem {problem}")
    return sum(found)


def cell(record, title, row, column):
    """A number of a table that scripts/tables makes of a record; the row by how its first cell begins."""
    header, _, *lines = [[part.strip() for part in line.strip("|").split("|")] for line in table_of(record, title)]
    found = [cells for cells in lines if cells[0] == row] or [cells for cells in lines if cells[0].startswith(row)]
    if len(found) != 1 or header.count(column) != 1:
        raise ValueError(f"{record}: {title}: not one row '{row}' and one column '{column}' of {'; '.join(header)}")
    return number(found[0][header.index(column)])


def tried_cell(rung, row, column):
    """A number of a rung's log, of a row by how it begins; "" is the rung as it is."""
    return cell("gpu_experiments", f"rung {rung}", row or f"rung {rung}", column)


def lost(rung, row, column):
    """By how many per cent it is less than in the rung as it is."""
    return 100 * (1 - tried_cell(rung, row, column) / tried_cell(rung, "", column))


NAMES = {function.__name__: function
         for function in (ms, tflops, faster, field, counter, tried, tried_cell, lost, ceiling, stated, counted, cell,
                          rows)}
NAMES |= {function.__name__: function
          for function in (abs, range, min, max, sum, round, math.sqrt, math.exp, math.log)}
