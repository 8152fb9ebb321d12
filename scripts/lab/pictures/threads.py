"""Pictures of threads: where they run, how lanes exchange registers, and how they share banks."""

from lab.pictures.drawing import Narrow


def grid_block_warp(blocks=8, threads=256, block=6, warp=5, lane=9):
    """A grid, one of its blocks, one of its warps, one of its lanes: what a program names, and
    where an H200 keeps it."""
    drawing = Narrow(
        690,
        "What a launch consists of, and where it runs",
        f"{blocks} blocks of {threads} threads, on an H200. Left: what a program names.\n"
        "Right: the hardware. Blue zooms in on one lane.",
    )
    left, right, wide = 24, 290, 206
    top = 116
    drawing.bold(left, top, f"Grid: {blocks} blocks")
    drawing.bold(right, top, "The GPU: 132 SMs")
    for number in range(blocks):
        x, y = left + wide / 4 * (number % 4), top + 48 + 44 * (number // 4)
        chosen = ("pale-blue", "blue") if number == block else (None, "grid")
        drawing.box(x, y, wide / 4 - 4, 38, *chosen, f"block {number}")
    sms, per_row, side = 132, 22, 206 / 22
    for number in range(sms):
        x, y = right + side * (number % per_row), top + 12 + 11 * (number // per_row)
        chosen = ("blue", "blue") if number == 34 else (None, "grid")
        drawing.rect(x, y, side - 2, 9, *chosen)
    drawing.box(right, top + 82, wide, 18, "pale-yellow", "grid", "L2 cache, for all SMs")
    drawing.box(right, top + 104, wide, 18, "pale-purple", "grid", "DRAM, for all SMs")
    drawing.lines(
        left, top + 19, ("Blocks start in any order, each", "on an SM that has room."), 17
    )
    at = left + wide / 4 * (block % 4 + 0.5) - 2
    funnel(drawing, at, top + 130, left, wide, top + 172)
    funnel(drawing, right + side * (34 % per_row + 0.5) - 1, top + 32, right, wide, top + 172, 90)

    top, warps = 306, threads // 32
    drawing.bold(left, top, f"Block {block}: {warps} warps")
    drawing.bold(right, top, "One SM: four schedulers")
    for number in range(warps):
        chosen = ("pale-blue", "blue") if number == warp else (None, "grid")
        drawing.box(left, top + 12 + 17 * number, wide, 14, *chosen)
        span = f"warp {number}: threads {32 * number} to {32 * number + 31}"
        drawing.text(left + wide / 2, top + 23 + 17 * number, span, anchor="middle", size=11)
    for scheduler in range(4):
        x = right + wide / 4 * scheduler
        drawing.rect(x, top + 12, wide / 4 - 4, 88, None, "note", 'rx="3"')
        for place, number in enumerate(range(scheduler, warps, 4)):
            chosen = ("pale-blue", "blue") if number == warp else (None, "grid")
            drawing.box(x + 4, top + 18 + 18 * place, wide / 4 - 12, 15, *chosen, f"w {number}")
        drawing.note(x + wide / 8 - 2, top + 72, "room for", "middle", 10)
        drawing.note(x + wide / 8 - 2, top + 84, "14 more", "middle", 10)
    shared = "shared memory and L1"
    drawing.box(right, top + 106, wide, 18, "pale-green", "grid", shared)
    drawing.lines(
        right, top + 142, ("All warps of a block stay on its", "SM, from its start to its end.")
    )
    middle = top + 19 + 17 * warp
    funnel(drawing, left + wide / 2, middle, left, wide, top + 188, 170 - (middle - top))
    at = right + wide / 4 * (warp % 4 + 0.5) - 2
    funnel(drawing, at, top + 100, right, wide, top + 188, 68)

    top = 526
    drawing.bold(left, top, f"Warp {warp}: 32 lanes")
    drawing.bold(right, top, "One scheduler: 32 units")
    for number in range(32):
        x, y = left + wide / 8 * (number % 8), top + 12 + 21 * (number // 8)
        chosen = ("pale-blue", "blue") if number == lane else (None, "grid")
        drawing.box(x, y, wide / 8 - 3, 18, *chosen, number)
        x = right + wide / 32 * number
        fill = "blue" if number == lane else "pale-blue"
        drawing.rect(x, top + 12, wide / 32 - 1.5, 16, fill, "blue", 'stroke-width="0.7"')
        drawing.rect(x, top + 50, wide / 32 - 1.5, 30, "pale-green", "green", 'stroke-width="0.7"')
    drawing.note(right, top + 43, "one instruction for all lanes")
    drawing.note(right, top + 95, "registers: a column per lane")
    thread = 32 * warp + lane
    end = (
        f"Lane {lane} of warp {warp} is thread {warp} * 32 + {lane} = {thread} of block {block},",
        f"and thread {block} * {threads} + {thread} = {block * threads + thread} of the grid.",
    )
    drawing.lines(left, top + 126, end, 20, 12.5, "ink")
    return drawing.svg()


def funnel(drawing, x, y, left, wide, to_y, skip=0):
    """Two lines from something small to what it looks like from near; the first `skip` pixels stay
    free."""
    share = min(skip / (to_y - y), 0.9) if skip else 0
    for end in (left, left + wide):
        drawing.path(
            f"M{x + (end - x) * share:g} {y + (to_y - y) * share:g}L{end:g} {to_y}", "blue"
        )


def xor_shuffle(lanes=32, shown=3):
    """The steps of a reduction by __shfl_xor_sync: who exchanges with whom, and of how many lanes
    each has the merge."""
    left, cell, top, high = 92, 12.6, 112, 78
    steps = [lanes >> step for step in range(1, lanes.bit_length())]
    drawing = Narrow(
        top + high * len(steps) + 92,
        f"{lanes} lanes, {len(steps)} exchanges",
        f"In each step pairs of lanes swap what they have, and both merge it.\n"
        f"Orange: lane {shown} and its partner. Blue: what ends up in lane {shown}.",
    )

    def middle(lane):
        return left + cell * (lane + 0.5)

    inside = {shown}  # of the row that is drawn: whose values reach lane `shown`
    sources = [inside]
    for distance in reversed(steps):
        inside = inside | {lane ^ distance for lane in inside}
        sources.insert(0, inside)
    for row, inside in enumerate(sources):
        y = top + high * row
        merged = 1 << row
        drawing.note(left - 10, y + 13, f"merge of {merged}" if row else "one each", "end")
        for lane in range(lanes):
            fill = "pale-blue" if lane in inside else None
            drawing.rect(left + cell * lane, y, cell - 2, 18, fill, "blue" if fill else "grid")
        if row == len(steps):
            break
        distance = steps[row]
        drawing.note(left - 10, y + high / 2 + 12, f"distance {distance}", "end")
        for lane in range(lanes):
            partner = lane ^ distance
            for to in (lane, partner):
                colour = "blue" if to in sources[row + 1] else "grid"
                drawing.path(
                    f"M{middle(lane) - 1:g} {y + 19}L{middle(to) - 1:g} {y + high - 1}", colour
                )
        partner = shown ^ distance
        for one, other in ((shown, partner), (partner, shown)):
            drawing.path(
                f"M{middle(one) - 1:g} {y + 19}L{middle(other) - 1:g} {y + high - 1}", "orange", 2
            )
            drawing.mark(left + cell * one, y, cell - 2, 18, "orange")
            drawing.text(middle(one) - 1, y + 13, one, anchor="middle", size=9)
    y = top + high * len(steps)
    drawing.mark(left + cell * shown, y, cell - 2, 18, "orange")
    drawing.text(middle(shown) - 1, y + 13, shown, anchor="middle", size=9)
    partners = [shown ^ distance for distance in steps]
    meets = f"Lane {shown} meets lanes {', '.join(map(str, partners[:-1]))} and {partners[-1]}."
    same = f"same with partners of its own, so all {lanes} end with one result."
    drawing.lines(24, y + 46, (f"{meets} Every lane does the", same), 18, 12.5, "ink")
    return drawing.svg()


def banks(d=32, x=5):
    """A warp reads one column of a tile in shared memory: rows of d floats, and rows padded to
    d + 1."""
    drawing = Narrow(
        754,
        "32 lanes read one column of a tile",
        f"Lane r wants float {x} of row r. A line holds 32 words, one per bank,\n"
        "and a bank delivers one word per clock. Grey: padding.",
    )
    top = draw_banks(drawing, 100, f"Rows of {d} floats", d, d, x)
    draw_banks(drawing, top, f"Rows of {d} + 1 floats", d, d + 1, x)
    return drawing.svg()


def draw_banks(drawing, top, caption, d, stride, x, rows=32):
    """A tile of `rows` rows, word by word, and what column x asks of each bank. Returns where the
    next panel begins."""
    left, cell, high = 84, 12.6, 7.4
    words = [row * stride + x for row in range(rows)]
    asked = [sum(word % 32 == bank for word in words) for bank in range(32)]
    most = max(asked)
    colour = "red" if most > 1 else "green"
    drawing.bold(24, top + 12, caption)
    clocks = "1 wavefront" if most == 1 else f"{most} wavefronts, one after the other"
    drawing.text(496, top + 12, clocks, colour, "end")
    for bank in (0, 8, 16, 24, 31):
        drawing.note(left + cell * (bank + 0.5), top + 32, bank, "middle", 11)
    drawing.note(left - 10, top + 32, "bank", "end", 11)
    top += 38
    lines = -(-rows * stride // 32)
    across = "".join(f"M{left} {top + high * line:g}h{cell * 32:g}" for line in range(lines + 1))
    down = "".join(f"M{left + cell * bank:g} {top}v{high * lines:g}" for bank in range(33))
    drawing.path(across + down, "grid", 0.7)
    for row, word in enumerate(words):
        padding = range(row * stride + d, (row + 1) * stride)
        for item, fill in ((word, colour), *((item, "grid") for item in padding)):
            at = left + cell * (item % 32), top + high * (item // 32)
            drawing.rect(*at, cell, high, fill, "page")
    for row in (0, rows - 1):
        y = top + high * (words[row] // 32) + 7
        drawing.note(left - 10, y, f"row {row}", "end", 11)
    y = top + high * lines + 6
    drawing.note(left - 10, y + 12, "asked", "end", 11)
    for bank in range(32):
        text = asked[bank] or "\u00b7"
        ink = colour if asked[bank] else "note"
        drawing.text(left + cell * (bank + 0.5), y + 12, text, ink, "middle", 11)
    return y + 46
