"""Proxies whose clocks differ, and that count by them (`clock: proxy`).

The second proxy's clock is ahead by faketime (Debian's package of that name); without it, these
drills are skipped.
"""

import functools
import glob
import math
import time

from callers import Caller
from found import Found
from moves import ALGORITHMS, PATIENT
from proxies import LIMIT, fleet
from servers import start_server
from stage import Missing

LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"
SKEWS_SECONDS = (2, 6, 60)
# By both proxies in turn.
ASKED = 3 * LIMIT
# A unit comes back in so many seconds where units come back one by one: soon enough that it shows
# when each of two clocks gives back what the other has already.
UNIT_SECONDS = 3
COMING_BACK = {
    "token_bucket": {"refill": {"amount": 1, "interval": f"{UNIT_SECONDS}s"}},
    "gcra": {"rate": f"{60 // UNIT_SECONDS}/minute"},
}
LIMITS = {
    algorithm: limit | COMING_BACK.get(algorithm, {})
    for algorithm, limit in ALGORITHMS.items()
    # Of requests in flight, a clock only ends leases that are not given back.
    if algorithm != "concurrency"
}


def skewed(seconds, name, stage):
    """Each algorithm, for which one caller asks for three times the limit."""
    library = next(iter(glob.glob(LIBRARIES)), None)
    if library is None:
        raise Missing("faketime is not installed")
    ahead = {"LD_PRELOAD": library, "FAKETIME": f"+{seconds}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    for algorithm, limit in LIMITS.items():
        with stage.part() as part:
            redis = {"url": start_server(part).url, "clock": "proxy"}
            proxies = fleet(part, {"redis": redis, "deadline": PATIENT}, limit, ({}, ahead))
            caller = Caller(proxies, "caller")
            part.callback(caller.close)
            begun = time.monotonic()
            caller.ask_times(ASKED)
            span = time.monotonic() - begun + seconds
            back = math.ceil(span / UNIT_SECONDS) + 1 if algorithm in COMING_BACK else 0
            errors, admitted = sum(caller.errors.values()), caller.account.admitted
            remarks = [f"{sum(one.log().count(chr(10)) for one in proxies)} log lines"]
            row = f"{name} {algorithm}"
            yield Found(row, errors, admitted, LIMIT + back, None, None, remarks=remarks)


DRILLS = {f"skew-{seconds}s": functools.partial(skewed, seconds) for seconds in SKEWS_SECONDS}
