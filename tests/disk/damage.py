"""Files that are damaged: the start says what is lost and how to go on, and changes nothing; and no
counter is ever a fresh one unasked."""

import hashlib
import shutil

from broken import FLUSH, LIMITS, Account, wait_until_written
from store import Asker, Proxy, standings_of

# So many that a table has several blocks; of most of them, only a part is looked at.
KEYS = 2000
AT_ONCE = 8
FRAMES = 20
SEEN = 100
LIMIT = "closed"


def digest(folder):
    """All files below a folder, but for the one that says who has it open."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def make(site, proxy):
    """A store with tables and a journal. Returns what was used of each key."""
    used = {}
    proxy.start()
    with Asker(proxy.port) as asker:
        for first in range(0, KEYS, AT_ONCE):
            keys = [f"old-{number}" for number in range(first, first + AT_ONCE)]
            asker.charge(*((LIMIT, key, 3) for key in keys))
            used |= dict.fromkeys(keys, 3)
    proxy.stop()
    made = proxy.store("compact", "--path", proxy.counters)
    if made.returncode != 0:
        raise RuntimeError(f"no tables: {made.stderr}")
    proxy.start()
    with Asker(proxy.port) as asker:
        for number in range(FRAMES):
            asker.charge((LIMIT, f"new-{number}", 5))
            used[f"new-{number}"] = 5
            asker.charge((LIMIT, f"old-{number}", 1))
            used[f"old-{number}"] += 1
            wait_until_written(proxy)
    proxy.stop()
    return used


def largest(folder, pattern):
    """The file with the most in it: the journal that was written to, and not the next one, which is
    made ahead."""
    return max(folder.glob(pattern), key=lambda file: file.stat().st_size)


def smallest(folder, pattern):
    """The file with the least in it: the journal that was made ahead."""
    return min(folder.glob(pattern), key=lambda file: file.stat().st_size)


def largest_table(folder):
    """The table with the counters."""
    return largest(folder / "tables" / "tables", "*")


def flip(file, part):
    """Changes a byte, so far into the file."""
    content = bytearray(file.read_bytes())
    content[int(len(content) * part)] ^= 0x40
    file.write_bytes(content)
    return file


def cut(file, part):
    """Only the first part is left."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    return file


def delete(file):
    """It is gone."""
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink()
    return file


# What is done to a store, and what `check --repair` does: it helps (True), it cannot (False), or the
# loss is accepted (None). Each gives the file to be told.
DAMAGE = {
    "the journal, a byte in the middle": (lambda it: flip(largest(it, "journal-*"), 0.5), True),
    "the journal, a byte at its beginning": (lambda it: flip(largest(it, "journal-*"), 0), True),
    "the journal, a byte of its last write": (lambda it: flip(largest(it, "journal-*"), 0.99), True),
    "the journal is gone": (lambda it: delete(largest(it, "journal-*")), None),
    "the next journal, a byte": (lambda it: flip(smallest(it, "journal-*"), 0.5), True),
    "the next journal is gone": (lambda it: delete(smallest(it, "journal-*")), None),
    "`counters`, a byte": (lambda it: flip(it / "counters", 0.5), False),
    "`counters` is cut": (lambda it: cut(it / "counters", 0.5), False),
    "`counters` is gone": (lambda it: delete(it / "counters"), False),
    "a table is gone": (lambda it: delete(largest_table(it)), False),
    "a table is cut": (lambda it: cut(largest_table(it), 0.5), False),
    "a table, the last bytes": (lambda it: flip(largest_table(it), 0.99), False),
    "the list of tables, a byte": (lambda it: flip(largest(it / "tables", "v*"), 0.5), False),
    "the list of tables is gone": (lambda it: delete(largest(it / "tables", "v*")), False),
    "`tables/current`, a byte": (lambda it: flip(it / "tables" / "current", 0.2), False),
    "`tables/current` is gone": (lambda it: delete(it / "tables" / "current"), False),
    "the folder of tables is gone": (lambda it: delete(it / "tables"), False),
}


