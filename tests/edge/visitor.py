"""A client that behaves, in a process of its own, and how long its requests take.

As a program it makes requests to a port, in one of three ways, and prints the seconds that each
took, or what went wrong with it, as JSON:

    fresh    HTTP/1.1, a connection each
    kept     HTTP/1.1, one connection
    http2    HTTP/2, one connection
"""

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path

import frames

TIMEOUT_SECONDS = 10
# After each request, so that a visit is not a flood of its own.
PAUSE_SECONDS = 0.004


class Visit:
    """Visitors of each way, at work until they are waited for."""

    def __init__(self, port, count, ways=("fresh", "kept", "http2"), pause=PAUSE_SECONDS):
        arguments = [str(port), str(count), str(pause)]
        command = [sys.executable, "-B", str(Path(__file__).resolve())]
        self.processes = [
            subprocess.Popen([*command, way, *arguments], stdout=subprocess.PIPE) for way in ways
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()

    def results(self):
        """The seconds that good requests took, sorted, and what went wrong with others."""
        times, problems = [], []
        for process in self.processes:
            for result in json.loads(process.communicate()[0] or '["no output"]'):
                (problems if isinstance(result, str) else times).append(result)
        return sorted(times), problems


def percentile(times, part):
    """Such as 0.99, of sorted times."""
    return times[min(len(times) - 1, int(len(times) * part))] if times else float("inf")


def fresh(connect):
    """A connection each."""
    while True:
        connection = connect()
        yield get(connection)
        connection.close()


def kept(connect):
    """One connection, as long as it is kept open."""
    connection = connect()
    while True:
        yield get(connection)


def get(connection):
    """The status of one request."""
    connection.request("GET", "/")
    response = connection.getresponse()
    response.read()
    return response.status


def http2(port):
    """One connection, and another when the server takes no more requests on it."""
    block = frames.request_block()
    connection = None
    while True:
        if connection is None:
            connection = frames.Connection(port, timeout=TIMEOUT_SECONDS)
            decoder, stream = frames.hpack.Decoder(), 1
        connection.send(frames.request(stream, block))
        status, is_last = answer(connection, decoder, stream)
        if status is not None:
            yield status
        stream += 2
        if is_last:
            connection.close()
            connection = None


def answer(connection, decoder, stream):
    """The status of a response, none if the server never took the request; and whether it takes no
    others."""
    status, is_last = None, False
    while received := connection.read():
        kind, flags, of, payload = received
        if kind == frames.SETTINGS and not flags & frames.ACK:
            connection.send(frames.frame(frames.SETTINGS, frames.ACK))
        elif kind == frames.GOAWAY:
            if frames.goaway_code(payload) != "NO_ERROR":
                raise ConnectionError(f"GOAWAY {frames.goaway_code(payload)}")
            is_last = True
            if stream > int.from_bytes(payload[:4], "big"):
                return None, is_last
        elif kind == frames.HEADERS:
            status = int(dict(decoder.decode(payload))[":status"])
        elif kind == frames.RST_STREAM and of == stream:
            raise ConnectionError("the stream was reset")
        elif kind == frames.DATA and payload:
            connection.send(frames.window_update(0, len(payload)))
        if of == stream and flags & frames.END_STREAM and kind in (frames.DATA, frames.HEADERS):
            return status, is_last
    raise ConnectionError("the connection ended")


def begin(way, port):
    """Requests of one way, without end."""
    if way == "http2":
        return http2(port)

    def connect():
        return http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)

    return {"fresh": fresh, "kept": kept}[way](connect)


def main():
    """Each request at its time, and what came of it."""
    way, port, count, pause = sys.argv[1:]
    results = []
    visits = None
    for _ in range(int(count)):
        begun = time.monotonic()
        try:
            visits = visits or begin(way, int(port))
            status = next(visits)
            took = time.monotonic() - begun
            results.append(took if status == 200 else f"{way}: status {status}")
        except Exception as error:  # Whatever it is, it is this request's failure.
            results.append(f"{way}: {type(error).__name__}: {error}")
            visits = None
        time.sleep(float(pause))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
