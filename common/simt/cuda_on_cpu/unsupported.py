"""What is not supported, and what to use in its place.

The compiler finds it, so code that is left out by the preprocessor is not spoken of.
"""

import os
import re
from pathlib import Path

from cuda_on_cpu import ROOT

POINTER = "read device memory through a pointer"
LIBRARY = "write a kernel for it, or compute it on the host"
# (what g++ does not know, what that is, what to use)
TABLE = [
    (
        r"cuda_fp[468]\.h(pp)?|__nv_fp[468]\w*|__nv_cvt_\w*fp[468]\w*|__NV_(E\dM\d|SATFINITE|NOSAT)",
        "fp8 and smaller",
        "use __half or __nv_bfloat16",
    ),
    (
        r"(surface|texture)\w*_(functions|types|indirect_functions)\.h|texture_fetch_functions\.h",
        "textures",
        POINTER,
    ),
    (
        r"cuda_awbarrier\w*\.h|__mbarrier\w*|nvcuda|experimental|__pipeline_arrive_on",
        "this part of CUDA's barriers and pipelines",
        "use __pipeline_memcpy_async, or __syncthreads and plain loads",
    ),
    (
        r"(sm_\d+\w*|device_double|channel_descriptor|library_types|driver_functions|crt/\w+)\w*\.h(pp)?",
        "this header of CUDA",
        "include cuda_runtime.h",
    ),
    (r"tex[123]D\w*|texture\w*|cuda\w*Texture\w*", "textures", POINTER),
    (r"surf\w*|cuda\w*Surface\w*", "surfaces", POINTER),
    (
        r"cuda\w*Array\w*|cudaChannelFormat\w*|cudaExtent|make_cuda\w*|cudaPitchedPtr"
        r"|cudaMemcpy3D\w*|cudaMalloc3D\w*",
        "CUDA arrays",
        POINTER,
    ),
    (r"thrust(/.*)?|thrust::.*", "this part of Thrust", "use a kernel, or the host"),
    (r"cub(/.*)?", "CUB", "use a kernel; block_sum.cu of docs/examples reduces"),
    (r"curand\w*(\.h)?|CURAND_\w+", "this part of cuRAND", "use a pseudo-random generator of it"),
    (r"cufft\w*(\.h)?", "cuFFT", LIBRARY),
    (r"cusparse\w*(\.h)?", "cuSPARSE", LIBRARY),
    (r"cusolver\w*(\.h)?", "cuSOLVER", LIBRARY),
    (r"cudnn\w*(\.h)?", "cuDNN", LIBRARY),
    (r"cublas\w*(\.h)?", "this part of cuBLAS", "use its gemm, or a kernel"),
    (r"npp\w*(\.h)?|nppi?[A-Z]\w*", "NPP", LIBRARY),
    (r"nvjpeg\w*(\.h)?", "nvJPEG", LIBRARY),
    (r"nccl\w*(\.h)?|mpi\.h|MPI_\w+|nvshmem\w*(\.h)?", "several GPUs", "use one"),
    (r"(cutlass|cute)(/.*)?", "CUTLASS", "write the kernel with mma.sync or WMMA"),
    (r"nvrtc\w*(\.h)?", "compiling at run time", "compile the kernel with the program"),
    (
        r"nvml\w*(\.h)?|nvtx3?(/.*)?|nvToolsExt\w*\.h|cuda_profiler_api\.h|cupti\w*(\.h)?|cudaProfiler\w*",
        "NVIDIA's tools",
        "leave them out",
    ),
    (
        r"cuda\.h|cudaTypedefs\.h|cu[A-Z]\w+|CU[a-z]\w+|CUDA_(ERROR|SUCCESS)\w*",
        "the driver API",
        "use the runtime's functions (cuda_runtime.h)",
    ),
    (r"cuda/pipeline|pipeline", "cuda::pipeline", "use __pipeline_memcpy_async or plain loads"),
    (r"cuda(/.*)?|cuda::.*", "this part of libcu++", "use CUDA's own functions"),
    (r"cudaGraph\w*|cudaStream\w*Capture\w*", "this part of CUDA graphs", "capture a stream"),
    (r"cudaIpc\w*|cudaMemPool\w*|cudaExternal\w*", "this kind of memory", "use cudaMalloc"),
    (
        r"cudaGraphics\w*|cudaGL\w*|G[Ll]\w*(/.*)?|gl(ut)?[A-Z]\w*|cuda_gl_interop\.h|vulkan(/.*)?|EGL(/.*)?"
        r"|helper_gl\.h|cuda\w*interop\.h|nvscibuf\.h",
        "graphics",
        "leave it out",
    ),
    (r"omp\.h|omp_\w+", "OpenMP beside CUDA", "use one host thread"),
    (r"__cluster\w*|cluster_group|this_cluster", "thread block clusters", "use blocks"),
    (
        r"cooperative_groups(/.*)?",
        "this part of cooperative groups",
        "use __syncthreads and shuffles",
    ),
    (
        r"FreeImage\w*(\.h)?|opencv\w*(/.*)?|cv|torch(/.*)?|ATen(/.*)?|pybind11(/.*)?",
        "this library",
        "give the program a main that does without it",
    ),
    (r"cuda[A-Z]\w+", "{name}", "docs/simt_reference.md lists those that are"),
    (r"(__shfl(_up|_down|_xor)?|__any|__all|__ballot)", "{name}", "use {name}_sync"),
    (r"__\w+", "the intrinsic {name}", "docs/simt_reference.md lists those that are"),
]
ERROR = re.compile(
    r"^(?P<file>\S[^\n]*?):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<said>.*)$", re.M
)
PLACED = re.compile(
    r"(?P<file>\S[^\n]*?):\d+:(?:\d+:)? (?P<kind>fatal error|error|note|warning): (?P<said>.*)"
)
# What the rewritten text calls things, and its columns beyond the ends of lines as they were.
OUR_NAMES = (
    (re.compile(r"std::integral_constant<.*?> kernel_of_(?=\w+\()"), "void "),
    (re.compile(r"\bkernel_of_(?=\w+\()"), ""),
    (
        re.compile(r"no match for call to '\(flash::simt::Configured<(.*)>\) (\(.*\))'"),
        r"a kernel with the parameters (\1) is launched with \2",
    ),
)
CARET = re.compile(r" +\| +[~^]+ *")
OTHER = "CUDA's header {}; docs/simt_reference.md lists those that are"
OURS = f"{ROOT}/common/simt/"
ASSERTED = re.compile("static assertion failed: (.*)")
REQUIRED = re.compile(r"^(\S[^\n]*?:\d+):(?:\d+:)? +required from here$", re.M)
# Libraries whose names have nothing in common; and all that a computer may have beside CUDA.
WITH_ANY_NAMES = ("this library", "graphics", "CUTLASS")
APART = (*WITH_ANY_NAMES, "several GPUs", "OpenMP")
INCLUDED = re.compile(r"from (?P<file>\S.*?):(?P<line>\d+)(?::\d+)?[,:]$")


