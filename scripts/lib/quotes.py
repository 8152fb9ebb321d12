"""Figures in the prose of a page: quoted from a record, computed, or given with a reason, by docs/quoted.toml."""

import re
import sys

try:
    import tomllib
except ImportError:
    sys.exit("Python 3.11 or later is needed: it reads docs/quoted.toml")

from figures_of import NAMES
from bench_tables import three_digits

REASONS = {
    "prediction": "made before it was measured, or a bound that was reckoned",
    "hardware": "a property of a machine, from its maker",
    "definition": "chosen: a size of the problem, of a tile or of a type",
    "command": "printed by the command that stands beside it",
    "listing": "stands in a listing of the same page, perhaps with more digits; this is checked",
    "exercise": "an example to reckon with",
    "data": "a property of the data in reference/data",
    "version": "of a program or a GPU generation",
    "words": "a way of speaking",
}

NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
PLACEHOLDER = re.compile(r"\{(?::([^{}]*))?\}")
UNITS = (r"%|percent|[TG]FLOP/s|[TGM]B/s|T/s|ms|[µun]s|s|seconds?|minutes?|hours?|[TGMk]B|[GMK]iB|bytes|GHz|MHz|"
         r"clocks|times|fold|registers|spills|wavefronts|sectors|requests|instructions|operations|products|barriers|"
         r"shuffles|collectives|loads|stores|repeats|mutants")
UNIT = rf"(?:\s?(?:{UNITS})(?!\w)|-way(?!\w))"
FIGURE = re.compile(rf"(?<![\w.,^_]){NUMBER}(?={UNIT}|\s(?:to|and|or)\s{NUMBER}{UNIT})|"
                    r"(?<![\w.])\d+\.\d+(?:e-?\d+)?(?![\w.]*\d)")
VERSION = re.compile(r"(?:CUDA|g\+\+|nvcc|Ubuntu|CMake|Eigen|PyTorch|Python|Boost|capability|driver|sm_\d+,)\s+$")

FENCED = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[^\n]*$", re.M | re.S)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n|\n(?= {4}))+")
MADE_TABLE = re.compile(r"^<!-- table: [^\n]*\n(?:\|[^\n]*\n)*", re.M)
NOT_READ = re.compile(r"^#[^\n]*$|<!--.*?-->|`[^`\n]+`|(?<=\])\([^)]*\)", re.M | re.S)
TABLE = re.compile(r"^\|[^\n]*\n\|[-:| ]+\|\n(?:\|[^\n]*\n?)*", re.M)


