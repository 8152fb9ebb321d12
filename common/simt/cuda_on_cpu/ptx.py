"""Inline PTX: instructions that have a twin in common/simt/instructions/inline_ptx.hpp, with the
registers and the jumps of a statement.

What is not understood in full, each modifier and each operand, is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

PTX = "::flash::simt::ptx::"
# PTX's types as C++ has them.
UNSIGNED = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
SIGNED = {8: "signed char", 16: "short", 32: "int", 64: "long long"}
TYPES = {"f32": "float", "f64": "double", "b128": "unsigned __int128"}
TYPES |= {f"{kind}{bits}": name for bits, name in UNSIGNED.items() for kind in "ub"}
TYPES |= {f"s{bits}": name for bits, name in SIGNED.items()}
# Constraints of operands that are registers, and constants.
CONSTRAINTS = ("h", "r", "l", "q", "f", "d", "n")
# Special registers of 32 bits; a mov of 16 takes their lower half. Those of 64 are apart.
SPECIAL = {
    "laneid": f"{PTX}lane()",
    "warpid": f"{PTX}warp()",
    "smid": f"{PTX}sm()",
    "lanemask_eq": f"(1u << {PTX}lane())",
    "lanemask_lt": f"((1u << {PTX}lane()) - 1)",
    "lanemask_le": f"(~0u >> (31 - {PTX}lane()))",
    "lanemask_gt": f"~(~0u >> (31 - {PTX}lane()))",
    "lanemask_ge": f"~((1u << {PTX}lane()) - 1)",
    "clock": "clock()",
}
PLACES = {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}
SPECIAL |= {f"{one}.{axis}": f"{name}.{axis}" for one, name in PLACES.items() for axis in "xyz"}
SPECIAL_64 = {"clock64": "clock64()", "globaltimer": "clock64()"}

# (opcode, its operands, what it becomes).
#
# Operands: d a result, D results in braces (or one without); a a value of the instruction's type or
# of the one behind the colon, A such values in braces, W
# values that may be wider; i an integer; s and g an address in shared
# and in global memory, @ one of either; _ a result that nobody wants; ? may be
# missing. Braces hold as many as the digit says, or as the opcode's .v2, .v4, .x1, .x2 or .x4.
#
# p is a predicate that is a result, q one that is read.
#
# {0}, {1}, ... are the operands' texts in order, those in braces one by one, {all} all of them,
# {results} all but the {last}, {type} the C++ type. Where d stands first, the text is its value.
RULES = [
    (r"cp\.async\.c[ag]\.shared(::cta)?\.global(\.L2::(64|128|256)B)?", "s g i i?",
     PTX + "copy_async({all})"),
    (r"cp\.async\.commit_group", "", "::flash::cp_async_commit()"),
    (r"cp\.async\.wait_group", "i", "::flash::simt::wait_async_copies({0}, {here})"),
    (r"cp\.async\.wait_all", "",
     "(::flash::cp_async_commit(), {simt}wait_async_copies(0, {here}))"),
    (r"ldmatrix\.sync\.aligned\.(m8n8\.x[124]|x[124]\.m8n8)(\.trans)?\.shared(::cta)?\.b16", "D s",
     PTX + "ldmatrix({here}, {trans}, {all})"),
    (r"ldmatrix\.sync\.aligned\.(m8n8\.x[124]|x[124]\.m8n8)(\.trans)?\.b16", "D @",
     PTX + "ldmatrix({here}, {trans}, {all})"),
    (r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(b?f16)\.\1\.f32", "D4 A4:b32 A2:b32 A4:f32",
     PTX + "mma<{half}>({all})"),
    (r"bar(rier)?\.sync(\.aligned)?", "i i?", PTX + "barrier_sync({all})"),
    (r"bar(rier)?\.arrive(\.aligned)?", "i i", "::flash::named_barrier_arrive({all})"),
    (r"bar\.warp\.sync", "i", "__syncwarp({0})"),
    (r"membar\.cta|fence\.(acq_rel|sc)\.cta", "", "__threadfence_block()"),
    (r"membar\.gl|fence\.(acq_rel|sc)\.gpu", "", "__threadfence()"),
    (r"membar\.sys|fence\.(acq_rel|sc)\.sys", "", "__threadfence_system()"),
    (r"fence\.proxy\.async(\.shared::cta)?", "", "::flash::fence_proxy_async()"),
    (r"fence\.mbarrier_init\.release\.cluster", "", "::flash::fence_mbarrier_init()"),
    (r"mbarrier\.init\.shared(::cta)?\.b64", "s i", PTX + "mbarrier_init({all})"),
    (r"mbarrier\.arrive\.shared(::cta)?\.b64", "_ s", PTX + "mbarrier_arrive({all})"),
    (r"mbarrier\.arrive\.expect_tx\.shared(::cta)?\.b64", "_ s i",
     PTX + "mbarrier_expect_tx({all})"),
    (r"wgmma\.fence\.sync\.aligned", "", "::flash::wgmma_fence()"),
    (r"wgmma\.commit_group\.sync\.aligned", "", "::flash::wgmma_commit()"),
    (r"wgmma\.wait_group\.sync\.aligned", "i", "::flash::simt::wait_wgmma({0}, {here})"),
    (r"setmaxnreg\.inc\.sync\.aligned\.u32", "i", "::flash::take_registers<{0}>()"),
    (r"setmaxnreg\.dec\.sync\.aligned\.u32", "i", "::flash::give_registers<{0}>()"),
    (r"ex2\.approx(\.ftz)?\.f32", "d a", "::flash::fast_exp2({1})"),
    (r"lg2\.approx(\.ftz)?\.f32", "d a", "log2f({1})"),
    (r"rcp\.(approx|rn)(\.ftz)?\.f32", "d a", "1.0f / {1}"),
    (r"rsqrt\.approx(\.ftz)?\.f32", "d a", "rsqrtf({1})"),
    (r"sqrt\.(approx|rn)(\.ftz)?\.f32", "d a", "sqrtf({1})"),
    (r"(sin|cos)\.approx(\.ftz)?\.f32", "d a", "{first}f({1})"),
    (r"tanh\.approx\.f32", "d a", "tanhf({1})"),
    (r"(fma|mad)\.rn((\.ftz)?\.f32|\.f64)", "d a a a", "fma({1}, {2}, {3})"),
    (r"(add|sub|mul)(\.rn)?((\.ftz)?\.f32|\.f64)", "d a a", "{1} {op} {2}"),
    (r"(add|sub)\.[us](16|32|64)", "d a a", PTX + "wrapped<{type}>({1}, {2}, '{op}')"),
    (r"div\.(rn|approx|full)(\.ftz)?\.f32|div\.rn\.f64|div\.[us](32|64)", "d a a", "{1} / {2}"),
    (r"rem\.[us](32|64)", "d a a", "{1} % {2}"),
    (r"mul\.lo\.[us](16|32|64)", "d a a", PTX + "wrapped<{type}>({1}, {2}, '*')"),
    (r"mul\.hi\.[us](32|64)", "d a a", PTX + "high_product<{type}>({1}, {2})"),
    (r"mul\.wide\.[us](16|32)", "d a a", PTX + "wide_product<{type}>({1}, {2})"),
    (r"mad\.lo\.[us](16|32|64)", "d a a a",
     PTX + "wrapped<{type}>(" + PTX + "wrapped<{type}>({1}, {2}, '*'), {3}, '+')"),
    (r"mad\.hi\.[us](32|64)", "d a a a",
     PTX + "wrapped<{type}>(" + PTX + "high_product<{type}>({1}, {2}), {3}, '+')"),
    *[(rf"mad\.wide\.{kind}{bits}", f"d a a a:{kind}{2 * bits}",
       PTX + "wide_product<{type}>({1}, {2}) + {3}") for kind in "us" for bits in (16, 32)],
    (r"(min|max)(\.ftz)?\.f32|(min|max)\.f64", "d a a", "f{first}({1}, {2})"),
    (r"(min|max)\.[us](16|32|64)", "d a a", "std::{first}<{type}>({1}, {2})"),
    (r"abs(\.ftz)?\.f32|abs\.f64", "d a", "fabs({1})"),
    (r"abs\.s(32|64)", "d a", "std::abs({1})"),
    (r"neg(\.ftz)?\.f32|neg\.f64|neg\.s(32|64)", "d a", "-{1}"),
    (r"(and|or|xor)\.b(16|32|64)", "d a a", "static_cast<{type}>({1} {op} {2})"),
    (r"not\.b(16|32|64)", "d a", "static_cast<{type}>(~{1})"),
    (r"(and|or|xor)\.pred", "p q q", "{0} = {1} {op} {2}"),
    (r"not\.pred", "p q", "{0} = !{1}"),
    (r"(shl\.b|shr\.[usb])(16|32|64)", "d a a:u32", PTX + "shifted_{first}<{type}>({1}, {2})"),
    (r"shf\.([lr])\.(wrap|clamp)\.b32", "d a a a", PTX + "funnel_{opcode}({1}, {2}, {3})"),
    (r"bfe\.[us](32|64)", "d a a:u32 a:u32", PTX + "field<{type}>({1}, {2}, {3})"),
    (r"bfi\.b(32|64)", "d a a a:u32 a:u32", PTX + "with_field<{type}>({1}, {2}, {3}, {4})"),
    (r"prmt\.b32", "d a a a", "__byte_perm({1}, {2}, {3})"),
    (r"lop3\.b32", "d a a a i", PTX + "of_three({1}, {2}, {3}, {4})"),
    (r"popc\.b(32|64)", "d a", "__builtin_popcountll({1})"),
    (r"clz\.b32", "d a", "__clz({1})"),
    (r"clz\.b64", "d a", "__clzll({1})"),
    (r"brev\.b32", "d a", "__brev({1})"),
    (r"brev\.b64", "d a", "__brevll({1})"),
    (r"selp\.([usb](16|32|64)|f32|f64)", "d a a q", "{3} ? {1} : {2}"),
    (r"vote\.sync\.ballot\.b32", "d q i", "__ballot_sync({2}, {1})"),
    (r"activemask\.b32", "d", "__activemask()"),
    (r"redux\.sync\.(add|min|max|and|or|xor)\.[usb]32", "d a i",
     "__reduce_{second}_sync({2}, {1})"),
    (r"nanosleep\.u32", "i", "__nanosleep({0})"),
    (r"trap", "", "__trap()"),
    (r"cvta\.to\.global\.u64|cvta\.global\.u64", "d a", "{1}"),
    (r"cvta\.to\.shared\.u64", "d a",
     "__cvta_generic_to_shared(reinterpret_cast<const void*>({1}))"),
    (r"cvta\.shared\.u64", "d a", "reinterpret_cast<uint64_t>(" + PTX + "shared_at({1}, 0))"),
    (r"mbarrier\.arrive(\.release\.cta)?\.shared(::cta)?\.b64", "d s",
     PTX + "mbarrier_arrive({1})"),
    (r"mbarrier\.arrive\.expect_tx(\.release\.cta)?\.shared(::cta)?\.b64", "d s i",
     PTX + "mbarrier_expect_tx({1}, {2})"),
    # These wait where a GPU says "not yet", and a loop asks again.
    (r"mbarrier\.(test|try)_wait(\.parity)?(\.(acquire|relaxed)\.cta)?\.shared(::cta)?\.b64",
     "p s i i?", "{0} = (" + PTX + "mbarrier_wait({1}, {2}), true)"),
    (r"mbarrier\.inval\.shared(::cta)?\.b64", "s", "void()"),
    (r"ld\.global(\.(nc|ca|cg|cs|lu|L1::\w+|L2::(64|128|256)B))*(\.v[24])?\.([usb](8|16|32|64)|f32|f64)",
     "D g", PTX + "load<{type}>({last}, {results})"),
    (r"ld\.shared(::cta)?(\.v[24])?\.([usb](8|16|32|64)|f32|f64)", "D s",
     PTX + "load<{type}>({last}, {results})"),
    (r"st\.global(\.(wb|cg|cs|wt|L1::\w+))*(\.v[24])?\.([usb](8|16|32|64)|f32|f64)", "g W",
     PTX + "store<{type}>({all})"),
    (r"st\.shared(::cta)?(\.v[24])?\.([usb](8|16|32|64)|f32|f64)", "s W",
     PTX + "store<{type}>({all})"),
    (r"griddepcontrol\.(wait|launch_dependents)", "", "void()"),
    (r"prefetchu?(\.global)?\.L[12](::evict_\w+)?|prefetch(\.\w+)?\.tensormap", "@", "void()"),
]  # fmt: skip
SPACES = {"s": "shared_at", "g": "global_at", "@": "at"}
SCOPE = "::flash::simt::Scope::"
WHOLE_WARP = ("31", "0x1f", "0x1F")
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
KIND = r"[usb](?:16|32|64)|f32|f64"
# What has an order of its own, of all threads of a scope; an atomic operation is relaxed.
ORDERED = re.compile(
    r"(ld|st|atom|red)((?:\.(?:acquire|release|relaxed|acq_rel|volatile|cta|gpu|sys|global|shared"
    rf"(?:::cta)?))*)(?:\.(add|min|max|and|or|xor|exch|inc|dec|cas))?\.({KIND})"
)
ORDERS = {
    "ld": ("acquire", "relaxed", "volatile"),
    "st": ("release", "relaxed", "volatile"),
    "atom": ("acquire", "release", "relaxed", "acq_rel"),
    "red": ("release", "relaxed"),
}
SCOPES = {"cta": "block", "gpu": "device", "sys": "system"}
SETP = re.compile(
    r"setp\.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan)"
    rf"(?:\.(and|or|xor))?(\.ftz)?\.({KIND})"
)
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
# Those that a NaN fulfils are what the opposite is not.
OPPOSITE = {"lt": ">=", "le": ">", "gt": "<=", "ge": "<"}
CVT = re.compile(
    r"cvt((?:\.(?:rn|rna|rni|rzi|rmi|rpi|ftz))*)\.([us](?:8|16|32|64)|b?f16(?:x2)?|tf32|f32|f64)"
    r"\.([us](?:8|16|32|64)|b?f16|f32|f64)"
)
TO_INTEGER = {"rni": "nearbyint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
HALVES = {"f16": "::flash::Half", "bf16": "::flash::Bfloat16"}
SHFL = re.compile(r"shfl\.sync\.(up|down|bfly|idx)\.b32")
SHUFFLES = {"up": "__shfl_up_sync", "down": "__shfl_down_sync"}
SHUFFLES |= {"bfly": "__shfl_xor_sync", "idx": "__shfl_sync"}
MOV = re.compile(r"mov(\.v[24])?\.([usb](?:16|32|64)|f32|f64|b128)")
INTEGER = re.compile(r"(-?(?:0[xX][\da-fA-F]+|0[bB][01]+|\d+))U?")
DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?")
BITS = {"f": re.compile(r"0[fF]([\da-fA-F]{8})"), "d": re.compile(r"0[dD]([\da-fA-F]{16})")}


class NoTwin(Exception):
    """Why a statement of inline PTX is not supported."""


@dataclass(frozen=True)
class Operand:
    """What stands between ( and ) behind a constraint."""

    constraint: str  # "=r"
    value: str  # its text


# A brace, a label, or all up to a semicolon.
PIECE = re.compile(r"\s*(?:([{}])|([A-Za-z_$][\w$]*)\s*:(?!:)|([^;]+?)\s*(?:;|$))")
REGISTERS = re.compile(r"\.reg\s+\.(pred|[usbf]\d+)\s+(.+)")
JUMP = re.compile(r"bra(?:\.uni)?")


@dataclass
class Body:
    """What a statement consists of."""

    instructions: list[str]
    registers: dict[str, str]  # of its own: {name: type}
    labels: list[str]


def taken_apart(text: str) -> Body:
    """A text of PTX, without comments and braces around instructions. A label is an instruction
    that ends with a colon."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).replace("%=", "").rstrip()
    body = Body([], {}, [])
    for _, label, instruction in PIECE.findall(text):
        instruction = " ".join(instruction.split())
        if label:
            body.labels.append(label)
            body.instructions.append(f"{label}:")
        elif declared := REGISTERS.fullmatch(instruction):
            for name in operands(declared[2].replace("%%", "%")):
                declare(body, name, declared[1])
        elif instruction:
            body.instructions.append(instruction)
    return body


