"""OpenAI's and Anthropic's own clients, unchanged but for their address, through a budget of tokens.

A thousand requests, 64 at once, plain and streaming, in three forms: what Tollgate has charged each
caller is what the model said that it used, to the token. Then denials: the clients wait as their own rules
say, and pass.
"""

import base64
import hashlib
import hmac
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "httpbin")]
import anthropic
import openai
from harness import Tally, binary_under_test, free_port, running
from vendor import Model

SECONDS = 180
REQUESTS, AT_ONCE, CALLERS = 1000, 64, 5
SECRET = "a secret of 32 bytes or of more bytes"

POLICY = """\
version: 1
upstreams: {{ model: {{ servers: ["http://127.0.0.1:{upstream}"] }} }}
identity:
  jwt: [{{ issuer: https://id.example.com/, algorithms: [HS256], secret_env: JWT_SECRET }}]
  token: {{ header: x-api-key }}
  callers: [{{ name: user, key: jwt.sub }}]
limits:
  tokens:
    per: caller
    rate: 100_000_000/day
    cost:
      from_response: {{ usage: auto }}
      reserve: {{ from_request: [max_completion_tokens, max_output_tokens, max_tokens], plus_body: 0.25 }}
  few: {{ per: caller, rate: 3/2s }}
routes:
  - {{ match: {{ path: /slow/** }}, auth: required, limits: [few], strip_prefix: /slow }}
  - {{ match: {{ path: /** }}, auth: required, limits: [tokens] }}
responses: {{ headers: openai }}
"""
SETTINGS = """\
version: 1
listeners: [{{ address: "127.0.0.1:{port}" }}]
policies: policies
access_log: {{ format: json, only: denied }}
"""


def token(subject):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    claims = {"iss": "https://id.example.com/", "sub": subject, "exp": int(time.time()) + 3600}
    signed = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)
    signature = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def used(port, subject):
    """Units that a caller has used, as it is told itself."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/rate_limit", headers={"authorization": f"Bearer {token(subject)}"})
    return json.load(connection.getresponse())["resources"]["tokens"]["used"]


class Callers:
    """Clients for each caller."""

    def __init__(self, port, prefix="", retries=0):
        base = f"http://127.0.0.1:{port}{prefix}"
        tokens = [token(f"user-{number}") for number in range(CALLERS)]
        self.openai = [
            openai.OpenAI(api_key=own, base_url=f"{base}/v1", max_retries=retries) for own in tokens
        ]
        self.anthropic = [
            anthropic.Anthropic(api_key=own, base_url=base, max_retries=retries) for own in tokens
        ]

    def ask(self, number):
        """One request of the many, and how many tokens its client was told."""
        rng = random.Random(number)
        caller, most = rng.randrange(CALLERS), rng.randint(1, 500)
        is_stream, form = rng.random() < 0.5, rng.randrange(3)
        words = [{"role": "user", "content": f"request {number} " + "x" * rng.randrange(2000)}]
        if form == 0:
            return self.chat(caller, most, words, is_stream)
        if form == 1:
            return self.responses(caller, most, words, is_stream)
        return self.messages(caller, most, words, is_stream)

    def chat(self, caller, most, words, is_stream):
        ask = self.openai[caller].chat.completions.create
        asked = {"model": "m", "max_completion_tokens": most, "messages": words}
        if not is_stream:
            return caller, ask(**asked).usage.total_tokens
        chunks = list(ask(**asked, stream=True, stream_options={"include_usage": True}))
        return caller, next(chunk.usage for chunk in reversed(chunks) if chunk.usage).total_tokens

    def responses(self, caller, most, words, is_stream):
        ask = self.openai[caller].responses.create
        asked = {"model": "m", "max_output_tokens": most, "input": words[0]["content"]}
        if not is_stream:
            return caller, ask(**asked).usage.total_tokens
        last = list(ask(**asked, stream=True))[-1]
        return caller, last.response.usage.total_tokens

    def messages(self, caller, most, words, is_stream):
        ask = self.anthropic[caller].messages
        asked = {"model": "m", "max_tokens": most, "messages": words}
        if not is_stream:
            usage = ask.create(**asked).usage
        else:
            with ask.stream(**asked) as stream:
                usage = stream.get_final_message().usage
        counts = [usage.input_tokens, usage.output_tokens]
        counts += [usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0]
        return caller, sum(counts)


def differs(what, expected, got):
    return [] if expected == got else [f"{what}: expected {expected}, got {got}"]


def check_counts(tally, model, port):
    """Every caller is charged what the model said, which is what its clients were told."""
    callers = Callers(port)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = [0] * CALLERS
        for caller, tokens in pool.map(callers.ask, range(REQUESTS)):
            told[caller] += tokens
    tally.record("all have reached the model", differs("requests", REQUESTS, model.calls))
    for number in range(CALLERS):
        name = f"user-{number}"
        tally.record(f"{name}: what its clients were told", differs("tokens", model.used[name], told[number]))
        deadline = time.monotonic() + 5
        while used(port, name) != model.used[name] and time.monotonic() < deadline:
            time.sleep(0.05)
        tally.record(f"{name}: what it was charged", differs("tokens", model.used[name], used(port, name)))


def check_waits(tally, model, port):
    """A client that is denied waits as long as it is told, by itself, and passes."""
    callers = Callers(port, "/slow", retries=2)
    words = [{"role": "user", "content": "hello"}]
    asks = {
        "openai": lambda: callers.chat(0, 5, words, False),
        "openai, streaming": lambda: callers.chat(1, 5, words, True),
        "anthropic": lambda: callers.messages(2, 5, words, False),
        "anthropic, streaming": lambda: callers.messages(3, 5, words, True),
    }
    for name, ask in asks.items():
        before, begun = model.calls, time.monotonic()
        for _ in range(5):
            ask()
        took = time.monotonic() - begun
        tally.record(f"{name}: all pass", differs("requests", 5, model.calls - before))
        problems = [] if 1 < took < 8 else [f"five requests, of which three pass in 2 s, took {took:.1f} s"]
        tally.record(f"{name}: it has waited", problems)
    hasty = Callers(port, "/slow")
    try:
        for _ in range(9):
            hasty.chat(4, 5, words, False)
        problems = ["nine requests passed"]
    except openai.RateLimitError as error:
        headers = error.response.headers
        problems = differs("code", "rate_limit_exceeded", error.code)
        problems += differs("type", "requests", error.type)
        wait = int(headers["retry-after"]) * 1000
        problems += differs("retry-after-ms", str(wait), headers.get("retry-after-ms"))
        problems += differs("x-ratelimit-remaining-requests", "0", headers.get("x-ratelimit-remaining-requests"))
    tally.record("a denial is the client's own error", problems)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    upstream, port = free_port(), free_port()
    model = Model(upstream)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="tollgate-llm-") as folder:
        folder = Path(folder)
        (folder / "policies").mkdir()
        (folder / "policies/llm.yaml").write_text(POLICY.format(upstream=upstream))
        settings = folder / "tollgate.yaml"
        settings.write_text(SETTINGS.format(port=port))
        command = [binary, "run", "--config", str(settings)]
        with running("tollgate", command, port, tally, env={"JWT_SECRET": SECRET}):
            check_counts(tally, model, port)
            check_waits(tally, model, port)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
