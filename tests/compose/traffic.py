"""Requests to the proxy: one at a time, and many callers at once while something breaks."""

import base64
import collections
import dataclasses
import hashlib
import hmac
import http.client
import itertools
import json
import threading
import time

# In tests/compose/load.yaml.
LOAD_HOST = "load.example.com"
LOAD_LIMIT = 150

# Not the development default: the variable has to arrive where it is needed.
JWT_SECRET = "a-jwt-secret-of-this-test-with-32-characters"

CALLERS = 32
TIMEOUT_SECONDS = 10


def token(subject, secret, plan=None):
    """A token as the sample policy wants it."""
    now = int(time.time())
    claims = {"iss": "https://id.example.com/", "aud": "api", "sub": subject}
    claims |= {"iat": now, "exp": now + 3600}
    if plan is not None:
        claims["plan"] = plan

    def encode(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    parts = ({"alg": "HS256", "typ": "JWT"}, claims)
    signed = b".".join(encode(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return (signed + b"." + encode(signature)).decode()


@dataclasses.dataclass
class Answer:
    """What came back, and when."""

    status: int
    headers: dict
    body: str
    at: float

    @property
    def is_redis(self):
        """Whether Redis decided."""
        return "x-tollgate-store" not in self.headers


class Client:
    """One connection, opened again when it is gone."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)

    def get(self, path, **headers):
        """Asks, and gives the answer; `if_none_match="x"` is sent as `if-none-match: x`."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            self.connection.request("GET", path, headers=fields)
            response = self.connection.getresponse()
            body = response.read().decode("utf-8", "replace")
        except BaseException:
            self.connection.close()
            raise
        fields = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, fields, body, time.monotonic())


@dataclasses.dataclass
class Pace:
    """How many callers ask how often, all together."""

    callers: int
    threads: int
    requests_per_second: int


# Each caller runs into the limit.
HEAVY = Pace(CALLERS, threads=8, requests_per_second=300)
# Enough to see when something changes.
LIGHT = Pace(4, threads=2, requests_per_second=40)


class Load:
    """Callers at a steady pace, until the block ends."""

    def __init__(self, port, secret, name, pace=HEAVY):
        self.port = port
        self.pace = pace
        self.tokens = {}
        for number in range(pace.callers):
            caller = f"{name}-{number}"
            self.tokens[caller] = token(caller, secret)
        self.answers = collections.defaultdict(list)
        self.failures = []
        self.is_over = threading.Event()
        callers = list(self.tokens)
        shares = [callers[start :: pace.threads] for start in range(pace.threads)]
        self.threads = [threading.Thread(target=self.ask, args=(share,)) for share in shares]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def ask(self, callers):
        """One thread's part: its callers in turn."""
        client = Client(self.port)
        pause = self.pace.threads / self.pace.requests_per_second
        due = time.monotonic()
        while not self.is_over.is_set():
            for caller in callers:
                authorization = f"Bearer {self.tokens[caller]}"
                try:
                    answer = client.get("/user", host=LOAD_HOST, authorization=authorization)
                    self.answers[caller].append(answer)
                except (OSError, http.client.HTTPException) as error:
                    self.failures.append(repr(error))
                due += pause
                self.is_over.wait(max(0.0, due - time.monotonic()))

    def lasts(self):
        """The last answer to each caller who has one."""
        return [answers[-1] for answers in list(self.answers.values()) if answers]

    def is_spent(self):
        """Whether Redis was the last to deny each caller."""
        lasts = self.lasts()
        is_all = len(lasts) == self.pace.callers
        return is_all and all(last.status == 429 and last.is_redis for last in lasts)

    def statuses(self):
        """How often each status came."""
        answers = itertools.chain.from_iterable(self.answers.values())
        return collections.Counter(answer.status for answer in answers)

    def unexpected(self):
        """How often each status came that is neither an admission nor a denial."""
        return {status: n for status, n in self.statuses().items() if status not in (200, 429)}


def admitted(answers):
    """How many of a caller's requests were admitted."""
    return sum(answer.status == 200 for answer in answers)


def seconds_without_redis(answers, since):
    """How long after `since` Redis decided again about a caller; 0 when it never stopped."""
    missing = False
    for answer in answers:
        if answer.at < since:
            continue
        if not answer.is_redis:
            missing = True
        elif missing:
            return answer.at - since
    return 0.0
