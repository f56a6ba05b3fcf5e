"""A process that dies in the middle of a write, and power that fails: the store opens again by
itself, and its counters are those that they must be."""

import collections
import itertools
import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, field

from store import Asker, Witness, eventually, standings_of

LIMITS = {
    "plain": {"rate": "1_000_000/day", "on_store_error": "closed"},
    "paced": {"rate": "24/day", "algorithm": "gcra", "burst": 10_000, "on_store_error": "closed"},
}
# So many that a write has several pages.
KEYS = 200
# Bytes of a write that are done before the process dies.
TORN = (0, 1, 3, 10, 24, 25, 100, 5000)
LOAD_SECONDS = 2
FLUSH_SECONDS = 0.5
POWER_FAILURES = 4
SYNCS = (("flush", 0.5), ("flush", 1), ("every", 0.5), ("os", 0.5))
# The most crash points that are tried of a kind.
MAX_POINTS = 60


@dataclass
class History:
    """What a client has seen of each counter: used units, and when they were answered."""

    seen: dict = field(default_factory=lambda: collections.defaultdict(lambda: [(0, 0.0)]))
    pending: dict = field(default_factory=dict)
    # When it was answered for the last time.
    last: float = 0

    def load(self, asker, seconds, at_once=1):
        """Charges keys, one after the other, until the time is over or the proxy is gone."""
        end = time.monotonic() + seconds
        numbers = itertools.count()
        try:
            while time.monotonic() < end:
                for limit in LIMITS:
                    keys = [f"k{next(numbers) % KEYS}" for _ in range(at_once)]
                    self.pending = {(limit, key): self.seen[limit, key][-1][0] + 1 for key in keys}
                    status, content = asker.charge(*((limit, key, 1) for key in keys))
                    if status != 200:
                        raise RuntimeError(f"status {status}: {content}")
                    self.last = time.monotonic()
                    for used, key in zip(content["standings"], keys):
                        self.seen[limit, key].append((used["used"], self.last))
                    self.pending = {}
        except (OSError, ConnectionError):
            pass

    def compare(self, proxy, bound):
        """Problems: counters that were not true at any time in the last `bound` seconds."""
        problems = []
        with Asker(proxy.port) as asker:
            for (limit, key), states in self.seen.items():
                status, content = asker.standing(limit, key)
                used = standings_of(content).get(limit, (None,))[0]
                values = [value for value, _ in states] + [self.pending.get((limit, key))]
                old = (value for value, at in states if at <= self.last - bound)
                kept = max(old, default=0)
                if status != 200 or used not in values or used < kept:
                    text = f"{used} used, and {kept} must be (status {status})"
                    problems.append(f"{limit} of {key}: {text}")
        return problems

    def forget(self, proxy):
        """Goes on from what is there now."""
        with Asker(proxy.port) as asker:
            for limit, key in list(self.seen):
                used = standings_of(asker.standing(limit, key)[1])[limit][0]
                self.seen[limit, key] = [(used, 0.0)]
        self.pending = {}


def started(proxy, problems):
    """Starts it; that it does not start is a problem."""
    try:
        proxy.start()
        return True
    except RuntimeError:
        line = [line for line in proxy.log().splitlines() if line][-1:]
        problems.append(f"it does not start: {line}")
        return False


def try_torn_writes(site):
    """The process is killed in the middle of a write to the journal."""
    chooser = random.Random(1)
    with site.proxy(LIMITS, flush=f"{FLUSH_SECONDS * 1000:.0f}ms") as (proxy, faults):
        history = History()
        for length in TORN:
            problems = []
            if not started(proxy, problems):
                site.report.check(f"torn after {length} bytes", problems)
                break
            history.forget(proxy)
            with Asker(proxy.port) as asker, Witness(proxy.folder) as witness:
                history.load(asker, 0.6)
                faults.begin(f"write torn={length} name=journal- after={chooser.randrange(2000)}")
                history.load(asker, LOAD_SECONDS, at_once=8)
            died = eventually(lambda: not proxy.is_running())
            problems += [] if died else ["it was not killed"]
            proxy.kill()
            faults.end()
            if started(proxy, problems):
                problems += history.compare(proxy, FLUSH_SECONDS + 3 * witness.late)
            proxy.kill()
            site.report.check(f"torn after {length} bytes", problems)


