"""`tollgate simulate` counts what a short program counts that was written apart from it: for fixed
windows, sliding windows, GCRA and token buckets; and the curve is what counting by hand gives.

The log is one of the combined format, made by chance: several hundred clients, bursts and pauses, lines
that are not in order, and lines that are none. `LOG` in the environment names another one, of any length.
"""

import argparse
import collections
import datetime
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin")]
from harness import Tally, give_up_after

LINE = re.compile(r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) HTTP/[\d.]+" (\d+) ')
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
SECONDS = 240
REQUESTS = 20_000
POINTS = 20
# Each limit: how policies write it, and the numbers for the functions below.
LIMIT, WINDOW, BURST = 30, 600, 5
ALGORITHMS = {
    "fixed": ({"rate": f"{LIMIT}/10m"}, lambda: Fixed()),
    "sliding": ({"rate": f"{LIMIT}/10m", "algorithm": "sliding_window"}, lambda: Sliding()),
    "gcra": ({"rate": f"{LIMIT}/10m", "algorithm": "gcra", "burst": BURST}, lambda: Gcra()),
    "bucket": (
        {"algorithm": "token_bucket", "capacity": BURST, "refill": {"amount": 1, "interval": "20s"}},
        lambda: Bucket(),
    ),
}


class Fixed:
    """A window begins with the first request after the last one's end."""

    def __init__(self):
        self.end, self.used = 0, 0

    def admits(self, now):
        """Whether there is room; if so, it is taken."""
        if now >= self.end:
            self.end, self.used = now + WINDOW, 0
        if self.used >= LIMIT:
            return False
        self.used += 1
        return True


class Sliding:
    """Windows follow one another from 1970 on; the one before counts by the part of it that is not
    older than a window."""

    def __init__(self):
        self.number, self.current, self.previous = 0, 0, 0

    def admits(self, now):
        """Whether there is room; if so, it is taken."""
        number = now // WINDOW
        if number != self.number:
            self.previous = self.current if number == self.number + 1 else 0
            self.number, self.current = number, 0
        # In whole numbers: previous * rest / WINDOW + current + 1 <= LIMIT.
        rest = WINDOW - now % WINDOW
        if self.previous * rest + (self.current + 1) * WINDOW > LIMIT * WINDOW:
            return False
        self.current += 1
        return True


class Gcra:
    """What was used drains evenly, LIMIT in a window; BURST may be there at once."""

    def __init__(self):
        self.level, self.at = 0, 0

    def admits(self, now):
        """Whether there is room; if so, it is taken."""
        self.level = max(0, self.level - (now - self.at) * LIMIT)
        self.at = now
        if self.level + WINDOW > BURST * WINDOW:
            return False
        self.level += WINDOW
        return True


class Bucket:
    """One unit comes every 20 seconds, from the moment on when the bucket was full."""

    INTERVAL = 20

    def __init__(self):
        self.missing, self.mark = 0, 0

    def admits(self, now):
        """Whether there is room; if so, it is taken."""
        if self.missing:
            refills = (now - self.mark) // self.INTERVAL
            self.missing = max(0, self.missing - refills)
            self.mark += refills * self.INTERVAL
        if self.missing >= BURST:
            return False
        if not self.missing:
            self.mark = now
        self.missing += 1
        return True


