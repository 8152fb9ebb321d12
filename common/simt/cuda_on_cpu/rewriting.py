"""From CUDA to what g++ understands: launches, dynamic shared memory, inline PTX.

A grammar made for CUDA finds the places. What stands in them is replaced where it stands, so every
line keeps its number. common/simt/language/launch_syntax.hpp says what the new text means.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cuda_on_cpu import ptx
from cuda_on_cpu.macros import (
    ARCH,
    CONDITIONALS,
    DEFINITIONS,
    INLINE,
    OF_HOST,
    WORD,
    Macros,
    conditions,
    descend,
    in_function,
    words,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

SIMT = "::flash::simt::"
# Host code may use these names for its own variables; in kernels they are macros.
BUILT_IN = (b"threadIdx", b"blockIdx", b"blockDim", b"gridDim")
# Files without any of this stay as they are, so they need no grammar.
WORTH_A_LOOK = re.compile(
    rb"<<\s*<|\basm\b|\b__asm(?:__)?\b|\bextern\b[^;(){}]*__shared__|__shared__\s+extern|static\s+__shared__"
    rb"|__shared__\s+static|\]\s*__(?:host|device)__|__shared__\s+alignas|extern\s*\"C\""
    rb"|[\w&*>]\s+&?\s*(?:threadIdx|blockIdx|blockDim|gridDim)\s*[^.\w\s]"
    rb"|(?:\.|->)\s*(?:blockDim|gridDim)\b(?!\s*\.)"
    rb"|\b__CUDA_ARCH__\b|inline[^;{}()]*__global__|__global__[^;{}()]*inline"
)
# A line end that the file has not. Those of the file keep their numbers by #line.
NEW_LINE = b"\v"
# Lambda expressions take no such words in C++.
OF_LAMBDA = re.compile(rb"(?<=\])\s*(?:__(?:host|device|forceinline|noinline)__\s*)+(?=[({])")
# A type alone among the arguments of a macro is none to the grammar; there it reads a name.
TYPE_AS_ARGUMENT = re.compile(
    rb"(?<=[(,])\s*(?:unsigned|signed|char|short|int|long|float|double|bool)\b[ \t]*(?=,)"
)
# What the grammar does not know is blank in the copy that it reads.
UNKNOWN_TO_GRAMMAR = re.compile(
    rb"\b__align__\s*\((?:[^()]|\([^()]*\))*\)"
    rb"|\b(?:CUDART_CB|CUDARTAPI|CUDAAPI|__grid_constant__|__managed__|__inline__)\b"
    rb"|\b__(?:cluster_dims|maxnreg)__\s*\([^()]*\)"
    rb"|" + OF_LAMBDA.pattern
)
# As some editors space it.
SPACED_LAUNCH = re.compile(rb"<<(\s*)<([^;{}]*?)>>(\s*)>(?=\s*\()")
NOT_CODE = re.compile(
    rb'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
    re.S,
)
DECLARATORS = (
    "init_declarator",
    "pointer_declarator",
    "reference_declarator",
    "array_declarator",
    "function_declarator",
    "structured_binding_declarator",
    "variadic_declarator",
)
DECLARATIONS = (
    "declaration",
    "parameter_declaration",
    "optional_parameter_declaration",
    "for_range_loop",
)
NAMES = ("identifier", "qualified_identifier", "template_function")
# What gives a name to a type.
OF_TYPES = ("type_definition", "alias_declaration", "type_parameter_declaration")
SCOPES = (
    "compound_statement",
    "for_statement",
    "for_range_loop",
    "lambda_expression",
    "function_definition",
    "declaration_list",
    "field_declaration_list",
    "translation_unit",
)
# Of what a file declares: that which may be the device's, and that which host code sees, too.
OF_ONE_SIDE = ("function_definition", "declaration", "template_declaration", "field_declaration")
OF_BOTH_SIDES = (
    "struct_specifier",
    "class_specifier",
    "enum_specifier",
    "union_specifier",
    "type_definition",
    "alias_declaration",
    "using_declaration",
    "namespace_definition",
    "linkage_specification",
    "expression_statement",
    "ERROR",
)


@dataclass
class Rewritten:
    text: bytes
    uses_ptx: bool = False
    notes: list[tuple[int, str]] = field(default_factory=list)  # lines, and what to know of them


@dataclass
class Known:
    """What the files of a program say about each other."""

    # {name: whether it has default arguments} of kernels that are templates or overloaded, or have
    # default arguments or the name of a host function
    chosen: dict[bytes, bool] = field(default_factory=dict)
    macros: Macros = field(default_factory=Macros)
    of_host: set[bytes] = field(default_factory=set)  # what is surely no kernel


@functools.cache
def parser() -> Parser:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def without_spaces(source: bytes) -> bytes:
    """<<<1, 2>>> for << <1, 2> >>, with the spaces behind it, so that nothing moves."""
    return SPACED_LAUNCH.sub(rb"<<<\1\2>>>\3", source)


def blanks(match: re.Match[bytes]) -> bytes:
    return re.sub(rb"[^\n]", b" ", match[0])


def parse(source: bytes, macros: Macros | None = None) -> Node:
    """The tree of a text, in which everything stands where it is."""
    copy = UNKNOWN_TO_GRAMMAR.sub(blanks, source)
    copy = TYPE_AS_ARGUMENT.sub(lambda found: re.sub(rb"\S", b"x", found[0]), copy)
    return parser().parse(macros.for_grammar(copy) if macros else copy).root_node


def on_one_line(text: bytes) -> bytes:
    """Without comments and line ends."""
    text = re.sub(rb"//[^\n]*|/\*.*?\*/", b" ", text, flags=re.S)
    return re.sub(rb"\s*\\?\n\s*", b" ", text)


def around(node: Node | None, *types: str) -> Node | None:
    """The nearest node of one of the types that this one lies in."""
    while node is not None and node.type not in types:
        node = node.parent
    return node


def part(node: Node, *types: str) -> Node | None:
    return next((child for child in node.children if child.type in types), None)


@dataclass(frozen=True)
class Kernel:
    """A __global__ function as it is declared or defined somewhere."""

    name: bytes
    node: Node  # the whole declaration
    end: int  # of what belongs to it
    template: bytes  # "template <class T, int N>", or nothing
    arguments: bytes  # "<T, N>"
    parameters: bytes  # "float *a, int n"
    with_defaults: bytes = b""  # "float *a, int n = 1", where there are any and all have names
    names: bytes = b""  # "a, n"


def template_arguments(parameters: Node) -> bytes | None:
    """b"<T, N>" for the parameters of a template; None where one has no name."""
    names = []
    for parameter in parameters.named_children:
        if parameter.type == "comment":
            continue
        if parameter.type == "template_template_parameter_declaration":
            parameter = parameter.named_children[-1]
        is_type = "type_parameter" in parameter.type
        kind = "type_identifier" if is_type else "identifier"
        found = [node for node in descend(parameter) if node.type == kind]
        if is_type and (default := part(parameter, "=")):
            found = [node for node in found if node.end_byte <= default.start_byte]
        elif not is_type:
            declarator = parameter.child_by_field_name("declarator")
            found = [node for node in found if declarator and within(node, declarator)]
        if not found:
            return None
        names.append(found[0].text + (b"..." if "variadic" in parameter.type else b""))
    return b"<" + b", ".join(names) + b">"


def name_of_parameter(node: Node) -> list[bytes]:
    """[its name], or nothing."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "identifier":
        inner = declarator.child_by_field_name("declarator")
        declarator = inner or next((one for one in declarator.named_children[-1:]), None)
    return [declarator.text] if declarator is not None else []


