"""Pictures of who works when. Where a picture calls itself a drawing, lengths are chosen, and when
something begins follows from them."""

import heapq
import math
import random

from lab import records
from lab.pictures.drawing import PALE, Drawing

SOFTMAX, WAIT = ("pale-yellow", "brown"), ("page", "red")
QK, PV = ("pale-blue", "blue"), ("pale-green", "green")


def in_time(drawing, left, unit):
    """What a drawing of two blocks in time consists of: a box that begins at a time and lasts; and
    a barrier across the two rows from `y` on."""

    def box(colours, start, length, y, text):
        drawing.box(left + unit * start, y, unit * length, 28, *colours, text)

    def barrier(at, y):
        drawing.path(f"M{left + unit * at:g} {y - 4}V{y + 72}", "red", 2.5)

    return box, barrier


def pipeline(copy=5.5, store=4, work=10):
    """The rung with asynchronous copies and the one before it, tile by tile."""
    left, unit, end = 84, 7.5, 532
    drawing = Drawing(
        338,
        "One block in time (a drawing, not measured)",
        "Red: a barrier. Green and yellow: which buffer is read;\n"
        "warp_tiles has one, async_copy has two.",
    )
    box, barrier = in_time(drawing, left, unit)
    for y, rung, above in ((112, "warp_tiles", "loads"), (222, "async_copy", "copies")):
        drawing.bold(24, y - 10, rung)
        drawing.note(24, y + 19, above)
        drawing.note(24, y + 55, "products")
    time = 0
    for tile in range(3):
        barrier(time, 112)  # slower warps still read the tile before
        box(QK, time, copy, 112, f"load {tile}")
        box(QK, time + copy, store, 112, "store")
        time += copy + store
        barrier(time, 112)  # the tile is complete
        box(PV, time, work, 148, f"tile {tile}")
        time += work
    box(QK, 0, copy, 222, "copy 0")
    for tile in range(5):
        time = copy + work * tile
        barrier(time, 222)  # the tile is complete, and nobody reads the one before
        box(QK, time, copy, 222, f"copy {tile + 1}")
        box(SOFTMAX if tile % 2 else PV, time, work, 258, f"tile {tile}")
    drawing.time(left, end, 310)
    return drawing.svg()


def slices(load=7, store=4.2, work=8, softmax=7):
    """A pair of tiles in wide_loads, and in double_buffer, where a tile is two slices."""
    left, unit, end = 92, 7.2, 534.5
    drawing = Drawing(
        338,
        "One block in time (a drawing, not measured)",
        "Red: a barrier. wide_loads loads a tile and then multiplies it;\n"
        "double_buffer loads a slice while it multiplies the one before.",
    )
    box, barrier = in_time(drawing, left, unit)
    for y, rung in ((112, "wide_loads"), (222, "double_buffer")):
        drawing.bold(24, y - 10, rung)
        drawing.note(24, y + 19, "loads")
        drawing.note(24, y + 55, "arithmetic")
    time = 0
    for tile in "KV":
        barrier(time, 112)  # nobody reads the tile before
        box(QK, time, load, 112, f"load {tile}")
        box(QK, time + load, store, 112, "store")
        time += load + store
        barrier(time, 112)  # the tile is complete
        box(PV, time, 2 * work, 148, f"multiply {tile}")
        time += 2 * work
        if tile == "K":
            box(SOFTMAX, time, softmax, 148, "softmax")
            time += softmax
    time, plan = 0, ["K 0", "K 1", "V 0", "V 1", "K 0"]
    for this, following in zip(plan, plan[1:], strict=False):
        barrier(time, 222)  # this slice is complete, and nobody reads the one before
        box(QK, time, load, 222, f"load {following}")
        box(PV, time, work, 258, this)
        box(QK, time + work, store, 222, "store")
        time += work + store
        if this == "K 1":
            box(SOFTMAX, time, softmax, 258, "softmax")
            time += softmax
    drawing.time(left, end, 310)
    return drawing.svg()


