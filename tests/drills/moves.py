"""Counters that move from one store to another while callers use them: no request is counted twice,
and none is forgotten."""

import functools
import time

from callers import BUSY, Caller, Crowd
from found import Found, of_crowd
from proxies import CORE, LIMIT, fleet
from servers import start_server

# The same limit in every algorithm. What comes back of it while a drill lasts is less than a unit.
SLOW = {"per": "caller", "on_store_error": "local"}
ALGORITHMS = {
    "fixed_window": CORE,
    "sliding_window": CORE | {"algorithm": "sliding_window"},
    "sliding_log": CORE | {"algorithm": "sliding_log"},
    "token_bucket": SLOW
    | {"algorithm": "token_bucket", "capacity": LIMIT, "refill": {"amount": 1, "interval": "1day"}},
    "gcra": SLOW | {"algorithm": "gcra", "rate": "1/day", "burst": LIMIT},
    "concurrency": SLOW | {"concurrent": LIMIT},
}
WAYS = {
    "memory-to-redis": ("memory", "redis"),
    "redis-to-memory": ("redis", "memory"),
    "redis-to-redis": ("redis", "redis"),
}
# What a caller has used before anything is mirrored, and how often it asks then.
USED = 100
MIRRORED = 20
TOO_MANY = LIMIT + 20
# These drills are about counts that are known one by one, on machines that may be busy.
PATIENT = "2s"
ROLLING_SECONDS = 9


def store(stage, kind):
    """A part of the settings: a store of its own."""
    if kind == "memory":
        return {"memory": {}}
    return {"redis": {"url": start_server(stage).url}}


def moving(way, algorithm, name, stage):
    """One caller has used something before it is mirrored, another one reaches its limit meanwhile;
    then both are moved."""
    current, following = (store(stage, kind) for kind in WAYS[way])
    # Counters in a process are no other's.
    environments = ({},) if "memory" in WAYS[way] else ({}, {})
    plan = {"current": current, "next": following, "percent": 0, "mode": "mirror"}
    plan |= {"deadline": PATIENT}
    proxies = fleet(stage, plan, ALGORITHMS[algorithm], environments)
    early, late = callers = Caller(proxies, "early"), Caller(proxies, "late")
    for caller in callers:
        stage.callback(caller.close)
    early.ask_times(USED)
    for proxy in proxies:
        proxy.change_store(percent=100)
    early.ask_times(MIRRORED)
    late.ask_times(TOO_MANY)
    disagreed = sum(proxy.metric("tollgate_store_disagreed_total") for proxy in proxies)
    for proxy in proxies:
        proxy.change_store(mode="move_now")
    problems = [f"{disagreed:.0f} decisions disagreed"] if disagreed else []
    problems += use_after(algorithm, early)
    for caller in callers:
        caller.ask_times(TOO_MANY)
    yield conclude(f"{name} {algorithm}", algorithm, callers, problems)


def use_after(algorithm, caller):
    """Whether the first response after the move goes on from what was used before it."""
    headers = caller.ask()
    reported = int(headers["x-ratelimit-used"]) if headers else None
    true = 1 if algorithm == "concurrency" else caller.account.admitted
    return [] if reported == true else [f"{reported} reported as used where {true} is true"]


def conclude(name, algorithm, callers, problems):
    """The row, when all callers have asked for more than there is."""

    def goal(account):
        # One at a time is never too many.
        return account.asked if algorithm == "concurrency" else LIMIT

    accounts = [caller.account for caller in callers]
    most = max(accounts, key=lambda account: account.admitted - goal(account))
    least = min(accounts, key=lambda account: account.admitted - goal(account))
    if least.admitted < goal(least):
        problems.append(f"{least.admitted} of {goal(least)} admitted")
    alone = sum(account.alone for account in accounts)
    remarks = [f"{alone} decided alone"] if alone else []
    errors = sum(sum(caller.errors.values()) for caller in callers)
    return Found(name, errors, most.admitted, goal(most), None, None, problems, remarks)


def rolling(name, stage):
    """Both proxies mirror, and only one of them is set to move."""
    plan = {"current": store(stage, "redis"), "next": store(stage, "redis")}
    plan |= {"percent": 100, "mode": "mirror", "deadline": PATIENT}
    proxies = fleet(stage, plan)
    with Crowd(proxies) as crowd:
        crowd.send("caller")
        time.sleep(1)
        proxies[0].change_store(mode="move")
        crowd.pace = BUSY
        time.sleep(ROLLING_SECONDS)
        proxies[1].change_store(mode="move")
        time.sleep(ROLLING_SECONDS / 3)
    yield of_crowd(name, crowd, proxies)


def every_algorithm(way, name, stage):
    """The same way for each algorithm."""
    for algorithm in ALGORITHMS:
        with stage.part() as part:
            yield from moving(way, algorithm, name, part)


DRILLS = {f"move-{way}": functools.partial(every_algorithm, way) for way in WAYS}
DRILLS["move-rolling"] = rolling
