"""A clean Debian that boots: what debootstrap makes, with a systemd, and nothing of this machine."""

import os
import shutil
import subprocess
from pathlib import Path

from machine import Machine

SUITE = "bookworm"
# A root of Debian is hardly booted without the first, and has the second unless somebody removed it.
PACKAGES = ("systemd-sysv", "procps")
# What changes while any Debian runs or installs anything.
CHANGES = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/log", "var/tmp", "var/lib/systemd")
CHANGES_IN_DPKG = ("var/lib/dpkg", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-")


def why_not():
    """Why no such root can be made here; nothing when one can."""
    if shutil.which("debootstrap") is None:
        return "no debootstrap; on Debian: apt-get install debootstrap"
    if shutil.which("dpkg-deb") is None:
        return "no dpkg-deb: this is not Debian"
    return None


def clean_root(kept, root):
    """Makes the root at `root`, out of an archive of one that an earlier run has `kept`."""
    archive = kept / f"{SUITE}-{'-'.join(PACKAGES)}.tar"
    if not archive.exists():
        kept.mkdir(parents=True, exist_ok=True)
        made = kept / "root"
        shutil.rmtree(made, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        done = subprocess.run(
            [*command, SUITE, made],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"debootstrap ended with {done.returncode}: {done.stdout[-2000:]}")
        draft = archive.with_suffix(".new")
        subprocess.run(["tar", "--create", "--file", draft, "--directory", made, "."], check=True)
        draft.rename(archive)
        shutil.rmtree(made)
    root.mkdir(parents=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", root], check=True)


class Debian(Machine):
    """The machine, from the start of the block to its end."""

    def __init__(self, folder, kept):
        # Not what a machine out of this one's files needs.
        self.root = folder / "root"
        self.log = folder / "console"
        self.options = []
        clean_root(kept, self.root)
        (self.root / "etc/machine-id").write_text("")

    def install(self, package, *options):
        """Runs dpkg on a package that is here, for its exit code and what it printed."""
        shutil.copy(package, self.root / "var/tmp" / Path(package).name)
        return self.dpkg("--install", *options, f"/var/tmp/{Path(package).name}")

    def dpkg(self, *arguments):
        """Runs dpkg, which must ask nothing, for its exit code and what it printed."""
        done = self.attempt("env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "dpkg", *arguments)
        return done.returncode, done.stdout + done.stderr

    def files(self):
        """All files of the root by their paths, but for what changes without any package."""
        seen = set()
        for folder, folders, files in os.walk(self.root):
            here = Path(folder).relative_to(self.root)
            folders[:] = [
                name for name in folders if str(here / name) not in (*CHANGES, *CHANGES_IN_DPKG)
            ]
            seen.update(str(here / name) for name in (*folders, *files))
        return seen.difference(CHANGES_IN_DPKG)
