"""What the macros of a program hide, and what depends on __CUDA_ARCH__.

nvcc compiles a file twice, and __CUDA_ARCH__ is defined the second time alone, for the device.
scripts/simt compiles it once, for both. So what mentions __CUDA_ARCH__ comes twice instead: a
function asks at run time where it runs (rewriting.py), and reads one of its two texts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

ARCH = b"__CUDA_ARCH__"
OF_HOST = b"__CUDA_ARCH_OF_THE_HOST__"  # which nobody defines
WORD = re.compile(rb"[A-Za-z_]\w*")
CONDITIONALS = ("preproc_if", "preproc_ifdef")
DEFINITIONS = ("preproc_def", "preproc_function_def")
ALTERNATIVES = ("preproc_else", "preproc_elif", "preproc_elifdef")
INLINE = {b"inline", b"__inline__", b"__inline", b"__forceinline__"}
# A macro of these words is nothing to the grammar, which would stumble over it.
QUALIFIERS = INLINE | {
    b"__global__",
    b"__device__",
    b"__host__",
    b"__noinline__",
    b"__launch_bounds__",
    b"__restrict__",
    b"__restrict",
    b"static",
    b"extern",
    b"void",
    b"C",  # extern "C"
}


def descend(node: Node) -> Iterator[Node]:
    """All nodes below and this one, children first."""
    for child in node.children:
        yield from descend(child)
    yield node


def in_function(node: Node | None) -> bool:
    while node is not None and node.type not in ("function_definition", "lambda_expression"):
        node = node.parent
    return node is not None


def words(text: bytes) -> set[bytes]:
    return set(WORD.findall(text))


def conditions(node: Node | None) -> list[bytes]:
    """What a conditional of the preprocessor asks, in all of its branches."""
    asked = []
    while node is not None and node.type in CONDITIONALS + ALTERNATIVES:
        condition = node.child_by_field_name("condition") or node.child_by_field_name("name")
        asked += [condition.text] if condition is not None else []
        node = node.child_by_field_name("alternative")
    return asked


@dataclass
class Macros:
    """Those of all of a program's files."""

    bodies: dict[bytes, list[bytes]] = field(default_factory=dict)  # without their parameters
    with_parameters: set[bytes] = field(default_factory=set)
    # Conditionals on __CUDA_ARCH__ around definitions of macros, and the macros.
    two_sided: list[tuple[bytes, set[bytes]]] = field(default_factory=list)

    def learn(self, root: Node) -> None:
        """From the tree of a file."""
        for node in descend(root):
            if node.type in DEFINITIONS:
                self.define(node)
            elif node.type in CONDITIONALS and not in_function(node):
                if ARCH not in words(b" ".join(conditions(node))):
                    continue
                defined = [one for one in descend(node) if one.type in DEFINITIONS]
                names = {one.child_by_field_name("name").text for one in defined}
                if names:
                    self.two_sided.append((node.text.rstrip(b"\n"), names))

    def define(self, node: Node) -> None:
        name, body = (node.child_by_field_name(one) for one in ("name", "value"))
        text = body.text if body is not None else b""
        if node.type == "preproc_function_def":
            self.with_parameters.add(name.text)
            own = words(node.child_by_field_name("parameters").text)
            text = WORD.sub(lambda word: b"" if word[0] in own else word[0], text)
        self.bodies.setdefault(name.text, []).append(text)

    def meant(self, found: set[bytes]) -> set[bytes]:
        """Words, and those that their macros stand for."""
        todo, known = list(found), set(found)
        while todo:
            for body in self.bodies.get(todo.pop(), ()):
                new = words(body) - known
                known |= new
                todo += new
        return known

    def is_qualifier(self, name: bytes) -> bool:
        """Whether a macro says where a function runs, how it is linked and so on; or nothing."""
        bodies = self.bodies[name]
        if any(not words(body) and body.strip() for body in bodies):
            return False
        rest = b"".join(WORD.sub(b"", body) for body in bodies)
        meant = self.meant({name}) - set(self.bodies)
        return meant <= QUALIFIERS and not rest.strip(b' \t\r\n\\(),"0123456789')

    def for_grammar(self, source: bytes) -> bytes:
        """A text of the same length without macros that are qualifiers."""

        def blank(found: re.Match) -> bytes:
            name = found["name"]
            if not name:
                return found[0]
            is_type = b"void" in self.meant({name})
            if is_type and name not in self.with_parameters:
                return found[0]  # reads as a type
            text = re.sub(rb"[^\n]", b" ", found[0])
            return b"void" + text[4:] if is_type else text

        return self.qualifiers.sub(blank, source) if self.qualifiers else source

    @functools.cached_property
    def qualifiers(self) -> re.Pattern | None:
        """Where the text speaks of macros that are qualifiers, or directives, which it should."""
        names = [name for name in self.bodies if self.is_qualifier(name)]
        forms = [
            name + (rb"\s*\([^()]*\)" if name in self.with_parameters else rb"\b") for name in names
        ]
        directive = rb"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*"
        pattern = directive + rb"|\b(?=(?P<name>\w+))(?:" + b"|".join(forms) + b")"
        return re.compile(pattern, re.M) if names else None

    def of_device(self, head: bytes) -> bool:
        """Whether a function that begins like this is the device's alone."""
        meant = self.meant(words(head))
        return b"__global__" in meant or (b"__device__" in meant and b"__host__" not in meant)

    def replayed(self, text: bytes) -> list[tuple[bytes, set[bytes]]]:
        """The conditionals whose macros a text uses."""
        meant = self.meant(words(text)) if self.two_sided else set()
        return [(block, names) for block, names in self.two_sided if names & meant]
