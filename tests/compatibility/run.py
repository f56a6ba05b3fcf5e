"""Whether what earlier versions read and wrote is still taken: settings, policies, counters, metrics.

docs/compatibility.md says what is promised. For each version that has a folder here: its files pass
`tollgate check`; no field and no keyword of its schemas is gone, and none is newly required; its counters
go on in memory, on disk and in Redis, so that a caller that had used up a limit stays denied and one that
had not gets the rest and no more; and its metrics are there, with their kinds and labels. What a folder
has was written by write.py.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from story import (
    BY_KEY,
    BY_REQUEST,
    HERE,
    LIMIT,
    LOADED,
    STORES,
    USED,
    Tally,
    clock,
    merged,
    opened,
)
from store import binary_under_test

SECONDS = 240
# Each limit of a fixture that nothing was charged to by this key.
UNKNOWN = "nobody"
# What the files of `check` refer to.
VARIABLES = {
    name: "a secret of this test, which is long enough to sign with"
    for name in ("DECISIONS_PASSWORD", "REDIS_PASSWORD", "KEY_SECRET", "OTLP_TOKEN", "JWT_SECRET")
}


def check_files(binary, version, tally):
    """The settings and the policies pass `tollgate check`."""
    with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        folder = Path(folder) / "files"
        shutil.copytree(version / "files", folder)
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"]
        make += ["-keyout", folder / "site.key", "-out", folder / "site.pem"]
        make += ["-subj", "/CN=example.com", "-addext", "subjectAltName=DNS:example.com"]
        # The certificate begins before the time at which the files are checked.
        environment = os.environ | VARIABLES | clock(LOADED)
        subprocess.run(make, check=True, capture_output=True, env=os.environ | clock(LOADED))
        for name in ("read-token", "write-token"):
            (folder / name).write_text(f"the {name} of this test".replace(" ", "-"))
            (folder / name).chmod(0o600)
        (folder / "site.key").chmod(0o600)
        for file in [folder / "settings.yaml", *sorted((folder / "policies").glob("*.yaml"))]:
            done = subprocess.run(
                [binary, "check", file], env=environment, capture_output=True, text=True, check=False
            )
            name = f"{version.name}: {file.relative_to(folder)} passes check"
            said = (done.stdout + done.stderr).splitlines()[-20:]
            tally.record(name, [] if done.returncode == 0 else [f"exit code {done.returncode}", *said])


class Shape:
    """What a schema takes in one place, all alternatives together."""

    def __init__(self, root, node):
        self.root, self.nodes = root, []
        self.add(node)
        self.keywords = {
            json.dumps(word)
            for node in self.nodes
            for word in [*node.get("enum", []), *([node["const"]] if "const" in node else [])]
        }
        self.kinds = set()
        for node in self.nodes:
            kinds = node.get("type", [])
            self.kinds.update([kinds] if isinstance(kinds, str) else kinds)
        self.names = {name for node in self.nodes for name in node.get("properties", {})}

    def add(self, node):
        """A node, what it refers to, and its alternatives."""
        if not isinstance(node, dict) or any(node is known for known in self.nodes):
            return
        self.nodes.append(node)
        if "$ref" in node:
            self.add(self.root["$defs"][node["$ref"].removeprefix("#/$defs/")])
        for alternatives in ("anyOf", "oneOf", "allOf"):
            for alternative in node.get(alternatives, ()):
                self.add(alternative)

    def parts(self):
        """What is below, by its step: the nodes that describe it."""
        parts = {}
        for node in self.nodes:
            for name, value in node.get("properties", {}).items():
                parts.setdefault(f".{name}", []).append(value)
            for step, name in (("[]", "items"), (".<name>", "additionalProperties")):
                if isinstance(node.get(name), dict):
                    parts.setdefault(step, []).append(node[name])
        return parts

    def required(self):
        """Fields that an object must have, whichever alternative it is."""
        objects = [set(node.get("required", ())) for node in self.nodes if "properties" in node]
        return set.intersection(*objects) if objects else set()

    def below(self, step):
        """The shape of a part."""
        return Shape(self.root, {"anyOf": self.parts()[step]})


def lost(old, new, path, seen):
    """What an earlier schema takes below a path and the present one does not."""
    # By the name of its definition, or a schema that contains itself would never end.
    mark = json.dumps(old.nodes, sort_keys=True)
    if mark in seen:
        return
    seen.add(mark)
    for name in sorted(old.names - new.names):
        yield f"{path}.{name} is gone"
    for name in sorted((new.required() & old.names) - old.required()):
        yield f"{path}.{name} is newly required"
    for name in sorted(new.required() - old.names):
        yield f"{path}.{name} is new, and required"
    for word in sorted(old.keywords - new.keywords):
        if not ("string" in new.kinds and not new.keywords):
            yield f"{path} does not take {word}"
    for kind in sorted(old.kinds - new.kinds):
        if not (kind == "integer" and "number" in new.kinds):
            yield f"{path} takes no {kind}"
    there = new.parts()
    for step in old.parts():
        if step in there:
            yield from lost(old.below(step), new.below(step), path + step, seen)
        elif step in ("[]", ".<name>"):
            yield f"{path}{step} is gone"


def check_schemas(binary, version, tally):
    """No field and no keyword of the earlier schemas is gone."""
    for name in ("settings", "policy"):
        command = [binary, "schema", name]
        present = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        earlier = json.loads((version / "schema" / f"{name}.json").read_text())
        seen = set()
        problems = list(lost(Shape(earlier, earlier), Shape(present, present), name, seen))
        tally.record(f"{version.name}: schema of {name}", problems)
        few = [] if len(seen) > 50 else [f"{len(seen)} places"]
        tally.record(f"{version.name}: all of the schema of {name} was compared", few)


def check_counters(proxy, store, version, tally):
    """The counters go on where they were."""
    written = json.loads((version / "stores" / "standings.json").read_text())[store]
    for limit in BY_KEY:
        label = f"{version.name}: {store}: {limit}"
        for key in USED:
            found, expected = proxy.standing(limit, key), written[limit][key]
            right = same(found, expected)
            tally.record(f"{label}: {key} stands as it did", [] if right else [found, expected])
        unused = [used for used, _ in proxy.standing(limit, UNKNOWN)]
        tally.record(f"{label}: others have used nothing", [used for used in unused if used])
        statuses = [
            proxy.charge(limit, "all", 1)[0],
            proxy.charge(limit, "some", LIMIT - USED["some"])[0],
            proxy.charge(limit, "some", 1)[0],
        ]
        right = statuses == [429, 200, 429]
        tally.record(f"{label}: what was left may be used, and no more", [] if right else [statuses])
    for name, (path, claims) in BY_REQUEST.items():
        used = USED["some"]
        seen = [proxy.request(path, claims) for _ in range(LIMIT - used + 1)]
        expected = [(200, count) for count in range(used + 1, LIMIT + 1)] + [(429, LIMIT)]
        label = f"{version.name}: {store}: requests by {name}"
        tally.record(label, [] if seen == expected else [seen, expected])


def same(found, expected):
    """Whether standings are those that were written. Where units come back one by one, the instant of
    the reset is rounded."""
    return len(found) == len(expected) and all(
        used == before and abs(reset - was) <= 1
        for (used, reset), (before, was) in zip(found, expected)
    )


def check_metrics(pages, version, tally):
    """Each earlier metric is there, with its kind and its labels."""
    present = merged(pages)
    for line in (version / "metrics.txt").read_text().splitlines():
        name, kind, *labels = line.split()
        found, has = present.get(name, ("none", set()))
        missing = sorted(set(labels) - has)
        right = found == kind and not missing
        tally.record(f"{version.name}: metric {name}", [] if right else [f"{found}, without {missing}"])


def check_version(binary, version, tally):
    """All that a version has written."""
    check_files(binary, version, tally)
    check_schemas(binary, version, tally)
    pages = []
    for store in STORES:
        with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
            folder = Path(folder) / "stores"
            shutil.copytree(version / "stores", folder)
            # Git keeps no modes but for programs; these hold a key secret.
            for file in [folder / "counters", *folder.rglob("*")]:
                file.chmod(0o700 if file.is_dir() else 0o600)
            lines = (folder / "redis.txt").read_text().splitlines()
            with opened(binary, folder, store, LOADED, lines) as (proxy, _):
                check_counters(proxy, store, version, tally)
                pages.append(proxy.metrics())
    check_metrics(pages, version, tally)


def main():
    binary = str(Path(binary_under_test(__doc__, SECONDS)).resolve())
    tally = Tally()
    versions = [folder for folder in sorted(HERE.iterdir()) if (folder / "stores").is_dir()]
    tally.record("there are fixtures", [] if versions else [HERE])
    for version in versions:
        check_version(binary, version, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