def declare(body: Body, name: str, kind: str) -> None:
    found = re.fullmatch(r"(%?[A-Za-z_$][\w$]*)(?:<(\d+)>)?", name)
    if not found or (kind != "pred" and kind not in TYPES):
        raise NoTwin(f"inline PTX with the register {name} of the type {kind}; write it in CUDA")
    for one in [found[1] + str(i) for i in range(int(found[2]))] if found[2] else [found[1]]:
        if body.registers.setdefault(one, kind) != kind:
            raise NoTwin(f"inline PTX with two registers {one}; give them two names")


def identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def operands(text: str) -> list[str]:
    """Those of an instruction, brackets and braces whole."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [one.strip() for one in found if one.strip()]


def width(kind: str) -> int:
    """How many bits one of PTX's types has."""
    return int(kind[1:])


def not_understood(operand: str) -> NoTwin:
    return NoTwin(f"inline PTX with the operand {operand}; write it in CUDA")


class Instruction:
    """One instruction of PTX, and the operands of the statement around it."""

    def __init__(self, text: str, given: list[Operand], body: Body) -> None:
        guard = re.fullmatch(r"@(!?) ?(\S+) (.*)", text)
        self.given, self.body = given, body
        self.guard = f"if ({guard[1]}{self.predicate(guard[2])}) " if guard else ""
        instruction = str(guard[3]) if guard else text
        self.opcode, _, rest = instruction.partition(" ")
        self.written = operands(rest)

    def own(self, operand: str) -> str | None:
        """The type of a register of the statement's own."""
        return self.body.registers.get(operand.replace("%%", "%"))

    def predicate(self, operand: str) -> str:
        if self.own(operand) != "pred":
            raise not_understood(operand)
        return self.name(operand)

    def number(self, operand: str) -> int:
        """Of a register of the statement: 2 for %2."""
        found = re.fullmatch(r"%(\d+)", operand)
        if not found or int(found[1]) >= len(self.given):
            raise not_understood(operand)
        return int(found[1])

    def name(self, operand: str) -> str:
        if self.own(operand):
            return f"ptx_of_{identifier(operand.replace('%', ''))}"
        return f"ptx_{self.number(operand)}"

    def result(self, operand: str) -> str:
        if operand == "_":
            return f"{PTX}Sink()"
        if self.own(operand):
            return self.name(operand)
        if self.given[self.number(operand)].constraint[0] not in "=+":
            raise NoTwin(f"inline PTX that writes to its input {operand}; make it a result")
        return self.name(operand)

    def value(self, operand: str, kind: str) -> str:
        """An operand of a type of PTX's."""
        if name := self.register(operand):
            return f"{PTX}bits<{TYPES[kind]}>({name})"
        return literal(operand, kind)

    def register(self, operand: str) -> str:
        """Its name, where an operand is one of the statement's."""
        is_one = self.own(operand) or re.fullmatch(r"%\d+", operand)
        return self.name(operand) if is_one else ""

    def integer(self, operand: str) -> str:
        """A count, a size or a mask."""
        if found := INTEGER.fullmatch(operand):
            return found[1]
        return self.name(operand)

    def address(self, operand: str, space: str) -> str:
        if not (operand.startswith("[") and operand.endswith("]")):
            raise not_understood(operand)
        base, _, offset = operand[1:-1].replace(" ", "").partition("+")
        return f"{PTX}{space}({self.name(base)}, {self.integer(offset) if offset else 0})"

    def parts(self, operand: str) -> list[str]:
        if operand.startswith("{") and operand.endswith("}"):
            return operands(operand[1:-1])
        return [operand]

    def vector(self) -> int:
        """How many numbers the opcode asks for."""
        found = re.search(r"\.[vx](\d)", self.opcode)
        return int(found[1]) if found else 1

    def texts(self, shape: str) -> list[str] | None:
        """The operands as C++ has them; None where they are others than these."""
        shapes = shape.split()
        needed = sum(not one.endswith("?") for one in shapes)
        if not needed <= len(self.written) <= len(shapes):
            return None
        found = []
        for one, operand in zip(shapes, self.written, strict=False):
            letter = one[0]
            _, _, kind = one.partition(":")
            kind = kind or self.opcode.rpartition(".")[2]
            if letter in "DAW":
                parts = self.parts(operand)
                in_braces = operand.startswith("{")
                count = int(one[1]) if one[1:2].isdigit() else self.vector()
                if len(parts) != count or in_braces != (count > 1 or ".x1" in self.opcode):
                    return None
                if letter == "D":
                    found += [self.result(part) for part in parts]
                elif letter == "W":
                    found += [self.register(part) or literal(part, kind) for part in parts]
                else:
                    found += [self.value(part, kind) for part in parts]
            elif letter == "d":
                found.append(self.result(operand))
            elif letter == "a":
                found.append(self.value(operand, kind))
            elif letter == "p":
                found.append(self.predicate(operand))
            elif letter == "q":
                found.append(self.condition(operand))
            elif letter == "i":
                found.append(self.integer(operand))
            elif letter in SPACES:
                found.append(self.address(operand, SPACES[letter]))
            elif operand != "_":  # all others stand for a result that nobody wants
                return None
        return found

    def mov(self, kind: str) -> str | None:
        """A copy; also of several registers into one as wide as all of them, and back."""
        if len(self.written) != 2:
            return None
        to, of = (self.parts(one) for one in self.written)
        if self.vector() > 1 or (len(to) > 1 and len(of) > 1):
            if not len(to) == len(of) == self.vector():
                return None
            results = ", ".join(self.result(one) for one in to)
            values = ", ".join(self.value(one, kind) for one in of)
            return f"{PTX}set_each<{TYPES[kind]}>({{{values}}}, {results})"
        count = max(len(to), len(of))
        if count == 1:
            if any("{" in one for one in self.written):
                return None
            of_ours = not self.own(of[0]) and special(of[0], kind)
            value = of_ours or self.value(of[0], kind)
            return f"{PTX}set({self.result(to[0])}, {value})"
        part = f"b{width(kind) // count}"
        if kind[0] != "b" or part not in TYPES:
            return None
        if len(of) > 1:
            values = ", ".join(self.value(one, part) for one in of)
            return f"{PTX}set({self.result(to[0])}, {PTX}pack<{TYPES[kind]}>({values}))"
        results = ", ".join(self.result(one) for one in to)
        return f"{PTX}unpack<{TYPES[part]}>({self.value(of[0], kind)}, {results})"

    def ordered(self, what: str, words: str, operation: str | None, kind: str) -> str | None:
        """Accesses that order others, and atomic ones. An access that is relaxed, or has a scope,
        is an atomic one here; a fence before or behind it makes it release or acquire."""
        said = words.split(".")[1:]
        orders = [word for word in said if word in ORDERS[what]]
        scopes = [word for word in said if word in SCOPES]
        spaces = [word for word in said if word.startswith(("global", "shared"))]
        is_atomic = what in ("atom", "red")
        if len(said) != len(orders + scopes + spaces) or is_atomic != bool(operation):
            return None
        if max(map(len, (orders, scopes, spaces))) > 1 or not (is_atomic or orders):
            return None
        values = {"ld": 0, "st": 1}.get(what, 2 if operation == "cas" else 1)
        has_result = what in ("ld", "atom")
        if len(self.written) != has_result + 1 + values:
            return None
        space = {"g": "global_at", "s": "shared_at"}[spaces[0][0]] if spaces else "at"
        place = self.address(self.written[has_result], space)
        given = [self.value(one, kind) for one in self.written[has_result + 1 :]]
        order, scope = (orders or ["relaxed"])[0], SCOPES[(scopes or ["gpu"])[0]]
        if order == "volatile":
            if what == "st":
                return f"{PTX}store_volatile<{TYPES[kind]}>({place}, {given[0]})"
            return f"{PTX}load_volatile<{TYPES[kind]}>({place}, {self.result(self.written[0])})"
        if what == "ld":
            work = f"{PTX}strong_load<{TYPES[kind]}>({place}, {SCOPE}{scope})"
        else:
            name = {"exch": "Exch", "cas": "CAS"}.get(operation or "exch") or str(operation).title()
            of_scope = "" if scope == "device" else f"_{scope}"
            arguments = ", ".join([f"reinterpret_cast<{TYPES[kind]}*>({place})", *given])
            work = f"atomic{name}{of_scope}({arguments})"
        text = f"{PTX}ordered<{PTX}Order::{order}, {SCOPE}{scope}>([&] {{ return {work}; }})"
        return f"{PTX}set_loaded({self.result(self.written[0])}, {text})" if has_result else text

    def compare(self, how: str, join: str | None, ftz: str | None, kind: str) -> str | None:
        """What sets a predicate, and another one to the opposite."""
        if len(self.written) != 3 + bool(join) or (kind[0] != "f" and how not in COMPARISONS):
            return None
        results = [self.predicate(one.strip()) for one in self.written[0].split("|")]
        a, b = (self.value(one, kind) for one in self.written[1:3])
        if ftz:
            a, b = f"{PTX}flushed({a})", f"{PTX}flushed({b})"
        differs = f"({a} < {b} || {a} > {b})"
        if how in ("num", "nan"):
            text = f"{'!' * (how == 'num')}std::isunordered({a}, {b})"
        elif kind[0] == "f" and how in ("ne", "equ"):
            text = f"{'!' * (how == 'equ')}{differs}"
        elif how in COMPARISONS or how == "neu":
            text = f"({a} {COMPARISONS.get(how, '!=')} {b})"
        else:
            text = f"!({a} {OPPOSITE[how[:2]]} {b})"
        if join:
            text = f"({text} {OPERATORS[join]} {self.condition(self.written[3])})"
        second = f", {results[1]} = !{results[0]}" if len(results) > 1 else ""
        return f"{results[0]} = {text}{second}"

    def condition(self, operand: str) -> str:
        is_not = operand.startswith("!")
        return "!" * is_not + self.predicate(operand.removeprefix("!").strip())

    def convert(self, words: str, to: str, of: str) -> str | None:
        how = [word for word in words.split(".")[1:] if word != "ftz"]
        pair = to.endswith("x2")
        if len(self.written) != 2 + pair or len(how) > 1:
            return None
        rounding = how[0] if how else ""
        kinds = {"f16": "b16", "bf16": "b16"}
        of_registers = [
            f"{PTX}extended<{TYPES[of]}>({self.name(one)})"
            if self.register(one) and of[0] in "us"
            else self.value(one, kinds.get(of, of))
            for one in self.written[1:]
        ]
        value = of_registers[0]
        is_from_integer, is_to_integer = of[0] in "us", to[0] in "us"
        if pair and of == "f32" and rounding == "rn":
            text = f"::flash::pack<{HALVES[to[:-2]]}>({of_registers[1]}, {value})"
        elif is_from_integer and is_to_integer and not rounding:
            text = f"static_cast<{TYPES[to]}>({value})"
        elif is_to_integer and of in ("f32", "f64") and rounding in TO_INTEGER:
            text = f"{PTX}to_integer<{TYPES[to]}>({TO_INTEGER[rounding]}({value}))"
        elif (is_from_integer, to, rounding) in ((True, "f32", "rn"), (True, "f64", "rn")) or (
            (of, to, rounding) in (("f32", "f64", ""), ("f64", "f32", "rn"))
        ):
            text = f"static_cast<{TYPES[to]}>({value})"
        elif of == "f32" and to in HALVES and rounding == "rn":
            text = f"::flash::from_float<{HALVES[to]}>({value}).bits"
        elif of in HALVES and to == "f32" and not rounding:
            text = f"::flash::to_float({HALVES[of]}{{{value}}})"
        elif (of, to, rounding) == ("f32", "tf32", "rna"):
            text = f"{PTX}rounded_to_tf32({value})"
        else:
            return None
        return f"{PTX}set_loaded({self.result(self.written[0])}, {text})"

    def shuffle(self, how: str) -> str | None:
        """Of a whole warp: the operand that cuts it into parts is that which does not."""
        if len(self.written) != 5 or self.written[3] not in (["0"] if how == "up" else WHOLE_WARP):
            return None
        result, value, lane, _, mask = self.written
        call = f"{SHUFFLES[how]}({self.integer(mask)}, {self.value(value, 'b32')}"
        return f"{PTX}set({self.result(result)}, {call}, {self.integer(lane)}))"

    def elect(self) -> str | None:
        """One lane of the mask, the first."""
        if len(self.written) != 2 or not self.written[0].startswith("_|"):
            return None
        elected = self.predicate(self.written[0][2:].strip())
        mask = self.integer(self.written[1])
        return f"{elected} = (__syncwarp({mask}), {PTX}lane() + 1 == unsigned(__ffs({mask})))"

    def by_itself(self) -> tuple[bool, str | None]:
        """Whether it is one with more to it than RULES say, and what it becomes."""
        if JUMP.fullmatch(self.opcode) and len(self.written) == 1:
            label = self.written[0]
            return True, f"goto {identifier(label)}" if label in self.body.labels else None
        if self.opcode == "elect.sync":
            return True, self.elect()
        if found := MOV.fullmatch(self.opcode):
            return True, self.mov(found[2])
        for pattern, method in (
            (ORDERED, self.ordered),
            (SETP, self.compare),
            (CVT, self.convert),
            (SHFL, self.shuffle),
        ):
            if found := pattern.fullmatch(self.opcode):
                return True, method(*found.groups())
        return False, None

    def to_cpp(self) -> str:
        """A call, an assignment to a result, or a jump; perhaps under a condition."""
        if self.opcode.endswith(":"):
            return identifier(self.opcode[:-1]) + ":"
        return self.guard + self.meaning()

    def meaning(self) -> str:
        found, text = self.by_itself()
        if text:
            return text
        rules = [rule for rule in RULES if re.fullmatch(rule[0], self.opcode)]
        for _, shape, meaning in rules:
            texts = self.texts(shape)
            if texts is not None:
                return self.filled_in(shape, meaning, texts)
        if rules or found:
            raise NoTwin(
                f"the PTX instruction {self.opcode} with the operands {', '.join(self.written)}; "
                "write it in CUDA, or use one of common/cuda/ptx"
            )
        raise NoTwin(
            f"the PTX instruction {self.opcode}; write it in CUDA, or use one of common/cuda/ptx"
        )

    def filled_in(self, shape: str, meaning: str, texts: list[str]) -> str:
        first, last = self.opcode.partition(".")[0], self.opcode.rpartition(".")[2]
        second = self.opcode.split(".")[2] if self.opcode.count(".") > 1 else ""
        flushes = ".ftz" in self.opcode
        if flushes:
            texts = [texts[0]] + [f"{PTX}flushed({text})" for text in texts[1:]]
        text = meaning.format(
            *texts,
            all=", ".join(texts),
            last=texts[-1] if texts else "",
            results=", ".join(texts[:-1]),
            type=TYPES.get(last),
            op=OPERATORS.get(first),
            first=first,
            second=second,
            opcode=re.sub(r"\W", "_", self.opcode),
            simt="::flash::simt::",
            here="::flash::simt::SourceLocation::here()",
            trans="true" if ".trans" in self.opcode else "false",
            half="::flash::Bfloat16" if "bf16" in self.opcode else "::flash::Half",
        )
        if shape.startswith("d"):
            text = f"{PTX}flushed({text})" if flushes else text
            return f"{PTX}set({texts[0]}, {text})"
        return text


