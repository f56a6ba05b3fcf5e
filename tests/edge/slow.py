"""Slow clients, hundreds of each kind, while others are served as before, at a bounded cost.

The timeouts that would end them are far off here: they are all there for as long as it takes.
"""

import contextlib
import socket
import sys
import threading
import time

import frames
from certificates import Authority
from stage import (
    MEBIBYTE,
    Tally,
    api,
    binary_under_test,
    counts_latency,
    in_mebibytes,
    proxy,
    raise_descriptor_limit,
    with_bulk,
)
from visitor import Visit, percentile

CLIENTS = 600
# By each of three visitors.
REQUESTS = 300
P99_SECONDS = 0.5
# A busy machine is slow to everybody: past the bound, the same without slow clients decides.
P99_FACTOR = 5
GROWTH = 64 * MEBIBYTE
DRIP_SECONDS = 0.5
SMALL_BUFFER_BYTES = 4096
SECONDS = "10m"
TIMEOUTS = dict.fromkeys(
    "head tls_handshake keep_alive http2_idle request_body response".split(), SECONDS
)
LARGE = 8 * MEBIBYTE


def connect(port, first=b"", receive_buffer=None):
    """A connection on which `first` has been said."""
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    client.sendall(first)
    return client


def silent(plain, _secure):
    """Says nothing."""
    return connect(plain), b""


def slow_head(plain, _secure):
    """A head that never ends."""
    return connect(plain, b"GET /bulk/ HTTP/1.1\r\nHost: a.test\r\nX-Slow: "), b"x"


def slow_body(plain, _secure):
    """A body that never ends."""
    head = b"POST /bulk/size HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9999\r\n\r\n"
    return connect(plain, head), b"x"


def slow_reader(plain, _secure):
    """Asks for much and reads nothing."""
    head = f"GET /bulk/bytes/{LARGE} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
    return connect(plain, head, SMALL_BUFFER_BYTES), b""


def slow_handshake(_plain, secure):
    """The beginning of a ClientHello."""
    return connect(secure, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), b"x"


def zero_window(plain, _secure):
    """Asks for much over HTTP/2 and lets nothing come."""
    start = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)])
    request = frames.request(1, frames.request_block(f"/bulk/bytes/{LARGE}"))
    return connect(plain, start + request, SMALL_BUFFER_BYTES), b""


def slow_continuation(plain, _secure):
    """A head over HTTP/2 that never ends."""
    start = frames.PREFACE + frames.settings()
    block = frames.request_block("/bulk/", fields=[("x-slow", "x" * 1000)])
    start += frames.frame(frames.HEADERS, frames.END_STREAM, 1, block[:40])
    return connect(plain, start), frames.frame(frames.CONTINUATION, stream=1, payload=block[40:41])


KINDS = [silent, slow_head, slow_body, slow_reader, slow_handshake, zero_window, slow_continuation]


@contextlib.contextmanager
def held(kind, on):
    """So many clients of a kind, dripping until the block ends."""
    with contextlib.ExitStack() as clients:
        opened = [kind(*on.ports) for _ in range(CLIENTS)]
        for client, _ in opened:
            clients.callback(client.close)
        ended = threading.Event()

        def drip():
            while not ended.wait(DRIP_SECONDS):
                for client, drop in opened:
                    with contextlib.suppress(OSError):
                        client.sendall(drop)

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        try:
            yield [client for client, _ in opened]
        finally:
            ended.set()
            dripping.join()


def visit(port):
    """The p99 of good clients, and what went wrong for them."""
    with Visit(port, REQUESTS) as visitors:
        times, problems = visitors.results()
    return percentile(times, 0.99), problems


def check(tally, on, kind):
    """The same visit without and with slow clients."""
    name = kind.__name__.replace("_", " ")
    alone, problems = visit(on.port)
    before = on.resident()
    on.forget_peak()
    with held(kind, on) as clients:
        among, more = visit(on.port)
        grown = on.peak() - before
        still = sum(map(is_open, clients))
    print(
        f"{name}: p99 {among * 1000:.1f} ms, alone {alone * 1000:.1f} ms; "
        f"grown by {in_mebibytes(grown)}; {still} of {CLIENTS} still there"
    )
    problems += more
    tally.record(f"{name}: good clients are answered", problems[:5])
    slow = counts_latency() and among > P99_SECONDS and among > P99_FACTOR * alone
    tally.record(f"{name}: good clients are served soon", [f"p99 {among:.3f} s"] if slow else [])
    large = grown > GROWTH
    tally.record(f"{name}: memory is bounded", [in_mebibytes(grown)] if large else [])


def is_open(client):
    """Whether the proxy has left the connection as it is."""
    client.setblocking(False)
    try:
        while data := client.recv(65536):
            if len(data) < 65536:
                return True
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def main():
    """A fresh proxy for each kind: memory that one kind has given back would hide the next."""
    binary = binary_under_test(__doc__, 240)
    raise_descriptor_limit()

    tally = Tally()
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    files = Authority().issue("localhost").files("main")
    with api(tally) as api_port, api(tally) as bulk_port:
        plan = with_bulk(
            api_port,
            bulk_port,
            listeners=[{}, {"tls": tls}],
            settings={"timeouts": TIMEOUTS, "limits": {"connections_per_address": 10_000}},
            files=files,
        )
        for kind in KINDS:
            begun = time.monotonic()
            with proxy(binary, plan, tally) as on:
                check(tally, on, kind)
            print(f"    in {time.monotonic() - begun:.1f} s")
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