def block_order(places=16, heads=12, Tr=8):
    """Who works when, on a small GPU: in order, longest first head by head, and in waves of twice
    the places."""
    row, wave_heads = 11, 2 * places // Tr
    drawing = Drawing(
        770,
        f"Causal blocks on a GPU with places for {places}",
        f"{heads} heads with {Tr} tiles of Q each. A line is a place for a block, a bar "
        "is a block: its\nlength is the number of keys that its tile sees, its colour the head. "
        "Grey: idle.",
    )
    in_order = [(head, tile) for head in range(heads) for tile in range(Tr)]
    longest_first = [(head, tile) for head in range(heads) for tile in reversed(range(Tr))]
    waves = [
        (head, tile)
        for first in range(0, heads, wave_heads)
        for tile in reversed(range(Tr))
        for head in range(first, min(first + wave_heads, heads))
    ]
    plans = {
        "async_copy: in the order of the tiles": in_order,
        "longest first, one head after the other": longest_first,
        f"block_order: longest first, in waves of {wave_heads} heads": waves,
    }
    done = [placed(blocks, places) for blocks in plans.values()]
    ends = [max(start + length for _, start, length, _ in blocks) for blocks in done]
    unit = 512 / max(ends)
    for panel, (caption, blocks, end) in enumerate(zip(plans, done, ends, strict=True)):
        top = 126 + 220 * panel
        busy = sum(length for _, _, length, _ in blocks) / (places * end)
        drawing.bold(24, top - 10, caption)
        drawing.note(536, top - 10, f"{busy:.0%} at work", "end", 13)
        drawing.rect(24, top, unit * end, row * places, "grid")
        for place, start, length, head in blocks:
            at, colour = (24 + unit * start, top + row * place), PALE[head % 4]
            drawing.rect(*at, unit * length, row, colour, "note", 'stroke-width="0.6"')
    drawing.note(536, 758, "time", "end", 13)
    return drawing.svg()


def placed(blocks, places):
    """[(place, start, length, head)] when each block goes to the place that is free first."""
    free, done = [(0.0, place) for place in range(places)], []
    for head, tile in blocks:
        start, place = heapq.heappop(free)
        length = 1.5 + 2 * (tile + 1)  # what each block does once, and its tiles of K
        heapq.heappush(free, (start + length, place))
        done.append((place, start, length, head))
    return done


def issue_slots(busy=6.6, end=32):
    """One scheduler and its tensor core, clock by clock: too many instructions to an mma, and few
    enough."""
    left, unit = 104, 13.5
    drawing = Drawing(
        340,
        "What one scheduler issues, clock by clock",
        "A drawing, not measured. A small box is an instruction. Green: an mma, and\n"
        "how long the tensor core works on it. Blue: everything else.",
    )
    for y, rung, each in (
        (124, "block_order, d = 64: 7.4 instructions per mma", 7.4),
        (230, "lean_softmax, d = 64: 4.3", 4.3),
    ):
        drawing.bold(24, y - 12, rung)
        drawing.note(24, y + 16, "issues")
        drawing.note(24, y + 46, "tensor core")
        free, number, issued = 0, 0, 0
        while free < end:
            start = max(free, issued)
            others = int((number + 1) * (each - 1)) - int(number * (each - 1))
            for slot in range(1 + others):
                if start + slot < end:
                    colours = PV if slot == 0 else QK
                    drawing.box(left + unit * (start + slot), y, unit, 22, *colours)
            shown = min(busy, end - start)
            drawing.box(
                left + unit * start, y + 30, unit * shown, 22, *PV, "mma" if shown == busy else ""
            )
            free, number, issued = start + busy, number + 1, start + 1 + others
    drawing.note(left, 190, "the tensor core waits for the scheduler")
    drawing.note(left, 296, "the scheduler waits for the tensor core")
    drawing.time(left, left + unit * end, 312, "clocks")
    return drawing.svg()


