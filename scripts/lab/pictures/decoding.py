"""Pictures of decoding: few queries, many keys."""

from lab.pictures.drawing import PAIRS, Drawing


def packed_rows(group=4, shown=8):
    """The tiles of Q of a group, one per head and one for all."""
    drawing = Drawing(
        316,
        "Four heads that share K and V, one query each",
        "A column of boxes is a tile of Q; of its 128 rows, a few are drawn.\n"
        "Rows without a name are padding.",
    )
    row, width, top = 13, 56, 182

    def tile(x, used):
        for number in range(shown):
            if number < len(used):
                head = used[number]
                drawing.box(x, top + row * number, width, row, *PAIRS[head], f"head {head}")
            else:
                drawing.rect(x, top + row * number, width, row, "page", "grid")
        drawing.note(x + width / 2, top + row * shown + 14, "...", "middle")

    def keys(middle, rung, text):
        drawing.bold(middle - 104, 102, rung)
        drawing.box(middle - 104, 114, 208, 26, "page", "ink", f"K and V, read {text}")

    keys(154, "multistage: four blocks", "four times")
    for head in range(group):
        x = 24 + head * 68
        tile(x, [head])
        drawing.arrow(x + width / 2, 142, x + width / 2, top - 4, PAIRS[head][1])
    keys(420, "packed_heads: one block", "once")
    tile(392, range(group))
    drawing.arrow(420, 142, 420, top - 4)
    return drawing.svg()


def splits(sms=8, tiles=2, warps=4, keys=36):
    """A GPU with eight SMs and two tiles of rows, in packed_heads and in split_kv."""
    left, unit, row = 72, 12, 17
    drawing = Drawing(
        466,
        f"{sms} SMs, and {tiles} K/V heads with one query each (a drawing)",
        "A line is an SM, a box is 64 keys, and its colour is the K/V head. In split_kv,\n"
        "each of the four warps of a block takes 16 of them.",
    )
    each = keys * tiles // sms
    for y, rung in ((112, "packed_heads"), (290, "split_kv")):
        drawing.bold(24, y - 10, rung)
        for sm in range(sms):
            drawing.note(left - 8, y + row * sm + 12, f"SM {sm}", "end", 11)
            drawing.rect(left, y + row * sm, unit * keys, row - 3, "page", "grid")
    for tile in range(tiles):
        for step in range(keys):
            drawing.rect(left + unit * step, 112 + row * tile, unit, row - 3, *PAIRS[tile])
    for sm in range(sms):
        tile = sm * tiles // sms
        for step in range(each):
            at = left + unit * step, 290 + row * sm
            drawing.rect(*at, unit, row - 3, *PAIRS[tile])
        last = (sm + 1) % (sms // tiles) == 0  # here the last number comes last
        text, length = ("the last block merges", 11.5) if last else ("part", 3)
        at = left + unit * each, 290 + row * sm
        drawing.box(*at, unit * length, row - 3, "pale-yellow", "brown", text)
    drawing.time(left, left + unit * keys, 440)
    return drawing.svg()


def pages(shown=6):
    """A table of three sequences, two of which begin alike, and the pages that it names."""
    drawing = Drawing(
        330,
        "Three sequences, and the pages that hold their keys",
        "A page has 64 keys here. Sequences 0 and 1 begin with the same text, so\n"
        "they share page 4. Grey rows belong to nobody, and nobody reads a ?.",
    )
    table, lengths = ((4, 1, 3), (4, 0), (2,)), (150, 100, 40)
    left, top, side, apart = 92, 118, 34, 56
    drawing.bold(24, 100, "table")
    drawing.note(left + 3 * side + 12, 100, "length")
    right, height, width = 316, 30, 120
    drawing.bold(right, 100, "pages")
    used = {}
    for b, row in enumerate(table):
        y = top + apart * b
        drawing.note(left - 8, y + 22, f"sequence {b}", "end", 11)
        for n in range(3):
            number = row[n] if n < len(row) else "?"
            colours = PAIRS[b] if n < len(row) else ("page", "grid")
            drawing.box(left + side * n, y, side, side, *colours, number)
        drawing.text(left + 3 * side + 12, y + 22, lengths[b])
        for n, page in enumerate(row):
            used.setdefault(page, (b, min(64, lengths[b] - 64 * n)))
    for page in range(shown):
        y = top + (height + 4) * page
        drawing.note(right - 8, y + 20, page, "end", 11)
        drawing.rect(right, y, width, height, "grid", "grid")
        if page in used:
            b, keys = used[page]
            drawing.rect(right, y, width * keys / 64, height, *PAIRS[b])
        said = {0: "36 keys of 1", 1: "64 keys of 0", 2: "40 keys of 2", 3: "22 keys of 0"}
        text = said.get(page, "64 keys of 0 and 1" if page == 4 else "nobody's")
        drawing.note(right + width + 8, y + 20, text)
    return drawing.svg()


def shares(rounds=(15, 2, 1, 4), sms=4, empty=4):
    """Sequences of different lengths: a block per tile, and equal shares of the line."""
    left, unit, row = 72, 12, 24
    drawing = Drawing(
        442,
        f"Sequences of 900, 70, 0 and 200 keys, and {sms} SMs",
        "A drawing. Each sequence has one tile. A coloured box is a round: 64 keys,\n"
        "16 for each of the four warps of a block. White rounds are empty.",
    )
    # of each sequence, round by round: which one it is, and whether the round has keys
    whole = [[(b, n >= empty) for n in range(empty + count)] for b, count in enumerate(rounds)]
    line = sum(whole, [])
    share = -(-len(line) // sms)

    def boxes(x, y, of_line):
        for n, (b, keys) in enumerate(of_line):
            drawing.rect(
                x + unit * n, y, unit, row - 6, PAIRS[b][0] if keys else "page", PAIRS[b][1]
            )

    def lanes(y, title, of_sm):
        drawing.bold(24, y - 12, title)
        for sm in range(sms):
            drawing.note(left - 8, y + row * sm + 13, f"SM {sm}", "end", 11)
            drawing.rect(left, y + row * sm, unit * len(line), row - 6, "page", "grid")
            boxes(left, y + row * sm, of_sm[sm])

    lanes(116, "a block for each tile", whole)
    drawing.bold(24, 244, "the line")
    boxes(left, 256, line)
    at = 0
    for b, count in enumerate(rounds):
        name = ("900 keys", "70", "0", "200")[b]
        drawing.note(left + unit * (at + empty + count / 2), 249, name, "middle", 11)
        at += empty + count
    for sm in range(1, sms):
        x = left + unit * share * sm
        drawing.path(f"M{x} 253V282", "ink", 2)
    lanes(316, "paged_kv: equal shares", [line[share * n : share * (n + 1)] for n in range(sms)])
    at = left + unit * (share + 0.3), 316 + row
    drawing.box(*at, 150, row - 6, "pale-yellow", "brown", "the last of 0 and 1 merges")
    drawing.time(left, left + unit * len(line), 416)
    return drawing.svg()