def literal(text: str, kind: str) -> str:
    """A number in PTX, as one of a type."""
    is_float = kind in ("f32", "f64")
    if (found := INTEGER.fullmatch(text)) and not is_float:
        return f"static_cast<{TYPES[kind]}>({found[1]})"
    if DECIMAL.fullmatch(text) and is_float:
        return f"static_cast<{TYPES[kind]}>({text})"
    if (found := BITS["f"].fullmatch(text)) and kind in ("f32", "b32"):
        return f"{PTX}bits<{TYPES[kind]}>(0x{found[1]}u)"
    if (found := BITS["d"].fullmatch(text)) and kind in ("f64", "b64"):
        return f"{PTX}bits<{TYPES[kind]}>(0x{found[1]}ull)"
    raise not_understood(text)


def special(operand: str, kind: str) -> str | None:
    """A special register, where the operand is one that a mov of this type takes."""
    found = re.fullmatch(r"%%?([a-z_]\w*(?:\.[xyz])?)", operand)
    if not found:
        return None
    of_32, of_64 = SPECIAL.get(found[1]), SPECIAL_64.get(found[1])
    if kind[0] == "f" or (of_32 is None and of_64 is None):
        raise not_understood(operand)
    if (of_64 is not None) != (width(kind) == 64):
        raise NoTwin(f"a mov of {width(kind)} bits of the register {operand}, which has others")
    return f"static_cast<{TYPES[kind]}>({of_32 or of_64})"


