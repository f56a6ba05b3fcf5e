"""What is checked of the service while systemd runs it, from its first request to bad settings."""

import contextlib
import stat
import subprocess
import threading
import time

from machine import ROOT, UNITS, Machine, eventually

# Where the units and the settings below listen.
ADDRESS = "127.0.0.1:8080"
API = "127.0.0.1:9000"
# A name, as looking it up takes more than connecting.
HOSTS = "127.0.0.1 localhost api.internal\n"
CERTIFICATE = "/etc/credstore/tollgate.tls.pem"
SNAPSHOT = "var/lib/private/tollgate/counters.snapshot"
# More than `flush`, which is the most that is lost when the process is killed.
FLUSHED_SECONDS = 2

IN_PROCESS = "memory: { snapshot: { file: /var/lib/tollgate/counters.snapshot } }"
# The deadline is long, as a machine that does much else is slow to read.
ON_DISK = "disk: { path: /var/lib/tollgate/counters }\n  deadline: 5s"
SETTINGS = f"""
version: 1
listeners:
  - address: {ADDRESS}
    tls:
      certificates:
        - certificate_file: ${{CREDENTIALS_DIRECTORY:-/etc/credstore}}/tollgate.tls.pem
          key_file: ${{CREDENTIALS_DIRECTORY:-/etc/credstore}}/tollgate.tls.key
policies: policies
store:
  {IN_PROCESS}
handover: /run/tollgate/next.sock
admin: {{ address: 127.0.0.1:9901 }}
drain: 5s
"""
POLICY = """
version: 1
upstreams: { api: { servers: [http://api.internal:9000] } }
identity: { callers: [{ name: anonymous, key: client.ip }] }
limits: { core: { per: caller, rate: RATE/hour } }
routes: [{ match: { path: "/**" }, auth: none, limits: [core] }]
"""
# As it is shipped, a call that the filter does not have fails, and the program may go on all the
# same. This way it ends at the first one, and the log says so.
STRICT = "[Service]\nSystemCallErrorNumber=kill\n"


