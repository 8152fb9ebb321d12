import signal
import sys

if sys.version_info < (3, 11):  # noqa: UP036 (it says so)
    print(
        f"scripts/exercise: Python 3.11 or later is needed, and this is {sys.version.split()[0]}\n"
        "FLASH_PYTHON=/path/to/python3 names another",
        file=sys.stderr,
    )
    sys.exit(2)
# `| head` ends it without a word, like any other program.
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
from lab.exercises.command import main  # noqa: E402  (only now: older ones cannot read it)

sys.exit(main(sys.argv[1:]))