def scope_of(declaration: Node) -> Node | None:
    """Where a name means what is declared there. That of a parameter ends with its function or
    template; where a function is but declared, with its list."""
    of = declaration.parent
    if of.type == "template_parameter_list":
        return of.parent
    if of.type != "parameter_list":
        return around(declaration, *SCOPES, "ERROR")
    owner = of.parent
    while owner.type in (*DECLARATORS, "abstract_function_declarator"):
        owner = owner.parent
    return owner if owner.type in ("function_definition", "lambda_expression") else of


def is_whole(syntax: Node) -> bool:
    """Whether the grammar has seen a launch from one end to the other."""
    call = syntax.parent
    ends = part(syntax, "<<<"), part(syntax, ">>>")
    return (
        call.type == "call_expression"
        and all(ends)
        and call.children[0] != syntax
        and call.child_by_field_name("arguments") is not None
    )


def name_at_end(callee: Node) -> Node:
    """What is launched, where the grammar takes a piece of what stands before for a part of it."""
    while callee.has_error and callee.children and callee.type not in NAMES:
        callee = callee.children[-1]
    return callee


def within(node: Node, other: Node) -> bool:
    return other.start_byte <= node.start_byte and node.end_byte <= other.end_byte


def head_of(node: Node, source: bytes, end: int) -> tuple[int, bytes]:
    """Where a declaration begins, with the words before it that the grammar did not see."""
    before = node.prev_sibling
    start = before.end_byte if before is not None else node.parent.start_byte
    return start, source[start:end]


