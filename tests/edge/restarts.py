"""Changes under load, without a failed request: certificates swapped, listeners handed over to
another process, and an end that lets everybody finish."""

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import visitor
from certificates import Authority
from stage import (
    PATIENCE_SECONDS,
    Plan,
    Tally,
    api,
    binary_under_test,
    eventually,
    proxy,
)

SWAPS = 20
HANDOVERS = 5
CLIENTS_EACH = 3
IN_FLIGHT = 20
PAUSE_SECONDS = 0.005
# What a client sees when a connection that it has used before was closed meanwhile: it asks again.
CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Traffic:
    """Clients at work until the block ends; what went wrong for them is in `problems`."""

    def __init__(self, *begins, each=CLIENTS_EACH, pause=PAUSE_SECONDS):
        self.pause = pause
        self.ended = threading.Event()
        self.answered = 0
        self.problems = []
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self.run, args=(begin,), daemon=True)
            for begin in begins
            for _ in range(each)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def run(self, begin):
        """One client: begins anew after a failure."""
        visits = None
        while not self.ended.is_set():
            problem = None
            try:
                visits = visits or begin()
                if (status := next(visits)) != 200:
                    problem = f"status {status}"
            except Exception as error:  # Whatever it is, a request has failed.
                problem, visits = f"{type(error).__name__}: {error}", None
            with self.lock:
                self.answered += problem is None
                if problem:
                    self.problems.append(f"{time.strftime('%X')} {problem}")
            time.sleep(self.pause)

    def record(self, name, tally):
        """A check that nothing went wrong."""
        print(f"{name}: {self.answered} answered, {len(self.problems)} failed")
        tally.record(f"{name}: no request fails", self.problems[:5])
        idle = self.answered < 10 * CLIENTS_EACH
        tally.record(f"{name}: under load", ["hardly any request"] if idle else [])


def returning(connect):
    """One connection for as long as it is open, as every client library does it."""
    connection, is_new = connect(), True
    while True:
        try:
            status = visitor.get(connection)
        except CLOSED:
            if is_new:
                raise
            connection.close()
            connection, is_new = connect(), True
            continue
        # A response may say that it is the last; the next request opens a connection by itself.
        is_new = connection.sock is None
        yield status


def plain_clients(port):
    """Fresh connections, kept ones, and HTTP/2."""

    def connect():
        return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)

    return (
        lambda: visitor.fresh(connect),
        lambda: returning(connect),
        lambda: visitor.http2(port),
    )


def check_swaps(binary, tally, api_port):
    """A new certificate for the same name, again and again."""
    authority = Authority()
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    plan = Plan(
        [f"http://127.0.0.1:{api_port}"],
        listeners=[{"tls": tls}],
        files=authority.issue("localhost").files("main"),
    )
    trust = ssl.create_default_context(cadata=authority.pem.decode())

    def connect():
        return Secure(on.port, trust)

    with proxy(binary, plan, tally) as on:
        clients = (lambda: visitor.fresh(connect), lambda: returning(connect))
        with Traffic(*clients) as traffic:
            for number in range(SWAPS):
                pair = authority.issue("localhost")
                for name, content in pair.files("main").items():
                    replace(on.folder / name, content)
                served = eventually(lambda wanted=pair.serial: serial(on.port, trust) == wanted)
                tally.record(f"swap {number + 1} is served", [] if served else ["never"])
                if not served:
                    break
        traffic.record(f"{SWAPS} certificates", tally)
        # A pair that does not fit leaves in force what was.
        replace(on.folder / "main.key", authority.issue("localhost").key)
        with Traffic(*clients) as traffic:
            time.sleep(1)
        traffic.record("a key of another certificate", tally)


class Secure(http.client.HTTPSConnection):
    """To a loopback port, whose certificate is for `localhost`."""

    def __init__(self, port, trust):
        super().__init__("localhost", port, timeout=PATIENCE_SECONDS, context=trust)


def replace(file, content):
    """All at once, as certificate tools do it."""
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    os.replace(new, file)


