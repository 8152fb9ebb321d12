"""Pictures of decoding: few queries, many keys."""

from lab.pictures.drawing import PALE, Drawing

HEADS = ("blue", "green", "brown", "purple")


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
                colours = PALE[used[number]], HEADS[used[number]]
                drawing.box(x, top + row * number, width, row, *colours, f"head {used[number]}")
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
        drawing.arrow(x + width / 2, 142, x + width / 2, top - 4, HEADS[head])
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
        colours = PALE[tile], HEADS[tile]
        for step in range(keys):
            drawing.rect(left + unit * step, 112 + row * tile, unit, row - 3, *colours)
    for sm in range(sms):
        tile = sm * tiles // sms
        for step in range(each):
            at = left + unit * step, 290 + row * sm
            drawing.rect(*at, unit, row - 3, PALE[tile], HEADS[tile])
        last = (sm + 1) % (sms // tiles) == 0  # here the last number comes last
        text, length = ("the last block merges", 11.5) if last else ("part", 3)
        at = left + unit * each, 290 + row * sm
        drawing.box(*at, unit * length, row - 3, "pale-yellow", "brown", text)
    drawing.time(left, left + unit * keys, 440)
    return drawing.svg()
