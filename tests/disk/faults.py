"""The store on disk when the disk fails: full, broken, torn, out of order, damaged, or in use.

Faults are injected by `faults.c`, which gcc builds; what needs it is skipped without gcc. A full
file system is mounted in a mount namespace, as root. Names on the command line choose parts.
"""

import argparse
import sys
import tempfile

import broken
import damage
import full
import torn
import unreadable
from shim import build
from store import Tally, give_up_after

PARTS = {
    "broken": broken.run,
    "unreadable": unreadable.run,
    "full": full.run,
    "torn": torn.run,
    "crashes": torn.run_crashes,
    "damage": damage.run,
}
SECONDS = 300


class Report(Tally):
    """Prints a line for each check."""

    def check(self, name, problems):
        """A check passes when it found no problems."""
        if not problems:
            print(f"ok     {name}", flush=True)
        self.record(name, problems[:6])


def main():
    """The parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    give_up_after(SECONDS)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="tollgate-faults-") as folder:
        library = build(folder)
        if library is None:
            print("skipped: what needs injected faults, and they need gcc")
        site = broken.Site(arguments.tollgate, folder, library, report)
        for name in arguments.parts or PARTS:
            PARTS[name](site)
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