def serial(port, trust):
    """The serial number of the certificate that is served."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection,
        trust.wrap_socket(connection, server_hostname="localhost") as secure,
    ):
        return int(secure.getpeercert()["serialNumber"], 16)


def check_handovers(binary, tally, api_port):
    """A new process takes over while the old one serves, again and again."""
    plan = Plan(
        [f"http://127.0.0.1:{api_port}"],
        settings={"handover": "FOLDER/handover.sock", "drain": "10s"},
    )
    with contextlib.ExitStack() as started, proxy(binary, plan, tally) as on:
        old = on.process
        eventually((on.folder / "handover.sock").exists)
        with Traffic(*plain_clients(on.port)) as traffic:
            for number in range(HANDOVERS):
                new = started.enter_context(process(on.command))
                problems = []
                try:
                    if (code := old.wait(timeout=PATIENCE_SECONDS)) != 0:
                        problems.append(f"the old one ended with {code}")
                except subprocess.TimeoutExpired:
                    problems.append("the old one did not end")
                if new.poll() is not None:
                    problems.append(f"the new one ended with {new.returncode}")
                tally.record(f"handover {number + 1}", problems)
                if problems:
                    break
                old = new
        traffic.record(f"{HANDOVERS} handovers", tally)


@contextlib.contextmanager
def process(command):
    """Runs a command until the block ends, and shows what it said when that went wrong."""
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
            if running.returncode != 0:
                log.seek(0)
                print(log.read().decode("utf-8", "replace")[-3000:])


def check_drain(binary, tally, api_port):
    """Readiness goes first, then new connections, then what is in flight is finished."""
    servers = [f"http://127.0.0.1:{api_port}"]
    plan = Plan(servers, settings={"drain": "10s", "drain_delay": "2s"})
    with proxy(binary, plan, tally) as on:
        # The clients send their requests elsewhere once this proxy is not ready.
        with Traffic(*plain_clients(on.port)) as traffic:
            time.sleep(1)
            on.process.terminate()
            noticed = eventually(lambda: not is_ready(on.admin))
        traffic.record("the end, once it was announced", tally)
        tally.record("readiness goes first", [] if noticed else ["never"])
        code = on.process.wait(timeout=PATIENCE_SECONDS)
        tally.record("it ends well", [] if code == 0 else [f"exit code {code}"])

    with proxy(binary, Plan(servers, settings={"drain": "10s"}), tally) as on:
        answers = []
        asking = [
            threading.Thread(target=ask_slowly, args=(on.port, answers, number % 2))
            for number in range(IN_FLIGHT)
        ]
        for thread in asking:
            thread.start()
        time.sleep(0.7)
        on.process.terminate()
        refused = eventually(lambda: is_refused(on.port))
        for thread in asking:
            thread.join()
        code = on.process.wait(timeout=PATIENCE_SECONDS)
        wrong = [answer for answer in answers if answer not in ("200, close", "200, HTTP/2")]
        tally.record("what is in flight is finished", wrong)
        problems = [] if len(answers) == IN_FLIGHT else [f"{len(answers)} of {IN_FLIGHT}"]
        tally.record("all of it", problems)
        tally.record("no other client gets in", [] if refused else ["never refused"])
        tally.record("it ends well, with requests", [] if code == 0 else [f"exit code {code}"])


def is_ready(admin):
    """What a load balancer sees."""
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_refused(port):
    """Whether the listener is closed."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def ask_slowly(port, answers, over_http2):
    """A request that takes a while, and how it was answered."""
    try:
        if over_http2:
            connection = visitor.frames.Connection(port, timeout=PATIENCE_SECONDS)
            block = visitor.frames.request_block("/wait/2")
            connection.send(visitor.frames.request(1, block))
            decoder = visitor.frames.hpack.Decoder()
            status, _ = visitor.answer(connection, decoder, 1)
            answers.append(f"{status}, HTTP/2")
            return
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        connection.request("GET", "/wait/2")
        response = connection.getresponse()
        response.read()
        answers.append(f"{response.status}, {response.headers.get('connection')}")
    except (OSError, http.client.HTTPException) as error:
        answers.append(f"{type(error).__name__}: {error}")


def main():
    """A proxy for each kind of change."""
    binary = binary_under_test(__doc__, 240)

    tally = Tally()
    with api(tally) as api_port:
        for check in (check_swaps, check_handovers, check_drain):
            try:
                check(binary, tally, api_port)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                tally.record(check.__name__, [f"{type(error).__name__}: {error}"])
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
