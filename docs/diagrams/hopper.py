#!/usr/bin/env python3
"""Draws the pictures of chapters 19 to 22: docs/diagrams/hopper.py [--check] [FILE.svg ...]

Where a chunk of a swizzled tile lies comes from steps/tests/layouts.py, which a test compares with what a program finds
by trying. Tile sizes, slots and the offsets in descriptors are read from the kernels. What happens when is computed by
following both roles, or both warpgroups, for chosen lengths: such a picture says so. --check writes nothing and
compares with the files in docs/figures. All pictures are narrow, so that a phone can show them.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from command import main  # noqa: E402
from lab import records  # noqa: E402
from lab.diagrams import Drawing  # noqa: E402
from lab.layouts import swizzled  # noqa: E402

WIDTH = 560  # of a picture, whose text has 13 pixels: a phone shows it at 8


def said(rung, pattern):
    """The groups of a pattern where the rung's kernel has it, once."""
    found = re.findall(
        pattern, next((ROOT / "steps").glob(f"{rung}_*/*.cu")).read_text(encoding="utf-8")
    )
    if len(found) != 1:
        raise ValueError(f"the kernel of rung {rung} has {pattern} {len(found)} times")
    return found[0]


def arrow(drawing, x, y, to_x, to_y, colour):
    """A line with a head, down or to the right."""
    head = "l-4 -7m4 7l4 -7" if x == to_x else "l-7 -4m7 4l-7 4"
    drawing.path(f"M{x:g} {y:g}L{to_x:g} {to_y:g}{head}", colour, 1.5)


# ---------------------------------------------------------------- wgmma_tma: descriptors


