"""Callers at work: a crowd at a steady pace or as fast as it is answered, and what became of each.

The first caller of a crowd is a busy one: a third of all requests are its own, enough to use up all
that a proxy gives away alone. Beside the crowd a few probes look who decides: they have a limit of
their own that they never reach, so that no denial is answered from memory.
"""

import asyncio
import collections
import contextlib
import http.client
import itertools
import json
import random
import threading
import time
from dataclasses import dataclass, field

from proxies import token
from stage import eventually, wait_for

CALLERS = 30
# To each proxy, as many connections as there are requests that wait a deadline at this pace.
CONNECTIONS = 16
BUSY_SHARE = 1 / 3
# Enough to find each shard, and each part of a cluster.
PROBES = 8
PROBE_PAUSE_SECONDS = 0.2
TIMEOUT_SECONDS = 10
# Enough for both proxies to know of all callers.
CALM = 40
BUSY = 400
FULL = None


@dataclass(frozen=True)
class Admission:
    """A request that was admitted: when it was sent and answered, in Unix seconds."""

    asked: float
    answered: float
    # When its limit was said to be whole again.
    reset: int
    # Without the store.
    is_alone: bool


@dataclass
class Account:
    """What became of one caller's requests."""

    asked: int = 0
    admissions: list = field(default_factory=list)

    @property
    def admitted(self):
        """How many were admitted."""
        return len(self.admissions)

    @property
    def alone(self):
        """How many of these without the store."""
        return sum(admission.is_alone for admission in self.admissions)

    def note(self, sent, status, fields):
        """Takes an answer to a request that was sent then; `fields` are those of its head."""
        self.asked += 1
        if status == 200:
            reset, is_alone = int(fields["x-ratelimit-reset"]), "x-tollgate-store" in fields
            self.admissions.append(Admission(sent, time.time(), reset, is_alone))


@dataclass
class Probe:
    """Who decided about a probe, each time."""

    port: int
    # An instant of the monotonic clock, and whether the store decided.
    seen: list = field(default_factory=list)

    def is_decided(self):
        """Whether the store decided the last time."""
        return bool(self.seen) and self.seen[-1][1]

    def seconds_from(self, begun, back):
        """How long after `back` the store decided again, if it did not after `begun`; None: never."""
        times = iter(self.seen)
        missed = next((at for at, decided in times if at >= begun and not decided), None)
        if missed is None:
            return 0.0
        again = next((at for at, decided in times if at >= back and decided), None)
        return None if again is None else again - back