class ServiceTrial:
    """The checks, with what they need."""

    def __init__(self, binary, folder, tally):
        self.tally = tally
        self.folder = folder
        files = {f"/etc/systemd/system/{unit.name}": unit.read_text() for unit in UNITS.iterdir()}
        files["/etc/systemd/system/tollgate.service.d/strict.conf"] = STRICT
        files["/etc/hosts"] = HOSTS
        files["/etc/tollgate/tollgate.yaml"] = SETTINGS
        files["/etc/tollgate/policies/api.yaml"] = policy(1_000)
        self.machine = Machine(folder, {"tollgate": binary}, files)
        self.make_certificate()
        wanted = self.machine.root / "etc/systemd/system/sockets.target.wants"
        wanted.mkdir()
        (wanted / "tollgate.socket").symlink_to("/etc/systemd/system/tollgate.socket")

    def run(self):
        """All checks, in an order in which each finds what it needs."""
        with self.machine, self.api():
            try:
                self.check_configuration()
                self.check_start()
                self.check_sandbox()
                self.check_reload()
                self.check_restart()
                self.check_stop()
                self.check_disk()
                self.check_handover()
                self.check_bad_settings()
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                self.tally.record("the service: to the end", [repr(error)])
            if self.tally.failed:
                print(self.machine.run("journalctl", "--no-pager", "--lines", "60"))

    def check_configuration(self):
        """Root can check the settings outside of the service, where the secrets are kept."""
        done = self.machine.attempt("tollgate", "check", "/etc/tollgate/tollgate.yaml")
        self.expect_so("tollgate check passes", done.returncode == 0, done.stdout + done.stderr)

    def check_start(self):
        """The first connection starts the service, which answers it over TLS."""
        self.expect("state before a request", "inactive", self.state())
        status, used = self.get()
        self.expect("status of the first request", "200", status)
        self.expect("used after the first request", 1, used)
        self.expect("state after a request", "active", self.state())

    def check_sandbox(self):
        """The process has no privilege, and no other user can read its secrets."""
        status = self.machine.run("cat", f"/proc/{self.process()}/status")
        fields = dict(line.split(":\t", 1) for line in status.split("\n") if ":\t" in line)
        self.expect("filter of system calls", "2", fields.get("Seccomp"))
        self.expect("no new privileges", "1", fields.get("NoNewPrivs"))
        self.expect("capabilities", 0, int(fields.get("CapBnd", "1"), 16))
        self.expect("umask", "0077", fields.get("Umask"))
        user = fields.get("Uid", "0").split()[0]
        self.expect("is root", False, user == "0")
        key = "/run/credentials/tollgate.service/tollgate.tls.key"
        seen = self.machine.run("stat", "--format", "%u %a", key).strip()
        self.expect("owner and mode of the key's copy", f"{user} 400", seen)

    def check_reload(self):
        """`systemctl reload` has a changed policy read by the same process."""
        before = self.process()
        self.machine.write("/etc/tollgate/policies/api.yaml", policy(2_000))
        self.machine.run("systemctl", "reload", "tollgate")
        eventually("the new rate is in force", lambda: "2000" in self.head())
        self.expect("process after a reload", before, self.process())

    def check_restart(self):
        """Clients notice nothing of a restart, and counters are kept."""
        before, (_, used) = self.process(), self.get()
        answers, is_over = [], threading.Event()

        def ask():
            while not is_over.is_set():
                answers.append(self.get())

        client = threading.Thread(target=ask)
        client.start()
        try:
            self.machine.run("systemctl", "restart", "tollgate")
            eventually("a request after the restart", lambda: len(answers) > 5)
        finally:
            is_over.set()
            client.join()
        self.expect_so("another process", self.process() != before, before)
        self.expect("statuses during a restart", {"200"}, {status for status, _ in answers})
        counts = [count for _, count in answers]
        # What was in flight when the counters were written is not in them.
        self.expect_so("counters go on", counts[-1] >= used + len(counts) - 1, counts)

    def check_stop(self):
        """It ends with 0 and leaves a file of counters for itself alone."""
        self.machine.run("systemctl", "stop", "tollgate.socket", "tollgate.service")
        self.expect("result", "success", self.machine.show("tollgate.service", "Result"))
        mode = stat.S_IMODE((self.machine.root / SNAPSHOT).stat().st_mode)
        self.expect("mode of the snapshot", 0o600, mode)

    def check_disk(self):
        """Counters on disk go on after the process was killed, and are for the service alone."""
        self.machine.write("/etc/tollgate/tollgate.yaml", SETTINGS.replace(IN_PROCESS, ON_DISK))
        self.machine.run("systemctl", "start", "tollgate.socket")
        counts = [self.get()[1] for _ in range(3)]
        self.expect("used on disk", [1, 2, 3], counts)
        time.sleep(FLUSHED_SECONDS)
        before = self.process()
        self.machine.run("systemctl", "kill", "--signal", "KILL", "tollgate")
        eventually("another process", lambda: self.process() not in ("0", before))
        self.expect("used after it was killed", ("200", 4), self.get())
        folder = self.machine.root / "var/lib/private/tollgate"
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "counters")]
        self.expect("modes of the folders", [0o700, 0o700], modes)
        command = ["tollgate", "store", "stat", "--config", "/etc/tollgate/tollgate.yaml"]
        done = self.machine.attempt(*command)
        self.expect_so("tollgate store stat", done.returncode == 0, done.stdout + done.stderr)
        self.machine.run("systemctl", "stop", "tollgate.socket", "tollgate.service")
        self.expect("result with a disk", "success", self.machine.show("tollgate.service", "Result"))

    def check_handover(self):
        """In the sandbox one process takes the sockets over from another, and the counters on disk;
        no socket unit does.
        """
        unit = (UNITS / "tollgate.service").read_text()
        alone = unit.replace("Requires=tollgate.socket\n", "")
        alone = alone.replace("After=tollgate.socket ", "After=")
        self.expect_so("the unit names the socket unit", alone != unit, unit)
        services = ("tollgate-first.service", "tollgate-second.service")
        for service in services:
            # Of two units with a dynamic user each has its own, unless they name it.
            text = alone.replace("[Service]\n", "[Service]\nUser=tollgate\n") + STRICT
            self.machine.write(f"/etc/systemd/system/{service}", text)
        self.machine.run("systemctl", "daemon-reload")
        for service in services:
            self.machine.run("systemctl", "start", service)
        first, second = services
        eventually("the first has ended", lambda: self.state(first) == "inactive")
        self.expect("result of the first", "success", self.machine.show(first, "Result"))
        self.expect("state of the second", "active", self.state(second))
        self.expect("status and used from the second", ("200", 5), self.get())
        self.machine.run("systemctl", "stop", second)
        self.expect("result of the second", "success", self.machine.show(second, "Result"))

    def check_bad_settings(self):
        """A bad configuration is not started again and again, and a mended one starts at once."""
        self.machine.run("systemctl", "start", "tollgate.service")
        self.machine.write("/etc/tollgate/tollgate.yaml", "version: 2\n")
        started = self.machine.attempt("systemctl", "restart", "tollgate.service")
        self.expect_so("a start with bad settings fails", started.returncode != 0, started)
        self.expect("its exit code", "64", self.machine.show("tollgate.service", "ExecMainStatus"))
        self.expect("its state", "failed", self.state())
        self.expect("further starts", "0", self.machine.show("tollgate.service", "NRestarts"))
        # For a client the socket starts it, again and again, which ends with the socket.
        # Without TLS, as it waits then for an answer.
        self.machine.attempt("curl", "-sS", "--max-time", "10", f"http://{ADDRESS}/")
        self.machine.write("/etc/tollgate/tollgate.yaml", SETTINGS)
        restarted = self.machine.attempt("systemctl", "restart", "tollgate.service")
        self.expect_so("a start when it is mended", restarted.returncode == 0, restarted)
        self.expect("status after that", "200", self.get()[0])
        self.machine.run("systemctl", "stop", "tollgate.socket", "tollgate.service")

    def make_certificate(self):
        """A certificate and its key, where the unit has them loaded from."""
        store = self.machine.root / "etc/credstore"
        store.mkdir(mode=0o700)
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", store / "tollgate.tls.pem", "-keyout", store / "tollgate.tls.key"),
        ]
        subprocess.run(command, check=True, capture_output=True)

    @contextlib.contextmanager
    def api(self):
        """An upstream in the machine's network."""
        site = self.folder / "site"
        site.mkdir()
        (site / "index.html").write_text("hello\n")
        host, port = API.split(":")
        server = subprocess.Popen(
            [
                *("nsenter", "--target", str(self.machine.leader()), "--net", "/usr/bin/python3"),
                *("-m", "http.server", "--bind", host, "--directory", site, port),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually(
                "the API answers",
                lambda: self.machine.attempt("curl", "-sS", f"http://{API}/").returncode == 0,
            )
            yield
        finally:
            server.terminate()
            server.wait()

    def head(self):
        """The head of an answer."""
        curl = ["curl", "-sS", "--cacert", CERTIFICATE, "--http1.1", "-o", "/dev/null", "-D", "-"]
        return self.machine.run(*curl, f"https://{ADDRESS}/")

    def get(self):
        """Status of a request, and how much of the limit is used then."""
        lines = self.head().splitlines()
        fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        return lines[0].split()[1], int(fields.get("x-ratelimit-used", "0"))

    def state(self, service="tollgate.service"):
        """Whether a service is active."""
        return self.machine.show(service, "ActiveState")

    def process(self):
        """The number of the service's process."""
        return self.machine.show("tollgate.service", "MainPID")

    def expect(self, what, wanted, seen):
        """Records a check."""
        problems = [] if wanted == seen else [f"wanted {wanted!r}, got {seen!r}"]
        self.tally.record(f"the service: {what}", problems)

    def expect_so(self, what, is_so, seen):
        """Records a check of something that is so or not."""
        self.tally.record(f"the service: {what}", [] if is_so else [f"got {seen}"])


def policy(rate):
    """A policy with this rate."""
    return POLICY.replace("RATE", str(rate))
