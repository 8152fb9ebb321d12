"""From CUDA to what g++ understands: launches, dynamic shared memory, inline PTX.

A grammar made for CUDA finds the places. What stands in them is replaced where it stands, so every
line keeps its number. common/simt/language/launch_syntax.hpp says what the new text means.
"""

import functools
import re
from collections import Counter
from dataclasses import dataclass

from lab.simt import ptx

SIMT = "::flash::simt::"
# Host code may use these names for its own variables; in kernels they are macros.
BUILT_IN = (b"threadIdx", b"blockIdx", b"blockDim", b"gridDim")
# Files without any of this stay as they are, so they need no grammar.
WORTH_A_LOOK = re.compile(
    rb"<<\s*<|\basm\b|\b__asm(?:__)?\b|\bextern\b[^;(){}]*__shared__|__shared__\s+extern|static\s+__shared__"
    rb"|__shared__\s+static|\]\s*__(?:host|device)__|__shared__\s+alignas|extern\s*\"C\""
    rb"|[\w&*>]\s+&?\s*(?:threadIdx|blockIdx|blockDim|gridDim)\s*[^.\w\s]"
)
# Lambda expressions take no such words in C++.
OF_LAMBDA = re.compile(rb"(?<=\])\s*(?:__(?:host|device|forceinline|noinline)__\s*)+(?=[({])")
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


@dataclass
class Rewritten:
    text: bytes
    uses_ptx: bool = False


@functools.cache
def parser():
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def without_spaces(source):
    """<<<1, 2>>> for << <1, 2> >>, with the spaces behind it, so that nothing moves."""
    return SPACED_LAUNCH.sub(rb"<<<\1\2>>>\3", source)


def blanks(match):
    return re.sub(rb"[^\n]", b" ", match[0])


def parse(source):
    return parser().parse(UNKNOWN_TO_GRAMMAR.sub(blanks, source)).root_node


def on_one_line(text):
    """Without comments and line ends."""
    text = re.sub(rb"//[^\n]*|/\*.*?\*/", b" ", text, flags=re.S)
    return re.sub(rb"\s*\\?\n\s*", b" ", text)


def descend(node):
    """All nodes below and this one, children first."""
    for child in node.children:
        yield from descend(child)
    yield node


def around(node, *types):
    """The nearest node of one of the types that this one lies in."""
    while node is not None and node.type not in types:
        node = node.parent
    return node


def part(node, *types):
    return next((child for child in node.children if child.type in types), None)


@dataclass(frozen=True)
class Kernel:
    """A __global__ function as it is declared or defined somewhere."""

    name: bytes
    node: object  # the whole declaration
    end: int  # of what belongs to it
    template: bytes  # "template <class T, int N>", or nothing
    arguments: bytes  # "<T, N>"
    parameters: bytes  # "float *a, int n"
    with_defaults: bytes = b""  # "float *a, int n = 1", where there are any and all have names
    names: bytes = b""  # "a, n"


def template_arguments(parameters):
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
        if is_type and found and part(parameter, "="):
            found = [node for node in found if node.end_byte <= part(parameter, "=").start_byte]
        elif not is_type:
            declarator = parameter.child_by_field_name("declarator")
            found = [node for node in found if declarator and within(node, declarator)]
        if not found:
            return None
        names.append(found[0].text + b"..." * ("variadic" in parameter.type))
    return b"<" + b", ".join(names) + b">"


