"""WebSockets through the proxy, with a client and a server that are not ours: what they say, who
may open one, how long one counts, and how it ends when either side goes away."""

import asyncio
import contextlib
import ssl
import sys

import websockets
from certificates import Authority
from stage import (
    ANYTHING,
    MEBIBYTE,
    PATIENCE_SECONDS,
    Plan,
    Tally,
    bearer,
    binary_under_test,
    proxy,
)

MANY = 200
AT_ONCE = 2
TIMES = 3
ROUTES = [
    ANYTHING | {"match": {"path": "/members"}, "auth": "required"},
    ANYTHING | {"match": {"path": "/some"}, "limits": ["some"]},
    ANYTHING | {"match": {"path": "/open"}, "limits": ["open"]},
    ANYTHING | {"match": {"path": "/never"}, "upgrades": []},
    ANYTHING,
]
LIMITS = {
    "some": {"per": "caller", "rate": f"{TIMES}/hour"},
    "open": {"per": "caller", "concurrent": AT_ONCE},
}
CLOSE_CODES = (1000, 1001, 1008, 3000, 4999)


async def serve(connection):
    """Echoes each message, or ends the connection as the path says."""
    path = connection.request.path
    # The client checks how it ends.
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in connection:
            if path == "/close":
                await connection.close(int(message), "as you say")
            elif path == "/vanish":
                connection.transport.abort()
            else:
                await connection.send(message)


class Visitor:
    """Opens sockets through the proxy; each check gets this."""

    def __init__(self, on, tally, authority):
        self.on = on
        self.tally = tally
        self.trust = ssl.create_default_context(cadata=authority.pem.decode())

    def open(self, path="/", subject=None, secure=False):
        """A socket, as a context."""
        headers = {"Authorization": bearer(subject)} if subject else {}
        options = {"additional_headers": headers, "proxy": None, "max_size": 4 * MEBIBYTE}
        if secure:
            url = f"wss://localhost:{self.on.ports[1]}{path}"
            return websockets.connect(url, ssl=self.trust, host="127.0.0.1", **options)
        return websockets.connect(f"ws://127.0.0.1:{self.on.port}{path}", **options)

    async def refusal(self, path, subject=None):
        """The response to a socket that is not opened; none when it is."""
        try:
            async with self.open(path, subject):
                return None
        except websockets.InvalidStatus as error:
            return error.response

    def expect(self, name, wanted, seen):
        """A check that one value is another."""
        self.tally.record(name, [] if wanted == seen else [f"{seen!r} instead of {wanted!r}"])