def make_log(path):
    """A log by chance."""
    chance = random.Random(4)
    clients = [f"198.51.{100 + at // 200}.{at % 200 + 1}" for at in range(500)]
    weights = [1 / (at + 1) for at in range(500)]
    now = datetime.datetime(2026, 3, 28, 22, 0, tzinfo=datetime.timezone.utc).timestamp()
    lines = []
    for _ in range(REQUESTS):
        now += chance.expovariate(3) if chance.random() < 0.999 else 1200
        # The clock of the summer begins meanwhile.
        summer = now > datetime.datetime(2026, 3, 29, 1, tzinfo=datetime.timezone.utc).timestamp()
        zone = datetime.timezone(datetime.timedelta(hours=2 if summer else 1))
        time = datetime.datetime.fromtimestamp(int(now), zone).strftime("%d/%b/%Y:%H:%M:%S %z")
        client = chance.choices(clients, weights)[0]
        lines.append(f'{client} - - [{time}] "GET /a/{chance.randrange(9)} HTTP/1.1" 200 5 "-" "x"')
    # Some are a few lines late, and some are no requests.
    for _ in range(REQUESTS // 50):
        at = chance.randrange(REQUESTS - 5)
        lines[at], lines[at + 3] = lines[at + 3], lines[at]
    lines[100:100] = ["garbage", '203.0.113.5 - - [29/Mar/2026:00:00:00 +0100] "-" 400 0 "-" "-"']
    path.write_text("\n".join(lines) + "\n")


def read(path):
    """Time and client of each request, in the order of time."""
    requests = []
    for line in path.read_text(errors="replace").splitlines():
        # A target with an escape that is none is refused, whatever the limits are.
        if (found := LINE.match(line)) and not BAD_ESCAPE.search(found[4]):
            when = datetime.datetime.strptime(found[2], "%d/%b/%Y:%H:%M:%S %z")
            requests.append((int(when.timestamp()), found[1]))
    return sorted(requests, key=lambda request: request[0])


def count(requests, new):
    """Requests that are denied, and by client."""
    state, denied = collections.defaultdict(new), collections.Counter()
    for now, client in requests:
        if not state[client].admits(now):
            denied[client] += 1
    return denied


def windows(requests):
    """How much each client has used in each of its windows."""
    ends, used = {}, collections.defaultdict(list)
    for now, client in requests:
        if now >= ends.get(client, 0):
            ends[client] = now + WINDOW
            used[client].append(0)
        used[client][-1] += 1
    return used


def simulate(tollgate, folder, log, limits):
    """The report on these limits."""
    policy = {
        "version": 1,
        "upstreams": {"api": {"servers": ["http://127.0.0.1:9"]}},
        "identity": {"callers": [{"name": "anonymous", "key": "client.ip"}]},
        "limits": {name: {"per": "client.ip"} | limit for name, limit in limits.items()},
        "routes": [
            {"match": {"path": "/**"}, "upstream": "api", "auth": "none", "limits": list(limits)}
        ],
    }
    file = folder / "policy.yaml"
    file.write_text(json.dumps(policy))
    command = [tollgate, "simulate", "--log", str(log), "--policy", str(file), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"exit code {ran.returncode}: {ran.stderr}")
    return json.loads(ran.stdout)


def compare(tally, tollgate, folder, log):
    """One log, by all algorithms."""
    requests = read(log)
    for name, (limit, new) in ALGORITHMS.items():
        report = simulate(tollgate, folder, log, {name: limit})
        denied = count(requests, new)
        (answer,) = report["limits"]
        expected = (len(requests), sum(denied.values()), len(denied))
        found = (answer["requests"], answer["denied"], answer["callers_denied"])
        tally.check(f"{name}: requests, denied, callers denied", found, expected)
        worst = {it["caller"].split(":", 1)[1]: it["denied"] for it in report["worst"]}
        known = {client: denied[client] for client in worst}
        tally.check(f"{name}: the worst callers", worst, known)
        if name == "fixed":
            compare_curve(tally, report["curves"][0], windows(requests))
    tally.check("all lines are told", report["read"]["requests"] + report["read"]["bad"],
                report["read"]["lines"])


def compare_curve(tally, curve, used):
    """The points of the curve, by counting."""
    tally.check("the curve is exact", curve["is_exact"], True)
    step = max(1, len(curve["points"]) // POINTS)
    for point in curve["points"][::step]:
        over = [max(0, n - point["allows"]) for counts in used.values() for n in counts]
        hit = sum(any(n > point["allows"] for n in counts) for counts in used.values())
        found = (point["callers_denied"], point["requests_denied"])
        tally.check(f"the curve at {point['allows']}", found, (hit, sum(over)))
    peaks = sorted(max(counts) for counts in used.values())
    rank = -(-len(peaks) * 999 // 1000)
    tally.check("the suggestion is not below", curve["suggested"] >= peaks[rank - 1], True)


class Checks(Tally):
    """Compares what was found with what was expected."""

    def check(self, name, found, expected):
        """One comparison."""
        self.record(name, [] if found == expected else [f"{found} instead of {expected}"])


def main():
    """The log, and the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    arguments = parser.parse_args()
    give_up_after(SECONDS)
    tally = Checks()
    with tempfile.TemporaryDirectory(prefix="tollgate-simulate-") as name:
        folder = Path(name)
        log = Path(os.environ.get("LOG", folder / "access.log"))
        if "LOG" not in os.environ:
            make_log(log)
        compare(tally, str(Path(arguments.tollgate).resolve()), folder, log)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