def name_of_parameter(node):
    """[its name], or nothing."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "identifier":
        inner = declarator.child_by_field_name("declarator")
        declarator = inner or next((one for one in declarator.named_children[-1:]), None)
    return [declarator.text] if declarator is not None else []


def within(node, other):
    return other.start_byte <= node.start_byte and node.end_byte <= other.end_byte


def functions(root, source):
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
                head = source[node.start_byte : function.start_byte]
                yield node, function, name, b"__global__" in head


def kernels(root, source):
    """Every kernel that a file declares."""
    found = []
    for node, function, name, is_kernel in functions(root, source):
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
        defaults = ()
        if texts != whole_texts and len(names) == len(texts):
            defaults = (b", ".join(whole_texts), b", ".join(names))
        template, arguments, whole = b"", b"", node
        if node.parent.type == "template_declaration":
            whole = node.parent
            of_template = part(whole, "template_parameter_list")
            arguments = template_arguments(of_template)
            template = on_one_line(source[whole.start_byte : node.start_byte]).strip()
            if arguments in (None, b"<>"):  # not to be named, or a specialisation
                continue
        about = template, arguments, b", ".join(texts), *defaults
        found.append(Kernel(name.text, whole, whole.end_byte, *about))
    return found


def chosen_by_arguments(files):
    """{name: whether it has default arguments} of kernels that are templates or overloaded, or
    have default arguments or the name of a host function, in any of the files (texts)."""
    names, with_defaults, every_name, of_host = set(), set(), set(), set()
    files = [without_spaces(source) for source in files]
    if not any(b"<<<" in source for source in files):
        return {}
    for source in files:
        if b"__global__" not in source:
            continue
        root = parse(source)
        declared = kernels(root, source)
        every_name |= {one.name for one in declared}
        of_host |= {name.text for _, _, name, is_kernel in functions(root, source) if not is_kernel}
        names |= {one.name for one in declared if one.template}
        with_defaults |= {one.name for one in declared if one.with_defaults}
        forms = Counter(name for name, _ in {(one.name, one.parameters) for one in declared})
        definitions = Counter(
            one.name for one in declared if part(one.node, "compound_statement") is not None
        )
        names |= {name for name in forms if forms[name] > 1 and definitions[name] > 1}
    names |= with_defaults | (every_name & of_host)
    return {name: name in with_defaults for name in names}


class Part:
    """A file, or the body of a macro in it, and what is changed there."""

    def __init__(self, source, chosen, refused, offset=0, is_macro=False):
        self.source, self.chosen, self.refused = source, chosen, refused
        self.offset = offset  # of this text in the file
        self.line_end = b"\\\n" if is_macro else b"\n"
        self.edits = []  # (start, end, text), in this text
        self.uses_ptx = False
        for match in OF_LAMBDA.finditer(source):
            self.replace(*match.span(), blanks(match))
        root = parse(source)
        nodes = list(descend(root))
        self.rename_host_variables(nodes)
        for node in nodes:
            if node.type == "declaration":
                self.shared_memory(node)
            elif node.type == "gnu_asm_expression":
                self.inline_ptx(node)
            elif node.type == "linkage_specification":
                self.linkage(node)
        for node in nodes:
            if node.type == "kernel_call_syntax" and node.parent.type == "call_expression":
                self.launch(node.parent, node)
        for one in kernels(root, source):
            if one.name in chosen:
                self.companion(one)
        if not is_macro:
            for node in nodes:
                if node.type == "preproc_arg" and node.parent.type.endswith("def"):
                    self.macro(node)
            self.launches_left()

    def replace(self, start, end, text):
        self.edits.append((start, end, text))

    def render(self, start=0, end=None):
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

    def same_lines(self, text, start, end):
        """The text, with as many line ends as what it replaces has."""
        return text + self.line_end * (self.source.count(b"\n", start, end) - text.count(b"\n"))

    def refuse(self, why):
        """What stands for something unsupported: g++ says where it is used, if it is."""
        name = f"refused_{len(self.refused)}"
        self.refused[name] = why
        return f"{SIMT}not_supported::{name}".encode()

    def rename_host_variables(self, nodes):
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
                scopes.append((node.text, around(outer, *SCOPES)))
        for node in spoken:
            if node.type == "field_identifier" or any(
                name == node.text and within(node, scope) for name, scope in scopes
            ):
                self.replace(node.end_byte, node.end_byte, b"_")

    def shared_memory(self, node):
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
            element = kept + b" " * bool(kept) + type_node.text
        for declarator in node.children_by_field_name("declarator"):
            first, sizes = declarator, []
            while first.type == "array_declarator":
                sizes.insert(0, first)
                first = first.child_by_field_name("declarator")
            inner = self.source[first.end_byte : declarator.end_byte]
            rest = inner[inner.find(b"]") + 1 :]
            if at_file_scope:
                text = first.text + b"{}"
            elif not sizes:
                text = b"&" + first.text + b" = " + f"{SIMT}DynamicShared()".encode()
            else:
                pointer = b"(*" + first.text + b")" + rest if rest else b"*" + first.text
                text = pointer + f" = {SIMT}DynamicShared()".encode()
            if at_file_scope and declarator == node.child_by_field_name("declarator"):
                wanted = f"{SIMT}DynamicSharedArray<".encode() + element + rest + b">"
                self.replace(type_node.start_byte, type_node.end_byte, wanted)
            self.replace(declarator.start_byte, declarator.end_byte, text)

    def linkage(self, node):
        """What is the device's is not extern "C": it could not carry its mark."""
        body = node.child_by_field_name("body")
        if body is None:
            return
        for one in body.children if body.type == "declaration_list" else [body]:
            declared = self.source[one.start_byte : one.end_byte].partition(b"(")[0]
            if re.search(rb"__(global|device|constant|managed)__", declared):
                self.replace(one.start_byte, one.start_byte, b'extern "C++" ')

    def inline_ptx(self, node):
        try:
            text = ptx.translate(node, self.render)
            self.uses_ptx = True
        except ptx.NoTwin as error:
            text = self.refuse(str(error)) + b"()"
        # A statement of its own may have been without a ; in a macro.
        self.replace(
            node.start_byte, node.end_byte, self.same_lines(text, node.start_byte, node.end_byte)
        )

    def launch(self, call, syntax):
        callee = call.children[0]
        arguments = call.child_by_field_name("arguments")
        opening, closing = part(syntax, "<<<"), part(syntax, ">>>")
        function = around(call, "function_definition")
        if function is not None:
            declarator = function.child_by_field_name("declarator")
            head = self.source[function.start_byte : declarator.start_byte]
            if b"__global__" in head or (b"__device__" in head and b"__host__" not in head):
                text = self.refuse("a launch by a kernel; let the host launch it")
                text = self.same_lines(text, callee.start_byte, syntax.end_byte)
                return self.replace(callee.start_byte, syntax.end_byte, text)
        start, end = callee.start_byte, callee.end_byte
        last = callee
        while last is not None and last.type in ("qualified_identifier", "template_function"):
            last = last.child_by_field_name("name")
        if last is not None and self.chosen.get(last.text):
            kernel = self.render(start, last.start_byte) + b"call_of_"
            kernel = on_one_line(kernel + self.render(last.start_byte, end))
            text = self.same_lines(f"{SIMT}Configuration".encode(), start, end)
            self.replace(start, end, text)
            self.replace(opening.start_byte, opening.end_byte, b"(")
            self.replace(closing.start_byte, closing.end_byte, b").call(" + kernel)
            return self.replace(arguments.end_byte, arguments.end_byte, b")")
        if last is not None and last.text in self.chosen:
            found = self.render(start, last.start_byte) + b"kernel_of_"
            found = on_one_line(found + self.render(last.start_byte, end))
            is_lambda = any(node.type == "lambda_expression" for node in descend(arguments))
            if is_lambda:
                chosen = (
                    f"{SIMT}configured_by_arguments([&](auto &&...a) {{ return decltype(".encode()
                    + found
                    + b"(static_cast<decltype(a)>(a)...)){}; }"
                )
            else:
                given = on_one_line(self.render(arguments.start_byte, arguments.end_byte))
                chosen = f"{SIMT}configured(decltype(".encode() + found + given + b")::value"
            text = self.same_lines(chosen, start, end)
            self.replace(start, end, text)
        else:
            self.replace(callee.start_byte, callee.start_byte, f"{SIMT}configured(".encode())
        self.replace(opening.start_byte, opening.end_byte, b", ")
        self.replace(closing.start_byte, closing.end_byte, b")")

    def companion(self, kernel):
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

    def macro(self, node):
        body = self.source[node.start_byte : node.end_byte]
        if not WORTH_A_LOOK.search(body):
            return
        prefix = b"void f() { "
        inner = Part(
            prefix + body + b"\n;}", self.chosen, self.refused, node.start_byte - len(prefix), True
        )
        self.uses_ptx |= inner.uses_ptx
        for start, end, text in inner.edits:
            self.replace(start + inner.offset, end + inner.offset, text)

    def launches_left(self):
        """Those that the grammar did not see."""
        code = NOT_CODE.sub(blanks, self.source)
        done = [(start, end) for start, end, _ in self.edits if start < end]
        is_open = False
        for match in re.finditer(rb"<<<|>>>", code):
            start, end = match.span()
            if any(first <= start and end <= last for first, last in done):
                continue
            if match[0] == b"<<<":
                self.replace(start, end, f"->*{SIMT}Configuration(".encode())
            elif is_open:  # else it closes three lists of template arguments
                self.replace(start, end, b")")
            is_open = match[0] == b"<<<"


def rewrite(source, chosen, refused):
    """One file's text as g++ is to read it. What is not supported comes into `refused`."""
    if not WORTH_A_LOOK.search(source) and not (chosen and b"__global__" in source):
        return Rewritten(source)
    source = without_spaces(source)
    whole = Part(source, chosen, refused)
    text = whole.render()
    assert text.count(b"\n") == source.count(b"\n")
    return Rewritten(text, whole.uses_ptx)
