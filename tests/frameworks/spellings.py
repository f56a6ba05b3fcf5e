"""Frameworks behind the proxy, each with its preset in `paths`: random spellings of their paths.

No spelling reaches the handler of a route with a lock by another route, and none has a counter of
its own. The table of docs/frameworks.md is what the frameworks do by themselves.

`TOLLGATE_SPELLINGS` is how many paths each gets, `TOLLGATE_SEED` where they begin.
`spellings.py --table` prints the table.
"""

import os
import random
import sys
import time
from collections import Counter

from stand import HERE, ask, frameworks, scratch, serving

from stage import Plan, Tally, binary_under_test, proxy

SECONDS = 1_200
PATHS = int(os.environ.get("TOLLGATE_SPELLINGS", 5_000))
# How often each user may be asked for.
RATE = 20
DOCUMENT = HERE.parents[1] / "docs" / "frameworks.md"

# Put in anywhere.
PIECES = [
    "%0A", "%0D%0A", "%00", "%09", "%20", "%7F", "%2F", "%5C", "%3B", "%3Bx", ";", ";x=1", ";/", ".",
    "..", "./", "../", "/", "//", "/./", "/x/../", "%2e", "%2e%2e/", "%252e", "%2540", "%C2%A0", "%85",
    "%C0%AE", "%EF%BC%8F", "%E2%80%A8", "+", "%2B", "&", "%26", "%23", "%3F", "*", "~", "%E2%84%AA",
    "%C5%BF", "index.php", "/index.php/", "{", "%7B", "|", "%7C",
]
# Put at the end.
ENDINGS = [
    "/", "//", ".json", ".xml", ".", ".html.json", ";x", ";jsessionid=1", ";x/y", "/;x", "%0A", "%20",
    "/x", "/index.php", "?x", "?/../x", "/.", "/..", "/x/..", "%2F", "%2e", "%00.json", ".JSON", "/x/",
]
BEGINNINGS = ["/", "/.", "/x/..", "/index.php", "/;x", "/%2e", "/INDEX.PHP", "/./"]


def spelled(source, target):
    """A path that some server may take for `target`."""
    for _ in range(source.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        at = source.randrange(1, len(target) + 1)
        character = target[at - 1]
        match source.randrange(9):
            case 0:
                target = target[:at] + source.choice(PIECES) + target[at:]
            case 1:
                target = source.choice(BEGINNINGS) + target
            case 2 | 3:
                target += source.choice(ENDINGS)
            case 4:
                target = target.swapcase() if source.randrange(2) else target.upper()
            case 5:
                target = target[: at - 1] + character.swapcase() + target[at:]
            case _ if character.isalnum() or character in "@:.":
                escape = f"%{ord(character):02x}"
                escape = escape.upper() if source.randrange(2) else escape
                target = target[: at - 1] + escape + target[at:]
            case _:
                # Each character that a path may hold as itself.
                target = "".join(
                    f"%{ord(each):02X}" if each in "@:;!$&'()*+,=" else each for each in target
                )
    return target


def plan_of(framework, port):
    """The policy: each route tells the handler which one it is."""
    routes = []
    for own in framework.routes:
        route = {"match": {"path": own.path}, "auth": "none"}
        route["request_headers"] = {"set": {"x-route": own.name}}
        if own.is_counted:
            route["limits"] = ["users"]
        routes.append(route)
    limits = {"users": {"per": "path.id", "rate": f"{RATE}/day"}}
    if not any(own.is_counted for own in framework.routes):
        limits = {}
    upstream = {"paths": framework.preset}
    return Plan([f"http://127.0.0.1:{port}"], upstream=upstream, limits=limits, routes=routes)


def try_framework(binary, framework, seed, tally):
    """Sends so many spellings, and looks at what was reached by which route."""
    source = random.Random(f"{seed} {framework.name}")
    is_open = {own.name: own.is_open for own in framework.routes}
    past, reached, counted = [], Counter(), Counter()
    with serving(framework, tally) as port, proxy(binary, plan_of(framework, port), tally) as front:
        for _ in range(PATHS):
            target = spelled(source, source.choice(framework.targets))
            answer = ask(front.port, target)
            reached[answer.handler or answer.status] += 1
            if answer.handler and not is_open[answer.handler] and answer.route != answer.handler:
                past.append(f"{target}: {answer.handler} by the route {answer.route}")
            # What is not UTF-8 is one character to a handler, whatever it was.
            if answer.handler == answer.route == "user" and "\ufffd" not in answer.value:
                counted[answer.value] += 1
    tally.record(f"{framework.name}: no handler is reached past its route", past)
    missed = [own.name for own in framework.routes if not own.is_open and not reached[own.name]]
    tally.record(f"{framework.name}: each handler is reached", missed)
    if any(own.is_counted for own in framework.routes):
        over = [f"{value!r}: {times}" for value, times in counted.items() if times > RATE]
        tally.record(f"{framework.name}: no spelling has a counter of its own", over)
    kinds = ", ".join(f"{kind} {times}" for kind, times in sorted(reached.items(), key=str))
    print(f"{framework.name}: {kinds}")


# What is asked for, and which handler that is a spelling of.
ROWS = [
    ("/login", "login"), ("/LOGIN", "login"), ("/login/", "login"), ("/login;x", "login"),
    ("/login;x/y", "login"), ("/login%3Bx", "login"), ("/login.json", "login"),
    ("/login%0A", "login"), ("/%6Cogin", "login"), ("//login", "login"), ("/./login", "login"),
    ("/login/x", "login"), ("/index.php/login", "login"), ("/users/%40me", "me"), ("/users/", "user"),
    ("/v1/jobs%3Acancel", "cancel"), ("/health.xml", "health"), ("/users/7.json", "user"),
]


def table(folder, tally):
    """What each framework takes for which handler, without the proxy."""
    columns = {}
    for framework in frameworks(folder):
        cells = []
        with serving(framework, tally) as port:
            for target, handler in ROWS:
                if framework.name == "php":
                    target = target.replace("ogin", "ogin.php").replace("LOGIN", "LOGIN.PHP")
                cells.append(cell(ask(port, target), handler))
        columns[framework.name] = cells
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for at, (target, handler) in enumerate(ROWS):
        cells = " | ".join(column[at] for column in columns.values())
        lines.append(f"| `{target}` as {handler} | {cells} |")
    return "\n".join(lines) + "\n"


def cell(answer, handler):
    """Whether it was reached."""
    if answer.handler == handler:
        return "yes, 7" if answer.value == "7" else "yes"
    return "redirect" if 300 <= answer.status < 400 else "-"


def main():
    tally = Tally()
    if sys.argv[1:] == ["--table"]:
        with scratch() as folder:
            print(table(folder, tally), end="")
        return 0
    binary = binary_under_test(__doc__, SECONDS)
    seed = os.environ.get("TOLLGATE_SEED", str(time.time_ns()))
    print(f"TOLLGATE_SEED={seed}, {PATHS} paths each")
    with scratch() as folder:
        printed = table(folder, tally)
        is_current = printed in DOCUMENT.read_text()
        tally.record("the table of docs/frameworks.md is current", [] if is_current else [printed])
        for framework in frameworks(folder):
            try_framework(binary, framework, seed, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
