"""What is checked of policies that change under traffic: each way in which a file is replaced, with
policies mounted as a folder, as a folder that Kubernetes laid out, and as a single file.

Each change is another rate, so that every answer shows which policy it was made by, and the
counts go on. How long a change takes to be noticed is printed, and judged by patience alone.
"""

import contextlib
import itertools
import json
import shutil

from bases import ROOT
from checks import Checks
from engine import eventually
from traffic import JWT_SECRET, LIGHT, LOAD_HOST, Load, token

# The proxy looks at its files every 5 seconds, whether or not it gets events about them.
NOTICED_SECONDS = 20
# In the container.
SETTINGS = "/etc/tollgate/tollgate.yaml"


class ReloadTrial(Checks):
    """The checks, with a folder to make policies in."""

    def __init__(self, compose, port, tally, folder):
        super().__init__("reload", compose, port, tally)
        self.folder = folder
        # Rates that no caller reaches, each used once.
        self.rates = itertools.count(100_001)
        # Those of the present mount that were in force, or should have been.
        self.in_force = []
        self.load = None

    def run(self):
        """All checks, with one proxy after the other before the same Redis."""
        self.check_folder()
        self.check_config_map()
        self.check_single_file()

    def check_folder(self):
        """A mounted folder, which is what the compose file recommends."""
        folder = self.folder / "folder"
        folder.mkdir()
        file = folder / "load.yaml"
        ways = {
            "in place": write_in_place,
            "by another of its name": replace,
            "after it was moved away": move_away_and_write,
        }
        with self.mounted(folder, file.write_text):
            # Twice: a watch may be gone with the file that it was for.
            for how, write in [*ways.items()] * 2:
                self.check_change(f"folder: file written {how}", file, write)
            self.check_hangup("folder")
            self.check_broken(file)

    def check_config_map(self):
        """A mounted ConfigMap, all of which is replaced at once."""
        config_map = ConfigMap(self.folder / "config-map", "load.yaml")
        with self.mounted(config_map.folder, config_map.write):
            for turn in ("first", "second"):
                self.check_change(f"ConfigMap: {turn} swap", config_map, ConfigMap.write)

    def check_single_file(self):
        """A file that is mounted by itself can be changed in place, and not be replaced."""
        file = self.folder / "single.yaml"
        with self.mounted(file, file.write_text):
            for turn in ("first", "second"):
                self.check_change(f"single file: {turn} write in place", file, write_in_place)
            replacement = next(self.rates)
            replace(file, policy(replacement))
            # It is asked to read, and reads the old one. The load is judged by that, too.
            self.check_hangup("single file")
            mounted = (self.compose.process("tollgate") / "root/etc/tollgate/policies").read_text()
            self.expect_so(
                "single file: one that replaces it is not in the container",
                mounted == policy(self.in_force[-1]),
                mounted,
            )
        self.compose("restart", "tollgate")
        self.expect_soon(
            "single file: one that replaces it is there after a restart",
            lambda: self.rate_of_new_caller() == str(replacement),
        )

    @contextlib.contextmanager
    def mounted(self, policies, write):
        """A proxy with these policies, which `write` writes, and a load on it until the block ends.

        Then what the load got is judged.
        """
        self.in_force = [next(self.rates)]
        write(policy(self.in_force[0]))
        self.compose.set(TOLLGATE_POLICIES=policies)
        took = self.up()
        self.print_figures(f"{policies.name}: up after {took:.0f} s")
        started = self.process()
        with Load(self.port, JWT_SECRET, policies.name, LIGHT) as self.load:
            self.expect_soon(f"{policies.name}: first policy is in force", self.is_in_force)
            yield
        self.expect(f"{policies.name}: process from beginning to end", started, self.process())
        self.judge_load(policies.name)

    def check_change(self, what, place, write):
        """Another policy, which `write` puts in its place, is soon in force for everybody."""
        self.in_force.append(next(self.rates))
        write(place, policy(self.in_force[-1]))
        self.expect_soon(what, self.is_in_force)

    def check_hangup(self, where):
        """The signal has everything read, whether or not anything has changed."""
        before = self.status()["generation"]
        self.compose("kill", "-s", "HUP", "tollgate")
        self.expect_soon(
            f"{where}: read after SIGHUP", lambda: self.status()["generation"] == before + 1
        )

    def check_broken(self, file):
        """The last good policy stays, and status reports the problems of the new one."""
        before = self.status()
        self.expect("exit code of status", 0, self.ask_status().returncode)
        write_in_place(file, policy("many"))
        self.expect_soon("broken policy is reported", lambda: self.ask_status().returncode == 1)
        status = self.ask_status().stdout
        is_reported = all(words in status for words in (f"policies/{file.name}:", "many/hour"))
        self.expect_so("status says what is wrong, and where", is_reported, status)
        healthy = self.compose.execute("tollgate", "tollgate", "health", "--config", SETTINGS)
        self.expect(f"exit code of health ({healthy.stderr.strip()})", 0, healthy.returncode)
        after = self.status()
        for what in ("generation", "digest", "loaded"):
            self.expect(f"{what} with a broken policy", before[what], after[what])
        self.check_change("policy is mended", file, write_in_place)
        self.expect("exit code of status after that", 0, self.ask_status().returncode)
        self.expect("what is wrong after that", None, self.status()["refused"])

    def expect_soon(self, what, is_so):
        """Records whether something becomes so, and reports how long it took."""
        try:
            took = eventually(what, is_so, NOTICED_SECONDS)
        except RuntimeError as error:
            self.expect_so(what, False, error)
        else:
            self.expect_so(what, True, took)
            self.print_figures(f"{what}: after {took:.1f} s")

    def is_in_force(self):
        """Whether everybody was last answered by the latest policy."""
        lasts = self.load.lasts()
        rate = str(self.in_force[-1])
        return len(lasts) == LIGHT.callers and all(rate_of(last) == rate for last in lasts)

    def judge_load(self, where):
        """No request was refused, no count began anew, and only good policies were in force."""
        load = self.load
        self.expect(f"{where}: requests that failed", [], load.failures[:5])
        self.expect(f"{where}: statuses", {200}, set(load.statuses()))
        by_redis = 0
        for caller, answers in load.answers.items():
            decided = [answer for answer in answers if answer.is_redis]
            by_redis += len(decided)
            rates = [rate for rate, _ in itertools.groupby(decided, rate_of)]
            self.expect(f"rates of {caller}", [str(rate) for rate in self.in_force], rates)
            self.expect(f"counts of {caller} that do not go on", [], breaks(answers))
        answers = sum(load.statuses().values())
        undecided = answers - by_redis
        self.print_figures(f"{where}: {answers} answers, {undecided} decided without Redis")

    def rate_of_new_caller(self):
        """The rate by which a request is decided now; none while the proxy is away."""
        authorization = f"Bearer {token('new', JWT_SECRET)}"
        with contextlib.suppress(OSError):
            return rate_of(self.get("/user", host=LOAD_HOST, authorization=authorization))

    def ask_status(self, *options):
        """The status of the proxy, by the command that the compose file names."""
        command = ["tollgate", "status", "--config", SETTINGS, *options]
        return self.compose.execute("tollgate", *command)

    def status(self):
        """The same as data."""
        return json.loads(self.ask_status("--json").stdout)

    def process(self):
        """What is another one after a restart."""
        known = self.compose.inspect("tollgate")
        return known["Id"], known["State"]["StartedAt"], known["RestartCount"]


