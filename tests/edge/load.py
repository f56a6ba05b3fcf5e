"""Load by h2load: over HTTP/2 with and without TLS and over HTTP/1.1, every request is answered,
and afterwards a limit has counted each exactly once."""

import http.client
import re
import subprocess
import sys

from certificates import Authority
from stage import Plan, Tally, api, bearer, binary_under_test, proxy

REQUESTS = 20_000
CONNECTIONS = 10
STREAMS = 10
LIMIT = 1_000_000
STATUSES = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")
SUMMARY = re.compile(r"requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored")
RATE = re.compile(r"([\d.]+) req/s")


def check(tally, name, url, options, token, port):
    """One run, by a user of its own."""
    command = ["h2load", "-n", str(REQUESTS), "-c", str(CONNECTIONS), "-t1", *options]
    command += ["-H", f"authorization: {token}", url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    statuses, summary = STATUSES.search(ran.stdout), SUMMARY.search(ran.stdout)
    problems = []
    if not statuses or statuses.groups() != (str(REQUESTS), "0", "0", "0"):
        problems.append(f"statuses: {statuses and statuses[0]}")
    if not summary or summary.groups() != (str(REQUESTS), str(REQUESTS), "0", "0"):
        problems.append(f"summary: {summary and summary[0]}")
    rate = RATE.search(ran.stdout)
    print(f"{name}: {rate and rate[0]}")
    tally.record(f"{name}: all are answered", problems and problems + [ran.stderr[-500:]])

    # This one counts, too.
    remaining = remaining_after_one_more(port, token)
    expected = LIMIT - REQUESTS - 1
    tally.record(
        f"{name}: each is counted once",
        [] if remaining == expected else [f"{remaining} remaining instead of {expected}"],
    )


def remaining_after_one_more(port, token):
    """What the user's next answer says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/", headers={"Authorization": token})
        return int(connection.getresponse().headers.get("x-ratelimit-remaining", -1))
    finally:
        connection.close()


def main():
    """One proxy; each run has a user and a way of its own."""
    binary = binary_under_test(__doc__, 180)

    tally = Tally()
    pair = Authority().issue("localhost", "127.0.0.1")
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    with api(tally) as api_port:
        plan = Plan(
            [f"http://127.0.0.1:{api_port}"], listeners=[{}, {"tls": tls}], files=pair.files("main")
        )
        with proxy(binary, plan, tally) as on:
            plain, secure = on.ports
            for name, url, options in (
                ("HTTP/2", f"http://127.0.0.1:{plain}/", [f"-m{STREAMS}"]),
                ("HTTP/1.1", f"http://127.0.0.1:{plain}/", ["--h1"]),
                ("HTTP/2 over TLS", f"https://127.0.0.1:{secure}/", [f"-m{STREAMS}"]),
                ("HTTP/1.1 over TLS", f"https://127.0.0.1:{secure}/", ["--h1"]),
            ):
                check(tally, name, url, options, bearer(name), plain)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
