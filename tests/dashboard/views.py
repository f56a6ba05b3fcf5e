"""The dashboard in a real browser, before a real proxy under real requests.

The figures are those that a client has counted; a reset there lets a denied caller through; two
themes and two widths, with axe-core; by keyboard alone; callers with hostile names; pages of other
origins; a process that halts, ends and comes back; tokens.
"""

import argparse
import contextlib
import http.client
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "edge")]
from browser import FOREIGN_NAME, chromium
from harness import give_up_after, stop, wait_until_listening
from stage import PATIENCE_SECONDS, Plan, Tally, api, bearer, proxy

SECONDS = 240
READ, WRITE = "a-token-to-read-with", "a-token-to-act-with"
HOSTILE = "<img src=x onerror=window.harmed=1>'\"&\\"
ALLOWED, DENIED, SHADOWED, ERRORS = 20, 10, 18, 3
VIEWS = ("now", "limits", "callers", "callers/user%3Aheavy", "denials", "system")
WIDTHS, THEMES = (1280, 390), ("light", "dark")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LIMITS = {
    "core": {"per": "caller", "rate": f"{ALLOWED}/hour", "candidate": {"rate": "12/hour"}},
    "burst": {"per": "caller", "rate": "2/hour", "mode": "shadow"},
}


def routes():
    """All requests but those to a server that is away."""
    away = {"match": {"path": "/away"}, "upstream": "away", "auth": "optional", "limits": []}
    rest = {"match": {"path": "/**"}, "upstream": "api", "auth": "optional"}
    return [away, rest | {"limits": ["core", "burst"]}]


def plan(server, **more):
    """A limit, one that only counts, and an upstream that is away."""
    upstreams = {"api": {"servers": [server]}, "away": {"servers": ["http://127.0.0.1:1"]}}
    why = {"caller": "user:guest", "limit": "core", "rate": "50/hour", "why": "a test"}
    policy = {"upstreams": upstreams, "overrides": [why]}
    return Plan([], limits=LIMITS, routes=routes(), policy=policy, **more)


def send(port, path="/get", subject=None, method="GET", headers=None, body=None):
    """Status and text of a response."""
    headers = dict(headers or {})
    if subject is not None:
        headers["authorization"] = bearer(subject)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def used(admin, caller):
    """Units of `core` that a caller has used, as the proxy tells."""
    report = json.loads(send(admin, f"/callers/{caller}?limit=core")[1])
    return report["policies"][0]["limits"][0]["windows"][0]["used"]


def text(page, selector):
    """Of the first element that fits."""
    return page.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")


def cell(limit, column, mode="live"):
    """An expression: the text of a cell of the table of limits."""
    return (
        "[...document.querySelectorAll('#limits-table tbody tr')]"
        f".find(row => row.cells[0].textContent.startsWith('{limit}') && row.textContent.includes('{mode}'))"
        f"?.querySelector('[data-label=\"{column}\"]')?.textContent"
    )


def expect(tally, name, page, expression, expected):
    """An expression comes to have a value."""
    wanted = f"({expression}) === {json.dumps(expected)}"
    found = page.until(wanted)
    tally.record(name, [] if found else [f"{page.run(expression)!r} is not {expected!r}"])


def go(page, view):
    """Another view of the page that is open."""
    page.run(f"location.hash = '#{view}'")


def watch(page, admin):
    """Opens the dashboard."""
    page.open(f"http://127.0.0.1:{admin}/")
    return page.until("document.querySelector('.state.live') !== null")


