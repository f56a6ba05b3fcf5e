"""Upstreams that fail in every way: each gets the right status and the right limit headers, a body
that was cut short never looks whole, and nothing is left of any of it.

    REQUESTS      environment: how many faulty requests are sent for the last check (default: 3000;
                  100000 take some minutes)
"""

import asyncio
import concurrent.futures
import contextlib
import http.client
import itertools
import os
import socket
import struct
import sys
import threading
from dataclasses import dataclass

from stage import (
    ANYTHING,
    MEBIBYTE,
    Plan,
    Tally,
    bearer,
    binary_under_test,
    eventually,
    free_port,
    in_mebibytes,
    proxy,
)

REQUESTS = int(os.environ.get("REQUESTS", "3000"))
AT_ONCE = 32
LIMIT = 1_000_000
GROWTH = 32 * MEBIBYTE
# Connections to upstreams that are kept for the next request.
DESCRIPTORS = 2 * AT_ONCE
GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
CUT = "cut"


@dataclass(frozen=True)
class Fault:
    """What an upstream says to a request, and what a client must see."""

    says: bytes
    # A status, or CUT: a response that is not whole, or none when it breaks at its beginning.
    seen: int | str = 502
    # How the connection ends after that: `close`, `reset`, or `hang`, which is not at all.
    then: str = "close"


