"""The story of docs/choosing-limits.md, from a log to a limit that denies: its commands are run in
their order, and print what the page shows.

Of the page it takes the commands and what they print (`…` stands for anything, on a line of its own
for any lines), the settings, and the limit with a candidate. It makes the access log of the page, the
API behind the proxy, and the traffic, whose clients a trusted proxy names. All that it counts is known
beforehand. Besides Python it needs a shell with sed, grep and curl.
"""

import collections
import contextlib
import datetime
import http.client
import http.server
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import threading
from html.parser import HTMLParser
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "disk")]
from store import (
    PATIENCE_SECONDS,
    Tally,
    binary_under_test,
    eventually,
    free_port,
    wait_until_listening,
)

PAGE = TESTS.parent / "docs" / "choosing-limits.md"
STORY = "The way, step by step"
SECONDS = 120
# What the page calls the listeners.
LISTENER, ADMIN = "127.0.0.1:8080", "127.0.0.1:9901"
READERS = ("203.0.113.50", "203.0.113.77")
# What the suggestion allows a caller in a minute, and what the two readers of the catalogue send in
# production.
A_MINUTE = 10
SENT = (60, 20)
WOULD_DENY = sum(sent - A_MINUTE for sent in SENT)
# Callers that are each over the limit by so much when it is enforced for some of them.
CROWD, OVER = 40, 3


def write_access_log(file):
    """The log of a shop, of the combined format: 2,100 customers, two programs that read all of the
    catalogue, and a line that was cut off. The same one each time."""
    chance = random.Random(19)
    below = lambda most: int(chance.random() * most)
    pause = lambda mean: int(-math.log(1 - chance.random()) * mean)
    requests = []
    for number in range(2100):
        client = f"198.18.{number // 250}.{number % 250 + 1}"
        agent = ("shop-android/4.1", "shop-ios/4.0", "Mozilla/5.0 Firefox/140.0")[below(3)]
        for _ in range(1 + below(2)):
            at = below(6 * 3600 - 600)
            for _ in range(min(25, 1 + pause(3.5))):
                requests.append((at, client, *customer_request(below), agent))
                at += 1 + pause(15)
    first, second = READERS
    for client, begin, count, a_minute in ((first, 7200, 900, 75), (second, 12600, 240, 40)):
        for page in range(count):
            at, target = begin + page * 60 // a_minute, f"/v1/catalogue?page={page}"
            requests.append((at, client, "GET", target, 200, "python-requests/2.32"))
    requests.sort(key=lambda request: request[0])
    start = datetime.datetime(2026, 11, 19, 8, tzinfo=datetime.timezone.utc)
    with file.open("w") as log:
        for at, client, method, target, status, agent in requests:
            time = (start + datetime.timedelta(seconds=at)).strftime("%d/%b/%Y:%H:%M:%S +0000")
            request = f'"{method} {target} HTTP/1.1" {status} 512 "-" "{agent}"'
            log.write(f"{client} - - [{time}] {request}\n")
        log.write("198.18.0.9 - - [19/Nov/2026:14:0\n")
    return collections.Counter(client for _, client, *_ in requests)


def customer_request(below):
    """Method, target and status."""
    kind, item = below(1000), 1000 + below(8000)
    if kind < 500:
        return "GET", f"/v1/items/{item}", 404 if item % 30 == 0 else 200
    if kind < 985:
        return "GET", f"/v1/search?q=word{item % 70}", 200
    return "POST", "/v1/orders", 201


