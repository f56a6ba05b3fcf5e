"""How envoyproxy/ratelimit decides: what Tollgate's answers are compared with, as no package has the
service itself. Written from its README, and where that says nothing (which of several values with stars
holds, and what is charged of a denied request) by what its source does.
"""

import re
import time
from collections import Counter

UNIT_SECONDS = {"day": 86_400, "week": 7 * 86_400, "month": 30 * 86_400, "year": 365 * 86_400}


class Reference:
    """A service with counters. `charges_denied` is its default: a request that one descriptor denies is
    charged to the others; not so with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT."""

    def __init__(self, configuration, charges_denied):
        self.nodes = configuration["descriptors"]
        self.charges_denied = charges_denied
        self.counts = Counter()

    def found(self, entries):
        """The limit of a descriptor, and the values that it counts by."""
        nodes, counted = self.nodes, []
        for at, (key, value) in enumerate(entries):
            of_key = [own for own in nodes if own["key"] == key]
            exact = [own for own in of_key if own.get("value") == value]
            stars = [own for own in of_key if "*" in own.get("value", "") and matches(own["value"], value)]
            # Key and value before a value with stars, the first of which holds; then the key alone.
            candidates = exact + stars + [own for own in of_key if "value" not in own]
            if not candidates:
                return None, ()
            own = candidates[0]
            counted.append(own["value"] if own.get("share_threshold") else value)
            if at == len(entries) - 1:
                return own, tuple(counted)
            nodes = own.get("descriptors", [])
        return None, ()

    def admits(self, descriptors):
        """Whether a request with these descriptors is admitted."""
        found = [(entries, *self.found(entries)) for entries in descriptors]
        found = [(entries, own, counted) for entries, own, counted in found if own and "rate_limit" in own]
        rates = [own["rate_limit"] for _, own, _ in found]
        replaced = {other["name"] for rate in rates for other in rate.get("replaces", [])}
        charged, is_over = [], False
        for entries, own, counted in found:
            rate = own["rate_limit"]
            if rate.get("unlimited") or rate.get("name") in replaced:
                continue
            window = int(time.time()) // UNIT_SECONDS[rate["unit"].lower()]
            counter = tuple(key for key, _ in entries), counted, window
            charged.append(counter)
            over = self.counts[counter] + charged.count(counter) > rate["requests_per_unit"]
            is_over = is_over or (over and not own.get("shadow_mode"))
        if self.charges_denied or not is_over:
            self.counts.update(charged)
        return not is_over


def matches(pattern, value):
    """Whether a value matches one with stars."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value) is not None
