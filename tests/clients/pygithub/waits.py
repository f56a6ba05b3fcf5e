"""PyGithub as it comes: its `GithubRetry` sees a denial, waits as it says, and resumes."""

import concurrent.futures
import io
import json
import math
import sys
import time

import github
import urllib3

from api import HELD, PATIENCE_SECONDS, POLICY, Tally, binary_under_test, session

WINDOW_SECONDS = 3
CORE = 3
QUOTA = 5000
BURST = 2
SLOT_RETRY_SECONDS = 2
# What PyGithub waits after a secondary denial that does not say how long.
SECONDARY_WAIT_SECONDS = 60

LIMITS = f"""\
limits:
  core: {{ per: caller, rate: {CORE}/{WINDOW_SECONDS}s }}
  quota: {{ per: caller, rate: {QUOTA}/hour }}
  burst: {{ per: caller, rate: {BURST}/{WINDOW_SECONDS}s }}
  slots: {{ per: caller, concurrent: 1, retry_after: {SLOT_RETRY_SECONDS}s }}
routes:
  - {{ match: {{ path: /repos/o/core }}, auth: required, limits: [core] }}
  - {{ match: {{ path: /repos/o/burst }}, auth: required, limits: [quota, burst] }}
  - {{ match: {{ path: /repos/o/slots }}, auth: required, limits: [quota, slots] }}
  - {{ match: {{ path: {HELD} }}, auth: required, limits: [quota, slots] }}
"""


def watched_retry(on_wait):
    """PyGithub's own retry and defaults; `on_wait` gets each response that it waits for."""

    class WatchedRetry(github.GithubRetry):
        """Calls `on_wait` before it waits."""

        def sleep(self, response=None):
            on_wait(response)
            super().sleep(response)

    return WatchedRetry()


def use_up(on, client, name, count):
    """Calls as often as a limit allows, and gives between which times its window opened."""
    sent = time.time()
    client.get_repo(f"o/{name}").full_name
    answered = time.time()
    for _ in range(count - 1):
        client.get_repo(f"o/{name}").full_name
    on.expect(f"{name}: requests that reached upstream", count, on.requests(f"/repos/o/{name}"))
    return sent, answered


def check_denial(on, caller, name, is_primary):
    """A client that does not wait gets an error, and `GithubRetry` would know its kind."""
    before = on.requests(f"/repos/o/{name}")
    try:
        on.client(caller).get_repo(f"o/{name}").full_name
        on.expect(f"{name}: a denial", True, False)
        return
    except github.GithubException as denied:
        error = denied
    kind = github.RateLimitExceededException if error.status == 403 else github.GithubException
    on.expect(f"{name}: type of the error", kind.__name__, type(error).__name__)
    on.expect(f"{name}: status of the denial", on.denied_status, error.status)
    on.expect(f"{name}: denied requests upstream", before, on.requests(f"/repos/o/{name}"))
    if error.status == 403:
        check_words(on, name, error, is_primary)


def check_words(on, name, error, is_primary):
    """Without `retry-after`, which it prefers, `GithubRetry` knows the kind by the message."""
    kept = ("content-type", "x-ratelimit-reset")
    headers = {field: value for field, value in error.headers.items() if field in kept}
    body = io.BytesIO(json.dumps(error.data).encode())
    response = urllib3.HTTPResponse(body, headers, error.status, preload_content=False)
    retry = github.GithubRetry().increment("GET", f"/repos/o/{name}", response)
    wait = retry.get_backoff_time()
    if is_primary:
        # One second more than until the reset, which is at most a second after the window's end.
        known = 0 < wait <= WINDOW_SECONDS + 2
    else:
        known = wait == SECONDARY_WAIT_SECONDS
    on.expect(f"{name}: kind known by its words (it would wait {wait}s)", True, known)


def check_wait(on, caller, name, on_wait=lambda: None):
    """A client that waits is denied once, waits, and then has what it asked for.

    Gives its `rate_limiting`, how many seconds the response said to wait, and between which times.
    """
    denials = []

    def note(response):
        denials.append((time.time(), response.status, int(response.headers["retry-after"])))
        on_wait()

    before = on.requests(f"/repos/o/{name}")
    client = on.client(caller, watched_retry(note))
    asked = time.time()
    full_name = client.get_repo(f"o/{name}").full_name
    resumed = time.time()
    on.expect(f"{name}: what it got in the end", f"o/{name}", full_name)
    on.expect(f"{name}: requests upstream", before + 1, on.requests(f"/repos/o/{name}"))
    statuses = [status for _, status, _ in denials]
    on.expect(f"{name}: denials until it resumed", [on.denied_status], statuses)
    denied, _, seconds = denials[0]
    waited = resumed - denied
    on.expect(f"{name}: waited {seconds}s ({waited:.3f}s)", True, waited >= seconds)
    return client.rate_limiting, seconds, (asked, denied)


def check_window(on, name, opened, seconds, asked):
    """The response said to wait until the end of the window, in whole seconds."""
    least = math.ceil(opened[0] + WINDOW_SECONDS - asked[1])
    most = math.ceil(opened[1] + WINDOW_SECONDS - asked[0])
    on.expect(f"{name}: retry-after {seconds} of {least} to {most}", True, least <= seconds <= most)


def check_core(on):
    """The first limit of a route: the client waits until its window ends."""
    client = on.client("ada")
    opened = use_up(on, client, "core", CORE)
    on.expect("core: rate_limiting when used up", (0, CORE), client.rate_limiting)
    check_denial(on, "ada", "core", is_primary=True)
    rate_limiting, seconds, asked = check_wait(on, "ada", "core")
    check_window(on, "core", opened, seconds, asked)
    on.expect("core: rate_limiting after it resumed", (CORE - 1, CORE), rate_limiting)


def check_burst(on):
    """A second limit, with a window of its own: the client waits until that ends."""
    opened = use_up(on, on.client("bob"), "burst", BURST)
    check_denial(on, "bob", "burst", is_primary=False)
    rate_limiting, seconds, asked = check_wait(on, "bob", "burst")
    check_window(on, "burst", opened, seconds, asked)
    on.expect("burst: rate_limiting after it resumed", (QUOTA - BURST - 1, QUOTA), rate_limiting)


def check_slots(on):
    """Too many requests at once: the client waits as long as the policy says."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        first = pool.submit(lambda: on.client("cyd").get_repo("o/held").full_name)
        try:
            on.expect("slots: the first is there", True, on.upstream.arrival.wait(PATIENCE_SECONDS))
            check_denial(on, "cyd", "slots", is_primary=False)
            rate_limiting, seconds, _ = check_wait(on, "cyd", "slots", on.upstream.release.set)
        finally:
            on.upstream.release.set()
        on.expect("slots: what the first got", "o/held", first.result())
    on.expect("slots: retry-after", SLOT_RETRY_SECONDS, seconds)
    on.expect("slots: rate_limiting after it resumed", (QUOTA - 2, QUOTA), rate_limiting)


def run(binary, denied_status, tally):
    """All checks at once, each with a caller of its own."""
    print(f"denied_status {denied_status}")
    with session(binary, POLICY + LIMITS, denied_status, tally) as on:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            checks = [pool.submit(check, on) for check in (check_core, check_burst, check_slots)]
        for check in checks:
            check.result()


def main():
    """GitHub's own status for a denial first, then the one of RFC 6585."""
    binary = binary_under_test(__doc__, 120)

    tally = Tally()
    run(binary, 403, tally)
    run(binary, 429, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
