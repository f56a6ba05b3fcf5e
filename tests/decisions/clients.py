"""Stock clients of Redis ask Tollgate: redis-cli, redis-py, node-redis and ioredis.

Each connects with its defaults, uses every command, alone and pipelined, and finds the counters of
the others: limits of the policy are the same, whoever asks, and over HTTP too.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "edge")]
from certificates import Authority
from stage import Plan, Tally, api, binary_under_test, free_port, proxy, raise_descriptor_limit

SECONDS = 120
PASSWORD = "open sesame of the test"
LIMITS = {
    "mail": {"per": "key", "rate": "3/hour"},
    "slow": {"per": "key", "rate": "1/minute"},
    "paced": {"per": "key", "rate": "100/second", "algorithm": "gcra", "burst": 1},
    "slots": {"per": "key", "concurrent": 1},
}
CONNECTIONS = 10_000
WAITERS = 20


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


def redis_cli(port, *command):
    """The lines that redis-cli prints."""
    environment = os.environ | {"REDISCLI_AUTH": PASSWORD}
    output = subprocess.run(
        ["redis-cli", "-p", str(port), *command],
        capture_output=True, text=True, check=True, timeout=30, env=environment,
    )
    return output.stdout.splitlines()


def try_redis_cli(port, tally):
    """The commands by hand, in both versions of the protocol."""
    for number, options in enumerate([[], ["-3"]]):
        name = f"redis-cli {' '.join(options)}".strip()
        key = f"cli-{number}"
        asked = lambda *command: redis_cli(port, *options, *command)
        expect(tally, f"{name}: a bucket", asked("RL.REDUCE", key, "2", "60"), ["2"])
        expect(tally, f"{name}: it is emptied", asked("RL.REDUCE", key, "2", "60"), ["1"])
        throttled = asked("CL.THROTTLE", key, "15", "30", "60")
        expect(tally, f"{name}: a throttle", throttled, ["0", "16", "15", "-1", "2"])
        charged = asked("TG.CHARGE", "mail", key)
        expect(tally, f"{name}: a limit of the policy", charged[:3], ["1", "2", "-1"])
        expect(tally, f"{name}: given back", asked("TG.GIVEBACK", charged[4]), ["OK"])
        expect(tally, f"{name}: as before", asked("TG.STANDING", "mail", key)[:3], ["3", "0", "3"])
        unknown = asked("TG.NOTHING")
        expect(tally, f"{name}: an error", unknown[0], "ERR unknown command 'TG.NOTHING'")


def try_redis_py(port, tally, **options):
    """redis-py with its defaults, and with each version of the protocol."""
    name = f"redis-py {options or 'by default'}"
    key = f"py-{options.get('protocol', 'default')}"
    client = redis.Redis(port=port, password=PASSWORD, **options)
    run = client.execute_command
    expect(tally, f"{name}: ping", client.ping(), True)
    expect(tally, f"{name}: a bucket", run("RL.REDUCE", key, 5, 60), 5)
    expect(tally, f"{name}: a session", run("RL.PSESSIONIZE", key, 1, 60, "AT", 7), [1, 7])
    expect(tally, f"{name}: a throttle", run("CL.THROTTLE", key, 4, 1, 1)[:3], [0, 5, 4])
    expect(tally, f"{name}: the key", (client.exists(key), client.delete(key)), (1, 1))
    charged = run("TG.CHARGE", "mail", key, "COST", 3)
    expect(tally, f"{name}: a charge", charged[:3], [1, 0, -1])
    denied = run("TG.CHARGE", "mail", key)
    expect(tally, f"{name}: a denial", (denied[0], denied[1], denied[4]), (0, 0, None))
    expect(tally, f"{name}: given back", run("TG.GIVEBACK", charged[4]), b"OK")
    expect(tally, f"{name}: reset", run("TG.RESET", "mail", key), b"OK")
    expect(tally, f"{name}: standing", run("TG.STANDING", "mail", key)[:3], [3, 0, 3])
    try:
        run("RL.REDUCE", key, 0, 60)
        told = "nothing"
    except redis.ResponseError as error:
        told = str(error)
    expect(tally, f"{name}: an error", told, "Value is not an integer or out of range")
    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.execute_command("RL.REDUCE", f"{key}-p", 1000, 60)
    for _ in range(4):
        pipeline.execute_command("TG.CHARGE", "mail", f"{key}-p")
    replies = pipeline.execute()
    expect(tally, f"{name}: a pipeline", replies[:1000], list(range(1000, 0, -1)))
    expect(tally, f"{name}: its charges", [own[0] for own in replies[1000:]], [1, 1, 1, 0])
    # Its usual pipeline, between MULTI and EXEC.
    pipeline = client.pipeline()
    for _ in range(10):
        pipeline.execute_command("RL.REDUCE", f"{key}-t", 10, 60)
    pipeline.execute_command("TG.STANDING", "mail", f"{key}-t")
    replies = pipeline.execute()
    expect(tally, f"{name}: a transaction", replies[:10], list(range(10, 0, -1)))
    expect(tally, f"{name}: a limit in a transaction", len(replies[10]), 4)
    client.close()


def try_node(port, tally):
    """node-redis and ioredis, if the folder with them is known."""
    folder = os.environ.get("TOLLGATE_NODE_CLIENTS")
    if not folder:
        print("   node-redis and ioredis are left out: TOLLGATE_NODE_CLIENTS names no folder")
        return
    output = subprocess.run(
        ["node", str(Path(folder) / "clients.mjs"), str(port), PASSWORD],
        capture_output=True, text=True, timeout=60, check=False,
    )
    if output.returncode != 0:
        tally.record("node clients", [output.stderr])
        return
    for what, got, expected in json.loads(output.stdout):
        expect(tally, what, got, expected)


def try_waiting(port, tally):
    """A crowd that waits for a rate is let through at that rate, without asking again."""
    before = commands(port)
    begun = time.monotonic()
    results = []

    def ask():
        with redis.Redis(port=port, password=PASSWORD) as client:
            results.append(client.execute_command("TG.CHARGE", "paced", "queue", "WAIT", 60_000)[0])

    crowd = [threading.Thread(target=ask) for _ in range(WAITERS)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    took = time.monotonic() - begun
    expect(tally, "who waits gets through", results, [1] * WAITERS)
    least = (WAITERS - 1) / 100
    tally.record("no faster than the rate", [] if took >= least else [f"in {took:.3f} s"])
    asked = commands(port) - before
    # Each client has said who it is as well.
    most = WAITERS * 6 + 2
    tally.record("nobody asks again and again", [] if asked <= most else [f"{asked} commands"])


def try_look(binary, admin, port, tally):
    """Whoever runs the proxy sees the counter of a key, and resets it: who waits goes on then."""
    def asked(*command):
        ran = subprocess.run(
            [binary, *command, "--admin", f"127.0.0.1:{admin}"],
            capture_output=True, text=True, timeout=30, check=False,
        )
        return ran.stdout + ran.stderr

    shown = asked("look", "key:both")
    tally.record("look: a key", [] if "2 of 3 used, 1 left" in shown else [shown])
    waited = []

    def wait():
        with redis.Redis(port=port, password=PASSWORD) as client:
            client.execute_command("TG.CHARGE", "slow", "both")
            charged.set()
            waited.append(client.execute_command("TG.CHARGE", "slow", "both", "WAIT", 60_000)[0])

    charged = threading.Event()
    one = threading.Thread(target=wait)
    one.start()
    charged.wait(10)
    # It is in line soon.
    time.sleep(0.5)
    told = asked("reset", "key:both", "--why", "a test")
    tally.record("reset: a key", [] if "reset key:both" in told and "mail" in told else [told])
    one.join(10)
    expect(tally, "reset: who waits goes on", waited, [1])


def try_tls(secure, mutual, folder, tally):
    """With TLS: a password inside of it, or a certificate in its place."""
    trusted = {"ssl": True, "ssl_ca_certs": str(folder / "authority.pem")}
    with redis.Redis("localhost", secure, password=PASSWORD, **trusted) as client:
        run = client.execute_command
        expect(tally, "tls: a bucket", run("RL.REDUCE", "tls", 5, 60), 5)
        expect(tally, "tls: a charge", run("TG.CHARGE", "mail", "tls")[:2], [1, 2])
        pipeline = client.pipeline(transaction=False)
        for number in range(20_000):
            pipeline.execute_command("ECHO", f"{number}" * 10)
        replies = pipeline.execute()
        expect(tally, "tls: a long pipeline", replies[-1], b"19999" * 10)
    output = redis_cli(secure, "--tls", "--cacert", trusted["ssl_ca_certs"], "-h", "localhost",
                       "RL.REDUCE", "tls", "5", "60")
    expect(tally, "tls: redis-cli", output, ["4"])

    def told(port, **options):
        try:
            with redis.Redis("localhost", port, socket_timeout=5, **options) as client:
                return client.ping()
        except redis.RedisError as error:
            return type(error).__name__

    expect(tally, "tls: a client without it", told(secure, password=PASSWORD), "ConnectionError")
    shown = {"ssl_certfile": str(folder / "client.pem"), "ssl_keyfile": str(folder / "client.key")}
    expect(tally, "a certificate in place of a password", told(mutual, **trusted, **shown), True)
    expect(tally, "no certificate", told(mutual, **trusted), "ConnectionError")

    # One that waits and goes away leaves the line.
    gone = redis.Redis("localhost", secure, password=PASSWORD, socket_timeout=0.5, **trusted)
    with redis.Redis("localhost", secure, password=PASSWORD, **trusted) as client:
        run = client.execute_command
        slot = run("TG.CHARGE", "slots", "tls")[4]
        try:
            gone.execute_command("TG.CHARGE", "slots", "tls", "WAIT", 60_000)
        except redis.TimeoutError:
            gone.close()
        time.sleep(1)
        run("TG.GIVEBACK", slot)
        expect(tally, "tls: who has gone holds nothing", run("TG.CHARGE", "slots", "tls")[0], 1)


def commands(port):
    """Commands so far."""
    with redis.Redis(port=port, password=PASSWORD) as client:
        return client.info()["total_commands_processed"]


def try_crowd(port, tally):
    """Many connections, idle ones among them: all are served."""
    raise_descriptor_limit()
    hello = f"*2\r\n$4\r\nAUTH\r\n${len(PASSWORD)}\r\n{PASSWORD}\r\n".encode()
    crowd, failures = [], []
    try:
        for number in range(CONNECTIONS):
            # An address has only so many ports.
            source = (f"127.0.1.{number % 200 + 1}", 0)
            crowd.append(socket.create_connection(("127.0.0.1", port), 10, source))
            # Who says no password for long is closed.
            crowd[-1].sendall(hello)
        for one in crowd:
            one.sendall(b"*4\r\n$9\r\nRL.REDUCE\r\n$1\r\nc\r\n$7\r\n1000000\r\n$2\r\n60\r\n")
        held = set()
        for one in crowd:
            reply = b""
            while reply.count(b"\r\n") < 2:
                more = one.recv(100)
                if not more:
                    raise ConnectionError("a connection was closed")
                reply += more
            held.add(reply)
        if len(held) != CONNECTIONS:
            failures.append(f"{len(held)} different replies")
    except OSError as error:
        failures.append(f"after {len(crowd)}: {error}")
    finally:
        for one in crowd:
            one.close()
    tally.record(f"{CONNECTIONS} connections at once", failures)


def check(binary, tally, server):
    """Has each client ask one proxy."""
    port, http, secure, mutual = (free_port() for _ in range(4))
    redis_listener = {
        "address": f"127.0.0.1:{port}", "protocol": "redis", "password_file": "password",
        "connections": 2 * CONNECTIONS,
    }
    http_listener = {"address": f"127.0.0.1:{http}", "protocol": "http"}
    authority = Authority()
    files = {"password": PASSWORD.encode(), "authority.pem": authority.pem}
    files |= authority.issue("localhost", "127.0.0.1").files("server")
    files |= authority.issue("worker-1").files("client")
    tls = {"certificates": [{"certificate_file": "server.pem", "key_file": "server.key"}]}
    plan = Plan([server], limits=LIMITS, files=files)
    plan.settings = {"decisions": [
        redis_listener,
        http_listener,
        {"address": f"127.0.0.1:{secure}", "protocol": "redis", "password_file": "password",
         "tls": tls},
        {"address": f"127.0.0.1:{mutual}", "protocol": "redis",
         "tls": tls | {"client_ca_file": "authority.pem"}},
    ]}
    with proxy(binary, plan, tally) as tollgate:
        try_redis_cli(port, tally)
        for options in ({}, {"protocol": 2}, {"protocol": 3}):
            try_redis_py(port, tally, **options)
        try_node(port, tally)
        try_waiting(port, tally)
        try_tls(secure, mutual, tollgate.folder, tally)
        with redis.Redis(port=port, password=PASSWORD) as client:
            client.execute_command("TG.CHARGE", "mail", "both", "COST", 2)
        query = f"http://127.0.0.1:{http}/v1/standing?limit=mail&key=both"
        with urllib.request.urlopen(query, timeout=10) as response:
            used = json.load(response)["standings"][0]["used"]
        expect(tally, "the counters are those of HTTP", used, 2)
        try_look(binary, tollgate.admin, port, tally)
        try_crowd(port, tally)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as port:
        check(binary, tally, f"http://127.0.0.1:{port}")
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
