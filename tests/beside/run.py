"""Tollgate beside other proxies: nginx, Caddy, HAProxy, Traefik and Envoy ask it and forward to httpbin.

Each runs with the configuration of config/beside, but for the ports. A client that claims to be
somebody else, or to come from elsewhere, gets nowhere; denials reach the client; limit headers do;
and while Tollgate is away nothing gets past it.
"""

import contextlib
import http.client
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BESIDE = HERE.parents[1] / "config" / "beside"
sys.path[:0] = [str(HERE.parent / "edge")]
from stage import Plan, Tally, bearer, binary_under_test, eventually, free_port, proxy, running

SECONDS = 300
ALLOWED = 4
LIMITS = {
    "core": {"per": "caller", "rate": f"{ALLOWED}/hour"},
    "by-address": {"per": "client.ip", "rate": "1/hour"},
}
ROUTES = [
    {"match": {"path": "/anything/private"}, "auth": "required", "limits": ["core"]},
    {"match": {"path": "/anything/address"}, "auth": "none", "limits": ["by-address"]},
    {"match": {"path": "/anything/**"}, "auth": "optional", "limits": ["core"]},
]
STANDING = ("limit", "remaining", "used", "reset", "resource")
FORGED = {"X-Tollgate-Subject": "admin", "X-Tollgate-Tier": "internal"}
# What servers that make variables of names, as this API is, take for these.
ALIASES = {"X_Tollgate_Subject": "admin", "X-Tollgate_Tier": "internal", "X_Tollgate-Tier": "internal"}
# Fields in which servers look for where the client is.
ELSEWHERE = {"Forwarded": "for=203.0.113.9", "X-Real-IP": "203.0.113.9", "True-Client-IP": "203.0.113.9",
             "CF-Connecting-IP": "203.0.113.9", "X-Client-IP": "203.0.113.9", "Remote-User": "admin"}


# Python packages bring them.
TRAEFIK = str(Path(sys.executable).with_name("traefik"))
ENVOY = str(Path(sys.executable).with_name("envoy"))
AWAY = (500, 502, 503)
SUFFIXES = (".conf", ".lua", ".yaml")


class Beside:
    """One of the proxies: how it is started, and what it does otherwise."""

    def __init__(self, name, program, command, openly=None, protocol="http"):
        self.name, self.program, self.command = name, program, command
        self.protocol = protocol
        # What of its files lets everything through while Tollgate is away: before and after.
        self.openly = openly


PROXIES = [
    Beside("nginx", "nginx", lambda folder: [
        "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"),
        "-g", f"daemon off; pid {folder}/pid; error_log {folder}/error.log;",
    ], ("#error_page 500 ", "error_page 500 ")),
    Beside("caddy", "caddy", lambda folder: [
        "caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile"),
    ]),
    Beside("haproxy", "haproxy", lambda folder: [
        "haproxy", "-db", "-C", str(folder), "-f", str(folder / "haproxy.cfg"),
    ], ('AWAY = "closed"', 'AWAY = "open"')),
    Beside("envoy", ENVOY, lambda folder: [
        ENVOY, "--config-path", f"{folder}/authorize.yaml", "--log-level", "error",
        "--use-dynamic-base-id", "--concurrency", "1",
    ], ("failure_mode_allow: false", "failure_mode_allow: true"), "grpc"),
    Beside("traefik", TRAEFIK, lambda folder: [TRAEFIK, f"--configFile={folder}/traefik.yml"]),
]


