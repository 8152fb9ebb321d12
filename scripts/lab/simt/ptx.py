"""Inline PTX: single instructions that have a twin in common/simt/instructions/inline_ptx.hpp."""

import re

PTX = "::flash::simt::ptx::"
# PTX's types as C++ has them.
UNSIGNED = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
SIGNED = {8: "signed char", 16: "short", 32: "int", 64: "long long"}
TYPES = {"f32": "float", "f64": "double"}
TYPES |= {f"{kind}{bits}": name for bits, name in UNSIGNED.items() for kind in "ub"}
TYPES |= {f"s{bits}": name for bits, name in SIGNED.items()}
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
    "clock64": "clock64()",
    "globaltimer": "clock64()",
}
PLACES = {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}
SPECIAL |= {f"{one}.{axis}": f"{name}.{axis}" for one, name in PLACES.items() for axis in "xyz"}
# (opcode, what it becomes). {0}, {1}, ... are operands, {all} all of them, {type} the last part.
RULES = [
    (r"cp\.async\.c[ag]\.shared(::cta)?\.global(\.L2::\w+)*", PTX + "copy_async({all})"),
    (r"cp\.async\.commit_group", "::flash::cp_async_commit()"),
    (r"cp\.async\.wait_group", "::flash::simt::wait_async_copies({0}, {here})"),
    (r"cp\.async\.wait_all", "(::flash::cp_async_commit(), {simt}wait_async_copies(0, {here}))"),
    (r"ldmatrix\.sync\.aligned\.(?=.*m8n8)[\w.:]*\.b16", PTX + "ldmatrix({here}, {trans}, {all})"),
    (r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(b?f16)\.\1\.f32", PTX + "mma<{half}>({all})"),
    (r"bar(rier)?\.sync(\.aligned)?", PTX + "barrier_sync({all})"),
    (r"bar(rier)?\.arrive(\.aligned)?", "::flash::named_barrier_arrive({all})"),
    (r"bar\.warp\.sync", "__syncwarp({0})"),
    (r"membar\.cta|fence\.(acq_rel|sc)\.cta", "__threadfence_block()"),
    (r"membar\.gl|fence\.(acq_rel|sc)\.gpu", "__threadfence()"),
    (r"membar\.sys|fence\.(acq_rel|sc)\.sys", "__threadfence_system()"),
    (r"fence\.proxy\.async(\.shared::cta)?", "::flash::fence_proxy_async()"),
    (r"fence\.mbarrier_init\.release\.cluster", "::flash::fence_mbarrier_init()"),
    (r"mbarrier\.init\.shared(::cta)?\.b64", PTX + "mbarrier_init({all})"),
    (r"mbarrier\.arrive\.shared(::cta)?\.b64", PTX + "mbarrier_arrive({all})"),
    (r"mbarrier\.arrive\.expect_tx\.shared(::cta)?\.b64", PTX + "mbarrier_expect_tx({all})"),
    (r"wgmma\.fence\.sync\.aligned", "::flash::wgmma_fence()"),
    (r"wgmma\.commit_group\.sync\.aligned", "::flash::wgmma_commit()"),
    (r"wgmma\.wait_group\.sync\.aligned", "::flash::simt::wait_wgmma({0}, {here})"),
    (r"setmaxnreg\.inc\.sync\.aligned\.u32", "::flash::take_registers<{0}>()"),
    (r"setmaxnreg\.dec\.sync\.aligned\.u32", "::flash::give_registers<{0}>()"),
    (r"ex2\.approx(\.ftz)?\.f32", "{0} = ::flash::fast_exp2({1})"),
    (r"lg2\.approx(\.ftz)?\.f32", "{0} = log2f({1})"),
    (r"rcp\.(approx|rn)(\.ftz)?\.f32", "{0} = 1.0f / {1}"),
    (r"rsqrt\.approx(\.ftz)?\.f32", "{0} = rsqrtf({1})"),
    (r"sqrt\.(approx|rn)(\.ftz)?\.f32", "{0} = sqrtf({1})"),
    (r"(sin|cos)\.approx(\.ftz)?\.f32", "{0} = {g1}f({1})"),
    (r"tanh\.approx\.f32", "{0} = tanhf({1})"),
    (r"fma\.rn(\.ftz)?\.f(32|64)", "{0} = fma({1}, {2}, {3})"),
    (r"(add|sub|mul)(\.rn)?(\.ftz)?\.f(32|64)", "{0} = {1} {op} {2}"),
    (r"(add|sub|and|or|xor)\.[usb](32|64)", "{0} = {1} {op} {2}"),
    (r"mov\.[usbf](32|64)", "{0} = {1}"),
    (
        r"ld\.global(\.(nc|ca|cg|cs|lu|L1::\w+|L2::\w+))*(\.v[24])?\.\w+",
        PTX + "load<{type}>({last}, {results})",
    ),
    (r"ld\.shared(\.v[24])?\.\w+", PTX + "load<{type}>({last}, {results})"),
    (r"st\.global(\.(wb|cg|cs|wt|L1::\w+))*(\.v[24])?\.\w+", PTX + "store<{type}>({all})"),
    (r"st\.shared(\.v[24])?\.\w+", PTX + "store<{type}>({all})"),
    (r"red(\.relaxed\.gpu)?\.global\.add\.(f32|u32|s32|u64)", PTX + "add<{type}>({all})"),
    (r"griddepcontrol\.\w+|prefetch\.[\w.]+|discard\.[\w.]+", "void()"),
]
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}


