"""Two servers of one shard say that they are primary: no request may be let through twice."""

import time

from callers import BUSY, Crowd
from found import of_crowd
from proxies import fleet
from topologies import Sharded

# How long the early callers ask before the promotion, and after it.
EARLY_SECONDS = 1
PROMOTED_SECONDS = 6
# How long proxies may take to agree on one of two primaries.
AGREED_SECONDS = 15
# Long enough for the busiest caller to use up a limit at each primary, if each had one for it.
LATE_SECONDS = 9


def split_primaries(name, stage):
    """A replica is promoted by hand, the old primary comes back empty, and one proxy restarts.

    Only callers count that come after all that, when every server can be reached and the proxies
    have had time to agree.
    """
    topology = Sharded(stage, shards=1)
    proxies = fleet(stage, {"redis": topology.settings()})
    with Crowd(proxies) as crowd:
        crowd.send("early")
        time.sleep(EARLY_SECONDS)
        begun = time.monotonic()
        topology.hurt("kill")
        topology.replace()
        promoted = time.monotonic()
        time.sleep(PROMOTED_SECONDS)
        seconds = crowd.seconds_from(begun, promoted)
        # It keeps nothing, and is no replica.
        topology.victim.start()
        crowd.avoid(proxies[1])
        proxies[1].restart()
        crowd.use(proxies[1])
        time.sleep(AGREED_SECONDS)
        crowd.send("late")
        crowd.pace = BUSY
        time.sleep(LATE_SECONDS)
    for caller in [caller for caller in crowd.accounts if caller.startswith("early")]:
        del crowd.accounts[caller]
    never = ["Redis never decided again"] if seconds is None else []
    yield of_crowd(name, crowd, proxies, seconds=seconds, problems=never)


DRILLS = {"split-primaries": split_primaries}