def check_figures(tally, page, on):
    """What a client has counted is on the page."""
    statuses = [send(on.port, subject="heavy")[0] for _ in range(ALLOWED + DENIED)]
    counted = [statuses.count(200), statuses.count(429)]
    tally.record("the client is denied", [] if counted == [ALLOWED, DENIED] else [counted])
    errors = [send(on.port, "/away")[0] for _ in range(ERRORS)]
    tally.record("a server is away", [] if min(errors) >= 500 else [errors])
    requests = ALLOWED + DENIED + ERRORS
    for name, expected in [
        ("rate", f"{requests} since the start"),
        ("denied", f"{DENIED} since the start"),
        ("would", f"{SHADOWED} since the start"),
        ("errors", f"{ERRORS} since the start"),
    ]:
        at = f"document.getElementById('under-{name}').textContent"
        expect(tally, f"figure {name}", page, at, expected)
    go(page, "limits")
    for limit, column, mode, expected in [
        ("core", "Allowed", "live", ALLOWED),
        ("core", "Denied", "live", DENIED),
        ("core", "Allowed", "candidate", 12),
        ("core", "Callers > 80 %", "live", 1),
        ("burst", "Allowed", "shadow", 2),
    ]:
        at = cell(limit, column, mode)
        expect(tally, f"{column} of {limit} ({mode})", page, at, str(expected))
    would = cell("burst", "Would deny", "shadow")
    tally.record("the shadow would deny", [] if int(page.run(would)) > 0 else [page.run(would)])
    body = "document.querySelector('#overrides tbody').textContent"
    expect(tally, "the override", page, f"{body}.includes('user:guest')", True)
    go(page, "callers")
    # The shadow would have denied more.
    count = (
        "[...document.querySelectorAll('#top-denials tbody tr')]"
        ".find(row => row.cells[1].textContent === 'core')?.querySelector('.bar-cell span').textContent"
    )
    expect(tally, "the caller that is denied most", page, count, str(DENIED))
    # The sum of the chart's figures, as its table has them: requests a second, of minutes.
    go(page, "now")
    page.run("document.querySelector('figcaption button').click()")
    rows = "document.querySelectorAll('figure tbody tr').length > 0"
    expect(tally, "the chart's table", page, rows, True)
    page.run("document.querySelector('figcaption button').click()")


def check_reset(tally, page, on):
    """Through the page, a denied caller gets through again."""
    denied = send(on.port, subject="heavy")[0]
    go(page, "callers/user%3Aheavy")
    page.until("document.querySelector('[aria-label=\"Reset core\"]') !== null")
    left = "document.querySelector('#caller-policies [data-label=Used]')?.textContent"
    expect(tally, "the caller's use", page, left, f"{ALLOWED} of {ALLOWED}")
    denials = "document.querySelectorAll('#caller-denials tbody tr').length"
    expect(tally, "the caller's last denials", page, f"{denials} > 0", True)
    times = "[...document.querySelectorAll('#caller-denials [data-label=Times]')]"
    grouped = f"{times}.some(own => Number(own.textContent) > 1)"
    expect(tally, "repeated ones are grouped", page, grouped, True)
    explain = text(page, "#explain")
    problems = [] if "tollgate explain" in explain and '{"sub":"heavy"}' in explain else [explain]
    tally.record("the command to paste", problems)
    page.run("document.querySelector('[aria-label=\"Reset core\"]').click()")
    who = text(page, "#reset-who")
    tally.record("the dialog names the caller", [] if who == "user:heavy" else [who])
    page.run("document.getElementById('reset-do').click()")
    still_open = page.run("document.getElementById('reset').open")
    tally.record("a reset needs a reason", [] if still_open else ["it was sent"])
    page.type("a test of the dashboard")
    page.run("document.getElementById('reset-do').click()")
    done = "document.getElementById('caller-done').textContent"
    expect(tally, "the page says that it is done", page, done, "main/core was reset.")
    status = send(on.port, subject="heavy")[0]
    problems = [] if (denied, status) == (429, 200) else [denied, status]
    tally.record("the caller gets through", problems)


def check_denials(tally, page, on):
    """Live, by filter, and paused."""
    go(page, "denials")
    rows = "document.querySelectorAll('#denials-table tbody tr').length"
    page.until(f"{rows} > 0")
    before = page.run(rows)
    send(on.port, subject="heavy", path="/one-of-a-kind")
    expect(tally, "a denial comes live", page, rows, before + 1)
    page.run("document.getElementById('filter').focus()")
    page.type("one-of-a-kind")
    expect(tally, "the filter", page, rows, 1)
    page.run("document.getElementById('pause').click()")
    send(on.port, subject="heavy", path="/one-of-a-kind")
    waiting = "/paused, 1 have come since/.test(document.getElementById('denials-state').textContent)"
    expect(tally, "what comes while it is paused is counted", page, waiting, True)
    expect(tally, "and not shown", page, rows, 1)
    page.run("document.getElementById('pause').click()")
    expect(tally, "it goes on, counted up", page, rows, 1)
    times = "document.querySelector('#denials-table [data-label=Times]').textContent"
    expect(tally, "how often", page, times, "2")
    page.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    choose = "const d = document.getElementById('decision'); d.value = '{}'; d.dispatchEvent(new Event('input'))"
    page.run(f"{{ {choose.format('deny')} }}")
    only = "[...document.querySelectorAll('#denials-table .tag')].every(tag => tag.textContent === 'denied 429')"
    expect(tally, "only what was denied", page, only, True)
    page.run(f"{{ {choose.format('')} }}")


