"""Every way in, by curl and openssl: versions of HTTP and TLS, certificates by name, resumption,
client certificates, a redirect, HSTS, a Unix socket and the PROXY protocol."""

import http.client
import http.server
import json
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from certificates import Authority
from stage import ANYTHING, Plan, Tally, binary_under_test, eventually, proxy

NAMES = {
    "main": ("localhost", "127.0.0.1"),
    "api": ("api.test",),
    "wild": ("*.wild.test", "wild.test"),
}
YEAR_SECONDS = 31_557_600
PROXY_2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
SECONDS = 15


class Mirror(http.server.BaseHTTPRequestHandler):
    """Answers with the headers that it got."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """As JSON, by names in lower case."""
        seen = {name.lower(): value for name, value in self.headers.items()} | {":path": self.path}
        body = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        """Logs nothing: the log is not read."""


class Ways:
    """The listeners, in the order of `main`, and the files that clients need."""

    def __init__(self, on, tally):
        self.on = on
        self.tally = tally
        self.plain, self.secure, self.mutual, self.redirect, self.proxied = on.ports
        self.authority = on.folder / "authority.pem"

    def expect(self, name, wanted, seen):
        """A check that one value is another."""
        self.tally.record(name, [] if wanted == seen else [f"{seen!r} instead of {wanted!r}"])

    def curl(self, url, *options):
        """Status, version, headers and body; for a failure, its exit code and what was said."""
        with tempfile.NamedTemporaryFile(prefix="tollgate-") as body:
            command = ["curl", "--silent", "--show-error", "--max-time", str(SECONDS)]
            command += ["--output", body.name, "--cacert", str(self.authority)]
            wanted = "%{http_code} %{http_version}\n%{header_json}"
            command += ["--write-out", wanted, *options, url]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                return Answer(f"curl {ran.returncode}", ran.stderr.strip(), {}, {})
            line, _, headers = ran.stdout.partition("\n")
            status, version = line.split()
            text = Path(body.name).read_text()
        seen = json.loads(text) if text.startswith('{"host') or '":path"' in text else {}
        return Answer(int(status), version, json.loads(headers), seen)

    def openssl(self, port, *options, say="Q\n"):
        """What `openssl s_client` prints."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}"]
        command += ["-CAfile", str(self.authority), *options]
        ran = subprocess.run(command, input=say, capture_output=True, text=True, timeout=SECONDS)
        return ran.stdout + ran.stderr


class Answer:
    """What curl saw, and what the API had seen."""

    def __init__(self, status, version, headers, seen):
        self.status = status
        self.version = version
        self.headers = headers
        self.seen = seen

    @property
    def way(self):
        """Status and version."""
        return self.status, self.version

    @property
    def is_failure(self):
        """Whether there was no response."""
        return not isinstance(self.status, int)


def check_versions(to):
    """HTTP/1.0, 1.1 and 2, in plain, by ALPN, and what is not spoken."""
    plain, secure = f"http://127.0.0.1:{to.plain}/x", f"https://127.0.0.1:{to.secure}/x"
    for name, url, options, wanted in (
        ("HTTP/1.0", plain, ["--http1.0"], {(200, "1"), (200, "1.1")}),
        ("HTTP/1.1", plain, ["--http1.1"], {(200, "1.1")}),
        ("HTTP/2 by prior knowledge", plain, ["--http2-prior-knowledge"], {(200, "2")}),
        # An upgrade to h2c is never made; the request is answered nevertheless.
        ("HTTP/2 by upgrade", plain, ["--http2"], {(200, "1.1")}),
        ("HTTP/1.1 over TLS", secure, ["--http1.1"], {(200, "1.1")}),
        ("HTTP/2 over TLS", secure, ["--http2"], {(200, "2")}),
        ("no ALPN", secure, ["--no-alpn"], {(200, "1.1")}),
        ("TLS 1.2", secure, ["--tls-max", "1.2"], {(200, "2")}),
        ("TLS 1.3", secure, ["--tlsv1.3"], {(200, "2")}),
    ):
        way = to.curl(url, *options).way
        to.tally.record(name, [] if way in wanted else [f"{way} instead of {wanted}"])
    for version in ("-tls1", "-tls1_1"):
        # The client's own defaults would forbid these.
        said = to.openssl(to.secure, version, "-cipher", "DEFAULT:@SECLEVEL=0")
        to.expect(f"{version[1:]} is refused", False, "Cipher is ECDHE" in said)
    said = to.openssl(to.secure, "-alpn", "spdy/3")
    to.expect("ALPN of an unknown protocol", False, "ALPN protocol: spdy" in said)
    answer = to.curl(f"http://127.0.0.1:{to.secure}/")
    to.tally.record("http on the TLS port", [] if answer.is_failure else [str(answer.way)])
    for version in ("--http1.1", "--http2"):
        proto = to.curl(secure, version).seen.get("x-forwarded-proto")
        to.expect(f"the API sees https, {version}", "https", proto)
    to.expect("the API sees http", "http", to.curl(plain).seen.get("x-forwarded-proto"))


