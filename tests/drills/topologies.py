"""The ways in which Redis is run, and how each behaves when one of its primaries fails.

A topology has a `victim`. `hurt` does one of `FAULTS` to it, and `heal` ends that, after which some
server takes charges again, the old one or another.
"""

import contextlib

from relay import start_relay
from servers import start_server, wait_for_link
from stage import free_port, wait_for

FAULTS = ("kill", "pause", "blackhole", "slow")
SLOTS = 16384
SERVICE = "main"
SENTINELS = 3
# A server that is silent for so long is replaced, where anybody replaces it.
SILENCE_MILLISECONDS = 1000


class Topology:
    """What all have in common: servers, and the one that is hurt."""

    # Faults in which another server takes over by itself.
    replaced_by = ()
    # Faults after which some of what was counted may be gone: replicas follow a moment later.
    forgets_by = ()

    def __init__(self, stage):
        self.relay = None
        self.ends_busy = contextlib.ExitStack()
        stage.enter_context(self.ends_busy)

    def hurt(self, fault):
        """Does it to the victim."""
        match fault:
            case "kill":
                self.victim.kill()
            case "pause":
                self.victim.pause()
            case "blackhole":
                self.relay.say("swallow")
            case "slow":
                self.ends_busy.enter_context(self.victim.busy())

    def heal(self, fault):
        """Ends it; returns when some server can take charges."""
        match fault:
            case "kill":
                self.replace()
            case "pause":
                self.victim.resume()
            case "blackhole":
                self.relay.say("pass")
            case "slow":
                self.ends_busy.close()

    def replace(self):
        """What is done by hand about a server that was killed."""
        self.victim.start()


class Single(Topology):
    """One server, behind a relay."""

    name = "single"

    def __init__(self, stage, keeps=True, certificates=None):
        super().__init__(stage)
        self.certificates = certificates
        self.victim = start_server(stage, keeps=keeps, certificates=certificates)
        self.relay = start_relay(stage, self.victim.tls_port or self.victim.port)

    def settings(self):
        """The proxies' `store.redis`."""
        if self.certificates is None:
            return {"url": f"redis://127.0.0.1:{self.relay.port}"}
        url = f"rediss://127.0.0.1:{self.relay.port}"
        return {"url": url, "tls": {"ca_file": str(self.certificates / "ca.pem")}}


class Watched(Topology):
    """A primary with two replicas, and Sentinels that put one in its place."""

    name = "sentinel"
    replaced_by = forgets_by = ("kill", "pause", "blackhole")

    def __init__(self, stage):
        super().__init__(stage)
        self.victim = start_server(stage)
        self.relay = start_relay(stage, self.victim.port)
        # Sentinels would take it for two servers if it had two addresses.
        self.victim.ask("CONFIG", "SET", "replica-announce-port", self.relay.port)
        following = ("--replicaof", f"127.0.0.1 {self.relay.port}")
        replicas = [start_server(stage, *following) for _ in range(2)]
        for replica in replicas:
            wait_for_link(replica)
        self.by_port = {replica.port: replica for replica in replicas}
        self.by_port[self.relay.port] = self.victim
        watch = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.relay.port} {SENTINELS // 2 + 1}\n"
            f"sentinel down-after-milliseconds {SERVICE} {SILENCE_MILLISECONDS}\n"
            f"sentinel failover-timeout {SERVICE} 1000\n"
        )
        self.sentinels = [start_server(stage, sentinel=watch) for _ in range(SENTINELS)]
        for sentinel in self.sentinels:
            wait_for("the sentinels know each other", lambda one=sentinel: self.knows_all(one))

    @staticmethod
    def knows_all(sentinel):
        """Whether it knows the replicas and the other Sentinels."""
        words = sentinel.ask("SENTINEL", "MASTER", SERVICE)
        fields = dict(zip(words[::2], words[1::2]))
        known = fields["num-slaves"], fields["num-other-sentinels"]
        return known == ("2", str(SENTINELS - 1))

    def settings(self):
        """The proxies' `store.redis`."""
        return {"sentinels": [sentinel.url for sentinel in self.sentinels], "service": SERVICE}

    def replace(self):
        """Returns when the Sentinels name another; the old one stays away."""
        self.wait_for_another()

    def heal(self, fault):
        """The old one comes back when it has been replaced, and not before."""
        if fault in ("pause", "blackhole"):
            self.wait_for_another()
        super().heal(fault)

    def wait_for_another(self):
        """Waits until a Sentinel names another primary than the victim."""
        wait_for("another primary", lambda: self.primary() is not self.victim)

    def primary(self):
        """The one that a Sentinel names."""
        name = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return self.by_port[int(name[1])]

    def turn(self):
        """Hurts the new primary from now on; returns when the old one follows it."""
        wait_for_link(self.victim)
        self.victim = self.primary()


