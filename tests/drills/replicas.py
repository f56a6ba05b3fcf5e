"""Replicas that lag, are cut off, or hang: what `/rate_limit` reports is compared with the truth.

One proxy gets requests again and again, and both report how much was used. What they report
may be old, by what the lag of a replica may be and by how long an answer is kept; the truth that it
is held against is as old as that, and a little older.
"""

import bisect
import functools
import time

from callers import Caller
from found import Found
from proxies import LIMIT, fleet
from relay import start_relay
from servers import start_server, wait_for_link

# The default bound of a replica's lag, a second in which an answer is kept, and some patience.
OLD_SECONDS = 4
LAG_SECONDS = 8
ASKING_SECONDS = 16
PAUSE_SECONDS = 0.2
# Used before anything is wrong.
KNOWN = 5


def lying(how, name, stage):
    """The only replica of a shard is hurt in one way."""
    primary = start_server(stage)
    way = start_relay(stage, primary.port)
    replica = start_server(stage, "--replicaof", f"127.0.0.1 {way.port}")
    wait_for_link(replica)
    shard = {"name": "a", "primary": primary.url, "replicas": [replica.url]}
    proxies = fleet(stage, {"redis": {"shards": [shard]}, "deadline": "250ms"})
    caller = Caller(proxies[:1], "caller")
    stage.callback(caller.close)
    caller.ask_times(KNOWN)
    match how:
        case "lags":
            way.say(f"lag {LAG_SECONDS}")
        case "cut":
            way.say("cut")
        case "hangs":
            replica.pause()
    yield compare(name, proxies, caller)


def compare(name, proxies, caller):
    """Asks for a while, and compares what each proxy reports with what is true."""
    admitted_at, reported_before = [], {}
    worst, lies, less, slowest = (0, 0), 0, 0, 0.0
    begun = time.monotonic()
    while time.monotonic() < begun + ASKING_SECONDS:
        caller.ask()
        admitted_at += [time.monotonic()] * (caller.account.admitted - KNOWN - len(admitted_at))
        for proxy in proxies:
            true = KNOWN + bisect.bisect(admitted_at, time.monotonic() - OLD_SECONDS)
            reported, seconds = caller.reported_use(proxy)
            slowest = max(slowest, seconds)
            if reported is None:
                continue
            lies += reported < true
            less += reported < reported_before.get(proxy.port, 0)
            worst = max(worst, (true - reported, reported))
            reported_before[proxy.port] = reported
        time.sleep(PAUSE_SECONDS)
    problems = []
    if lies:
        missing, reported = worst
        true = reported + missing
        problems.append(f"{lies} times too little was reported: {reported} where {true} is true")
    if less:
        problems.append(f"{less} times less was reported than before")
    lines = sum(proxy.log().count("\n") for proxy in proxies) / ASKING_SECONDS
    remarks = [f"/rate_limit took {slowest * 1000:.0f} ms at most"]
    remarks += [f"{count} times {error}" for error, count in caller.errors.items()]
    account, errors = caller.account, sum(caller.errors.values())
    return Found(name, errors, account.admitted, LIMIT, None, lines, problems, remarks)


DRILLS = {f"replica-{how}": functools.partial(lying, how) for how in ("lags", "cut", "hangs")}
