"""Whether the JSON Schemas take every good file of ours, refuse bad ones, and are where editors look."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
MODELINE = re.compile(r"# yaml-language-server: \$schema=(\S+)")

# Mistakes that a schema can see, of those in tests/policies/bad.
SEEN = """
    bad-auth bad-key bad-status body-of-decimal-units cors-for-nobody cors-that-is-a-word
    cost-that-is-no-number count-when-nothing ejection-after-no-failure ejection-that-is-a-word
    five-windows header-that-is-a-list health-check-that-nothing-passes health-check-without-a-path
    key-of-too-many-parts missing-field misspelt-algorithm misspelt-field
    misspelt-field-of-candidate no-connections no-routes no-server not-a-number
    override-with-empty-reason queue-too-long retries-too-many server-of-another-scheme
    server-of-weight-zero server-without-url
    override-by-a-misspelt-field override-of-a-list-of-claims override-without-reason
    route-from-no-network route-that-allows-nobody tier-table-with-a-misspelt-field
    tier-that-is-a-list percent-above-all prefix-out-of-range rate-without-window
    refill-without-interval reserve-without-header unknown-align unknown-encoded-slash unknown-field
    unknown-headers unknown-protocol unknown-mode unknown-on-missing unknown-on-store-error unknown-version wrong-type
""".split()

BAD_SETTINGS = {
    "a field that there is not": "size: 1",
    "text for a number": "workers: many",
    "a number out of range": "workers: 0",
    "text for true or false": "send_forwarded: maybe",
    "a word that there is not": "access_log: { format: jsn }",
    "a mapping for a list": "trusted_proxies: {}",
    "a URL of another kind": "store: { redis: { url: http://localhost } }",
    "half a shard": "store: { redis: { shards: [{ primary: redis://localhost }] } }",
    "a field without a value": "drain:",
}
GOOD_SETTINGS = {
    "environment variables": 'workers: ${N}\naccess_log: { format: "${FORMAT:-json}" }\ndrain: ${DRAIN}',
    "a grouped number": "store: { memory: { max_keys: 2_000_000 } }",
}
SETTINGS = "version: 1\nlisteners: [{ address: 127.0.0.1:0 }]\n"


class Loader(yaml.SafeLoader):
    """Reads scalars as YAML 1.2 does, and editors: no dates, and no `off` that is false."""

    yaml_implicit_resolvers = {
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))


class Tally:
    """Counts checks, and prints those that fail."""

    def __init__(self):
        self.passed = self.failed = 0

    def expect(self, what, expected, got):
        if expected == got:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {what}: expected {expected!r}, got {got!r}")


def mistakes(schema, text):
    """What the schema finds wrong in a text, a line each."""
    errors = jsonschema.Draft202012Validator(schema).iter_errors(yaml.load(text, Loader))
    return [f"{error.json_path}: {error.message}" for error in errors]


def check_shipped(tally, schemas):
    """Every file under config/ has a modeline with its schema, and is good by it."""
    # Those for Envoy are none of ours.
    ours = (file for file in CONFIG.rglob("*.yaml") if file.parent.name != "envoy")
    for file in sorted(ours):
        name = file.relative_to(ROOT)
        kind = "policy" if "policies" in file.parts else "settings"
        text = file.read_text()
        found = MODELINE.match(text)
        place = (file.parent / found[1]).resolve() if found else None
        tally.expect(f"schema of {name}", CONFIG / "schema" / f"{kind}.json", place)
        tally.expect(f"mistakes in {name}", [], mistakes(schemas[kind], text))


def check_policies(tally, schema):
    """Good policies pass, and bad ones fail where a schema can detect it."""
    for file in sorted((ROOT / "tests/policies/good").glob("*.yaml")):
        tally.expect(f"mistakes in {file.name}", [], mistakes(schema, file.read_text()))
    for name in SEEN:
        text = (ROOT / f"tests/policies/bad/{name}.yaml").read_text()
        tally.expect(f"{name} is refused", True, bool(mistakes(schema, text)))


def check_settings(tally, schema):
    """Settings with one line more, good or bad."""
    for what, line in GOOD_SETTINGS.items():
        tally.expect(what, [], mistakes(schema, SETTINGS + line))
    for what, line in BAD_SETTINGS.items():
        tally.expect(f"{what} is refused", True, bool(mistakes(schema, SETTINGS + line)))


def check_examples(tally, whole, schema, place):
    """Each example is good by the part of the schema that it stands in."""
    if isinstance(schema, dict):
        part = {**schema, "$defs": whole["$defs"]}
        examples = schema.get("examples", [])
        for example in examples if isinstance(examples, list) else []:
            errors = jsonschema.Draft202012Validator(part).iter_errors(example)
            tally.expect(f"example of {place}", [], [error.message for error in errors])
    inner = schema.items() if isinstance(schema, dict) else enumerate(schema)
    for name, value in inner:
        if isinstance(value, (dict, list)):
            check_examples(tally, whole, value, f"{place}/{name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", required=True, help="the binary under test")
    binary = parser.parse_args().tollgate
    tally = Tally()
    schemas = {}
    for kind in ("policy", "settings"):
        printed = subprocess.run([binary, "schema", kind], capture_output=True, check=True).stdout
        schemas[kind] = json.loads(printed)
        kept = json.loads((CONFIG / "schema" / f"{kind}.json").read_text())
        tally.expect(f"{kind}.json is current", True, kept == schemas[kind])
        jsonschema.Draft202012Validator.check_schema(schemas[kind])
    for kind, schema in schemas.items():
        check_examples(tally, schema, schema, kind)
    check_shipped(tally, schemas)
    check_policies(tally, schemas["policy"])
    check_settings(tally, schemas["settings"])
    print(f"{tally.passed} passed, {tally.failed} failed")
    return tally.failed > 0


if __name__ == "__main__":
    sys.exit(main())