def hidden(text, pattern):
    """The text with each match of the pattern as blanks that match nothing; positions stay."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def listings(text):
    return "\n".join(match[0] for pattern in (FENCED, INDENTED) for match in pattern.finditer(text))


def prose_of(text):
    """The page without its listings and without the tables that are made from records."""
    return hidden(hidden(hidden(text, FENCED), INDENTED), MADE_TABLE)


def figures(text):
    """(start, end) of each figure of the prose that looks measured."""
    readable = hidden(prose_of(text), NOT_READ)
    found = {match.span() for match in FIGURE.finditer(readable)
             if not VERSION.search(readable, max(match.start() - 20, 0), match.start())}
    for table in TABLE.finditer(readable):
        found |= set(table_figures(table))
    return sorted(found)


def table_figures(table):
    """Figures of a table that is written by hand: in columns whose head names a unit, whatever begins with a digit."""
    position, measured = table.start(), None
    for number, line in enumerate(table[0].splitlines(keepends=True)):
        start = position + 1
        cells = line.strip("\n").strip("|").split("|")
        if number == 0:
            measured = [re.search(rf"(?<!\w)(?:{UNITS})(?!\w)", cell) for cell in cells]
        for index, cell in enumerate(cells):
            if number > 1 and index < len(measured) and measured[index]:
                yield from ((start + m.start(), start + m.end())
                            for m in re.finditer(rf"(?<![\w.,^_]){NUMBER}(?!\w)", cell))
            start += len(cell) + 1
        position += len(line)


def pattern_of(text):
    """Regular expression of a text with placeholders, white space folded; a group for each placeholder. And formats."""
    parts, formats, last = [], [], 0
    for match in PLACEHOLDER.finditer(text):
        parts += [text[last:match.start()], None]
        formats.append(match[1] or "")
        last = match.end()
    parts.append(text[last:])
    literal = [rf"({NUMBER})(?!\d|[.,]\d)" if part is None else r"\s+".join(map(re.escape, re.split(r"\s+", part)))
               for part in parts]
    return re.compile("".join(literal)), formats


def printed(value, form):
    """As it stands on the page; three digits where the placeholder says nothing."""
    if isinstance(value, float) and value.is_integer() and not re.search(r"[a-zA-Z%]$", form):
        value = int(value)
    return three_digits(value) if isinstance(value, float) and not form else format(value, form)


class Wrong(Exception):
    """One line about an entry of docs/quoted.toml that is not as it must be."""


def value_of(expression, names):
    return eval(expression, {"__builtins__": {}, **NAMES, **names})


def quote(page, text, key, expressions, names):
    """[(start, end, as the record has it, expression)] of every figure that an entry quotes."""
    pattern, forms = pattern_of(key)
    expressions = [expressions] if isinstance(expressions, str) else expressions
    expressions = [" ".join(expression.split()) for expression in expressions]
    if not forms or len(forms) != len(expressions):
        raise Wrong(f"{page}: '{key}' has {len(forms)} placeholders and {len(expressions)} expressions")
    values = []
    for expression, form in zip(expressions, forms):
        try:
            values.append(printed(value_of(expression, names), form))
        except Exception as error:  # whatever an expression can do wrong
            raise Wrong(f"{page}: '{key}': {expression}: {type(error).__name__}: {error}") from error
    found = [(*match.span(group), value, expression) for match in pattern.finditer(prose_of(text))
             for group, (value, expression) in enumerate(zip(values, expressions), 1)]
    if not found:
        raise Wrong(f"{page}: there is no such text: '{key}'")
    return found


def given(page, text, key, reason):
    """[(start, end)] of what an entry gives; of a whole table where the text stands in its head."""
    if reason not in REASONS:
        raise Wrong(f"{page}: '{key}': no such reason as '{reason}'; there are {', '.join(REASONS)}")
    prose = prose_of(text)
    found = [match.span() for match in pattern_of(key)[0].finditer(prose)]
    tables = [table.span() for table in TABLE.finditer(prose)]
    found = [next((table for table in tables if table[0] <= span[0] and "\n" not in prose[table[0]:span[0]]), span)
             for span in found]
    if reason == "listing":
        shown = [float(number.replace(",", "")) for number in re.findall(NUMBER, listings(text))]
        for start, end in found:
            for quoted in re.findall(NUMBER, text[start:end]):
                decimals = len(quoted.partition(".")[2])
                if not any(f"{number:,.{decimals}f}".replace(",", "") == quoted.replace(",", "") for number in shown):
                    raise Wrong(f"{page}:{line_of(text, start)}: {quoted} stands in no listing of the page")
    return found


def check(page, text, entries):
    """(text with the records' figures, what differs, what is wrong otherwise), of one page."""
    quoted, reasons = entries.quoted.get(page, {}), entries.given.get(page, {})
    differ, wrong, covered, new = [], [], [], {}
    for key, expressions in quoted.items():
        try:
            for start, end, value, expression in quote(page, text, key, expressions, entries.names):
                covered.append((start, end))
                if text[start:end] != value:
                    new[start, end] = value
                    differ.append(f"{page}:{line_of(text, start)}: says {text[start:end]}, the record gives {value}: "
                                  f"{expression}")
        except Wrong as error:
            wrong.append(f"quoted.toml: {error}")
    for key, reason in {**entries.given.get("*", {}), **reasons}.items():
        try:
            spans = given(page, text, key, reason)
            covered += spans
            if not spans and key in reasons:
                wrong.append(f"quoted.toml: {page}: there is no such text: '{key}'")
        except Wrong as error:
            wrong.append(f"quoted.toml: {error}")
    for start, end in figures(text):
        if not any(a <= start and end <= b for a, b in covered):
            around = re.sub(r"\s+", " ", text[max(start - 25, 0):end + 25])
            wrong.append(f"{page}:{line_of(text, start)}: {text[start:end]} comes from no record; "
                         f"quote it in docs/quoted.toml: ...{around}...")
    for (start, end), value in sorted(new.items(), reverse=True):
        text = text[:start] + value + text[end:]
    return text, differ, wrong


class Entries:
    """What docs/quoted.toml says. Raises ValueError where it can not be read."""

    def __init__(self, text):
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"quoted.toml: {error}") from error
        self.quoted, self.given, self.names = tables.get("quoted", {}), tables.get("given", {}), {}
        for name, expression in tables.get("names", {}).items():
            try:
                self.names[name] = value_of(expression, self.names)
            except Exception as error:  # whatever an expression can do wrong
                raise ValueError(f"quoted.toml: {name}: {expression}: {type(error).__name__}: {error}") from error

    def without_place(self, pages):
        """Complaints about entries for pages that are not there, and for any page that are on none; {name: text}."""
        return [*(f"quoted.toml: there is no page {name}" for name in {**self.quoted, **self.given}
                  if name not in (*pages, "*")),
                *(f"quoted.toml: no page has the text '{key}'" for key in self.given.get("*", {})
                  if not any(pattern_of(key)[0].search(prose_of(text)) for text in pages.values()))]
