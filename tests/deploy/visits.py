"""Programs that packages.py runs in the network of a machine: an API, and clients of the proxy before it.

    visits.py api PORT                  answers every request, one for /slow after two seconds
    visits.py load PORT SECONDS PAUSE   asks for as long, or until a line comes; prints what it saw as JSON

The load is four clients: two make a connection for each request, one keeps its own, one asks for /slow.
"""

import http.client
import http.server
import json
import select
import sys
import threading
import time

SLOW_SECONDS = 2
PATIENCE_SECONDS = 30


class Api(http.server.BaseHTTPRequestHandler):
    """Knows nothing of limits."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """A short answer."""
        if self.path == "/slow":
            time.sleep(SLOW_SECONDS)
        self.send_response(200)
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_arguments):
        """Nothing."""


class Load:
    """What the clients have seen."""

    def __init__(self, port, pause):
        self.port = port
        self.pause = pause
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.answered = 0
        self.slow = 0
        self.longest = 0.0
        self.problems = []

    def run(self, seconds):
        """All clients, until the time is over or somebody says so."""
        ways = [("/", False), ("/", False), ("/", True), ("/slow", False)]
        clients = [threading.Thread(target=self.client, args=way, daemon=True) for way in ways]
        for client in clients:
            client.start()
        print("begun", flush=True)
        select.select([sys.stdin], [], [], seconds)
        self.ended.set()
        for client in clients:
            client.join()
        seen = {"answered": self.answered, "slow": self.slow, "longest": round(self.longest, 2)}
        print(json.dumps({**seen, "problems": self.problems[:5]}), flush=True)

    def client(self, path, keeps):
        """One client. A kept connection that was closed between two requests is no failure."""
        connection, is_new = None, True
        while not self.ended.is_set():
            if connection is None:
                connection, is_new = self.connect(), True
            began = time.monotonic()
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                response.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                if is_new:
                    self.record(path, began, repr(error))
                connection = None
            except Exception as error:  # Whatever it is, a request has failed.
                self.record(path, began, repr(error))
                connection = None
            else:
                self.record(
                    path, began, None if response.status == 200 else f"status {response.status}"
                )
                is_new = False
                # A response may have said that it is the last.
                if not keeps or connection.sock is None:
                    connection.close()
                    connection = None
            time.sleep(self.pause)

    def connect(self):
        """A connection of its own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    def record(self, path, began, problem):
        """Counts a request."""
        with self.lock:
            if problem:
                self.problems.append(f"{path}: {problem}")
                return
            self.answered += 1
            self.slow += path == "/slow"
            if path != "/slow":
                self.longest = max(self.longest, time.monotonic() - began)


if __name__ == "__main__":
    if sys.argv[1] == "api":
        http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Api).serve_forever()
    else:
        Load(int(sys.argv[2]), float(sys.argv[4])).run(float(sys.argv[3]))
