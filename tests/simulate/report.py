"""The page that `tollgate simulate --html` writes, in a real browser.

A log is made in which a few callers ask much; some callers and paths are attacks. The page is looked
at in two widths and two themes, with its tables folded and unfolded; axe-core finds nothing, the page
does not scroll sideways, nothing comes from a network, nothing of a name is run. Printed, it has each
limit.
"""

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "dashboard"), str(TESTS / "httpbin")]
from browser import chromium
from harness import PATIENCE_SECONDS, Tally, give_up_after

SECONDS = 180
WIDTHS, THEMES = (1280, 390), ("light", "dark")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
MAX_BYTES = 300_000
LIMITS = {
    "core": {"per": "client.ip", "rate": "60/hour"},
    "burst": {"per": "client.ip", "rate": "5/minute"},
    "daily": {"per": "client.ip", "rate": "300/day", "mode": "shadow"},
}
POLICY = {
    "version": 1,
    "upstreams": {"api": {"servers": ["http://127.0.0.1:1"]}},
    "limits": LIMITS,
    "routes": [{"match": {"path": "/**"}, "upstream": "api", "limits": list(LIMITS)}],
}
HOSTILE = "/<img/src=x/onerror=window.harmed=1>'&amp;\\x1b[31m"
# Of these callers, the last ones ask most.
CALLERS, HOURS = 50, 6


def lines():
    """A log in the common format, in order, and lines that are none."""
    for minute in range(HOURS * 60):
        stamp = f"01/Mar/2026:{minute // 60:02}:{minute % 60:02}"
        for caller in range(CALLERS):
            # From one an hour up to ten a minute.
            times = 10 if caller == CALLERS - 1 else int(minute % (CALLERS + 10 - caller) == 0)
            for second in range(times):
                path = HOSTILE if caller == CALLERS - 1 else f"/v1/items/{minute}"
                yield f'192.0.2.{caller} - - [{stamp}:{second:02} +0000] "GET {path} HTTP/1.1" 200 12'
        if minute % 100 == 0:
            yield f"no line <script>window.harmed=1</script> {minute}"


