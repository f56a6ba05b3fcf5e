"""What is checked of one topology, from the first request to the loss of all servers' addresses."""

import json
import time
from ipaddress import ip_address

from checks import Checks
from engine import eventually
from traffic import (
    CALLERS,
    JWT_SECRET,
    LOAD_HOST,
    LOAD_LIMIT,
    Load,
    admitted,
    seconds_without_redis,
    token,
)

# For free callers, in config/compose/policies/api.yaml.
SEARCHES = 10
# Charges of one caller that a primary took and did not pass on before it was killed, at most.
LOST_IN_FAILOVER = 5
# Before a primary is killed, and while it is away when no server takes its place.
QUIET_SECONDS = 3
FAILOVER_SECONDS = 20
# How often something is tried for which Redis has to answer in time, which it may not on a busy
# machine.
ATTEMPTS = 10


class Trial(Checks):
    """The checks of one topology, with what they need."""

    def __init__(self, topology, compose, port, tally):
        super().__init__(topology.name, compose, port, tally)
        self.topology = topology
        # Authorization fields of callers who have used up their limit.
        self.spent = []

    def run(self):
        """All checks, in an order in which each finds what it needs."""
        self.print_figures(f"up after {self.up():.0f} s")
        self.check_health()
        self.check_confinement("tollgate", "sample-api", self.topology.victim)
        self.check_callers()
        self.check_exactness()
        self.check_outage()
        self.check_new_addresses()
        self.check_new_containers()

    def check_health(self):
        """A container's health is what the binary says, and that is no when it should be."""
        probe = self.compose.inspect("tollgate")["Config"]["Healthcheck"]["Test"]
        self.expect("the health check", ["CMD", "tollgate", "health"], probe[:3])
        healthy = self.compose.execute("tollgate", *probe[1:])
        self.expect(f"exit code of health ({healthy.stderr.strip()})", 0, healthy.returncode)
        unhealthy = self.compose.execute("tollgate", *probe[1:3], "--address", "127.0.0.1:1")
        self.expect("exit code of health without a listener", 1, unhealthy.returncode)
        others = ("sample-api", self.topology.victim)
        eventually(
            f"{' and '.join(others)} are healthy",
            lambda: all(self.compose.health(service) == "healthy" for service in others),
        )

    def check_callers(self):
        """The shipped policy knows who is calling, and what they may."""
        anonymous = self.get("/user")
        self.expect("status without a token", 200, anonymous.status)
        self.expect("limit without a token", "60", anonymous.headers.get("x-ratelimit-limit"))
        bad = self.get("/user", authorization="Bearer x")
        self.expect("status with a bad token", 401, bad.status)

        # The command that docker-compose.yml gives to paste.
        secret = ["--secret-env", "TOLLGATE_JWT_SECRET"]
        mint = ["tollgate", "token", *secret, "--sub", "42", "--plan", "pro"]
        minted = self.compose.execute("tollgate", *mint).stdout.strip()
        user = self.get("/user", authorization=f"Bearer {minted}")
        self.expect("status with a token", 200, user.status)
        identity = json.loads(user.body or "{}")
        self.expect("the identity that the API receives", {"id": "42", "tier": "pro"}, identity)
        self.expect("a pro's limit", "15000", user.headers.get("x-ratelimit-limit"))

    def check_exactness(self):
        """Headers count down to the denial, on which they all agree; a 304 costs nothing."""
        for attempt in range(ATTEMPTS):
            ada = f"Bearer {token(f'ada-{attempt}', JWT_SECRET)}"
            known = self.get("/repos/o/r", authorization=ada)
            etag = known.headers.get("etag", "")
            again = self.get("/repos/o/r", authorization=ada, if_none_match=etag)
            searches = [self.get("/search/x", authorization=ada) for _ in range(SEARCHES + 2)]
            if all(answer.is_redis for answer in (known, again, *searches)):
                break
        self.expect("statuses of what is known", (200, 304), (known.status, again.status))
        used = [answer.headers.get("x-ratelimit-used") for answer in (known, again)]
        self.expect("used before and after a 304", ["1", "1"], used)
        sources = {answer.headers.get("x-tollgate-store") for answer in searches}
        self.expect("who decides but Redis", {None}, sources)
        statuses = [search.status for search in searches]
        self.expect("statuses of searches", [200] * SEARCHES + [429] * 2, statuses)
        remaining = [search.headers.get("x-ratelimit-remaining") for search in searches]
        wanted = [str(max(0, SEARCHES - 1 - number)) for number in range(SEARCHES + 2)]
        self.expect("remaining searches", wanted, remaining)
        resets = {search.headers.get("x-ratelimit-reset") for search in searches}
        self.expect("number of reset times", 1, len(resets))
        denied = searches[-1].headers
        self.expect("the limit that denied", "search", denied.get("x-ratelimit-resource"))
        retry_after = denied.get("retry-after", "none")
        in_window = retry_after.isdecimal() and 1 <= int(retry_after) <= 60
        self.expect_so("retry-after is within the window", in_window, retry_after)

    def check_outage(self):
        """A primary is killed under load: all are answered, and no caller gets much more."""
        victim, heir = self.topology.victim, self.topology.heir
        with Load(self.port, JWT_SECRET, self.topology.name) as load:
            time.sleep(QUIET_SECONDS)
            self.compose("kill", "-s", "KILL", victim)
            killed = time.monotonic()
            if heir is None:
                time.sleep(QUIET_SECONDS)
            else:
                self.wait_for_failover(heir)
            replaced = time.monotonic()
            if heir is None:
                self.up(victim)
            try:
                eventually("Redis has denied everybody", load.is_spent)
            except RuntimeError as error:
                self.expect_so("Redis decides again", False, error)
        if heir is not None:
            self.up(victim)
            eventually(f"{victim} follows {heir}", lambda: self.is_replica(victim))
        self.print_outage(load, killed)
        self.judge_outage(load, killed, replaced)
        self.spent = [f"Bearer {token}" for token in load.tokens.values()]

    def wait_for_failover(self, heir):
        """The replica takes over by itself."""
        took = eventually(f"{heir} takes over", lambda: self.role(heir)[0] == "master")
        self.expect_so(f"{heir} takes over in time", took < FAILOVER_SECONDS, f"{took:.1f} s")
        self.print_figures(f"{heir} took over after {took:.1f} s")

    def is_replica(self, service):
        """Whether a server follows another one and is up to date."""
        role = self.role(service)
        return role[0] == "slave" and "connected" in role

    def role(self, service):
        """A server's role; of a replica also its primary, and how far the two are connected."""
        return self.compose.execute(service, "redis-cli", "role").stdout.split("\n")

    def print_outage(self, load, killed):
        """The figures of an outage."""
        callers = load.answers.values()
        answers = [answer for answers in callers for answer in answers]
        without_redis = [answer for answer in answers if not answer.is_redis]
        healed = max(seconds_without_redis(answers, killed) for answers in callers)
        extra = sum(max(0, admitted(answers) - LOAD_LIMIT) for answers in callers)
        self.print_figures(
            f"{self.topology.victim} killed under load: {len(answers)} answers,"
            f" {len(load.failures)} failures, {len(without_redis)} decided without Redis;"
            f" it decides about everybody again after {healed:.1f} s;"
            f" {extra} admitted beyond {CALLERS} limits of {LOAD_LIMIT}"
        )
        self.expect_so("the outage was noticed", without_redis, "no decision without Redis")

    def judge_outage(self, load, killed, replaced):
        """Callers with Redis all the time have exactly their limit, the others about that."""
        self.expect("requests that failed", [], load.failures[:5])
        self.expect("statuses other than 200 and 429", {}, load.unexpected())
        lost = LOST_IN_FAILOVER if self.topology.heir else 0
        meanwhile = []
        for caller, answers in load.answers.items():
            without_redis = [answer for answer in answers if not answer.is_redis]
            count = admitted(answers)
            if not without_redis:
                self.expect(f"admitted of {caller}, not affected by it", LOAD_LIMIT, count)
            else:
                # A charge whose outcome is unknown may count in Redis and in the proxy.
                least = LOAD_LIMIT - len(without_redis)
                most = LOAD_LIMIT + admitted(without_redis) + lost
                seen = f"{count}, not within {least}..={most}"
                self.expect_so(f"admitted of {caller}", least <= count <= most, seen)
            meanwhile += [answer.is_redis for answer in answers if killed < answer.at < replaced]
        if self.topology.victim_serves_a_part:
            # Two thirds, were it not for chance and a busy machine.
            seen = f"{sum(meanwhile)} of {len(meanwhile)}"
            is_most = sum(meanwhile) > len(meanwhile) / 3
            self.expect_so("the others are decided by Redis meanwhile", is_most, seen)

    def check_new_addresses(self):
        """All servers stop, and come back in another order with other addresses.

        That is how it is after the machine was restarted, without an operator to run Compose.
        """
        servers = [name for name in self.compose.running() if name.startswith("redis")]
        before = {server: self.compose.address(server) for server in servers}
        # The server with the last address comes first, and so gets one that was another's.
        servers.sort(key=lambda server: ip_address(before[server]), reverse=True)
        self.compose("stop", *servers)
        for server in servers:
            self.compose.start(server)
        after = {server: self.compose.address(server) for server in servers}
        if len(servers) > 1:
            self.expect_so("addresses have changed", before != after, after)
        took = eventually("Redis decides for everybody again", self.is_remembered)
        self.print_figures(f"all servers were stopped and started, and decide {took:.1f} s later")

    def check_new_containers(self):
        """Containers are made anew around the volumes, and what was counted still counts."""
        self.up()
        self.compose("down")
        self.up()
        eventually("spent callers are still denied", self.is_remembered)
        # So many that each server has some, and takes what they write.
        late = [f"Bearer {token(f'late-{number}', JWT_SECRET)}" for number in range(CALLERS)]
        eventually(
            "new callers are admitted",
            lambda: all(self.load_status(caller) == (200, True) for caller in late),
        )

    def is_remembered(self):
        """Whether Redis denies each caller who has used up his limit."""
        return all(self.load_status(caller) == (429, True) for caller in self.spent)

    def load_status(self, authorization):
        """The status of a request like those of the load, and whether Redis decided."""
        answer = self.get("/user", host=LOAD_HOST, authorization=authorization)
        return answer.status, answer.is_redis
