"""A real Prometheus scrapes a proxy under load, with the rules and queries that are shipped.

`promtool` finds nothing amiss in the metrics and the rules; what Prometheus has stored is what a
client has counted; each query of the Grafana file has an answer.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS.parent / "config"
sys.path.insert(0, str(TESTS / "edge"))
from stage import Plan, Tally, api, bearer, binary_under_test, eventually, free_port, proxy, running

SCRAPE_SECONDS = 1
PATIENCE_SECONDS = 60
REQUESTS = 4_000
ALLOWED = 2_500
# How long a query looks back; Grafana computes this from the time that it shows.
RATE_INTERVAL = "1m"
STATUSES = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port):
        self.port = port

    def query(self, expression):
        """The vector that an expression has at the moment: pairs of labels and value."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return [(entry["metric"], float(entry["value"][1])) for entry in result]

    def eventually(self, expression, is_expected):
        """The value of an expression with one series, as soon as it is as expected, or at last."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.query(expression)
            value = found[0][1] if len(found) == 1 else None
            if value is not None and is_expected(value) or time.monotonic() > deadline:
                return value
            time.sleep(0.2)


@contextlib.contextmanager
def prometheus(admin, tally):
    """Runs Prometheus with the shipped configuration, but for the target and the interval."""
    with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        folder = Path(folder)
        shutil.copy(CONFIG / "prometheus/tollgate.rules.yml", folder)
        text = (CONFIG / "prometheus/prometheus.yml").read_text()
        changed = text.replace("127.0.0.1:9901", f"127.0.0.1:{admin}")
        changed = changed.replace("interval: 15s", f"interval: {SCRAPE_SECONDS}s")
        assert changed != text
        (folder / "prometheus.yml").write_text(changed)
        port = free_port()
        command = ["prometheus", f"--config.file={folder}/prometheus.yml"]
        command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
        with running("prometheus", command, port, tally):
            yield Prometheus(port)


def check_text(tally, admin):
    """What `promtool check metrics` says of both formats."""
    for accept in ("text/plain", "application/openmetrics-text"):
        request = urllib.request.Request(f"http://127.0.0.1:{admin}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=10) as answer:
            kind, text = answer.headers["content-type"], answer.read()
        problems = [] if kind.startswith(accept) else [f"the type is {kind}"]
        if accept == "text/plain":
            ran = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
            problems += [(ran.stdout + ran.stderr).decode()] if ran.returncode or ran.stderr else []
        elif not text.endswith(b"\n# EOF\n"):
            problems.append("there is no end")
        tally.record(f"metrics as {accept}", problems)


def check_rules(tally):
    """The shipped rules and their tests."""
    folder = CONFIG / "prometheus"
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "tollgate.rules.test.yml"]):
        ran = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True)
        tally.record(f"promtool {' '.join(command)}", [ran.stdout + ran.stderr] if ran.returncode else [])


def load(port):
    """Requests of one caller; how many were let through and how many were denied."""
    command = ["h2load", "-n", str(REQUESTS), "-c", "4", "-t1", "--h1", "-H", f"authorization: {bearer('heavy')}"]
    ran = subprocess.run([*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=60)
    found = STATUSES.search(ran.stdout)
    assert found, ran.stdout + ran.stderr
    return int(found[1]), int(found[3])


def check_counts(tally, server, port):
    """Prometheus has what the client has counted."""
    allowed, denied = load(port)
    problems = [] if (allowed, denied) == (ALLOWED, REQUESTS - ALLOWED) else [f"{allowed}, {denied}"]
    tally.record("the client is denied what is over the limit", problems)
    labels = 'policy="main"'
    limit = f'{labels},limit="core",tier="default"'
    for name, expression, expected in [
        ("requests with 200", f'sum(tollgate_http_requests_total{{{labels},code="200"}})', allowed),
        ("requests with 429", f'sum(tollgate_http_requests_total{{{labels},code="429"}})', denied),
        ("the histogram's count", f"sum(tollgate_http_request_duration_seconds_count{{{labels}}})", REQUESTS),
        ("the histogram's last bucket", f'sum(tollgate_http_request_duration_seconds_bucket{{{labels},le="+Inf"}})', REQUESTS),
        ("denials", f'sum(tollgate_limit_decisions_total{{{limit},decision="deny"}})', denied),
        ("what was let through", f'sum(tollgate_limit_decisions_total{{{limit},decision=~"allow|near"}})', allowed),
        ("units", f'sum(tollgate_limit_units_total{{{limit},kind="charged"}})', allowed),
        ("credentials", f'sum(tollgate_auth_total{{{labels},result="jwt"}})', REQUESTS),
        ("requests in flight", f"sum(tollgate_http_requests_in_flight{{{labels}}})", 0),
    ]:
        found = server.eventually(expression, lambda value: value == expected)
        tally.record(f"{name}: as the client counted", [] if found == expected else [f"{found}, not {expected}"])


def check_dashboard(tally, server):
    """Each query of the Grafana file has an answer; those of faults, where there is none, no error."""
    board = json.loads((CONFIG / "grafana/tollgate.json").read_text())
    targets = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    problems = []
    for expression in targets:
        filled = expression.replace("$__rate_interval", RATE_INTERVAL).replace("$policy", ".*")
        # Only what is above zero is shown of these, and nothing may be. A rate comes with the second
        # scrape, which may be still to come.
        filled = filled.removesuffix(" > 0")
        if not eventually(lambda: server.query(filled)):
            problems.append(f"nothing: {filled}")
    tally.record(f"{len(targets)} queries of the dashboard have answers", problems)


def check_alerts(tally, server):
    """The rules are loaded, and none of a fault fires."""
    url = f"http://127.0.0.1:{server.port}/api/v1/rules"
    with urllib.request.urlopen(url, timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    problems = [] if len(rules) >= 8 else [f"{len(rules)} rules are loaded"]
    problems += [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule.get("lastError")]
    problems += [f"{rule['name']} fires" for rule in rules if rule["state"] == "firing"]
    tally.record("rules are loaded and sound", problems)


def main():
    """One proxy and one Prometheus."""
    binary = binary_under_test(__doc__, 180)
    tally = Tally()
    check_rules(tally)
    with api(tally) as api_port:
        plan = Plan([f"http://127.0.0.1:{api_port}"])
        plan.limits = {"core": {"per": "caller", "rate": f"{ALLOWED}/day"}}
        with proxy(binary, plan, tally) as gate, prometheus(gate.admin, tally) as server:
            check_text(tally, gate.admin)
            # Rates need two scrapes, the first one before the load.
            server.eventually('up{job="tollgate"}', lambda value: value == 1)
            check_counts(tally, server, gate.port)
            check_dashboard(tally, server)
            check_alerts(tally, server)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
