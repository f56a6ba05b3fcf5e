"""A headless Chromium, driven by the DevTools protocol: pages, keys, and pictures of them."""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from websockets.sync.client import connect

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin")]
from harness import stop

PATIENCE_SECONDS = 15

# A name of another site that leads to this machine: what DNS rebinding brings about.
FOREIGN_NAME = "evil.example"
# Of keys: the code, and what is typed.
KEYS = {
    "Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), " ": (32, " "),
    "ArrowDown": (40, ""), "ArrowRight": (39, ""),
}  # fmt: skip


class PageError(Exception):
    """What a script on the page has thrown."""


class Page:
    """A tab."""

    def __init__(self, url, tally):
        self.socket = connect(url, max_size=64 << 20, ping_interval=None)
        self.tally = tally
        self.numbers = itertools.count(1)
        # Texts of exceptions and of errors on the console.
        self.errors = []
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        """The answer to a command; events that come before it are noted."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE_SECONDS))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        """Keeps what a page should not have."""
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                text = details.get("exception", {}).get("description", details["text"])
                self.errors.append(text)
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                entry = parameters["entry"]
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")

    def run(self, expression):
        """The value of an expression on the page; of a promise, what it comes to."""
        result = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise PageError(result["exceptionDetails"]["exception"].get("description"))
        return result["result"].get("value")

    def open(self, url):
        """Goes there."""
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def until(self, expression, seconds=PATIENCE_SECONDS):
        """The value of an expression once it is true, or at last."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(PageError):
                if (value := self.run(expression)) or time.monotonic() > deadline:
                    return value
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)

    def key(self, name, shift=False):
        """Presses a key."""
        code, text = KEYS[name]
        common = {"key": name, "code": "Space" if name == " " else name,
                  "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}  # fmt: skip
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        """Types into what has the focus."""
        self.send("Input.insertText", text=text)

    def look(self, width, theme, height=900):
        """From now on the page is so wide, in a dark theme or a light one."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def picture(self, file):
        """Of the whole page, as PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        Path(file).write_bytes(base64.b64decode(shot["data"]))


class Browser:
    """A running Chromium."""

    def __init__(self, port, tally):
        self.port, self.tally = port, tally

    @contextlib.contextmanager
    def page(self):
        """A tab, until the block ends."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            target = json.load(answer)
        page = Page(target["webSocketDebuggerUrl"], self.tally)
        try:
            yield page
        finally:
            with contextlib.suppress(Exception):
                page.send("Page.close")
            page.socket.close()


@contextlib.contextmanager
def chromium(tally):
    """Runs Chromium with a profile of its own, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="tollgate-", ignore_cleanup_errors=True) as folder:
        command = [
            shutil.which("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            f"--user-data-dir={folder}", "--remote-debugging-port=0",
            f"--host-resolver-rules=MAP {FOREIGN_NAME} 127.0.0.1", "about:blank",
        ]  # fmt: skip
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                # It writes its port there.
                place = Path(folder) / "DevToolsActivePort"
                deadline = time.monotonic() + PATIENCE_SECONDS
                while not (place.exists() and place.read_text().count("\n")):
                    if time.monotonic() > deadline or process.poll() is not None:
                        log.seek(0)
                        raise RuntimeError(f"no Chromium: {log.read().decode()[-2000:]}")
                    time.sleep(0.05)
                yield Browser(int(place.read_text().split("\n")[0]), tally)
            finally:
                stop(process)
