"""What a drill has found: a row of the table, and whether it is within what is promised."""

import json
import time
from dataclasses import asdict, dataclass, field

from proxies import LIMIT, WINDOW_SECONDS

COLUMNS = (
    "drill",
    "client errors",
    "admitted",
    "at most",
    "Redis decides after",
    "log lines/s",
    "",
)


def shares(proxies):
    """What all proxies together may let through alone in one window: a share is rounded up."""
    return len(proxies) * -(-LIMIT // len(proxies))


@dataclass
class History:
    """What a crowd was admitted, and what has to be known to judge that."""

    proxies: int
    # How often proxies were started.
    lives: int
    # Whether Redis may have lost what it had counted.
    forgets: bool
    accounts: dict

    def write(self, file):
        """A line of JSON with what has to be known, and one for each admission."""
        limit = {"units": LIMIT, "window_seconds": WINDOW_SECONDS}
        head = {"proxies": self.proxies, "lives": self.lives, "forgets": self.forgets}
        lines = [limit | head]
        for caller, account in self.accounts.items():
            lines += [{"caller": caller} | asdict(admission) for admission in account.admissions]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@dataclass
class Found:
    """One row.

    `problems` are those that the other columns do not show; `remarks` are for people to read.
    """

    name: str
    errors: int
    admitted: int
    bound: int
    # Until the store decided again; None: it never did, or was never away.
    seconds: float | None
    lines: float | None
    problems: list = field(default_factory=list)
    remarks: list = field(default_factory=list)
    # Of a crowd: what was admitted, for the judge of the simulation.
    history: History | None = None

    def broken(self):
        """The bounds that do not hold."""
        found = list(self.problems)
        if self.errors:
            found.append(f"{self.errors} client errors")
        if self.admitted > self.bound:
            found.append(f"{self.admitted} admitted, where {self.bound} are the most")
        return found

    def cells(self):
        """The row's texts."""
        numbers = self.errors, self.admitted, self.bound
        seconds = "" if self.seconds is None else f"{self.seconds:.1f} s"
        lines = "" if self.lines is None else f"{self.lines:.1f}"
        verdict = "broken" if self.broken() else "holds"
        says = "; ".join([verdict, *self.problems, *self.remarks])
        return (self.name, *map(str, numbers), seconds, lines, says)


def worst(accounts, alone_at_most, forgets=False):
    """Admissions and bound of the caller that exceeds its bound most; if none does, of the one with
    the most admissions.

    Redis admits no more than the limit, and the proxies in fallback mode no more than their shares;
    where Redis may lose what it has counted, it is at most a limit and all shares.
    """

    def bound(account):
        return LIMIT + (alone_at_most if forgets else min(account.alone, alone_at_most))

    def badness(account):
        return max(0, account.admitted - bound(account)), account.admitted

    found = max(accounts, key=badness)
    return found.admitted, bound(found)


def of_crowd(name, crowd, proxies, seconds=None, forgets=False, **more):
    """The row of a drill with a crowd, when it is over."""
    accounts = list(crowd.accounts.values())
    admitted, bound = worst(accounts, shares(proxies), forgets)
    # A caller that asked for more than the limit has got that much, if the store is there at the end.
    least = min((one.admitted for one in accounts if one.asked > 2 * LIMIT), default=None)
    remarks = list(more.pop("remarks", ()))
    if least is not None and least < LIMIT:
        remarks.append(f"{least} of {LIMIT} admitted to one that asked for more")
    unknown = [one.metric("tollgate_store_unknown_charges_total") for one in proxies]
    if None not in unknown and sum(unknown):
        remarks.append(f"{sum(unknown):.0f} charges unknown")
    remarks += [f"{count} times {error}" for error, count in crowd.errors.most_common(3)]
    lines = sum(one.log().count("\n") for one in proxies) / (time.monotonic() - crowd.begun)
    errors = sum(crowd.errors.values())
    lives = sum(one.lives for one in proxies)
    history = History(len(proxies), lives, forgets, crowd.accounts)
    more |= {"remarks": remarks, "history": history}
    return Found(name, errors, admitted, bound, seconds, lines, **more)