def descriptors():
    """The tiles of K and V at d = 128 as wgmma sees them: what one k16 step reads, and how far apart its pieces are."""
    d, shown, cell_w, cell_h = 128, 24, 13, 13
    Bc = int(said("19", r"constexpr int Bc = d == 256 \? \d+ : (\d+);"))
    V_leading, stride = said("19", r"wgmma_descriptor\(V_smem, (\d+) \* Bc, (\d+)\)")
    step_of_K = int(said("19", r"panel \* Br \+ (\d+) \* \(k % 4\)"))
    step_of_V = int(said("19", r"advance\(V_desc, (\d+) \* k\)"))
    place = lambda row, chunk: swizzled(d, Bc, row, chunk)
    for what, kernel, layout in (
        ("SBO", int(stride), place(8, 0)),
        ("LBO of V", int(V_leading) * Bc, place(0, 8)),
        ("k16 step of K", step_of_K, place(0, 2)),
        ("k16 step of V", step_of_V, place(16, 0)),
    ):
        if kernel != layout:
            raise ValueError(f"{what}: wgmma_tma says {kernel} bytes, and the layout {layout}")
    drawing = Drawing(
        WIDTH,
        590,
        "What one k16 step of wgmma reads, at d = 128",
        f"A row has 128 bytes, and a number is a chunk of 16 bytes: where the swizzle puts it.\n"
        f"Of {Bc} rows, {shown} are drawn. Coloured: the first k16 step. Frames: atoms of 8 rows.",
    )
    panel_w = 8 * cell_w
    for x, caption, colour, read in (
        (62, "K: 16 columns of all keys", "blue", lambda row, chunk: chunk < 2),
        (312, "V: 16 keys, all columns", "green", lambda row, chunk: row < 16),
    ):
        drawing.text(x, 116, caption, colour, style="font-weight: 600")
        for panel in range(2):
            left = x + panel * (panel_w + 6)
            drawing.text(
                left + panel_w / 2,
                150,
                f"columns {64 * panel} to {64 * panel + 63}",
                "note",
                "middle",
                11,
            )
            for row in range(shown):
                for chunk in range(8 * panel, 8 * panel + 8):
                    line, byte = divmod(place(row, chunk) - panel * Bc * 128, 128)
                    at = left + byte // 16 * cell_w, 158 + line * cell_h
                    drawing.rect(
                        *at, cell_w, cell_h, f"pale-{colour}" if read(row, chunk) else None, "grid"
                    )
                    if read(row, chunk):
                        drawing.text(
                            at[0] + cell_w / 2, at[1] + 10.5, chunk, anchor="middle", size=9
                        )
            for atom in range(shown // 8):
                drawing.rect(
                    left,
                    158 + 8 * atom * cell_h,
                    panel_w,
                    8 * cell_h,
                    None,
                    "note",
                    'stroke-width="1.2"',
                )
    for row in range(0, shown, 8):
        drawing.text(56, 158 + row * cell_h + 10, f"row {row}", "note", "end", 11)
    bottom = 158 + shown * cell_h
    arrow(drawing, 28, 170, 28, 158 + 8 * cell_h, "red")
    drawing.text(20, 158 + 5 * cell_h, f"SBO {stride}", "red", "middle", 12, turn=-90)
    drawing.text(62, bottom + 26, f"next k16 step: start + {step_of_K} bytes;", "blue", size=12)
    drawing.text(62, bottom + 44, f"after four, the next panel: + {place(0, 8):,}", "blue", size=12)
    drawing.text(62, bottom + 62, "LBO: not used", "blue", size=12)
    drawing.text(312, bottom + 26, f"next k16 step: start + {step_of_V:,} bytes", "green", size=12)
    drawing.text(312, bottom + 44, f"LBO: {place(0, 8):,}, from panel to panel", "red", size=12)
    arrow(drawing, 316, 136, 312 + panel_w + 10, 136, "red")
    drawing.text(312 + panel_w + 16, 140, "LBO", "red", size=12)
    text = f"Panels lie one after the other: {Bc} rows of 128 bytes are {place(0, 8):,}."
    drawing.text(24, bottom + 92, text, "note", size=12)
    return drawing.svg()


# ---------------------------------------------------------------- warp_specialization: the ring


def followed(slots, tiles, copy, read, between):
    """When, tile by tile: (slot, parity of full that is waited for, asked, landed, read from, read by all)."""
    asked_until, free_from, done, slot, phase = 0, [0] * slots, 0, 0, 0
    events = []
    for tile in range(tiles):
        asked = max(asked_until, free_from[slot])  # the wait for empty, of the other parity
        landed = asked + copy
        begins = max(landed, done)
        ends = begins + read
        events.append((slot, phase, asked, landed, begins, ends))
        asked_until, free_from[slot], done = asked + 1, ends, ends + between
        slot = (slot + 1) % slots
        phase ^= slot == 0
    return events


def ring():
    """The slots of K over time, and the phases of their barriers."""
    slots, tiles, left, unit = int(said("20", r"constexpr int slots = (\d+);")), 6, 92, 12.4
    events = followed(slots, tiles, 5, 3, 2)
    end = max(event[-1] for event in events) + 2
    drawing = Drawing(
        WIDTH,
        128 + 132 * slots + 74,
        f"The ring of K: {slots} slots, two barriers each",
        "A drawing: copies, products and softmax have lengths that we chose. Of each\n"
        "barrier: its phases. wait(p): here a wait for parity p returns.",
    )

    def box(start, stop, y, fill, colour, text):
        drawing.rect(left + unit * start, y, unit * (stop - start), 24, fill, colour, 'rx="3"')
        drawing.text(
            left + unit * (start + stop) / 2, y + 16, text, "ink" if fill else colour, "middle", 11
        )

    for slot in range(slots):
        y = 108 + 132 * slot
        drawing.text(24, y + 17, f"slot {slot}", style="font-weight: 600")
        drawing.text(24, y + 54, "full", "blue")
        drawing.text(24, y + 90, "empty", "green")
        own = [(tile, event) for tile, event in enumerate(events) if event[0] == slot]
        full_from = empty_from = 0
        for nth, (tile, (_, phase, asked, landed, begins, ends)) in enumerate(own):
            box(asked, landed, y, "pale-yellow", "brown", f"TMA K{tile}")
            box(begins, ends, y, "pale-purple", "purple", f"S{tile}")
            if begins > landed:
                drawing.path(f"M{left + unit * landed:g} {y + 12}H{left + unit * begins:g}", "note")
            for name, y_of, colour, start, stop in (
                ("full", y + 36, "blue", full_from, landed),
                ("empty", y + 72, "green", empty_from, ends),
            ):
                box(start, stop, y_of, None, colour, f"phase {nth}")
            drawing.text(left + unit * landed + 3, y + 34, f"wait({phase})", "blue", size=10)
            drawing.text(left + unit * asked + 2, y + 108, f"wait({phase ^ 1})", "green", size=10)
            full_from, empty_from = landed, ends
    y = 108 + 132 * slots
    drawing.path(f"M{left} {y}H{left + unit * end:g}l-8 -4m8 4l-8 4", "note")
    drawing.text(left + unit * end, y + 18, "time", "note", "end")
    for line, text in enumerate(
        (
            "Consumers wait for the phase that a landing ends. The producer waits for the other",
            "parity: the phase before, which the last reader ends. Its first waits fall through.",
        )
    ):
        drawing.text(24, y + 40 + 18 * line, text, "note", size=12)
    return drawing.svg()


# ---------------------------------------------------------------- overlap: two warpgroups in time


def schedule(overlapped, groups=2, QK=4, PV=4, softmax=12, tiles=5):
    """[(group, unit, start, length, name)]: two warpgroups that share tensor cores, which work in the order asked."""
    tensor, clock, tile, boxes = 0, [0] * groups, [0] * groups, []
    whose = 0
    ask = lambda group, at, length, name: boxes.append(
        (group, "tensor", max(at, tensor), length, name)
    )
    stage = ["S"] * groups
    while min(tile) < tiles:
        ready = [group for group in range(groups) if tile[group] < tiles]
        group = (
            whose
            if overlapped and whose in ready
            else min(ready, key=lambda one: (clock[one], one))
        )
        now = tile[group]
        if overlapped:
            ask(group, clock[group], QK, f"S{now}")
            tensor = boxes[-1][2] + QK
            S_done = tensor
            if now:
                ask(group, clock[group], PV, f"PV{now - 1}")
                tensor = boxes[-1][2] + PV
            boxes.append((group, "softmax", S_done, softmax, f"softmax {now}"))
            clock[group] = max(S_done + softmax, tensor if now else 0)
            tile[group] += 1
            whose = (group + 1) % groups
        else:
            name, length = (f"S{now}", QK) if stage[group] == "S" else (f"PV{now}", PV)
            ask(group, clock[group], length, name)
            tensor = boxes[-1][2] + length
            clock[group] = tensor
            if stage[group] == "S":
                boxes.append((group, "softmax", tensor, softmax, f"softmax {now}"))
                clock[group] += softmax
                stage[group] = "P"
            else:
                stage[group] = "S"
                tile[group] += 1
    return boxes


def overlap():
    """persistent_blocks and overlap in time."""
    left, unit, until = 108, 6.6, 64
    drawing = Drawing(
        WIDTH,
        420,
        "Two warpgroups in time (a drawing: lengths are not measured)",
        "The tensor cores work in the order in which they are asked. Blue, green: products\n"
        "of warpgroup 0 and 1. Red: nobody has asked for any, and the tensor cores wait.",
    )
    for y, caption, ours in (
        (118, "persistent_blocks: each product is waited for at once", False),
        (268, "overlap: S of the next tile is asked for before P V, in turns", True),
    ):
        drawing.text(24, y - 12, caption, style="font-weight: 600")
        for row, name in enumerate(("warpgroup 0", "warpgroup 1", "tensor cores")):
            drawing.text(24, y + 18 + 36 * row, name, "note", size=12)
        busy = 0
        for group, what, start, length, name in sorted(schedule(ours), key=lambda box: box[2]):
            stop = min(start + length, until)
            if start >= until:
                continue
            colour = ("blue", "green")[group]
            if what == "softmax":
                drawing.rect(
                    left + unit * start,
                    y + 36 * group,
                    unit * (stop - start),
                    26,
                    "pale-yellow",
                    "brown",
                    'rx="3"',
                )
                if stop - start > 6:
                    drawing.text(
                        left + unit * (start + stop) / 2,
                        y + 17 + 36 * group,
                        name,
                        anchor="middle",
                        size=11,
                    )
                continue
            if start > busy:
                drawing.path(f"M{left + unit * busy:g} {y + 85}H{left + unit * start:g}", "red", 2)
            busy = start + length
            drawing.rect(
                left + unit * start,
                y + 72,
                unit * (stop - start),
                26,
                f"pale-{colour}",
                colour,
                'rx="3"',
            )
            if stop - start > 2:
                drawing.text(
                    left + unit * (start + stop) / 2, y + 89, name, anchor="middle", size=11
                )
    drawing.path(f"M{left} 392H{left + unit * until:g}l-8 -4m8 4l-8 4", "note")
    drawing.text(left + unit * until, 410, "time", "note", "end")
    return drawing.svg()


# ---------------------------------------------------------------- persistent_blocks and overlap by the clock of an SM


def under_way(phases, asked_with_S):
    """[(start, end)] in which a warpgroup has products under way, as far as its waits tell. With asked_with_S, P V is
    asked for together with S: then from there to the end of P V."""
    waits = [phase for phase in phases if phase["phase"] in ("S", "PV")]
    if not asked_with_S:
        return [(phase["from_clock"], phase["to_clock"]) for phase in waits]
    pairs = zip(waits, waits[1:])
    return [(S["from_clock"], PV["to_clock"]) for S, PV in pairs if S["phase"] == "S"]


SCHOOLS = (
    ("21_stamps", "33_persistent_blocks", "persistent_blocks: each product is waited for at once"),
    (
        "21_exclusive_stamps",
        "21_exclusive_exponentials",
        "persistent_blocks with exclusive exponentials, as in cuDNN",
    ),
    ("22_stamps", "34_overlap", "overlap: overlap inside the warpgroup, and turns"),
)
KINDS = {
    "softmax": ("pale-yellow", "brown"),
    "maximum": ("pale-yellow", "brown"),
    "pack": ("pale-yellow", "brown"),
    "S": ("pale-blue", "blue"),
    "PV": ("pale-green", "green"),
    "turn": ("page", "red"),
    "tile": ("page", "red"),
}


def timeline():
    """What the consumers of a block did, tile by tile, as they noted it."""
    record = records.read("hopper_timeline")
    phases = [row for row in record["rows"] if row["kind"] == "phase"]
    ms = {row["program"]: row["ms"] for row in record["rows"] if "ms" in row}
    left, shown = 108, 14_000
    unit = (WIDTH - left - 30) / shown
    drawing = Drawing(
        WIDTH,
        660,
        "Two warpgroups by the clock of their SM (measured)",
        f"{record['provenance']['gpu']}, d = 128, N = 4,096, full, bf16: one block, in the middle of a\n"
        "tile of Q. A red line: no product is under way, as far as the waits tell.",
    )
    x = 24
    for kind, text in (
        ("softmax", "softmax"),
        ("S", "waits for S"),
        ("PV", "waits for P V"),
        ("turn", "for a turn or a tile"),
    ):
        drawing.rect(x, 91, 14, 12, *KINDS[kind])
        drawing.text(x + 20, 101, text, size=12)
        x += 44 + 7 * len(text)
    for panel, (program, plain, caption) in enumerate(SCHOOLS):
        y, busy = 136 + 168 * panel, []
        own = [row for row in phases if row["program"] == program and "tile" in row]
        clocks = sum(row.get("mean_clocks", 0) for row in phases if row["program"] == program)
        drawing.text(24, y, caption, style="font-weight: 600")
        drawing.text(
            24,
            y + 18,
            f"{clocks:,.0f} clocks per tile of keys; with the stamps it takes "
            f"{100 * (ms[program] / ms[plain] - 1):+.1f}% time",
            "note",
            size=12,
        )
        groups = [[row for row in own if row["warpgroup"] == group] for group in (0, 1)]
        first = max(group[0]["from_clock"] for group in groups)
        place = lambda clock: left + unit * min(max(clock - first, 0), shown)
        for row, name in enumerate(("warpgroup 0", "warpgroup 1", "products")):
            drawing.text(24, y + 46 + 36 * row, name, "note", size=12)
        for row, group in enumerate(groups):
            busy += under_way(group, program[:2] == "22")
            for phase in group:
                start, stop = place(phase["from_clock"]), place(phase["to_clock"])
                if stop > start:
                    drawing.rect(start, y + 28 + 36 * row, stop - start, 26, *KINDS[phase["phase"]])
        at, end = first, min(group[-1]["to_clock"] for group in groups)
        for start, stop in [*sorted(busy), (end, end)]:
            if start > at:
                drawing.path(f"M{place(at):g} {y + 113}H{place(start):g}", "red", 3)
            if stop > max(start, at):
                start = max(start, at)
                drawing.rect(
                    place(start), y + 102, place(stop) - place(start), 22, "pale-purple", "purple"
                )
            at = max(at, stop)
    y = 136 + 168 * len(SCHOOLS) - 24
    for clock in range(0, shown + 1, 2000):
        drawing.path(f"M{left + unit * clock:g} {y}v5", "note")
        drawing.text(
            left + unit * clock, y + 18, f"{clock:,}", "note", "middle" if clock else "start", 11
        )
    drawing.text(24, y + 18, "clocks", "note", size=12)
    return drawing.svg()


PICTURES = {
    "descriptors.svg": descriptors,
    "ring.svg": ring,
    "overlap.svg": overlap,
    "overlap_timeline.svg": timeline,
}


if __name__ == "__main__":
    sys.exit(main(PICTURES, *sys.argv))
