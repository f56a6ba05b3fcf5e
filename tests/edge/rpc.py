"""gRPC through the proxy, with a client and a server that are not ours: every kind of call, what
goes with it, and what a caller reads that the proxy refuses."""

import concurrent.futures
import sys
import threading

import grpc
from certificates import Authority
from stage import (
    ANYTHING,
    MEBIBYTE,
    PATIENCE_SECONDS,
    Plan,
    Tally,
    bearer,
    binary_under_test,
    free_port,
    proxy,
)

SERVICE = "test.Echo"
LARGE = 4 * MEBIBYTE
CALLS = 200
ALLOWED = 120
TIMES = 2
OPTIONS = [
    ("grpc.max_receive_message_length", 2 * LARGE),
    ("grpc.max_send_message_length", 2 * LARGE),
    # A test that the server is away must not wait for the client's own patience.
    ("grpc.enable_retries", 0),
]
ROUTES = [
    ANYTHING | {"match": {"path": f"/{SERVICE}/Members"}, "auth": "required"},
    ANYTHING | {"match": {"path": f"/{SERVICE}/Some"}, "limits": ["some"]},
    ANYTHING | {"match": {"path": f"/{SERVICE}/Many"}, "limits": ["many"]},
    ANYTHING | {"match": {"path": f"/{SERVICE}/Away"}, "upstream": "away"},
    ANYTHING | {"match": {"path": f"/{SERVICE}/*"}},
]
LIMITS = {
    "some": {"per": "caller", "rate": f"{TIMES}/hour"},
    "many": {"per": "caller", "rate": f"{ALLOWED}/hour"},
}
STANDING = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


def echo(message, context):
    """Says the message again, and the metadata that came with it."""
    fields = dict(context.invocation_metadata())
    context.send_initial_metadata([("x-first", fields.get("x-first", ""))])
    context.set_trailing_metadata([("x-last-bin", fields.get("x-last-bin", b""))])
    return message


def split(message, _context):
    """A message for each byte."""
    for byte in message:
        yield bytes([byte])


def join(messages, _context):
    """All messages as one."""
    return b"".join(messages)


def converse(messages, _context):
    """Answers each message before the next one comes."""
    for message in messages:
        yield b"re: " + message


def wait(_message, context):
    """Waits for the caller to give up, and notes that he did and how long he would have waited."""
    WAITED.append(context.time_remaining())
    given_up = threading.Event()
    context.add_callback(given_up.set)
    if given_up.wait(PATIENCE_SECONDS):
        GIVEN_UP.release()
    return b""


def fail(message, context):
    """Ends with an error that has details."""
    context.set_trailing_metadata([("grpc-status-details-bin", b"\x08\x05" + message)])
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: \u00fcber 100 %")


WAITED = []
GIVEN_UP = threading.Semaphore(0)
METHODS = {
    **dict.fromkeys(
        ("Echo", "Members", "Some", "Many", "Away"), grpc.unary_unary_rpc_method_handler(echo)
    ),
    "Split": grpc.unary_stream_rpc_method_handler(split),
    "Join": grpc.stream_unary_rpc_method_handler(join),
    "Converse": grpc.stream_stream_rpc_method_handler(converse),
    "Wait": grpc.unary_unary_rpc_method_handler(wait),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
}


class Caller:
    """Calls through the proxy; each check gets this."""

    def __init__(self, channel, tally, over):
        self.channel = channel
        self.tally = tally
        self.over = over

    def call(self, method, message, subject=None, metadata=(), timeout=PATIENCE_SECONDS):
        """The response and the call, of a method with one request and one response."""
        stub = self.channel.unary_unary(f"/{SERVICE}/{method}")
        return stub.with_call(message, timeout, identified(subject, metadata))

    def error(self, method, message=b"", subject=None, timeout=PATIENCE_SECONDS):
        """The error that a call ends with; none when it is a success."""
        try:
            self.call(method, message, subject, timeout=timeout)
        except grpc.RpcError as error:
            return error
        return None

    def expect(self, name, wanted, seen):
        """A check that one value is another."""
        problems = [] if wanted == seen else [f"{seen!r} instead of {wanted!r}"]
        self.tally.record(f"{name} {self.over}", problems)

    def expect_code(self, name, wanted, error):
        """A check of an error's code."""
        self.expect(name, wanted, error and error.code())
        if error and error.code() is not wanted:
            print(f"    {error.details()}")


def identified(subject, metadata=()):
    """Metadata, with a token."""
    return [*metadata, *([("authorization", bearer(subject))] if subject else [])]


def check_kinds(by):
    """One or many requests, one or many responses, small and large."""
    for message in (b"", b"hello", bytes(LARGE)):
        response, _ = by.call("Echo", message, "kinds")
        by.expect(f"{len(message)} bytes", True, response == message)
    parts = list(by.channel.unary_stream(f"/{SERVICE}/Split")(b"abc" * 100))
    by.expect("many responses", b"abc" * 100, b"".join(parts))
    joined = by.channel.stream_unary(f"/{SERVICE}/Join")(bytes([n]) for n in range(200))
    by.expect("many requests", bytes(range(200)), joined)

    said = threading.Semaphore(1)

    def messages():
        for number in range(50):
            said.acquire(timeout=PATIENCE_SECONDS)
            yield str(number).encode()

    answers = []
    converse = by.channel.stream_stream(f"/{SERVICE}/Converse")
    for answer in converse(messages(), timeout=PATIENCE_SECONDS):
        answers.append(answer)
        said.release()
    by.expect("a conversation", [f"re: {number}".encode() for number in range(50)], answers)