def window(sigma=8, tiles=24, Bc=64, fp16=14, bf16=30):
    """Limits of one row: every tile's largest score, lean_softmax's running maximum, and
    lazy_maximum's limit m, which lies higher than the maximum by so much."""
    left, unit, y = 48, 20, 118
    random.seed(67)  # one of many with a second raise
    scale = math.log2(math.e)
    tops = [scale * max(random.gauss(0, sigma) for _ in range(Bc)) for _ in range(tiles)]
    drawing = Drawing(
        566,
        "One row, tile by tile: when is the maximum raised?",
        f"Dots: the largest score of each tile, for random scores of standard deviation {sigma},\n"
        "in powers of two. Blue: m. Grey, with a red dot: a tile in which m is raised.",
    )
    for caption, size, height in (
        ("lean_softmax: at each new maximum", 0, 100),
        (f"lazy_maximum, fp16: m lies {fp16} above the largest", fp16, 100),
        (f"lazy_maximum, bf16: m lies {bf16} above the largest", bf16, 130),
    ):
        m, raised, limits = -math.inf, [], []
        for tile, top in enumerate(tops):
            if top > m:
                m = top + size
                raised.append(tile)
            limits.append(m)
        low, high = min(tops) - 2, max(*tops, *limits) + 3

        def at(value, bottom=y + height, low=low, scale=height / (high - low)):
            return bottom - (value - low) * scale

        drawing.bold(24, y - 10, f"{caption}: {len(raised)} of {tiles} tiles")
        for tile in raised:
            drawing.rect(left + unit * tile, y, unit, height, "grid")
        steps = [(left + unit * tile, at(value)) for tile, value in enumerate(limits)]
        drawing.curve([*steps, (left + unit * tiles, at(m))], "blue", steps=True)
        for tile, top in enumerate(tops):
            colour = "red" if tile in raised else "ink"
            x = left + unit * (tile + 0.5)
            drawing.rect(x - 2.5, at(top) - 2.5, 5, 5, colour, "page")
        drawing.text(left - 6, at(limits[0]) + 4, "m", "blue", "end", 12)
        y += height + 36
    drawing.note(left + unit * tiles, y - 14, "tile of keys", "end")
    return drawing.svg()


def late_vote(vote=3.4):
    """One warp of lazy_maximum and of fixed_maximum."""
    left, unit = 90, 8.1
    drawing = Drawing(
        340,
        "One warp in time (a drawing, not measured)",
        "Red: the vote on whether m holds. Each upper row: what the tensor cores get\n"
        "from this warp. Each lower row: everything else. The number is the tile's.",
    )
    box, _ = in_time(drawing, left, unit)
    for y, rung in ((112, "lazy_maximum"), (224, "fixed_maximum")):
        drawing.bold(24, y - 8, rung)
        drawing.note(24, y + 19, "products", size=11)
        drawing.note(24, y + 53, "other units", size=11)
    for tile in range(2):
        time = 24 * tile
        box(QK, time, 8, 112, f"QKᵀ {tile}")
        box(WAIT, time + 8, vote, 146, "vote")
        box(SOFTMAX, time + 8 + vote, 10, 146, "exponentials")
        box(PV, time + 15, 9, 112, f"PV {tile}")
        time = (17 + vote) * tile
        box(QK, time, 8, 224, f"QKᵀ {tile}")
        box(SOFTMAX, time + 2, 10, 258, "exponentials")
        box(PV, time + 8, 9, 224, f"PV {tile}")
        box(WAIT, time + 17, vote, 258, "vote")
    drawing.time(left, left + 55 * unit, 308)
    return drawing.svg()


