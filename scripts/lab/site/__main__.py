"""scripts/site: builds the pages of this repository as a site, and checks them in a browser."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from cuda_on_cpu.venv import LeftOut, prepare

from lab.ladder import ROOT

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
BUILD = ROOT / "build-site"
PYTHON = BUILD / "venv/bin/python3"


def install(package: str) -> None:
    """A package of the system, by apt."""
    script = '. scripts/lib/setup.sh; NEEDED=$1; install "$1"'
    command = ["bash", "-c", script, "scripts/site", package]
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode:
        raise LeftOut(f"there is no {package}")


def run(module: str, *arguments: str | Path) -> None:
    """Runs a Python module in the virtual environment; ends with its exit code if it fails."""
    if code := subprocess.run([PYTHON, "-B", "-m", module, *arguments], cwd=ROOT).returncode:
        sys.exit(code)


def url(text: str) -> str:
    """The address of a site or of a repository."""
    if not text.startswith("https://"):
        raise argparse.ArgumentTypeError(f"'{text}' does not begin with https://")
    return text


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/site",
        description="Builds the pages of this repository as a site, build-site/html/index.html.",
        epilog="Exit code: 0 all is well, 1 a page is not, 2 bad option or a machine that cannot. "
        "--check, on a machine that cannot, says what it left out and exits with 0.",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="also open every page in headless Chromium: no error on the console, no formula "
        "unrendered, no picture missing, no page wider than a phone, no dead link, and recordings "
        "that play in place",
    )
    parser.add_argument(
        "--address",
        type=url,
        metavar="URL",
        help="where the site will be, for each page to name its own",
    )
    parser.add_argument(
        "--repository",
        type=url,
        metavar="URL",
        help="what it is made from, for each page to lead there",
    )
    options = parser.parse_args()
    try:
        prepare(BUILD / "venv", REQUIREMENTS, "Sphinx, MyST and Furo", install)
        print("Building the pages; a warning counts as an error", flush=True)
        places: list[str | Path] = ["-c", "docs/site", "-d", BUILD / "doctrees"]
        if options.address:
            places += ["-D", f"html_baseurl={options.address}"]
        if options.repository:
            places += ["-D", f"html_theme_options.source_repository={options.repository}"]
        places += [ROOT, BUILD / "html"]
        run("sphinx", "-b", "html", "-q", "-n", "-W", "--keep-going", "-j", "auto", *places)
        print("build-site/html/index.html is the site", flush=True)
        if options.check:
            if not shutil.which("chromium") and not shutil.which("google-chrome"):
                install("chromium")
            run("lab.site.browser", BUILD / "html")
    except LeftOut as reason:
        if not options.check:
            print(f"scripts/site: {reason}", file=sys.stderr)
            return 2
        print(f"left out: a part of the site's check, {reason}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
