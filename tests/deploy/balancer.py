"""Balancers in front of the pods of a Service: they hand connections to one pod after the other, and hear late
that one goes.
"""

import asyncio
import itertools
import threading


class Balancer:
    """As kube-proxy does it: a connection stays with its pod, whatever happens to the list of pods.

    A connection that its pod does not take is closed: nobody tries another pod for it.
    """

    def __init__(self):
        # Ports of the pods.
        self.pods = []
        # How many connections each has had, and how many it did not take.
        self.handed = {}
        self.refused = 0
        self.turns = itertools.count()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        begun = asyncio.run_coroutine_threadsafe(self.listen(), self.loop)
        self.port = begun.result(timeout=30)
        return self

    def __exit__(self, *_error):
        asyncio.run_coroutine_threadsafe(self.end(), self.loop).result(timeout=30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def end(self):
        """Closes what is open."""
        self.server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def listen(self):
        """Begins, at a port that is free."""
        self.server = await asyncio.start_server(self.connect, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def connect(self, reader, writer):
        """One connection, from its beginning to its end."""
        pods = self.pods
        pod = pods[next(self.turns) % len(pods)]
        self.handed[pod] = self.handed.get(pod, 0) + 1
        try:
            pod_reader, pod_writer = await asyncio.open_connection("127.0.0.1", pod)
        except OSError:
            self.refused += 1
            writer.transport.abort()
            return
        await asyncio.gather(pass_on(reader, pod_writer), pass_on(pod_reader, writer))


async def pass_on(reader, writer):
    """Bytes in one direction, until that has ended."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        writer.transport.abort()
    finally:
        writer.close()
