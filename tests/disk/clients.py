"""Clients that charge limits of every algorithm over HTTP, and note what answers say is used."""

import collections
import itertools
import random
import threading
import time
from dataclasses import dataclass, field

from store import Asker, charge_request, standings_of

# The most that a sliding log may be for.
LOG_UNITS = 10_000
# Of every algorithm, and too much to come to the end of it; nothing comes back within the hour.
HUGE = {
    "fixed": {"rate": "1_000_000_000/day"},
    "sliding": {"rate": "1_000_000/30d", "algorithm": "sliding_window"},
    "log": {"rate": f"{LOG_UNITS}/day", "algorithm": "sliding_log"},
    "bucket": {
        "algorithm": "token_bucket",
        "capacity": 1_000_000_000,
        "refill": {"amount": 1, "interval": "1d"},
    },
    "gcra": {"rate": "24/day", "algorithm": "gcra", "burst": LOG_UNITS},
}
TIGHT = 7
# A store that does not decide must not go unnoticed.
LIMITS = {
    name: limit | {"on_store_error": "closed"}
    for name, limit in (HUGE | {"tight": {"rate": f"{TIGHT}/day"}}).items()
}
COLD = ("fixed", "gcra")

# Questions of a client that are under way at once.
DEPTH = 4
HOT_KEYS = 6
COLD_KEYS = 3000


@dataclass
class State:
    """What an answer said of a counter."""

    used: int
    reset: int
    asked: float
    answered: float


@dataclass
class Counter:
    """The history of a counter since the last start. One client charges it, one after the other."""

    states: list = field(default_factory=lambda: [State(0, None, 0, 0)])
    # Costs of charges that were sent and not answered.
    pending: collections.deque = field(default_factory=collections.deque)

    @property
    def used(self):
        """As the last answer said."""
        return self.states[-1].used


class Client(threading.Thread):
    """Charges keys of its own until the proxy is gone."""

    def __init__(self, name, port, counters, turn):
        super().__init__(daemon=True)
        seed, self.number = name
        self.port, self.counters, self.turn = port, counters, turn
        self.random = random.Random(f"{seed}-{turn}-{self.number}")
        self.problems = []
        self.answered = 0
        self.denied = 0
        self.tight = itertools.count()
        self.ended = threading.Event()

    def choose(self):
        """What is charged next: limits, a key, and the cost."""
        kind = self.random.random()
        cost = self.random.randint(1, 3)
        if kind < 0.5:
            return tuple(HUGE), self.hot_key(cost), cost
        if kind < 0.9:
            return COLD, f"cold-{self.number}-{self.random.randrange(COLD_KEYS)}", cost
        # Each is charged until it is denied, and some more.
        key = f"tight-{self.turn}-{self.number}-{next(self.tight) // (TIGHT + 3)}"
        return ("tight", "fixed"), key, 1

    def hot_key(self, cost):
        """One of the keys that are charged all the time. The next one takes the place of a key whose
        log is full: how soon that is depends on the machine."""
        place = self.random.randrange(HOT_KEYS)
        for generation in itertools.count():
            key = f"hot-{generation}-{self.number}-{place}"
            log = self.counters["log", key]
            if log.used + sum(log.pending) + cost <= LOG_UNITS:
                return key

    def run(self):
        waiting = collections.deque()
        try:
            with Asker(self.port) as asker:
                while not self.ended.is_set():
                    while len(waiting) < DEPTH:
                        limits, key, cost = self.choose()
                        for limit in limits:
                            self.counters[limit, key].pending.append(cost)
                        waiting.append((limits, key, cost, time.monotonic()))
                        asker.socket.sendall(charge_request([(it, key, cost) for it in limits]))
                    status, content = asker.read_answer()
                    self.note(*waiting.popleft(), status, content)
        except OSError:
            pass  # It was killed. What is pending may or may not have been counted.

    def note(self, limits, key, cost, asked, status, content):
        """Notes what an answer says. As long as the proxy runs, nothing is lost."""
        now = time.monotonic()
        counters = {limit: self.counters[limit, key] for limit in limits}
        for counter in counters.values():
            counter.pending.popleft()
        is_exhausted = "tight" in counters and counters["tight"].used + cost > TIGHT
        if status != (429 if is_exhausted else 200):
            self.problems.append(f"{key}: status {status}, {str(content)[:200]}")
            return
        self.answered += status == 200
        self.denied += status == 429
        for limit, (used, reset) in standings_of(content).items():
            counter = counters[limit]
            expected = counter.used + (cost if status == 200 else 0)
            if used != expected:
                self.problems.append(f"{limit} of {key}: {used} used instead of {expected}")
            if status == 200:
                counter.states.append(State(used, reset, asked, now))
