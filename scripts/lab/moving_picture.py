"""Draws docs/figures/watch.gif, in which the viewer of scripts/watch replays a run that ends with a
race, and docs/figures/watch.png, its last frame, for readers who turned motion off.

The run is that of docs/examples/block_sum.cu without its first barrier. Most of the viewer is left
out, so that what remains can be read at 800 pixels. A GIF moves on every Git host, and these few
colours fit into it. Needs Chromium, playwright and Pillow. The Python that ./scripts/site installs
has playwright:

    build-site/venv/bin/python3 -m pip install pillow
    FLASH_PYTHON=build-site/venv/bin/python3 ./scripts/lab/run moving-picture
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab import watch, watch_tiles
from lab.ladder import ROOT, LabError

if TYPE_CHECKING:
    from PIL import Image
    from playwright.sync_api import Browser

PROGRAM = ROOT / "docs/examples/block_sum.cu"
FIGURE = ROOT / "docs/figures/watch"
MOST = 1 << 20  # bytes of the moving picture
WINDOW = {"width": 900, "height": 626}
SHARPNESS = 1.5  # pixels of the picture for one of the window


class Scene(NamedTuple):
    """Moments of the run, by their names in the page's address (docs/watch_format.md), what is said
    of them, and how long each is shown. Where nothing is said, the viewer's verdict has its place.
    """

    words: str
    moments: tuple[str, ...]
    seconds: float


SCENES = (
    Scene(
        "This CUDA kernel has lost a barrier: its first __syncthreads() is a comment now.",
        ("step=0",),
        2.5,
    ),
    Scene(
        "Warps of 32 threads write their numbers into shared memory. Warps 0 to 3 are quick.",
        ("store=1", "store=2", "store=3", "store=4"),
        0.9,
    ),
    Scene("Warp 0 doesn't wait for the others. To its own numbers it adds ...", ("load=6",), 2),
    Scene(
        "... numbers that nobody has written yet. So do warps 1 to 3.",
        ("load=10", "load=11", "load=12", "load=13"),
        1,
    ),
    Scene("They wait only at the next barrier, which is too late.", ("__syncthreads=4",), 2),
    Scene("Warp 4 arrives, and writes what warp 0 has already read.", ("fault",), 2),
    Scene("", ("fault",), 6),
)
# The viewer without what a small picture has no room for, in larger letters.
STYLE = """
header, #timeline, #now, #tabs, #controls .group, #controls select, #controls > button,
#source .bar, #source .cost, #source th:nth-child(n + 2):nth-child(-n + 4), #warps h2,
#shared .bar, #shared .key:nth-child(n + 3):nth-child(-n + 5), #shared .read-out {
  display: none;
}
body { padding: 12px; overflow: hidden; }
#words, #verdict { box-sizing: border-box; height: 132px; margin: 0; padding: 4px 14px; }
#words {
  display: flex; align-items: center; border-left: 4px solid var(--blue);
  background: var(--panel); font-size: 30px; line-height: 1.3; text-wrap: balance;
}
#verdict { font-size: 17px; line-height: 1.38; }
#verdict strong { font-size: 23px; line-height: 1.3; }
.over #words, body:not(.over) #verdict { display: none; }
#controls { padding: 6px 0; }
#controls output { min-width: 0; font-size: 15px; }
main { grid-template-columns: 480px minmax(0, 1fr); }
#source .scroll { height: 436px; min-height: 0; overflow: hidden; }
#source table { font-size: 15px; line-height: 27px; }
#source th { font-size: 13px; }
body:not(.over) #source tr.fault { box-shadow: none; }
.over #source tr.fault { background: var(--pale-yellow); box-shadow: inset 6px 0 var(--red); }
#warps { margin-bottom: 6px; }
.warps { grid-template-columns: 1fr; gap: 3px; }
.warp { padding: 0 6px 3px; }
.warp .name { font-size: 13px; }
.warp .lanes { height: 7px; margin-top: 0; }
#shared h2 { margin: 0; font-size: 14px; }
#shared .note { font-size: 11px; }
#shared .scroll { height: 116px; min-height: 0; overflow: hidden; }
"""
PREPARE = """style => {
    const words = Object.assign(document.createElement("p"), {id: "words"});
    document.querySelector("#verdict").before(words);
    document.head.append(Object.assign(document.createElement("style"), {textContent: style}));
    const line = document.querySelector("#source tr.fault");
    document.querySelector("#source .scroll").scrollTop = line.offsetTop - 4 * line.offsetHeight;
}"""
SHOW = """async ([moment, words]) => {
    document.body.classList.toggle("over", !words);
    document.querySelector("#words").textContent = words;
    const found = player.go(player.moments.find(moment), false);
    for (let i = 0; i < 2; ++i) { await new Promise(requestAnimationFrame); }
    return found;
}"""


def recorded_page(folder: Path) -> str:
    """The page of the run, of which the program is put into a folder."""
    program = folder / PROGRAM.name
    text = PROGRAM.read_text(encoding="utf-8")
    program.write_text(text.replace("__syncthreads()", "// __syncthreads()", 1), encoding="utf-8")
    usual = argparse.Namespace(block=None, kernel=None, schedule=None)
    trace = watch.record(watch.own_program(program), [], usual)
    if "fault" not in trace:
        raise LabError(f"{PROGRAM.name} runs without a race, although a barrier is taken out")
    watch_tiles.complete(trace)
    trace["files"] = [Path(name).name for name in trace["files"]]  # the folder is of no interest
    return watch.page(trace, PROGRAM.stem, folder)


def screenshots(browser: "Browser", page_file: Path) -> Iterator[bytes]:
    """A PNG of each frame."""
    page = browser.new_page(viewport=WINDOW, device_scale_factor=SHARPNESS, color_scheme="light")
    page.goto(page_file.as_uri())
    page.wait_for_function("performance.getEntriesByName('ready').length")
    page.evaluate(PREPARE, STYLE)
    for scene in SCENES:
        for moment in scene.moments:
            if not page.evaluate(SHOW, [moment, scene.words]):
                raise LabError(f"the run has no moment #{moment}")
            yield page.screenshot()


def pictures() -> list["Image.Image"]:
    """The frames. Records the run first."""
    try:
        from PIL import Image
        from playwright.sync_api import Error, sync_playwright

        from lab.site.browser import launch
    except ModuleNotFoundError as missing:
        needed = f"{sys.executable} has no {missing.name}: pip install playwright pillow"
        raise LabError(needed) from missing

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        try:
            browser = launch(playwright)
        except Error as error:
            reason = str(error).partition("\n")[0]
            raise LabError(f"Chromium does not start (apt install chromium): {reason}") from error
        page_file = Path(folder) / "page.html"
        page_file.write_text(recorded_page(Path(folder)), encoding="utf-8")
        return [Image.open(io.BytesIO(png)) for png in screenshots(browser, page_file)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    where = "where to write it, without .gif and .png (docs/figures/watch)"
    parser.add_argument("--output", type=Path, default=FIGURE, metavar="FILE", help=where)


def in_few_colours(frames: list["Image.Image"]) -> list["Image.Image"]:
    """The frames with one palette, so that a GIF need not repeat what stays."""
    from PIL import Image

    width, height = frames[0].size
    strip = Image.new("RGB", (width, height * len(frames)))
    for i, frame in enumerate(frames):
        strip.paste(frame, (0, i * height))
    strip = strip.quantize(128, dither=Image.Dither.NONE)
    return [strip.crop((0, i * height, width, (i + 1) * height)) for i in range(len(frames))]


def main(options: argparse.Namespace) -> None:
    """Draws both pictures."""
    frames = in_few_colours(pictures())
    still, moving = (options.output.with_suffix(end) for end in (".png", ".gif"))
    frames[-1].save(still, optimize=True)
    times = [round(1000 * scene.seconds) for scene in SCENES for _ in scene.moments]
    frames[0].save(moving, save_all=True, append_images=frames[1:], duration=times, loop=0)
    for path in (moving, still):
        print(f"{path.stat().st_size:,} bytes: {path}")
    if moving.stat().st_size > MOST:
        raise LabError(f"a moving picture may have {MOST:,} bytes")