def drift(slots=4, landing=2):
    """Four warps and five tiles, with a barrier per block and with one per tile."""
    left, unit, warps, tiles = 24, 8.5, 4, 5
    lengths = ((9, 9, 8, 9, 8), (9, 12, 9, 8, 9), (8, 9, 9, 13, 8), (10, 8, 9, 9, 9))
    drawing = Drawing(
        392,
        "Four warps of a block in time (a drawing, not measured)",
        "A box is a tile of keys; two of them take longer. Red: __syncthreads().\n"
        "Above, all wait for the slowest warp. Below, each begins when its tile has landed.",
    )
    for y, rung, together in ((108, "fixed_maximum", True), (244, "multistage", False)):
        drawing.bold(24, y - 10, rung)
        ends, landed, ahead = [[] for _ in range(warps)], [landing] * (slots // 2), slots // 2
        for tile in range(tiles):
            first = landing if together else landed[tile]
            begins = [max(first, *ends[warp][-1:], 0) for warp in range(warps)]
            if together:
                begins = [max(begins)] * warps
                drawing.path(f"M{left + unit * begins[0] - 2:g} {y - 4}v{27 * warps}", "red", 2)
            elif tile >= ahead:  # a copy begins once all warps are through what lies in its slot
                free = max(of[tile - ahead] for of in ends)
                begins = [max(begin, free) for begin in begins]
            landed.append(max(begins) + landing)
            for warp, begin in enumerate(begins):
                length = lengths[warp][tile]
                ends[warp].append(begin + length)
                at, size = (left + unit * begin, y + 27 * warp), (unit * length, 22)
                drawing.box(*at, *size, *SOFTMAX if length > 11 else QK, tile)
    drawing.time(left, left + 60 * unit, 362)
    return drawing.svg()


def ring(stages=2, tiles=6, copy=5, read=3, between=2):
    """The stages of K over time, and the phases of their barriers."""
    left, unit = 92, 12.4
    events = followed(stages, tiles, copy, read, between)
    drawing = Drawing(
        202 + 132 * stages,
        f"The ring of K: {stages} stages, two barriers each",
        "A drawing: copies, products and softmax have lengths that we chose. Of each\n"
        "barrier: its phases. wait(p): here a wait for parity p returns.",
    )

    def box(start, stop, y, fill, colour, text):
        place = left + unit * start, y, unit * (stop - start), 24
        drawing.box(*place, fill, colour, text, "ink" if fill else colour)

    for stage in range(stages):
        y, full_from, empty_from = 108 + 132 * stage, 0, 0
        drawing.bold(24, y + 17, f"stage {stage}")
        drawing.text(24, y + 54, "full", "blue")
        drawing.text(24, y + 90, "empty", "green")
        for nth, tile in enumerate(range(stage, tiles, stages)):
            phase, asked, landed, begins, ends = events[tile]
            box(asked, landed, y, *SOFTMAX, f"TMA K{tile}")
            box(begins, ends, y, "pale-purple", "purple", f"S{tile}")
            if begins > landed:
                drawing.path(f"M{left + unit * landed:g} {y + 12}H{left + unit * begins:g}")
            box(full_from, landed, y + 36, None, "blue", f"phase {nth}")
            box(empty_from, ends, y + 72, None, "green", f"phase {nth}")
            x = left + unit * landed + 3
            drawing.text(x, y + 34, f"wait({phase})", "blue", size=10)
            x = left + unit * asked + 2
            drawing.text(x, y + 108, f"wait({phase ^ 1})", "green", size=10)
            full_from, empty_from = landed, ends
    y = 108 + 132 * stages
    drawing.time(left, left + unit * (events[-1][-1] + 2), y)
    texts = (
        "Consumers wait for the phase that a landing ends. The producer waits for the other",
        "parity: the phase before, which the last reader ends. Its first waits fall through.",
    )
    drawing.lines(24, y + 40, texts)
    return drawing.svg()


def followed(stages, tiles, copy, read, between):
    """When, tile by tile: (parity of full that is waited for, asked, landed, read from, read by
    all)."""
    asked_until, free_from, done, events = 0, [0] * stages, 0, []
    for tile in range(tiles):
        stage, phase = tile % stages, tile // stages % 2
        asked = max(asked_until, free_from[stage])  # the wait for empty, of the other parity
        landed = asked + copy
        begins = max(landed, done)
        ends = begins + read
        events.append((phase, asked, landed, begins, ends))
        asked_until, free_from[stage], done = asked + 1, ends, ends + between
    return events


def overlap():
    """persistent_blocks and overlap in time."""
    return two_schedules(
        "Two warpgroups in time (a drawing, not measured)",
        {
            "persistent_blocks: each product is waited for at once": one_at_a_time,
            "overlap: S of the next tile is asked for before P V": in_step,
        },
        {"steps": 5, "ahead": 0},
        {"unit": 6.6, "until": 64, "red": 2},
    )


def late_dq():
    """backward_wgmma and backward_late_dq in time."""
    return two_schedules(
        "The backward pass in time (a drawing, not measured)",
        {
            "backward_wgmma: both meet in each step, then ask for dQ": step_with_meeting,
            "backward_late_dq: dQ of the step before comes first": step_with_late_dq,
        },
        {"steps": 4, "ahead": 6},
        {"unit": 5.3, "until": 80, "red": 3},
    )


def two_schedules(title, step_of, how_long, how_drawn):
    """What two warpgroups do by two kernels, {caption: what a step consists of}."""
    drawing = Drawing(
        420,
        title,
        "The tensor cores work in the order in which they are asked. Blue, green: products\n"
        "of warpgroup 0 and 1. Red: nobody has asked for any, and the tensor cores wait.",
    )
    for y, (caption, step) in zip((118, 268), step_of.items(), strict=True):
        drawing.bold(24, y - 12, caption)
        draw_steps(drawing, y, followed_steps(step, **how_long), **how_drawn)
    drawing.time(108, 530.4, 392)
    return drawing.svg()


def draw_steps(drawing, y, boxes, unit, until, red):
    """What two warpgroups do, and what the tensor cores do for them."""
    left, busy = 108, 0
    drawing.lines(24, y + 18, ("warpgroup 0", "warpgroup 1", "tensor cores"), 36)
    for group, start, length, name, product in sorted(boxes, key=lambda box: box[1]):
        stop = min(start + length, until)
        if start >= until:
            continue
        if product and start > busy:
            drawing.path(f"M{left + unit * busy:g} {y + 85}H{left + unit * start:g}", "red", red)
        busy = start + length if product else busy
        place = left + unit * start, y + 36 * (2 if product else group), unit * (stop - start), 26
        colours = (QK, PV)[group] if product else SOFTMAX
        drawing.box(*place, *colours, name if stop - start > 3 + 3 * (len(name) > 5) else "")


def one_at_a_time(group, tile):
    """What a warpgroup of persistent_blocks does with a tile: each line is yielded, and gives a
    time."""
    S = yield "ask", f"S{tile}"
    yield "work", f"softmax {tile}", 12, S
    PV = yield "ask", f"PV{tile}"
    yield "wait", PV


def in_step(group, tile):
    """The same of overlap: the warpgroups fall into step."""
    S = PV = yield "ask", f"S{tile}"
    if tile:
        PV = yield "ask", f"PV{tile - 1}"
    yield "work", f"softmax {tile}", 12, S
    yield "wait", PV


def step_with_meeting(group, step):
    """The same of a step of backward_wgmma."""
    S = yield "ask", "S"
    dP = yield "ask", "dP"
    yield "wait", S
    yield "work", "P", 9
    yield "ask", "dV"
    yield "wait", dP
    yield "work", "dS", 7
    yield "say", (group, step)
    yield "need", (1 - group, step)
    dQ = yield "ask", "dQ"
    dK = yield "ask", "dK"
    yield "wait", dQ
    yield "work", "add", 4
    yield "wait", dK


def step_with_late_dq(group, step):
    """The same of backward_late_dq."""
    if step > 0:
        yield "need", (1 - group, step - 1)
        dQ = yield "ask", "dQ"
    S = yield "ask", "S"
    if step > 0:
        yield "wait", dQ
        yield "work", "", 2
    yield "wait", S
    dP = yield "ask", "dP"
    yield "work", "P", 9
    yield "ask", "dV"
    yield "wait", dP
    yield "work", "dS", 7
    yield "say", (group, step)
    dK = yield "ask", "dK"
    yield "wait", dK


def followed_steps(step_of, steps, ahead, product=4):
    """[(group, start, length, name, whether it is a product)] of two warpgroups, of which the
    second begins later by `ahead`. Whoever is earliest goes on."""
    clock, said, tensor, boxes, blocked = [0, ahead], {}, 0, [], {}

    def all_steps(group):
        for step in range(steps):
            yield from step_of(group, step)

    running, answers = {group: all_steps(group) for group in range(2)}, [None, None]
    while running:
        ready = [group for group in running if blocked.get(group) in (None, *said)]
        group = min(ready, key=lambda one: clock[one])
        if group in blocked:
            clock[group] = max(clock[group], said[blocked.pop(group)])
        try:
            what, *of = running[group].send(answers[group])
        except StopIteration:
            del running[group]
            continue
        answers[group] = None
        if what == "ask":
            tensor = max(tensor, clock[group]) + product
            boxes.append((group, tensor - product, product, *of, True))
            answers[group] = tensor
        elif what == "work":
            clock[group] = max(clock[group], *of[2:], 0)
            boxes.append((group, clock[group], of[1], of[0], False))
            clock[group] += of[1]
        elif what == "wait":
            clock[group] = max(clock[group], *of)
        elif what == "say":
            said[of[0]] = clock[group]
        else:
            blocked[group] = of[0]
    return boxes


def timeline():
    """What the consumers of a block did, tile by tile, as they noted it (the record
    hopper_timeline): programs with stamps, and the same ones without."""
    record = records.read("hopper_timeline")
    phases = [row for row in record["rows"] if row["kind"] == "phase"]
    ms = {row["program"]: row["ms"] for row in record["rows"] if "ms" in row}
    ours = [row["program"] for row in record["rows"] if "ms" in row and row["kind"] != "library"]
    stamped = [program for program in ours if program.endswith("stamps")]
    plain = [program for program in ours if program not in stamped]
    captions = (
        "persistent_blocks: each product is waited for at once",
        "persistent_blocks with exclusive exponentials, as in cuDNN",
        "overlap: overlap inside the warpgroup, and turns",
    )
    drawing = Drawing(
        660,
        "Two warpgroups by the clock of their SM (measured)",
        f"{record['provenance']['gpu']}, d = 128, N = 4,096, full, bf16: one block, in the middle "
        "of a\ntile of Q. A red line: no product is under way, as far as the waits tell.",
    )
    x = 24
    for colours, text in (
        (SOFTMAX, "softmax"),
        (QK, "waits for S"),
        (PV, "waits for P V"),
        (WAIT, "for a turn or a tile"),
    ):
        drawing.rect(x, 91, 14, 12, *colours)
        drawing.text(x + 20, 101, text, size=12)
        x += 44 + 7 * len(text)
    for panel, caption in enumerate(captions):
        program, y = stamped[panel], 136 + 168 * panel
        own = [row for row in phases if row["program"] == program]
        clocks = sum(row.get("mean_clocks", 0) for row in own)
        slower = 100 * (ms[program] / ms[plain[panel]] - 1)
        drawing.bold(24, y, caption)
        took = (
            f"{clocks:,.0f} clocks per tile of keys; with the stamps it takes {slower:+.1f}% time"
        )
        drawing.note(24, y + 18, took)
        groups = [[row for row in own if row.get("warpgroup") == group] for group in (0, 1)]
        draw_clocks(drawing, y, groups, asked_together=panel == 2)
    for clock in range(0, CLOCKS + 1, 2000):
        drawing.path(f"M{CLOCKS_LEFT + CLOCK * clock:g} 616v5")
        anchor = "middle" if clock else "start"
        drawing.note(CLOCKS_LEFT + CLOCK * clock, 634, f"{clock:,}", anchor, 11)
    drawing.note(24, 634, "clocks")
    return drawing.svg()


CLOCKS, CLOCKS_LEFT = 14_000, 108  # shown, and where they begin
CLOCK = (560 - CLOCKS_LEFT - 30) / CLOCKS  # in pixels
KINDS = {"S": QK, "PV": PV, "turn": WAIT, "tile": WAIT}  # the others are parts of softmax


def draw_clocks(drawing, y, groups, asked_together):
    """The phases of two warpgroups, and when products are under way."""
    first, busy = max(group[0]["from_clock"] for group in groups), []

    def place(clock):
        return CLOCKS_LEFT + CLOCK * min(max(clock - first, 0), CLOCKS)

    drawing.lines(24, y + 46, ("warpgroup 0", "warpgroup 1", "products"), 36)
    for row, group in enumerate(groups):
        busy += under_way(group, asked_together)
        for phase in group:
            start, stop = place(phase["from_clock"]), place(phase["to_clock"])
            if stop > start:
                colours = KINDS.get(phase["phase"], SOFTMAX)
                drawing.rect(start, y + 28 + 36 * row, stop - start, 26, *colours)
    at, end = first, min(group[-1]["to_clock"] for group in groups)
    for start, stop in [*sorted(busy), (end, end)]:
        if start > at:
            drawing.path(f"M{place(at):g} {y + 113}H{place(start):g}", "red", 3)
        if stop > max(start, at):
            x = place(max(start, at))
            drawing.rect(x, y + 102, place(stop) - x, 22, "pale-purple", "purple")
        at = max(at, stop)


def under_way(phases, asked_together):
    """[(start, end)] in which a warpgroup has products under way, as far as its waits tell. If P V
    is asked for together with S: from there to the end of P V."""
    waits = [phase for phase in phases if phase["phase"] in ("S", "PV")]
    if not asked_together:
        return [(phase["from_clock"], phase["to_clock"]) for phase in waits]
    pairs = zip(waits, waits[1:], strict=False)
    return [(S["from_clock"], PV["to_clock"]) for S, PV in pairs if S["phase"] == "S"]
