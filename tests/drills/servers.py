"""Real Redis or Valkey servers: processes of their own, that can be killed, stopped and kept busy."""

import contextlib
import signal
import socket
import subprocess
import threading
from pathlib import Path

from stage import PATIENCE_SECONDS, eventually, free_port, wait_for

START_ATTEMPTS = 5
# The server is busy for so long, and then free for so long: longer and shorter than a deadline.
BUSY_SECONDS = 0.08
FREE_SECONDS = 0.12

CERTIFICATES = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}


class Refused(RuntimeError):
    """A server answered with an error."""


class Server:
    """One server on a port of loopback, with a folder of its own.

    `keeps`: it writes each command to a file before it answers, and has it again when it is
    started anew. Without that it comes back empty. `certificates`: a folder with them, and it speaks
    TLS on another port, too. `sentinel`: what a Sentinel watches, which it is then.
    """

    def __init__(self, program, folder, options=(), keeps=False, certificates=None, sentinel=None):
        self.program = program
        self.folder = Path(folder)
        self.folder.mkdir()
        self.options = list(options)
        self.keeps = keeps
        self.certificates = certificates
        self.sentinel = sentinel
        self.process = None
        for _ in range(START_ATTEMPTS):
            self.port = free_port()
            self.tls_port = free_port() if certificates else None
            with contextlib.suppress(RuntimeError):
                self.start()
                return
        raise RuntimeError(f"{program} does not start: {self.log()}")

    def command(self):
        """What starts it."""
        if self.sentinel is not None:
            return [self.program, "sentinel.conf", "--sentinel"]
        words = ["--port", self.port, "--bind", "127.0.0.1", "--save", ""]
        words += ["--appendonly", "yes" if self.keeps else "no"]
        words += ["--enable-debug-command", "local", "--repl-diskless-sync-delay", "0"]
        if self.certificates is not None:
            words += ["--tls-port", self.tls_port, "--tls-auth-clients", "no"]
            for option, file in CERTIFICATES.items():
                words += [f"--tls-{option}-file", self.certificates / file]
        return [self.program, *map(str, words), *map(str, self.options)]

    def start(self):
        """Starts it, again on the same port, and waits until it answers."""
        if self.sentinel is not None:
            head = f"port {self.port}\nbind 127.0.0.1\n"
            (self.folder / "sentinel.conf").write_text(head + self.sentinel)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.program} ended: {self.log()}")
            with contextlib.suppress(OSError, Refused):
                return self.ask("PING") == "PONG"

        if not eventually(answers):
            raise RuntimeError(f"{self.program} does not answer: {self.log()}")

    def log(self):
        """Its last words."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    @property
    def url(self):
        """Where it is, without TLS."""
        return f"redis://127.0.0.1:{self.port}"

    def ask(self, *words):
        """The reply to a command, on a connection of its own."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as connection:
            connection.sendall(command(words))
            with connection.makefile("rb") as replies:
                return read_reply(replies)

    def info(self, field):
        """A field of `INFO`."""
        lines = self.ask("INFO").splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith(f"{field}:")), "")

    def kill(self):
        """Ends it without a chance to do anything more."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self):
        """Suspends it: connections stay open, and it does not answer."""
        self.process.send_signal(signal.SIGSTOP)
        # The signal is on its way only.
        stopped = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stopped.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self):
        """Has it go on."""
        self.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def busy(self):
        """Until the block ends, it does something slow again and again, and nothing else meanwhile."""
        ended = threading.Event()

        def keep_busy():
            while not ended.wait(FREE_SECONDS):
                with contextlib.suppress(OSError):
                    self.ask("DEBUG", "SLEEP", BUSY_SECONDS)

        thread = threading.Thread(target=keep_busy, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def start_server(stage, *options, **how):
    """Starts a server that ends with the drill."""
    started = Server(stage.programs.server, stage.new_folder("server"), options, **how)
    stage.callback(started.kill)
    return started


def command(words):
    """A command as RESP has it."""
    encoded = [str(word).encode() for word in words]
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
    return b"*%d\r\n%s" % (len(encoded), parts)


def read_reply(replies):
    """One reply: text, a number, a list, or None."""
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server ended the connection")
    kind, rest = line[:1], line[1:-2].decode()
    match kind:
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"-":
            raise Refused(rest)
        case b"$" if int(rest) < 0:
            return None
        case b"$":
            return replies.read(int(rest) + 2)[:-2].decode()
        case b"*":
            return [read_reply(replies) for _ in range(int(rest))]
    raise Refused(f"no reply: {line!r}")


def wait_for_link(replica):
    """Waits until a replica has what its primary has."""
    wait_for("a replica follows", lambda: replica.info("master_link_status") == "up")
