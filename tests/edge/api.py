"""An API behind the proxy, in a process of its own: what it does is in the path.

    /bytes/N      N bytes
    /wait/S       an answer after S seconds
    /status/N     an answer with that status
    /size         how many bytes the request's body has
    /slow-size    the same, read slowly
    anything      ok

and the same below `/bulk`.
"""

import asyncio
import sys

PIECE = bytes(1 << 16)
SLOW_PIECE_BYTES = 1 << 18
SLOW_PAUSE_SECONDS = 0.02


class Connection(asyncio.Protocol):
    """Reads requests and answers them in turn."""

    def connection_made(self, transport):
        """Nothing has come yet."""
        self.transport = transport
        self.buffer = bytearray()
        # What is left of a body, or of a chunk; None: a head comes next.
        self.left = None
        self.chunked = False
        self.size = 0
        self.since_pause = 0
        self.path = ""
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.busy = False

    def connection_lost(self, _error):
        """Wakes the writer, which need not wait any more."""
        self.may_write.set()

    def pause_writing(self):
        """The proxy reads slowly."""
        self.may_write.clear()

    def resume_writing(self):
        """It has caught up."""
        self.may_write.set()

    def data_received(self, data):
        """Takes as much as is complete."""
        self.buffer += data
        self.advance()

    def advance(self):
        """Reads heads and bodies until something is missing, or an answer takes a while."""
        while not self.busy:
            if self.left is None:
                end = self.buffer.find(b"\r\n\r\n")
                if end < 0:
                    return
                self.read_head(bytes(self.buffer[:end]))
                del self.buffer[: end + 4]
            if not self.read_body():
                return
            self.left = None
            self.answer()

    def read_head(self, head):
        """The path, and how long the body is."""
        request_line, *lines = head.decode("latin-1").split("\r\n")
        split = (line.partition(":") for line in lines)
        fields = {name.lower(): value.strip() for name, _, value in split}
        self.path = request_line.split(" ")[1].removeprefix("/bulk")
        self.chunked = "transfer-encoding" in fields
        self.left = 0 if self.chunked else int(fields.get("content-length", 0))
        self.size = 0
        if fields.get("expect") == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def read_body(self):
        """Counts what has come; whether that is all."""
        while True:
            taken = min(self.left, len(self.buffer))
            del self.buffer[:taken]
            self.left -= taken
            self.count(taken)
            if self.left:
                return False
            if not self.chunked:
                return True
            # The line break after a chunk belongs to the next size; trailers are not expected.
            start = 2 if self.size else 0
            end = self.buffer.find(b"\r\n", start)
            if end < 0:
                return False
            size = int(bytes(self.buffer[start:end]), 16)
            if size == 0:
                if len(self.buffer) < end + 4:
                    return False
                del self.buffer[: end + 4]
                return True
            del self.buffer[: end + 2]
            self.left = size

    def count(self, taken):
        """A slow reader stops for a moment every so many bytes."""
        self.size += taken
        self.since_pause += taken
        if self.path == "/slow-size" and self.since_pause >= SLOW_PIECE_BYTES:
            self.since_pause = 0
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(
                SLOW_PAUSE_SECONDS, self.transport.resume_reading
            )

    def answer(self):
        """At once, unless the path says otherwise."""
        _, kind, *rest = self.path.partition("?")[0].split("/")
        match kind:
            case "bytes" | "wait":
                self.busy = True
                self.task = asyncio.get_running_loop().create_task(self.answer_later(kind, rest))
            case "status":
                self.respond(b"", rest[0])
            case "size" | "slow-size":
                self.respond(str(self.size).encode())
            case _:
                self.respond(b"ok")

    def respond(self, body, status="200"):
        """A whole response."""
        head = f"HTTP/1.1 {status} Status\r\ncontent-type: text/plain\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def answer_later(self, kind, rest):
        """What takes a while; the requests behind it wait."""
        if kind == "wait":
            await asyncio.sleep(float(rest[0]))
            self.respond(b"ok")
        else:
            left = int(rest[0])
            self.transport.write(f"HTTP/1.1 200 OK\r\ncontent-length: {left}\r\n\r\n".encode())
            while left and not self.transport.is_closing():
                piece = PIECE[: min(left, len(PIECE))]
                self.transport.write(piece)
                left -= len(piece)
                await self.may_write.wait()
        self.busy = False
        self.advance()


async def main():
    """Serves until it is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
