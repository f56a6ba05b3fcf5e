"""A client that sends exactly what it is given, and reports exactly what came back.

No redirects are followed, nothing is decompressed and no header is added: a comparison is only
as good as the client is dull.
"""

import http.client
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOST = "httpbin.test"
TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Reply:
    """A response; header names in lower case, repeated ones in the order they came."""

    status: int
    headers: tuple
    body: bytes

    def values(self, name):
        """Every value of a header."""
        return [value for key, value in self.headers if key == name]


def send(port, case):
    """One request on a connection of its own."""
    connection = open_connection(port)
    try:
        return send_on(connection, case)
    finally:
        connection.close()


def open_connection(port):
    """A connection that can carry several requests, see `send_on`."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)


def send_on(connection, case):
    """One request on an open connection; a body given as a list is sent in chunks."""
    connection.putrequest(case.method, case.target, skip_host=True, skip_accept_encoding=True)
    for name, value in all_headers(case):
        connection.putheader(name, value)
    chunked = isinstance(case.body, list)
    connection.endheaders(case.body, encode_chunked=chunked)
    return read_reply(connection.getresponse())


def all_headers(case):
    """The headers of a case with those that every request carries."""
    given = {name.lower() for name, _ in case.headers}
    usual = [("Host", HOST), ("User-Agent", "tollgate-compare"), ("Accept", "*/*")]
    headers = [pair for pair in usual if pair[0].lower() not in given] + list(case.headers)
    if isinstance(case.body, list):
        headers.append(("Transfer-Encoding", "chunked"))
    elif case.body is not None:
        headers.append(("Content-Length", str(len(case.body))))
    return headers


def read_reply(response):
    """Reads to the end; a body that is cut short raises."""
    headers = tuple((name.lower(), value) for name, value in response.getheaders())
    return Reply(response.status, headers, response.read())


class SharedStream:
    """Lets `HTTPResponse` read several replies from one socket.

    Each response would open a buffer of its own, lose in it what was read ahead, and close it.
    """

    def __init__(self, connection):
        self.stream = connection.makefile("rb")

    def makefile(self, _mode):
        """The one buffer."""
        return self

    def close(self):
        """The connection closes it."""

    def __getattr__(self, name):
        return getattr(self.stream, name)


def send_bytes(port, payload, methods):
    """Sends `payload` at once and reads one reply for each of `methods`."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(payload)
        return read_replies(SharedStream(connection), methods)


def read_replies(stream, methods):
    """One reply for each method, in order."""
    replies = []
    for method in methods:
        response = http.client.HTTPResponse(stream, method=method)
        response.begin()
        replies.append(read_reply(response))
    return replies


def send_after_continue(port, head, body):
    """Sends `body` only once `100 Continue` has come; gives that status line and the reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(head)
        stream = SharedStream(connection)
        interim = stream.readline().decode("latin-1").strip()
        while stream.readline().strip():
            pass
        connection.sendall(body)
        return interim, read_replies(stream, ["POST"])[0]


def curl_speaks_http2():
    """Whether the installed curl can do HTTP/2."""
    features = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
    return "HTTP2" in features.stdout


def send_http2(port, case):
    """One request over cleartext HTTP/2 with prior knowledge."""
    with tempfile.TemporaryDirectory(prefix="tollgate-curl-") as folder:
        folder = Path(folder)
        command = ["curl", "--silent", "--show-error", "--http2-prior-knowledge"]
        command += ["--max-time", str(TIMEOUT_SECONDS), "--request", case.method]
        command += ["--dump-header", str(folder / "head"), "--output", str(folder / "body")]
        for name, value in all_headers(case):
            command += ["--header", f"{name}: {value}"]
        if case.method == "HEAD":
            command += ["--head"]
        if case.body is not None:
            (folder / "upload").write_bytes(case.body)
            command += ["--data-binary", f"@{folder / 'upload'}"]
        command += [f"http://127.0.0.1:{port}{case.target}"]
        curl = subprocess.run(command, capture_output=True, text=True)
        if curl.returncode != 0:
            raise RuntimeError(curl.stderr.strip())
        status_line, *lines = (folder / "head").read_text("latin-1").strip().splitlines()
        version, status = status_line.split()[:2]
        if version != "HTTP/2":
            raise RuntimeError(f"curl spoke {version}")
        pairs = (line.split(": ", 1) for line in lines)
        headers = tuple((name.lower(), value.strip()) for name, value in pairs)
        # With --head curl writes the head to the output as well, and there is no body.
        body = folder / "body"
        has_body = case.method != "HEAD" and body.exists()
        return Reply(int(status), headers, body.read_bytes() if has_body else b"")