def check_names(to):
    """Each name gets its certificate, and an unknown one the first."""
    for host, wanted in {
        "localhost": "localhost",
        "api.test": "api.test",
        "API.test": "api.test",
        "a.wild.test": "*.wild.test",
        "wild.test": "*.wild.test",
        "a.b.wild.test": "localhost",
        "unknown.test": "localhost",
        None: "localhost",
    }.items():
        said = to.openssl(to.secure, *(["-servername", host] if host else ["-noservername"]))
        subject = re.search(r"subject=CN = (\S+)", said)
        to.expect(f"the certificate of {host}", wanted, subject and subject[1])
    for host in ("api.test", "a.wild.test"):
        resolve = ["--resolve", f"{host}:{to.secure}:127.0.0.1"]
        to.expect(f"https://{host}", 200, to.curl(f"https://{host}:{to.secure}/", *resolve).status)


def check_resumption(to):
    """A client that comes again need not begin anew."""
    for version in ("-tls1_2", "-tls1_3"):
        session = str(to.on.folder / f"session{version}")
        request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        # A ticket of TLS 1.3 comes after the handshake: the answer is waited for.
        options = [version, "-ign_eof", "-servername", "localhost"]
        first = to.openssl(to.secure, *options, "-sess_out", session, say=request)
        to.expect(f"{version[1:]}: a first time", True, "New, TLSv1" in first)
        again = to.openssl(to.secure, *options, "-sess_in", session, say=request)
        to.expect(f"{version[1:]}: resumed", True, "Reused, TLSv1" in again)
        to.expect(f"{version[1:]}: answered", True, "HTTP/1.1 200" in again)


def check_client_certificates(to):
    """Who shows one is called by it; a stranger's is refused; without one, a token is needed."""
    url = f"https://127.0.0.1:{to.mutual}/machines"
    pair = ["--cert", str(to.on.folder / "client.pem"), "--key", str(to.on.folder / "client.key")]
    stranger = [option.replace("client.", "stranger.") for option in pair]
    answer = to.curl(url, *pair)
    to.expect("a certificate", (200, "2"), answer.way)
    to.expect("is a caller of its own", ["999"], answer.headers.get("x-ratelimit-remaining"))
    to.expect("and again", ["998"], to.curl(url, *pair).headers.get("x-ratelimit-remaining"))
    to.expect("none", 401, to.curl(url).status)
    answer = to.curl(url, *stranger)
    to.tally.record("a stranger's", [] if answer.is_failure else [str(answer.way)])
    answer = to.curl(f"https://127.0.0.1:{to.secure}/", *pair)
    to.expect("a certificate where it is not required", 200, answer.status)


def check_redirect(to):
    """Plain requests are sent to https, and the promise of it is on every secure answer."""
    answer = to.curl(f"http://localhost:{to.redirect}/a/b?c=d%20e")
    to.expect("redirected", 308, answer.status)
    to.expect("to where", ["https://localhost/a/b?c=d%20e"], answer.headers.get("location"))
    to.expect("and charged nothing", None, answer.headers.get("x-ratelimit-limit"))
    answer = to.curl(f"http://127.0.0.1:{to.redirect}/", "-H", "Host: a b")
    to.expect("a malformed host", 400, answer.status)
    cases = ("answers", "/", "--http2"), ("refusals", "/machines", "--http1.1")
    for name, path, version in cases:
        promised = to.curl(f"https://127.0.0.1:{to.secure}{path}", version).headers
        promise = promised.get("strict-transport-security")
        seconds = re.match(r"max-age=(\d+)", promise[0]) if promise else None
        # A year is 365 days to some, and a quarter more to others.
        is_year = bool(seconds) and abs(int(seconds[1]) - YEAR_SECONDS) <= 86_400
        to.tally.record(f"HSTS on {name}", [] if is_year else [str(promise)])
    unpromised = to.curl(f"http://127.0.0.1:{to.plain}/").headers
    to.expect("no HSTS in plain", None, unpromised.get("strict-transport-security"))


def check_unix_socket(to):
    """The same over a socket in the file system."""
    where = ["--unix-socket", str(to.on.folder / "t.sock")]
    for version in ("--http1.1", "--http2-prior-knowledge"):
        answer = to.curl("http://localhost/x", *where, version)
        to.expect(f"a Unix socket {version}", 200, answer.status)
        to.expect("with limits", ["1000000"], answer.headers.get("x-ratelimit-limit"))


