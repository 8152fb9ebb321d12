"""The exercises as their files describe them: docs/exercises/RUNG/N_name/exercise.toml."""

import argparse
import ast
import math
import operator
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from lab.ladder import ROOT, Rung, ladder

FOLDER = ROOT / "docs/exercises"
KINDS = "fill in", "find the bug", "make it cheaper", "explain"
FILL_IN, FIND_THE_BUG, MAKE_IT_CHEAPER, EXPLAIN = KINDS


class Refusal(Exception):
    """One line that says what is wrong and what would work; the exit code is 2."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message}; see ./{self.prog} --help")


def code_of(text: str) -> tuple[str, list[int]]:
    """The characters of its code, without white space and comments, and the place of each."""
    places, begin = [], 0
    for line in text.splitlines(keepends=True):
        code, *_ = line.partition("//")
        places += [begin + at for at, one in enumerate(code) if not one.isspace()]
        begin += len(line)
    return "".join(text[at] for at in places), places


def places_of(find: str, source: str) -> list[tuple[int, int]]:
    """Where an edit's text is in a source, [(start, end)]: its code, whatever the white space and
    the comments in it. With // as its first line the comments above go, too; with // at its end,
    those behind."""
    find, (wanted, _), (code, places) = find.strip(), code_of(find), code_of(source)
    found, at = [], code.find(wanted)
    while at >= 0:
        first, last = at, at + len(wanted) - 1
        start, end = places[first], places[last] + 1
        _, _, above = source[places[first - 1] if first else 0 : start].partition("\n")
        behind = source[end : places[last + 1] if last + 1 < len(places) else len(source)]
        if find.startswith("//") and "//" in above:
            start -= len(above) - above.index("//")
        if find.splitlines()[-1].endswith("//"):
            end += len(behind.rstrip())
        found.append((start, end))
        at = code.find(wanted, last + 1)
    return found


def edited(source: str, edits: Iterable[dict[str, Any]], where: str) -> str:
    """A kernel with edits, each of which must find its place as often as it says (once)."""
    for edit in edits:
        found, wanted = places_of(edit["find"], source), edit.get("times", 1)
        if len(found) != wanted:
            raise Refusal(
                f"{where}: this text is {len(found)} times in the rung's kernel, and {wanted} "
                f"times is expected: {' '.join(edit['find'].split())[:80]}"
            )
        for start, end in reversed(found):
            source = source[:start] + edit["replace"].strip() + source[end:]
    return source


@dataclass(frozen=True)
class Exercise:
    id: str  # "flash_attention_2.1"
    rung: Rung
    folder: Path
    data: dict[str, Any] = field(repr=False)

    @property
    def title(self) -> str:
        return self.data["title"]

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return self.data["kind"]

    @property
    def text(self) -> str:
        return self.data["text"].strip()

    @property
    def hints(self) -> list[str]:
        return [" ".join(hint.split()) for hint in self.data["hints"]]

    @property
    def name(self) -> str:
        """Of the folder of its working copy."""
        return f"{self.id}_{self.folder.name.split('_', 1)[1]}"

    @property
    def file(self) -> str:
        """Of its working copy."""
        return "answer.txt" if self.kind == EXPLAIN else self.rung.kernel_file.name

    @cached_property
    def kernel(self) -> str:
        return self.rung.kernel_file.read_text(encoding="utf-8")

    @cached_property
    def starter(self) -> str:
        if self.kind == EXPLAIN:
            return "# Write the answer behind the = and run the exercise again.\nanswer =\n"
        return self.variant(self.data.get("starter", []))

    @cached_property
    def solution(self) -> str:
        """The rung's own kernel, unless edits do better; of a question, its answer."""
        if self.kind == EXPLAIN:
            answer = self.answer if isinstance(self.answer, str) else f"{self.answer:.10g}"
            return f"answer = {answer}\n"
        return self.variant(self.data.get("solution", []))

    @cached_property
    def compared_on(self) -> list[str]:
        """Problems on which no counter may be above the starter's, as in "128 128 64 full"."""
        own = [self.data["no_dearer"]] if "no_dearer" in self.data else []
        return own + list(dict.fromkeys(budget["run"] for budget in self.data.get("budget", ())))

    def variant(self, edits: Iterable[dict[str, Any]]) -> str:
        """The rung's kernel with these edits."""
        return edited(self.kernel, edits, self.id)

    @cached_property
    def answer(self) -> Any:
        """Of a question: the letter of a choice, or the number that its expression gives."""
        found = self.data["answer"]["is"]
        return found if "choices" in self.data else evaluate(found)


FUNCTIONS: dict[str, Callable[..., float]] = {
    "ceil": math.ceil,
    "log": math.log,
    "min": min,
    "max": max,
}
OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
# Beyond these no answer lies, and arithmetic would take long: 9**9**9 has 369,693,100 digits.
LONGEST, LARGEST, LARGEST_EXPONENT = 1000, 1e40, 100
NO_NUMBER = "no number, nor something like 4 * 200 * 64"
TOO_LARGE = f"too large: numbers end at {LARGEST:g} here"


def evaluate(expression: str) -> float:
    """A number from arithmetic, as learners write it too, with ceil, log, min and max; else
    ValueError, which says what the expression is instead."""

    def bounded(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(NO_NUMBER)
        if not abs(value) <= LARGEST:
            raise ValueError(TOO_LARGE)
        return value

    def value_of(node: ast.AST) -> float:
        match node:
            case ast.Expression(body):
                return value_of(body)
            case ast.Constant(value):
                return bounded(value)
            case ast.UnaryOp(op, of) if type(op) in OPERATORS:
                return bounded(OPERATORS[type(op)](value_of(of)))
            case ast.BinOp(left, op, right) if type(op) in OPERATORS:
                one, other = value_of(left), value_of(right)
                if isinstance(op, ast.Pow) and abs(other) > LARGEST_EXPONENT:
                    raise ValueError(f"too large: exponents end at {LARGEST_EXPONENT} here")
                return bounded(OPERATORS[type(op)](one, other))
            case ast.Call(ast.Name(name), of, []) if name in FUNCTIONS:
                return bounded(FUNCTIONS[name](*map(value_of, of)))
            case _:
                raise ValueError(NO_NUMBER)

    if len(expression) > LONGEST:
        raise ValueError(f"too long: {LONGEST} characters are enough here")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(NO_NUMBER) from None
    try:
        return value_of(tree)
    except OverflowError:
        raise ValueError(TOO_LARGE) from None
    except (ArithmeticError, TypeError, RecursionError):  # 1 / 0, log(1, 2, 3)
        raise ValueError(NO_NUMBER) from None


def load(path: Path, rungs: list[Rung]) -> Exercise:
    folder = path.parent
    rung = next((rung for rung in rungs if rung.name == folder.parent.name), None)
    if rung is None:
        raise Refusal(f"{path.relative_to(ROOT)}: the ladder has no rung {folder.parent.name}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"{path.relative_to(ROOT)}: {error}") from error
    return Exercise(f"{rung.name}.{folder.name.split('_', 1)[0]}", rung, folder, data)


def everything() -> list[Exercise]:
    """All exercises, in the order of the ladder."""
    rungs = ladder()
    return sorted(
        (load(path, rungs) for path in FOLDER.glob("*/[0-9]*/exercise.toml")),
        key=lambda one: (rungs.index(one.rung), int(one.id.split(".")[1])),
    )