class NoTwin(Exception):
    """Why a statement of inline PTX is not supported."""


def instructions(text):
    """Those of a text of PTX, without comments and the braces around all."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return [" ".join(part.split()) for part in text.split(";") if part.strip()]


def operands(text):
    """Those of an instruction, brackets and braces whole."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [one.strip() for one in found if one.strip()]


def in_cpp(operand, values):
    """[an operand as C++ has it], several where it is a list in braces."""
    if operand.startswith("{"):
        return [one for part in operands(operand[1:-1]) for one in in_cpp(part, values)]
    if operand.startswith("["):
        base, _, offset = operand[1:-1].replace(" ", "").partition("+")
        (base,) = in_cpp(base, values)
        return [f"{PTX}at({base}, {in_cpp(offset, values)[0] if offset else 0})"]
    if operand == "_":
        return []
    if number := re.fullmatch(r"%(\d+)", operand):
        if int(number[1]) < len(values):
            return [values[int(number[1])]]
    elif register := re.fullmatch(r"%%?([a-z_]\w*(?:\.[xyz])?)", operand):
        if register[1] in SPECIAL:
            return [SPECIAL[register[1]]]
    elif re.fullmatch(r"-?\d+|-?0x[\da-fA-F]+|-?\d+\.\d+", operand):
        return [operand]
    elif single := re.fullmatch(r"0[fF]([\da-fA-F]{8})", operand):
        return [f"__uint_as_float(0x{single[1]}u)"]
    raise NoTwin(f"inline PTX with the operand {operand}; write it in CUDA")


def to_cpp(text, values):
    """What a statement of inline PTX with these operands is in C++."""
    found = instructions(text)
    if not found:
        return "void()"  # a barrier for the compiler
    if len(found) > 1:
        raise NoTwin(
            f"inline PTX of several instructions ({found[0]}; ...); write one asm statement for "
            "each, or use CUDA's own functions"
        )
    opcode, _, rest = found[0].partition(" ")
    for pattern, meaning in RULES:
        if re.fullmatch(pattern, opcode):
            given = [one for operand in operands(rest) for one in in_cpp(operand, values)]
            last = opcode.rpartition(".")[2]
            first = opcode.partition(".")[0]
            try:
                return meaning.format(
                    *given,
                    all=", ".join(given),
                    last=given[-1] if given else "",
                    results=", ".join(given[:-1]),
                    type=TYPES.get(last),
                    op=OPERATORS.get(first),
                    g1=first,
                    simt="::flash::simt::",
                    here="::flash::simt::SourceLocation::here()",
                    trans="true" if "trans" in opcode else "false",
                    half="::flash::Bfloat16" if "bf16" in opcode else "::flash::Half",
                )
            except IndexError:
                break
    raise NoTwin(f"the PTX instruction {opcode}; write it in CUDA, or use one of common/cuda/ptx")


def translate(node, render):
    """What takes the place of an asm statement; `render` gives the text of its expressions."""
    strings = [child for child in node.children if "string" in child.type]
    pieces = re.findall(r'"((?:\\.|[^"\\])*)"', strings[0].text.decode(errors="replace"))
    bare = re.sub(r'"(?:\\.|[^"\\])*"|\\|\s', "", strings[0].text.decode(errors="replace"))
    if bare:
        raise NoTwin(f"inline PTX of which the macro {bare} writes a part; write it out")
    text = "".join(pieces).replace(r"\n", "\n").replace(r"\t", " ").replace(r"\r", " ")
    values = []
    for child in node.children:
        if child.type in ("gnu_asm_output_operand_list", "gnu_asm_input_operand_list"):
            for operand in child.named_children:
                if operand.type.endswith("operand"):
                    value = operand.child_by_field_name("value")
                    at = render(value.start_byte, value.end_byte).decode(errors="replace")
                    values.append("(" + " ".join(at.replace("\\\n", " ").split()) + ")")
    return to_cpp(text, values).encode()
