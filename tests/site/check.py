"""Whether mdBook makes a site of docs/ whose links lead somewhere.

The site is built in a folder of its own, twice: as it is built without the repository's address, and with
one. Every page of docs/ is in its sidebar, in its search and in the one order of the contents; every link,
image, script and style leads to a file of the site, and every anchor to an element of its page. Links to
other files of the repository lead to files that are there. The binary under test is not used.
"""

import html.parser
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin")]
from harness import Tally, binary_under_test

ROOT = TESTS.parent
DOCS = ROOT / "docs"
MDBOOK = Path(sys.executable).with_name("mdbook")
SECONDS = 120
REPOSITORY = "https://repository.invalid/blob/main"
# Links of the sidebar are made by a script; this page has them without one.
SIDEBAR = "toc.html"
# What mdBook makes besides pages: all in one, and what is missing.
OTHERS = {"print.html", "404.html", SIDEBAR}


class Page(html.parser.HTMLParser):
    """What a page refers to, and what may be referred to."""

    def __init__(self, file):
        super().__init__()
        self.targets, self.ids = [], set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        for name in ("href", "src"):
            if attributes.get(name):
                self.targets.append(attributes[name])


def build(folder, repository):
    """Builds the site; returns what is wrong with that."""
    variables = os.environ | {"MDBOOK_PREPROCESSOR__OUTSIDE__REPOSITORY": repository}
    command = [MDBOOK, "build", DOCS, "--dest-dir", folder]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).splitlines()
    problems = [line for line in said if re.search(r"\b(WARN|ERROR)\b", line)]
    if done.returncode != 0:
        problems.append(f"mdbook ended with {done.returncode}: {said[-5:]}")
    return problems


def page_of(source):
    """The path in the site of a page's source, a path in docs/."""
    name = "index.html" if source.name == "README.md" else source.with_suffix(".html").name
    return (source.parent / name).as_posix()


def broken(name, target, site, pages):
    """What is wrong with a page's link; none: nothing."""
    parts = urllib.parse.urlsplit(target)
    if target.startswith(REPOSITORY):
        file = ROOT / urllib.parse.unquote(target.removeprefix(REPOSITORY + "/").partition("#")[0])
        return None if file.exists() else f"{name}: the repository has no {file}"
    if parts.scheme:
        return None if parts.scheme == "https" else f"{name}: {target} is of another scheme"
    path = os.path.normpath(Path(name).parent / urllib.parse.unquote(parts.path)) if parts.path else name
    if not (site / path).is_file():
        return f"{name}: {target} leads to no file"
    anchor = urllib.parse.unquote(parts.fragment)
    if anchor and path in pages and anchor not in pages[path].ids:
        return f"{name}: {target} leads to no heading"
    return None


def check(site, tally, label):
    """Everything that a built site refers to."""
    files = [file.relative_to(site).as_posix() for file in site.rglob("*.html")]
    pages = {name: Page(site / name) for name in files}
    followed = 0
    # Links of the missing page are from the root of the server that has the site.
    for name in sorted(set(pages) - {"404.html"}):
        targets = pages[name].targets
        followed += len(targets)
        problems = [broken(name, target, site, pages) for target in targets]
        tally.record(f"{label}: links of {name}", list(filter(None, problems)))
    few = [] if followed > 1000 else [f"{followed} were followed"]
    tally.record(f"{label}: all links were followed", few)

    sources = {file.relative_to(DOCS) for file in DOCS.rglob("*.md")} - {Path("SUMMARY.md")}
    expected = {page_of(source) for source in sources}
    shown = set(files) - OTHERS
    tally.record(f"{label}: every page of docs/ is in the contents", sorted(expected ^ shown))
    listed = {target for target in pages[SIDEBAR].targets if target.endswith(".html")}
    tally.record(f"{label}: the sidebar has every page", sorted(expected ^ listed))
    (index,) = site.glob("searchindex*.js")
    text = index.read_text()
    lacking = [name for name in sorted(expected) if f'"{name}#' not in text]
    tally.record(f"{label}: the search has every page", lacking)
    theme = (site / "index.html").read_text()
    dark = [] if 'default_dark_theme = "navy"' in theme else ["it is not named"]
    tally.record(f"{label}: there is a dark theme for those who prefer it", dark)
    return [target for page in pages.values() for target in page.targets]


def main():
    binary_under_test(__doc__, SECONDS)
    tally = Tally()
    for label, repository in [("alone", ""), ("with a repository", REPOSITORY)]:
        with tempfile.TemporaryDirectory(prefix="tollgate-site-") as folder:
            site = Path(folder) / "site"
            problems = build(site, repository)
            tally.record(f"{label}: mdbook builds it without a warning", problems)
            if problems:
                continue
            outside = [target for target in check(site, tally, label) if REPOSITORY in target]
            right = bool(outside) == bool(repository)
            tally.record(f"{label}: links to the repository", [] if right else outside[:3] or ["none"])
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
