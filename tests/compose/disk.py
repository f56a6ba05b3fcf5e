"""What is checked of docker-compose.disk.yml: no Redis runs, the proxy can write to its volume and to
nothing else, and what was counted still counts after it was killed and in a new container."""

import json
import time

from engine import eventually
from traffic import CALLERS, JWT_SECRET, LOAD_LIMIT, Load, admitted, token
from trial import Trial

USER = "10001"
FOLDER = "/var/lib/tollgate/counters"
# More than `flush`, which is the most that is lost when the process is killed.
FLUSHED_SECONDS = 2


class DiskTrial(Trial):
    """The checks. What is killed under load is the proxy itself."""

    def run(self):
        """All checks, in an order in which each finds what it needs."""
        self.print_figures(f"up after {self.up():.0f} s")
        self.check_health()
        self.check_confinement("tollgate", "sample-api")
        self.check_services()
        self.check_folder()
        self.check_callers()
        self.check_exactness()
        self.check_commands()
        self.check_kill()
        self.check_new_containers()
        self.check_stop()

    def check_services(self):
        """Nothing else runs, and the disk decides."""
        self.expect("services", ["sample-api", "tollgate"], self.compose.running())
        self.get("/user", x_request_id="who-decides")
        eventually("the disk has decided", lambda: "disk" in self.deciders())
        self.expect("who decides", {"disk"}, self.deciders())

    def deciders(self):
        """Who has decided about requests, as the access log says."""
        log = self.compose("logs", "--no-color", "tollgate")
        lines = [line[line.index("{") :] for line in log.split("\n") if '"decided_by":' in line]
        return {json.loads(line).get("decided_by") for line in lines}

    def check_folder(self):
        """The counters are in the volume, for the proxy's user alone."""
        folder = self.compose.process("tollgate") / "root" / FOLDER.lstrip("/")
        seen = folder.stat()
        owner_and_mode = f"{seen.st_uid} {seen.st_mode & 0o777:o}"
        self.expect("owner and mode of the folder", f"{USER} 700", owner_and_mode)
        mode = f"{(folder / 'counters').stat().st_mode & 0o777:o}"
        self.expect("mode of the file with the secret", "600", mode)
        mounts = self.compose.inspect("tollgate")["Mounts"]
        writable = [mount["Destination"] for mount in mounts if mount["RW"]]
        self.expect("where it can write", ["/var/lib/tollgate"], writable)

    def check_commands(self):
        """`tollgate store` asks the proxy, which copies its counters into its volume."""
        copy = "/var/lib/tollgate/copy"
        for order in (["stat"], ["check"], ["backup", copy], ["check", "--path", copy]):
            settings = [] if "--path" in order else ["--config", "/etc/tollgate/tollgate.yaml"]
            done = self.compose.execute("tollgate", "tollgate", "store", *order, *settings)
            said = done.stdout + done.stderr
            self.expect_so(f"tollgate store {' '.join(order)}", done.returncode == 0, said)

    def check_kill(self):
        """The proxy is killed: who has used up his limit has still used it up."""
        with Load(self.port, JWT_SECRET, self.name) as load:
            eventually("everybody was denied", load.is_spent)
        self.expect("requests that failed", [], load.failures[:5])
        for caller, answers in load.answers.items():
            self.expect(f"admitted of {caller}", LOAD_LIMIT, admitted(answers))
        self.spent = [f"Bearer {token}" for token in load.tokens.values()]
        time.sleep(FLUSHED_SECONDS)
        self.compose("kill", "-s", "KILL", "tollgate")
        took = self.up()
        self.print_figures(f"killed with {CALLERS} spent callers, and up again after {took:.1f} s")
        answers = [self.load_status(caller) for caller in self.spent]
        self.expect("of spent callers, after it was killed", [(429, True)] * CALLERS, answers)
        late = f"Bearer {token('late', JWT_SECRET)}"
        self.expect("of a new caller", (200, True), self.load_status(late))

    def check_stop(self):
        """It ends in good order, and is not killed."""
        self.compose("stop", "tollgate")
        self.expect("exit code", 0, self.compose.inspect("tollgate")["State"]["ExitCode"])