def functions(root: Node, source: bytes, macros: Macros) -> Iterator[tuple[Node, Node, Node, bool]]:
    """(declaration, declarator, name, whether it is a kernel) of what a file declares."""
    for node in descend(root):
        if node.type not in ("function_definition", "declaration"):
            continue
        function = node.child_by_field_name("declarator")
        while function is not None and function.type != "function_declarator":
            function = function.child_by_field_name("declarator")
        if function is not None:
            name = function.child_by_field_name("declarator")
            if name.type == "identifier":
                _, head = head_of(node, source, function.start_byte)
                yield node, function, name, b"__global__" in macros.meant(words(head))


def kernels(root: Node, source: bytes, macros: Macros) -> list[Kernel]:
    """Every kernel that a file declares."""
    found = []
    for node, function, name, is_kernel in functions(root, source, macros):
        if not is_kernel:
            continue
        parameters = function.child_by_field_name("parameters")
        parameters = [one for one in parameters.named_children if one.type != "comment"]
        texts, whole_texts, names = [], [], []
        for one in parameters:
            default = part(one, "=")
            end = default.start_byte if default else one.end_byte
            texts.append(on_one_line(source[one.start_byte : end]).strip())
            whole_texts.append(on_one_line(source[one.start_byte : one.end_byte]).strip())
            names += name_of_parameter(one)
        defaults = b"", b""
        if texts != whole_texts and len(names) == len(texts):
            defaults = (b", ".join(whole_texts), b", ".join(names))
        template, arguments, whole = b"", b"", node
        if node.parent.type == "template_declaration":
            whole = node.parent
            of_template = part(whole, "template_parameter_list")
            of_itself = template_arguments(of_template)
            template_end = node.prev_sibling.end_byte
            template = on_one_line(source[whole.start_byte : template_end]).strip()
            if of_itself in (None, b"<>"):  # not to be named, or a specialisation
                continue
            arguments = of_itself
        about = template, arguments, b", ".join(texts), *defaults
        found.append(Kernel(name.text, whole, whole.end_byte, *about))
    return found


def learn(files: Iterable[bytes]) -> Known:
    """What is known of a program with these files (their texts)."""
    known = Known()
    files = [without_spaces(source) for source in files]
    for source in files:
        if b"#" in source and (b"__CUDA_ARCH__" in source or b"define" in source):
            known.macros.learn(parse(source))
    if any(b"<<<" in source for source in files):
        known.chosen, known.of_host = chosen_by_arguments(files, known.macros)
    return known