def check_refused(tally, page, on):
    """A configuration that is refused is told where it is wrong, until a good one comes."""
    go(page, "now")
    file = on.folder / "policies" / "main.yaml"
    good = file.read_text()
    told = "document.getElementById('alerts').textContent"
    file.write_text(good + "\nno_such_section: 1\n")
    shown = f"{told}.includes('was refused') && {told}.includes('no_such_section')"
    expect(tally, "a refused configuration is told with its problems", page, shown, True)
    go(page, "system")
    place = "document.getElementById('config-problems').textContent.includes('main.yaml:')"
    expect(tally, "and where they are", page, place, True)
    file.write_text(good)
    go(page, "now")
    expect(tally, "until a good one comes", page, f"{told}.includes('was refused')", False)


def check_hostile(tally, page, on):
    """A caller that is called like HTML is text everywhere."""
    for _ in range(ALLOWED + 2):
        send(on.port, subject=HOSTILE)
    name = f"user:{HOSTILE}"
    encoded = "encodeURIComponent(" + json.dumps(name) + ")"
    for view, place in [("'callers'", "#top-denials"), ("'denials'", "#denials-table"), (f"'callers/' + {encoded}", "#caller-name")]:
        page.run(f"location.hash = '#' + {view}")
        shown = f"document.querySelector('{place}').textContent.includes({json.dumps(name)})"
        expect(tally, f"the name is in {place}", page, shown, True)
    left = "document.querySelector('#caller-policies [data-label=Used]')?.textContent"
    expect(tally, "and can be looked at", page, left, f"{ALLOWED} of {ALLOWED}")
    harmed = page.run("window.harmed ?? document.querySelectorAll('main img').length")
    tally.record("nothing of it was run", [] if harmed == 0 else [harmed])


def check_looks(tally, page, axe, pictures):
    """Each view in each theme and width: axe-core, no overflow, a picture."""
    if axe:
        page.run(axe.read_text() + ";0")
    for view in VIEWS:
        for width in WIDTHS:
            for theme in THEMES:
                page.look(width, theme)
                go(page, view)
                shown = "#" + ("caller-page" if "/" in view else view)
                page.until(f"!document.querySelector('{shown}').hidden && document.querySelector('{shown} td') !== null")
                label = f"{view.replace('/', ' ').replace('%3A', ':')} at {width}, {theme}"
                over = page.run("document.documentElement.scrollWidth - innerWidth")
                tally.record(f"{label}: nothing is wider than the page", [] if over <= 0 else [over])
                if axe:
                    tally.record(f"{label}: axe-core", violations(page))
                if pictures:
                    page.picture(pictures / f"{label.replace(' ', '-').replace(',', '').replace(':', '-')}.png")
    page.look(1280, "light")


def violations(page):
    """What axe-core finds."""
    found = page.run(
        f"axe.run(document, {{ runOnly: {json.dumps(RULES)} }}).then(result => result.violations"
        ".map(own => own.id + ' ' + own.nodes.map(node => node.target.join(' ')).join(', ')))"
    )
    return found or []


def walk(page, expression, most=60):
    """Presses Tab until what has the focus fits. What has it must show that."""
    for _ in range(most):
        page.key("Tab")
        if page.run(f"(own => {expression})(document.activeElement)"):
            return page.run(
                "document.activeElement.matches(':focus-visible')"
                " && getComputedStyle(document.activeElement).outlineStyle !== 'none'"
            )
    return False


def check_keyboard(tally, page, on):
    """From the address line to a reset without a mouse."""
    while send(on.port, subject="keys")[0] != 429:
        pass
    page.open("about:blank")
    watch(page, on.admin)
    steps = []
    steps.append(("the skip link", walk(page, "own.matches('.skip')", 2)))
    steps.append(("the view", walk(page, "own.matches('nav a') && own.hash === '#callers'")))
    page.key("Enter")
    page.until("[...document.querySelectorAll('#top-denials a')].some(own => own.textContent === 'user:keys')")
    steps.append(("focus is on the heading", page.run("document.activeElement.matches('#callers h1')")))
    steps.append(("the caller", walk(page, "own.closest('#top-denials') && own.textContent === 'user:keys'")))
    page.key("Enter")
    page.until("document.querySelector('[aria-label=\"Reset core\"]') !== null")
    steps.append(("the button", walk(page, "own.getAttribute('aria-label') === 'Reset core'")))
    page.key("Enter")
    steps.append(("the reason has the focus", page.run("document.activeElement.id === 'why'")))
    page.key("Escape")
    steps.append(("Escape closes", page.until("!document.getElementById('reset').open")))
    back = "document.activeElement.getAttribute('aria-label') === 'Reset core'"
    steps.append(("focus is where it was", page.run(back)))
    page.key("Enter")
    page.type("by keyboard")
    page.key("Enter")
    done = page.until("document.getElementById('caller-done').textContent.includes('was reset')")
    steps.append(("it is reset", done))
    steps.append(("the caller gets through", send(on.port, subject="keys")[0] == 200))
    # Back, as a link in the browser's history.
    page.run("window.history.back()")
    steps.append(("the way back", page.until("!document.getElementById('callers').hidden")))
    for name, is_good in steps:
        tally.record(f"by keyboard: {name}", [] if is_good else ["no"])