def send(port, path, method="GET", headers=None, body=None, source="127.0.0.1"):
    """Status, header fields in lower case, and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return response.status, fields, response.read().decode()


def seen(text):
    """The header fields that httpbin has seen, by names in lower case."""
    return {name.lower(): value for name, value in json.loads(text)["headers"].items()}


def body_of(fields, text):
    """The media type of a body, and whether it is one that Tollgate makes."""
    try:
        answer = json.loads(text)
    except ValueError:
        return fields.get("content-type"), text
    media_type = fields.get("content-type", "").split(";")[0]
    return media_type, bool(answer.get("message") or answer.get("violated-policies"))


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


def try_proxy(beside, front, tally):
    """What a client can and cannot do."""
    name = beside.name
    # Traefik listens before it knows its routes.
    eventually(lambda: send(front, "/anything/private")[0] == 401)
    status, fields, text = send(
        front, "/anything/a?b=c", "POST", {"Authorization": bearer("42"), **FORGED}, "a body"
    )
    expect(tally, f"{name}: a request with a token", status, 200)
    if status == 200:
        api = seen(text)
        expect(tally, f"{name}: the API learns the caller", api.get("x-tollgate-subject"), "42")
        expect(tally, f"{name}: the tier is not forged", api.get("x-tollgate-tier"), "default")
        answer = json.loads(text)
        told = (answer["data"], answer["method"], answer["args"])
        expect(tally, f"{name}: body and query arrive", told, ("a body", "POST", {"b": "c"}))
    if name != "traefik":
        standing = [fields.get(f"x-ratelimit-{part}") for part in STANDING]
        expected = [str(ALLOWED), str(ALLOWED - 1), "1", standing[3], "core"]
        expect(tally, f"{name}: limit headers", standing, expected)
        tally.record(f"{name}: the reset is one", [] if (standing[3] or "").isdigit() else standing)

    status, _, text = send(front, "/anything/a", headers=FORGED)
    expect(tally, f"{name}: a request without a token", status, 200)
    if status == 200:
        subject = seen(text).get("x-tollgate-subject") or None
        expect(tally, f"{name}: a stolen subject is removed", subject, None)

    for alias, forged in ALIASES.items():
        status, _, text = send(front, "/anything/a", headers={alias: forged}, source="127.0.0.31")
        arrives = status == 200 and forged in seen(text).values()
        tally.record(f"{name}: {alias} does not arrive as ours",
                     [] if status in (200, 400) and not arrives else [(status, text)])
    status, _, text = send(front, "/anything/a", headers=ELSEWHERE, source="127.0.0.32")
    forged = {field: value for field, value in (seen(text) if status == 200 else {}).items()
              if value in ELSEWHERE.values()}
    expect(tally, f"{name}: the client does not say where it is", (status, forged), (200, {}))

    for target in ("/anything/private/..;/a", "/anything/private/..%3b/a", "/anything/private/..;x=y/a"):
        status, _, text = send(front, target, source="127.0.0.33")
        # Envoy asks about the normal form, and forwards that.
        is_normal = status == 200 and "private" not in json.loads(text)["url"]
        tally.record(f"{name}: {target} is not judged as another path",
                     [] if status == 400 or is_normal else [(status, text)])

    # Not those that servers answer themselves: what nginx passes on, and is no URI.
    for target in ("/anything/a#b", "/anything/<script>"):
        status = send(front, target, source="127.0.0.34")[0]
        tally.record(f"{name}: {target} is no error of the server",
                     [] if status == 400 or (status < 500 and name != "nginx") else [status])

    status, fields, text = send(front, "/anything/private", headers=FORGED)
    expect(tally, f"{name}: no token where one is needed", status, 401)
    challenges = fields.get("www-authenticate", "").count("Bearer")
    expect(tally, f"{name}: the challenge, once", challenges, 1)
    expect(tally, f"{name}: the body of a 401", body_of(fields, text), ("application/json", True))

    token = {"Authorization": bearer("43")}
    statuses = [send(front, "/anything/a", headers=token)[0] for _ in range(ALLOWED + 1)]
    expect(tally, f"{name}: the limit", statuses, [200] * ALLOWED + [429])
    status, fields, text = send(front, "/anything/a", headers=token)
    told = (status, fields.get("x-ratelimit-remaining"), "retry-after" in fields)
    expect(tally, f"{name}: a denial tells when to come back", told, (429, "0", True))
    expect(tally, f"{name}: the body of a denial", body_of(fields, text), ("application/json", True))
    problem = token | {"Accept": "application/problem+json"}
    status, fields, text = send(front, "/anything/a", headers=problem)
    told = (status, *body_of(fields, text))
    expect(tally, f"{name}: a denial as a problem", told, (429, "application/problem+json", True))

    first = send(front, "/anything/address", source="127.0.0.21")[0]
    second = send(front, "/anything/address", source="127.0.0.22")[0]
    elsewhere = {"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9"}
    third = send(front, "/anything/address", headers=elsewhere, source="127.0.0.21")[0]
    expect(tally, f"{name}: addresses are counted apart, and not forged",
           (first, second, third), (200, 200, 429))
    steered = {"X-Original-URI": "/", "X-Original-Method": "OPTIONS", "X-Forwarded-Uri": "/",
               "X-Forwarded-Method": "OPTIONS", "X-Forwarded-Host": "elsewhere.example"}
    status, _, _ = send(front, "/anything/private", headers=steered)
    expect(tally, f"{name}: a client cannot say what is asked about", status, 401)
    expect(tally, f"{name}: no route", send(front, "/elsewhere")[0], 404)


def try_openly(beside, front, folder, command, tally):
    """Everything gets through while Tollgate is away, if it is told to, and nobody is anybody."""
    before, after = beside.openly
    replaced = 0
    for file in (file for file in folder.iterdir() if file.suffix in SUFFIXES):
        text = file.read_text()
        replaced += text.count(before)
        file.write_text(text.replace(before, after))
    with running(f"{beside.name}, open", command, front, tally):
        status, _, text = send(front, "/anything/a", headers=FORGED)
        subject = seen(text).get("x-tollgate-subject") or None if status == 200 else "unknown"
        told = (replaced, status, subject)
        expect(tally, f"{beside.name}: open while Tollgate is away", told, (1, 200, None))


def ports_replaced(beside, front, back, asked, folder):
    """Copies the shipped files, with these ports in place of theirs."""
    for file in (BESIDE / beside.name).iterdir():
        text = file.read_text()
        for shipped, own in (("8080", front), ("9000", back), ("8090", asked), ("8091", asked)):
            text = text.replace(f"127.0.0.1:{shipped}", f"127.0.0.1:{own}")
            text = text.replace(f"port_value: {shipped}", f"port_value: {own}")
        # Traefik finds it from the folder in which it is started.
        text = text.replace("filename: dynamic.yml", f"filename: {folder}/dynamic.yml")
        (folder / file.name).write_text(text)


def check(binary, tally, back):
    """Each proxy that is there, with a Tollgate of its own."""
    for beside in PROXIES:
        if not shutil.which(beside.program):
            print(f"   {beside.name} is left out: there is no such program")
            continue
        front, asked = free_port(), free_port()
        plan = Plan([f"http://127.0.0.1:{back}"], limits=LIMITS, routes=ROUTES)
        plan.settings = {"decisions": [{"address": f"127.0.0.1:{asked}", "protocol": beside.protocol}]}
        with tempfile.TemporaryDirectory(prefix="beside-") as folder:
            folder = Path(folder)
            ports_replaced(beside, front, back, asked, folder)
            command = beside.command(folder)
            environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
            os.environ.update(environment)
            with proxy(binary, plan, tally) as tollgate:
                with running(beside.name, command, front, tally):
                    try_proxy(beside, front, tally)
                    tollgate.process.kill()
                    tollgate.process.wait()
                    status = send(front, "/anything/a", headers={"Authorization": bearer("9")})[0]
                    closed = status in AWAY
                    tally.record(f"{beside.name}: nothing gets past it while Tollgate is away",
                                 [] if closed else [status])
            if beside.openly:
                try_openly(beside, front, folder, command, tally)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    back = free_port()
    gunicorn = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{back}"]
    gunicorn += ["--worker-class", "gthread", "--threads", "8", "--no-control-socket"]
    # As WSGI servers did, and others do: X_A is X-A.
    gunicorn += ["--header-map", "dangerous", "httpbin:app"]
    with running("httpbin", gunicorn, back, tally):
        check(binary, tally, back)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
