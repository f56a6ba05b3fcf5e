"""kill -9 under load, again and again: each counter on disk is one that was true at most `flush`
before.

Clients charge limits of every algorithm, and note what each answer says is used, and when it came.
The proxy is killed at a random instant and started again in the same folder. Then all counters that
were charged are read, and compared with the clients' notes.

    KILLS         environment: how often it is killed (default: 20; 200 take some minutes)
    FLUSH         environment: seconds of `flush`, of three turns in four (default: 0.25)
    SYNC_DELAYS   environment: milliseconds that each sync of a file takes longer, by turns of kills
                  (default: 0; what holds for a disk that syncs at once must hold for a slow one)
    SEED          environment: what the instants and keys are chosen by (default: another each time)
"""

import collections
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import shim
from clients import HUGE, LIMITS, TIGHT, Client, Counter, State
from store import (
    PATIENCE_SECONDS,
    Asker,
    Proxy,
    Tally,
    Witness,
    binary_under_test,
    charge_request,
    standing_request,
    standings_of,
)

KILLS = int(os.environ.get("KILLS", "20"))
FLUSH = float(os.environ.get("FLUSH", "0.25"))
SYNC_DELAYS = tuple(map(int, os.environ.get("SYNC_DELAYS", "0").split(",")))
SEED = int(os.environ.get("SEED", time.time_ns() % 1_000_000))

# The settings of the disk, by turns. `memory` is so little that counters leave it all the time.
TURNS = (
    {"sync": "flush", "flush": FLUSH, "memory": "1MiB"},
    {"sync": "os", "flush": FLUSH, "memory": "1MiB"},
    {"sync": "every", "flush": FLUSH, "memory": "1MiB"},
    {"sync": "flush", "flush": 1, "memory": "64MiB"},
)
CLIENTS = 4
# Questions that are under way at once when counters are read.
DEPTH = 32
LOAD_SECONDS = (0.2, 1.6)
OPENING_SECONDS = 0.15
# Every so many rounds it is stopped in good order, or killed while it opens the store.
STOP_EVERY = 5
OPENING_EVERY = 4
# Every so many stops, all goes to tables, from which it is read then.
COMPACT_EVERY = 3
# Counters that were not charged since the last start and are read all the same.
SAMPLE = 200
OLDER = "a kill loses nothing that is older than `flush`"
ANY = "a stop, and a kill with `sync: every`, lose nothing"
SHOWN = 5


@dataclass
class Loss:
    """What the kills have cost."""

    kills: int = 0
    charges: int = 0
    units: int = 0
    most_charges: int = 0
    seconds: float = 0
    # Kills after which something older than `flush` was lost.
    late: int = 0
    answered: int = 0
    denied: int = 0
    read: int = 0
    # Calls of which one limit has the charge, and another one does not.
    split: int = 0

    def line(self, name):
        """For people."""
        return (
            f"{name}: {self.kills} kills, {self.answered} charges answered, {self.denied} denied, "
            f"{self.read} counters read; lost: {self.charges} charges of one limit "
            f"({self.units} units), at most {self.most_charges} of a counter, the oldest "
            f"answered {self.seconds * 1000:.0f} ms before the kill, {self.late} times more than "
            f"allowed; {self.split} calls in part"
        )


