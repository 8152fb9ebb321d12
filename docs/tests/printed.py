"""printed.py PAGE.md ...: runs, from the repository's root, each shell block after a line <!-- prints -->. What it writes to stdout and
stderr must be the next text block of the page, word for word.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^<!-- prints -->\n```sh\n(?P<command>.*?)^```$.*?^```text\n(?P<output>.*?)^```$", re.S | re.M
)


def main(pages):
    failed = ran = 0
    for page in pages:
        for block in BLOCK.finditer(Path(page).read_text(encoding="utf-8")):
            ran += 1
            done = subprocess.run(
                ["bash", "-c", block["command"]],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if done.stdout != block["output"]:
                failed += 1
                print(
                    f"{page} says that\n{block['command']}prints\n{block['output']}but it prints\n{done.stdout}"
                )
    print(f"{ran - failed} of {ran} commands print what the page says")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