def try_power_failures(site):
    """Writes reach the disk in another order, and some not at all, unless they were synced. The
    power fails at any time, or just before a write is synced."""
    chooser = random.Random(2)
    for (sync, flush), is_at_sync in itertools.product(SYNCS, (False, True)):
        if is_at_sync and sync == "os":
            continue
        refused, problems = [], []
        for _ in range(POWER_FAILURES):
            seed = chooser.randrange(1 << 40)
            with site.proxy(LIMITS, sync=sync, flush=f"{flush * 1000:.0f}ms") as (proxy, faults):
                proxy.start()
                history = History()
                faults.begin(f"seed {seed}", "write hold=50")
                with Asker(proxy.port) as asker, Witness(proxy.folder, syncs=True) as witness:
                    history.load(asker, chooser.uniform(0.6, 1.4), at_once=8)
                    if is_at_sync:
                        kill = "sync kill name=journal-"
                        faults.begin(f"seed {seed + 1}", "write hold=50", kill)
                        history.load(asker, LOAD_SECONDS, at_once=8)
                        eventually(lambda: not proxy.is_running())
                proxy.kill()
                faults.end()
                if not started(proxy, refused):
                    shown = proxy.store("check", "--repair", "--path", proxy.counters)
                    if shown.returncode != 0 or not started(proxy, problems):
                        problems.append(f"it is not repaired: {shown.stdout}{shown.stderr}")
                        continue
                bound = {"os": float("inf"), "every": 0}.get(sync, flush + 3 * witness.late)
                problems += [f"seed {seed}: {it}" for it in history.compare(proxy, bound)]
        when = "before a sync" if is_at_sync else "at any time"
        name = f"power failure {when}, sync: {sync}, flush: {flush} s"
        site.report.check(f"{name}: what was synced is there", problems)
        site.report.check(f"{name}: it starts by itself", refused)


def try_crashes_of_a_new_store(site):
    """The process is killed at each step of making a store: the next start makes it."""
    for call in ("open", "sync", "rename", "write"):
        problems = []
        step = 40 if call == "write" else 1
        for number in range(MAX_POINTS):
            with site.proxy(LIMITS) as (proxy, faults):
                faults.begin(f"{call} kill after={number * step}")
                with_fault = quiet_start(proxy)
                faults.end()
                proxy.kill()
                if with_fault:
                    break
                if started(proxy, problems):
                    with Asker(proxy.port) as asker:
                        status, _ = asker.charge(("plain", "a", 1))
                        problems += [] if status == 200 else [f"{call} {number}: {status}"]
                else:
                    problems[-1] = f"{call} {number}: {problems[-1]}"
        site.report.check(f"killed while it makes a store, at each {call} ({number})", problems)


def quiet_start(proxy):
    """Starts it, and returns whether it serves."""
    try:
        proxy.start()
        return True
    except RuntimeError:
        return False


def try_crashes_of_a_merge(site):
    """The process is killed, or fails, at each step of making tables of a journal."""
    with site.proxy(LIMITS) as (proxy, faults):
        proxy.start()
        history = History()
        with Asker(proxy.port) as asker:
            history.load(asker, 1, at_once=8)
        proxy.stop()
        # There are tables already, and a journal again.
        proxy.store("compact", "--path", proxy.counters)
        proxy.start()
        with Asker(proxy.port) as asker:
            history.load(asker, 1, at_once=8)
        proxy.stop()
        golden = proxy.folder / "golden"
        proxy.counters.rename(golden)
        wanted = count(site, golden)
        environment = os.environ | faults.environment
        for fault, step in (
            ("open kill", 1),
            ("sync kill", 1),
            ("rename kill", 1),
            ("unlink kill", 1),
            ("write kill", 400),
            ("write torn=7", 400),
            ("write ENOSPC", 400),
            ("sync EIO", 1),
            ("open EMFILE", 1),
            ("read EIO", 1),
        ):
            problems = []
            for number in range(MAX_POINTS):
                shutil.rmtree(proxy.counters, ignore_errors=True)
                shutil.copytree(golden, proxy.counters)
                # The pages that were not synced are lost, too.
                held = ["write hold=50"] if "kill" in fault and "write" not in fault else []
                faults.begin(f"seed {number + 1}", f"{fault} after={number * step}", *held)
                compacted = proxy.store("compact", "--path", proxy.counters, env=environment)
                hit = compacted.returncode != 0
                faults.end()
                where = f"{fault} after {number * step}"
                if compacted.returncode not in (0, 1, -9):
                    problems.append(f"{where}: exit code {compacted.returncode}")
                checked = proxy.store("check", "--path", proxy.counters)
                found = (checked.returncode, count_in(checked.stdout))
                if found != (0, wanted):
                    text = f"{checked.stdout}{checked.stderr}".strip()
                    problems.append(f"{where}: {found} instead of {(0, wanted)}: {text[:300]}")
                if not hit:
                    break
            site.report.check(f"tables are made, {fault} at each step ({number})", problems)
        problems = []
        if started(proxy, problems):
            problems += history.compare(proxy, 0)
        site.report.check("after all that, the counters are as they were", problems)


def count(site, folder):
    """Counters that can be read in a folder."""
    command = [site.binary, "store", "check", "--path", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return count_in(ran.stdout)


def count_in(text):
    """The number that `tollgate store check` tells."""
    for line in text.splitlines():
        if line.startswith("counters that can be read: "):
            return int(line.split(": ")[1].split(",")[0])
    return None


def run(site):
    """Those that go by how old a charge was."""
    if site.library:
        try_torn_writes(site)
        try_power_failures(site)


def run_crashes(site):
    """Those that go step by step."""
    if site.library:
        try_crashes_of_a_new_store(site)
        try_crashes_of_a_merge(site)