class Scene:
    """A store, and copies of it that are damaged."""

    def __init__(self, site, proxy, golden, used):
        self.site, self.proxy, self.golden, self.used = site, proxy, golden, used

    def renew(self):
        """The store as it was."""
        shutil.rmtree(self.proxy.counters, ignore_errors=True)
        shutil.copytree(self.golden, self.proxy.counters)

    def check(self, what, problems):
        """A check."""
        self.site.report.check(what, problems)

    def try_damage(self, name, damage, is_repaired):
        """One file is damaged: the start, `store check`, and `store check --repair`."""
        self.renew()
        file = damage(self.proxy.counters)
        before = digest(self.proxy.counters)
        code, log = self.proxy.refusal()
        words = log.lower()
        if code is None:
            found = "it starts" if self.proxy.has_logged(file.name) else "it starts, and says nothing"
            self.check(f"{name}: the start is refused", [found, *self.wrong_counters()])
            self.proxy.stop()
        else:
            told = file.name in log or "tables" in log
            problems = [] if told else ["the file is not named"]
            lost = ("lost", "no counter", "as they were before", "is in it")
            problems += [] if any(it in words for it in lost) else ["not what is lost"]
            advice = ("backup", "repair", "move the folder", "name a folder", "name another")
            problems += [] if any(it in words for it in advice) else ["not how to go on"]
            problems += ["it panicked"] if "panicked at" in log else []
            self.check(f"{name}: the start says what is lost", problems and [*problems, log[-600:]])
            changed = digest(self.proxy.counters) != before
            self.check(f"{name}: the start changes nothing", ["it does"] if changed else [])
        self.renew()
        damage(self.proxy.counters)
        self.try_check(name, file, is_repaired)

    def try_check(self, name, file, is_repaired):
        """What `tollgate store check` finds, and what it can do about it."""
        before = digest(self.proxy.counters)
        found = self.proxy.store("check", "--path", self.proxy.counters)
        text = f"{found.stdout}{found.stderr}"
        problems = [] if found.returncode == 1 else [f"exit code {found.returncode}"]
        problems += [] if file.name in text or "tables" in text else ["the file is not named"]
        problems += ["it changes the store"] if digest(self.proxy.counters) != before else []
        self.check(f"{name}: `store check` finds it", problems and [*problems, text[-600:]])
        repaired = self.proxy.store("check", "--repair", "--path", self.proxy.counters)
        text = f"{repaired.stdout}{repaired.stderr}"
        if is_repaired is not False:
            problems = [] if repaired.returncode == 0 else [f"exit code {repaired.returncode}"]
            problems += [] if file.name in text and "lost" in text else ["not what is lost"]
            try:
                self.proxy.start()
                if is_repaired:
                    problems += self.wrong_counters(may_be_earlier=True)
            except RuntimeError as error:
                problems += [str(error), self.proxy.log()[-600:]]
            self.proxy.stop()
            self.check(f"{name}: `store check --repair` goes on", problems)
        else:
            claimed = repaired.returncode == 0
            problems = ["exit code 0, and nothing is repaired"] if claimed else []
            self.check(f"{name}: `--repair` does not claim success", problems and [*problems, text])

    def wrong_counters(self, may_be_earlier=False, in_all=False):
        """Counters that are not as they were, and are not refused either: of some of them, or of
        all."""
        if not self.proxy.is_running():
            self.proxy.start()
        wrong, missing = [], 0
        with Asker(self.proxy.port) as asker:
            looked_at = list(self.used.items())
            if not in_all:
                looked_at = looked_at[:: KEYS // SEEN] + looked_at[:FRAMES] + looked_at[-FRAMES:]
            for key, used in dict(looked_at).items():
                status, content = asker.charge((LIMIT, key, 0))
                found = standings_of(content).get(LIMIT, (None,))[0]
                if status == 200 and found != used:
                    wrong.append(f"{key}: {found} used instead of {used}")
                    missing += used - found
        if may_be_earlier and len(wrong) <= 3 and missing <= 8:
            return []
        return wrong[:3] + ([f"and {len(wrong) - 3} others"] if len(wrong) > 3 else [])

    def try_cut_journal(self):
        """A cut journal looks as one that was being written; the log tells what was left out."""
        self.renew()
        file = cut(largest(self.proxy.counters, "journal-*"), 0.5)
        (self.proxy.folder / "log").write_text("")
        self.proxy.start()
        told = self.proxy.has_logged(file.name)
        self.proxy.stop()
        self.check("a journal is cut: the log tells it", [] if told else ["it does not"])

    def try_flipped_table(self):
        """A table with a changed byte: its counters are refused, and no others."""
        for part in (0.02, 0.1, 0.3):
            self.renew()
            file = flip(largest_table(self.proxy.counters), part)
            name = f"a table, a byte at {part:.0%}"
            (self.proxy.folder / "log").write_text("")
            try:
                self.proxy.start()
            except RuntimeError:
                log = self.proxy.log()
                told = "damaged" in log and "lost" in log
                self.check(f"{name}: the start says what is lost", [] if told else [log[-600:]])
            else:
                self.check(f"{name}: no counter is a fresh one", self.wrong_counters(in_all=True))
                told = self.proxy.has_logged("cannot be read from disk")
                self.check(f"{name}: the log tells it", [] if told else ["it does not"])
                with Asker(self.proxy.port) as asker:
                    new = [asker.charge((LIMIT, f"another-{it}", 1))[0] for it in range(SEEN)]
                    problems = [] if new.count(200) > SEEN / 2 else [f"{new.count(200)} of {SEEN}"]
                self.check(f"{name}: new counters in other places go on", problems)
                self.proxy.stop()
            self.renew()
            flip(largest_table(self.proxy.counters), part)
            self.try_check(name, file, False)


def try_second_process(site):
    """A folder is for one process at a time."""
    with site.proxy() as (proxy, _):
        proxy.start()
        other = Proxy(site.binary, proxy.folder / "other", LIMITS, **FLUSH)
        other.disk["path"] = str(proxy.counters)
        # A start writes, too.
        wait_until_written(proxy)
        before = digest(proxy.counters)
        code, log = other.refusal()
        problems = [] if code == 1 else [f"exit code {code}"]
        problems += [] if f"process {proxy.process.pid} on" in log else ["not who holds it"]
        problems += [] if digest(proxy.counters) == before else ["it changes the store"]
        site.report.check("a second process is told who holds it", problems and [*problems, log])
        held = proxy.store("check", "--path", proxy.counters)
        told = held.returncode == 1 and f"process {proxy.process.pid} on" in held.stderr
        site.report.check("so is `store check`", [] if told else [held.stdout + held.stderr])
        with Asker(proxy.port) as asker:
            account = Account(asker)
            account.expect(LIMIT, 200)
        site.report.check("the first one goes on", account.take_problems())
        proxy.kill()
        other.start()
        with Asker(other.port) as asker:
            status, _ = asker.charge((LIMIT, "x", 1))
        other.stop()
        problems = [] if status == 200 else [status]
        site.report.check("when it is killed, the next one gets it", problems)


def run(site):
    """All of them."""
    with site.proxy() as (proxy, _):
        proxy.environment = {}
        used = make(site, proxy)
        golden = proxy.folder / "golden"
        proxy.counters.rename(golden)
        scene = Scene(site, proxy, golden, used)
        for name, (damage, is_repaired) in DAMAGE.items():
            try:
                scene.try_damage(name, damage, is_repaired)
            except (RuntimeError, OSError, LookupError) as error:
                scene.check(f"{name}: goes on", [f"{type(error).__name__}: {error}"])
            proxy.stop()
        scene.try_cut_journal()
        scene.try_flipped_table()
    try_second_process(site)