class Foreign(http.server.BaseHTTPRequestHandler):
    """A page of another origin."""

    def do_GET(self):
        """Any path."""
        page = b"<!doctype html><title>foreign</title><body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        """Nothing."""


@contextlib.contextmanager
def foreign_server():
    """Serves such a page, and gives its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


# What a page may try: to read, by all means that there are, and to act.
READING = """Promise.all(['/status', '/events', '/history', '/callers/user%3Aforeign'].map(path =>
  fetch(ADMIN + path).then(answer => answer.ok ? answer.text().then(text => 'read ' + path) : null, () => null)))
  .then(all => all.filter(Boolean))"""
ACTING = """Promise.all([
  {}, { mode: 'no-cors' }, { headers: { 'x-tollgate-action': '1' } }, { headers: { 'content-type': 'application/json' } },
  { mode: 'no-cors', headers: { 'content-type': 'text/plain' } }, { credentials: 'include' },
].map(more => fetch(ADMIN + '/callers/user%3Aforeign/reset', { method: 'POST', body: '{"why": "harm"}', ...more })
  .then(answer => answer.ok && 'acted', () => null))).then(all => all.filter(Boolean))"""
FORM = """new Promise(done => { const frame = document.createElement('iframe'); frame.name = 'frame';
  frame.onload = () => done(0); document.body.append(frame); const form = document.createElement('form');
  Object.assign(form, { action: ADMIN + '/callers/user%3Aforeign/reset', method: 'post', enctype: 'text/plain', target: 'frame' });
  document.body.append(form); form.submit(); setTimeout(done, 2000, 0); })"""
FRAME = """new Promise(done => { const frame = document.createElement('iframe'); frame.src = ADMIN + '/';
  frame.onload = () => { let found = ''; try { found = frame.contentDocument?.title ?? ''; } catch {} done(found); };
  document.body.append(frame); setTimeout(done, 3000, ''); })"""


def check_origins(tally, browser, on):
    """Pages of another port, another site, and a name that leads here can neither read nor act."""
    for _ in range(5):
        send(on.port, subject="foreign")
    with foreign_server() as port, browser.page() as page:
        for origin in (f"http://127.0.0.1:{port}", f"http://{FOREIGN_NAME}:{port}"):
            page.open(origin)
            title = page.run("document.title")
            tally.record(f"{origin} is a page", [] if title == "foreign" else [title])
            for name, script in [("read", READING), ("act", ACTING), ("act by a form", FORM), ("frame", FRAME)]:
                admin = json.dumps(f"http://127.0.0.1:{on.admin}")
                found = page.run(f"(ADMIN => {script})({admin})")
                tally.record(f"{origin} cannot {name}", [found] if found else [])
        # DNS rebinding: the page's own origin leads to the admin listener.
        page.open(f"http://{FOREIGN_NAME}:{on.admin}/")
        body = page.run("document.body.textContent")
        tally.record("a rebound name gets no page", [] if "admin.hosts" in body else [body])
        for name, script in [("read", READING), ("act", ACTING)]:
            found = page.run(f"(ADMIN => {script})('')")
            tally.record(f"a rebound name cannot {name}", [found] if found else [])
    left = used(on.admin, "user%3Aforeign")
    tally.record("nothing was reset", [] if left == 5 else [left])


