"""What trials share: a composition, requests to it, and the record of what was seen."""

import time

from engine import eventually
from traffic import Client


class Checks:
    """Checks of one composition, recorded under a name."""

    def __init__(self, name, compose, port, tally):
        self.name = name
        self.compose = compose
        self.port = port
        self.tally = tally

    def print_figures(self, figures):
        """Prints what is worth knowing even when all is well."""
        print(f"{self.name}: {figures}")

    def expect(self, what, wanted, seen):
        """Records a check."""
        problems = [] if wanted == seen else [f"wanted {wanted!r}, got {seen!r}"]
        self.tally.record(f"{self.name}: {what}", problems)

    def expect_so(self, what, is_so, seen):
        """Records a check of something that is so or not."""
        self.tally.record(f"{self.name}: {what}", [] if is_so else [f"got {seen}"])

    def up(self, *services):
        """Starts what does not run, and waits until the proxy is healthy; gives the seconds."""
        started = time.monotonic()
        self.compose("up", "-d", "--no-build", *services)
        eventually("tollgate is healthy", lambda: self.compose.health("tollgate") == "healthy")
        return time.monotonic() - started

    def get(self, path, **headers):
        """One request on a connection of its own."""
        return Client(self.port).get(path, **headers)

    def check_confinement(self, *services):
        """Not root, nothing to write to, no capability, no way to get any."""
        for service in services:
            process = self.compose.process(service)
            status = (process / "status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.split("\n") if ":\t" in line)
            self.expect_so(f"{service} is not root", "0" not in fields["Uid"].split(), fields["Uid"])
            mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
            [options] = [mount[5] for mount in mounts if mount[4] == "/"]
            self.expect_so(f"{service}'s root is read-only", "ro" in options.split(","), options)
            self.expect(f"{service}'s capabilities", 0, int(fields.get("CapBnd", "1"), 16))
            self.expect(f"{service} gets no new privileges", "1", fields.get("NoNewPrivs"))
