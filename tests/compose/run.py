"""Tries the Dockerfile and the compose files for real: on each kind of Redis, of which it kills a
primary, on a disk, with policies that change under traffic, the file for production, and Prometheus.

It wants root and Debian's Docker engine, Compose and debootstrap; without them it says so and
checks nothing. The engine is the test's own, in namespaces of its own, and so are its base images:
see engine.py and bases.py. What is worth keeping for the next run, images and their layers, is in
target/compose; all else is removed.

    TOLLGATE_IMAGE_BINARY   a static binary to put into the image, in place of the Dockerfile's own
                            build: quick, and it leaves that part untried
"""

import argparse
import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bases import ROOT, Bases
from disk import DiskTrial
from engine import Compose, Engine, compose_command, leave_network, why_not
from observe import ObserveTrial
from production import ProductionTrial
from reload import ReloadTrial
from traffic import JWT_SECRET
from trial import Trial

sys.path.insert(0, str(ROOT / "tests" / "httpbin"))
from harness import Tally, free_port, give_up_after

# An optimised build on a slow machine.
BUILD_SECONDS = 2400
TRIALS_SECONDS = 960

# No development defaults: the variables have to arrive where they are needed.
VARIABLES = {
    "TOLLGATE_REDIS_PASSWORD": "redis7of9this8test",
    "TOLLGATE_KEY_SECRET": "a-key-secret-of-this-test",
    "TOLLGATE_JWT_SECRET": JWT_SECRET,
}


@dataclasses.dataclass
class Topology:
    """One kind of store."""

    name: str
    files: list
    # Its primary that is killed.
    victim: str
    # The replica that takes its place, where one does.
    heir: str | None = None
    # Other callers are with other primaries, and do not notice.
    victim_serves_a_part: bool = True


TOPOLOGIES = [
    Topology("cluster", ["docker-compose.yml"], "redis-1", heir="redis-4"),
    Topology("sharded", ["docker-compose.yml", "docker-compose.sharded.yml"], "redis-a"),
    Topology(
        *("single", ["docker-compose.yml", "docker-compose.single.yml"], "redis"),
        victim_serves_a_part=False,
    ),
]
# What is not about Redis is tried with the smallest of them.
SMALLEST = TOPOLOGIES[-1]
# Without Redis: it is the proxy that is killed.
DISK = Topology(
    *("disk", ["docker-compose.yml", "docker-compose.disk.yml"], "tollgate"),
    victim_serves_a_part=False,
)
RELOAD = "reload"
PRODUCTION = "production"
OBSERVE = "observe"


def main():
    """All topologies and then the others, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tollgate", help="not used, since the image has a binary of its own")
    names = [own.name for own in (*TOPOLOGIES, DISK)] + [RELOAD, PRODUCTION, OBSERVE]
    parser.add_argument("--only", choices=names)
    arguments = parser.parse_args()
    reason = why_not()
    if reason is not None:
        # In place of a count, which would say that all was tried.
        print(f"skipped: {reason}")
        return 0

    tally = Tally()
    binary = os.environ.get("TOLLGATE_IMAGE_BINARY")
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "compose"
    folder.mkdir(parents=True, exist_ok=True)
    give_up_after(BUILD_SECONDS)
    bases = Bases(folder, with_rust=binary is None)
    bases.fetch()
    leave_network()
    with Engine(folder) as engine, scratch() as policies:
        engine.remove_leftovers()
        bases.bring_in(engine)
        build(engine, binary)
        give_up_after(TRIALS_SECONDS)
        copy_policies(policies)
        for topology in TOPOLOGIES:
            if arguments.only in (None, topology.name):
                compose, port = composition(topology, engine)
                compose.set(TOLLGATE_POLICIES=policies)
                attempt(Trial(topology, compose, port, tally))
        if arguments.only in (None, DISK.name):
            compose, port = composition(DISK, engine)
            compose.set(TOLLGATE_POLICIES=policies)
            attempt(DiskTrial(DISK, compose, port, tally))
        if arguments.only in (None, RELOAD):
            with scratch() as folder:
                attempt(ReloadTrial(*composition(SMALLEST, engine), tally, folder))
        if arguments.only in (None, PRODUCTION):
            with scratch() as folder:
                attempt(ProductionTrial(engine, tally, folder, (free_port(), free_port())))
        if arguments.only in (None, OBSERVE):
            attempt(ObserveTrial(*composition(SMALLEST, engine), tally, free_port()))
    return tally.conclude()


@contextlib.contextmanager
def scratch():
    """A folder that the user in the container can read."""
    with tempfile.TemporaryDirectory(prefix="policies-") as folder:
        folder = Path(folder)
        folder.chmod(0o755)
        yield folder


def copy_policies(folder):
    """The shipped policy, and one for the load."""
    shutil.copy(ROOT / "config/compose/policies/api.yaml", folder)
    shutil.copy(ROOT / "tests/compose/load.yaml", folder)


def build(engine, binary):
    """Builds the image: as the compose file says, or around a binary that is there."""
    started = time.monotonic()
    if binary is None:
        Compose(engine, ["docker-compose.yml"], VARIABLES)("build", "tollgate")
        if compose_command() == ["docker-compose"]:
            # Its cache are nameless images. Those of this build get a name, and the others go.
            engine.docker("build", "--target", "build", "--tag", "tollgate:build", ROOT)
            engine.docker("image", "prune", "--force")
    else:
        text = (ROOT / "Dockerfile").read_text()
        runtime = text[text.index("\nFROM scratch") :]
        # In the place where a builder that knows no platforms has it.
        stand_in = "FROM scratch AS build\nCOPY tollgate /out/tollgate\n"
        with tempfile.TemporaryDirectory(prefix="image-") as folder:
            shutil.copy(binary, Path(folder) / "tollgate")
            (Path(folder) / "Dockerfile").write_text(stand_in + runtime)
            engine.docker("build", "--tag", "tollgate:local", folder)
    size = int(engine.docker("image", "inspect", "--format", "{{.Size}}", "tollgate:local"))
    print(f"image built in {time.monotonic() - started:.0f} s, {size / 1e6:.0f} MB")


def composition(topology, engine):
    """A topology that nothing of runs yet, and the port that its proxy will listen on."""
    port = free_port()
    variables = {**VARIABLES, "TOLLGATE_PUBLISH": f"127.0.0.1:{port}"}
    return Compose(engine, topology.files, variables), port


def attempt(trial):
    """Everything of one trial, with nothing of it left."""
    compose, tally = trial.compose, trial.tally
    failed_before = tally.failed
    try:
        trial.run()
    except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
        tally.record(f"{trial.name}: to the end", [repr(error)])
    finally:
        if tally.failed > failed_before:
            show(compose)
        compose("down", "--volumes")
    engine = compose.engine
    left = engine.docker("ps", "--all", "--quiet"), engine.docker("volume", "ls", "--quiet")
    tally.record(f"{trial.name}: nothing is left", [repr(left)] if any(left) else [])


def show(compose):
    """Prints the state of all containers and their last words, but for the access log."""
    print(compose("ps"))
    for line in compose("logs", "--no-color", "--tail", "400").split("\n"):
        if '"request_id":' not in line:
            print(line[:300])


if __name__ == "__main__":
    sys.exit(main())
