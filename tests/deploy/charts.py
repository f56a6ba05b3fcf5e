"""Tries the Helm chart: what it makes of each values file, whether Kubernetes would take it, whether Tollgate
takes the settings and policies in it, and whether the program then runs as the pod says.

With --write it writes charts/manifests anew, which has to be what the chart makes.
"""

import argparse
import http.client
import json
import re
import sys
import tempfile
from pathlib import Path

import yaml

from helm import CHART, CHARTS, ROOT, VALUES, Helm, documents, invalid, is_core, of_kind, why_not
from pod import Pod

sys.path[:0] = [str(ROOT / "tests" / name) for name in ("httpbin", "edge")]
from harness import Tally, free_port, give_up_after, running
from stage import api, eventually

SECONDS = 240
MANIFESTS = CHARTS / "manifests"
BESIDE = CHARTS / "beside"
# The same for proxies outside of Kubernetes.
TRIED = ROOT / "config" / "beside"
# Manifests without Helm: the values file of each.
PLAIN = {"memory.yaml": "memory.yaml", "disk.yaml": "disk.yaml", "redis.yaml": "redis.yaml"}
# The values file that stands beside a proxy, where that does not ask by gRPC.
ASKED = {
    "ingress.yaml": "minimal.yaml",
    "ingress-nginx.yaml": "forward-auth.yaml",
    "traefik.yaml": "forward-auth.yaml",
}
MINIMAL = VALUES / "minimal.yaml"
SCHEMA = "values don't meet the specifications of the schema"
# What is no plan that the chart can serve, and what it says about it.
REFUSED = (
    (["replicas=2"], SCHEMA),
    (["store.type=postgres"], SCHEMA),
    (["http.port=80"], SCHEMA),
    (["replicaCount=many"], SCHEMA),
    (["image.digest=latest"], SCHEMA),
    (["trustedProxies={balancer}"], SCHEMA),
    (["store.type=redis", "store.redis.password=secret"], SCHEMA),
    (["drain.delaySeconds=-1"], SCHEMA),
    (["admin.ready.store=yes"], SCHEMA),
    (["keys[0].name=a", "keys[0].secretName=b", "keys[0].configMapName=c"], SCHEMA),
    (["image.repository="], "there is no image"),
    (["policies=null"], "there is no policy"),
    (["replicaCount=2"], "count each for itself"),
    (["store.type=disk", "replicaCount=2"], "for one proxy"),
    (["store.type=redis"], "store.type redis needs"),
    (["store.type=redis", "store.redis.url=redis://:secret@redis"], "a ConfigMap would show"),
    (["tls.enabled=true"], "tls.secretName"),
    (["admin.exposed=true"], "admin.tokens.secretName"),
    (["decisions.grpc.enabled=true"], "needs askers"),
    (["decisions.http.enabled=true"], "needs askers, or tokenSecret"),
    (["decisions.redis.enabled=true"], "needs passwordSecret"),
    (["http.enabled=false"], "nobody could ask"),
    (["terminationGracePeriodSeconds=54"], "must be 55 at least"),
)


