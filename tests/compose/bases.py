"""Base images out of Debian packages, for an engine that reaches no registry.

They go by the very names that the Dockerfile and the compose files use, so those are tried as they
are. What is in them is Debian's version of a program, not its publisher's image.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# C compilers are all that the build needs beside Rust; the real builder image gets that of musl there, too.
PACKAGES = ["gcc", "libc6-dev", "musl-tools", "redis-server", "nginx-light", "curl", "prometheus"]
# Part of every base's key: another number makes all of them anew.
EDITION = "2"


def names():
    """The images that the Dockerfile and the compose files start from."""
    found = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for file in sorted(ROOT.glob("docker-compose*.yml")):
        found += re.findall(r"^ *image: (\S+)", file.read_text(), re.MULTILINE)
    return [name for name in dict.fromkeys(found) if "tollgate:" not in name and name != "scratch"]


class Bases:
    """Makes those images that an engine does not have in their present form.

    `fetch` needs the network and no engine, `bring_in` an engine and no network. In between, the
    files are in `folder`, beside a note of what the engine has already.
    """

    def __init__(self, folder, with_rust):
        self.folder = folder
        self.wanted = {}
        for name in names():
            if with_rust or not name.startswith("rust:"):
                self.wanted[name] = key(name)

    def missing(self):
        """The names of images that the engine does not have yet."""
        return [name for name, key in self.wanted.items() if self.note(name) != key]

    def note(self, name):
        """What was noted when the image was brought in."""
        file = self.note_file(name)
        return file.read_text() if file.exists() else None

    def note_file(self, name):
        """Where that is."""
        return self.folder / f"{re.sub('[:/]', '-', name)}.key"

    def fetch(self):
        """Makes a file tree for each image that is missing."""
        missing = self.missing()
        if not missing:
            return
        slim = self.folder / "slim"
        packages = self.folder / "packages"
        debootstrap(slim)
        install(slim, packages)
        for name in missing:
            if name.startswith("rust:"):
                add_rust(name, packages, self.folder / "rust")

    def bring_in(self, engine):
        """Makes images out of the file trees, and removes these."""
        for name in self.missing():
            tree, changes = tree_and_changes(name)
            options = [option for change in changes for option in ("--change", change)]
            archive = subprocess.Popen(
                ["tar", "--create", "--numeric-owner", "--directory", self.folder / tree, "."],
                stdout=subprocess.PIPE,
            )
            with archive:
                engine.docker("import", *options, "-", name, stdin=archive.stdout)
            if archive.returncode != 0:
                raise RuntimeError(f"cannot archive the files of {name}")
            self.note_file(name).write_text(self.wanted[name])
        for tree in ("slim", "packages", "rust"):
            shutil.rmtree(self.folder / tree, ignore_errors=True)


def key(name):
    """What an image depends on."""
    if not name.startswith("rust:"):
        return f"{EDITION} {name}"
    lock = hashlib.sha256((ROOT / "Cargo.lock").read_bytes()).hexdigest()
    return f"{EDITION} static {name} {output('rustc', '--version')} {lock}"


def tree_and_changes(name):
    """The file tree that an image is made of, and what its configuration says."""
    match name.split(":")[0]:
        case "redis":
            return "packages", ["WORKDIR /data", "VOLUME /data", "CMD redis-server"]
        case "nginx":
            return "packages", ["CMD nginx -g 'daemon off;'"]
        case "prom/prometheus":
            return "packages", ['ENTRYPOINT ["prometheus"]', "VOLUME /prometheus"]
        case "rust":
            path = (
                "/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            )
            # Builds cannot reach a registry either: the crates are in the image.
            variables = f"PATH={path} CARGO_HOME=/usr/local/cargo CARGO_NET_OFFLINE=true"
            return "rust", [f"ENV {variables}"]
    raise RuntimeError(f"it is not known what {name} is made of")


def debootstrap(tree):
    """The smallest Debian there is, of the release that the Dockerfile builds on."""
    [release] = {match for name in names() for match in re.findall(r"^rust:[\d.]+-(\w+)$", name)}
    shutil.rmtree(tree, ignore_errors=True)
    run("debootstrap", "--variant=minbase", release, tree)
    empty_caches(tree)


def install(slim, tree):
    """A copy with all packages, for the images that are more than Debian."""
    shutil.rmtree(tree, ignore_errors=True)
    run("cp", "--archive", slim, tree)
    # Packages start no service in a file tree.
    policy = tree / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("chroot", tree, "apt-get", "update", "-qq", env=environment)
    run(
        *("chroot", tree, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES),
        env=environment,
    )
    # As the publishers' images have it: their users, and a folder for data.
    run("chroot", tree, "useradd", "--system", "nginx")
    run("chroot", tree, "install", "-d", "-o", "redis", "-g", "redis", "/data")
    run("chroot", tree, "install", "-d", "-o", "nobody", "-g", "nogroup", "/prometheus")
    empty_caches(tree)


def empty_caches(tree):
    """Removes what is not used in a container."""
    for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(tree / folder, ignore_errors=True)


def add_rust(name, packages, tree):
    """A copy with this machine's toolchain, and the crates of the lock file."""
    version = output("rustc", "--version").split()[1]
    wanted = name.removeprefix("rust:").split("-")[0]
    if not f"{version}.".startswith(f"{wanted}."):
        raise RuntimeError(f"{name} is wanted, and the toolchain here is {version}")
    # No program of the toolchain adds it in there.
    run("rustup", "target", "add", f"{os.uname().machine}-unknown-linux-musl", cwd=ROOT)
    shutil.rmtree(tree, ignore_errors=True)
    run("cp", "--archive", "--link", packages, tree)
    sysroot = Path(output("rustc", "--print", "sysroot")).resolve()
    rust = tree / "usr/local/rust"
    (rust / "bin").mkdir(parents=True)
    for program in ("cargo", "rustc"):
        shutil.copy(sysroot / "bin" / program, rust / "bin" / program)
    run("cp", "--archive", sysroot / "lib", rust / "lib")

    run("cargo", "fetch", "--locked", cwd=ROOT)
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    registry = tree / "usr/local/cargo/registry"
    registry.mkdir(parents=True)
    for folder in ("index", "cache"):
        run("cp", "--archive", home / "registry" / folder, registry / folder)


def run(*command, **options):
    """Runs a command; what it printed is shown only when it failed."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    if done.returncode != 0:
        print(done.stdout[-4000:])
        raise RuntimeError(f"{command[0]} ended with {done.returncode}")


def output(*command):
    """What a command prints."""
    # In the repository's folder: which toolchain is used may depend on it.
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()
