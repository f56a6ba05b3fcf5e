"""Tries what `cargo install --locked tollgate` gets: every crate is packed, each has what it is built from and
its licence and no tests' data, and together they are small.

    crates.py [--build]     --build: `cargo install` builds and installs the program from the packed crates alone

Crates that no registry has yet are found in the folder where they were unpacked, by a patch of the workspace
around them; what else they need comes from the registry, at the versions of the lock file.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "httpbin"))
from harness import Tally, give_up_after

SECONDS = 3000
# They train the compiler and serve simulations, and nobody installs them.
NOT_PUBLISHED = ("tollgate-train", "tollgate-unreliable")
# In bytes, packed: a registry takes ten million for each.
MOST_EACH, MOST_IN_ALL = 1_500_000, 3_000_000
# What is no part of a program, by the beginnings of paths.
UNWANTED = ("tests/", "docs/", "config/", "examples/", ".")
WANTED = {"config/policies/api.yaml"}


def main():
    """Packs, looks, and builds if it is asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--tollgate", help="not used, since the program is built")
    arguments = parser.parse_args()
    give_up_after(SECONDS)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="crates-") as folder:
        folder = Path(folder)
        packed = pack(folder)
        check_contents(packed, folder, tally)
        if arguments.build:
            check_installation(packed, folder, tally)
    return tally.conclude()


def pack(folder):
    """The packed crates, by their names."""
    command = [
        "cargo",
        "package",
        "--workspace",
        *(f"--exclude={name}" for name in NOT_PUBLISHED),
        "--no-verify",
        "--allow-dirty",
    ]
    run(*command, "--quiet", f"--target-dir={folder / 'target'}")
    files = sorted((folder / "target/package").glob("*.crate"))
    return {re.fullmatch(r"(.*)-\d+\.\d+\.\d+.*\.crate", file.name)[1]: file for file in files}


def check_contents(packed, folder, tally):
    """Each crate of the workspace has what it needs, and no more."""
    names = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    missing = {"tollgate", *(f"tollgate-{name}" for name in names)} - set(packed)
    tally.record("every crate is packed", sorted(missing))
    sizes = {name: file.stat().st_size for name, file in packed.items()}
    print(
        f"{len(sizes)} crates, {sum(sizes.values()) / 1e6:.2f} MB; tollgate {sizes['tollgate'] / 1e6:.2f} MB"
    )
    tally.record(
        "each is small", [f"{it}: {size}" for it, size in sizes.items() if size > MOST_EACH]
    )
    tally.record("all are small", [] if sum(sizes.values()) < MOST_IN_ALL else [str(sizes)])
    for name, file in packed.items():
        with tarfile.open(file) as archive:
            archive.extractall(folder / "unpacked")
            paths = {member.name.split("/", 1)[1] for member in archive.getmembers()}
        unwanted = [
            it
            for it in paths - WANTED
            if it.startswith(UNWANTED) and not it.startswith(".cargo_vcs")
        ]
        tally.record(f"{name} has no more than it needs", unwanted)
        manifest = next((folder / "unpacked").glob(f"{name}-[0-9]*/Cargo.toml")).read_text()
        wanted = ("license = ", "description = ", "rust-version = ")
        tally.record(f"{name} says what it is", [it for it in wanted if it not in manifest])


def check_installation(packed, folder, tally):
    """`cargo install --locked` of what is packed gives a program that runs."""
    unpacked = folder / "unpacked"
    places = {name: next(unpacked.glob(f"{name}-[0-9]*")).name for name in packed}
    members = ", ".join(f'"{place}"' for place in places.values())
    patches = "".join(f'{name} = {{ path = "{place}" }}\n' for name, place in places.items())
    manifest = (ROOT / "Cargo.toml").read_text()
    profile = manifest[manifest.index("[profile.dev]") : manifest.index("# Packages:")]
    (unpacked / "Cargo.toml").write_text(
        f"[workspace]\nresolver = '3'\nmembers = [{members}]\n[patch.crates-io]\n{patches}{profile}"
    )
    # Each crate has one of its own, too; this is the one that they were packed with.
    shutil.copy(ROOT / "Cargo.lock", unpacked)
    command = [
        "cargo",
        "install",
        "--locked",
        "--quiet",
        "--profile",
        "gate",
        "--root",
        folder / "installed",
    ]
    run(
        *command,
        "--path",
        unpacked / places["tollgate"],
        "--target-dir",
        ROOT / "target",
        cwd=unpacked,
    )
    version = run(folder / "installed/bin/tollgate", "--version")
    tally.record("it runs", [] if version.startswith("tollgate ") else [version])


def run(*command, cwd=ROOT):
    """What a command prints that has to succeed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(done.stderr[-4000:])
        raise RuntimeError(f"{' '.join(map(str, command[:3]))} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
