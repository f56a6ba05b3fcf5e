"""Tries the systemd units: what `systemd-analyze` says of them, and then for real.

The first part wants Debian's package systemd, which need not run. The second part boots a systemd
of its own and wants root and systemd-nspawn; without them it says so and checks nothing. See
machine.py.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import ROOT, UNITS, why_not
from service import ServiceTrial

sys.path.insert(0, str(ROOT / "tests" / "httpbin"))
from harness import Tally, binary_under_test

SECONDS = 240
# Of 100, as `systemd-analyze security` counts: 10.0 is "unsafe", and below 3.0 it says "OK".
MOST_EXPOSED = 30
BINARY_IN_UNITS = "/usr/local/bin/tollgate"


def main():
    """Both parts."""
    binary = Path(binary_under_test(__doc__, SECONDS)).resolve()
    tally = Tally()
    if shutil.which("systemd-analyze") is None:
        print("skipped: no systemd-analyze; on Debian: apt-get install systemd")
        return tally.conclude()
    check_grammar(binary, tally)
    check_exposure(tally)
    reason = why_not()
    if reason is not None:
        print(f"skipped: units in a booted systemd: {reason}")
        return tally.conclude()
    with tempfile.TemporaryDirectory(prefix="units-") as folder:
        ServiceTrial(binary, Path(folder), tally).run()
    return tally.conclude()


def check_grammar(binary, tally):
    """systemd knows every setting and reads every value."""
    with tempfile.TemporaryDirectory(prefix="units-") as folder:
        copies = []
        for unit in sorted(UNITS.iterdir()):
            copy = Path(folder) / unit.name
            # It also looks whether the program is there.
            copy.write_text(unit.read_text().replace(BINARY_IN_UNITS, str(binary)))
            copies.append(copy)
        done = analyze("verify", *copies)
    problems = done.stderr.splitlines()
    if done.returncode != 0:
        problems.append(f"exit code {done.returncode}")
    tally.record("systemd-analyze verify", problems)


def check_exposure(tally):
    """The service may do little beyond what it needs."""
    service = UNITS / "tollgate.service"
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", service)
    overall = [line for line in done.stdout.splitlines() if "Overall exposure" in line]
    print(*overall)
    exceeded = [line for line in done.stdout.splitlines() if line.startswith("✗")]
    tally.record("systemd-analyze security", exceeded if done.returncode != 0 else [])


def analyze(*arguments):
    """Runs systemd-analyze."""
    command = ["systemd-analyze", "--no-pager", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
