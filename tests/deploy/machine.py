"""A small machine with a systemd of its own, in a container of systemd-nspawn.

It sees this machine's /usr, read-only and with some files added, and nothing else of it. Its
network is a loopback device of its own.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "config" / "systemd"
PATIENCE_SECONDS = 60
# Users that services of systemd itself run as.
USERS = ("root:x:0:0::/root:/bin/sh", "nobody:x:65534:65534::/:/bin/sh")
GROUPS = ("root:x:0:", "nogroup:x:65534:")


def why_not():
    """Why no systemd can be booted here; nothing when one can."""
    if os.geteuid() != 0:
        return "it is booted by root only"
    missing = [name for name in ("systemd-nspawn", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}; on Debian: apt-get install systemd-container util-linux"
    chroot = ["systemd-detect-virt", "--quiet", "--chroot"]
    if subprocess.run(chroot, capture_output=True, check=False).returncode == 0:
        return "nothing is booted from within a chroot"
    if not Path("/usr/lib/systemd/systemd").exists():
        return "no systemd in /usr/lib"
    if not Path("/bin").is_symlink():
        return "the programs are not all in /usr"
    return None


class Machine:
    """The machine, from the start of the block to its end.

    `programs` are added to /usr/local/bin, by their names; `files` are the content of files by
    their absolute paths.
    """

    def __init__(self, folder, programs, files):
        self.root = folder / "root"
        self.added = folder / "usr"
        self.log = folder / "console"
        self.options = [f"--overlay-ro=/usr:{self.added}:/usr"]
        for name in ("usr", "etc", "var", "run", "proc", "sys", "dev", "tmp", "root"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                (self.root / name).symlink_to(f"usr/{name}")
        for name, program in programs.items():
            target = self.added / "local" / "bin" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program, target)
        self.write("/etc/passwd", "".join(f"{user}\n" for user in USERS))
        self.write("/etc/group", "".join(f"{group}\n" for group in GROUPS))
        self.write("/etc/machine-id", "")
        # systemd-nspawn takes no folder for a system without it.
        self.write("/etc/os-release", "ID=tollgate-test\n")
        for path, content in files.items():
            self.write(path, content)

    def write(self, path, content, mode=0o644):
        """Writes a file, in folders that everybody may look into."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.new")
        draft.touch(mode)
        draft.write_text(content)
        draft.rename(file)

    def __enter__(self):
        command = [
            *("systemd-nspawn", "--quiet", "--boot", f"--directory={self.root}"),
            *(*self.options, "--private-network"),
            *("--machine=tollgate-test", "--register=no", "--keep-unit"),
            *("--console=pipe", "--link-journal=no"),
            # No more than sockets and what they need.
            *("systemd.unit=sockets.target", "systemd.firstboot=no"),
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            eventually("the machine is up", self.is_up)
        except BaseException:
            print(self.log.read_text()[-4000:])
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def is_up(self):
        """Whether its systemd has started everything; fails when the container has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"systemd-nspawn ended with {self.process.returncode}")
        if self.leader() is None:
            return False
        state = self.attempt("systemctl", "is-active", "sockets.target")
        return state.stdout.strip() == "active"

    def leader(self):
        """The process that is 1 in there, by its number out here."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        numbers = children.read_text().split()
        return int(numbers[0]) if numbers else None

    def inside(self, *command):
        """A command line that runs `command` in the machine."""
        return ["nsenter", "--target", str(self.leader()), "--all", "--", *map(str, command)]

    def attempt(self, *command):
        """Runs a command that may fail, for its exit code, its output and its errors."""
        return subprocess.run(
            self.inside(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def run(self, *command):
        """Runs a command that has to succeed, and gives what it printed."""
        done = self.attempt(*command)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
        return done.stdout

    def show(self, unit, name):
        """A property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def stop(self):
        """Ends it, and everything that runs in it."""
        # It shuts the machine down, in good order.
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()


def eventually(what, is_so):
    """Waits until `is_so()`; fails when it takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE_SECONDS} seconds: {what}")
        time.sleep(0.1)
