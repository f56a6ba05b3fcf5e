"""Calls to a third party that allows an account a peak rate and a quota for the day.

Both limits are charged together or not at all. A call that the third party has not counted, since it
never arrived, is given back.
"""

import json
import os
import urllib.error
import urllib.request

TOLLGATE = os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8090")
PARTNER = os.environ.get("PARTNER_URL", "http://127.0.0.1:9000")


class QuotaExceeded(Exception):
    """The account may not call now; `retry_after` in seconds, or None if waiting is no use."""

    def __init__(self, limit, retry_after):
        super().__init__(f"{limit} is used up")
        self.limit, self.retry_after = limit, retry_after


def ask(path, body):
    """Tollgate's answer, of a denial too."""
    # A form of a web page cannot say that it sends JSON, so Tollgate asks for that.
    json_type = {"Content-Type": "application/json"}
    request = urllib.request.Request(TOLLGATE + path, json.dumps(body).encode(), json_type)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise
        return json.load(error)


def call(account, path):
    """Calls the third party for an account, waiting for its peak rate for a few seconds."""
    charges = [{"limit": name, "key": account} for name in ("partner", "partner-daily")]
    answer = ask("/v1/charge", {"charges": charges, "wait": "5s"})
    if not answer["allowed"]:
        raise QuotaExceeded(answer["denied_by"], answer["retry_after"])
    try:
        with urllib.request.urlopen(PARTNER + path, timeout=30) as response:
            return response.read()
    except urllib.error.HTTPError:
        # It has answered, so it has counted the call.
        raise
    except OSError:
        ask("/v1/settle", {"receipt": answer["receipt"], "give_back": True})
        raise


if __name__ == "__main__":
    for number in range(3):
        print(len(call("acct-7", f"/?n={number}")), "bytes")
