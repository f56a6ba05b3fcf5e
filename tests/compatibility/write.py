"""Writes what a version leaves behind, for the tests of later ones.

    tests/compatibility/write.py BINARY VERSION

It is run once for a version, by the binary of that version; what is in git stays as it is. The folder of
the version has the policy, the settings and the other files already.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from story import (
    BY_KEY,
    BY_REQUEST,
    HERE,
    STORES,
    USED,
    WRITTEN,
    give_up_after,
    merged,
    opened,
)


def fill(proxy, compact):
    """Charges everything, and gives how it stands then. `compact` is called in between, so that counters
    are in all kinds of files."""
    for key, used in USED.items():
        for limit in BY_KEY:
            status, answer = proxy.charge(limit, key, used)
            if status != 200:
                raise RuntimeError(f"{limit} {key}: {status} {answer}")
        compact()
    requests = {}
    for name, (path, claims) in BY_REQUEST.items():
        for _ in range(USED["some"]):
            requests[name] = proxy.request(path, claims)
        if requests[name] != (200, USED["some"]):
            raise RuntimeError(f"{name}: {requests[name]}")
    return {limit: {key: proxy.standing(limit, key) for key in USED} for limit in BY_KEY}


def compact(binary, proxy):
    """Merges the tables on disk."""
    command = [binary, "store", "compact", "--admin", f"127.0.0.1:{proxy.admin}"]
    subprocess.run(command, check=True, timeout=60)


def main():
    give_up_after(300)
    binary, version = str(Path(sys.argv[1]).resolve()), HERE / sys.argv[2]
    stores = version / "stores"
    standings, pages = {}, []
    for store in STORES:
        with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
            folder = Path(folder)
            for file in stores.glob("*.yaml"):
                shutil.copy(file, folder)
            with opened(binary, folder, store, WRITTEN) as (proxy, redis):
                standings[store] = fill(proxy, lambda: store == "disk" and compact(binary, proxy))
                pages.append(proxy.metrics())
                if redis:
                    lines = [json.dumps(command) for command in redis.commands()]
                    (stores / "redis.txt").write_text("".join(f"{line}\n" for line in lines))
            if store == "memory":
                shutil.copy(folder / "counters.snapshot", stores)
            if store == "disk":
                shutil.rmtree(stores / "counters", ignore_errors=True)
                # The lock names the machine, and ends with the process.
                shutil.copytree(folder / "counters", stores / "counters", ignore=lambda *_: ["lock"])
    (stores / "standings.json").write_text(json.dumps(standings) + "\n")
    lines = [" ".join([name, kind, *sorted(labels)]) for name, (kind, labels) in merged(pages).items()]
    (version / "metrics.txt").write_text("".join(f"{line}\n" for line in sorted(lines)))


if __name__ == "__main__":
    main()
