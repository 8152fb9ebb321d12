"""What scripts/mutations takes out of rungs 12 and 13: each barrier, wait and mask, one at a time.

A mutant is (text, occurrence, in its place, what it is). The text must stand in the kernel file at least `occurrence`
times; None in its place removes a statement.
"""

COMMIT, WAIT, BARRIER, WARP = "flash::cp_async_commit();", "flash::cp_async_wait<0>();", "__syncthreads();", "__syncwarp();"
VISIBLE = "min(N_kv, first_row_keys + row0 + 16 * i + 8 * r)"

BOTH = [
    (COMMIT, 1, None, "commit of Q and the first tile"),
    (COMMIT, 2, None, "commit of a further tile"),
    (WAIT, 1, None, "wait for a tile's copies"),
    (BARRIER, 1, None, "barrier of a tile"),
    (WAIT, 2, None, "wait for Q when there is no key"),
    ("rows - copy_row", 1, "Br", "zeros in place of queries behind the last"),
    ("N_kv - copy_row - j0", 1, "Bc", "zeros in place of keys behind the last"),
    ("N_kv - copy_row - j0", 2, "Bc", "zeros in place of values behind the last"),
    ("8 * n + e < visible", 1, "true", "mask"),
    (VISIBLE, 1, "first_row_keys + row0 + 16 * i + 8 * r", "mask of keys behind the last"),
    (VISIBLE, 1, "N_kv", "causal mask"),
    ("min(N_kv, first_row_keys)", 1, "keys", "masked loop for edge tiles"),
    ("m_new == -INFINITY", 1, "false", "case of a row without keys: maximum"),
    ("l == 0", 1, "false", "case of a row without keys: O = 0"),
    ("t == 0 && row < rows", 1, "t == 0", "no LSE of queries behind the last"),
    ("if (row < rows)", 1, "if (true)", "no O of queries behind the last"),
]

MUTANTS = {
    "12_async_pipeline": BOTH + [
        (BARRIER, 2, None, "barrier ahead of O when there is no key"),
        (WARP, 1, None, "barrier of the warp between O in and O out"),
    ],
    "13_fixed_maximum": BOTH + [
        ("__syncthreads_or(!(sum < 0x1p60f))", 1, "(__syncthreads(), false)", "test of the sums"),
        ("__syncthreads_or(!(sum < 0x1p60f))", 1, "!(sum < 0x1p60f)", "barrier in the test of the sums"),
        ("clear();", 2, None, "clearing before starting over"),
        (COMMIT, 3, None, "commit of the first tile when starting over"),
        (WARP, 1, None, "barrier of the warp ahead of O after starting over"),
        (WARP, 2, None, "barrier of the warp between O in and O out"),
    ],
}


def place(source, text, occurrence):
    """Where the occurrence starts."""
    start = -1
    for _ in range(occurrence):
        start = source.find(text, start + 1)
        if start < 0:
            raise ValueError(f"'{text}' does not stand {occurrence} times in the kernel; put the mutant right")
    return start


def with_switches(source, mutants):
    """The kernel with all its mutants in it, from 1 on: flash_mutant(n), a function, says whether n is the one to be."""
    changes = {}
    for number, (text, occurrence, instead, _) in enumerate(mutants, 1):
        changes.setdefault((place(source, text, occurrence), text), []).append((number, instead))
    for (start, text), variants in sorted(changes.items(), reverse=True):
        changed = text
        for number, instead in variants:
            if instead is None:
                changed = f"if (!flash_mutant({number})) {{ {changed} }}"
            elif text.startswith("if ("):
                changed = f"if (flash_mutant({number}) || {text[4:]}"
            else:
                changed = f"(flash_mutant({number}) ? ({instead}) : ({changed}))"
        source = source[:start] + changed + source[start + len(text):]
    return f"bool flash_mutant(int number); // of steps/tests/mutations.cpp\n{source}"