async def check_messages(to):
    """Texts, bytes of all sizes, pings."""
    for secure in (False, True):
        over = "over TLS" if secure else "in plain"
        async with to.open(secure=secure, subject="talker") as socket:
            for size in (0, 1, 125, 126, 65_535, 65_536, MEBIBYTE):
                message = bytes(range(256)) * (size // 256) + bytes(size % 256)
                await socket.send(message)
                to.expect(f"{size} bytes {over}", True, message == await socket.recv())
            for text in ("", "text", "\u00fcber \U0001f511" * 1000):
                await socket.send(text)
                to.expect(f"a text of {len(text)} {over}", text, await socket.recv())
            await (await socket.ping(b"still there?"))
            await socket.send(part for part in ("a message ", "in ", "parts"))
            to.expect(f"a message in parts {over}", "a message in parts", await socket.recv())
            remaining = socket.response.headers.get("x-ratelimit-remaining")
            to.expect(f"limit headers {over}", str(1_000_000 - 1 - secure), remaining)


async def check_ends(to):
    """The code and the reason get through, either way; a server that vanishes is noticed."""
    for code in CLOSE_CODES:
        async with to.open("/close") as socket:
            await socket.send(str(code))
            await socket.wait_closed()
            seen = (socket.close_code, socket.close_reason)
            to.expect(f"the server closes with {code}", (code, "as you say"), seen)
        async with to.open() as socket:
            await socket.close(code, "enough")
            to.expect(f"the client closes with {code}", code, socket.close_code)
    async with to.open("/vanish") as socket:
        await socket.send("now")
        await asyncio.wait_for(socket.wait_closed(), PATIENCE_SECONDS)
        to.expect("the server vanishes", 1006, socket.close_code)


async def check_refusals(to):
    """Who has no token, or has had enough, gets an ordinary response."""
    refused = await to.refusal("/members")
    to.expect("no token", 401, refused and refused.status_code)
    async with to.open("/members", "member") as socket:
        await socket.send("hello")
        to.expect("a token", "hello", await socket.recv())

    for left in reversed(range(TIMES)):
        async with to.open("/some", "some") as socket:
            remaining = socket.response.headers.get("x-ratelimit-remaining")
            to.expect(f"{left} left", str(left), remaining)
    refused = await to.refusal("/some", "some")
    to.expect("none left", 429, refused and refused.status_code)
    to.expect("when to come back", True, bool(refused and refused.headers.get("retry-after")))

    # The server opens the socket only for an Upgrade; without one it has nothing to answer with.
    refused = await to.refusal("/never", "member")
    to.expect("not on this route", True, bool(refused) and refused.status_code != 101)


async def check_leases(to):
    """An open socket is a request in flight, until it is closed."""
    async with contextlib.AsyncExitStack() as sockets:
        opened = [await sockets.enter_async_context(to.open("/open", "u")) for _ in range(AT_ONCE)]
        refused = await to.refusal("/open", "u")
        to.expect("one too many at once", 429, refused and refused.status_code)
        for socket in opened:
            await socket.send("still")
            to.expect("the others go on", "still", await socket.recv())
        await opened[0].close()
        to.expect("one closed makes room", None, await refusal_at_last(to, "/open", "u"))
        # Without a word: the proxy notices that the connection is gone.
        opened[1].transport.abort()
        to.expect("one aborted makes room", None, await refusal_at_last(to, "/open", "u"))


async def refusal_at_last(to, path, subject):
    """The status of a refusal that does not go away; none once there is none."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while (refused := await to.refusal(path, subject)) is not None:
        if asyncio.get_running_loop().time() > deadline:
            return refused.status_code
        await asyncio.sleep(0.05)
    return None


async def check_many(to):
    """Many sockets at once; afterwards nothing is left of them."""
    before = to.on.descriptors()

    async def talk(number):
        async with to.open(subject="many", secure=number % 4 == 0) as socket:
            await everybody.wait()
            await socket.send(f"I am {number}")
            return await socket.recv() == f"I am {number}"

    everybody = asyncio.Barrier(MANY)
    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await asyncio.gather(*(talk(number) for number in range(MANY)))
    to.expect(f"{MANY} at once", MANY, sum(answers))
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    # Two sockets a worker may be kept for the next request.
    while to.on.descriptors() > before + 8 and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
    left = to.on.descriptors() - before
    to.expect(f"nothing is left ({left})", True, left <= 8)


async def visit(binary, tally):
    """One server, one proxy."""
    authority = Authority()
    tls = {"certificates": [{"certificate_file": "main.pem", "key_file": "main.key"}]}
    async with websockets.serve(serve, "127.0.0.1", 0, max_size=4 * MEBIBYTE) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        plan = Plan(
            [f"http://127.0.0.1:{port}"],
            limits=LIMITS,
            routes=ROUTES,
            listeners=[{}, {"tls": tls}],
            files=authority.issue("localhost").files("main"),
        )
        with proxy(binary, plan, tally) as on:
            to = Visitor(on, tally, authority)
            for check in (check_messages, check_ends, check_refusals, check_leases, check_many):
                try:
                    async with asyncio.timeout(2 * PATIENCE_SECONDS):
                        await check(to)
                except (websockets.WebSocketException, OSError) as error:
                    tally.record(check.__name__, [f"{type(error).__name__}: {error}"])


def main():
    """All in one loop: server and client wait for each other's messages."""
    binary = binary_under_test(__doc__, 120)

    tally = Tally()
    asyncio.run(visit(binary, tally))
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
