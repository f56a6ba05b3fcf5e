"""A Docker engine of our own, and what the test asks of it.

It runs in a network namespace with nothing but loopback: its bridges, address translation and
published ports are gone with it and touch nothing of the machine's; and nothing that is tried
reaches another network. A mount namespace does the same for what it mounts. Beyond that it needs
no special option: bridges, iptables and overlayfs (or vfs, when the folder is on an overlay
itself) are what the engine chooses by default.
"""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bases import ROOT, run

PATIENCE_SECONDS = 60
CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000


def why_not():
    """Why no engine can be started here; nothing when one can."""
    if os.geteuid() != 0:
        return "a Docker engine is started by root only"
    wanted = ("dockerd", "docker", "debootstrap", "ip")
    missing = [program for program in wanted if not shutil.which(program)]
    if compose_command() is None:
        missing.append("docker-compose")
    if missing:
        packages = "docker.io docker-compose debootstrap iproute2"
        return f"no Docker engine ({', '.join(missing)}); on Debian: apt-get install {packages}"
    return None


def compose_command():
    """The plugin, or the program of its own that Debian 12 has."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            known = subprocess.run([*command, "version"], capture_output=True, check=False)
            if known.returncode == 0:
                return command
    return None


def leave_network():
    """Moves this process, and all that it starts from here on, into namespaces of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "cannot leave the network")
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")


class Engine:
    """The engine, running until the block ends. Its images are kept in `folder`."""

    def __init__(self, folder):
        # Not below `folder`: the path of a socket is short.
        self.scratch = Path(tempfile.mkdtemp(prefix="engine-"))
        self.host = f"unix://{self.scratch}/socket"
        self.environment = {**os.environ, "DOCKER_HOST": self.host}
        self.log = self.scratch / "log"
        self.groups_before = control_groups()
        self.command = [
            "dockerd",
            f"--data-root={folder}/images",
            f"--exec-root={self.scratch}/run",
            f"--pidfile={self.scratch}/pid",
            f"--host={self.host}",
        ]

    def __enter__(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            eventually("the engine answers", self.is_answering)
        except BaseException:
            print(self.log.read_text()[-4000:])
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def is_answering(self):
        """Whether it can be asked; fails when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the engine ended with {self.process.returncode}")
        return self.attempt("info").returncode == 0

    def stop(self):
        """Ends the engine, which ends what it started."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for group in control_groups() - self.groups_before:
            # Empty, as its containers are gone; if not, it is worth more than tidiness.
            with contextlib.suppress(OSError):
                group.rmdir()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def docker(self, *arguments, stdin=subprocess.DEVNULL):
        """Runs a command that has to succeed, and gives what it printed."""
        return succeeded("docker", self.attempt(*arguments, stdin=stdin)).stdout.strip()

    def attempt(self, *arguments, stdin=subprocess.DEVNULL):
        """Runs a command that may fail, for its exit code, its output and its errors."""
        return subprocess.run(
            ["docker", *map(str, arguments)],
            env=self.environment,
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def remove_leftovers(self):
        """Removes what a run that broke off has left: the folder is this test's alone."""
        containers = self.docker("ps", "--all", "--quiet").split()
        if containers:
            self.docker("rm", "--force", "--volumes", *containers)
        self.docker("network", "prune", "--force")
        volumes = self.docker("volume", "ls", "--quiet").split()
        if volumes:
            self.docker("volume", "rm", "--force", *volumes)


class Compose:
    """Compose with one choice of files."""

    def __init__(self, engine, files, variables):
        self.engine = engine
        # Not the developer's own `.env`.
        nothing = engine.scratch / "variables"
        nothing.touch()
        self.command = [*compose_command(), "--env-file", str(nothing)]
        self.command += [word for file in files for word in ("-f", str(file))]
        self.environment = {
            **engine.environment,
            **variables,
            "COMPOSE_PROJECT_NAME": "tollgate",
            # Debian's gives up on a slow engine after a minute.
            "COMPOSE_HTTP_TIMEOUT": "300",
        }

    def __call__(self, *arguments):
        """Runs a command that has to succeed, and gives what it printed."""
        return succeeded("compose", self.attempt(*arguments)).stdout

    def attempt(self, *arguments, without=()):
        """Runs a command that may fail, with some variables not set."""
        kept = {name: value for name, value in self.environment.items() if name not in without}
        return subprocess.run(
            [*self.command, *arguments],
            cwd=ROOT,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def set(self, **variables):
        """Changes variables for what is started from here on."""
        self.environment.update((name, str(value)) for name, value in variables.items())

    def container(self, service):
        """The identifier of a service's container, whether it runs or not."""
        label = f"label=com.docker.compose.service={service}"
        return self.engine.docker("ps", "--all", "--quiet", "--filter", label)

    def running(self):
        """The services whose containers run, by name."""
        label = '{{.Label "com.docker.compose.service"}}'
        return sorted(self.engine.docker("ps", "--format", label).split())

    def start(self, service):
        """Starts a container as the engine itself does after it was restarted."""
        self.engine.docker("start", self.container(service))

    def address(self, service):
        """A container's address on the composition's network."""
        networks = self.inspect(service)["NetworkSettings"]["Networks"]
        return networks["tollgate_default"]["IPAddress"]

    def execute(self, service, *command):
        """Runs a command in a service's container, for its result, its output and its errors."""
        return self.engine.attempt("exec", self.container(service), *command)

    def process(self, service):
        """The folder in /proc of a service's first process. The image has no program to look with."""
        return Path(f"/proc/{self.inspect(service)['State']['Pid']}")

    def inspect(self, service):
        """What the engine knows of a service's container."""
        [known] = json.loads(self.engine.docker("inspect", self.container(service)))
        return known

    def health(self, service):
        """What the engine thinks of a container: starting, healthy or unhealthy."""
        return self.inspect(service)["State"]["Health"]["Status"]


def control_groups():
    """The groups that an engine puts its containers into, which it leaves behind."""
    root = Path("/sys/fs/cgroup")
    return {*root.glob("docker"), *root.glob("*/docker")}


def succeeded(program, done):
    """A command that is done; fails when it did, and shows what it said."""
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-4000:])
        raise RuntimeError(f"{program} failed: {' '.join(map(str, done.args))}")
    return done


def eventually(what, is_so, patience_seconds=PATIENCE_SECONDS):
    """Waits until `is_so()`, and gives the seconds that took; fails when it takes too long."""
    started = time.monotonic()
    while not is_so():
        if time.monotonic() > started + patience_seconds:
            raise RuntimeError(f"not within {patience_seconds} seconds: {what}")
        time.sleep(0.2)
    return time.monotonic() - started
