"""Traefik beside the policy that `tollgate import traefik` makes of its configuration.

Both get the same 10,000 requests, at a rate so slow that nothing comes back meanwhile: they admit the
same ones of each router, client and key. Then what the table names: Traefik forgets who pauses.
"""

import contextlib
import http.client
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "edge"), str(HERE.parent / "httpbin")]
from harness import tollgate
from stage import Tally, api, binary_under_test, eventually, free_port, running

SECONDS = 300
REQUESTS = 10_000
TRAEFIK = str(Path(sys.executable).with_name("traefik"))
SOURCES = [f"127.0.0.{number}" for number in range(41, 46)]
KEYS = [None, "a", "b", "c"]
PATHS = ["/first", "/second/x", "/keyed", "/both", "/other"]
# The burst of who pauses, and for how long: longer than Traefik remembers.
BURST, PAUSE_SECONDS = 5, 3.2

STATIC = """
entryPoints: {{ web: {{ address: "127.0.0.1:{front}" }} }}
providers: {{ file: {{ filename: "{folder}/dynamic.yml" }} }}
"""
DYNAMIC = """
http:
  routers:
    first: {{ rule: "PathPrefix(`/first`)", middlewares: [slow], service: api }}
    second: {{ rule: "PathPrefix(`/second`)", middlewares: [slow], service: api }}
    keyed: {{ rule: "Path(`/keyed`) && Method(`GET`)", middlewares: [keyed], service: api }}
    both: {{ rule: "Path(`/both`)", middlewares: [chained], service: api }}
    pausing: {{ rule: "Path(`/pausing`)", middlewares: [pausing], service: api }}
    other: {{ rule: "PathPrefix(`/`)", service: api }}
  middlewares:
    slow: {{ rateLimit: {{ average: 1, period: 24h, burst: 137 }} }}
    keyed: {{ rateLimit: {{ average: 1, period: 24h, burst: 60, sourceCriterion: {{ requestHeaderName: X-Key }} }} }}
    everybody: {{ rateLimit: {{ average: 1, period: 24h, burst: 300, sourceCriterion: {{ requestHost: true }} }} }}
    chained: {{ chain: {{ middlewares: [everybody, few] }} }}
    few: {{ inFlightReq: {{ amount: 3 }} }}
    pausing: {{ rateLimit: {{ average: 1, burst: 5 }} }}
  services:
    api: {{ loadBalancer: {{ servers: [{{ url: "http://127.0.0.1:{back}" }}] }} }}
"""


def requests():
    """The same ones each time: client, path and key."""
    chance = random.Random(42)
    return [(chance.choice(SOURCES), chance.choice(PATHS), chance.choice(KEYS)) for _ in range(REQUESTS)]


def status_of(connection, path, key=None):
    """The status of an answer on a connection that goes on."""
    connection.request("GET", path, headers={"X-Key": key} if key else {})
    with contextlib.closing(connection.getresponse()) as response:
        response.read()
        return response.status


def statuses(port):
    """How many answers of each status each client, path and key has had."""
    counts = Counter()
    with contextlib.ExitStack() as stack:
        connections = {}
        for source in SOURCES:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(source, 0))
            connections[source] = stack.enter_context(contextlib.closing(connection))
        for source, path, key in requests():
            # Who sends which of the first requests does not matter for what they have in common.
            shown = (path, key) if path == "/keyed" else (path, source) if path != "/both" else (path,)
            counts[*shown, status_of(connections[source], path, key)] += 1
    return counts


def bursts_around_a_pause(port):
    """How many of ten requests are admitted, at once and after a pause."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        first = [status_of(connection, "/pausing") for _ in range(10)].count(200)
        time.sleep(PAUSE_SECONDS)
        return first, [status_of(connection, "/pausing") for _ in range(10)].count(200)


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


def imported(binary, folder, tally):
    """The policy, and the table."""
    command = [binary, "import", "traefik", folder / "dynamic.yml", folder / "traefik.yml"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    expect(tally, "nothing is left out", run.returncode, 0)
    (folder / "policy.yaml").write_text(run.stdout)
    check = subprocess.run([binary, "check", folder / "policy.yaml"], capture_output=True, text=True, check=False)
    tally.record("the policy's own tests pass", [] if check.returncode == 0 else [check.stderr])
    for row in ("a request waits up to", "who pauses 2 s may send 5 again", "asked one after another"):
        tally.record(f"the table names: {row}", [] if row in run.stderr else [run.stderr])
    return run.stdout


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as back, tempfile.TemporaryDirectory(prefix="beside-") as folder:
        folder = Path(folder)
        front = free_port()
        (folder / "traefik.yml").write_text(STATIC.format(front=front, folder=folder))
        (folder / "dynamic.yml").write_text(DYNAMIC.format(back=back))
        policy = imported(binary, folder, tally)
        with running("traefik", [TRAEFIK, f"--configFile={folder}/traefik.yml"], front, tally):
            # It listens before it knows its routes.
            connection = http.client.HTTPConnection("127.0.0.1", front, timeout=20)
            eventually(lambda: status_of(connection, "/ready") == 200)
            theirs = statuses(front)
            theirs_paused = bursts_around_a_pause(front)
        with tollgate(binary, policy, tally) as port:
            ours = statuses(port)
            ours_paused = bursts_around_a_pause(port)
        differing = {key: (theirs[key], ours[key]) for key in theirs | ours if theirs[key] != ours[key]}
        expect(tally, f"{REQUESTS} requests: Traefik and the import answer alike", differing, {})
        admitted = sum(count for key, count in ours.items() if key[-1] == 200)
        print(f"   {admitted} of {REQUESTS} admitted; after a pause {theirs_paused[1]} by Traefik, "
              f"{ours_paused[1]} here")
        expect(tally, "Traefik forgets who pauses", theirs_paused, (BURST, BURST))
        tally.record("here what the rate gives comes back", [] if ours_paused in ((5, 3), (5, 4)) else [ours_paused])
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