def to_cpp(text: str, given: list[Operand], is_barrier: bool = False) -> str:
    """What a statement of inline PTX with these operands is in C++. Each operand is evaluated
    once, before the instruction; what `is_barrier` stays where it is among accesses to memory."""
    for one in given:
        if one.constraint.lstrip("=+") not in CONSTRAINTS:
            raise NoTwin(f'inline PTX with the constraint "{one.constraint}"; write it in CUDA')
    body = taken_apart(text)
    done = [Instruction(one, given, body).to_cpp() for one in body.instructions]
    names = [f"ptx_of_{identifier(name.replace('%', ''))}" for name in body.registers]
    kinds_of = ["bool" if kind == "pred" else TYPES[kind] for kind in body.registers.values()]
    declared = [f"__label__ {identifier(label)}" for label in body.labels]
    own = [f"{kind} {name}{{}}" for kind, name in zip(kinds_of, names)]
    fence = ['__asm__ __volatile__("" ::: "memory")'] if is_barrier else []
    bound = []
    for number, one in enumerate(given):
        kinds = {"n": "constexpr auto ", "=": "auto &&", "+": "auto &&"}
        bound.append(f"{kinds.get(one.constraint[0], 'const auto ')}ptx_{number} = ({one.value})")
    statements = [*declared, *bound, *own, *fence, *done, *(fence if done else [])]
    if len(statements) < 2:
        return "".join(statements) or "void()"
    return "({ " + "; ".join(statements) + "; })"


