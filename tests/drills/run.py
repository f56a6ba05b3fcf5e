"""Drills with real Redis servers: two proxies and thirty callers while Redis is hurt in some way.

Each drill prints a row: client errors (anything but 200 and 429; there must be none), how many
requests of one caller were admitted and how many may be, for the caller that is nearest to that
bound or beyond it, how long after the servers were well again Redis decided about every caller, and
how much the proxies logged. Whether a bound holds goes by counts and never by times. The exit code
is 1 if one is broken. See docs/outages.md.
"""

import argparse
import fnmatch
import subprocess
import sys
from pathlib import Path

import clocks
import moves
import outages
import replicas
import splits
from found import COLUMNS
from stage import Missing, Programs, Stage, Tally, give_up_after

DRILLS = {}
for part in (outages, splits, replicas, moves, clocks):
    DRILLS |= part.DRILLS
# No drill takes longer, on a machine that does much else.
DRILL_SECONDS = 180


def main():
    """The drills that are asked for, one after the other."""
    arguments = parse()
    names = chosen(arguments.names)
    if arguments.list:
        for name in names:
            print(name)
        return 0
    programs = Programs(arguments.tollgate, arguments.server)
    give_up_after(DRILL_SECONDS * len(names))
    tally = Tally()
    table = Table(arguments.table)
    for name in names:
        attempt(name, programs, table, tally, arguments.histories)
    return tally.conclude()


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tollgate", "--binary", default="target/release/tollgate", help="the binary to try"
    )
    parser.add_argument("--server", default="redis-server", help="a redis-server or valkey-server")
    parser.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="write what was admitted, for the judge of simulations"
    )
    parser.add_argument("--table", action="store_true", help="print a table in Markdown")
    parser.add_argument("--list", action="store_true", help="print the drills' names, and end")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default; `single-*` works")
    return parser.parse_args()


def chosen(patterns):
    """The names of the drills that are meant."""
    unknown = [pattern for pattern in patterns if not fnmatch.filter(DRILLS, pattern)]
    if unknown:
        sys.exit(f"no such drill: {', '.join(unknown)}; --list shows them")
    is_meant = lambda name: any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    return [name for name in DRILLS if not patterns or is_meant(name)]


def attempt(name, programs, table, tally, histories):
    """One drill, with nothing of it left but its history, where a folder for that is named."""
    try:
        with Stage(programs) as stage:
            for found in DRILLS[name](name, stage):
                table.print(found)
                tally.record(found.name, found.broken())
                if histories and found.history:
                    histories.mkdir(parents=True, exist_ok=True)
                    found.history.write(histories / f"{found.name}.jsonl")
    except Missing as missing:
        print(f"{name} is skipped: {missing}")
    except (RuntimeError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        tally.record(name, [f"broke off: {error!r}"])


class Table:
    """Rows, for people or as Markdown."""

    def __init__(self, is_markdown):
        self.is_markdown = is_markdown
        self.print_cells(COLUMNS)
        if is_markdown:
            self.print_cells(["---"] * len(COLUMNS))

    def print(self, found):
        """One row."""
        self.print_cells(found.cells())

    def print_cells(self, cells):
        """One line."""
        if self.is_markdown:
            print("|", " | ".join(cells), "|", flush=True)
        else:
            widths = (40, 15, 10, 9, 21, 13, 0)
            padded = (cell.ljust(width) for cell, width in zip(cells, widths))
            print("".join(padded).rstrip(), flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
