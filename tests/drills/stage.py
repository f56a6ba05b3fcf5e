"""What every drill stands on: folders of its own, and an end for everything that it starts."""

import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "httpbin"))
from harness import (
    PATIENCE_SECONDS,
    Tally,
    free_port,
    give_up_after,
    running,
    stop,
    wait_until_listening,
)

PAUSE_SECONDS = 0.02
LOG_LINES = 20


class Missing(Exception):
    """A program that a drill needs is not installed: it is skipped."""


@dataclass
class Programs:
    """What is tried, and what it is tried with."""

    # The proxy.
    tollgate: str
    # `redis-server`, or `valkey-server`.
    server: str


class Stage(contextlib.ExitStack):
    """Ends all that a drill has started, the last first, however the drill ends."""

    def __init__(self, programs):
        super().__init__()
        self.programs = programs
        self.folders = 0
        self.folder = None

    def __enter__(self):
        super().__enter__()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="drill-")))
        return self

    def __exit__(self, kind, error, trace):
        # What is wrong may be in the logs, which are about to go.
        if kind is not None and issubclass(kind, Exception) and kind is not Missing:
            for log in sorted(self.folder.glob("proxy-*/log")):
                print(f"--- the last lines of {log.parent.name} ---")
                print(*log.read_text(errors="replace").splitlines()[-LOG_LINES:], sep="\n")
        return super().__exit__(kind, error, trace)

    def part(self):
        """Another stage, which ends before this one."""
        return Stage(self.programs)

    def new_folder(self, name):
        """A path at which nothing is yet."""
        self.folders += 1
        return self.folder / f"{name}-{self.folders}"


def eventually(probe):
    """What `probe` gives once it is true, or at last; for what takes a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := probe()) and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
    return found


def wait_for(what, probe):
    """Waits for what is bound to happen, and fails when it does not."""
    if not eventually(probe):
        raise RuntimeError(f"it did not happen: {what}")
