"""What two scanners find: testssl.sh in the TLS of a listener, slowhttptest in its patience.

They take minutes, so `tests/run.sh` runs them only when TOLLGATE_SCANNERS is set. What they find is
printed; anything serious fails, but for the chain of a certificate that no system trusts.
"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from certificates import Authority
from stage import Plan, Tally, api, binary_under_test, proxy, raise_descriptor_limit

TLS_SECONDS = 240
SLOW_SECONDS = 30
SERIOUS = {"HIGH", "CRITICAL", "FATAL"}
# Findings about a certificate made for this test: no known authority, no revocation service.
OF_THE_TEST = ("cert_chain_of_trust", "cert_trust", "cert_revocation", "cert_notRevoked")
# All ciphers are as strong, and clients know best which they are fast at.
ON_PURPOSE = ("cipher_order",)
CHECKS = ["--protocols", "--standard", "--server-preference", "--server-defaults", "--vulnerable"]
ATTACKS = {
    "slow headers": ["-H"],
    "slow body": ["-B", "-s", "8192"],
    "ranges": ["-R", "-a", "5", "-b", "3000"],
    "slow read": ["-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"],
}


def check_tls(tally, port, folder):
    """All findings of some weight, and how serious they are."""
    found = folder / "found.json"
    command = ["testssl", "--quiet", "--color", "0", "--warnings", "off", "--fast", *CHECKS]
    command += ["--openssl-timeout", "10", "--jsonfile", str(found), f"127.0.0.1:{port}"]
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TLS_SECONDS,
        )
        findings = json.loads(found.read_text())
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        tally.record("testssl.sh", [f"{type(error).__name__}: {error}"])
        return
    serious = []
    for finding in findings:
        # Some that do not apply come without.
        severity = finding.get("severity", "INFO")
        line = f"{severity:8} {finding['id']}: {finding['finding']}"
        if severity not in ("OK", "INFO", "DEBUG"):
            print(f"    {line}")
        if severity in SERIOUS and not finding["id"].startswith(OF_THE_TEST + ON_PURPOSE):
            serious.append(line)
    print(f"testssl.sh: {len(findings)} findings")
    tally.record("testssl.sh looks at enough", [] if len(findings) > 40 else [str(findings)])
    tally.record("testssl.sh finds nothing serious", serious)


def check_patience(tally, name, options, port, folder):
    """Whether others are served while one attack goes on."""
    prefix = folder / name.replace(" ", "-")
    command = ["slowhttptest", *options, "-c", "800", "-r", "400", "-i", "3", "-x", "24"]
    command += ["-l", str(SLOW_SECONDS), "-p", "3", "-g", "-o", str(prefix)]
    command += ["-u", f"http://127.0.0.1:{port}/bytes/1000000"]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=3 * SLOW_SECONDS
    )
    with open(f"{prefix}.csv", newline="", encoding="utf-8") as table:
        rows = [[cell.strip() for cell in row] for row in csv.reader(table)]
    names, *rows = rows
    available = names.index("Service Available")
    away = [row[0] for row in rows if row[available] == "0"]
    print(f"slowhttptest, {name}: {dict(zip(names, rows[-1]))}")
    problems = [f"not served at seconds {', '.join(away)}"] if away else []
    tally.record(f"slowhttptest, {name}: others are served", problems)
    looked = len(rows) > 2
    tally.record(f"slowhttptest, {name}: it attacked", [] if looked else [str(ran.stdout[-500:])])


def main():
    """One proxy, with everything by default."""
    binary = binary_under_test(__doc__, TLS_SECONDS + 4 * len(ATTACKS) * SLOW_SECONDS)
    raise_descriptor_limit()

    tally = Tally()
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    with api(tally) as api_port, tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        plan = Plan(
            [f"http://127.0.0.1:{api_port}"],
            listeners=[{}, {"tls": tls, "hsts": {"max_age": "1y"}}],
            files=Authority().issue("localhost", "127.0.0.1").files("main"),
        )
        with proxy(binary, plan, tally) as on:
            check_tls(tally, on.ports[1], Path(folder))
            for name, options in ATTACKS.items():
                check_patience(tally, name, options, on.port, Path(folder))
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
