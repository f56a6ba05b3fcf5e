"""The programs in examples/, with the policy that is beside them: a Celery queue with three workers,
calls to a third party with a peak and a daily quota, and a batch from cron."""

import collections
import contextlib
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
sys.path[:0] = [str(HERE.parent / "edge")]
from stage import Tally, Witness, binary_under_test, free_port, running

SECONDS = 400
RATE = 50
TASKS = int(os.environ.get("TOLLGATE_TASKS", "1000"))
WORKERS = 3
ACCOUNT = "acct-7"


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


@contextlib.contextmanager
def tollgate(binary, tally):
    """Runs Tollgate with the policy of the examples; gives the ports for HTTP and for Redis."""
    plain, http_port, redis_port = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        folder = Path(folder)
        settings = {
            "version": 1,
            "listeners": [{"address": f"127.0.0.1:{plain}"}],
            "decisions": [
                {"address": f"127.0.0.1:{http_port}", "protocol": "http"},
                {"address": f"127.0.0.1:{redis_port}", "protocol": "redis"},
            ],
            "policies": str(EXAMPLES / "policy.yaml"),
            "access_log": {"format": "off"},
        }
        (folder / "tollgate.yaml").write_text(json.dumps(settings))
        command = [str(Path(binary).resolve()), "run", "--config", str(folder / "tollgate.yaml")]
        with running("tollgate", command, redis_port, tally):
            yield http_port, redis_port


def used(port, limit, key):
    """Units that a key has used of a limit."""
    url = f"http://127.0.0.1:{port}/v1/standing?limit={limit}&key={key}"
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)["standings"][0]["used"]


