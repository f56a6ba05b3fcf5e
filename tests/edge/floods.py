"""Floods of HTTP/2 frames: the sender is cut off, at a bounded cost, and other clients are not affected.

A flood comes over several connections at once, each opened again when it was ended, while good
clients go on over HTTP/1.1 and HTTP/2.
"""

import collections
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import frames
from hpack.hpack import encode_integer
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

FLOOD_SECONDS = 3
CONNECTIONS = 4
# Of a connection that is ended again and again.
MAX_RETURNS = 500
# By each of three visitors, spread over most of a flood.
REQUESTS = 200
PAUSE_SECONDS = 0.01
P99_SECONDS = 1
GROWTH = 64 * MEBIBYTE
BATCH = 100
GOOD_ENDS = {*frames.CODES.values(), "closed"} - {"NO_ERROR"}
BLOCK = frames.request_block("/bulk/")
MAX_STREAM = 0x7FFFFFFF


def streams(follow):
    """Requests, each of them followed by what `follow` gives for its stream."""
    stream = 1
    while stream < MAX_STREAM - 2 * BATCH:
        batch = b""
        for _ in range(BATCH):
            batch += frames.request(stream, BLOCK, flags=0) + follow(stream)
            stream += 2
        yield batch


def again(content, before=b""):
    """The same frames again and again."""
    if before:
        yield before
    while True:
        yield content * BATCH


def rapid_reset():
    """Requests that are taken back at once (CVE-2023-44487)."""
    cancel = b"\0\0\0\x08"
    return streams(lambda stream: frames.frame(frames.RST_STREAM, stream=stream, payload=cancel))


def made_you_reset_by_zero():
    """Requests that the server has to reset: no increment (CVE-2025-8671)."""
    return streams(lambda stream: frames.window_update(stream, 0))


def made_you_reset_by_overflow():
    """Requests that the server has to reset: a window too large."""
    return streams(lambda stream: frames.window_update(stream, MAX_STREAM) * 2)


def made_you_reset_by_priority():
    """Requests that the server has to reset: a priority of the wrong length."""
    return streams(lambda stream: frames.frame(frames.PRIORITY, stream=stream, payload=b"\0\0"))


def continuations():
    """A head that never ends."""
    start = frames.frame(frames.HEADERS, stream=1, payload=BLOCK)
    field = b"\x00\x01a" + encode_integer(8192, 7) + b"x" * 8192
    return again(frames.frame(frames.CONTINUATION, stream=1, payload=field), start)


def empty_continuations():
    """A head that never ends, without a byte."""
    start = frames.frame(frames.HEADERS, stream=1, payload=BLOCK)
    return again(frames.frame(frames.CONTINUATION, stream=1), start)


def pings():
    """Each wants an answer."""
    return again(frames.frame(frames.PING, payload=bytes(8)))


def settings():
    """Each wants an acknowledgement."""
    return again(frames.settings([(frames.INITIAL_WINDOW_SIZE, 65535)]))


def priorities():
    """Of streams that are not open."""
    return again(frames.frame(frames.PRIORITY, stream=1001, payload=b"\0\0\0\0\x10"))


def window_updates():
    """A byte more each."""
    return again(frames.window_update(0, 1))


def empty_data():
    """A body of nothing that does not end."""
    block = frames.request_block("/bulk/size", "POST")
    return again(frames.frame(frames.DATA, stream=1), frames.request(1, block, flags=0))


def unknown_frames():
    """Of a type that has no meaning, which is to be ignored (RFC 9113 section 5.5)."""
    return again(frames.frame(0xBB, payload=b""))


def header_growth():
    """Requests that fill the table of fields anew each time."""
    stream = 1
    while True:
        value = b"\x64" + bytes([97 + stream // 2 % 26]) * 100
        fields = b"".join(b"\x40\x04n%03d" % number + value for number in range(30))
        yield frames.request(stream, BLOCK + fields)
        stream += 2


def header_bomb():
    """One large field, which a byte each repeats."""
    large = b"\x40\x01a" + encode_integer(4000, 7) + b"x" * 4000
    yield frames.request(1, BLOCK + large)
    stream = 3
    while True:
        yield frames.request(stream, BLOCK + b"\xbe" * 16_000)
        stream += 2


def zero_windows():
    """Large answers that may never be sent."""
    yield frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)])
    block = frames.request_block(f"/bulk/bytes/{16 * MEBIBYTE}")
    yield b"".join(frames.request(stream, block) for stream in range(1, 200, 2))
    while True:
        time.sleep(0.1)
        yield b""