def check_metadata(by):
    """What goes with a call, first and last, and where its caller stands."""
    sent = [("x-first", "one"), ("x-last-bin", b"\x00\xff")]
    _, call = by.call("Echo", b"", f"metadata {by.over}", sent)
    first, last = dict(call.initial_metadata()), dict(call.trailing_metadata())
    by.expect("initial metadata", "one", first.get("x-first"))
    by.expect("trailing metadata", b"\x00\xff", last.get("x-last-bin"))
    by.expect("standing", "999999", first.get("x-ratelimit-remaining"))


def check_errors(by):
    """The server's own errors, with all that they say."""
    error = by.error("Fail", b"detail")
    by.expect_code("an error", grpc.StatusCode.NOT_FOUND, error)
    by.expect("its message", "no such thing: \u00fcber 100 %", error and error.details())
    last = dict(error.trailing_metadata()) if error else {}
    by.expect("its details", b"\x08\x05detail", last.get("grpc-status-details-bin"))
    error = by.error("NoSuchMethod")
    by.expect_code("no such method", grpc.StatusCode.UNIMPLEMENTED, error)


def check_deadlines(by):
    """A deadline reaches the server, and its end both sides."""
    WAITED.clear()
    error = by.error("Wait", timeout=1)
    by.expect_code("a deadline", grpc.StatusCode.DEADLINE_EXCEEDED, error)
    by.expect("the server notices", True, GIVEN_UP.acquire(timeout=PATIENCE_SECONDS))
    by.expect("it knew the deadline", True, bool(WAITED) and 0 < WAITED[0] < 2)


def check_refusals(by):
    """Without a token, over a limit, to a server that is away, to nowhere."""
    error = by.error("Members")
    by.expect_code("no token", grpc.StatusCode.UNAUTHENTICATED, error)
    response, _ = by.call("Members", b"hello", "member")
    by.expect("a token", b"hello", response)

    subject = f"some {by.over}"
    for left in reversed(range(TIMES)):
        _, call = by.call("Some", b"", subject)
        remaining = dict(call.initial_metadata()).get("x-ratelimit-remaining")
        by.expect(f"{left} left", str(left), remaining)
    error = by.error("Some", subject=subject)
    by.expect_code("none left", grpc.StatusCode.RESOURCE_EXHAUSTED, error)
    # Which of both they are in is up to the client's library when there is no message.
    metadata = dict([*error.initial_metadata(), *error.trailing_metadata()]) if error else {}
    missing = {"retry-after", *STANDING} - set(metadata)
    by.expect("what a denial states", set(), missing)
    by.expect("none remaining", "0", metadata.get("x-ratelimit-remaining"))

    by.expect_code("away", grpc.StatusCode.UNAVAILABLE, by.error("Away"))
    try:
        by.channel.unary_unary("/no.Such/Service")(b"", timeout=PATIENCE_SECONDS)
        error = None
    except grpc.RpcError as failure:
        error = failure
    by.expect_code("no route", grpc.StatusCode.UNIMPLEMENTED, error)


def check_counts(by):
    """Many calls at once are counted one by one."""
    with concurrent.futures.ThreadPoolExecutor(CALLS) as callers:
        errors = list(
            callers.map(lambda _: by.error("Many", subject=f"many {by.over}"), range(CALLS))
        )
    codes = [error and error.code() for error in errors]
    by.expect(f"{ALLOWED} of {CALLS} are allowed", ALLOWED, codes.count(None))
    denied = codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED)
    by.expect("all others are denied", CALLS - ALLOWED, denied)


def main():
    """One server, one proxy; every check over cleartext HTTP/2 and over TLS."""
    binary = binary_under_test(__doc__, 180)

    tally = Tally()
    authority = Authority()
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    pool = concurrent.futures.ThreadPoolExecutor(32)
    server = grpc.server(pool, options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, METHODS),))
    ports = {"api": server.add_insecure_port("127.0.0.1:0"), "away": free_port()}
    upstreams = {
        name: {"protocol": "h2", "servers": [f"http://127.0.0.1:{port}"]}
        for name, port in ports.items()
    }
    plan = Plan(
        [],
        limits=LIMITS,
        routes=ROUTES,
        policy={"upstreams": upstreams},
        listeners=[{}, {"tls": tls}],
        files=authority.issue("localhost", "127.0.0.1").files("main"),
    )
    server.start()
    try:
        with proxy(binary, plan, tally) as on:
            plain = grpc.insecure_channel(f"127.0.0.1:{on.port}", OPTIONS)
            trust = grpc.ssl_channel_credentials(authority.pem)
            secure = grpc.secure_channel(f"127.0.0.1:{on.ports[1]}", trust, OPTIONS)
            for channel, over in ((plain, "in plain"), (secure, "over TLS")):
                with channel:
                    check_all(Caller(channel, tally, over))
    finally:
        server.stop(None).wait()
    return tally.conclude()


def check_all(by):
    """Each check on its own: one that breaks off must not hide the next."""
    for check in (
        *(check_kinds, check_metadata, check_errors),
        *(check_deadlines, check_refusals, check_counts),
    ):
        try:
            check(by)
        except grpc.RpcError as error:
            by.expect(check.__name__, None, f"{error.code()}: {error.details()}")


if __name__ == "__main__":
    sys.exit(main())
