"""Opens recordings in headless Chromium, on a desk and on a phone.

What fails: a message on the console, a step that cannot be told or drawn, costs at the end that are
not those of the counters, a barrier at which other warps wait than should, a fault without its
lines, a page wider than its window."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab.ladder import ROOT, LabError, cuda_rungs

WINDOWS = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
READY = "performance.getEntriesByName('ready').length"
# Every step in words and in memory; some of them on the screen, on the way there and back.
STEPS = """() => {
    const { trace, words, memory } = player;
    for (let step = 0; step < trace.count; ++step) {
        memory.goTo(step);
        if (!words.of(step)) { return `step ${step} has no words`; }
    }
    for (const tab of ["shared", "tensors", "fragments", "barriers"]) {
        player.tabs.choose(tab);
        for (let i = 0; i <= 20; ++i) {
            player.at = Math.floor((trace.count - 1) * (i <= 10 ? i : 20 - i) / 10);
            player.drawNow();
        }
    }
    return "";
}"""
COSTS = """() => {
    const { trace, costs } = player, wrong = [];
    const sums = costs.upTo(trace.count - 1), told = new Map();
    trace.lines.forEach(({ file, line }, i) => told.set(`${trace.files[file]}:${line}`, i));
    for (const counted of trace.costs) {
        const place = `${trace.files[counted.file]}:${counted.line}`, own = told.get(place);
        costs.metrics.forEach((metric, i) => {
            const shown = own === undefined ? 0 : sums[own * costs.metrics.length + i];
            if (shown !== counted[metric]) {
                wrong.push(`${place}: ${metric} ${shown}, counted ${counted[metric]}`);
            }
        });
    }
    return wrong;
}"""
# Just before a barrier is complete all warps but the last wait there, or have left.
BARRIER = """() => {
    const { trace, words, moments } = player, end = moments.find("barrier=1");
    if (end < 0) { return ""; }
    for (let warp = 0; warp < trace.warps; ++warp) {
        const { state, step } = words.state(warp, end - 1);
        const waits = state === "waiting" && trace.operation(step).startsWith("__sync");
        if (!waits && warp !== trace.warp[end] && state !== "done") {
            return `warp ${warp} is not at the first barrier before it is complete: ${state}`;
        }
    }
    return "";
}"""
FAULT = """() => {
    const { fault } = player.trace;
    return fault && { places: [fault.where, fault.other].map((place) => place?.step ?? -1),
                      lines: [fault.where, fault.other].map((place) => place?.line ?? 0),
                      text: document.getElementById("verdict").textContent };
}"""
# Programs with a fault, and what the page must name: lines, by what they hold.
BROKEN = {
    "common/tests/watch/missing_barrier.cu": ("// first", "// second"),
    "common/tests/watch/wrong_phase.cu": ("// first", "// second"),
    "common/tests/watch/two_blocks.cu": ("// first", "// second"),
    "docs/examples/unseen_races.cu slot": ("flash::tma_load<2>(slots", "flash::wgmma_m64k16<"),
}
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def look(browser, path):
    """What is wrong with a recording, how long it takes to open, and its fault."""
    problems = []
    page = await browser.new_page(viewport=WINDOWS[1])
    page.on("console", lambda message: problems.append(f"on the console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"a script fails: {error}"))
    await page.goto(path.resolve().as_uri(), wait_until="load")
    await page.wait_for_function(READY, timeout=60_000)
    opened = await page.evaluate("performance.getEntriesByName('ready')[0].startTime")
    fault = await page.evaluate(FAULT)
    problems += filter(None, [await page.evaluate(STEPS), await page.evaluate(BARRIER)])
    if not fault:
        problems += await page.evaluate(COSTS)
    for window in WINDOWS:
        await page.set_viewport_size(window)
        if wider := await page.evaluate(TOO_WIDE):
            problems.append(f"{wider} pixels too wide for a window of {window['width']}")
    await page.close()
    return problems, opened, fault


def launch(playwright):
    return playwright.chromium.launch(
        executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
        args=["--host-resolver-rules=MAP * ~NOTFOUND"] + ["--no-sandbox"] * (os.getuid() == 0),
    )


def untold(fault, source, texts):
    """What is missing of a fault: places of a source, the lines that hold these texts."""
    if not fault:
        return ["no fault is shown"] * bool(texts)
    lines = (ROOT / source).read_text(encoding="utf-8").splitlines() if source else []
    numbers = [next(i for i, line in enumerate(lines, 1) if text in line) for text in texts]
    places = [f"{source}:{number}" for number in numbers]
    missing = [f"{place} is not shown" for place in places if place not in fault["text"]]
    return missing + ["the fault has no step"] * (max(fault["places"]) < 0)


async def check(wanted):
    """How many of these recordings are wrong: [(page, source of a fault, texts of its lines)]."""
    from playwright.async_api import async_playwright

    failed = 0
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        for path, source, texts in wanted:
            problems, opened, fault = await look(browser, path)
            problems += untold(fault, source, texts)
            about = f"{path.stem}: {path.stat().st_size:,} bytes, open after {opened:.0f} ms"
            shown = f", fault at lines {fault['lines']}" if fault else ""
            print(about + shown, *problems[:8], sep="\n    ", flush=True)
            failed += bool(problems)
        await browser.close()
    return failed


def python_with_playwright():
    if importlib.util.find_spec("playwright"):
        return None
    venv = ROOT / "build-site/venv/bin/python3"
    if not venv.is_file():
        raise LabError("playwright is missing; ./scripts/site makes a virtual environment with it")
    return venv


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="names (all CUDA rungs)")


def main(options):
    if other := python_with_playwright():
        return subprocess.run([other, "-B", "-m", "lab", *sys.argv[1:]]).returncode
    wanted = [(record(rung.name, rung.name), "", ()) for rung in cuda_rungs(options.rungs)]
    for command, texts in {} if options.rungs else BROKEN.items():
        source, *arguments = command.split()
        own = record(Path(source).stem, source, *arguments)
        for path in (own, own.with_stem(f"{own.stem}_other_block")):  # of a race between blocks
            wanted += [(path, source, texts)] * path.is_file()
    failed = asyncio.run(check(wanted))
    print(f"{len(wanted)} recordings opened in Chromium: {failed or 'none'} with problems")
    return 1 if failed else 0


def record(name, program, *arguments):
    command = [ROOT / "scripts/watch", program, *arguments, "--no-browser"]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
        raise LabError(f"{program} cannot be recorded")
    return ROOT / f"build-simt/watch/{name}.html"
