"""A disk that cannot be written for a while: limits do as their `on_store_error` says, all else
goes on, and afterwards counting does, too."""

import contextlib
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from shim import Faults
from store import Asker, Proxy, eventually, standings_of

MOST = 100_000
LIMITS = {
    "open": {"rate": f"{MOST}/day", "on_store_error": "open"},
    "closed": {"rate": f"{MOST}/day", "on_store_error": "closed"},
    "local": {"rate": f"{MOST}/day", "on_store_error": "local"},
    # So short a window is in memory only.
    "quick": {"rate": "100_000/second", "on_store_error": "closed"},
}
KEPT = ("open", "closed", "local")
KEY = "a"
COST = 2
TIMES = 5
FLUSH = {"flush": "100ms", "sync": "flush", "memory": "1MiB"}


def wait_until_written(proxy):
    """Returns when all that was charged before is on disk."""
    begun = time.monotonic()

    def is_written():
        # Before the question: the last flush must have begun after what was charged.
        asked = time.monotonic()
        return proxy.metric("tollgate_store_disk_flush_lag_seconds") < asked - begun - 0.002

    if not eventually(is_written):
        raise RuntimeError("counters are not written")


@dataclass
class Account:
    """What limits of one key must have counted, by what was answered; and what was wrong."""

    asker: Asker
    key: str = KEY
    used: dict = field(default_factory=lambda: dict.fromkeys(KEPT, 0))
    resets: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)

    def charge(self, limit, counts=True, cost=COST):
        """Charges a limit once. Returns the status."""
        status, content = self.asker.charge((limit, self.key, cost))
        if status == 200 and counts:
            used, reset = standings_of(content)[limit]
            self.used[limit] += cost
            self.resets.setdefault(limit, reset)
            if used != self.used[limit] or reset != self.resets[limit]:
                self.problems.append(
                    f"{limit}: {used} used and a reset at {reset}, instead of {self.used[limit]} "
                    f"and {self.resets[limit]}"
                )
        return status

    def expect(self, limit, wanted, **more):
        """Charges a limit some times, each with the same status."""
        statuses = [self.charge(limit, **more) for _ in range(TIMES)]
        if set(statuses) != {wanted}:
            self.problems.append(f"{limit}: {statuses} instead of {wanted}")

    def compare(self, asker, limits=KEPT):
        """How the limits stand must be what was counted."""
        for limit in limits:
            status, content = asker.standing(limit, self.key)
            found = standings_of(content).get(limit)
            wanted = (self.used[limit], self.resets.get(limit))
            if found != wanted:
                self.problems.append(f"{limit}: {found} (status {status}) instead of {wanted}")

    def take_problems(self):
        """The problems so far, which are not told again."""
        problems, self.problems = self.problems, []
        return problems


class Site:
    """Where the checks are made: folders of their own, and the end of what they start."""

    def __init__(self, binary, folder, library, report):
        self.binary, self.folder, self.library, self.report = binary, Path(folder), library, report
        self.number = 0

    @contextlib.contextmanager
    def proxy(self, limits=LIMITS, **disk):
        """A proxy that was not started yet, and its faults."""
        self.number += 1
        proxy = Proxy(self.binary, self.folder / f"proxy-{self.number}", limits, **(FLUSH | disk))
        faults = None
        if self.library:
            faults = Faults(self.library, proxy.folder / "rules", proxy.counters)
            proxy.environment = faults.environment
        failed = self.report.failed
        try:
            yield proxy, faults
        except (RuntimeError, OSError, subprocess.SubprocessError, LookupError, TypeError) as error:
            self.report.check(f"{proxy.folder.name} goes on", [f"{type(error).__name__}: {error}"])
        finally:
            proxy.stop()
            if "panicked at" in proxy.log():
                self.report.check(f"{proxy.folder.name}: no panic", ["there was one"])
            if self.report.failed > failed:
                proxy.show_log()
            shutil.rmtree(proxy.folder, ignore_errors=True)


@dataclass
class Outage:
    """A disk that cannot be written for a while."""

    name: str
    begin: object
    end: object
    # What the log and the system call it.
    error: str
    file: str = "journal-"