def try_celery(redis_port, tally):
    """Three workers send mails no faster than the queue's rate, each once, and nobody polls."""
    broker = free_port()
    server = ["redis-server", "--port", str(broker), "--save", "", "--bind", "127.0.0.1"]
    with tempfile.TemporaryDirectory(prefix="celery-") as folder, \
            running("redis-server", server, broker, tally), Witness(folder) as witness, \
            contextlib.ExitStack() as workers:
        sent = Path(folder) / "sent.txt"
        environment = os.environ | {
            "BROKER_URL": f"redis://127.0.0.1:{broker}/0",
            "TOLLGATE_URL": f"redis://127.0.0.1:{redis_port}",
            "SENT_FILE": str(sent),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        before = commands(redis_port)
        for number in range(WORKERS):
            command = [sys.executable, "-m", "celery", "--app", "tasks", "worker"]
            command += ["--concurrency", "4", "--hostname", f"worker-{number}@test"]
            command += ["--loglevel", "error", "--without-gossip", "--without-mingle"]
            worker = subprocess.Popen(
                command, cwd=EXAMPLES / "celery", env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            workers.callback(stop, worker)
        send = (
            "import tasks\n"
            f"for number in range({TASKS}):\n"
            "    tasks.send_mail.delay(number)\n"
        )
        subprocess.run(
            [sys.executable, "-c", send], cwd=EXAMPLES / "celery", env=environment,
            check=True, timeout=120,
        )
        deadline = time.monotonic() + TASKS / RATE + 60
        lines = []
        while len(lines) < TASKS and time.monotonic() < deadline:
            time.sleep(0.5)
            lines = sent.read_text().splitlines() if sent.exists() else []
        asked = commands(redis_port) - before
    numbers = sorted(int(line.split()[1]) for line in lines)
    tally.record("celery: each mail is sent once",
                 [] if numbers == list(range(TASKS)) else [f"{len(numbers)} lines"])
    times = sorted(float(line.split()[0]) for line in lines)
    seconds = collections.Counter(int(at - times[0]) for at in times) if times else {}
    most = max(seconds.values(), default=0)
    # A task writes down its time a moment after it got through: it may be counted with the next, and
    # as many as this machine was late.
    tally.record("celery: no second has more than the rate",
                 [] if most <= RATE * (1.1 + witness.late) else [f"{most} in a second"])
    # The first ones wait for workers that still begin.
    settled = times[TASKS // 10 :]
    took = settled[-1] - settled[0] if settled else 0
    rate = (len(settled) - 1) / took if took else 0
    tally.record("celery: the rate as a whole is exact",
                 [] if RATE * 0.9 <= rate <= RATE * 1.005 else [f"{rate:.2f} a second"])
    tally.record("celery: nobody polls", [] if asked <= TASKS * 1.1 else [f"{asked} commands"])
    print(f"   {TASKS} tasks at {rate:.2f} a second, at most {most} in one, {asked / TASKS:.3f} "
          "commands a task")


def commands(port):
    """Commands so far."""
    with redis.Redis(port=port) as client:
        return client.info()["total_commands_processed"]


def stop(process):
    """Ends a process."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


class Partner(http.server.BaseHTTPRequestHandler):
    """A third party that notes when it was called."""

    calls = []

    def do_GET(self):
        self.calls.append(time.monotonic())
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


def try_third_party(http_port, tally):
    """The peak rate is waited for; a call that never arrived costs nothing."""
    sys.path.insert(0, str(EXAMPLES / "third-party"))
    import client

    client.TOLLGATE = f"http://127.0.0.1:{http_port}"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Partner)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client.PARTNER = f"http://127.0.0.1:{server.server_port}"
    answers = [client.call(ACCOUNT, f"/?n={number}") for number in range(12)]
    expect(tally, "third party: all calls get through", answers, [b"ok"] * 12)
    waited = Partner.calls[10] - Partner.calls[0]
    tally.record("third party: the peak is waited for", [] if waited > 0.5 else [f"{waited:.3f} s"])
    expect(tally, "third party: the day's quota", used(http_port, "partner-daily", ACCOUNT), 12)
    server.shutdown()
    server.server_close()
    try:
        client.call(ACCOUNT, "/")
        told = "an answer"
    except OSError as error:
        told = type(error).__name__
    expect(tally, "third party: it is away", told, "URLError")
    expect(tally, "third party: that was given back", used(http_port, "partner-daily", ACCOUNT), 12)
    client.ask("/v1/charge", {"charges": [{"limit": "partner-daily", "key": "poor", "cost": 1000}]})
    try:
        client.call("poor", "/")
        told = "an answer"
    except client.QuotaExceeded as error:
        told = error.limit
    expect(tally, "third party: a quota that is used up is told", told, "partner-daily")


def try_batch(http_port, tally):
    """A batch goes on where it was, holds a slot while it runs, and gives it back."""
    with tempfile.TemporaryDirectory(prefix="batch-") as folder:
        rows = Path(folder) / "rows.txt"
        environment = os.environ | {"TOLLGATE_URL": f"http://127.0.0.1:{http_port}"}

        def export(pages):
            script = EXAMPLES / "batch" / "export.py"
            return subprocess.run(
                [sys.executable, "-B", str(script), "customer-7", str(rows)],
                env=environment | {"PAGES": str(pages)}, capture_output=True, text=True,
                timeout=60, check=False,
            )

        expect(tally, "batch: a part", (export(4).returncode, len(rows.read_text().split())), (0, 8))
        expect(tally, "batch: the rest", (export(10).returncode, len(rows.read_text().split())), (0, 20))
        expect(tally, "batch: its rows", used(http_port, "export-rows", "customer-7"), 500)
        expect(tally, "batch: its slot is free", used(http_port, "exports", "customer-7"), 0)
        charge = json.dumps({"charges": [{"limit": "exports", "key": "customer-7"}]}).encode()
        for _ in range(2):
            url = f"http://127.0.0.1:{http_port}/v1/charge"
            call = urllib.request.Request(url, charge, {"Content-Type": "application/json"})
            urllib.request.urlopen(call, timeout=10)
        third = export(10)
        told = (third.returncode, third.stderr.strip())
        expected = (1, "two batches of this customer are running already")
        expect(tally, "batch: a third one", told, expected)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with tollgate(binary, tally) as (http_port, redis_port):
        try_third_party(http_port, tally)
        try_batch(http_port, tally)
        try_celery(redis_port, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
