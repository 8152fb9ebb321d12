"""Shows what the words of a text attend to, in one head.

No rung keeps the attention matrix P; every rung returns LSE, and that is enough to have P back:
    P[i][j] = exp(scale * q_i . k_j - LSE[i])
RESULT is what a rung wrote with --output; the q and k that it was given are read from --input:

  ./scripts/step one_pass_softmax --input reference/data/minilm_layer1.safetensors \\
      --output /tmp/05.safetensors
  ./scripts/lab/run attention-picture /tmp/05.safetensors --query book --svg /tmp/picture.svg
"""

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from lab.attention_svg import draw
from lab.ladder import ROOT, LabError
from lab.safetensors import SafetensorsFile

DEFAULT_INPUT = ROOT / "reference/data/minilm_layer1.safetensors"
SHADES = " \u2591\u2592\u2593\u2588"
SHADES_IN_ASCII = " .:*#"
SHADE_STEPS = (0.02, 0.05, 0.1, 0.2)  # attention from which on the next darker shade is used
Matrix = list[list[float]]
TOP = 4  # attended words named for each query


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("result", metavar="RESULT", help="what a rung wrote with --output: o and lse")
    given = "the rung's input: q, k, v, and in its metadata the tokens (that of reference/data)"
    add("--input", default=DEFAULT_INPUT, metavar="FILE", help=given)
    add("--head", type=int, metavar="H", help="(the one that the input recommends, or 0)")
    query = "a word, or a token's position, whose attention to show; may be repeated"
    add("--query", action="append", metavar="WORD", help=query)
    add("--svg", metavar="FILE", help="write a picture as well")
    add("--scale", type=float, metavar="S", help="the rung's --scale (1/sqrt(d))")
    add("--causal", action="store_true", help="the rung ran with --causal")


def main(options: argparse.Namespace) -> None:
    picture = Picture(options)
    if options.svg:
        write_svg(options.svg, picture)
    print_terminal(picture)


