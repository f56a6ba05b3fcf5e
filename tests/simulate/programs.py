"""Logs that nginx, Caddy, HAProxy, Envoy, Traefik and Tollgate write are read without being told how.

Each program runs with a log as it ships, forwards some requests to a server of this script, and gets
one that is no HTTP. Then `tollgate simulate --json` has to find the format, every request, and the
time at which the first one came: it is answered only after some seconds, so that a time of the end is
not taken for that of the arrival. `--save FOLDER` keeps the logs: those of tests/simulate/logs are
made so, and unit tests read them.
"""

import argparse
import contextlib
import datetime
import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "httpbin")]
from harness import Tally, free_port, give_up_after, running

SECONDS = 200
PATIENCE_SECONDS = 20
# How long the first request takes: so much longer than a busy machine takes to accept it that the end is
# not taken for the arrival.
SLOW_SECONDS = 4
POLICY = """
version: 1
upstreams: {{ api: {{ servers: ["http://127.0.0.1:{api}"] }} }}
limits: {{ core: {{ per: client.ip, rate: 100/hour }} }}
routes: [{{ match: {{ path: "/**" }}, limits: [core] }}]
"""
SETTINGS = """
version: 1
listeners: [{{ address: "127.0.0.1:{port}" }}]
policies: policies
access_log: {{ {format} }}
"""
REQUESTS = [
    ("GET", "/slow", {}),
    ("GET", "/a?b=c&d=%20e", {"User-Agent": "curl/8.5.0", "Referer": "http://example.com/x"}),
    ("POST", "/b", {"User-Agent": 'says "hi" \\ there'}),
    ("HEAD", "/c", {}),
    ("DELETE", "/missing", {"User-Agent": "\u00e4".encode().decode("latin-1")}),
    ("GET", "/" + "x" * 2000, {}),
]
NO_HTTP = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n"
PACKAGES = Path(sys.executable).parent

NGINX = """
events {{}}
http {{
    {more}
    access_log {log}{format};
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{api}; }}
    }}
}}
"""
NGINX_JSON = """
    log_format json escape=json '{{"time_iso8601":"$time_iso8601","msec":"$msec","remote_addr":"$remote_addr",'
        '"remote_user":"$remote_user","request":"$request","status":$status,"request_time":$request_time,'
        '"host":"$host","http_user_agent":"$http_user_agent","http_referer":"$http_referer"}}';
"""
# As the nginx.conf that nginx publishes has it, with the duration that most people add.
NGINX_MAIN = """
    log_format main '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        '"$http_referer" "$http_user_agent" "$http_x_forwarded_for" $request_time';
"""
CADDY = """
{{
    admin off
    auto_https off
}}
http://127.0.0.1:{port} {{
    log {{
        output file {log}
    }}
    reverse_proxy 127.0.0.1:{api}
}}
"""
# With several threads, one that finds standard output in use drops its line.
HAPROXY = """
global
    nbthread 1
    log stdout format {format} local0
defaults
    mode http
    log global
    option httplog
    option dontlognull
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend http-in
    bind 127.0.0.1:{port}
    default_backend api
backend api
    server one 127.0.0.1:{api}
"""
ENVOY = """
static_resources:
  listeners:
    - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                use_remote_address: true
                access_log:
                  - name: envoy.access_loggers.file
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                      path: {log}
{format}
                route_config:
                  virtual_hosts:
                    - name: api
                      domains: ["*"]
                      routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: api }} }}]
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: api
      connect_timeout: 5s
      load_assignment:
        cluster_name: api
        endpoints:
          - lb_endpoints:
              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {api} }} }} }}
"""
# The fields of Envoy's documentation of access logs.
ENVOY_JSON = """
                      log_format:
                        json_format:
                          start_time: "%START_TIME%"
                          method: "%REQ(:METHOD)%"
                          path: "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"
                          protocol: "%PROTOCOL%"
                          response_code: "%RESPONSE_CODE%"
                          duration: "%DURATION%"
                          authority: "%REQ(:AUTHORITY)%"
                          downstream_remote_address: "%DOWNSTREAM_REMOTE_ADDRESS%"
                          user_agent: "%REQ(USER-AGENT)%"
"""
TRAEFIK = """
entryPoints: {{ web: {{ address: "127.0.0.1:{port}" }} }}
providers: {{ file: {{ filename: {folder}/dynamic.yml }} }}
accessLog: {{ filePath: {log}{format} }}
"""
TRAEFIK_ROUTES = """
http:
  routers: {{ api: {{ rule: "PathPrefix(`/`)", entryPoints: [web], service: api }} }}
  services: {{ api: {{ loadBalancer: {{ servers: [{{ url: "http://127.0.0.1:{api}" }}] }} }} }}
"""


