"""A batch from cron that exports rows for a customer, page by page, and asks over HTTP.

    17 3 * * *  python3 export.py customer-7 rows.txt

Two batches of a customer run at once at most, and their rows keep to a rate. Only the standard
library is needed. A batch that was stopped goes on where it was.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

TOLLGATE = os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8090")
PAGE = 50
PAGES = int(os.environ.get("PAGES", "10"))


def ask(path, body):
    """Tollgate's answer; none: it has denied."""
    # A form of a web page cannot say that it sends JSON, so Tollgate asks for that.
    json_type = {"Content-Type": "application/json"}
    request = urllib.request.Request(TOLLGATE + path, json.dumps(body).encode(), json_type)
    try:
        with urllib.request.urlopen(request, timeout=330) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise
        return None


def main(customer, file):
    """Exports what is left, and says how many pages that were."""
    slot = ask("/v1/charge", {"charges": [{"limit": "exports", "key": customer}]})
    if slot is None:
        return "two batches of this customer are running already"
    try:
        done = len(file.read_text().splitlines()) if file.exists() else 0
        for page in range(done, PAGES):
            rows = [{"limit": "export-rows", "key": customer, "cost": PAGE}]
            if ask("/v1/charge", {"charges": rows, "wait": "5m"}) is None:
                return f"stopped after {page} of {PAGES} pages"
            with file.open("a") as out:
                out.write(f"page {page}\n")
        return None
    finally:
        ask("/v1/release", {"receipt": slot["receipt"]})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