def text_of(node: Node) -> str:
    """What a node with one or several strings says."""
    said = []
    for child in node.children if node.type == "concatenated_string" else [node]:
        if child.type == "string_literal":
            for one in child.named_children:
                piece = one.text.decode(errors="replace")
                said.append(ESCAPES.get(piece, piece))
        elif child.type == "raw_string_literal":
            said += [
                one.text.decode(errors="replace")
                for one in child.named_children
                if one.type == "raw_string_content"
            ]
        elif child.type != "comment" and not child.text.strip().startswith(b"\\"):
            macro = child.text.decode(errors="replace")
            raise NoTwin(f"inline PTX of which the macro {macro} writes a part; write it out")
    return "".join(said)


ESCAPES = {r"\n": "\n", r"\t": " ", r"\r": " "}
STRINGS = ("string_literal", "raw_string_literal", "concatenated_string")


def translate(node: Node, render: Callable[[int, int], bytes]) -> bytes:
    """What takes the place of an asm statement; `render` gives the text of its expressions."""
    strings = [child for child in node.children if child.type in STRINGS]
    if not strings:
        raise NoTwin("inline PTX of which a macro writes all; write it out")
    text = text_of(strings[0])
    given, clobbered, words = [], "", []
    for child in node.children:
        if child.type == "gnu_asm_qualifier":
            words += child.text.decode().split()
        elif child.type == "gnu_asm_clobber_list":
            clobbered = child.text.decode(errors="replace")
        elif child.type in ("gnu_asm_output_operand_list", "gnu_asm_input_operand_list"):
            for operand in child.named_children:
                if operand.type.endswith("operand"):
                    value = operand.child_by_field_name("value")
                    at = render(value.start_byte, value.end_byte).decode(errors="replace")
                    constraint = text_of(operand.child_by_field_name("constraint"))
                    value_text = " ".join(at.replace("\\\n", " ").split())
                    given.append(Operand(constraint.replace("&", ""), value_text))
        elif child.type == "gnu_asm_goto_list":
            raise NoTwin("inline PTX that jumps; write it in CUDA")
    is_barrier = '"memory"' in clobbered and ("volatile" in words or not text.strip())
    return to_cpp(text, given, is_barrier).encode()
