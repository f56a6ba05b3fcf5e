"""What is checked of the sample with the profile `observe`: Prometheus has its target, its rules and
the figures of what was sent, and nobody gets at more than metrics."""

import json
import re
import urllib.parse
import urllib.request

from bases import ROOT
from checks import Checks
from engine import eventually
from traffic import JWT_SECRET, token

SEARCHES = 5
# Prometheus asks every 15 seconds.
SCRAPED_SECONDS = 60
PATIENCE_SECONDS = 10


class ObserveTrial(Checks):
    """The checks, with where Prometheus is on this machine."""

    def __init__(self, compose, port, tally, prometheus):
        super().__init__("observe", compose, port, tally)
        self.prometheus = prometheus
        compose.set(COMPOSE_PROFILES="observe", TOLLGATE_PROMETHEUS=f"127.0.0.1:{prometheus}")

    def run(self):
        """All checks."""
        self.print_figures(f"up after {self.up():.0f} s")
        eventually(
            "Prometheus is healthy", lambda: self.compose.health("prometheus") == "healthy"
        )
        self.check_confinement("prometheus")
        self.check_metrics()
        self.check_rules()
        self.check_reach()
        self.check_down()

    def check_metrics(self):
        """What was sent is what Prometheus has."""
        ada = f"Bearer {token('ada', JWT_SECRET)}"
        statuses = [self.get("/search/x", authorization=ada).status for _ in range(SEARCHES)]
        self.expect("statuses of searches", [200] * SEARCHES, statuses)
        took = eventually("the target is up", lambda: self.query("up") == [1], SCRAPED_SECONDS)
        self.print_figures(f"the target is up after {took:.0f} s")
        counted = 'sum(tollgate_limit_decisions_total{limit="search"})'
        eventually(
            "the searches are counted", lambda: self.query(counted) == [SEARCHES], SCRAPED_SECONDS
        )

    def check_rules(self):
        """All alerts of the file are loaded, and can be evaluated."""
        text = (ROOT / "config/prometheus/tollgate.rules.yml").read_text()
        wanted = sorted(re.findall(r"alert: (\w+)", text))
        eventually(
            "the rules are evaluated",
            lambda: all(rule["health"] == "ok" for rule in self.rules()),
            SCRAPED_SECONDS,
        )
        self.expect("alerts", wanted, sorted(rule["name"] for rule in self.rules()))

    def check_reach(self):
        """Other containers get metrics, and nothing of the admin listener."""
        self.expect("status of metrics", "200", self.status_inside("http://tollgate:9902/metrics"))
        for path in ("status", "callers", "fleet", "openapi.json", ""):
            url = f"http://tollgate:9902/{path}"
            self.expect(f"status of /{path} beside metrics", "404", self.status_inside(url))
        admin = self.status_inside("http://tollgate:9901/status")
        self.expect("the admin listener from another container", "000", admin)

    def check_down(self):
        """A proxy that does not run is noticed."""
        self.compose("stop", "tollgate")
        eventually("the target is down", lambda: self.query("up") == [0], SCRAPED_SECONDS)
        eventually(
            "there is an alert",
            lambda: "TollgateDown" in [own["labels"]["alertname"] for own in self.ask("alerts")["alerts"]],
            SCRAPED_SECONDS,
        )

    def status_inside(self, url):
        """The status that another container gets; 000: it cannot connect."""
        command = ["curl", "-s", "-m", str(PATIENCE_SECONDS), "-o", "/dev/null", "-w", "%{http_code}"]
        return self.compose.execute("sample-api", *command, url).stdout

    def query(self, expression):
        """The values of an expression."""
        parameters = urllib.parse.urlencode({"query": expression})
        return [float(own["value"][1]) for own in self.ask(f"query?{parameters}")["result"]]

    def rules(self):
        """All rules."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def ask(self, what):
        """Prometheus' answer to a question."""
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{what}"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["data"]
