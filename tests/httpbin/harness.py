"""What the black-box scripts share: processes, checks and the count of them.

Every process is stopped through its own handle on every way out, and its log is shown only when
a check failed or the run broke off.
"""

import argparse
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PATIENCE_SECONDS = 30
# How often it is looked how late this machine is.
LOOK_SECONDS = 0.02


class Tally:
    """Counts checks and prints each one that failed, with what was seen."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def record(self, name, problems):
        """A check passes when it found no problems."""
        if not problems:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED {name}")
        for problem in problems:
            print(f"    {problem}")

    def conclude(self):
        """Prints the line that `tests/run.sh` adds up, and returns the exit code."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


class Witness(threading.Thread):
    """Sees by how many seconds this machine is late to wake a thread and to write to a folder, or to sync
    that: the proxy's threads may be as late, and that is not its fault."""

    def __init__(self, folder, syncs=False):
        super().__init__(daemon=True)
        self.folder, self.syncs = folder, syncs
        self.late = 0
        self.ended = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            while not self.ended.is_set():
                slept = time.monotonic()
                time.sleep(LOOK_SECONDS)
                file.write(b".")
                if self.syncs:
                    os.fdatasync(file.fileno())
                self.late = max(self.late, time.monotonic() - slept - LOOK_SECONDS)


def give_up_after(seconds):
    """Ends the run with an error when it takes longer; what was started is still stopped."""

    def expire(_signal, _frame):
        # Not an Exception: one check that fails on a timeout of its own must not swallow this.
        sys.exit(f"not done within {seconds} seconds")

    signal.signal(signal.SIGALRM, expire)
    # A SIGTERM must unwind too, or the processes under test would outlive this one.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))
    signal.alarm(seconds)


def binary_under_test(description, seconds):
    """The binary that the command line names; the run may take so many seconds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    binary = parser.parse_args().tollgate
    give_up_after(seconds)
    return binary


# Below the ports that the system gives to outgoing connections: none of those takes a port between
# when it was found to be free and when it is used.
PORTS = range(12_000, 32_000)
# Scripts begin at different places.
ASKED = itertools.count(os.getpid() * 7919)
# A socket for each port that this script was given: the system lets no other script have its name, and
# removes it with this process.
CLAIMS = []


def free_port():
    """A loopback port that is free, and that no script that runs was given."""
    for number in itertools.islice(ASKED, len(PORTS)):
        port = PORTS[number % len(PORTS)]
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a port of connections that have ended is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            claim.bind(f"\0tollgate-port-{port}")
            CLAIMS.append(claim)
            return port
        claim.close()
    raise RuntimeError("no port is free")


@contextlib.contextmanager
def running(name, command, port, tally, **options):
    """Runs `command` until the block ends; the block starts once `port` accepts connections. `options` are
    those of `Popen`.

    The block gets the process, and may end it: what it ends with then is the block's concern.
    """
    failed_before = tally.failed
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **options
        )
        try:
            wait_until_listening(name, process, port)
            yield process
            # The block has not waited for it.
            if process.returncode is None and process.poll() is not None:
                raise RuntimeError(f"{name} ended by itself with {process.returncode}")
        except BaseException:
            show_tail(name, log)
            raise
        else:
            if tally.failed > failed_before:
                show_tail(name, log)
        finally:
            stop(process)


def show_tail(name, log):
    """Prints the last lines of a log."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    print(f"--- the last lines of {name} ---", *lines[-40:], sep="\n")


def stop(process):
    """Asks first, so that a worker of the process is not left behind."""
    process.terminate()
    try:
        process.wait(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_listening(name, process, port):
    """Returns when a connection is accepted; fails when the process ends or takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode} before it listened")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    raise RuntimeError(f"{name} did not listen on port {port}")


@contextlib.contextmanager
def tollgate(binary, policy, tally, secret=None, files=None):
    """Runs Tollgate with one policy, in a folder of its own, and gives its port.

    A `secret` is written to `secret.txt`; `{secret_file}` in the policy is replaced by its path.
    The policy finds each of `files`, bytes by name, at `../NAME`.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        folder = Path(folder)
        if secret is not None:
            secret_file = folder / "secret.txt"
            secret_file.write_text(secret)
            secret_file.chmod(0o600)
            policy = policy.replace("{secret_file}", str(secret_file))
        for name, content in (files or {}).items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_bytes(content)
        settings = folder / "tollgate.yaml"
        settings.write_text(
            "version: 1\n"
            f"listeners: [{{ address: 127.0.0.1:{port} }}]\n"
            "policies: policies\n"
            'access_log: { format: "off" }\n'
        )
        (folder / "policies").mkdir()
        (folder / "policies" / "main.yaml").write_text(policy)
        command = [str(Path(binary).resolve()), "run", "--config", str(settings)]
        with running("tollgate", command, port, tally):
            yield port
