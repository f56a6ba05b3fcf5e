"""Measures what a request costs, and compares that with what was kept: tests/bench/instructions.sh
says how.
"""

import argparse
import contextlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import figures
from profiles import read_blocks, read_instructions
from traffic import WORKLOADS, Unmeasurable, traffic

# `traffic` has told where it is.
from harness import PATIENCE_SECONDS, give_up_after

KEPT = Path(__file__).with_name("kept.tsv")
REQUESTS = 2000
# In all; what it takes is about a minute.
SECONDS = 900


def main():
    """Exits with 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", required=True, help="the binary to measure")
    parser.add_argument("--output", required=True, help="the file to write")
    parser.add_argument("--keep", action="store_true", help="compare with these from now on")
    arguments = parser.parse_args()
    give_up_after(SECONDS)

    binary = Path(arguments.tollgate).resolve()
    now = figures.Figures(tools_of(binary))
    for workload in WORKLOADS:
        for measure, profile in measured(binary, workload):
            now.profiles[workload, measure] = profile
    figures.write(now, arguments.output)

    kept = figures.read(KEPT)
    print(*figures.table(now, kept), "", f"by function: {arguments.output}", sep="\n")
    if arguments.keep:
        figures.write(now, KEPT)
        print(f"kept: {os.path.relpath(KEPT)}")
    else:
        print(*figures.remarks(now, kept), sep="\n")


def measured(binary, workload):
    """Each measure with its profile."""
    yield "instructions", instructions(binary, workload)
    _number, size = blocks(binary, workload, "--mode=copy")
    yield "copied bytes", size
    number, size = blocks(binary, workload, "--mode=heap")
    yield "allocations", number
    yield "allocated bytes", size


def instructions(binary, workload):
    """By callgrind, which can forget what came before the requests: to gather randomness takes as
    many instructions as thousands of requests, and never the same number.
    """
    tool = ["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file=profile"]
    # Each name in full wherever it is meant, and no position relative to another.
    tool += ["--compress-strings=no", "--compress-pos=no"]
    with folder() as here:
        with traffic(workload, [*tool, str(binary)], here) as started:
            control(here, started.process, "zero")
            started.run(REQUESTS)
            control(here, started.process, "dump")
        return read_instructions(here / "profile.1", binary).a_request(REQUESTS)


def control(here, process, command):
    """Has valgrind do something; it has done that when this returns."""
    ran = subprocess.run(
        ["vgdb", f"--pid={process.pid}", command],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(here)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    if ran.returncode != 0:
        raise Unmeasurable(f"vgdb {command}: {ran.stderr}(it needs the right to use ptrace)")


def blocks(binary, workload, mode):
    """By DHAT, which tells all at the end: what a run with the requests has more than one without.

    Gives the blocks and their bytes.
    """
    tool = ["valgrind", "--quiet", "--tool=dhat", mode, "--dhat-out-file=profile"]
    runs = []
    for requests in (0, REQUESTS):
        with folder() as here:
            with traffic(workload, [*tool, str(binary)], here) as started:
                started.run(requests)
            runs.append(read_blocks(here / "profile"))
    return [more.beyond(less).a_request(REQUESTS) for less, more in zip(*runs)]


@contextlib.contextmanager
def folder():
    """One of its own for each run."""
    with tempfile.TemporaryDirectory(prefix="tollgate-") as name:
        yield Path(name)


def tools_of(binary):
    """What figures depend on besides the source."""
    compiler = re.search(rb"rustc version [\w. ()-]+", binary.read_bytes())
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True).stdout
    # libc chooses its functions by it; valgrind shows a program nothing newer.
    flags = Path("/proc/cpuinfo").read_text()
    vectors = "with" if re.search(r"^flags\s.*\bavx2\b", flags, re.MULTILINE) else "without"
    return ", ".join(
        [
            compiler[0].decode() if compiler else "an unknown compiler",
            valgrind.strip(),
            " ".join(platform.libc_ver()),
            f"{platform.machine()} {vectors} avx2",
        ]
    )


if __name__ == "__main__":
    try:
        main()
    except (Unmeasurable, RuntimeError, subprocess.TimeoutExpired) as problem:
        sys.exit(f"not measured: {problem}")
