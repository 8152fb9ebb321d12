"""Opens every page of the built site in headless Chromium, and follows every link that stays on the site.

What fails: a message on the console or a script's error, a request that finds nothing or that leaves this machine,
a formula that is not rendered, a picture that does not load, a link or anchor that does not exist, a page wider than
its window on a desk or a phone, and a search that does not find what stands on the pages.
"""

import asyncio
import os
import sys
import threading
import time
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from markdown import SCHEME
from playwright.async_api import async_playwright

AT_ONCE = 3  # pages
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
WIDE = {"width": 1600, "height": 900}
SEARCHES = (
    ("swizzle", "docs/22_swizzle.html"),
    ("online", "docs/04_two_pass_softmax.html"),
    ("注意力", "docs/zh/00_attention.html"),
)
# What a browser can see of a page that a parser cannot.
LOOK = """async () => {
    const problems = [];
    if (window.MathJax && window.MathJax.startup) { await MathJax.startup.promise; }
    const formulas = document.querySelectorAll('.math').length;
    const rendered = document.querySelectorAll('.math mjx-container').length;
    if (rendered < formulas) { problems.push(`${formulas - rendered} of ${formulas} formulas are not rendered`); }
    for (const error of document.querySelectorAll('mjx-merror, [data-mjx-error]')) {
        problems.push(`a formula with an error: ${error.getAttribute('title') || error.textContent}`);
    }
    const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        const formula = node.data.match(/\\$[^\\s$][^$]*\\$|\\\\\\(|\\\\\\[/);
        if (formula && !node.parentElement.closest('pre, code, script, mjx-container')) {
            problems.push(`a formula as text: ${formula[0]}`);
        }
        const emphasis = node.data.match(/.{0,20}(?:\\*\\*|\\*[\\u3000-\\u9fff]|[\\u3000-\\u9fff]\\*).{0,20}/);
        if (emphasis && !node.parentElement.closest('pre, code, script, mjx-container')) {
            problems.push(`an emphasis as text: ${emphasis[0]}`);
        }
    }
    for (const image of document.images) {
        await image.decode().catch(() => {});
        if (!image.naturalWidth) { problems.push(`a picture does not load: ${image.getAttribute('src')}`); }
        if (!image.alt) { problems.push(`a picture has no text: ${image.getAttribute('src')}`); }
    }
    return problems;
}"""
OPEN_DETAILS = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"
WIDTH = """() => {
    const wide = document.documentElement.scrollWidth;
    if (wide <= window.innerWidth) { return null; }
    const inside = (e) => { for (let p = e; p; p = p.parentElement) {
        if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX)) { return true; } } };
    const widest = [...document.querySelectorAll('article *')].filter((e) => !inside(e))
        .sort((a, b) => b.getBoundingClientRect().right - a.getBoundingClientRect().right)[0];
    return `${wide} pixels wide in a window of ${window.innerWidth}` + (widest ? `: ${widest.outerHTML.slice(0, 100)}` : '');
}"""


class Links(HTMLParser):
    """The ids of a page and its links: (address, what names it)."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key == "id" or key == "name" and tag == "a":
                self.ids.add(value)
            elif key in ("href", "src") and value:
                self.links.append(value)
            elif key == "srcset" and value:
                self.links += [part.split()[0] for part in value.split(",")]


def dead_links(folder):
    """{page: [problem]} of all HTML files in a folder."""
    pages = {
        path.relative_to(folder).as_posix(): Links(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
    }
    problems, count = {}, 0
    for page, found in pages.items():
        for link in found.links:
            if SCHEME.match(link):
                continue
            count += 1
            where = urlsplit(urljoin("//site/" + page, link))
            target, anchor = unquote(where.path.lstrip("/")), unquote(where.fragment)
            if not (folder / target).is_file():
                problems.setdefault(page, []).append(f"a dead link: {link}")
            elif anchor and target in pages and anchor not in pages[target].ids:
                problems.setdefault(page, []).append(
                    f"a link to an anchor that is not there: {link}"
                )
    return problems, count


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection serves many requests

    def end_headers(self):
        self.send_header(
            "Cache-Control", "max-age=3600"
        )  # every page loads the same scripts and fonts
        super().end_headers()

    def do_GET(self):
        if self.path == "/favicon.ico":  # which a browser asks for by itself
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a browser may go on to its next page before this one is sent


async def look(context, address, names, problems):
    """Opens one page after the other, of those that are left, and notes what is wrong with each."""
    page, report = await context.new_page(), None
    page.on(
        "console",
        lambda message: (
            report(f"on the console: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    page.on("pageerror", lambda error: report(f"a script fails: {error}"))
    page.on(
        "requestfailed",
        lambda request: report(f"a request fails: {request.url.removeprefix(address)}"),
    )
    page.on(
        "response",
        lambda response: (
            report(f"{response.status} for {response.url.removeprefix(address)}")
            if response.status >= 400
            else None
        ),
    )
    while names:
        name = names.pop(0)
        report = problems.setdefault(name, []).append
        try:
            await page.set_viewport_size(DESKTOP)
            await page.goto(address + name, wait_until="load", timeout=60_000)
            await page.evaluate(OPEN_DETAILS)
            for problem in await page.evaluate(LOOK):
                report(problem)
            for size in (DESKTOP, WIDE, PHONE):
                await page.set_viewport_size(size)
                if wide := await page.evaluate(WIDTH):
                    report(wide)
        except (
            Exception
        ) as error:  # whatever Playwright says of this page; the others are still looked at
            report(str(error).splitlines()[0])
    await page.close()


async def search(context, address, word, expected, report):
    page = await context.new_page()
    await page.goto(f"{address}search.html?q={word}")
    try:
        await page.wait_for_selector(f"#search-results a[href^='{expected}']", timeout=20_000)
    except Exception:
        report(f"a search for '{word}' does not find {expected}")
    await page.close()


async def open_all(folder, chromium):
    server = Server(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.html"))]
    problems, left = {}, list(names)
    async with async_playwright() as playwright:
        # Other machines are not found. Routes that abort would do the same, but they switch the browser's cache off.
        browser = await playwright.chromium.launch(
            executable_path=chromium,
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
            + ["--no-sandbox"] * (os.getuid() == 0),
        )
        context = await browser.new_context(viewport=DESKTOP)
        await asyncio.gather(*(look(context, address, left, problems) for _ in range(AT_ONCE)))
        for word, expected in SEARCHES:
            if (folder / expected).is_file():
                await search(
                    context, address, word, expected, problems.setdefault("search.html", []).append
                )
        await browser.close()
    server.shutdown()
    server.server_close()
    return problems, len(names)


def main():
    folder, chromium, started = Path(sys.argv[1]).resolve(), sys.argv[2], time.monotonic()
    problems, links = dead_links(folder)
    seen, pages = asyncio.run(open_all(folder, chromium))
    for page in sorted({*problems, *seen}):
        for problem in problems.get(page, []) + seen.get(page, []):
            print(f"{page}: {problem}", file=sys.stderr)
    failed = sum(map(len, [*problems.values(), *seen.values()]))
    print(
        f"{pages} pages opened in Chromium, {links} links followed in {time.monotonic() - started:.0f} s; "
        f"{failed or 'no'} problem{'s' * (failed != 1)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