class ConfigMap:
    """A folder as Kubernetes mounts a ConfigMap.

    Its file is a link into a folder, which is reached over a link, too: the one that changes.
    """

    def __init__(self, folder, name):
        self.folder = folder
        self.name = name
        self.versions = itertools.count(1)
        folder.mkdir()
        (folder / name).symlink_to(f"..data/{name}")

    def write(self, text):
        """Puts a new folder in the place of the old one."""
        link = self.folder / "..data"
        old = link.resolve() if link.is_symlink() else None
        new = self.folder / f"..2026_11_21_{next(self.versions)}"
        new.mkdir()
        (new / self.name).write_text(text)
        new_link = self.folder / "..data_tmp"
        new_link.symlink_to(new.name)
        new_link.rename(link)
        if old is not None:
            shutil.rmtree(old)


def write_in_place(file, text):
    """Empties the file and fills it again, in two steps."""
    half = len(text) // 2
    with file.open("w") as opened:
        opened.write(text[:half])
        opened.flush()
        opened.write(text[half:])


def replace(file, text):
    """Gives the name to a file that was written under another one."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.rename(file)


def move_away_and_write(file, text):
    """As editors do that keep the old one until the new one is written."""
    old = file.rename(file.with_name(f"{file.name}~"))
    file.write_text(text)
    old.unlink()


def policy(rate):
    """The policy of the load with another rate."""
    text = (ROOT / "tests/compose/load.yaml").read_text()
    changed = text.replace("150/hour", f"{rate}/hour")
    if changed == text:
        raise RuntimeError("the policy of the load has another rate than it had")
    return changed


def rate_of(answer):
    """The rate by which a request was decided."""
    return answer.headers.get("x-ratelimit-limit")


def breaks(answers):
    """Where a caller's count does not go on by one.

    What Redis did not decide in time it may have counted all the same.
    """
    found, before, unsure = [], 0, 0
    for answer in answers:
        if not answer.is_redis:
            unsure += 1
            continue
        used = int(answer.headers.get("x-ratelimit-used", "0"))
        if not before < used <= before + 1 + unsure:
            found.append((before, used))
        before, unsure = used, 0
    return found