def beginning(admin, end):
    """A connection to the events, and what comes there until `end` has come."""
    connection = socket.create_connection(("127.0.0.1", admin), timeout=PATIENCE_SECONDS)
    connection.sendall(b"GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    received = b""
    while end not in received and (more := connection.recv(65536)):
        received += more
    return connection, received


def check_listeners(tally, on):
    """The seventeenth is told why not."""
    with contextlib.ExitStack() as listening:
        # The page that is open listens too.
        for number in range(2, 17):
            connection, received = beginning(on.admin, b"event: live")
            listening.enter_context(connection)
            good = received.startswith(b"HTTP/1.1 200") and b"event: live" in received
            tally.record(f"listener {number}", [] if good else [received])
        connection, received = beginning(on.admin, b"}")
        listening.enter_context(connection)
        good = received.startswith(b"HTTP/1.1 503") and b"16 clients listen already" in received
        tally.record("listener 17 is told why not", [] if good else [received])
        status = send(on.admin, "/healthz")[0]
        tally.record("others are still answered", [] if status == 200 else [status])


def check_stopping(tally, page, on):
    """A process that halts, ends, and comes back."""
    shown = "document.getElementById('lost').hidden"
    words = "document.getElementById('lost').textContent.includes('does not answer since')"
    go(page, "now")
    on.process.send_signal(signal.SIGSTOP)
    expect(tally, "a process that halts is noticed", page, f"!{shown} && {words}", True)
    on.process.send_signal(signal.SIGCONT)
    expect(tally, "and that it goes on", page, shown, True)
    on.process.send_signal(signal.SIGKILL)
    on.process.wait()
    expect(tally, "a process that has ended is noticed", page, f"!{shown} && {words}", True)
    again = subprocess.Popen(on.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_listening("tollgate", again, on.port)
        expect(tally, "and that another is there", page, shown, True)
        since = "document.getElementById('under-rate').textContent"
        expect(tally, "with figures of its own", page, since, "0 since the start")
    finally:
        stop(again)


def check_tokens(tally, browser, binary, server):
    """With tokens: the page asks for the one to read, and for the other one when it acts."""
    files = {"read": READ.encode(), "write": WRITE.encode()}
    admin = {"auth": {"read_token_file": "read", "write_token_file": "write"}}
    with proxy(binary, plan(server, files=files, admin=admin), tally) as on, browser.page() as page:
        while send(on.port, subject="heavy")[0] != 429:
            pass
        page.open(f"http://127.0.0.1:{on.admin}/#callers/user%3Aheavy")
        asked = "!document.getElementById('login').hidden"
        expect(tally, "the page asks for a token", page, asked, True)
        expect(tally, "and shows nothing else", page, "[...document.querySelectorAll('.view')].every(own => own.hidden)", True)
        page.until("document.activeElement.id === 'token'")
        page.type("wrong")
        page.key("Enter")
        expect(tally, "a wrong one is refused", page, "document.getElementById('login-error').textContent", "the token is not valid")
        page.run("document.getElementById('token').focus()")
        page.type(READ)
        page.key("Enter")
        page.until("document.querySelector('[aria-label=\"Reset core\"]') !== null")
        expect(tally, "the right one opens it where the link leads", page, f"!({asked}) && !document.getElementById('caller-page').hidden", True)
        kept = page.run("[sessionStorage.length, localStorage.length, document.cookie, location.href.includes('token')]")
        tally.record("it is kept in the tab only", [] if kept == [1, 0, "", False] else [kept])
        page.run("document.querySelector('[aria-label=\"Reset core\"]').click()")
        page.type("a test")
        page.run("document.getElementById('reset-do').click()")
        expect(tally, "acting asks for the other one", page, "!document.getElementById('act').hidden && document.activeElement.id === 'act-token'", True)
        page.type(WRITE)
        page.run("document.getElementById('reset-do').click()")
        expect(tally, "which acts", page, "document.getElementById('caller-done').textContent", "main/core was reset.")
        status = send(on.port, subject="heavy")[0]
        tally.record("and the caller gets through", [] if status == 200 else [status])


def check(binary, tally, server, axe, pictures):
    """All of it."""
    with chromium(tally) as browser:
        with proxy(binary, plan(server), tally) as on, browser.page() as page:
            tally.record("the page is live", [] if watch(page, on.admin) else [page.errors])
            check_figures(tally, page, on)
            check_reset(tally, page, on)
            check_denials(tally, page, on)
            check_refused(tally, page, on)
            check_looks(tally, page, axe, pictures)
            check_hostile(tally, page, on)
            check_keyboard(tally, page, on)
            check_origins(tally, browser, on)
            check_listeners(tally, on)
            tally.record("the page has no errors", page.errors)
            with contextlib.suppress(RuntimeError):
                check_stopping(tally, page, on)
        check_tokens(tally, browser, binary, server)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of each view")
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
    with api(tally) as port:
        check(arguments.tollgate, tally, f"http://127.0.0.1:{port}", axe, arguments.pictures)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
