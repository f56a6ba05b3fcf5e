"""Redis is away for a while, in every way and everywhere: what is admitted meanwhile is bounded."""

import contextlib
import functools
import itertools
import subprocess
import time

from callers import BUSY, CALM, FULL, Caller, Crowd
from found import of_crowd
from proxies import fleet
from stage import Missing
from topologies import FAULTS, TOPOLOGIES, Single

OUTAGE_SECONDS = 2.5
# Before an outage and after it. Callers are careful then, or they would have used up their limits
# before the next one.
CALM_SECONDS = 1.5
# How long the crowd goes on when all is well again.
AFTER_SECONDS = 3


def outages(crowd, topology, faults, pace=BUSY, seconds=OUTAGE_SECONDS):
    """One outage after the other, and then the crowd for a while, so that the busy one comes to its
    limit.

    Gives how long each took until the store decided again; None: it never did.
    """
    crowd.send("caller", find_caller(crowd, topology.victim))
    times = []
    for fault in faults:
        crowd.pace = CALM
        time.sleep(CALM_SECONDS)
        crowd.pace = pace
        begun = time.monotonic()
        topology.hurt(fault)
        time.sleep(seconds)
        topology.heal(fault)
        # What another server takes over by itself is measured from the beginning.
        back = begun if fault in topology.replaced_by else time.monotonic()
        times.append((begun, back))
        if fault in topology.replaced_by and len(times) < len(faults):
            crowd.pace = CALM
            topology.turn()
    crowd.pace = CALM
    time.sleep(CALM_SECONDS)
    crowd.pace = pace
    time.sleep(AFTER_SECONDS)
    return [crowd.seconds_from(begun, back) for begun, back in times]


def find_caller(crowd, server):
    """The name of a caller whose counter is on a server, and who has asked once."""
    for number in itertools.count():
        name = f"busy-{number}"
        with contextlib.closing(Caller(crowd.proxies, name)) as caller:
            if caller.is_counted_by(server):
                crowd.accounts[name] = caller.account
                return name


def row(name, crowd, proxies, found, **more):
    """The row of a drill with outages, after which the store must decide again."""
    never = ["Redis never decided again"] if None in found else []
    seconds = max((one for one in found if one is not None), default=None)
    return of_crowd(name, crowd, proxies, seconds=seconds, problems=never, **more)


def six_outages(name, stage):
    """Six in one window."""
    topology = Single(stage)
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        found = outages(crowd, topology, ("kill", "pause", "blackhole") * 2)
    yield row(name, crowd, proxies, found)


def short(name, stage):
    """Three short ones, for the gate."""
    topology = Single(stage)
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        found = outages(crowd, topology, ("kill", "pause", "blackhole"), seconds=1)
    yield row(name, crowd, proxies, found)


def one_outage(kind, fault, pace, name, stage):
    """One in a topology, at a pace."""
    topology = kind(stage)
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        found = outages(crowd, topology, [fault], pace)
    forgets = fault in topology.forgets_by
    asked = sum(account.asked for account in crowd.accounts.values())
    remarks = [f"{asked} requests"] if pace is FULL else []
    yield row(name, crowd, proxies, found, forgets=forgets, remarks=remarks)


def failovers(kind, name, stage):
    """Five primaries in a row are stopped, replaced, and come back as replicas."""
    topology = kind(stage)
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        found = outages(crowd, topology, ["pause"] * 5)
    yield row(name, crowd, proxies, found, forgets=True)


def empty_restarts(name, stage):
    """A server that keeps nothing is killed twice, and comes back at once."""
    topology = Single(stage, keeps=False)
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        crowd.send("caller")
        times = []
        for _ in range(2):
            crowd.pace = BUSY
            time.sleep(AFTER_SECONDS)
            begun = time.monotonic()
            topology.hurt("kill")
            topology.heal("kill")
            times.append((begun, time.monotonic()))
        time.sleep(2 * AFTER_SECONDS)
        found = [crowd.seconds_from(begun, back) for begun, back in times]
    yield row(name, crowd, proxies, found, forgets=True)


def tls(name, stage):
    """The way to Redis is encrypted, and is hurt in every way."""
    try:
        topology = Single(stage, certificates=certificates(stage.new_folder("certificates")))
    except RuntimeError as error:
        if "tls" not in str(error):
            raise
        raise Missing("this server knows no TLS") from None
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        found = outages(crowd, topology, FAULTS)
    yield row(name, crowd, proxies, found)


def certificates(folder):
    """The folder, with an authority's certificate and one for loopback in it."""
    folder.mkdir()
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(folder, f"req -x509 {key} -days 2 -subj /CN=drills -keyout ca.key -out ca.pem")
    openssl(folder, f"req {key} -subj /CN=127.0.0.1 -keyout server.key -out server.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = "-CA ca.pem -CAkey ca.key -days 2 -extfile names"
    openssl(folder, f"x509 -req -in server.csr {signed} -out server.pem")
    return folder


def openssl(folder, words):
    """One of its commands."""
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)


DRILLS = {
    "short": short,
    "six-outages": six_outages,
    "sentinel-failovers": functools.partial(failovers, TOPOLOGIES["sentinel"]),
    "cluster-failovers": functools.partial(failovers, TOPOLOGIES["cluster"]),
    "empty-restarts": empty_restarts,
    "tls": tls,
}
DRILLS |= {
    f"{topology}-{fault}-{words}": functools.partial(one_outage, kind, fault, pace)
    for topology, kind in TOPOLOGIES.items()
    for fault in FAULTS
    for words, pace in (("400", BUSY), ("full", FULL))
}
