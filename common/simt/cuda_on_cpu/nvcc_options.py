"""Options of nvcc, by their names in `nvcc --help`: a command line for nvcc is one for this, too.

Those that say which files and macros there are mean what they mean to nvcc. Those that say how to
compile mean nothing here: it is always C++20, for the one device that is emulated.
"""

import re
from collections.abc import Iterator

from cuda_on_cpu import SimtError

WITHOUT_VALUE = set(
    """
    allow-unsupported-compiler astoolspatch aug-hls augment-host-linker-script c compile
    compile-as-tools-patch dc debug device-c device-debug device-link device-w disable-warnings
    display-error-number dlink dlink-time-opt dlto dont-use-profile dw err-no ewp
    expt-extended-lambda expt-relaxed-constexpr extended-lambda extensible-whole-program
    extra-device-vectorization force-cl-env-setup forward-unknown-opts
    forward-unknown-to-host-compiler forward-unknown-to-host-linker g G gen-opt-lto
    generate-dependencies-with-compile generate-dependency-targets generate-line-info
    generate-nonsystem-dependencies-with-compile jobserver keep keep-device-functions lineinfo
    link lto m64 MD MMD MP no-align-double no-compress no-device-link no-display-error-number
    no-err-no no-host-device-initializer-list no-host-device-move-forward nodlink nohdinitlist
    no-exceptions noeh nohdmoveforward noprof objdir-as-tempdir objtemp pg qpp-config r
    relocatable-link relocatable-ptx reloc-ptx res-usage resource-usage restrict save-temps
    source-in-ptx src-in-ptx use-local-env use_fast_math v verbose w Wdefault-stream-launch
    Wext-lambda-captures-this Wmissing-launch-bounds Wno-deprecated-declarations
    Wno-deprecated-gpu-targets Wreorder
    """.split()
)
WITH_VALUE = set(
    """
    arbin arch archive-options archiver-binary brief-diag brief-diagnostics ccbin code
    compiler-bindir compress-mode cudadevrt cudart ddp default-stream dependency-drive-prefix
    dependency-output dependency-target-name device-entity-has-hidden-visibility
    device-stack-protector diag-error diag-suppress diag-warn dopt dp drive-prefix e entries
    fdevice-time-trace fmad frandom-seed ftemplate-backtrace-limit ftemplate-depth ftz gencode
    generate-code gpu-architecture gpu-code hls host-linker-script idp input-drive-prefix jtd
    jump-table-density keep-dir ldir libdevice-directory linker-options m machine maxrregcount MF
    MT nvlink-options o O odir Ofast-compile Ofc opt-info optimization-info optimize
    output-directory output-file prec-div prec-sqrt ptxas-options rdc relocatable-device-code
    sanitize split-compile split-compile-extended static-global-template-stub std t target-dir
    target-directory threads time Werror x Xarchive Xlinker Xnvlink Xptxas
    """.split()
)
# What our own options are called.
MEANT = {
    "define-macro": "-D",
    "include-path": "-I",
    "isystem": "-I",
    "system-include": "-I",
    "l": "-l",
    "library": "-l",
    "L": "-L",
    "library-path": "-L",
    "U": "-U",
    "undefine-macro": "-U",
    "include": "-include",
    "pre-include": "-include",
}
OF_THE_HOST = ("Xcompiler", "compiler-options")
ATTACHED = re.compile(r"-([lLU])(.+)|-([Ot])(\d+)")  # a value without a space
OUTPUT = "makes a file and no run; this makes none"
ARGUMENTS = "arguments of the program come behind --"
FROM_FILE = "options are taken from the command line alone"
REFUSED = {
    name: why
    for names, why in (
        ("cuda cubin fatbin ptx optix-ir ltoir preprocess E lib shared", OUTPUT),
        ("generate-dependencies M generate-nonsystem-dependencies MM dryrun", OUTPUT),
        ("fdevice-syntax-only clean clean-targets list-gpu-code code-ls", OUTPUT),
        ("list-gpu-arch arch-ls", OUTPUT),
        ("run-args", ARGUMENTS),
        ("options-file optf", FROM_FILE),
    )
    for name in names.split()
}
# Libraries that come with CUDA. What they declare is ours, or refused by name.
OF_CUDA = set(
    """
    cudart cudart_static cudadevrt cuda cublas cublasLt curand cufft cufftw cusparse cusolver
    cudnn nppc nppial nppicc nppidei nppif nppig nppim nppist nppisu nppitc npps nvjpeg nvrtc
    nvToolsExt nvml nvidia-ml nccl cutensor cupti culibos
    """.split()
)


def taken(words: list[str]) -> Iterator[str]:
    """The words that are left for our own parser. Raises SimtError for what cannot be done."""
    rest = iter(words)
    for word in rest:
        name, is_assigned, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-"):
            yield word
        elif name in REFUSED:
            raise SimtError(f"nvcc's option {word}: {REFUSED[name]}")
        elif name in WITHOUT_VALUE:
            continue
        elif name in WITH_VALUE or name in MEANT or name in OF_THE_HOST:
            yield from one(name, value if is_assigned else next(rest, ""), word)
        elif attached := ATTACHED.fullmatch(word):
            yield from one(attached[1] or attached[3], attached[2] or attached[4], word)
        else:
            yield word


def one(name: str, value: str, word: str) -> Iterator[str]:
    """An option and its value, as ours."""
    if not value:
        raise SimtError(f"nvcc's option {word} needs a value")
    if name in OF_THE_HOST:
        yield from (part for part in value.replace(",", " ").split() if part[:2] in ("-D", "-I"))
    elif name in MEANT:
        for part in [value] if MEANT[name] == "-D" else value.split(","):
            if MEANT[name] != "-l" or part.removeprefix("lib") not in OF_CUDA:
                yield from (MEANT[name], part)
