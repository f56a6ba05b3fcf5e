"""Makes docs/dashboard.png anew: the dashboard of `tollgate demo --traffic` after two minutes.

    target/test-venv/bin/python tests/dashboard/picture.py target/dist/tollgate

Needs what tests/run.sh installs. Look at the picture before it is committed.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin")]
from browser import chromium
from harness import give_up_after, stop

FILE = TESTS.parent / "docs" / "dashboard.png"
TRAFFIC_SECONDS = 120
# Those who read the README load it.
MAX_BYTES = 150_000


def main():
    """Fails if there is no picture, or it is too large."""
    give_up_after(TRAFFIC_SECONDS + 60)
    command = [sys.argv[1], "demo", "--traffic", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        places = (re.search(r"dashboard is at (\S+)", line) for line in demo.stdout)
        url = next(place for place in places if place)[1]
        time.sleep(TRAFFIC_SECONDS)
        with chromium(None) as browser, browser.page() as page:
            page.look(1200, "light")
            page.open(url)
            shown = "document.querySelector('.state.live') && document.querySelector('#now td')"
            if not page.until(f"({shown}) !== null"):
                sys.exit("the dashboard shows nothing")
            page.picture(FILE)
    finally:
        stop(demo)
    if FILE.stat().st_size > MAX_BYTES:
        sys.exit(f"{FILE} has more than {MAX_BYTES} bytes")


if __name__ == "__main__":
    main()