def chosen_by_arguments(files: list[bytes], macros: Macros) -> tuple[dict[bytes, bool], set[bytes]]:
    """(chosen, of_host), as Known has them."""
    names, with_defaults, every_name, of_host, plain = set(), set(), set(), set(), set()
    for source in files:
        root = parse(source, macros)
        declared = kernels(root, source, macros)
        every_name |= {one.name for one in declared}
        for node, function, name, is_kernel in functions(root, source, macros):
            if not is_kernel:
                of_host.add(name.text)
                _, head = head_of(node, source, function.start_byte)
                plain |= {name.text} if words(head) <= {b"void", b"static", b"__host__"} else set()
        names |= {one.name for one in declared if one.template}
        with_defaults |= {one.name for one in declared if one.with_defaults}
        forms = Counter(name for name, _ in {(one.name, one.parameters) for one in declared})
        definitions = Counter(
            one.name for one in declared if part(one.node, "compound_statement") is not None
        )
        names |= {name for name in forms if forms[name] > 1 and definitions[name] > 1}
    names |= with_defaults | (every_name & of_host)
    return {name: name in with_defaults for name in names}, plain - every_name


class Part:
    """A file, or the body of a macro in it, and what is changed there."""

    def __init__(
        self,
        source: bytes,
        known: Known,
        refused: dict[str, str],
        offset: int = 0,
        is_macro: bool = False,
    ) -> None:
        self.source, self.known, self.refused = source, known, refused
        self.offset = offset  # of this text in the file
        self.line_end = b"\\\n" if is_macro else b"\n"
        self.edits: list[tuple[int, int, bytes]] = []  # (start, end, text), in this text
        self.uses_ptx = False
        self.notes: list[tuple[int, str]] = []
        for match in OF_LAMBDA.finditer(source):
            self.replace(*match.span(), blanks(match))
        root = parse(source, known.macros)
        nodes = self.nodes = list(descend(root))
        self.rename_host_variables(nodes)
        for node in nodes:
            if node.type == "declaration":
                self.shared_memory(node)
            elif node.type == "gnu_asm_expression":
                self.inline_ptx(node)
            elif node.type == "linkage_specification":
                self.linkage(node)
        for node in nodes:
            if node.type == "kernel_call_syntax" and is_whole(node):
                self.launch(node.parent, node)
        for one in kernels(root, source, known.macros):
            if one.name in known.chosen:
                self.companion(one)
        for node, function, _, is_kernel in functions(root, source, known.macros):
            if is_kernel:
                start, _ = head_of(node, source, function.start_byte)
                self.inline_once(start, function.start_byte)
        if not is_macro:
            for node in nodes:
                if node.type == "preproc_arg" and node.parent.type.endswith("def"):
                    self.macro(node)
            self.launches_left()
            self.both_sides(nodes)

    def replace(self, start: int, end: int, text: bytes) -> None:
        self.edits.append((start, end, text))

    def render(self, start: int = 0, end: int | None = None) -> bytes:
        """The text between, as it is to be."""
        end = len(self.source) if end is None else end
        inside = sorted(
            (edit for edit in self.edits if start <= edit[0] and edit[1] <= end),
            key=lambda edit: edit[:2],
        )
        pieces, at = [], start
        for first, last, text in inside:
            if first < at:
                continue  # inside of what has been replaced
            pieces += [self.source[at:first], text]
            at = last
        return b"".join([*pieces, self.source[at:end]])

    def same_lines(self, text: bytes, start: int, end: int) -> bytes:
        """The text, with as many line ends as what it replaces has."""
        return text + self.line_end * (self.source.count(b"\n", start, end) - text.count(b"\n"))

    def refuse(self, why: str) -> bytes:
        """What stands for something unsupported: g++ says where it is used, if it is."""
        name = f"refused_{len(self.refused)}"
        self.refused[name] = why
        return f"{SIMT}not_supported::{name}".encode()

    def rename_host_variables(self, nodes: list[Node]) -> None:
        kinds = "identifier", "field_identifier", "type_identifier"
        spoken = [node for node in nodes if node.type in kinds and node.text in BUILT_IN]
        scopes = []
        for node in spoken:
            outer = node.parent
            while outer.type in DECLARATORS:
                outer = outer.parent
            is_initial = node.parent.type == "init_declarator" and node != node.parent.children[0]
            if outer.type == "field_declaration":
                scopes.append((node.text, around(outer, "field_declaration_list")))
            elif node.type == "identifier" and outer.type in DECLARATIONS and not is_initial:
                is_range = outer.type == "for_range_loop"
                if is_range and node == outer.child_by_field_name("right"):
                    continue
                scopes.append((node.text, scope_of(outer)))
            elif outer.type in OF_TYPES and node != outer.child_by_field_name("type"):
                scopes.append((node.text, scope_of(outer)))
        for node in spoken:
            if node.type == "field_identifier" or any(
                name == node.text and within(node, scope) for name, scope in scopes
            ):
                self.replace(node.end_byte, node.end_byte, b"_")

    def shared_memory(self, node: Node) -> None:
        kinds = "storage_class_specifier", "type_qualifier"
        words = [child for child in node.children if child.type in kinds]
        storage = {child.text: child for child in words}
        if b"__shared__" not in storage:
            return
        if b"static" in storage:  # __shared__ says so itself
            self.replace(storage[b"static"].start_byte, storage[b"static"].end_byte, b"")
        for child in words:
            if child.children and child.children[0].type == "alignas_qualifier":
                where = child.children[0]
                of = where.named_children[0]
                form = b"alignof(%s)" if of.type == "type_descriptor" else b"%s"
                text = b"__align__(" + form % of.text + b")"
                self.replace(where.start_byte, where.end_byte, text)
        if b"extern" not in storage:
            return
        at_file_scope = around(node, "compound_statement") is None and not self.offset
        for word in (b"extern", b"__shared__"):
            self.replace(storage[word].start_byte, storage[word].end_byte, b"")
        type_node = node.child_by_field_name("type")
        if at_file_scope:
            self.replace(node.start_byte, node.start_byte, b"static const ")
            kept = b" ".join(text for text in storage if text in (b"volatile", b"const"))
            for text in kept.split():
                self.replace(storage[text].start_byte, storage[text].end_byte, b"")
            element = (kept + b" " if kept else b"") + type_node.text
        for declarator in node.children_by_field_name("declarator"):
            first, sizes = declarator, 0
            while first.type == "array_declarator":
                sizes += 1
                first = first.child_by_field_name("declarator")
            inner = self.source[first.end_byte : declarator.end_byte]
            rest = inner[inner.find(b"]") + 1 :]
            if at_file_scope:
                text = first.text + b"{}"
            elif sizes == 0:
                text = b"&" + first.text + b" = " + f"{SIMT}DynamicShared()".encode()
            else:
                pointer = b"(*" + first.text + b")" + rest if rest else b"*" + first.text
                text = pointer + f" = {SIMT}DynamicShared()".encode()
            if at_file_scope and declarator == node.child_by_field_name("declarator"):
                wanted = f"{SIMT}DynamicSharedArray<".encode() + element + rest + b">"
                self.replace(type_node.start_byte, type_node.end_byte, wanted)
            self.replace(declarator.start_byte, declarator.end_byte, text)

    def linkage(self, node: Node) -> None:
        """What is the device's is not extern "C": it could not carry its mark."""
        body = node.child_by_field_name("body")
        if body is None:
            return
        for one in body.children if body.type == "declaration_list" else [body]:
            declared = self.source[one.start_byte : one.end_byte].partition(b"(")[0]
            if re.search(rb"__(global|device|constant|managed)__", declared):
                self.replace(one.start_byte, one.start_byte, b'extern "C++" ')

    def inline_once(self, start: int, end: int) -> None:
        """A kernel is inline here, and can be so but once."""
        for word in WORD.finditer(self.source, start, end):
            if word[0] in INLINE or (
                self.known.macros.meant({word[0]}) & INLINE
                and b"__global__" not in self.known.macros.meant({word[0]})
            ):
                self.replace(*word.span(), b"")

    def both_sides(self, nodes: list[Node]) -> None:
        """What depends on __CUDA_ARCH__ comes twice, where it may run on either side."""
        macros = self.known.macros
        if ARCH not in self.source and not macros.replayed(self.source):
            return
        code = NOT_CODE.sub(blanks, self.source)
        inside: list[Node] = []  # functions that are seen to already
        for node in reversed(nodes):  # the outer ones first
            if node.type not in ("function_definition", "lambda_expression"):
                continue
            body = node.child_by_field_name("body")
            if body is None or body.type != "compound_statement":
                continue
            _, head = head_of(node, self.source, body.start_byte)
            is_qualified = {b"__host__", b"__device__", b"__global__"} & macros.meant(words(head))
            if not is_qualified and any(within(node, one) for one in inside):
                continue
            inside.append(node)
        for node in reversed(inside):
            body = node.child_by_field_name("body")
            _, head = head_of(node, self.source, body.start_byte)
            if macros.of_device(head):
                continue
            apart = [one for one in inside if one != node and within(one, node)]
            places = [
                found.span()
                for found in WORD.finditer(code, body.start_byte, body.end_byte)
                if found[0] == ARCH
                and in_directive(code, found.start())
                and not any(one.start_byte <= found.start() < one.end_byte for one in apart)
            ]
            blocks = macros.replayed(code[body.start_byte : body.end_byte])
            if places or blocks:
                self.twice(body, places, blocks)
        for node in nodes:
            if node.type in CONDITIONALS and not in_function(node):
                self.of_file(node)

    def twice(
        self, body: Node, places: list[tuple[int, int]], blocks: list[tuple[bytes, set[bytes]]]
    ) -> None:
        """A function's body for the device, as it stands, and behind it the same for the host."""
        start, end = body.start_byte + 1, body.end_byte - 1
        before = self.edits
        self.edits = before + [(first, last, OF_HOST) for first, last in places]
        of_host = self.render(start, end).replace(b"\n", NEW_LINE)
        self.edits = before
        text = b"} else {" + NEW_LINE
        for block, names in blocks:
            text += self.defined_anew(block.replace(ARCH, OF_HOST), names)
        text += b"#line %d" % self.line(start) + NEW_LINE + of_host + b"}}" + NEW_LINE
        for block, names in blocks:
            text += self.defined_anew(block, names)
        text += b"#line %d" % self.line(end) + NEW_LINE
        self.replace(start, start, b" if (FLASH_SIMT_ON_DEVICE) {")
        self.replace(end, end + 1, text)

    def defined_anew(self, block: bytes, names: set[bytes]) -> bytes:
        lines = [b"#undef " + name for name in sorted(names)]
        return NEW_LINE.join([*lines, *block.split(b"\n"), b""])

    def line(self, at: int) -> int:
        return self.source.count(b"\n", 0, at) + 1

    def of_file(self, node: Node) -> None:
        """A conditional on __CUDA_ARCH__ that no function holds."""
        asked = conditions(node)
        if ARCH not in words(b" ".join(asked)):
            return
        asks_for_host = node.children[0].type == "#ifndef" or b"".join(asked[0].split()) in (
            b"!defined(__CUDA_ARCH__)",
            b"!defined__CUDA_ARCH__",
        )
        has_macros = any(one.type in DEFINITIONS for one in descend(node))
        if asks_for_host and not has_macros and not node.child_by_field_name("alternative"):
            for found in WORD.finditer(self.source, node.start_byte, self.end_of_line(node)):
                if found[0] == ARCH:
                    self.replace(*found.span(), OF_HOST)
        elif not all(self.is_of_one_side(one) for one in node.named_children):
            self.notes.append(
                (
                    self.line(node.start_byte),
                    "__CUDA_ARCH__ outside of functions: the host gets the device's side of it, too"
                    " (docs/simt.md, A program of your own)",
                )
            )

    def end_of_line(self, node: Node) -> int:
        end = self.source.find(b"\n", node.start_byte)
        return len(self.source) if end < 0 else end

    def is_of_one_side(self, node: Node) -> bool:
        """Whether host code cannot tell which branch around this is read."""
        if node.type in ("preproc_else", "preproc_elif", *CONDITIONALS):
            return all(self.is_of_one_side(one) for one in node.named_children)
        if node.type in OF_ONE_SIDE:
            return self.known.macros.of_device(node.text.partition(b"(")[0])
        return node.type not in OF_BOTH_SIDES

    def inline_ptx(self, node: Node) -> None:
        try:
            text = ptx.translate(node, self.render)
            self.uses_ptx = True
        except ptx.NoTwin as error:
            text = self.refuse(str(error)) + b"()"
        # A statement of its own may have been without a ; in a macro.
        self.replace(
            node.start_byte, node.end_byte, self.same_lines(text, node.start_byte, node.end_byte)
        )

    def launch(self, call: Node, syntax: Node) -> None:
        """A launch that the grammar sees."""
        callee = name_at_end(call.children[0])
        arguments = call.child_by_field_name("arguments")
        opening, closing = part(syntax, "<<<"), part(syntax, ">>>")
        assert opening and closing  # is_whole() has seen both
        last = callee
        while last is not None and last.type in ("qualified_identifier", "template_function"):
            last = last.child_by_field_name("name")
        if last is not None and self.is_in_kernel(call, last.text):
            last = None  # a kernel launches itself, before what stands behind it is known
        self.launch_of(
            (callee.start_byte, callee.end_byte),
            (last.start_byte, last.text) if last is not None else None,
            opening.start_byte,
            closing.start_byte,
            (arguments.start_byte, arguments.end_byte),
        )

    def is_in_kernel(self, node: Node, name: bytes) -> bool:
        function = around(node, "function_definition")
        if function is None:
            return False
        own = declarator = function.child_by_field_name("declarator")
        while own is not None and own.type != "identifier":
            own = own.child_by_field_name("declarator")
        _, head = head_of(function, self.source, declarator.start_byte)
        return own is not None and own.text == name and self.known.macros.of_device(head)

    def launch_of(
        self,
        callee: tuple[int, int],
        last: tuple[int, bytes] | None,
        opening: int,
        closing: int,
        arguments: tuple[int, int],
    ) -> None:
        """`last` is where the callee's own name is, and the name, if it has one."""
        start, end = callee
        at, name = last or (start, None)
        if name in self.known.of_host and not self.is_variable(name):
            said = b"%s is a function of the host; <<<>>> launches __global__ functions" % name
            text = b'({ static_assert(false, "%s"); %s; })' % (said, name)
            return self.replace(start, closing + 3, self.same_lines(text, start, closing + 3))
        if name is not None and self.known.chosen.get(name):
            kernel = self.render(start, at) + b"call_of_"
            kernel = on_one_line(kernel + self.render(at, end))
            text = self.same_lines(f"{SIMT}Configuration".encode(), start, end)
            self.replace(start, end, text)
            self.replace(opening, opening + 3, b"(")
            self.replace(closing, closing + 3, b").call(" + kernel)
            return self.replace(arguments[1], arguments[1], b")")
        if name is not None and name in self.known.chosen:
            found = self.render(start, at) + b"kernel_of_"
            found = on_one_line(found + self.render(at, end))
            if has_lambda(self.source[slice(*arguments)]):
                chosen = (
                    f"{SIMT}configured_by_arguments([&](auto &&...a) {{ return decltype(".encode()
                    + found
                    + b"(static_cast<decltype(a)>(a)...)){}; }"
                )
            else:
                given = on_one_line(self.render(*arguments))
                chosen = f"{SIMT}configured(decltype(".encode() + found + given + b")::value"
            self.replace(start, end, self.same_lines(chosen, start, end))
        else:
            self.replace(start, start, f"{SIMT}configured(".encode())
        self.replace(opening, opening + 3, b", ")
        self.replace(closing, closing + 3, b")")

    def is_variable(self, name: bytes) -> bool:
        """Whether a variable has this name somewhere in the file."""
        return any(
            node.type == "identifier"
            and node.text == name
            and node.parent.type
            in ("init_declarator", "pointer_declarator", "parameter_declaration")
            for node in self.nodes
        )

    def companion(self, kernel: Kernel) -> None:
        """Behind a kernel, a function whose type is the kernel that its arguments choose; or that
        returns the kernel and all of its arguments, where some have defaults."""
        own = kernel.name + kernel.arguments
        if kernel.with_defaults:
            pointer = b"static_cast<void (*)(" + kernel.parameters + b")>(&" + own + b")"
            packed = f"{SIMT}packed(".encode() + pointer + b", " + kernel.names + b")"
            about = kernel.template, kernel.name, kernel.with_defaults, packed
            text = b" %s static inline auto call_of_%s(%s) { return %s; }" % about
        else:
            pointer = b"void (*)(" + kernel.parameters + b"), &" + own
            about = kernel.template, pointer, kernel.name, kernel.parameters
            text = b" %s ::std::integral_constant<%s> kernel_of_%s(%s);" % about
        self.replace(kernel.end, kernel.end, text)

    def macro(self, node: Node) -> None:
        body = self.source[node.start_byte : node.end_byte]
        if b"__global__" in self.known.macros.meant(words(body)):
            self.inline_once(node.start_byte, node.end_byte)
        if not WORTH_A_LOOK.search(body):
            return
        prefix = b"void f() { "
        inner = Part(
            prefix + body + b"\n;}", self.known, self.refused, node.start_byte - len(prefix), True
        )
        self.uses_ptx |= inner.uses_ptx
        for start, end, text in inner.edits:
            self.replace(start + inner.offset, end + inner.offset, text)

    def launches_left(self) -> None:
        """Those that the grammar did not see: among the arguments of a macro, for instance."""
        code = NOT_CODE.sub(blanks, self.source)
        done = [(start, end) for start, end, _ in self.edits if start < end]
        opening = None
        for match in re.finditer(rb"<<<|>>>", code):
            start, end = match.span()
            if any(first <= start and end <= last for first, last in done):
                continue
            if match[0] == b"<<<":
                opening = start
            elif opening is not None:  # else it closes three lists of template arguments
                self.launch_by_words(code, opening, start)
                opening = None
        if opening is not None:
            self.replace(opening, opening + 3, f"->*{SIMT}Configuration(".encode())

    def launch_by_words(self, code: bytes, opening: int, closing: int) -> None:
        """A launch of which the words alone are known."""
        end = len(code[:opening].rstrip())
        own_end = opened(code, end) if code[:end].endswith(b">") else end
        name = re.search(rb"(?:::\s*)?(?:[A-Za-z_]\w*\s*::\s*)*([A-Za-z_]\w*)\s*$", code[:own_end])
        begin = len(code) - len(code[closing + 3 :].lstrip())
        arguments = closed(code, begin) if code[begin : begin + 1] == b"(" else None
        if name is None or arguments is None or name[1] in self.known.macros.bodies:
            self.replace(opening, opening + 3, f"->*{SIMT}Configuration(".encode())
            return self.replace(closing, closing + 3, b")")
        last = name.start(1), name[1]
        self.launch_of((name.start(), end), last, opening, closing, (begin, arguments))


