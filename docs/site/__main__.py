"""scripts/site: builds the pages of this repository as a site, and checks them in a browser. --help says how."""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build-site"
VENV = BUILD / "venv"
HTML = BUILD / "html"
NO_NETWORK = re.compile(
    r"connection broken|name resolution|NewConnectionError|timed out|Network is unreachable", re.I
)


class LeftOut(Exception):
    """Why this machine cannot build or check the site."""


def environment():
    """The virtual environment with what requirements.txt pins; made anew only when that file has changed."""
    wanted = hashlib.sha256((HERE / "requirements.txt").read_bytes()).hexdigest()
    stamp = VENV / "requirements.sha256"
    if stamp.is_file() and stamp.read_text() == wanted:
        return VENV / "bin/python3"
    if sys.version_info < (3, 11):
        raise LeftOut("Sphinx wants Python 3.11 or later")
    BUILD.mkdir(exist_ok=True)
    print(f"Installing Sphinx, MyST and Furo from PyPI into {VENV.relative_to(ROOT)}", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True
    )
    if made.returncode != 0:
        apt("python3-venv")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    done = subprocess.run(
        [
            str(VENV / "bin/pip"),
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--retries",
            "2",
            "-r",
            str(HERE / "requirements.txt"),
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        if NO_NETWORK.search(done.stderr):
            raise LeftOut("PyPI does not answer")
        sys.exit(
            f"scripts/site: pip could not install docs/site/requirements.txt\n{done.stderr.strip()}"
        )
    stamp.write_text(wanted)
    return VENV / "bin/python3"


def apt(package):
    """Installs a Debian package, as root or through a sudo that does not ask."""
    root = [] if os.getuid() == 0 else ["sudo", "-n"]
    tools = shutil.which("apt-get") and (not root or shutil.which("sudo"))
    if not tools:
        raise LeftOut(f"there is no {package}, and no way to install it here")
    print(f"Installing {package} with apt", flush=True)
    for arguments in (["update"], ["install", "--no-install-recommends", package]):
        done = subprocess.run(
            root
            + [
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "-qy",
                "-o",
                "DPkg::Lock::Timeout=120",
            ]
            + arguments,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise LeftOut(f"apt cannot install {package}")


def browser():
    """(the path of Chromium or Chrome, or "", why there is none)."""

    def find():
        return next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), "")

    try:
        if not find():
            apt("chromium")
    except LeftOut as reason:
        return "", str(reason)
    return find(), "" if find() else "there is no Chromium"


def run(python, *arguments, **variables):
    code = subprocess.run(
        [str(python), "-B", *map(str, arguments)], cwd=ROOT, env=dict(os.environ, **variables)
    ).returncode
    if code != 0:
        sys.exit(code)


def build(python):
    run(python, HERE / "stage.py", BUILD / "pages")
    print("Building the pages", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        [
            str(python),
            "-B",
            "-m",
            "sphinx",
            "--builder",
            "html",
            "--quiet",
            "--fail-on-warning",
            "--jobs",
            "auto",
            "--conf-dir",
            str(HERE),
            "--doctree-dir",
            str(BUILD / "doctrees"),
            str(BUILD / "pages"),
            str(HTML),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    # Lines on the stage have the numbers that they have in the repository.
    sys.stderr.write(done.stderr.replace(f"{BUILD / 'pages'}/", ""))
    if done.returncode != 0:
        sys.exit("scripts/site: the site does not build, see above (a warning counts as an error)")
    print(
        f"build-site/html/index.html is the site (built in {time.monotonic() - started:.0f} s)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/site",
        description="Builds the pages of this repository as a site, "
        "build-site/html/index.html. Sphinx, MyST and Furo come from PyPI, into a virtual "
        "environment under build-site.",
        epilog="Exit code: 0 all is well, 1 a page is not, 2 bad option or a machine that "
        "cannot. --check, on a machine that cannot, says what it left out and exits with 0.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check",
        action="store_true",
        help="also open every page in headless Chromium: no error on the "
        "console, no formula unrendered, no picture missing, no dead link, no page wider than a phone; "
        "and say which translations lag behind their originals",
    )
    what.add_argument(
        "--translate",
        action="store_true",
        help="bring the catalogues of docs/zh/catalogue up to date "
        "with the originals, and write the translated pages anew",
    )
    options, missing = parser.parse_args(), ""
    try:
        python = environment()
        if options.translate:
            return run(python, HERE / "translate.py", "--write")
        if not options.check:
            return build(python)
        chromium, missing = browser()
        run(python, HERE / "tests/test_site.py", CHROMIUM=chromium)
        build(python)
        run(python, HERE / "translate.py")
        if missing:
            raise LeftOut(missing)
        run(python, HERE / "check.py", HTML, chromium)
    except LeftOut as reason:
        if not options.check:
            print(f"scripts/site: {reason}", file=sys.stderr)
            return 2
        print(f"left out: {'opening the pages in a browser' if missing else 'the site'}, {reason}")
    except OSError as error:
        print(f"scripts/site: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
