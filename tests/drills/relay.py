"""A way to a server that can be closed without notice to either end, as when a cable is cut.

`Relay` is the handle; run as a script, this file is the relay's own process:

    relay.py PORT      forwards to that port of loopback, and prints the port that it listens on

Each line of its input says what it does from then on: `pass`, `swallow` (what is sent waits, as TCP
would send it again, and arrives once the way is open), `lag SECONDS` (everything arrives so much
later), `cut` (open connections end and new ones too).
"""

import asyncio
import contextlib
import subprocess
import sys

PIECE_BYTES = 1 << 16


class Relay:
    """A relay to a port, in a process of its own, until it is stopped."""

    def __init__(self, port):
        command = [sys.executable, "-B", __file__, str(port)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port = int(self.process.stdout.readline())

    def say(self, order):
        """Changes what it does; returns when it does so."""
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def stop(self):
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def start_relay(stage, port):
    """Starts a relay that ends with the drill."""
    relay = Relay(port)
    stage.callback(relay.stop)
    return relay


class Way:
    """What the process does with connections."""

    def __init__(self, port):
        self.port = port
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.lag = 0.0
        self.is_cut = False
        self.writers = set()

    def obey(self, order):
        """One line of input."""
        word, *seconds = order.split()
        self.lag = float(seconds[0]) if word == "lag" else 0.0
        self.is_cut = word == "cut"
        if word == "swallow":
            self.is_open.clear()
        else:
            self.is_open.set()
        if self.is_cut:
            for writer in self.writers:
                writer.transport.abort()

    async def serve(self, reader, writer):
        """One connection, in both directions."""
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there_writer}
        self.writers |= ends
        await asyncio.gather(self.carry(reader, there_writer), self.carry(there_reader, writer))
        self.writers -= ends

    async def carry(self, reader, writer):
        """One direction: reads at once, and hands on when it may."""
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue()

        async def deliver():
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self.is_open.wait()
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()

        delivering = loop.create_task(deliver())
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                pieces.put_nowait((loop.time() + self.lag, piece))
        pieces.put_nowait((loop.time() + self.lag, b""))
        with contextlib.suppress(OSError):
            await delivering
        # The other direction of a server that is gone has nothing to say.
        writer.transport.abort()


async def main():
    """Serves until its input ends."""
    way = Way(int(sys.argv[1]))
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop, orders = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while order := await orders.readline():
        way.obey(order.decode())
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