class Trial:
    """One folder, and all that was ever charged in it."""

    def __init__(self, binary, folder, tally):
        self.tally = tally
        self.random = random.Random(SEED)
        self.proxy = Proxy(binary, folder, LIMITS)
        self.counters = collections.defaultdict(Counter)
        self.losses = collections.defaultdict(Loss)
        # Problems of a kind, of all rounds.
        self.problems = collections.defaultdict(list)
        self.turn = 0
        self.stops = 0
        self.faults = None
        if any(SYNC_DELAYS):
            library = shim.build(folder.rpartition("/")[0])
            self.faults = shim.Faults(library, f"{folder}-faults", self.proxy.counters)
            self.proxy.environment |= self.faults.environment

    def load(self, seconds):
        """Clients charge for some time. Returns them, still at work."""
        names = [(SEED, number) for number in range(CLIENTS)]
        clients = [Client(name, self.proxy.port, self.counters, self.turn) for name in names]
        for client in clients:
            client.start()
        time.sleep(seconds)
        return clients

    def round(self, kills):
        """Load, an end, and what is there after the next start."""
        disk = TURNS[self.turn % len(TURNS)]
        name = f"sync: {disk['sync']}, flush: {disk['flush']} s"
        loss = self.losses[name if kills else f"{name}, stopped"]
        with Witness(self.proxy.folder) as witness:
            clients = self.load(self.random.uniform(*LOAD_SECONDS))
            instant = time.monotonic()
        if kills:
            self.proxy.kill()
        elif (code := self.proxy.stop()) != 0:
            self.problems["it ends well"].append(f"exit code {code}")
        for client in clients:
            client.ended.set()
        for client in clients:
            client.join(PATIENCE_SECONDS)
            loss.answered += client.answered
            loss.denied += client.denied
            self.problems["answers are right while it runs"].extend(client.problems)
        loss.kills += kills
        self.turn += 1
        self.stops += not kills
        if not kills and self.stops % COMPACT_EVERY == 1:
            compacted = self.proxy.store("compact", "--path", self.proxy.counters)
            if compacted.returncode != 0:
                self.problems["every counter can be read"].append(compacted.stderr)
        self.start(kills and self.turn % OPENING_EVERY == 0)
        keeps_all = not kills or disk["sync"] == "every"
        # To wake, to collect and to write: each of these may have waited for the processor.
        self.compare(loss, instant, 0 if keeps_all else disk["flush"] + 3 * witness.late)

    def start(self, is_killed_first):
        """Starts it with the next settings; it may be killed once before it serves."""
        disk = TURNS[self.turn % len(TURNS)]
        if self.faults is not None:
            delay = SYNC_DELAYS[self.turn // len(TURNS) % len(SYNC_DELAYS)]
            self.faults.begin(f"sync delay={delay}")
        self.proxy.disk = disk | {"flush": f"{disk['flush'] * 1000:.0f}ms"}
        if is_killed_first:
            self.proxy.launch()
            time.sleep(self.random.uniform(0, OPENING_SECONDS))
            self.proxy.kill()
        self.proxy.start()

    def compare(self, loss, instant, bound):
        """Reads what was charged, and some others; compares it with what clients saw."""
        is_charged = lambda counter: len(counter.states) > 1 or counter.pending
        charged = [name for name, it in self.counters.items() if is_charged(it)]
        others = [name for name, it in self.counters.items() if not is_charged(it)]
        others = self.random.sample(others, min(SAMPLE, len(others)))
        found = self.read([*charged, *others])
        before = self.lost_problems()
        lost_of_key = collections.defaultdict(set)
        for name, (used, reset) in found.items():
            lost = self.judge(name, used, reset, instant, bound, loss)
            limit, key = name
            if key.startswith("hot") and limit in HUGE:
                lost_of_key[key].add(lost)
            self.counters[name] = Counter([State(used, reset, 0, 0)])
        loss.late += self.lost_problems() > before
        loss.read += len(found)
        loss.split += sum(len(lost) > 1 for lost in lost_of_key.values())

    def lost_problems(self):
        """How many counters lost more than they may."""
        return len(self.problems[OLDER]) + len(self.problems[ANY])

    def judge(self, name, used, reset, instant, bound, loss):
        """One counter. Returns how many of its charges are lost."""
        counter, (limit, key) = self.counters[name], name
        states = counter.states
        of = f"turn {self.turn}: {limit} of {key}"
        pending = list(itertools.accumulate(counter.pending, initial=counter.used))[1:]
        at = next((i for i, state in enumerate(states) if state.used == used), None)
        if at is None:
            if used not in pending or (limit == "tight" and used > TIGHT):
                seen = [state.used for state in states[-3:]]
                text = f"{of}: {used} used; last seen {seen}, under way {pending}"
                self.problems["every counter is one that was true"].append(text)
            return 0
        if used > 0 and reset != states[at].reset:
            text = f"{of}: reset at {reset} instead of {states[at].reset}"
            self.problems["the reset is as it was"].append(text)
        lost = states[at + 1 :]
        if not lost:
            return 0
        age = instant - lost[0].answered
        loss.charges += len(lost)
        loss.units += counter.used - used
        loss.most_charges = max(loss.most_charges, len(lost))
        loss.seconds = max(loss.seconds, age)
        if bound == 0 or age > bound:
            text = f"{of}: {len(lost)} charges lost, the first answered {age * 1000:.0f} ms before"
            fresh = ", a fresh window" if used == 0 else ""
            kind = ANY if bound == 0 else OLDER
            self.problems[kind].append(f"{text}{fresh}, at most {bound * 1000:.0f} ms")
        return len(lost)

    def read(self, names):
        """How counters stand: by a charge of nothing, or by a look."""
        by_key = collections.defaultdict(list)
        for limit, key in names:
            by_key[key].append(limit)
        questions = []
        for key, limits in by_key.items():
            if key.startswith("cold"):
                questions.append((key, limits, charge_request([(it, key, 0) for it in limits])))
            else:
                questions += [(key, [it], standing_request(it, key)) for it in limits]
        found = {}
        with Asker(self.proxy.port) as asker:
            asked = iter(questions)
            waiting = collections.deque()
            while True:
                for question in itertools.islice(asked, DEPTH - len(waiting)):
                    waiting.append(question)
                    asker.socket.sendall(question[2])
                if not waiting:
                    return found
                key, limits, _ = waiting.popleft()
                status, content = asker.read_answer()
                standings = standings_of(content)
                if status != 200 or set(standings) != set(limits):
                    text = f"turn {self.turn}: {limits} of {key}: {status}, {str(content)[:200]}"
                    self.problems["every counter can be read"].append(text)
                    continue
                found |= {(limit, key): standings[limit] for limit in limits}

    def conclude(self):
        """All counters that there ever were; then the checks and the figures."""
        found = self.read(list(self.counters))
        wrong = [
            f"{name}: {used} used instead of {self.counters[name].used}"
            for name, (used, _) in found.items()
            if used != self.counters[name].used
        ]
        self.problems["all counters of all rounds are there"].extend(wrong)
        tables = sum(it.stat().st_size for it in self.proxy.counters.glob("tables/tables/*"))
        print(
            f"seed {SEED}; {len(found)} counters at the end, {tables >> 10} KiB in tables and "
            f"{self.proxy.journal_bytes() >> 10} KiB in journals"
        )
        for name, loss in sorted(self.losses.items()):
            print(loss.line(name))


CHECKS = (
    "answers are right while it runs",
    "every counter can be read",
    "every counter is one that was true",
    "the reset is as it was",
    OLDER,
    ANY,
    "all counters of all rounds are there",
    "it ends well",
    "it starts again each time",
)


def main():
    """Kill after kill, and now and then a stop."""
    # Each start syncs several times.
    slow = max(SYNC_DELAYS) / 1000 * 20
    binary = binary_under_test(__doc__, 180 + int(KILLS * (10 + slow)))

    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="tollgate-kill-") as folder:
        trial = Trial(binary, f"{folder}/proxy", tally)
        try:
            trial.start(False)
            for number in range(KILLS):
                trial.round(True)
                if number % STOP_EVERY == STOP_EVERY - 1:
                    trial.round(False)
            trial.conclude()
            if evicted := trial.proxy.metric("tollgate_store_disk_evicted_total"):
                print(f"{evicted:.0f} counters have left memory since the last start")
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            text = f"turn {trial.turn}: {type(error).__name__}: {error}"
            trial.problems["it starts again each time"].append(text)
        finally:
            trial.proxy.stop()
        if any(trial.problems.values()):
            trial.proxy.show_log()
        if "panic" in trial.proxy.log():
            trial.problems["it ends well"].append("there was a panic")
        for name in CHECKS:
            problems = trial.problems[name]
            if not problems:
                print("ok    ", name)
            more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
            tally.record(name, problems[:SHOWN] + more)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