class Trial:
    """The checks, with what they share."""

    def __init__(self, binary, folder, tally):
        self.folder, self.tally = folder, tally
        self.helm = Helm(folder)
        # Where another user may run it.
        self.binary = folder / "tollgate"
        self.binary.write_bytes(binary.read_bytes())
        self.binary.chmod(0o755)

    def run(self):
        """Every values file, and then what goes across them."""
        user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        self.user, self.group = int(user[1]), int(user[2])
        files = sorted(VALUES.iterdir())
        self.tally.record("there are values files", [] if len(files) >= 5 else [f"{len(files)}"])
        for file in files:
            self.check_values(file)
        self.check_refusals()
        self.check_manifests()
        self.check_beside()
        self.check_shipped()
        self.check_pages()
        with api(self.tally) as api_port:
            self.check_start(api_port, [])
            self.check_start(api_port, ["store.type=disk", "admin.exposed=true", "admin.tokens.secretName=tokens"])
            asked = ["decisions.http.enabled=true", "decisions.http.askers={127.0.0.0/8}"]
            self.check_start(api_port, asked, self.check_question)

    def check_values(self, file):
        """One way of use: lint, template, schemas, names, settings and policies."""
        name = file.name
        self.tally.record(f"{name}: lint", self.helm.lint(file))
        objects = documents(self.helm.template("--values", file))
        self.tally.record(f"{name}: schemas", invalid(objects))
        self.tally.record(f"{name}: names", loose_ends(objects))
        self.check_tollgate(name, objects)

    def check_tollgate(self, name, objects):
        """What Tollgate says about the settings and the policies that a chart has written."""
        folder = self.new_folder()
        pod = Pod(objects, folder)
        settings = pod.settings()
        if settings is None:
            # They are somebody else's, of whom the example says what they need.
            pod.lay_out({path: {} for path in pod.volumes()})
            return
        policies = {"api.yaml": yaml.safe_load(MINIMAL.read_text())["policies"]["api.yaml"]}
        pod.lay_out({"/etc/tollgate/policies": policies})
        done = pod.run(self.binary, "check", "--strict")
        self.tally.record(f"{name}: tollgate check", [] if done.returncode == 0 else [done.stdout + done.stderr])
        runs_as = pod.spec["securityContext"]
        is_own = (runs_as["runAsUser"], runs_as["runAsGroup"]) == (self.user, self.group)
        self.tally.record(f"{name}: the user of the image", [] if is_own else [runs_as])
        grace, drains = pod.spec["terminationGracePeriodSeconds"], seconds(settings["drain"])
        drains += seconds(settings["drain_delay"]) + sleeps_before(pod.container)
        self.tally.record(f"{name}: time to drain", [] if grace > drains else [f"{grace} of {drains} s"])

    def check_refusals(self):
        """Values that the schema forbids, or the templates."""
        for values, expected in REFUSED:
            wanted = [part for value in values for part in ("--set", value)]
            done = self.helm.attempt("--values", MINIMAL, *wanted)
            said = " ".join(done.stderr.split())
            refused = done.returncode != 0 and expected in said
            self.tally.record(f"refused: {values}", [] if refused else [f"{done.returncode}: {said}"])

    def manifest(self, values):
        """A manifest without Helm: what the chart makes, less what says that Helm looks after it."""
        text = self.helm.template("--no-hooks", "--values", VALUES / values, release="tollgate")
        lines = text.splitlines(keepends=True)
        helms = re.compile(r"\s*(# Source: |helm\.sh/chart: |app\.kubernetes\.io/managed-by: )")
        head = f"# What the chart makes of charts/values/{values}, as `tollgate` in the namespace `default`.\n"
        return head + "".join(line for line in lines if not helms.match(line))

    def check_manifests(self):
        """The plain manifests are what the chart makes."""
        shipped = sorted(file.name for file in MANIFESTS.iterdir())
        self.tally.record("a manifest for each", [] if shipped == sorted(PLAIN) else shipped)
        for name, values in PLAIN.items():
            text = self.manifest(values)
            is_new = (MANIFESTS / name).read_text() == text
            self.tally.record(f"manifests/{name} is what the chart makes", [] if is_new else ["write it anew: --write"])
            self.tally.record(f"manifests/{name}: schemas", invalid(documents(text)))

    def check_beside(self):
        """What stands beside Tollgate: kinds of Kubernetes are valid, and what others name is there."""
        providers = documents((BESIDE / "istio-values.yaml").read_text())[0]["meshConfig"]["extensionProviders"]
        providers = [provider["name"] for provider in providers]
        for file in sorted(BESIDE.iterdir()):
            objects = documents(self.helm.template("--values", VALUES / ASKED.get(file.name, "envoy-gateway.yaml")))
            ports = {
                (name, port["port"], port["name"])
                for name, service in of_kind(objects, "Service").items()
                for port in service["spec"]["ports"]
            }
            named = documents(file.read_text())
            manifests = [one for one in named if "kind" in one]
            unfit = [one for one in manifests if not ("apiVersion" in one and one["metadata"]["name"])]
            self.tally.record(f"{file.name}: schemas", invalid(manifests) + unfit)
            strange = [f"{at}" for at in tollgates(named) if at not in ports]
            leads = any(tollgates(named)) or any(
                one.get("spec", {}).get("provider", {}).get("name") in providers for one in named
            )
            self.tally.record(f"{file.name}: leads to Tollgate", strange if leads else ["nowhere"])

    def check_pages(self):
        """The commands of the pages that need no cluster, and the files that the others name."""
        for page in (ROOT / "docs" / "kubernetes.md", CHART / "README.md"):
            text = page.read_text()
            commands = re.findall(r"^    helm (?:install|template) (\S+) charts/tollgate (.*)$", text, re.MULTILINE)
            files = re.findall(r"^    kubectl apply -f (\S+)$", text, re.MULTILINE)
            for release, options in commands:
                if "my-values.yaml" in options:
                    continue
                done = self.helm.attempt(*options.split(), release=release)
                self.tally.record(f"{page.name}: helm {options}", [] if done.returncode == 0 else [done.stderr])
            missing = [file for file in files if not (ROOT / file).exists()]
            self.tally.record(f"{page.name}: files", missing)

    def check_shipped(self):
        """What is the same outside of Kubernetes is as there, where the proxies themselves try it."""
        shipped = yaml.safe_load((TRIED / "traefik" / "dynamic.yml").read_text())["http"]["middlewares"]
        ours = of_kind(documents((BESIDE / "traefik.yaml").read_text()), "Middleware")
        ours = {name: middleware["spec"] for name, middleware in ours.items()}
        for asker in (shipped, ours):
            del asker["tollgate"]["forwardAuth"]["address"]
        self.tally.record("Traefik's middlewares", [] if ours == shipped else [f"{ours}"])
        listener = yaml.safe_load((TRIED / "envoy" / "rate-limit.yaml").read_text())["static_resources"]["listeners"][0]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        patch = documents((BESIDE / "istio-rate-limit.yaml").read_text())[0]["spec"]["configPatches"][0]
        filters = [manager["http_filters"][0], patch["patch"]["value"]]
        for one in filters:
            # Where Tollgate is.
            one["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"] = None
        same = filters[0] == filters[1]
        self.tally.record("Envoy's filter in Istio", [] if same else filters)

    def check_start(self, api_port, values, check_more=lambda ports: None):
        """The program runs as the pod says: its user, its file system, its environment, its probes."""
        name = " ".join(values) or "minimal"
        # rolling.py tries how it ends.
        quick = [*values, "drain.delaySeconds=0"]
        wanted = [part for value in quick for part in ("--set", value)]
        objects = documents(self.helm.template("--values", MINIMAL, *wanted))
        policies = of_kind(objects, "ConfigMap")["edge-tollgate-policies"]["data"]
        policy = policies["api.yaml"].replace("http://api:80", f"http://127.0.0.1:{api_port}")
        # As many as before, in a window that this does not outlast.
        policies["api.yaml"] = policy.replace("10/second", "10/hour")
        ports = {}
        pod = Pod(objects, self.new_folder()).lay_out({}, ports)
        command = [str(self.binary), *pod.container["args"]]
        named = {port["name"]: ports[port["containerPort"]] for port in pod.container["ports"]}
        probes = [pod.container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
        probes = [(named[probe["port"]], probe["path"]) for probe in probes]
        options = {"env": pod.environment(), "cwd": "/"} | pod.identity()
        with running("tollgate", command, named["http"], self.tally, **options) as process:
            # The kubelet asks the first one until it passes, and the others from then on.
            eventually(lambda: passes(*probes[0]))
            failed = [path for port, path in probes if not passes(port, path)]
            self.tally.record(f"{name}: probes", failed)
            self.tally.record(f"{name}: a request", [] if get(named["http"], "/") == 200 else ["no"])
            check_more(named)
            # They find the settings, and in these the token, by themselves.
            for command in ("health", "status"):
                done = pod.run(self.binary, command)
                self.tally.record(f"{name}: {command}", [] if done.returncode == 0 else [done.stderr])
            written = [str(path) for path in pod.folder.rglob("*") if self.is_written(path, pod)]
            self.tally.record(f"{name}: writes to its volume alone", written)
            process.terminate()
            code = process.wait(pod.spec["terminationGracePeriodSeconds"])
            self.tally.record(f"{name}: ends well", [] if code == 0 else [f"exit code {code}"])

    def is_written(self, path, pod):
        """Whether the program has made this, in a place that is not its volume."""
        own = pod.at("/var/lib/tollgate")
        return not path.is_symlink() and path.stat().st_uid == self.user and own not in (path, *path.parents)

    def check_question(self, ports):
        """ingress-nginx asks with these fields: the template of its 1.15 writes them."""
        fields = {
            "Host": "edge-tollgate-decisions.default.svc.cluster.local:8090",
            "X-Request-ID": "0b8f3a",
            "X-Original-URI": "/orders?page=2",
            "X-Scheme": "https",
            "X-Original-URL": "https://api.example.com/orders?page=2",
            "X-Original-Method": "POST",
            "X-Sent-From": "nginx-ingress-controller",
            "X-Real-IP": "192.0.2.1",
            "X-Forwarded-For": "192.0.2.1",
            "X-Auth-Request-Redirect": "/orders?page=2",
        }
        asked = [ask(ports["ask-http"], "/decide/nginx", fields) for _ in range(11)]
        statuses = [response.status for response in asked]
        self.tally.record("ingress-nginx asks", [] if statuses == [204] * 10 + [403] else statuses)
        status = asked[-1].headers.get("x-tollgate-status")
        self.tally.record("ingress-nginx: the status of a denial", [] if status == "429" else [status])

    def new_folder(self):
        """A folder that every user may look into."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        folder.chmod(0o755)
        return folder


def loose_ends(objects):
    """Names in these objects that nothing has: of ports, volumes, labels and files."""
    pod = Pod(objects, None)
    problems = []
    listening = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
    for one in objects:
        kind, spec = one["kind"], one.get("spec", {})
        ports = []
        if kind == "Service":
            ports = [port["targetPort"] for port in spec["ports"]]
        elif kind == "NetworkPolicy":
            rules = spec["ingress"]
            problems += [f"{kind}: a rule without ports is for all" for rule in rules if not rule["ports"]]
            ports = [port["port"] for rule in rules for port in rule["ports"] or []]
        elif kind == "PodMonitor":
            ports = [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]]
        problems += [f"{kind}: there is no port {port}" for port in ports if port not in listening]
        labels = selector(one)
        missing = labels.items() - pod.template["metadata"]["labels"].items()
        problems += [f"{kind}: no pod has {label}" for label in missing]
        target = spec.get("scaleTargetRef", {}).get("name", pod.workload["metadata"]["name"])
        if target != pod.workload["metadata"]["name"]:
            problems.append(f"{kind}: there is no {target}")
    accounts = of_kind(objects, "ServiceAccount")
    if pod.spec["serviceAccountName"] not in accounts or pod.spec["automountServiceAccountToken"]:
        problems.append("a service account without a token")
    return problems + unknown_places(pod, listening)


def selector(one):
    """The labels by which an object chooses pods."""
    chosen = one.get("spec", {}).get("selector") or one.get("spec", {}).get("podSelector") or {}
    return chosen.get("matchLabels", chosen) if one["kind"] not in ("HorizontalPodAutoscaler",) else {}


def unknown_places(pod, listening):
    """Files and ports of the settings that the pod does not have."""
    settings = pod.settings()
    if settings is None:
        return []
    folders = tuple(pod.volumes())
    files = re.findall(r"'(/[^']+)'", str(settings))
    problems = [f"{file} is in no volume" for file in files if not file.startswith(folders)]
    addresses = re.findall(r"'(0\.0\.0\.0|\[::\]):(\d+)'", str(settings))
    problems += [f"port {port} is not in the pod" for _, port in addresses if int(port) not in listening.values()]
    opened = [int(port) for _, port in addresses]
    return problems + [f"nothing listens at {port}" for port in listening.values() if port not in opened]


def tollgates(value):
    """Tollgate's Services that a document names, in any of the forms that others have: name, port, and what is
    spoken there."""
    if isinstance(value, dict):
        host = value.get("name", value.get("service"))
        port = value.get("port")
        port = port.get("number") if isinstance(port, dict) else port
        if isinstance(host, str) and host.startswith("edge-tollgate") and port is not None:
            name = host.split(".")[0]
            yield name, int(port), "grpc" if name.endswith("-decisions") else "http"
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tollgates(inner)
    elif isinstance(value, str):
        for host, port in re.findall(r"http://(edge-tollgate[\w-]*)[\w.-]*:(\d+)", value):
            yield host, int(port), "http"
        # As Istio names clusters.
        for port, host in re.findall(r"outbound\|(\d+)\|\|(edge-tollgate[\w-]*)\.", value):
            yield host, int(port), "grpc"


def seconds(text):
    """Such as `30s`, as the chart writes it."""
    return int(text.removesuffix("s"))


def sleeps_before(container):
    """For how long Kubernetes waits before SIGTERM."""
    return container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)


def get(port, path):
    """The status of a request."""
    return ask(port, path, {}).status


def passes(port, path):
    """Whether a probe passes."""
    try:
        return get(port, path) == 200
    except OSError:
        return False


def ask(port, path, fields):
    """The response to a request with these header fields."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=fields)
        response = connection.getresponse()
        response.read()
        return response
    finally:
        connection.close()


def write_manifests(folder):
    """Writes charts/manifests."""
    trial = Trial.__new__(Trial)
    trial.helm = Helm(folder)
    MANIFESTS.mkdir(exist_ok=True)
    for name, values in PLAIN.items():
        (MANIFESTS / name).write_text(trial.manifest(values))


def main():
    """All checks, or the manifests anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    parser.add_argument("--write", action="store_true", help="write charts/manifests, and check nothing")
    arguments = parser.parse_args()
    give_up_after(SECONDS)
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="charts-") as folder:
        folder = Path(folder)
        folder.chmod(0o755)
        if arguments.write:
            write_manifests(folder)
            return 0
        Trial(Path(arguments.tollgate), folder, tally).run()
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
