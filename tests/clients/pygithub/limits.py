"""What PyGithub reads while a limit runs out: counts, the denial, and its own standing."""

import sys
import time

import github

from api import DOCUMENTATION, POLICY, Tally, binary_under_test, session

LIMIT = 5
WINDOW_SECONDS = 3600

LIMITS = f"""\
limits:
  core: {{ per: caller, rate: {LIMIT}/hour }}
routes:
  - {{ match: {{ path: "/**" }}, auth: required, limits: [core] }}
"""


def count_down(on, client):
    """Uses up the limit, and gives the reset time that the client read."""
    started = int(time.time())
    resets = set()
    calls = [lambda: client.get_user().login, lambda: client.get_repo("o/r").full_name]
    for used in range(1, LIMIT + 1):
        calls[used % 2]()
        on.expect(f"rate_limiting after {used}", (LIMIT - used, LIMIT), client.rate_limiting)
        resets.add(client.rate_limiting_resettime)
    on.expect("number of reset times", 1, len(resets))
    reset = resets.pop()
    # The window opened after `started` and before now; the reset is rounded up.
    window = range(started + WINDOW_SECONDS, int(time.time()) + WINDOW_SECONDS + 2)
    on.expect("reset is one window after the first call", True, reset in window)
    return reset


def check_standing(on, client, used):
    """The caller's own standing, asked twice: it costs nothing. Gives its reset time."""
    for time_asked in ("once", "twice"):
        overview = client.get_rate_limit()
        rate, core = overview.rate, overview.resources.core
        on.expect(
            f"limit, used and remaining, asked {time_asked}",
            (LIMIT, used, LIMIT - used),
            (rate.limit, rate.used, rate.remaining),
        )
        on.expect(f"core is the rate, asked {time_asked}", rate.raw_data, core.raw_data)
        on.expect("rate_limiting", (LIMIT - used, LIMIT), client.rate_limiting)
    on.expect("standings that reached upstream", 0, on.requests("/rate_limit"))
    return int(rate.reset.timestamp())


def denial(on, client, kind):
    """Calls once too often, and gives the error of exactly the `kind` that is wanted."""
    before = len(on.upstream.seen)
    try:
        login = client.get_user().login
    except github.GithubException as error:
        on.expect("type of the error", kind.__name__, type(error).__name__)
        on.expect("requests that reached upstream", 0, len(on.upstream.seen) - before)
        return error
    on.expect("a denial", kind.__name__, login)
    return None


def check_denial(on, client, error, reset):
    """The denial gives the client what it needs, in the words that it looks for."""
    headers = {name.lower(): value for name, value in error.headers.items()}
    message = str(error.data.get("message"))
    on.expect("status of the denial", on.denied_status, error.status)
    on.expect("start of the message", "API rate limit exceeded", message[:23])
    on.expect("documentation_url", DOCUMENTATION, error.data.get("documentation_url"))
    on.expect("x-ratelimit-remaining", "0", headers.get("x-ratelimit-remaining"))
    on.expect("x-ratelimit-used", str(LIMIT), headers.get("x-ratelimit-used"))
    on.expect("x-ratelimit-reset", str(reset), headers.get("x-ratelimit-reset"))
    on.expect("x-ratelimit-resource", "core", headers.get("x-ratelimit-resource"))
    retry_after = headers.get("retry-after", "none")
    in_window = retry_after.isdecimal() and 1 <= int(retry_after) <= WINDOW_SECONDS
    on.expect(f"retry-after ({retry_after}) is within the window", True, in_window)
    on.expect("rate_limiting when denied", (0, LIMIT), client.rate_limiting)


def check_strangers(on):
    """Another caller has counts of his own; one without a token has no business here."""
    other = on.client("other")
    other.get_user().login
    on.expect("rate_limiting of another caller", (LIMIT - 1, LIMIT), other.rate_limiting)
    try:
        on.client().get_user().login
        on.expect("status without a token", 401, 200)
    except github.GithubException as error:
        on.expect("status without a token", 401, error.status)


def run(binary, denied_status, kind, tally):
    """One pass with one `denied_status`."""
    print(f"denied_status {denied_status}")
    with session(binary, POLICY + LIMITS, denied_status, tally) as on:
        client = on.client("ada")
        check_standing(on, client, 0)
        reset = count_down(on, client)
        error = denial(on, client, kind)
        if error is not None:
            check_denial(on, client, error, reset)
        on.expect("reset in the standing", reset, check_standing(on, client, LIMIT))
        check_strangers(on)
        names = set().union(*(headers for _, headers in on.upstream.seen))
        leaked = sorted(name for name in names if "ratelimit" in name)
        on.expect("limit headers that reached upstream", [], leaked)


def main():
    """GitHub's own status for a denial first, then the one of RFC 6585."""
    binary = binary_under_test(__doc__, 120)

    tally = Tally()
    run(binary, 403, github.RateLimitExceededException, tally)
    run(binary, 429, github.GithubException, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