def has_lambda(arguments: bytes) -> bool:
    root = parse(b"void f() { g" + arguments + b"; }")
    return any(node.type == "lambda_expression" for node in descend(root))


def in_directive(code: bytes, at: int) -> bool:
    """Whether the preprocessor is told what stands there."""
    line = code[:at].replace(b"\\\n", b"  ").rpartition(b"\n")[2]
    return line.lstrip().startswith(b"#")


def closed(code: bytes, start: int) -> int | None:
    """Where the bracket at `start` ends; None where it does not."""
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] in b"([{") - (code[at] in b")]}")
        if depth == 0:
            return at + 1
    return None


def opened(code: bytes, end: int) -> int:
    """Where the list of template arguments that ends at `end` begins."""
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += (code[at] in b">)]") - (code[at] in b"<([")
        if depth == 0:
            return at
    return end


def rewrite(source: bytes, known: Known, refused: dict[str, str]) -> Rewritten:
    """One file's text as g++ is to read it. What is not supported comes into `refused`."""
    meant = known.macros.meant(words(source))
    has_kernels = b"__global__" in meant and (known.chosen or INLINE & meant)
    if not (WORTH_A_LOOK.search(source) or has_kernels or known.macros.replayed(source)):
        return Rewritten(source)
    source = without_spaces(source).replace(NEW_LINE, b" ")
    whole = Part(source, known, refused)
    text = whole.render()
    assert text.count(b"\n") == source.count(b"\n")
    return Rewritten(text, whole.uses_ptx, whole.notes)
