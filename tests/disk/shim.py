"""Faults of the disk for a process under test: builds `faults.c`, and gives it its rules."""

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SIZE = 4096
HEAD = struct.Struct("<QQ")


class Faults:
    """The rules for the processes that are started with `environment`. See `faults.c`."""

    def __init__(self, library, folder, watched):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "faults"
        file.write_bytes(bytes(SIZE))
        with file.open("r+b") as opened:
            self.control = mmap.mmap(opened.fileno(), SIZE)
        self.version = 0
        self.environment = {
            "LD_PRELOAD": str(library),
            "TOLLGATE_FAULT_DIR": str(Path(watched).resolve()),
            "TOLLGATE_FAULT_FILE": str(file),
        }

    def begin(self, *rules):
        """These rules hold from now on, and no others."""
        text = "\n".join(rules).encode() + b"\0"
        self.control[HEAD.size : HEAD.size + len(text)] = text
        self.version += 1
        # After the text: the process looks at this first.
        self.control[: HEAD.size] = HEAD.pack(self.version, 0)

    def end(self):
        """No rules any more. What was held back is written."""
        self.control[:8] = bytes(8)

    def count(self):
        """Faults since the rules began."""
        return HEAD.unpack(self.control[: HEAD.size])[1]


def build(folder):
    """Builds the library in a folder; none: there is no compiler."""
    if shutil.which("gcc") is None:
        return None
    library = Path(folder) / "faults.so"
    source = Path(__file__).with_name("faults.c")
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command = ["gcc", *options, "-o", library, source, "-ldl", "-lpthread"]
    subprocess.run([*map(os.fspath, command)], check=True, timeout=60)
    return library