class Page:
    """What the page says."""

    def __init__(self, file):
        text = file.read_text()
        _, text = text.split(f"\n## {STORY}\n")
        self.text = text.split("\n## ")[0]
        self.fences = re.findall(r"^```(.*?)\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL)

    def commands(self):
        """The commands in blocks, each with what it is shown to print; none: that is not shown."""
        commands, empty = [], 0
        prose = re.sub(r"^```.*?^```", "-", self.text, flags=re.MULTILINE | re.DOTALL)
        for line in prose.splitlines():
            if line.startswith("    $ "):
                commands.append((line[6:], []))
            elif line.startswith("    "):
                # Lines that are empty end a block only at its end.
                commands[-1][1].extend([""] * empty + [line[4:]])
            empty = empty + 1 if not line else 0
        return commands

    def fence(self, info, text):
        """The block of this kind that has the text."""
        return next(block for kind, block in self.fences if kind == info and text in block)


def differences(shown, printed):
    """Lines that are shown and not printed in this order."""
    at, is_free, printed = 0, False, printed.splitlines()
    for line in shown:
        if line.strip() == "…":
            is_free = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("…"))))
        reach = printed[at:] if is_free else printed[at : at + 1]
        found = next((n for n, one in enumerate(reach) if pattern.fullmatch(one.rstrip())), None)
        if found is None:
            return [f"not printed: {line}", "printed instead:", *printed[at : at + 10]]
        at, is_free = at + found + 1, False
    left = [] if is_free else printed[at:]
    return [f"printed and not shown: {line}" for line in left[:5]]


class Server(http.server.BaseHTTPRequestHandler):
    """The API behind the proxy."""

    protocol_version = "HTTP/1.1"
    # Head and body leave together.
    wbufsize = -1

    def do_GET(self):
        """Answers with little."""
        self.send_response(200)
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"{}\n")

    def log_message(self, *_arguments):
        """Says nothing."""


@contextlib.contextmanager
def api():
    """Runs the API, and gives its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class Tables(HTMLParser):
    """What there is in a page of HTML: its tags, and addresses that it would load from."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads = collections.Counter(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Counts it."""
        self.tags[tag] += 1
        addresses = [value or "" for name, value in attrs if name in ("src", "href")]
        self.loads += [address for address in addresses if "//" in address]


