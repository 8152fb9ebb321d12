"""Measures, records, compares, tabulates and draws. Run it as ./scripts/lab/run VERB ..."""

import argparse
import importlib
import sys

from cuda_on_cpu import SimtError

from lab.ladder import ROOT, LabError

# verb: (module of the lab, with add_arguments(parser) and main(options) -> exit code; a line of
# help)
VERBS = {
    "compare": ("compare", "times rungs beside PyTorch's attention, on the same tensors"),
    "texts": ("texts", "times rungs on texts of any lengths, beside FlashAttention"),
    "ring": ("ring", "times ring_attention on one GPU, in parts, and on several"),
    "bench": ("bench", "times every built rung, beside the ceilings of the machine"),
    "profile": ("profile", "what a CUDA rung does to memory: ncu's counts and SIMT's"),
    "watch": ("watch", "a page that replays a run on SIMT, step by step"),
    "counters": ("counters", "checks that SIMT counts what ncu counts, for every CUDA rung"),
    "sanitize": ("sanitize", "runs every CUDA rung under compute-sanitizer"),
    "architectures": ("architectures", "compiles every kernel for every GPU: registers, spills"),
    "tables": ("tables", "tables of the pages from the records; --write: the plots, too"),
    "excerpts": ("pages.excerpts", "do pages quote the sources as they are, and links lead on?"),
    "printed": ("pages.printed", "runs commands that the pages show: do they print what is said?"),
    "figures": ("figures", "draws the plots of docs/figures from the records"),
    "moving-picture": ("moving_picture", "the viewer replays a race: docs/figures/watch.gif"),
    "attention-picture": ("attention_picture", "what words attend to, from the LSE of a rung"),
    "minilm-data": ("data.minilm", "makes reference/data: Q, K and V of a real transformer"),
    "golden-data": ("data.golden", "makes reference/golden: small problems, PyTorch's answers"),
    "golden-lines": (
        "data.golden_lines",
        "makes reference/golden/lines, sequences on a line, likewise",
    ),
    "mutations": ("mutations", "takes out barriers and waits: the suite must notice"),
    "check-build-commands": ("pages.build_commands", "runs the build commands of the pages"),
}


def name_of(verb: str) -> str:
    """How it is called: some verbs have a script of their own."""
    own = f"scripts/{verb}"
    return own if (ROOT / own).is_file() else f"lab {verb}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="lab",
        description=__doc__,
        epilog="Exit code: 0 well, 1 something is wrong "
        "(a result, a check), 2 bad input or nothing to work with.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        for verb, (name, text) in VERBS.items():
            # Only the verb at hand is imported: measuring needs no matplotlib.
            if verb in arguments[:1]:
                module = importlib.import_module(f"lab.{name}")
                own = verbs.add_parser(
                    verb,
                    prog=name_of(verb),
                    help=text,
                    description=module.__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter,
                )
                module.add_arguments(own)
                own.set_defaults(main=module.main)
            else:
                verbs.add_parser(verb, help=text)
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            own.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options.main(options) or 0
    except (LabError, SimtError, OSError) as error:  # OSError: a read-only folder, a full disk
        print(f"{name_of(arguments[0])}: {error}", file=sys.stderr)
        return getattr(error, "code", 2)
    except ModuleNotFoundError as error:
        if not error.name or error.name.split(".")[0] == "lab":
            raise
        print(
            f"{name_of(arguments[0])}: {sys.executable} has no {error.name}\napt install "
            "python3-matplotlib python3-scour, or pip install -r scripts/lab/requirements.txt;\n"
            "FLASH_PYTHON names another python3",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