def check_proxy_protocol(to):
    """Who is calling, as the balancer in front says it; and nothing without that."""
    address = to.curl(f"http://127.0.0.1:{to.proxied}/", "--haproxy-protocol").seen
    to.expect("version 1 by curl", "127.0.0.1", address.get("x-forwarded-for"))
    request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
    ends = struct.pack(">HH", 1234, 80)
    four = socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1") + ends
    six = socket.inet_pton(socket.AF_INET6, "2001:db8::7") * 2 + ends
    for name, header, wanted in (
        ("version 1", b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 80\r\n", "192.0.2.7"),
        ("version 1, IPv6", b"PROXY TCP6 2001:db8::7 2001:db8::1 1234 80\r\n", "2001:db8::7"),
        ("version 1, unknown", b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        ("version 2", proxy_2(0x21, 0x11, four), "192.0.2.7"),
        ("version 2, IPv6", proxy_2(0x21, 0x21, six), "2001:db8::7"),
        ("version 2, with more", proxy_2(0x21, 0x11, four + b"\x04\x00\x03abc"), "192.0.2.7"),
        ("version 2, the balancer itself", proxy_2(0x20, 0x00, b""), "127.0.0.1"),
        ("no header", b"", None),
        ("half of one", b"PROXY TCP4 192.0.2.7\r\n", None),
        ("version 3", proxy_2(0x31, 0x11, four), None),
        ("not an address", b"PROXY TCP4 192.0.2.777 192.0.2.1 1234 80\r\n", None),
        ("an address too short", proxy_2(0x21, 0x11, four[:8]), None),
    ):
        to.expect(name, wanted, forwarded_address(to.proxied, header + request))
    header = b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 80\r\n"
    to.expect("a listener without the PROXY protocol", None, forwarded_address(to.plain, header + request))


def proxy_2(version, family, addresses):
    """A header of version 2."""
    return PROXY_2_SIGNATURE + struct.pack(">BBH", version, family, len(addresses)) + addresses


def forwarded_address(port, payload):
    """The address that the API receives; none when the request does not reach it."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        # A byte at a time would be too good to be true, and two pieces are not.
        for piece in (payload[:11], payload[11:]):
            try:
                connection.sendall(piece)
            except OSError:
                return None
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            body = response.read()
        except (http.client.HTTPException, OSError):
            return None
    return json.loads(body).get("x-forwarded-for") if response.status == 200 else None


def listeners():
    """A plain one, one with TLS, one that asks for certificates, a redirect, one behind a balancer,
    and a socket in the file system."""
    pairs = [{"certificate_file": f"{name}.pem", "key_file": f"{name}.key"} for name in NAMES]
    mutual = {"certificates": pairs[:1], "client_ca_file": "authority.pem"}
    return [
        {},
        {"tls": {"certificates": pairs}, "hsts": {"max_age": "1y"}},
        {"tls": mutual | {"client_certificate": "optional"}},
        {"redirect": "https"},
        {"proxy_protocol": {"trusted": ["127.0.0.0/8"]}},
        {"address": "unix:FOLDER/t.sock"},
    ]


def main():
    """One proxy with every kind of listener."""
    binary = binary_under_test(__doc__, 120)

    tally = Tally()
    authority = Authority()
    files = {"authority.pem": authority.pem}
    for name, hosts in NAMES.items():
        files |= authority.issue(*hosts).files(name)
    files |= authority.issue("machine-1").files("client")
    files |= Authority("Stranger").issue("machine-1").files("stranger")
    machines = {"match": {"path": "/machines"}, "auth": "required", "limits": ["machines"]}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as api:
        api.daemon_threads = True
        threading.Thread(target=api.serve_forever, daemon=True).start()
        plan = Plan(
            [f"http://127.0.0.1:{api.server_port}"],
            limits={"machines": {"per": "caller", "rate": "1000/hour"}},
            routes=[ANYTHING | machines, ANYTHING],
            callers=[{"name": "machine", "key": "client_certificate.subject"}],
            listeners=listeners(),
            files=files,
        )
        with proxy(binary, plan, tally) as on:
            to = Ways(on, tally)
            eventually((on.folder / "t.sock").exists)
            for check in (
                *(check_versions, check_names, check_resumption, check_client_certificates),
                *(check_redirect, check_unix_socket, check_proxy_protocol),
            ):
                try:
                    check(to)
                except (OSError, subprocess.SubprocessError, ValueError) as error:
                    tally.record(check.__name__, [f"{type(error).__name__}: {error}"])
            unix = on.folder / "t.sock"
            on.process.terminate()
            to.expect("it ends well", 0, on.process.wait(timeout=40))
            to.expect("and takes its socket along", False, unix.exists())
        api.shutdown()
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