class Story:
    """The folder in which all of it happens."""

    def __init__(self, binary, folder, api_port, tally):
        self.folder, self.tally, self.api_port = folder, tally, api_port
        self.page = Page(PAGE)
        self.listener, self.admin = free_port(), free_port()
        self.process = None
        self.sent = 0
        (folder / "bin").mkdir()
        (folder / "bin" / "tollgate").symlink_to(Path(binary).resolve())
        (folder / "policies").mkdir()
        (folder / "secret").write_text("not much of a secret, but always the same\n")
        (folder / "secret").chmod(0o600)
        self.clients = write_access_log(folder / "access.log")
        # What happens before and after commands that begin so: each once, in the order of the page.
        self.before = [
            ("tollgate check policies", self.see_policy),
            ("tollgate run", self.start),
            ("grep -c", self.see_shadow),
            ("tollgate simulate --log tollgate.log", self.see_answers),
            ("tollgate check tollgate.yaml", self.take_candidate),
        ]
        self.after = [
            ("tollgate simulate --log access.log --policy next --html", self.see_html),
            ("tollgate reload", self.see_some_denied),
            ("tollgate reload", self.see_all_denied),
        ]

    def sh(self, command):
        """Runs a command as a shell would; its exit code and what it prints."""
        command = f'PATH="$PWD/bin:$PATH"\n{self.placed(command)}'
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def placed(self, text):
        """The text with the ports that are free here."""
        text = text.replace(LISTENER, f"127.0.0.1:{self.listener}")
        return text.replace(ADMIN, f"127.0.0.1:{self.admin}")

    def follow(self):
        """Runs the commands of the page."""
        for command, shown in self.page.commands():
            self.take_step(self.before, command)
            if not command.startswith("tollgate run"):
                code, printed, errors = self.sh(command)
                problems = [f"exit code {code}: {errors}"] if code else []
                if shown:
                    shown = self.placed("\n".join(shown)).splitlines()
                    problems += differences(shown, printed)
                self.tally.record(command, problems)
            self.take_step(self.after, command)
        self.check("the page has all steps", [start for start, _ in self.before + self.after], [])

    @staticmethod
    def take_step(steps, command):
        """Takes the next step that belongs to the command, if there is one."""
        for at, (start, step) in enumerate(steps):
            if command.startswith(start):
                del steps[at]
                step()
                return

    def check(self, name, got, expected):
        """One check of two values."""
        self.tally.record(name, [] if got == expected else [f"{got} in place of {expected}"])

    def simulate(self, *logs, policy="tollgate.yaml"):
        """The answers as JSON."""
        code, printed, errors = self.sh(
            f"tollgate simulate --log {' '.join(logs)} --policy {policy} --json"
        )
        if code:
            raise RuntimeError(f"tollgate simulate ended with {code}: {errors}")
        return json.loads(printed)

    def see_policy(self):
        """What was suggested fits the log."""
        policy = (self.folder / "policies" / "api.yaml").read_text()
        requests, callers = self.clients.total(), len(self.clients)
        for part in (
            f"# {requests} requests, {callers} callers;",
            "/v1/items/{a}",
            f"rate: [{A_MINUTE}/minute, ",
        ):
            self.check(f"the suggestion has {part}", part in policy, True)
        modes = re.findall("^    mode: (.*)", policy, re.MULTILINE)
        self.check("each limit is a shadow", set(modes), {"shadow"})
        answers = self.simulate("access.log", policy="policies/api.yaml")
        outcome = answers["outcome"]
        self.check("all requests are judged", outcome["requests"], requests)
        self.check("all callers are counted", outcome["callers"], callers)
        self.check("one line is bad", answers["read"]["bad"], 1)
        self.check("a shadow denies nobody", outcome["denied"], 0)
        self.check("it would deny somebody", outcome["would_deny"] > 0, True)
        (self.folder / "policies" / "api.yaml").write_text(
            policy.replace("http://127.0.0.1:9000", f"http://127.0.0.1:{self.api_port}")
        )

    def see_html(self):
        """The page of HTML has charts and tables, and needs nothing from elsewhere."""
        file = self.folder / "report.html"
        page = Tables(file.read_text())
        self.check("it has charts", page.tags["svg"] > 0 and page.tags["table"] > 0, True)
        self.check("it loads nothing", page.loads + ["script"] * page.tags["script"], [])
        self.check("it is small", file.stat().st_size < 300_000, True)

    def start(self):
        """The proxy, with the settings of the page, and the traffic of a moment."""
        settings = self.placed(self.page.fence("yaml settings", "facts: true"))
        (self.folder / "tollgate.yaml").write_text(
            f"{settings}trusted_proxies: [127.0.0.1/32]\nstore: {{ key_secret_file: secret }}\n"
        )
        command = [str(self.folder / "bin" / "tollgate"), "run", "--config", "tollgate.yaml"]
        opened = [(self.folder / name).open("wb") for name in ("tollgate.log", "events")]
        with opened[0] as log, opened[1] as events:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=events
            )
        wait_until_listening("tollgate", self.process, self.listener)
        wait_until_listening("tollgate", self.process, self.admin)
        statuses = collections.Counter()
        for number in range(20):
            statuses.update(self.send(f"198.18.0.{number + 1}", f"/v1/items/{1000 + number}", 3))
        for reader, count in zip(READERS, SENT):
            statuses.update(self.send(reader, "/v1/catalogue?page=1", count))
        self.check("nobody is denied in shadow mode", statuses, {200: 60 + sum(SENT)})

    def send(self, client, target, count):
        """Sends requests of a client, and returns their statuses."""
        self.sent += count
        connection = http.client.HTTPConnection("127.0.0.1", self.listener, timeout=PATIENCE_SECONDS)
        statuses = []
        with contextlib.closing(connection):
            for _ in range(count):
                connection.request("GET", target, headers={"x-forwarded-for": client})
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
        return statuses

    def lines(self):
        """The lines of the proxy's log, once all have been written."""
        file = self.folder / "tollgate.log"
        eventually(lambda: file.read_bytes().count(b"\n") >= self.sent)
        return [json.loads(line) for line in file.read_text().splitlines()]

    def see_shadow(self):
        """Log and metrics count the same denials, of those who were over the limit."""
        lines = self.lines()
        self.check("each request has a line", len(lines), self.sent)
        would = collections.Counter(line["client"] for line in lines if line["would_deny"])
        expected = {reader: sent - A_MINUTE for reader, sent in zip(READERS, SENT)}
        self.check("the log says who would be denied", would, expected)
        self.check("each line has facts", [line for line in lines if "facts" not in line], [])
        self.check("metrics count them", self.decisions("core", "would_deny"), WOULD_DENY)
        self.check("and nothing was denied", self.decisions("core", "deny"), 0)

    def decisions(self, limit, decision):
        """How often a limit has decided so, as the metrics say."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            metrics = connection.getresponse().read().decode()
        samples = re.findall(r"^tollgate_limit_decisions_total\{(.*)\} (\d+)", metrics, re.MULTILINE)
        wanted = {f'limit="{limit}"', f'decision="{decision}"'}
        return sum(int(count) for labels, count in samples if wanted <= set(labels.split(",")))

    def see_answers(self):
        """The simulation of the proxy's own log counts what the proxy has counted."""
        answers = self.simulate("tollgate.log", policy="policies/api.yaml")
        outcome = answers["outcome"]
        self.check("it counts what the log says", outcome["would_deny"], WOULD_DENY)
        self.check("it judges all", outcome["requests"], self.sent)
        notes = [note for note in answers["notes"] if "facts" in note or "caller" in note]
        self.check("the log lacks nothing", notes, [])

    def take_candidate(self):
        """Writes the limit of the page in place of the one that was suggested."""
        file = self.folder / "policies" / "api.yaml"
        block = self.page.fence("yaml policy", "candidate:").split("limits:\n")[1]
        is_core = re.compile(r"^  core:\n(    .*\n)+", re.MULTILINE)
        changed = is_core.sub(lambda _: block, file.read_text(), count=1)
        file.write_text(changed)
        self.check("there is a candidate", "candidate:" in changed, True)

    def see_some_denied(self):
        """A tenth of the callers is denied what they use too much; those whom the simulation names."""
        written = len(self.lines())
        denied = set()
        for number in range(CROWD):
            client = f"198.18.100.{number + 1}"
            statuses = self.send(client, "/v1/orders", A_MINUTE + OVER)
            enforced = [200] * A_MINUTE + [429] * OVER
            if statuses == enforced:
                denied.add(client)
            else:
                self.check(f"{client} is spared", statuses, [200] * len(statuses))
        self.check("some are denied, and most are not", 0 < len(denied) < CROWD / 2, True)
        self.check("metrics say how many", self.decisions("core", "deny"), len(denied) * OVER)
        self.lines()
        log = (self.folder / "tollgate.log").read_text().splitlines(keepends=True)
        (self.folder / "crowd.log").write_text("".join(log[written:]))
        outcome = self.simulate("crowd.log")["outcome"]
        self.check("the simulation denies the same", outcome["denied"], len(denied) * OVER)
        self.check("and would deny the others", outcome["would_deny"], (CROWD - len(denied)) * OVER)

    def see_all_denied(self):
        """All are denied what they use too much: what they have used is kept."""
        for reader in READERS:
            statuses = self.send(reader, "/v1/catalogue?page=1", A_MINUTE + 1)
            self.check(f"{reader} is denied", statuses[-1], 429)
        statuses = self.send("198.18.200.1", "/v1/items/1234", 5)
        self.check("a customer is not", statuses, [200] * 5)
        line = [line for line in self.lines() if line["client"] == READERS[1]][-1]
        found = {name: line[name] for name in ("client", "status", "denied", "denied_by")}
        expected = {"client": READERS[1], "status": 429, "denied": "limit", "denied_by": "core"}
        self.check("the log says why", found, expected)

    def end(self):
        """Ends the proxy in good order."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            code = self.process.wait(timeout=PATIENCE_SECONDS)
            self.check("the proxy ends well", code, 0)
        finally:
            self.process.kill()
            self.process.wait()
        if self.tally.failed:
            print("--- events ---", (self.folder / "events").read_text()[-4000:], sep="\n")


def main():
    """All of it."""
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="tollgate-story-") as folder, api() as port:
        story = Story(binary, Path(folder), port, tally)
        try:
            story.follow()
        finally:
            story.end()
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
