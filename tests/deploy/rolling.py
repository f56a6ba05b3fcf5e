"""A rolling update, as the chart has Kubernetes do it, under load: a new process beside the old one, and
then the old one goes. No request is lost.

Kubernetes does two things at once when a pod goes: it waits for preStop and sends SIGTERM, and it tells balancers,
which hear it late. Another balancer hears nothing and asks `/readyz` by itself. How long the pod sleeps before
SIGTERM, serves on and drains is read from charts/manifests. To show that losses would be seen, an update without
any of it follows.
"""

import http.client
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from balancer import Balancer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "edge")]
import visitor
from restarts import Traffic, is_ready
from stage import PATIENCE_SECONDS, Plan, Tally, api, binary_under_test, eventually, proxy

SECONDS = 240
MANIFEST = ROOT / "charts" / "manifests" / "memory.yaml"
# What balancers of Kubernetes may take to hear of it.
LATE_SECONDS = 8
# The balancer that asks by itself.
INTERVAL_SECONDS = 1
THRESHOLD = 2
# Of each of four kinds, for each balancer.
CLIENTS = 2
PAUSE_SECONDS = 0.02
SLOW_SECONDS = 1


@dataclass
class Timing:
    """What a pod does when it goes, in seconds."""

    sleep: float
    delay: float
    drain: float
    grace: float

    @classmethod
    def shipped(cls):
        """What the chart says, in settings and in the pod."""
        objects = list(yaml.safe_load_all(MANIFEST.read_text()))
        pod = next(one for one in objects if one["kind"] == "Deployment")["spec"]["template"]["spec"]
        maps = [one["data"] for one in objects if one["kind"] == "ConfigMap"]
        settings = yaml.safe_load(next(data for data in maps if "tollgate.yaml" in data)["tollgate.yaml"])
        drain, delay = (int(re.fullmatch(r"(\d+)s", settings[key])[1]) for key in ("drain", "drain_delay"))
        sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        return cls(sleep, delay, drain, pod["terminationGracePeriodSeconds"])


def clients(port):
    """Fresh connections, kept ones, HTTP/2, and requests that take a while."""

    def connect():
        return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)

    return (
        lambda: visitor.fresh(connect),
        lambda: visitor.kept(connect),
        lambda: visitor.http2(port),
        lambda: slow(connect),
    )


def slow(connect):
    """One connection, and requests that take a while."""
    connection = connect()
    while True:
        connection.request("GET", f"/wait/{SLOW_SECONDS}")
        response = connection.getresponse()
        response.read()
        yield response.status


class Asking(threading.Thread):
    """Asks the old pod whether it is ready, and takes it away from a balancer when it often is not."""

    def __init__(self, admin, balancer, pods):
        super().__init__(daemon=True)
        self.admin, self.balancer, self.pods = admin, balancer, pods
        self.ended = threading.Event()

    def run(self):
        """Until it is taken away."""
        failures = 0
        while not self.ended.wait(INTERVAL_SECONDS):
            failures = 0 if is_ready(self.admin) else failures + 1
            if failures == THRESHOLD:
                self.balancer.pods = self.pods
                return


def update(binary, tally, api_port, timing, late):
    """One update: what went wrong for the clients of each balancer, and the balancers."""
    plan = Plan(
        [f"http://127.0.0.1:{api_port}"],
        settings={"drain": f"{timing.drain}s", "drain_delay": f"{timing.delay}s"},
    )
    with (
        proxy(binary, plan, tally) as old,
        proxy(binary, plan, tally) as new,
        Balancer() as told,
        Balancer() as asking,
    ):
        told.pods = asking.pods = [old.port]
        with (
            Traffic(*clients(told.port), each=CLIENTS, pause=PAUSE_SECONDS) as told_traffic,
            Traffic(*clients(asking.port), each=CLIENTS, pause=PAUSE_SECONDS) as asking_traffic,
        ):
            # The new pod is added once it is ready.
            if not eventually(lambda: is_ready(new.admin)):
                raise RuntimeError("the new process does not get ready")
            told.pods = asking.pods = [old.port, new.port]
            if not eventually(lambda: new.port in told.handed and new.port in asking.handed):
                raise RuntimeError("the new process gets no connection")
            # The old pod goes.
            handed_before = told.handed[old.port]
            hears = threading.Timer(late, lambda: setattr(told, "pods", [new.port]))
            asks = Asking(old.admin, asking, [new.port])
            goes = time.monotonic()
            hears.start()
            asks.start()
            threading.Event().wait(timing.sleep)
            old.process.terminate()
            code = old.process.wait(timeout=timing.grace - timing.sleep)
            took = time.monotonic() - goes
            hears.join()
            asks.ended.set()
            asks.join()
            was_late = told.handed[old.port] > handed_before
    tally.record("the old process ends well", [] if code == 0 else [f"exit code {code}"])
    in_time = took < timing.grace
    tally.record("before Kubernetes would kill it", [] if in_time else [f"after {took:.0f} s"])
    return told, told_traffic, asking, asking_traffic, was_late


def check_update(binary, tally, api_port):
    """What the chart ships loses nothing."""
    timing = Timing.shipped()
    told, told_traffic, asking, asking_traffic, was_late = update(
        binary, tally, api_port, timing, LATE_SECONDS
    )
    told_traffic.record(f"a balancer that hears of it {LATE_SECONDS} s late", tally)
    asking_traffic.record("a balancer that asks by itself", tally)
    tally.record("connections came after the pod had begun to go", [] if was_late else ["none"])
    for balancer in (told, asking):
        refused = balancer.refused
        tally.record("no connection is refused", [] if refused == 0 else [f"{refused}"])


def check_losses_are_seen(binary, tally, api_port):
    """The same without a sleep and a delay: both balancers lose requests."""
    timing = Timing(0, 0, 10, 30)
    _, told_traffic, _, asking_traffic, _ = update(binary, tally, api_port, timing, late=1)
    for name, traffic in (("hears of it", told_traffic), ("asks", asking_traffic)):
        lost = len(traffic.problems)
        print(f"without sleep and delay, a balancer that {name}: {lost} lost")
        tally.record(f"losses are seen by what {name}", [] if lost else ["none"])


def main():
    """Both updates."""
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as api_port:
        check_update(binary, tally, api_port)
        check_losses_are_seen(binary, tally, api_port)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
