"""How exact a budget of tokens is while many streams run at once, beside LiteLLM; and what a stream weighs.

    target/test-venv/bin/python tests/bench/budgets.py --tollgate target/release/tollgate
    target/test-venv/bin/python tests/bench/budgets.py --litellm VENV/bin/litellm --parts accuracy
    target/test-venv/bin/python tests/bench/budgets.py --parts memory --streams 1000

Accuracy: 64 clients of one caller with a budget of 100,000 tokens a minute ask for streams of five seconds,
each of up to 4,000 tokens, and ask again as soon as one has ended or was denied a second ago. The figure is
how many tokens the model says were used by the requests that reached it in the minute. Each proxy is tried
from the beginning of a minute by the clock, since some count by it.

Memory: the resident memory of Tollgate with no streams, and with 1,000 that are open, on a route with a
budget and on one without.

Everything is on loopback, and ends by itself. LiteLLM (PyPI: litellm[proxy], in a venv of its own) keeps its
limits of keys in a database; here a hook gives it the one key, so that it needs none.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import os
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin"), str(TESTS / "clients/llm")]
from harness import Tally, free_port, give_up_after, running
from vendor import chat

CLIENTS, BUDGET, MOST = 64, 100_000, 4000
STREAM_SECONDS = 5
# The last requests are asked for so long after the first: all are in one minute by any count.
ASK_SECONDS = 55
PROMPT = "a word of eight letters " * 60
KEY = "sk-budget"

POLICY = """\
version: 1
upstreams: {{ model: {{ servers: ["http://127.0.0.1:{model}"], max_connections: 4096, shares: "off" }} }}
identity: {{ callers: [{{ name: visitor, key: client.ip }}] }}
limits:
  tokens:
    per: caller
    rate: {rate}
    cost:
      from_response: {{ usage: auto }}
      reserve: {{ from_request: [max_completion_tokens, max_tokens], plus_body: 0.25 }}
