"""nginx with the lines that ingress-nginx makes of annotations, beside the policy that
`tollgate import ingress-nginx` makes of them.

Both get the same requests of several clients, in bursts with pauses between them, and admit the same
ones: of each client, but for those that are a matter of when exactly a request arrives.
"""

import contextlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "edge")]
from stage import Tally, api, binary_under_test, free_port, running

SECONDS = 300
REQUESTS = 10_000
CLIENTS = [f"127.0.0.{number}" for number in range(61, 66)]
EXEMPT = "127.0.0.66"

ANNOTATIONS = {
    "second": {"limit-rps": "5", "limit-whitelist": f"{EXEMPT}/32"},
    "minute": {"limit-rpm": "100", "limit-burst-multiplier": "3"},
    "both": {"limit-rps": "20", "limit-rpm": "10", "limit-burst-multiplier": "7"},
}
NAMES = list(ANNOTATIONS)
# What comes back to a client in a second.
RATES = {"second": 5, "minute": 100 / 60, "both": 10 / 60}

# As the controller's template has them.
ZONES = """
geo $remote_addr $allowlist_second {{ default 0; {exempt}/32 1; }}
map $allowlist_second $limit_second {{ 0 $binary_remote_addr; 1 ""; }}
map 0 $limit_minute {{ default $binary_remote_addr; }}
map 0 $limit_both {{ default $binary_remote_addr; }}
limit_req_zone $limit_second zone=second_rps:5m rate=5r/s;
limit_req_zone $limit_minute zone=minute_rpm:5m rate=100r/m;
limit_req_zone $limit_both zone=both_rpm:5m rate=10r/m;
limit_req_zone $limit_both zone=both_rps:5m rate=20r/s;
limit_req_status 503;
"""
LIMITS = {
    "second": "limit_req zone=second_rps burst=25 nodelay;",
    "minute": "limit_req zone=minute_rpm burst=300 nodelay;",
    "both": "limit_req zone=both_rps burst=140 nodelay; limit_req zone=both_rpm burst=70 nodelay;",
}
NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
keepalive_requests 100000;
{zones}
server {{ listen 127.0.0.1:{front}; {locations} }}
}}
"""


def ingresses(back):
    """The Ingresses, each with two paths that share its limits."""
    def path(name, number):
        service = {"name": "api", "port": {"number": back}}
        return {"path": f"/{name}{number}", "pathType": "Prefix", "backend": {"service": service}}

    def ingress(name):
        prefix = "nginx.ingress.kubernetes.io/"
        annotations = {prefix + key: value for key, value in ANNOTATIONS[name].items()}
        rules = [{"http": {"paths": [path(name, 1), path(name, 2)]}}]
        metadata = {"name": name, "namespace": "test", "annotations": annotations}
        return {"kind": "Ingress", "metadata": metadata, "spec": {"rules": rules}}

    return json.dumps({"kind": "List", "items": [ingress(name) for name in NAMES]})


def nginx(folder, front, back):
    """The configuration of nginx."""
    locations = "".join(
        f"location /{name}{number} {{ {LIMITS[name]} proxy_pass http://127.0.0.1:{back}; }}\n"
        for name in NAMES for number in (1, 2)
    )
    zones = ZONES.format(exempt=EXEMPT)
    return NGINX.format(folder=folder, front=front, zones=zones, locations=locations)


def admitted(port):
    """How many requests of each client and Ingress are admitted, and how long they took."""
    chance = random.Random(42)
    counts, denied, begin = Counter(), Counter(), time.monotonic()
    with contextlib.ExitStack() as stack:
        connections = {}
        for client in [*CLIENTS, EXEMPT]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(client, 0))
            connections[client] = stack.enter_context(contextlib.closing(connection))
        for number in range(REQUESTS):
            client, name = chance.choice([*CLIENTS, EXEMPT]), chance.choice(NAMES)
            connections[client].request("GET", f"/{name}{chance.choice((1, 2))}")
            response = connections[client].getresponse()
            response.read()
            counts[(client, name)] += response.status == 200
            denied[response.status] += response.status != 200
            if number % 2_500 == 0:
                time.sleep(1)
    return counts, denied, time.monotonic() - begin


def compare(tally, theirs, ours):
    """Both admit the same, but for what comes back in the time by which one is slower."""
    (their_counts, their_denied, their_seconds), (our_counts, our_denied, our_seconds) = theirs, ours
    apart = abs(their_seconds - our_seconds)
    for name in NAMES:
        for client in CLIENTS:
            difference = abs(their_counts[(client, name)] - our_counts[(client, name)])
            counts = (their_counts[(client, name)], our_counts[(client, name)])
            tally.record(f"{client} {name}: nginx and Tollgate admit {counts}",
                         [] if difference <= 1 + RATES[name] * apart else [f"{apart:.2f} s apart"])
    counts = (their_counts[(EXEMPT, "second")], our_counts[(EXEMPT, "second")])
    tally.record(f"the allow list: {counts}", [] if counts[0] == counts[1] else ["they differ"])
    statuses = (set(+their_denied), set(+our_denied))
    tally.record("denials are 503", [] if statuses == ({503}, {503}) else [statuses])


def check(binary, importer, tally, back):
    """Makes the policy, and runs both."""
    front, own = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="ingress-") as folder:
        folder = Path(folder)
        (folder / "ingress.yaml").write_text(ingresses(back))
        (folder / "nginx.conf").write_text(nginx(folder, front, back))
        made = subprocess.run([*importer, folder / "ingress.yaml"], capture_output=True, text=True)
        tally.record("the import leaves nothing out", [] if made.returncode == 0 else [made.stderr])
        policy = made.stdout.replace("api.test.svc.cluster.local", "127.0.0.1")
        (folder / "policies").mkdir()
        (folder / "policies" / "main.yaml").write_text(policy)
        settings = {"version": 1, "listeners": [{"address": f"127.0.0.1:{own}"}],
                    "policies": "policies", "access_log": {"format": "off"}}
        (folder / "tollgate.yaml").write_text(json.dumps(settings))
        command = [str(Path(binary).resolve()), "run", "--config", str(folder / "tollgate.yaml")]
        with running("nginx", ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], front, tally):
            theirs = admitted(front)
        with running("tollgate", command, own, tally):
            ours = admitted(own)
        compare(tally, theirs, ours)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as back:
        check(binary, [str(Path(binary).resolve()), "import", "ingress-nginx"], tally, back)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