FLOODS = {
    flood.__name__: flood
    for flood in (
        *(rapid_reset, made_you_reset_by_zero, made_you_reset_by_overflow),
        *(made_you_reset_by_priority, continuations, empty_continuations, pings, settings),
        *(priorities, window_updates, empty_data, unknown_frames),
        *(header_growth, header_bomb, zero_windows),
    )
}
# Cost what their requests cost, and are no fault of the frame layer: these need not be ended.
TOLERATED = {"header_growth", "header_bomb", "zero_windows", "unknown_frames"}


def flood(port, name):
    """As a program: floods, and prints as JSON how its connections ended."""
    ends = collections.Counter()
    deadline = time.monotonic() + FLOOD_SECONDS

    def attack():
        for _ in range(MAX_RETURNS):
            if time.monotonic() >= deadline:
                return
            ends[attack_once(port, FLOODS[name](), deadline)] += 1

    attackers = [threading.Thread(target=attack) for _ in range(CONNECTIONS)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join()
    print(json.dumps(ends))


def attack_once(port, batches, deadline):
    """Sends until the connection ends, and returns how it ended."""
    try:
        connection = frames.Connection(port, timeout=FLOOD_SECONDS)
    except OSError:
        return "refused"
    goaways = []
    reading = threading.Thread(target=read_goaway, args=(connection, goaways), daemon=True)
    reading.start()
    try:
        for batch in batches:
            if time.monotonic() >= deadline:
                return "not ended"
            if not reading.is_alive():
                break
            connection.send(batch)
    except TimeoutError:
        # It is not read any more: that bounds the cost, too.
        return "stalled"
    except OSError:
        pass
    finally:
        reading.join(timeout=1)
        connection.close()
    return goaways[0] if goaways else "closed"


def read_goaway(connection, goaways):
    """Reads to the end, and notes the first GOAWAY with an error."""
    try:
        while received := connection.read():
            if received[0] == frames.GOAWAY and not goaways:
                code = frames.goaway_code(received[3])
                if code != "NO_ERROR":
                    goaways.append(code)
    except OSError:
        pass


def check(tally, on, name):
    """Good clients during a flood, and what it cost."""
    before = on.resident()
    on.forget_peak()
    command = [sys.executable, "-B", str(Path(__file__).resolve()), "--flood", name, str(on.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as flooding:
        try:
            with Visit(on.port, REQUESTS, pause=PAUSE_SECONDS) as visitors:
                times, problems = visitors.results()
            ends = json.loads(flooding.communicate(timeout=FLOOD_SECONDS + 30)[0] or "{}")
        finally:
            flooding.kill()
    p99, grown = percentile(times, 0.99), on.peak() - before
    label = name.replace("_", " ")
    print(f"{label}: p99 {p99 * 1000:.1f} ms, grown by {in_mebibytes(grown)}")
    tally.record(f"{label}: good clients are answered", problems[:5])
    slow = counts_latency() and p99 > P99_SECONDS
    tally.record(f"{label}: good clients are served soon", [f"p99 {p99:.3f} s"] if slow else [])
    large = grown > GROWTH
    tally.record(f"{label}: memory is bounded", [in_mebibytes(grown)] if large else [])
    if name not in TOLERATED:
        # The last one may just have been opened.
        is_ended = set(ends) & GOOD_ENDS and not set(ends) - GOOD_ENDS - {"not ended"}
        tally.record(f"{label}: the connection is ended", [] if is_ended else [str(ends)])


def main():
    """A fresh proxy for each flood: memory that one has given back would hide the next."""
    if "--flood" in sys.argv:
        name, port = sys.argv[2:]
        flood(int(port), name)
        return 0
    binary = binary_under_test(__doc__, 240)
    raise_descriptor_limit()

    tally = Tally()
    with api(tally) as api_port, api(tally) as bulk_port:
        plan = with_bulk(api_port, bulk_port)
        for name in FLOODS:
            with proxy(binary, plan, tally) as on:
                check(tally, on, name)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
