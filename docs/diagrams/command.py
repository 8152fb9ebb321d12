"""The command line of the programs of this folder: PROGRAM.py [--check] [FILE.svg ...]"""

import sys
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[1] / "figures"


def main(pictures, program, *arguments):
    """Draws pictures, {name of the file: function that returns its text}, all of them or those named. --check writes
    nothing and compares with the files. The exit code."""
    program = Path(program).name
    check, names = "--check" in arguments, [name for name in arguments if name != "--check"]
    if unknown := set(names) - set(pictures):
        print(
            f"{program}: there is no {' '.join(sorted(unknown))}; there are {' '.join(pictures)}",
            file=sys.stderr,
        )
        return 2
    different = 0
    for name in names or pictures:
        try:
            path, text = FIGURES / name, pictures[name]()
        except ValueError as error:
            print(f"docs/figures/{name}: {error}", file=sys.stderr)
            different = 1
            continue
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(
                f"docs/figures/{name}: not what the sources say; docs/diagrams/{program} {name} draws it anew",
                file=sys.stderr,
            )
            different = 1
    return different
