"""Opens every page of the built site in headless Chromium, on a desk and on a phone.

What fails: a message on the console, a request that finds nothing or leaves this machine, a formula
that is not rendered, a picture that does not load, a page wider than its window, a search that does
not find what it should, and a link to a moment of a run that has no such moment."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Awaitable
from pathlib import Path

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Playwright,
    TimeoutError,
    async_playwright,
)

WINDOWS = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
AT_ONCE = 3  # pages
RECORDINGS = "watch"  # their folder
TO_MOMENT = re.compile(rf'href="[^"]*\b{RECORDINGS}/(\w+\.html)(?:#([^"]*))?"')
SEARCHES = {"swizzle": "swizzle.html", "wavefront": "memory.html"}
MOMENT = "([moment, tab]) => player.moments.find(moment) >= 0 && (!tab || tab in player.tabs.names)"
# What a browser can see of a page that a parser cannot.
LOOK = """async () => {
    if (window.MathJax?.startup) { await MathJax.startup.promise; }
    document.querySelectorAll('details').forEach((details) => { details.open = true; });
    const problems = [];
    for (const formula of document.querySelectorAll('.math')) {
        if (!formula.querySelector('mjx-container') || formula.querySelector('mjx-merror')) {
            problems.push(`a formula is not rendered: ${formula.textContent}`);
        }
    }
    const text = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
    while (text.nextNode()) {
        const markup = text.currentNode.data.match(/\\$[^\\s$][^$]*\\$|.?\\*\\*.?/);
        if (markup && !text.currentNode.parentElement.closest('pre, code, script, mjx-container')) {
            problems.push(`markup as text: ${markup[0]}`);
        }
    }
    for (const image of document.images) {
        await image.decode().catch(() => problems.push(`no picture: ${image.src}`));
        if (!image.alt) { problems.push(`a picture has no text: ${image.src}`); }
    }
    return problems;
}"""
TOO_WIDE = """['html', '.content'].map((name) => document.querySelector(name))
    .reduce((most, part) => Math.max(most, part.scrollWidth - part.clientWidth), 0)"""


async def look(
    context: BrowserContext, address: str, names: list[str], problems: list[str]
) -> None:
    """Opens one page after the other, of those that are left, and notes what is wrong with each."""
    page, name = await context.new_page(), ""

    def report(problem: str) -> None:
        problems.append(f"{name}: {problem}")

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            report(f"on the console: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: report(f"a script fails: {error}"))
    page.on("requestfailed", lambda request: report(f"a request fails: {request.url}"))
    while names:
        name = names.pop()
        await page.set_viewport_size(WINDOWS[0])  # formulas fit it
        await page.goto(address + name, wait_until="load")
        for problem in await page.evaluate(LOOK):
            report(problem)
        for window in WINDOWS:
            await page.set_viewport_size(window)
            if wider := await page.evaluate(TOO_WIDE):
                report(f"{wider} pixels too wide for a window of {window['width']}")
    await page.close()


async def search(context: BrowserContext, address: str, problems: list[str]) -> None:
    """Looks for a few words."""
    page = await context.new_page()
    for word, expected in SEARCHES.items():
        await page.goto(f"{address}search.html?q={word}")
        try:
            await page.wait_for_selector(f"#search-results a[href*='{expected}']", timeout=20_000)
        except TimeoutError:
            problems.append(f"search.html: '{word}' does not find {expected}")


async def find_moments(
    context: BrowserContext, folder: Path, address: str, names: list[str], problems: list[str]
) -> None:
    """Looks for each moment that a page links, in the recording."""
    page = await context.new_page()
    linked: dict[str, dict[str, str]] = {}
    for name in names:
        for recording, moment in TO_MOMENT.findall((folder / name).read_text("utf-8")):
            linked.setdefault(recording, {}).setdefault(moment, name)
    for recording, moments in linked.items():
        await page.goto(f"{address}{RECORDINGS}/{recording}", wait_until="load")
        await page.wait_for_function("performance.getEntriesByName('ready').length")
        for moment, name in moments.items():
            if not await page.evaluate(MOMENT, [*(moment or "end").split("&amp;"), ""][:2]):
                problems.append(f"{name}: {RECORDINGS}/{recording} has no moment #{moment}")


def launch(playwright: Playwright) -> Awaitable[Browser]:
    options = ["--host-resolver-rules=MAP * ~NOTFOUND"]
    if os.getuid() == 0:
        options.append("--no-sandbox")
    return playwright.chromium.launch(
        executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=options
    )


async def check(folder: Path, address: str) -> tuple[list[str], int]:
    """Returns what is wrong with the pages in a folder, and how many pages there are."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.html"))]
    names = [name for name in names if not name.startswith(RECORDINGS + "/")]
    names.remove("index.html")  # which leads to the first page
    pages = list(names)
    count = len(names)
    problems: list[str] = []
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        context = await browser.new_context()
        await asyncio.gather(*(look(context, address, names, problems) for _ in range(AT_ONCE)))
        await search(context, address, problems)
        await find_moments(context, folder, address, pages, problems)
        await browser.close()
    return problems, count


def main() -> int:
    """Checks the site in the folder of the command line; returns the exit code."""
    folder = Path(sys.argv[1]).resolve()
    problems, count = asyncio.run(check(folder, folder.as_uri() + "/"))
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    print(f"{count} pages opened in Chromium: {len(problems) or 'no'} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
