"""The frameworks, the routes that each has, and requests whose target is written byte for byte."""

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "edge")]
from stage import free_port, running

PYTHON = [sys.executable, "-B", str(HERE / "servers.py")]


@dataclass(frozen=True)
class Route:
    """A route of the policy; its name is that of the only handler that it is for."""

    name: str
    path: str
    # Whether requests may get to the handler by other routes.
    is_open: bool = False
    # Whether it has a limit by `path.id`.
    is_counted: bool = False


ROUTES = [
    Route("login", "/login"),
    Route("admin", "/admin/**"),
    Route("me", "/users/@me"),
    Route("cancel", "/v1/jobs:cancel"),
    Route("user", "/users/{id}", is_counted=True),
    Route("health", "/health", is_open=True),
    # After one that Rails would take it for.
    Route("report", "/health.json"),
    Route("rest", "/**", is_open=True),
]
TARGETS = [
    "/login", "/login", "/admin/users", "/users/@me", "/v1/jobs:cancel", "/users/7", "/users/a:b",
    "/users/x.y", "/users/Bob", "/health", "/health.json", "/other",
]
SCRIPTS = [
    Route("login", "/login.php"),
    Route("admin", "/admin/**"),
    Route("health", "/health.php", is_open=True),
    Route("index", "/**", is_open=True),
]


@dataclass(frozen=True)
class Framework:
    """What serves the routes."""

    name: str
    # The word in `paths`.
    preset: str
    command: tuple
    routes: tuple = tuple(ROUTES)
    targets: tuple = tuple(TARGETS)


def frameworks(folder):
    """All of them; what has to be compiled is put into `folder`."""
    node = Path(os.environ.get("TOLLGATE_NODE_FRAMEWORKS", HERE)) / "servers.mjs"
    found = []
    for name in ("express", "express4", "koa", "fastify", "fastify4", "hono"):
        found.append(Framework(name, name.rstrip("4"), ("node", str(node), name)))
    for name in ("fastapi", "flask", "django", "aiohttp"):
        found.append(Framework(name, name, (*PYTHON, name)))
    # By its path: a version manager's Ruby has no packages of Debian.
    found.append(Framework("rails", "rails", ("/usr/bin/ruby", str(HERE / "servers.rb"))))
    scripts = ("/login.php", "/admin/users.php", "/health.php", "/index.php", "/other")
    found.append(Framework("php", "php", ("php", "PORT"), tuple(SCRIPTS), scripts))
    binary = Path(folder) / "servers"
    environment = os.environ | {"GOCACHE": str(Path(folder) / "cache"), "GO111MODULE": "off"}
    command = [shutil.which("go") or "/usr/lib/go/bin/go", "build", "-o", binary, "servers.go"]
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    # Its patterns that end in a slash are for all below.
    below = [Route("user", "/users/**") if own.name == "user" else own for own in ROUTES]
    found.append(Framework("go", "go", (str(binary),), tuple(below)))
    return found


@contextlib.contextmanager
def serving(framework, tally):
    """Runs a framework until the block ends, and gives its port."""
    port = free_port()
    command = [*framework.command, str(port)]
    if framework.name == "php":
        command = ["php", "-S", f"127.0.0.1:{port}", "-t", str(HERE / "php")]
    with running(framework.name, command, port, tally):
        yield port


@dataclass(frozen=True)
class Answer:
    """What came back: the handler that was reached, if one was."""

    status: int
    handler: str = ""
    # The parameter, decoded.
    value: str = ""
    # The route that the proxy took.
    route: str = ""


def ask(port, target):
    """Sends a GET of this target, as it is written."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        head = f"GET {target} HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        response = http.client.HTTPResponse(connection, method="GET")
        response.begin()
        body = response.read().decode("utf-8", "replace")
        if response.status != 200:
            return Answer(response.status)
        words = body.split()
        if len(words) != 3:
            raise RuntimeError(f"{target} was answered with {body[:200]!r}")
        handler, value, route = words
        return Answer(200, handler, "" if value == "-" else unquote(value), route)


@contextlib.contextmanager
def scratch():
    """A folder for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="tollgate-frameworks-") as folder:
        yield folder