class Connection:
    """One connection, opened again when it is gone."""

    def __init__(self, port):
        self.port = port
        self.writer = None

    async def get(self, path, bearer):
        """Status and head of the answer."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self.exchange(path, bearer)
        except BaseException:
            self.close()
            raise

    async def exchange(self, path, bearer):
        """One request and its answer."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        request = f"GET {path} HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer {bearer}\r\n\r\n"
        self.writer.write(request.encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r")[0] or 0)
        await self.reader.readexactly(length)
        if b"\r\nconnection: close" in head:
            self.close()
        return int(head[9:12]), head

    def close(self):
        """The next request opens another."""
        if self.writer is not None:
            self.writer.transport.abort()
            self.writer = None


class Crowd:
    """Callers in a thread of their own until the block ends; each connection stays with one proxy.

    `pace`: requests a second of all together, or FULL; it may change at any time.
    """

    def __init__(self, proxies):
        self.proxies = proxies
        self.ports = [proxy.port for proxy in proxies]
        self.pace = CALM
        self.accounts = collections.defaultdict(Account)
        self.errors = collections.Counter()
        self.probes = []
        self.tokens = {}
        self.callers = []
        self.is_over = False
        # Proxies that are left alone, and how many requests each has now.
        self.avoided = set()
        self.in_flight = collections.Counter()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)

    def __enter__(self):
        self.begun = time.monotonic()
        self.thread.start()
        wait_for(
            "the store decides about all probes",
            lambda: (
                len(self.probes) == PROBES * len(self.ports)
                and all(probe.is_decided() for probe in self.probes)
            ),
        )
        return self

    def __exit__(self, *_error):
        self.is_over = True
        self.thread.join()

    def send(self, name, busy=None):
        """From now on these callers ask, and no others. The first one is busy, or `busy` is."""
        callers = [busy or f"{name}-0"]
        callers += [f"{name}-{number}" for number in range(1, CALLERS)]
        self.tokens |= {caller: token(caller) for caller in callers}
        self.callers = callers

    def avoid(self, proxy):
        """Returns when a proxy has no requests."""
        self.avoided.add(proxy.port)
        wait_for("a proxy is left alone", lambda: self.in_flight[proxy.port] == 0)

    def use(self, proxy):
        """A proxy gets requests again."""
        self.avoided.discard(proxy.port)

    def seconds_from(self, begun, back):
        """How long after `back` the store decided for every proxy again. It is waited for, and None
        if it never happens."""

        def found():
            return [probe.seconds_from(begun, back) for probe in self.probes]

        eventually(lambda: None not in found())
        seconds = found()
        return None if None in seconds else max(seconds)

    async def run(self):
        """All requests, until it is over."""
        visits = [self.visit(port, number) for number in range(CONNECTIONS) for port in self.ports]
        looks = [self.look(port, number) for number in range(PROBES) for port in self.ports]
        await asyncio.gather(*visits, *looks)

    async def visit(self, port, number):
        """The requests of one connection."""
        loop, connection = asyncio.get_running_loop(), Connection(port)
        draw = random.Random(f"{port} {number}")
        due = loop.time() + draw.random() * PROBE_PAUSE_SECONDS
        while not self.is_over:
            pause = 0 if self.pace is FULL else CONNECTIONS * len(self.ports) / self.pace
            # What a slow answer has delayed is not made up for: the pace is never exceeded.
            due = max(due + pause, loop.time())
            await asyncio.sleep(due - loop.time())
            if not self.callers or port in self.avoided:
                connection.close()
                await asyncio.sleep(PROBE_PAUSE_SECONDS / 4)
                continue
            is_busy = draw.random() < BUSY_SHARE
            caller = self.callers[0] if is_busy else draw.choice(self.callers[1:])
            sent = time.time()
            if answer := await self.ask(connection, "/", caller):
                status, head = answer
                self.accounts[caller].note(sent, status, fields_of(head))
        connection.close()

    async def look(self, port, number):
        """The requests of one probe."""
        probe, connection, caller = Probe(port), Connection(port), f"probe-{number}"
        self.tokens[caller] = token(caller)
        self.probes.append(probe)
        while not self.is_over:
            if port in self.avoided:
                connection.close()
            elif answer := await self.ask(connection, "/probe", caller):
                is_decided = b"\r\nx-tollgate-store:" not in answer[1]
                probe.seen.append((time.monotonic(), is_decided))
            await asyncio.sleep(PROBE_PAUSE_SECONDS)
        connection.close()

    async def ask(self, connection, path, caller):
        """Status and head of an answer that a client can expect; all else is an error."""
        self.in_flight[connection.port] += 1
        try:
            answer = await connection.get(path, self.tokens[caller])
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            self.errors[repr(error)] += 1
            return None
        finally:
            self.in_flight[connection.port] -= 1
        if answer[0] not in (200, 429):
            self.errors[f"status {answer[0]}"] += 1
            return None
        return answer


def fields_of(head):
    """The fields of an answer's head, by their names in lower case."""
    lines = head.decode("latin-1").split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines if ": " in line)


class Caller:
    """One caller that waits for each answer before it asks again, each proxy in its turn."""

    def __init__(self, proxies, name):
        self.proxies = proxies
        self.turns = itertools.cycle(proxies)
        self.headers = {"host": "api.test", "authorization": f"Bearer {token(name)}"}
        self.account = Account()
        self.errors = collections.Counter()
        self.connections = {}

    def ask(self, proxy=None):
        """The answer's headers; None if it was an error."""
        sent = time.time()
        found = self.get(proxy or next(self.turns), "/")
        if found is None:
            return None
        status, headers, _ = found
        self.account.note(sent, status, headers)
        return headers

    def is_counted_by(self, server):
        """Whether a server has a counter more after this caller's first request."""
        before = server.ask("DBSIZE")
        self.ask()
        return server.ask("DBSIZE") > before

    def ask_times(self, count):
        """Asks so often."""
        for _ in range(count):
            self.ask()

    def reported_use(self, proxy):
        """What `/rate_limit` of a proxy says was used, and how long that took; None if it failed."""
        begun = time.monotonic()
        found = self.get(proxy, "/rate_limit")
        if found is None or found[0] != 200:
            return None, time.monotonic() - begun
        return json.loads(found[2])["resources"]["core"]["used"], time.monotonic() - begun

    def get(self, proxy, path):
        """Status, headers and body; None if that is nothing that a client can expect."""
        connection = self.connections.get(proxy.port)
        if connection is None:
            connection = http.client.HTTPConnection(
                "127.0.0.1", proxy.port, timeout=TIMEOUT_SECONDS
            )
            self.connections[proxy.port] = connection
        try:
            connection.request("GET", path, headers=self.headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.errors[repr(error)] += 1
            return None
        if response.status not in (200, 429):
            self.errors[f"status {response.status}"] += 1
            return None
        return response.status, response.headers, body

    def close(self):
        """Ends its connections."""
        for connection in self.connections.values():
            with contextlib.suppress(OSError):
                connection.close()
