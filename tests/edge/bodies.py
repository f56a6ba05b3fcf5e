"""Bodies as they come: events arrive one by one, and a body of any size costs no memory.

An event is sent only when the client has said that it saw the one before; a proxy that holds events
back would stand still.
"""

import contextlib
import http.client
import http.server
import subprocess
import sys
import tempfile
import threading

from certificates import Authority
from stage import MEBIBYTE, Plan, Tally, api, binary_under_test, in_mebibytes, proxy

EVENTS = 20
EVENT_SECONDS = 5
LARGE = 1024 * MEBIBYTE
# An upload over HTTP/2 waits for the window again and again, which takes a busy machine minutes.
LARGE_OVER_HTTP2 = 256 * MEBIBYTE
# Read slowly by the API: what the proxy would take in all at once, it would hold.
SLOWLY_READ = 64 * MEBIBYTE
GROWTH = 64 * MEBIBYTE
SLOW_GROWTH = 16 * MEBIBYTE
TRANSFER_SECONDS = 90


class Events(http.server.BaseHTTPRequestHandler):
    """Sends an event when the one before was seen."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """A stream of events, in chunks."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(EVENTS):
            event = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            if not self.server.seen.acquire(timeout=EVENT_SECONDS):
                # Cut off: the client sees that something is wrong.
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_arguments):
        """Logs nothing: the log is not read."""


@contextlib.contextmanager
def events():
    """Serves events until the block ends."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Events) as server:
        server.daemon_threads = True
        server.seen = threading.Semaphore(0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def check_events(tally, name, server, lines):
    """Sees each event before the next one is sent."""
    numbers = []
    for line in lines:
        if line.startswith(b"data: "):
            numbers.append(int(line[6:]))
            server.seen.release()
    problems = [] if numbers == list(range(EVENTS)) else [f"{len(numbers)} arrived: {numbers}"]
    tally.record(f"{name}: events arrive as they are sent", problems)


def event_lines(port):
    """The lines of a response as they arrive, over HTTP/1.1."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * EVENT_SECONDS)
    try:
        connection.request("GET", "/events")
        response = connection.getresponse()
        with contextlib.suppress(http.client.HTTPException, OSError):
            while line := response.readline():
                yield line
    finally:
        connection.close()


def curl(*options):
    """The command, with a bound on its time; certificates are not checked here."""
    command = ["curl", "--silent", "--show-error", "--fail", "--insecure"]
    return [*command, "--max-time", str(TRANSFER_SECONDS), *options]


def check_sizes(tally, on, url, options):
    """A large body in each direction."""
    name = f"{options[0][2:]} {url.partition(':')[0]}"
    size = LARGE_OVER_HTTP2 if options == ["--http2"] else LARGE
    with tempfile.NamedTemporaryFile(prefix="tollgate-") as upload:
        upload.truncate(size)
        command = curl(*options, "--upload-file", upload.name, f"{url}/size")
        check_transfer(tally, f"{name}, upload", on, command, str(size))
    written = ["--output", "/dev/null", "--write-out", "%{size_download}"]
    command = curl(*options, *written, f"{url}/bytes/{LARGE}")
    check_transfer(tally, f"{name}, download", on, command, str(LARGE))


def check_transfer(tally, name, on, command, wanted, growth=GROWTH):
    """The command writes what is wanted, and the proxy has not grown by it."""
    before = on.resident()
    on.forget_peak()
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TRANSFER_SECONDS + 10)
    grown = on.peak() - before
    print(f"{name}: peak {in_mebibytes(on.peak())}, grown by {in_mebibytes(grown)}")
    problems = [] if ran.stdout == wanted else [f"{ran.stdout!r} instead of {wanted}", ran.stderr]
    tally.record(f"{name}: all of it arrives", problems)
    problems = [] if grown <= growth else [f"grown by {in_mebibytes(grown)}"]
    tally.record(f"{name}: memory stays flat", problems)


def main():
    """Events, then large bodies, then one that the API reads slowly."""
    binary = binary_under_test(__doc__, 240)

    tally = Tally()
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    front = {
        "listeners": [{}, {"tls": tls}],
        "files": Authority().issue("localhost", "127.0.0.1").files("main"),
    }
    with events() as server:
        plan = Plan([f"http://127.0.0.1:{server.server_port}"], **front)
        with proxy(binary, plan, tally) as on:
            check_events(tally, "HTTP/1.1", server, event_lines(on.port))
            secure = f"https://127.0.0.1:{on.ports[1]}/events"
            plain = f"http://127.0.0.1:{on.port}/events"
            for name, url, version in (
                ("HTTP/2", plain, "--http2-prior-knowledge"),
                ("HTTP/2 over TLS", secure, "--http2"),
                ("HTTP/1.1 over TLS", secure, "--http1.1"),
            ):
                command = curl("--no-buffer", version, url)
                with subprocess.Popen(command, stdout=subprocess.PIPE) as reading:
                    check_events(tally, name, server, reading.stdout)

    with api(tally) as api_port, proxy(
        binary, Plan([f"http://127.0.0.1:{api_port}"], **front), tally
    ) as on:
        plain, secure = f"http://127.0.0.1:{on.port}", f"https://127.0.0.1:{on.ports[1]}"
        check_sizes(tally, on, plain, ["--http1.1"])
        check_sizes(tally, on, secure, ["--http2"])
        with tempfile.NamedTemporaryFile(prefix="tollgate-") as upload:
            upload.truncate(SLOWLY_READ)
            for version in ("--http1.1", "--http2-prior-knowledge"):
                command = curl(version, "--upload-file", upload.name, f"{plain}/slow-size")
                name = f"{version[2:]}, read slowly"
                check_transfer(tally, name, on, command, str(SLOWLY_READ), growth=SLOW_GROWTH)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