class Sharded(Topology):
    """Shards that know nothing of each other, each with a replica that is promoted by hand."""

    name = "sharded"
    forgets_by = ("kill",)

    def __init__(self, stage, shards=2):
        super().__init__(stage)
        self.primaries = [start_server(stage) for _ in range(shards)]
        self.victim = self.primaries[0]
        self.relay = start_relay(stage, self.victim.port)
        self.replicas = [
            start_server(stage, "--replicaof", f"127.0.0.1 {primary.port}")
            for primary in self.primaries
        ]
        for replica in self.replicas:
            wait_for_link(replica)

    def settings(self):
        """The proxies' `store.redis`."""
        primaries = [f"redis://127.0.0.1:{self.relay.port}"]
        primaries += [primary.url for primary in self.primaries[1:]]
        shards = enumerate(zip(primaries, self.replicas))
        return {
            "shards": [
                {"name": f"shard-{number}", "primary": primary, "replicas": [replica.url]}
                for number, (primary, replica) in shards
            ]
        }

    def replace(self):
        """Promotes the replica."""
        self.replicas[0].ask("REPLICAOF", "NO", "ONE")


class Clustered(Topology):
    """A Redis Cluster of three primaries, each with a replica. Nodes talk to each other beside the
    relay, so that a blackhole between proxies and a node is none for the cluster."""

    name = "cluster"
    replaced_by = forgets_by = ("kill", "pause")

    def __init__(self, stage):
        super().__init__(stage)
        self.nodes = [self.node(stage) for _ in range(6)]
        self.victim = self.nodes[0]
        self.relay = start_relay(stage, self.victim.port)
        self.victim.ask("CONFIG", "SET", "cluster-announce-port", self.relay.port)
        self.form()

    @staticmethod
    def node(stage):
        """Starts one that is alone yet."""
        return start_server(
            stage,
            *("--cluster-enabled", "yes", "--cluster-node-timeout", SILENCE_MILLISECONDS),
            *("--cluster-announce-ip", "127.0.0.1", "--cluster-port", free_port()),
            *("--cluster-require-full-coverage", "no", "--cluster-migration-barrier", "9"),
            *("--cluster-replica-validity-factor", "0"),
        )

    def form(self):
        """Introduces all to all, and waits until they agree."""
        primaries, replicas = self.nodes[:3], self.nodes[3:]
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if node in primaries:
                first, last = SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1
                node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            for other in self.nodes[:number]:
                node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, bus_port(other))
        wait_for("nodes see each other", lambda: self.all_see(lambda seen: len(seen) == 6))
        for primary, replica in zip(primaries, replicas):
            replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
        wait_for("nodes see replicas", lambda: self.all_see(self.is_complete))
        for replica in replicas:
            wait_for_link(replica)

    def all_see(self, is_so):
        """Whether it is so for each node's view, as lists of words."""
        views = [node.ask("CLUSTER", "NODES").splitlines() for node in self.nodes]
        return all(is_so([line.split(" ") for line in view]) for view in views)

    @staticmethod
    def is_complete(seen):
        """Whether a node knows three replicas, and who has which slots."""
        flags = [words[2] for words in seen]
        is_settled = not any("handshake" in flag for flag in flags)
        has_slots = sum(len(words) > 8 for words in seen) == 3
        return is_settled and has_slots and sum("slave" in flag for flag in flags) == 3

    def settings(self):
        """The proxies' `store.redis`."""
        return {"cluster": [node.url for node in self.nodes[1:]]}

    def replace(self):
        """Returns when another node has the slots; the old one stays away."""
        self.wait_for_another()

    def heal(self, fault):
        """The old one comes back when it has been replaced, and not before."""
        if fault == "pause":
            self.wait_for_another()
        super().heal(fault)

    def wait_for_another(self):
        """Waits until the victim's replica has its slots."""
        wait_for("another primary", lambda: self.heir().ask("ROLE")[0] == "master")

    def heir(self):
        """The other one of the two that have the victim's slots in turn."""
        first, second = self.nodes[0], self.nodes[3]
        return second if self.victim is first else first

    def turn(self):
        """Hurts the new primary from now on; returns when the old one follows it."""
        wait_for_link(self.victim)
        self.victim = self.heir()


def bus_port(node):
    """Where other nodes talk to it."""
    myself = next(line for line in node.ask("CLUSTER", "NODES").splitlines() if "myself" in line)
    return int(myself.split(" ")[1].partition("@")[2].partition(",")[0])


TOPOLOGIES = {kind.name: kind for kind in (Single, Watched, Sharded, Clustered)}