def head(*fields, status="200 OK", version="HTTP/1.1"):
    """A response's head."""
    lines = [f"{version} {status}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


FAULTS = {
    "good": Fault(GOOD + b"ok", 200, "hang"),
    "good-and-closed": Fault(GOOD + b"ok", 200),
    "nothing": Fault(b""),
    "nothing-reset": Fault(b"", then="reset"),
    "hang": Fault(b"", 504, "hang"),
    "half-a-head": Fault(b"HTTP/1.1 200 OK\r\ncontent-le"),
    "half-a-head-reset": Fault(b"HTTP/1.1 200 OK\r\ncontent-le", then="reset"),
    "half-a-head-hang": Fault(b"HTTP/1.1 200 OK\r\ncontent-le", 504, "hang"),
    "half-a-body": Fault(head("content-length: 100") + b"half", CUT),
    "half-a-body-reset": Fault(head("content-length: 100") + b"half", CUT, "reset"),
    "half-a-body-hang": Fault(head("content-length: 100") + b"half", CUT, "hang"),
    "half-a-chunk": Fault(head("transfer-encoding: chunked") + b"64\r\nhalf", CUT),
    "no-last-chunk": Fault(head("transfer-encoding: chunked") + b"4\r\nhalf\r\n", CUT),
    "no-last-chunk-reset": Fault(
        head("transfer-encoding: chunked") + b"4\r\nhalf\r\n", CUT, "reset"
    ),
    "bad-chunk": Fault(head("transfer-encoding: chunked") + b"0x4\r\nhalf\r\n0\r\n\r\n", CUT),
    "huge-chunk": Fault(head("transfer-encoding: chunked") + b"f" * 17 + b"\r\nhalf", CUT),
    "garbage": Fault(b"\x00\x01\x02 what is this \xff\xfe\r\n\r\n"),
    "another-protocol": Fault(b"220 mail.test ESMTP\r\n"),
    "tls-alert": Fault(b"\x15\x03\x01\x00\x02\x02\x16"),
    "no-head": Fault(b"<html>hello</html>"),
    "http-3.7": Fault(head("content-length: 2", version="HTTP/3.7") + b"ok"),
    "status-99": Fault(head("content-length: 2", status="99 Low") + b"ok"),
    "status-words": Fault(head("content-length: 2", status="OK") + b"ok"),
    "both-lengths": Fault(
        head("content-length: 2", "transfer-encoding: chunked") + b"2\r\nok\r\n0\r\n\r\n"
    ),
    "two-lengths": Fault(head("content-length: 2", "content-length: 3") + b"ok?"),
    "list-of-lengths": Fault(head("content-length: 2, 3") + b"ok?"),
    "negative-length": Fault(head("content-length: -2") + b"ok"),
    "signed-length": Fault(head("content-length: +2") + b"ok"),
    "length-in-words": Fault(head("content-length: two") + b"ok"),
    "huge-length": Fault(head(f"content-length: {'9' * 30}") + b"ok"),
    "two-codings": Fault(head(*["transfer-encoding: chunked"] * 2) + b"0\r\n\r\n"),
    "strange-coding": Fault(head("transfer-encoding: gzip, chunked") + b"0\r\n\r\n"),
    "coding-last": Fault(head("transfer-encoding: chunked, identity") + b"0\r\n\r\n"),
    "huge-head": Fault(head("x-huge: " + "x" * 100_000, "content-length: 2") + b"ok"),
    "endless-head": Fault(b"HTTP/1.1 200 OK\r\n" + b"x-more: and more\r\n" * 50_000),
    "many-fields": Fault(head(*(f"x-{n}: y" for n in range(2000)), "content-length: 2") + b"ok"),
    "folded-field": Fault(head("x-folded: one\r\n two", "content-length: 2") + b"ok"),
    "space-before-colon": Fault(head("content-length : 2") + b"ok"),
    "no-colon": Fault(head("content-length 2", "content-length: 2") + b"ok"),
    "nul-in-value": Fault(head("x-nul: a\0b", "content-length: 2") + b"ok"),
    "return-in-value": Fault(head("x-return: a\rb", "content-length: 2") + b"ok"),
    "storm-of-100": Fault(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + GOOD + b"ok"),
    "storm-of-103": Fault(head("link: </a>", status="103 Early Hints") * 1000 + GOOD + b"ok"),
    "unasked-101": Fault(head("upgrade: x", "connection: upgrade", status="101 Switching")),
    "two-responses": Fault((GOOD + b"ok") + head("content-length: 4") + b"evil", 200, "hang"),
}
# Of some, more than one answer is sound: fields that are folded may be unfolded.
ALSO_FINE = {"folded-field": 200, "huge-length": CUT}


class Upstream:
    """Answers each request by the fault that its path names."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        """In a thread of its own."""
        asyncio.set_event_loop(self.loop)
        starting = asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1024)
        server = self.loop.run_until_complete(starting)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        """One request after the other, until a fault ends the connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while request := await reader.readuntil(b"\r\n\r\n"):
                fault = FAULTS[request.split(b" ", 2)[1].decode().rpartition("/")[2]]
                writer.write(fault.says)
                await writer.drain()
                if fault.then == "reset":
                    linger = struct.pack("ii", 1, 0)
                    raw = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                if fault.then != "hang":
                    break
        writer.close()

    def __enter__(self):
        self.thread.start()
        self.ready.wait()
        return self

    def __exit__(self, *_error):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class FinalResponse(http.client.HTTPResponse):
    """A response after interim ones, of which Python's own passes over 100 only."""

    def _read_status(self):
        while True:
            version, status, reason = super()._read_status()
            if status not in range(102, 200):
                return version, status, reason
            http.client.parse_headers(self.fp)


def ask(port, path, token):
    """What a client sees: the status or CUT, the headers, and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.response_class = FinalResponse
    try:
        connection.request("GET", path, headers={"Authorization": token})
        response = connection.getresponse()
        try:
            body = response.read()
        except (http.client.IncompleteRead, ConnectionError):
            return CUT, response.headers, b""
        return response.status, response.headers, body
    finally:
        connection.close()


def check_faults(tally, on):
    """Each fault, one request after the other by one user."""
    token = bearer("one")
    cases = {f"/fault/{name}": (name, fault.seen) for name, fault in FAULTS.items()}
    cases["/away"] = ("away", 502)
    # Twice: what a fault does to the next request counts, too.
    for used, (path, (name, wanted)) in enumerate([*cases.items(), *cases.items()], start=1):
        try:
            seen, headers, body = ask(on.port, path, token)
        except (OSError, http.client.HTTPException) as error:
            is_cut = wanted == CUT and isinstance(error, http.client.RemoteDisconnected)
            tally.record(name, [] if is_cut else [f"{type(error).__name__}: {error}"])
            continue
        fine = {wanted, ALSO_FINE.get(name, wanted)}
        problems = [] if seen in fine else [f"{seen} instead of {wanted}: {body[:200]!r}"]
        if seen == 200 and body != b"ok":
            problems.append(f"body {body[:200]!r}")
        for field, number in (("used", used), ("remaining", LIMIT - used), ("limit", LIMIT)):
            shown = headers.get_all(f"x-ratelimit-{field}")
            if shown != [str(number)]:
                problems.append(f"x-ratelimit-{field}: {shown} instead of {number}")
        tally.record(name, problems)


def check_leaks(tally, on):
    """Many faulty requests at once; afterwards all is as it was."""
    # Those that hang take the time that the policy gives them: some are enough.
    quick = [name for name, fault in FAULTS.items() if fault.then != "hang"]
    hanging = [name for name in FAULTS if name not in quick]
    names = itertools.islice(itertools.cycle(quick * 9 + hanging), REQUESTS)
    token = bearer("many")

    def send(name):
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(on.port, f"/fault/{name}", token)

    before, resident = on.descriptors(), on.resident()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as clients:
        list(clients.map(send, names))
    eventually(lambda: on.descriptors() <= before)
    left, grown = on.descriptors() - before, on.resident() - resident
    print(f"{REQUESTS} requests: {left} descriptors left, grown by {in_mebibytes(grown)}")
    tally.record("descriptors are given back", [str(left)] if left > DESCRIPTORS else [])
    tally.record("memory is given back", [in_mebibytes(grown)] if grown > GROWTH else [])
    status, headers, _ = ask(on.port, "/fault/good", token)
    used = headers.get("x-ratelimit-used")
    problems = [] if (status, used) == (200, str(REQUESTS + 1)) else [f"{status}, {used} used"]
    tally.record("each was counted once", problems)


def main():
    """One proxy, an upstream that fails and one that is not there."""
    binary = binary_under_test(__doc__, 240 + REQUESTS // 50)

    tally = Tally()
    with Upstream() as upstream:
        patience = {"response_timeout": "2s", "idle_timeout": "2s", "connect_timeout": "2s"}
        servers = {"api": upstream.port, "away": free_port()}
        upstreams = {
            name: {"servers": [f"http://127.0.0.1:{port}"]} | patience
            for name, port in servers.items()
        }
        routes = [ANYTHING | {"match": {"path": "/away"}, "upstream": "away"}, ANYTHING]
        plan = Plan([], policy={"upstreams": upstreams}, routes=routes)
        with proxy(binary, plan, tally) as on:
            check_faults(tally, on)
            check_leaks(tally, on)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