class Picture:
    """One head of the input, the words, and the attention P that LSE gives back."""

    def __init__(self, args: argparse.Namespace) -> None:
        given, result = SafetensorsFile(args.input), SafetensorsFile(args.result)
        (_, heads, N, d), of_k = shape4(given, "q"), shape4(given, "k")
        if result.shape("lse") != given.shape("q")[:3]:
            raise LabError(
                f"lse in {args.result} has shape {result.shape('lse')}, but q in {args.input} has "
                f"{given.shape('q')}:\nthe rung ran on another input"
            )
        self.tokens, self.words = (texts(given, key) for key in ("tokens", "words"))
        if of_k[2] != N or heads % of_k[1] != 0 or len(self.tokens) != N:
            raise LabError(f"{args.input} is no self-attention: its q, k and tokens do not fit")
        self.head = int(given.metadata.get("picture_head", 0)) if args.head is None else args.head
        if not 0 <= self.head < heads:
            raise LabError(f"there is no head {self.head}: {args.input} has heads 0 to {heads - 1}")
        self.where = f"Head {self.head} of layer {given.metadata.get('layer')}"
        kv_head = self.head // (heads // of_k[1])

        def of_head(file: SafetensorsFile, name: str, head: int) -> Matrix:
            return rows(file.floats(name, head * N * d, N * d), d)

        Q, O = of_head(given, "q", self.head), of_head(result, "o", self.head)
        K, V = of_head(given, "k", kv_head), of_head(given, "v", kv_head)
        LSE = result.floats("lse", self.head * N, N)
        self.P = attention(Q, K, LSE, args.scale or 1 / math.sqrt(d), args.causal)
        self.check(V, O, args.result)
        # (name, positions) of words that come back
        of = [self.positions(token) for token in texts(given, "picture_words")]
        self.groups = [(self.words[at[0]], at) for at in of if len(at) >= 2]
        self.queries = self.choose_queries(args.query)

    def check(self, V: Matrix, O: Matrix, result_path: str) -> None:
        """P must be a softmax, and P V must be the O that the rung returned."""
        self.sum_error = worst(sum(row) - 1 for row in self.P if any(row))
        self.o_error = worst(
            sum(p * v[x] for p, v in zip(row, V)) - o[x]
            for row, o in zip(self.P, O)
            for x in range(len(o))
        )
        if not self.sum_error < 0.05:  # half precision moves sums by 1%
            raise LabError(
                f"with the lse of {result_path} the rows of P do not sum to 1 (they miss by up to "
                f"{self.sum_error:.3g});\nuse the --input, --scale and --causal that the rung had"
            )

    def positions(self, token: str) -> list[int]:
        return [i for i, t in enumerate(self.tokens) if t == token]

    def choose_queries(self, asked: list[str] | None) -> list[int]:
        if not asked:  # the last occurrence of a word has the most to look back at
            step = max(1, len(self.groups) // 3)
            return [at[-1] for _, at in self.groups[::step]][:3]
        queries = []
        for word in asked:
            at = [int(word)] if word.isdecimal() else self.positions(word.lower())
            if not at or at[0] >= len(self.tokens):
                known = " ".join(dict.fromkeys(self.tokens))
                raise LabError(f"the text has no word '{word}'; its words are\n  {known}")
            queries.append(at[-1])
        return queries


def shape4(file: SafetensorsFile, name: str) -> tuple[int, ...]:
    shape = file.shape(name)
    if len(shape) != 4:
        raise LabError(f"{file.path}: tensor '{name}' has shape {shape}, not (B, H, N, d)")
    return shape


def texts(file: SafetensorsFile, key: str) -> list[str]:
    """A list of strings in the file's metadata."""
    try:
        return json.loads(file.metadata[key])
    except (KeyError, ValueError):
        raise LabError(f"{file.path} has no list '{key}' in its metadata") from None


def worst(errors: Iterable[float]) -> float:
    """The largest absolute value, a NaN counted as infinite: max() could lose it."""
    return max((math.inf if math.isnan(e) else abs(e) for e in errors), default=0.0)


def rows(values: list[float], d: int) -> Matrix:
    return [values[i : i + d] for i in range(0, len(values), d)]


def attention(Q: Matrix, K: Matrix, LSE: list[float], scale: float, causal: bool) -> Matrix:
    """P from its definition and LSE; a row that sees no key (LSE = -inf) is all zeros."""

    def element(i: int, j: int) -> float:
        if causal and j > i + len(K) - len(Q) or LSE[i] == -math.inf:
            return 0.0
        return math.exp(min(scale * sum(q * k for q, k in zip(Q[i], K[j])) - LSE[i], 700))

    return [[element(i, j) for j in range(len(K))] for i in range(len(Q))]


def print_terminal(picture: Picture) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        SHADES.encode(sys.stdout.encoding)
        shades = SHADES
    except UnicodeEncodeError:
        shades = SHADES_IN_ASCII
    colour = (
        sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    )
    orange, grey, plain = ("\033[38;5;208m", "\033[2m", "\033[0m") if colour else ("", "", "")

    def shade(p: float) -> str:
        return shades[sum(p >= step for step in SHADE_STEPS)]

    print(f"{picture.where}: what words attend to, by P = exp(scale q k^T - LSE)")
    print(
        f"{grey}rows of P sum to 1 within {picture.sum_error:.0e}; "
        f"P V is the rung's O within {picture.o_error:.0e}{plain}\n"
    )
    width = max(len(name) for name, _ in picture.groups)
    for name, at in picture.groups:
        for i in at:
            cells = " ".join(
                "".join(2 * shade(picture.P[i][j]) for j in columns)
                for _, columns in picture.groups
            )
            print(f"  {name if i == at[0] else '':>{width}} {i:4} {orange}{cells.rstrip()}{plain}")
    legend = "  ".join(
        f"{orange}{2 * s}{plain} {100 * step:.0f}%" for s, step in zip(shades[1:], SHADE_STEPS)
    )
    indent = " " * (width + 8)
    print(f"{indent}{grey}each row is a query, each column a key, in the same order{plain}")
    print(f"{indent}{legend} and more\n")
    for query in picture.queries:
        row = picture.P[query]
        best = sorted(range(len(row)), key=lambda j: -row[j])[:TOP]
        named = ", ".join(
            f"{picture.words[j]} {grey}({j}){plain} {100 * row[j]:.0f}%" for j in best
        )
        print(f"  {picture.words[query]} {grey}({query}){plain} attends to {named}")


def write_svg(path: str, picture: Picture) -> None:
    svg = draw(
        title=f"{picture.where}: which words attend to which",
        note="P = exp(scale q k\u1d40 \u2212 LSE), from the LSE that a rung returned; "
        "colour shows \u221aP",
        P=picture.P,
        words=picture.words,
        joined=joined(picture.tokens),
        groups=picture.groups,
        queries=picture.queries,
    )
    try:
        Path(path).write_text(svg, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from None


def joined(tokens: list[str]) -> list[bool]:
    """For each token, whether the text has no space before it."""
    result, quote_open = [], False
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else ""
        after_opening = before in ("(", "-") or before == '"' and quote_open
        if token == '"':
            quote_open = not quote_open
            closing = not quote_open
        else:
            closing = token in tuple(",.;:?!)-'")
        result.append(token.startswith("##") or closing or after_opening)
    return result
