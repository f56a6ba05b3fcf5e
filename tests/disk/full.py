"""A disk that is full indeed: a small file system of its own."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from broken import Account, Outage, try_outage
from store import PATIENCE_SECONDS, Asker, eventually

TMPFS_KIB = 1024


class SmallDisk:
    """A file system of its own, as large as a floppy disk, that only some processes see."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        script = 'mount -t tmpfs -o size="$2" tmpfs "$1" && echo mounted && exec cat'
        command = ["unshare", "-m", "sh", "-c", script, "sh", str(folder), f"{TMPFS_KIB}k"]
        self.holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.is_there = self.holder.stdout.readline() == b"mounted\n"
        # As this process sees it.
        self.seen = Path(f"/proc/{self.holder.pid}/root{folder}")
        self.prefix = ["nsenter", "-t", str(self.holder.pid), "-m", "--"]

    def fill(self):
        """Takes all room that is left, but for some bytes in the last page."""
        with contextlib.suppress(OSError), (self.seen / "lost+found").open("wb") as filler:
            while True:
                filler.write(bytes(1024))
                filler.flush()

    def empty(self):
        """Gives it back."""
        (self.seen / "lost+found").unlink()

    def close(self):
        """It is gone."""
        self.holder.stdin.close()
        self.holder.wait(timeout=PATIENCE_SECONDS)


def try_small_disk(site):
    """A disk that is full indeed."""
    if os.geteuid() != 0 or not shutil.which("nsenter"):
        print("skipped: a full file system, which needs root and nsenter")
        return
    with site.proxy() as (proxy, _):
        proxy.environment = {}
        disk = SmallDisk(proxy.counters)
        if not disk.is_there:
            print("skipped: a full file system, which cannot be mounted here")
            return
        try:
            proxy.prefix = disk.prefix
            proxy.start()
            outage = Outage("a full file system", disk.fill, disk.empty, "No space left")
            try_outage(site, proxy, outage, ends_by_kill=True)
            try_start_on_full_disk(site, proxy, disk)
        finally:
            proxy.stop()
            disk.close()


def try_start_on_full_disk(site, proxy, disk):
    """It starts although nothing can be written, and decides."""
    proxy.stop()
    disk.fill()
    proxy.start()
    with Asker(proxy.port) as asker:
        account = Account(asker, key="late")
        noticed = eventually(lambda: account.charge("closed") == 503)
        disk.empty()
        well = eventually(lambda: account.charge("closed") == 200)
    problems = account.take_problems()
    problems += [] if noticed else ["it was not noticed"]
    problems += [] if well else ["it does not go on"]
    site.report.check("a full file system: a start on it", problems)


def run(site):
    """All of them."""
    try_small_disk(site)