def simulate(binary, folder, tally):
    """The page, or none."""
    policies = folder / "policies"
    policies.mkdir()
    (policies / "api.yaml").write_text(json.dumps(POLICY))
    log, page = folder / "access.log", folder / "report.html"
    log.write_text("\n".join(lines()) + "\n")
    command = [binary, "simulate", "--policy", policies, "--log", log, "--html", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    is_good = done.returncode == 0 and page.exists()
    tally.record("a page is written", [] if is_good else [done.returncode, done.stderr])
    return page if is_good else None


def violations(page):
    """What axe-core finds."""
    found = page.run(
        f"axe.run(document, {{ runOnly: {json.dumps(RULES)} }}).then(result => result.violations"
        ".map(own => own.id + ' ' + own.nodes.map(node => node.target.join(' ')).join(', ')))"
    )
    return found or []


def note_requests(page):
    """From now on, the addresses that the page asks for are put into the list."""
    asked, note = [], page.note

    def noted(message):
        if message.get("method") == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
        note(message)

    page.note = noted
    page.send("Network.enable")
    return asked


def check_size(tally, file):
    """It can be sent by mail."""
    size = file.stat().st_size
    tally.record("the page is small", [] if size < MAX_BYTES else [size])


def check_looks(tally, page, file, axe, pictures):
    """Each theme and width, folded and unfolded: axe-core, no overflow, a picture."""
    # axe-core is put into a page that allows no script.
    page.send("Page.setBypassCSP", enabled=True)
    for width in WIDTHS:
        for theme in THEMES:
            page.look(width, theme)
            page.open(file.as_uri())
            for state in ("folded", "unfolded"):
                is_open = json.dumps(state == "unfolded")
                page.run(f"document.querySelectorAll('details').forEach(own => own.open = {is_open})")
                label = f"{width}, {theme}, {state}"
                over = page.run("document.documentElement.scrollWidth - innerWidth")
                tally.record(f"{label}: nothing is wider than the page", [] if over <= 0 else [over])
                if axe:
                    page.run(axe.read_text() + ";0")
                    tally.record(f"{label}: axe-core", violations(page))
                if pictures:
                    page.picture(pictures / f"report-{label.replace(', ', '-')}.png")
    page.send("Page.setBypassCSP", enabled=False)
    page.look(1280, "light")
    page.open(file.as_uri())


def check_content(tally, page):
    """What a person looks for is there, and a chart has its table."""
    for limit in LIMITS:
        row = f"[...document.querySelectorAll('.choice tbody tr')].some(own => own.cells[0].textContent.trim() === '{limit}')"
        tally.record(f"{limit} is in the table of suggestions", [] if page.run(row) else ["no"])
    charts, tables = page.run(
        "[document.querySelectorAll('.charts svg[role=img]').length, document.querySelectorAll('.charts figure table').length]"
    )
    good = charts == tables == len(LIMITS)
    tally.record("each limit has a chart and a table", [] if good else [charts, tables])
    regions = page.run("[...document.querySelectorAll('.scroll')].filter(own => own.tabIndex !== 0 || !own.ariaLabel).length")
    tally.record("regions that scroll take the focus", [] if regions == 0 else [regions])


def check_harmless(tally, page, asked):
    """Names and lines of the log are text, and nothing is fetched."""
    harmed = page.run("window.harmed ?? document.querySelectorAll('img, script, main a').length")
    tally.record("nothing of a name is run", [] if harmed == 0 else [harmed])
    shown = page.run("document.body.textContent.includes('no line <script>')")
    tally.record("a hostile line is shown as it is", [] if shown else ["no"])
    foreign = [url for url in asked if not url.startswith(("file:", "data:", "about:"))]
    tally.record("nothing comes from a network", foreign)
    tally.record("the page has no errors", page.errors)


def check_print(tally, page, folder):
    """Printed, nothing is folded or cut off, and each limit is in the file."""
    page.send("Emulation.setEmulatedMedia", media="print", features=[])
    # A page of A4 at 96 points an inch, without its margins.
    page.send("Emulation.setDeviceMetricsOverride", width=718, height=1046, deviceScaleFactor=1, mobile=False)
    hidden = page.run("[...document.querySelectorAll('details table')].filter(own => !own.checkVisibility({ contentVisibilityAuto: true })).length")
    tally.record("tables are unfolded on paper", [] if hidden == 0 else [hidden])
    cut = page.run(
        "[...document.querySelectorAll('svg.chart, table')]"
        ".filter(own => own.getBoundingClientRect().right > innerWidth + 1).map(own => own.outerHTML.slice(0, 90))"
    )
    tally.record("nothing is cut off on paper", cut)
    page.send("Emulation.clearDeviceMetricsOverride")
    page.send("Emulation.setEmulatedMedia", media="", features=[])
    # The outline of a PDF has the headings that were printed, in plain text.
    printed = page.send("Page.printToPDF", printBackground=True, generateTaggedPDF=True, generateDocumentOutline=True)
    data = base64.b64decode(printed["data"])
    (folder / "report.pdf").write_bytes(data)
    headings = b"\n".join(re.findall(rb"/Title \(((?:[^()\\]|\\.)*)\)", data)).decode(errors="replace")
    for limit in LIMITS:
        tally.record(f"{limit} is in the PDF", [] if f"{limit}, tier" in headings else [headings])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the page")
    parser.add_argument(
        "--axe", type=Path, default=os.environ.get("TOLLGATE_AXE"), help="axe-core's axe.min.js"
    )
    arguments = parser.parse_args()
    give_up_after(SECONDS)
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    axe = Path(arguments.axe) if arguments.axe else None
    if axe is None:
        print("axe-core is not here (--axe): accessibility is not judged")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="tollgate-") as name:
        folder = Path(name)
        if file := simulate(arguments.tollgate, folder, tally):
            check_size(tally, file)
            with chromium(tally) as browser, browser.page() as page:
                asked = note_requests(page)
                check_looks(tally, page, file, axe, arguments.pictures)
                check_content(tally, page)
                check_print(tally, page, folder)
                check_harmless(tally, page, asked)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