routes:
  - {{ match: {{ path: /free/** }}, strip_prefix: /free }}
  - {{ match: {{ path: /** }}, limits: [tokens] }}
"""
SETTINGS = """\
version: 1
listeners: [{{ address: "127.0.0.1:{port}" }}]
policies: policies
access_log: {{ format: "off" }}
"""
LITELLM = """\
model_list:
  - model_name: m
    litellm_params: {{ model: openai/m, api_base: "http://127.0.0.1:{model}/v1", api_key: none }}
general_settings: {{ custom_auth: key.of }}
litellm_settings: {{ num_retries: 0, telemetry: false }}
"""
LITELLM_KEY = f"""\
from litellm.proxy._types import UserAPIKeyAuth


async def of(request, api_key):
    return UserAPIKeyAuth(api_key="{KEY}", tpm_limit={BUDGET})
"""


class Model:
    """Streams what the model of tests/clients/llm says, over some seconds or for as long as it is let."""

    def __init__(self, port):
        self.port = port
        self.tokens = 0
        self.requests = 0
        self.open = 0
        # Streams end by themselves, or when this is set.
        self.release = None

    async def serve(self):
        return await asyncio.start_server(self.answer, "127.0.0.1", self.port, backlog=2048)

    async def answer(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if not head.startswith(b"post "):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                await self.stream(json.loads(await reader.readexactly(length)), writer)
        writer.close()

    async def stream(self, asked, writer):
        asked.setdefault("max_completion_tokens", asked.get("max_tokens"))
        self.requests += 1
        tokens, parts = chat(asked, random.Random(self.requests))
        self.tokens += tokens
        self.open += 1
        try:
            head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(head.encode())
            for part in parts:
                # The usage and the end come after all the time.
                if part is parts[-2] and self.release:
                    await self.release.wait()
                elif self.release is None:
                    await asyncio.sleep(STREAM_SECONDS / len(parts))
                writer.write(b"%x\r\n%s\r\n" % (len(part.encode()), part.encode()))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.open -= 1


async def ask(port, path="/v1/chat/completions", fields=""):
    """One stream to its end, asked for with some fields more. Returns the status."""
    body = {
        "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": MOST,
        "messages": [{"role": "user", "content": PROMPT}],
    }
    body = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nhost: model\r\nconnection: close\r\n{fields}"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write((head + body).encode())
        status = int((await reader.readline()).split()[1])
        while await reader.read(65536):
            pass
        return status
    finally:
        writer.close()


async def spend(port, model, fields):
    """What the clients spend in a minute: tokens, streams, denials and other answers."""
    model.tokens = model.requests = 0
    statuses = {}
    end = time.monotonic() + ASK_SECONDS

    async def client():
        while time.monotonic() < end:
            status = await ask(port, fields=fields)
            statuses[status] = statuses.get(status, 0) + 1
            if status != 200:
                await asyncio.sleep(1)

    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    return {"tokens": model.tokens, "streams": model.requests, "statuses": statuses}


def tollgate(binary, model, rate, tally, folder):
    port = free_port()
    (folder / "policies").mkdir(parents=True)
    (folder / "policies/main.yaml").write_text(POLICY.format(model=model.port, rate=rate))
    settings = folder / "tollgate.yaml"
    settings.write_text(SETTINGS.format(port=port))
    command = [str(Path(binary).resolve()), "run", "--config", str(settings)]
    return port, running("tollgate", command, port, tally)


def litellm(program, model, tally, variables, folder):
    port = free_port()
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(LITELLM.format(model=model.port))
    (folder / "key.py").write_text(LITELLM_KEY)
    command = [program, "--config", str(folder / "config.yaml"), "--port", str(port), "--host", "127.0.0.1"]
    variables = variables | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(folder)}
    variables["LITELLM_MASTER_KEY"] = f"sk-{secrets.token_hex(32)}"
    return port, running("litellm", command, port, tally, env=os.environ | variables, cwd=folder)


async def measure_accuracy(arguments, model, tally, folder):
    rate = f"{BUDGET}/minute"
    proxies = {"tollgate": functools.partial(tollgate, arguments.tollgate, model, rate, tally)}
    if arguments.litellm:
        off = {"LITELLM_TPM_TOKEN_RESERVATION_ENABLED": "false"}
        for name, variables in {"litellm": {}, "litellm, told to reserve nothing": off}.items():
            proxies[name] = functools.partial(litellm, arguments.litellm, model, tally, variables)
    for name, start in proxies.items():
        # The model does not run while a process starts, and is asked nothing then.
        port, process = start(folder / name.replace(" ", "-"))
        with process:
            await asyncio.sleep(60 - time.time() % 60 + 1)
            fields = f"authorization: Bearer {KEY}\r\n" if name != "tollgate" else ""
            spent = await spend(port, model, fields)
        print(f"{name}: {spent['tokens']} of {BUDGET} tokens", spent, flush=True)
        is_ours = name == "tollgate"
        over = [f"{spent['tokens']} tokens"] if spent["tokens"] > BUDGET and is_ours else []
        tally.record(f"{name} keeps the budget", over)
        tally.record(f"{name} lets some through", [] if spent["tokens"] > BUDGET / 4 else [str(spent)])


def resident(process):
    """KiB of resident memory."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def measure_memory(arguments, model, tally, folder):
    """Each in a new process, as an allocator keeps what it had."""
    for name, path in {"budget": "/v1/chat/completions", "no limit": "/free/v1/chat/completions"}.items():
        own = folder / name.replace(" ", "-")
        port, started = tollgate(arguments.tollgate, model, "1_000_000_000/day", tally, own)
        with started as process:
            # What is made once is made by a first request.
            model.release = asyncio.Event()
            model.release.set()
            await ask(port, path)
            idle = resident(process)
            model.release.clear()
            streams = [asyncio.create_task(ask(port, path)) for _ in range(arguments.streams)]
            while model.open < arguments.streams and not any(task.done() for task in streams):
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            busy = resident(process)
            await asyncio.sleep(5)
            later = resident(process)
            opened = model.open
            model.release.set()
            statuses = set(await asyncio.gather(*streams))
            model.release = None
        each = (busy - idle) / arguments.streams
        print(f"{name}: {idle} KiB idle, {busy} KiB with {opened} streams, {later} KiB after 5 s;", end=" ")
        print(f"{each:.1f} KiB a stream", flush=True)
        tally.record(f"{name}: all streams pass", [] if statuses == {200} else [str(statuses)])


async def measure(arguments):
    tally = Tally()
    model = Model(free_port())
    server = await model.serve()
    parts = {"accuracy": measure_accuracy, "memory": measure_memory}
    async with server:
        with tempfile.TemporaryDirectory(prefix="tollgate-budgets-") as folder:
            for part in arguments.parts.split(","):
                await parts[part](arguments, model, tally, Path(folder) / part)
    return tally.conclude()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary")
    parser.add_argument("--litellm", help="LiteLLM's program, to measure it too")
    parser.add_argument("--parts", default="accuracy,memory", help="what to measure")
    parser.add_argument("--streams", type=int, default=1000, help="streams that are open at once")
    give_up_after(600)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