class Program:
    """A program with a log: how it is started, and what is to be found in the log."""

    listens_early = False

    def __init__(self, name, binary, command, files, found, bad, arrives=True):
        self.name, self.binary, self.command, self.files = name, binary, command, files
        # The format that is to be found, and whether what is no HTTP has a line.
        self.found, self.bad = found, bad
        # Whether the log can say when a request came.
        self.arrives = arrives


def nginx(name, found, format, more, arrives=True):
    """nginx with a log format."""
    def command(folder):
        return ["nginx", "-p", f"{folder}", "-c", f"{folder}/nginx.conf", "-g",
                f"daemon off; pid {folder}/pid; error_log {folder}/error.log;"]
    text = NGINX.replace("{format}", format).replace("{more}", more)
    return Program(name, "nginx", command, {"nginx.conf": text}, found, 1, arrives)


def haproxy(name, format):
    """HAProxy, whose log goes to standard output."""
    def command(folder):
        return ["sh", "-c", f"exec haproxy -db -f {folder}/haproxy.cfg > {folder}/access.log"]
    text = HAPROXY.replace("{format}", format)
    return Program(name, "haproxy", command, {"haproxy.cfg": text}, "haproxy", 1)


def tollgate(binary, name, format):
    """Tollgate itself, whose log goes to standard output, too. What is no HTTP has a line, which is
    understood: it is skipped."""
    def command(folder):
        config = f"{folder}/tollgate.yaml"
        return ["sh", "-c", f"exec {binary} run --config {config} > {folder}/access.log"]
    files = {"tollgate.yaml": SETTINGS.replace("{format}", format)}
    return Program(name, binary, command, files, name, 0)


def envoy(name, format):
    """Envoy with a log format."""
    binary = str(PACKAGES / "envoy")
    def command(folder):
        return [binary, "--config-path", f"{folder}/envoy.yaml", "--log-level", "error",
                "--use-dynamic-base-id", "--concurrency", "1", "--file-flush-interval-msec", "100"]
    files = {"envoy.yaml": ENVOY.replace("{format}", format)}
    return Program(name, binary, command, files, "envoy", 1)


def traefik(name, found, format):
    """Traefik with a log format."""
    binary = str(PACKAGES / "traefik")
    files = {"traefik.yml": TRAEFIK.replace("{format}", format), "dynamic.yml": TRAEFIK_ROUTES}
    program = Program(
        name, binary, lambda folder: [binary, f"--configFile={folder}/traefik.yml"], files, found, 0
    )
    program.listens_early = True
    return program


PROGRAMS = [
    nginx("nginx", "combined", "", "", arrives=False),
    nginx("nginx-main", "combined", " main", NGINX_MAIN),
    nginx("nginx-json", "nginx-json", " json", NGINX_JSON),
    Program("caddy", "caddy", lambda folder: [
        "caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile",
    ], {"Caddyfile": CADDY}, "caddy", 0),
    haproxy("haproxy", "raw"),
    haproxy("haproxy-syslog", "rfc3164"),
    envoy("envoy", ""),
    envoy("envoy-json", ENVOY_JSON),
    traefik("traefik", "combined", ""),
    traefik("traefik-json", "traefik", ", format: json"),
]


class Api(http.server.BaseHTTPRequestHandler):
    """Answers every request, some late."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        """Responds; reads a body first."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/slow":
            time.sleep(SLOW_SECONDS)
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = do_HEAD = do_DELETE = answer

    def log_message(self, *_arguments):
        """Says nothing."""