def try_outage(site, proxy, outage, ends_by_kill):
    """Before, during and after it, and after a restart."""
    report = site.report
    check = lambda what, problems: report.check(f"{outage.name}: {what}", problems)
    with Asker(proxy.port) as asker:
        account = Account(asker)
        for limit in KEPT:
            account.expect(limit, 200)
        wait_until_written(proxy)
        before = dict(account.used)

        outage.begin()
        noticed = eventually(lambda: account.charge("closed") == 503)
        check("it is noticed", account.take_problems() + ([] if noticed else ["never"]))
        account.expect("closed", 503)
        check("`closed` is 503", account.take_problems())
        account.expect("open", 200, counts=False)
        check("`open` passes", account.take_problems())
        account.expect("local", 200)
        if account.charge("local", cost=MOST) != 429:
            account.problems.append("more than the limit was not denied")
        check("`local` is decided in the process", account.take_problems())
        account.expect("quick", 200, counts=False)
        check("a limit in memory goes on", account.take_problems())
        status, content = asker.standing("closed", KEY)
        used = standings_of(content).get("closed", (None,))[0]
        fresh = used is not None and used < before["closed"]
        check("no fresh window", [f"closed: {used} used"] if fresh else [])
        seen = {limit: asker.charge((limit, "new", 1))[0] for limit in KEPT}
        wanted = {"open": 200, "closed": 503, "local": 200}
        check("the same for a new key", [] if seen == wanted else [f"{seen}"])
        errors = proxy.metric("tollgate_store_disk_write_errors_total")
        check("the metric counts it", [] if errors else [f"{errors}"])
        told = proxy.has_logged("cannot be written to disk", outage.error, outage.file)
        check("the log names file and error", [] if told else ["it does not"])
        check("it does not die", [] if proxy.is_running() else ["it did"])

        outage.end()
        well = eventually(lambda: account.charge("closed") == 200)
        for limit in KEPT:
            account.expect(limit, 200)
        check("counting goes on by itself", account.take_problems() + ([] if well else ["never"]))
        wait_until_written(proxy)
    if ends_by_kill:
        proxy.kill()
    else:
        proxy.stop()
    proxy.start()
    with Asker(proxy.port) as asker:
        account.compare(asker)
    check("a restart has the right counts", account.take_problems())


def try_kill_during_outage(site):
    """It is killed while nothing can be written: what was written before is there."""
    with site.proxy() as (proxy, faults):
        proxy.start()
        with Asker(proxy.port) as asker:
            account = Account(asker)
            account.expect("closed", 200)
            wait_until_written(proxy)
            before = account.used["closed"]
            faults.begin("write ENOSPC name=journal- after=30")
            noticed = eventually(lambda: account.charge("closed") == 503)
            proxy.kill()
            faults.end()
        proxy.start()
        with Asker(proxy.port) as asker:
            used = standings_of(asker.standing("closed", KEY)[1])["closed"][0]
        problems = account.take_problems() + ([] if noticed else ["it was not noticed"])
        problems += [] if before <= used <= account.used["closed"] else [f"{used} of {before}"]
        site.report.check("killed during an outage: what was written is there", problems)


def try_write_faults(site):
    """Errors of the system when the journal is written."""
    cases = (
        ("no space", ["write ENOSPC name=journal-"], "No space left"),
        ("no space within a write", ["write ENOSPC name=journal- after=30"], "No space left"),
        (
            "no space, and no way back",
            ["write ENOSPC name=journal- after=30", "truncate EIO name=journal-"],
            "No space left",
        ),
        ("an error of a write", ["write EIO name=journal-"], "Input/output error"),
        ("an error of a sync", ["sync EIO name=journal-"], "Input/output error"),
        ("a read-only disk", ["write EROFS", "open EROFS", "sync EROFS"], "Read-only"),
    )
    for number, (name, rules, error) in enumerate(cases):
        with site.proxy() as (proxy, faults):
            proxy.start()
            outage = Outage(name, lambda: faults.begin(*rules), faults.end, error)
            try_outage(site, proxy, outage, ends_by_kill=number % 2 == 0)
    with site.proxy() as (proxy, faults):
        try_first_journal(site, proxy, faults)


def try_first_journal(site, proxy, faults):
    """The first journal of a process cannot be made."""
    faults.begin("open ENOSPC name=journal-")
    proxy.start()
    with Asker(proxy.port) as asker:
        account = Account(asker)
        noticed = eventually(lambda: account.charge("closed") == 503)
        faults.end()
        well = eventually(lambda: account.charge("closed") == 200)
        wait_until_written(proxy)
        proxy.kill()
        proxy.start()
    with Asker(proxy.port) as asker:
        account.compare(asker, ["closed"])
    problems = account.take_problems()
    problems += [] if noticed else ["it was not noticed"]
    problems += [] if well else ["it does not go on"]
    site.report.check("no journal can be made: noticed, and then right", problems)


def try_harmless_faults(site):
    """Short writes and interrupted calls are no errors."""
    for name, rule in (
        ("short writes", "write short=40 name=journal-"),
        ("interrupted writes", "write EINTR name=journal- times=20"),
        ("interrupted syncs", "sync EINTR name=journal- times=3"),
        ("an error that comes once", "write EIO name=journal- times=1"),
    ):
        with site.proxy() as (proxy, faults):
            proxy.start()
            faults.begin(rule)
            with Asker(proxy.port) as asker:
                account = Account(asker)
                for _ in range(3):
                    account.expect("local", 200)
                    wait_until_written(proxy)
            count = faults.count()
            proxy.kill()
            faults.end()
            proxy.start()
            with Asker(proxy.port) as asker:
                account.compare(asker, ["local"])
            problems = account.take_problems() + ([] if count else ["there was no fault"])
            site.report.check(f"{name}: all is counted, and there after a kill", problems)


def run(site):
    """All of them."""
    if site.library:
        try_write_faults(site)
        try_kill_during_outage(site)
        try_harmless_faults(site)