def without_ours(said: str) -> str:
    """What g++ says of a program, without what it adds about the files of this repository, and with
    the names that the reader gave."""
    for ours, theirs in OUR_NAMES:
        said = ours.sub(theirs, said)
    kept, errors, is_ours, is_again = [""], set(), False, False
    for line in said.splitlines():
        if found := PLACED.match(line):
            if found["kind"] != "note":
                is_again = line in errors
                errors.add(line)
            is_ours = found["kind"] == "note" and found["file"].startswith(OURS)
            if is_ours and not found["said"].startswith(("candidate:", "in ")):
                kept.append(f"  note: {found['said'].strip()}")
        elif INCLUDED.search(line) or "from <command-line>" in line:
            is_ours = f" {OURS}" in line or "<command-line>" in line
        elif not line.startswith((" ", "\t")):
            is_ours = is_again = False
        is_beyond = CARET.fullmatch(line) and len(line.rstrip()) > len(kept[-1]) + 1
        if not (is_ours or is_again or is_beyond):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept[1:]).replace(f"{os.getcwd()}/", "")


def header_of_cuda(said: str, error: re.Match[str]) -> tuple[str, str] | None:
    """(header, place that includes it), where an error stands in one of an installed CUDA Toolkit's
    that ours does not take the place of."""
    chain: list[re.Match[str]] = []  # of places that include, the innermost first
    for line in reversed(said[: error.start()].splitlines()):
        if not (found := INCLUDED.search(line)):
            break
        chain.insert(0, found)
    header = error["file"]
    for place in chain:
        if not is_of_toolkit(header):
            return None
        if not is_of_toolkit(place["file"]):
            return Path(header).name, f"{place['file']}:{place['line']}"
        header = place["file"]
    return None


def is_of_toolkit(file: str) -> bool:
    folder = Path(file).parent
    return (folder / "cuda_runtime.h").is_file() and not folder.is_relative_to(ROOT)


def explain(said: str, refused: dict[str, str], left_out: dict[str, str]) -> str | None:
    """The first error of g++ that is told in one line; None where all are the program's own.
    `left_out` are headers that are included, and where: what they declare is missing."""
    for error in ERROR.finditer(said):
        if found := header_of_cuda(said, error):
            return f"{found[1]}: not supported: {what_of(found[0]) or OTHER.format(found[0])}"
        asserted = error["file"].startswith(OURS) and ASSERTED.match(error["said"])
        begin = said.rfind("In instantiation", 0, error.start())
        if asserted and (user := REQUIRED.search(said, begin)):
            return f"{user[1]}: not supported: {asserted[1]}"
        place = f"{error['file']}:{error['line']}"
        names = re.findall(r"'([^']+)'", error["said"])
        if missing := re.match(r"(\S+): No such file", error["said"]):
            names = [missing[1]]
        for name in names:
            if name in refused:
                return f"{place}: not supported: {refused[name]}"
        if not re.search(
            r"not declared|not a member|does not name|No such file|no type named|"
            r"has not been declared|not a type|not a namespace|not a template|is not a class",
            error["said"],
        ):
            continue
        name = names[0] if names else ""
        for one in names:  # it, or that whose member it is
            if what := what_of(one):
                return f"{place}: not supported: {what}"
        for header, where in left_out.items():
            whose = what_of(header) or ""
            if whose.startswith(WITH_ANY_NAMES):
                return (
                    f"{place}: not supported: '{name}' is nowhere declared, and {header}, which "
                    f"{where} includes, belongs to {whose}"
                )
    return None


def what_of(name: str) -> str | None:
    """What that is, and what to use."""
    for pattern, what, instead in TABLE:
        if re.fullmatch(pattern, name):
            return f"{what}; {instead}".format(name=name)
    return None


def is_no_part_of_cuda(header: str) -> bool:
    return (what_of(header) or "").startswith(APART)
