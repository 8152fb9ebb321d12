"""Opens every page of the built site in headless Chromium, on a desk and on a phone.

What fails: a message on the console, a request that finds nothing or leaves this machine, a formula
that is not rendered, a picture that does not load, a page wider than its window, a search that does
not find what it should, a link that leads nowhere, and a recording that is not at its moment once
it is unfolded, by a click on a desk and a tap on a phone, or that loads before."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Playwright,
    TimeoutError,
    async_playwright,
)

WINDOWS = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
AT_ONCE = 3  # pages
RECORDINGS = "watch"  # their folder
SEARCHES = {"swizzle": "swizzle.html", "wavefront": "glossary.html"}
READY = "performance.getEntriesByName('ready').length"
AT_MOMENT = """() => {
    const [moment, tab] = location.hash.slice(1).split('&');
    return (!moment || player.at === player.moments.find(moment))
           && (!tab || player.tabs.chosen === tab || tab === 'source');
}"""
FOLDED = ".watch, .break > details"
FOLD = f"""for (const one of document.querySelectorAll('{FOLDED}')) {{ one.open = false; }}
for (const one of document.querySelectorAll('.break :checked')) {{ one.checked = false; }}"""
LINKS = "[...document.links].map((link) => link.href)"
NAMES = "[...document.querySelectorAll('[id]')].map((part) => part.id)"
# What a browser can see of a page that a parser cannot.
LOOK = """async (folded) => {
    if (window.MathJax?.startup) { await MathJax.startup.promise; }
    const problems = [];
    for (const frame of document.querySelectorAll('details:not([open]) iframe')) {
        if (frame.contentWindow.location.href !== 'about:blank') {
            problems.push(`the recording ${frame.src} loads before it is shown`);
        }
    }
    document.querySelectorAll(`details:not(${folded})`).forEach((one) => { one.open = true; });
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


class Seen:
    """What is to be known of all pages: their links, their parts that links can name, and what is
    wrong with them."""

    def __init__(self) -> None:
        self.links: dict[str, list[str]] = {}
        self.names: dict[str, set[str]] = {}
        self.problems: list[str] = []

    def dead_links(self, folder: Path, address: str) -> None:
        """Notes what leads nowhere on this site."""
        for page, links in self.links.items():
            for link in dict.fromkeys(link for link in links if link.startswith(address)):
                target, _, part = unquote(link.removeprefix(address)).partition("#")
                if not (folder / target).is_file():
                    self.problems.append(f"{page}: a link leads to {target}, which is not there")
                elif part and part not in self.names.get(target, {part}):
                    self.problems.append(
                        f"{page}: a link leads to {target}#{part}, a part it lacks"
                    )


async def look(context: BrowserContext, address: str, names: list[str], seen: Seen) -> None:
    """Opens one page after the other, of those that are left, and notes what is wrong with each."""
    page, name = await context.new_page(), ""

    def report(problem: str) -> None:
        seen.problems.append(f"{name}: {problem}")

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
        for problem in await page.evaluate(LOOK, FOLDED):
            report(problem)
        seen.links[name] = await page.evaluate(LINKS)
        seen.names[name] = set(await page.evaluate(NAMES))
        for window in WINDOWS:
            await page.set_viewport_size(window)
            async for problem in watch(page, by_tap=window is WINDOWS[0]):
                report(problem)
            if wider := await page.evaluate(TOO_WIDE):
                report(f"{wider} pixels too wide for a window of {window['width']}")
    await page.close()


async def watch(page: Page, by_tap: bool) -> AsyncIterator[str]:
    """Unfolds each recording of a page, and yields what is wrong with it."""
    await page.evaluate(FOLD)
    for recording in await page.locator("details.watch").all():
        summary = recording.locator("summary")
        async for problem in play(recording, summary, by_tap):
            yield problem
    for choice in await page.locator(".break > details").all():
        await choice.locator("summary").click()
        if await choice.locator(".outcome").is_visible():
            yield "what happens is there before a guess"
        if await choice.locator(".right").count() != 1:
            yield "not one guess is right"
        async for problem in play(choice, choice.locator("label").first, by_tap):
            yield problem


async def play(part: Locator, shown_by: Locator, by_tap: bool) -> AsyncIterator[str]:
    """Has the recording in a part of the page shown, and yields what is wrong with it."""
    iframe = part.locator("iframe")
    frame = await (await iframe.element_handle()).content_frame()
    where = f"the recording {await iframe.get_attribute('src')}"
    await (shown_by.tap() if by_tap else shown_by.click())
    await iframe.scroll_into_view_if_needed()
    try:
        await frame.wait_for_function(READY, timeout=60_000)  # beside the exercises
        if not await frame.evaluate(AT_MOMENT):
            yield f"{where} has no such moment"
    except Error:
        yield f"{where} does not play"


async def search(context: BrowserContext, address: str, seen: Seen) -> None:
    """Looks for a few words."""
    page = await context.new_page()
    for word, expected in SEARCHES.items():
        await page.goto(f"{address}search.html?q={word}")
        try:
            await page.wait_for_selector(f"#search-results a[href*='{expected}']", timeout=20_000)
        except TimeoutError:
            seen.problems.append(f"search.html: '{word}' does not find {expected}")


def launch(playwright: Playwright) -> Awaitable[Browser]:
    options = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
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
    count, seen = len(names), Seen()
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        context = await browser.new_context(has_touch=True)
        await asyncio.gather(*(look(context, address, names, seen) for _ in range(AT_ONCE)))
        await search(context, address, seen)
        await browser.close()
    seen.dead_links(folder, address)
    return seen.problems, count


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word. From a file, a browser would load each recording at once."""

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    """Checks the site in the folder of the command line; returns the exit code."""
    folder = Path(sys.argv[1]).resolve()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        problems, count = asyncio.run(check(folder, address))
        server.shutdown()
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    print(f"{count} pages opened in Chromium: {len(problems) or 'no'} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