class ApiServer(http.server.ThreadingHTTPServer):
    """A server that does not mind programs that hang up."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_arguments):
        """Says nothing."""


def send_all(port):
    """Sends the requests, and then what is none; returns when the first one was sent."""
    sent = None
    for method, path, headers in REQUESTS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.closing(connection):
            sent = sent or time.time()
            connection.request(method, path, headers=headers)
            connection.getresponse().read()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(NO_HTTP)
        with contextlib.suppress(OSError):
            connection.recv(1024)
    return sent


def wait_for_routes(port):
    """Waits until the program forwards: Traefik listens before it does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("it does not forward requests")


def wait_for_lines(log, count):
    """Waits until a log has so many lines: programs write them when they like."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if log.exists() and log.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.1)


def simulated(binary, folder, log):
    """What the command says of a log."""
    command = [binary, "simulate", "--policy", str(folder / "policies"), "--log", str(log), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def seconds_of(text):
    """Seconds since 1970 of a time in RFC 3339."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


@contextlib.contextmanager
def forwarded(program, handler, policy, send, tally):
    """A folder with the log of what a program has forwarded, and what its files were filled with. `send`
    sends that to a port, and returns how many lines it makes."""
    api = ApiServer(("127.0.0.1", 0), handler)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="tollgate-simulate-") as folder:
        folder = Path(folder)
        # A program that gives up its rights writes there, too.
        folder.chmod(0o755)
        log, port = folder / "access.log", free_port()
        places = {"port": port, "api": api.server_address[1], "log": log, "folder": folder}
        for file, text in program.files.items():
            (folder / file).write_text(text.format(**places))
        (folder / "policies").mkdir()
        (folder / "policies" / "main.yaml").write_text(policy.format(**places))
        # HAProxy writes a date without an offset, which is read as UTC.
        os.environ["TZ"] = "UTC"
        with running(program.name, program.command(folder), port, tally):
            if program.listens_early:
                wait_for_routes(port)
            wait_for_lines(log, send(port) + program.listens_early)
        api.shutdown()
        api.server_close()
        yield folder, places


def try_program(program, binary, save, tally):
    """Has a program write its log, and has Tollgate read it."""
    name = program.name
    sent = None

    def send(port):
        nonlocal sent
        sent = send_all(port)
        return len(REQUESTS) + program.bad
    with forwarded(program, Api, POLICY, send, tally) as (folder, _):
        log = folder / "access.log"
        lines = log.read_bytes().splitlines()
        # Those of waiting: Traefik has no line of some that it answers with 404 itself.
        asked = sum(b"/ready" in line for line in lines)
        count = asked + len(REQUESTS)
        if save:
            shutil.copy(log, save / f"{name}.log")
        read = simulated(binary, folder, log)["read"]
        expect(tally, f"{name}: the format", read["files"][0]["format"], program.found)
        expect(tally, f"{name}: the requests", read["requests"], count)
        tally.record(f"{name}: what is no HTTP", [] if read["bad"] == program.bad else [read])
        if program.arrives:
            # A grain of a second cuts off up to a second. If something was asked before, that is
            # the first one, and was sent a moment earlier.
            ahead = seconds_of(read["first"]) - sent
            problems = [] if -1.1 - asked < ahead < SLOW_SECONDS - 1.1 else [f"{ahead} s after it was sent"]
            tally.record(f"{name}: the first one's arrival", problems)


def main():
    """Tries each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    parser.add_argument("--save", type=Path, help="a folder in which to keep the logs")
    options = parser.parse_args()
    give_up_after(SECONDS)
    binary = str(Path(options.tollgate).resolve())
    tally = Tally()
    own = [tollgate(binary, "tollgate-json", "format: json, facts: true"),
           tollgate(binary, "tollgate-text", "format: text")]
    for program in own + PROGRAMS:
        if shutil.which(program.binary) is None:
            print(f"skipped {program.name}: there is no {program.binary}")
            continue
        try_program(program, binary, options.save, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
