"""Tries the Debian package from its making to its end: what is in it, that it is made twice alike, and,
in a clean Debian that boots a systemd of its own, that it is installed, serves with the configuration that
it brings, is upgraded under load, keeps what was edited, and leaves nothing behind.

The binary is the one that is there: packaging/build.sh packs it. The second part wants root, debootstrap and
systemd-nspawn; without them it says so and checks nothing. The root is kept in target/debian, as an archive.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import debian
import machine
from debian import Debian
from machine import ROOT, eventually

sys.path.insert(0, str(ROOT / "tests" / "httpbin"))
from harness import Tally, binary_under_test

SECONDS = 900
VISITS = Path(__file__).with_name("visits.py")
# Where the settings of the package listen, and where its policy has the API.
PORT, API_PORT = 8080, 3000
SETTINGS = "/etc/tollgate/tollgate.yaml"
POLICY = "/etc/tollgate/policies/api.yaml"
CONFFILES = [POLICY, SETTINGS]
LOAD_SECONDS, PAUSE_SECONDS = 90, 0.02
# What the load asks before and after the upgrade, at least, in all.
FEWEST_ANSWERS = 100
# A client waits for as long as the old process drains: here, for a request that takes two seconds.
LONGEST_SECONDS = 10
MOST_EXPOSED = 30
# What lintian says that is meant.
MEANT = (
    # There is no bug of Debian's that a package outside of Debian could close.
    "initial-upload-closes-no-bugs",
    # No address is published; SECURITY.md says where to write.
    "bogus-mail-host",
    "bogus-mail-host-in-debian-changelog",
)


def main():
    """Both parts."""
    binary = Path(binary_under_test(__doc__, SECONDS)).resolve()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        folder = Path(folder)
        first = build(binary, folder / "first", 1)
        again = build(binary, folder / "again", 1)
        second = build(binary, folder / "second", 2)
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (first, again)]
        tally.record("made twice, alike", [] if len(set(digests)) == 1 else digests)
        print(f"{first.name}: {first.stat().st_size / 1e6:.1f} MB")
        check_contents(first, tally)
        check_lintian(first, tally)
        reason = machine.why_not() or debian.why_not()
        if reason is not None:
            print(f"skipped: the package in a clean Debian: {reason}")
            return tally.conclude()
        kept = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debian"
        PackageTrial(Debian(folder, kept), first, second, tally).run()
    return tally.conclude()


def build(binary, folder, revision):
    """Makes a package around the binary, and moves it to a folder."""
    profile = binary.parent.name
    environment = {
        **os.environ,
        "TOLLGATE_PROFILE": "dev" if profile == "debug" else profile,
        "TOLLGATE_BUILT": "1",
        "TOLLGATE_REVISION": str(revision),
        # An hour before today, say: not the time of this run.
        "SOURCE_DATE_EPOCH": "1795000000",
        "CARGO_TARGET_DIR": str(binary.parent.parent),
    }
    done = subprocess.run(
        [ROOT / "packaging/build.sh", "deb"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout[-4000:])
        raise RuntimeError(f"packaging/build.sh ended with {done.returncode}")
    [made] = (binary.parent.parent / "packages").glob(f"tollgate_*-{revision}_*.deb")
    folder.mkdir()
    return Path(shutil.move(made, folder))


def check_contents(package, tally):
    """What the package says of itself, and which files it has."""
    fields = output("dpkg-deb", "--field", package)
    for wanted in ("Package: tollgate", "Section: net", "libc6 (>=", "passwd", "procps"):
        tally.record(f"its fields have {wanted}", [] if wanted in fields else [fields])
    with tempfile.TemporaryDirectory(prefix="control-") as folder:
        output("dpkg-deb", "--control", package, folder)
        listed = sorted((Path(folder) / "conffiles").read_text().split())
        tally.record("its conffiles", [] if listed == CONFFILES else listed)
        scripts = ("postinst", "postrm", "prerm")
        modes = [oct((Path(folder) / name).stat().st_mode & 0o777) for name in scripts]
        tally.record("its scripts can be run", [] if set(modes) == {"0o755"} else modes)
        syntax = [
            subprocess.run(["sh", "-n", Path(folder) / name], check=False) for name in scripts
        ]
        tally.record("its scripts can be read", [str(it) for it in syntax if it.returncode != 0])
    lines = output("dpkg-deb", "--contents", package).splitlines()
    owners = {line.split()[1] for line in lines}
    tally.record(
        "its files belong to root", [] if owners <= {"root/root", "0/0"} else sorted(owners)
    )
    files = {line.split()[5].removeprefix(".") for line in lines}
    wanted = {
        *("/usr/bin/tollgate", "/usr/lib/systemd/system/tollgate.service"),
        *("/usr/lib/systemd/system/tollgate.socket", "/usr/share/man/man1/tollgate.1.gz"),
        *("/usr/share/man/man1/tollgate-check.1.gz", "/usr/share/doc/tollgate/copyright"),
        *(
            "/usr/share/bash-completion/completions/tollgate",
            "/usr/share/tollgate/schema/policy.json",
        ),
        *(
            "/usr/share/zsh/vendor-completions/_tollgate",
            "/usr/share/doc/tollgate/examples/tollgate.yaml",
            # Where messages say that more is.
            "/usr/share/doc/tollgate/docs/frameworks.md",
        ),
        *("/usr/share/fish/vendor_completions.d/tollgate.fish", *CONFFILES),
    }
    tally.record("its files", sorted(wanted - files))


def check_lintian(package, tally):
    """Debian's own judgement of packages."""
    if shutil.which("lintian") is None:
        print("skipped: lintian; on Debian: apt-get install lintian")
        return
    done = subprocess.run(
        [
            "lintian",
            "--allow-root",
            "--fail-on",
            "error,warning",
            "--suppress-tags",
            ",".join(MEANT),
            package,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if line[:2] in ("E:", "W:")]
    if done.returncode not in (0, 2):
        said.append(f"it ended with {done.returncode}: {done.stderr}")
    tally.record("lintian", said)


class PackageTrial:
    """The package in a clean Debian, with what it needs."""

    def __init__(self, clean, first, second, tally):
        self.machine = clean
        self.first = first
        self.second = second
        self.tally = tally

    def run(self):
        """All checks, in an order in which each finds what it needs."""
        with self.machine, self.api():
            try:
                before = self.machine.files()
                self.check_install()
                self.check_sandbox()
                self.check_upgrade()
                self.check_refused_configuration()
                self.check_remove()
                self.check_purge(before)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                self.tally.record("the package: to the end", [repr(error)])
            if self.tally.failed:
                print(self.machine.run("journalctl", "--no-pager", "--lines", "60"))

    def check_install(self):
        """After the installation it serves, and is there after a boot."""
        self.expect_so("dpkg --install", *self.succeeds(self.machine.install(self.first)))
        for unit in ("tollgate.socket", "tollgate.service"):
            self.expect(f"{unit} is active", "active", self.machine.show(unit, "ActiveState"))
            self.expect(f"{unit} is enabled", "enabled", self.machine.show(unit, "UnitFileState"))
        self.expect("status and used", ("200", 1), self.get())
        self.expect("a program for people", *self.word("tollgate", "--version", has="tollgate 0."))
        self.expect(
            "the settings that it brings", *self.word("tollgate", "check", SETTINGS, has="ok")
        )
        # Without the name of a file, from anywhere.
        self.expect("which are found", *self.word("tollgate", "status", has="tollgate"))
        owner = self.machine.run("stat", "--format", "%U %a", "/var/lib/tollgate").strip()
        self.expect("owner and mode of its folder", "tollgate 700", owner)

    def check_sandbox(self):
        """The unit of the package is as closed as that of the repository."""
        user = self.machine.run("stat", "--format", "%U", f"/proc/{self.process()}").strip()
        self.expect("user of the process", "tollgate", user)
        status = self.machine.run("cat", f"/proc/{self.process()}/status")
        fields = dict(line.split(":\t", 1) for line in status.split("\n") if ":\t" in line)
        self.expect("filter of system calls", "2", fields.get("Seccomp"))
        self.expect("capabilities", 0, int(fields.get("CapBnd", "1"), 16))
        judged = self.machine.attempt(
            "systemd-analyze", "security", f"--threshold={MOST_EXPOSED}", "tollgate.service"
        )
        self.expect_so(
            "systemd-analyze security", judged.returncode == 0, judged.stdout[-400:] + judged.stderr
        )

    def check_upgrade(self):
        """Another version takes the place of the first under load, and what was edited stays."""
        self.edit(POLICY, "1000/hour", "1_000_000/hour")
        eventually("the edited policy is in force", lambda: "1000000" in self.head())
        used, before = self.get()[1], self.process()
        with self.load() as load:
            time.sleep(1)
            upgraded = self.machine.install(self.second)
            time.sleep(2)
        self.expect_so("dpkg --install of another version", *self.succeeds(upgraded))
        self.expect_so("another process serves", self.process() not in ("0", before), before)
        program = self.machine.run("readlink", f"/proc/{self.process()}/exe").strip()
        self.expect("its program is the new file", "/usr/bin/tollgate", program)
        version = self.machine.run("dpkg-query", "--show", "--showformat=${Version}", "tollgate")
        self.expect_so("the version that is installed", version.endswith("-2"), version)
        seen = load.seen
        print(f"an upgrade under load: {seen}")
        self.expect("requests that failed", [], seen["problems"])
        self.expect_so(
            "requests under load", seen["answered"] >= FEWEST_ANSWERS and seen["slow"] >= 2, seen
        )
        self.expect_so("how long a client waits", seen["longest"] < LONGEST_SECONDS, seen)
        self.expect_so("the policy is the edited one", "1000000" in self.head(), self.head())
        after = self.get()[1]
        self.expect_so("counters go on", after >= used + seen["answered"], f"{used}, then {after}")

    def check_refused_configuration(self):
        """A version that does not take the configuration leaves the process alone."""
        before = self.process()
        self.edit(SETTINGS, "version: 1", "version: 7")
        status, printed = self.machine.install(self.first)
        self.expect("dpkg with bad settings", 0, status)
        self.expect_so("it says so", "serves on" in printed and "write 1" in printed, printed)
        self.expect("the process stays", before, self.process())
        self.expect("and serves", "200", self.get()[0])
        self.edit(SETTINGS, "version: 7", "version: 1")
        self.machine.run("systemctl", "restart", "tollgate")
        self.expect("and after a restart", "200", self.get()[0])

    def check_remove(self):
        """Nothing runs or listens any more, and the configuration waits for another installation."""
        self.expect_so("dpkg --remove", *self.succeeds(self.machine.dpkg("--remove", "tollgate")))
        self.expect("the service", "inactive", self.machine.show("tollgate.service", "ActiveState"))
        refused = self.machine.attempt("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}")
        self.expect_so("nothing listens", refused.returncode != 0, refused)
        self.expect_so(
            "no program", not (self.machine.root / "usr/bin/tollgate").exists(), "it is there"
        )
        self.expect_so(
            "the policy stays", "1_000_000" in self.read(POLICY), "it is not the edited one"
        )
        kept = self.machine.root / "var/lib/tollgate/counters.snapshot"
        self.expect_so("and so do the counters", kept.exists(), "there is no snapshot")
        self.expect_so("an installation again", *self.succeeds(self.machine.install(self.second)))
        self.expect(
            "which is active", "active", self.machine.show("tollgate.service", "ActiveState")
        )
        self.expect_so("and has the edited policy", "1000000" in self.head(), self.head())

    def check_purge(self, before):
        """No file and no user is left."""
        self.expect_so("dpkg --purge", *self.succeeds(self.machine.dpkg("--purge", "tollgate")))
        left = sorted(self.machine.files() - before)
        self.expect("what is left", [], left)
        self.expect("what is gone besides", [], sorted(before - self.machine.files()))
        for file in ("/etc/passwd", "/etc/group", "/etc/shadow"):
            self.expect_so(f"no user in {file}", "tollgate" not in self.read(file), self.read(file))

    @contextlib.contextmanager
    def api(self):
        """What the policy of the package has behind it."""
        server = self.visits("api", API_PORT, stdout=subprocess.DEVNULL)
        try:
            listens = ("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{API_PORT}")
            eventually("the API listens", lambda: self.machine.attempt(*listens).returncode == 0)
            yield
        finally:
            server.terminate()
            server.wait()

    @contextlib.contextmanager
    def load(self):
        """Clients at work in the block, each of which has been answered before it begins."""
        process = self.visits(
            *("load", PORT, LOAD_SECONDS, PAUSE_SECONDS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        load = Seen()
        try:
            process.stdout.readline()
            yield load
            printed, _ = process.communicate("enough\n", timeout=LOAD_SECONDS)
            load.seen = json.loads(printed)
        finally:
            process.kill()
            process.wait()

    def visits(self, *arguments, **options):
        """Starts a program of visits.py: this machine's Python, in the other one's network."""
        command = [
            "nsenter",
            "--target",
            str(self.machine.leader()),
            "--net",
            "/usr/bin/python3",
            "-B",
        ]
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([*command, VISITS, *map(str, arguments)], **options)

    def head(self):
        """The head of an answer, by nothing that a small Debian does not have."""
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf 'GET / HTTP/1.0\\r\\nHost: a\\r\\n\\r\\n' >&3; cat <&3"
        return self.machine.run("bash", "-c", ask)

    def get(self):
        """Status of a request, and how much of the limit is used then."""
        head = self.head()
        used = re.search(r"^x-ratelimit-used: (\d+)", head, re.MULTILINE | re.IGNORECASE)
        return head.split()[1], int(used[1]) if used else 0

    def edit(self, path, old, new):
        """Changes a file as an administrator does."""
        text = self.read(path)
        if old not in text:
            raise RuntimeError(f"{old} is not in {path}")
        self.machine.write(path, text.replace(old, new))

    def read(self, path):
        """The text of a file."""
        return (self.machine.root / path.lstrip("/")).read_text()

    def process(self):
        """The number of the service's process."""
        return self.machine.show("tollgate.service", "MainPID")

    def word(self, *command, has):
        """What is wanted and what is seen of a command that prints `has`."""
        done = self.machine.attempt(*command)
        is_right = done.returncode == 0 and has in done.stdout
        return has, has if is_right else f"{done.returncode}: {done.stdout}{done.stderr}"

    @staticmethod
    def succeeds(done):
        """Whether dpkg did what it should, and what it printed."""
        return done[0] == 0, done[1]

    def expect(self, what, wanted, seen):
        """Records a check."""
        problems = [] if wanted == seen else [f"wanted {wanted!r}, got {seen!r}"]
        self.tally.record(f"the package: {what}", problems)

    def expect_so(self, what, is_so, seen):
        """Records a check of something that is so or not."""
        self.tally.record(f"the package: {what}", [] if is_so else [f"got {seen}"])


class Seen:
    """What the load has seen, once it has ended."""

    def __init__(self):
        self.seen = {}


def output(*command):
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
