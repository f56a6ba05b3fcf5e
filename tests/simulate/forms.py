"""10,000 requests in each form of log that `tollgate simulate` reads, with the same answer.

nginx, Apache, Caddy, HAProxy, Envoy, Traefik and Tollgate forward the requests and write their logs
themselves, where they are installed; of services that cannot be run here (AWS, Cloudflare, Google Cloud,
IIS, APISIX, ingress-nginx, Kong) the lines are made by the form that they publish. What each limit has
counted and denied is known from what was sent: no line may be missed, and no client, path or status be
taken for another one. `REQUESTS=500` sends fewer; the seed is printed, and `SEED` sets it.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import programs
from harness import Tally, give_up_after

SECONDS = 1500
COUNT = int(os.environ.get("REQUESTS", "10000"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
HOST = "api.example.com"
# The first address of loopback is that of the script itself, which waits until programs forward.
CLIENTS = [f"127.0.0.{last}" for last in range(2, 22)]
# Their logins fail.
GUESSERS = set(CLIENTS[:5])
LIMITS = {"orders": 40, "login": 5, "other": 100}
POLICY = """
version: 1
upstreams: {{ api: {{ servers: "http://127.0.0.1:{api}" }} }}
limits:
  orders: {{ per: client.ip, rate: 40/hour }}
  login: {{ per: client.ip, rate: 5/hour, count_when: {{ status: 401 }} }}
  other: {{ per: client.ip, rate: 100/hour }}
routes:
  - {{ match: {{ path: "/orders/**" }}, limits: orders }}
  - {{ match: {{ path: /login }}, limits: login }}
  - {{ match: {{ path: "/**" }}, limits: other }}
"""
# What a path may have as it is (RFC 3986, section 3.3), and escapes that servers leave alone.
LETTERS = "abcxyzABC019-._~!$&'()*+,:=@"
ESCAPES = ["%20", "%22", "%C3%A9", "%5B", "%7C", "%3C"]
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0"
BEGIN = datetime.datetime(2026, 11, 20, 10, 0, 0, 250000, datetime.timezone.utc)

APACHE = """
ServerRoot {folder}
ServerName edge.test
Listen 127.0.0.1:{port}
PidFile {folder}/pid
DefaultRuntimeDir {folder}
Mutex file:{folder}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
ErrorLog {folder}/error.log
LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" combined
CustomLog {log} combined
KeepAliveTimeout 60
MaxKeepAliveRequests 0
ProxyPass / http://127.0.0.1:{api}/ nocanon
"""


def apache():
    """Apache with the log that Debian configures."""
    def command(folder):
        return ["apache2", "-d", f"{folder}", "-f", f"{folder}/apache.conf", "-DFOREGROUND"]
    return programs.Program("apache", "apache2", command, {"apache.conf": APACHE}, "combined", 0)


class Request:
    """A request, and what is known of it."""

    def __init__(self, client, method, target, status, millis):
        self.client, self.method, self.target, self.status = client, method, target, status
        self.begins = BEGIN + datetime.timedelta(milliseconds=millis)
        self.seconds = 0.045

    @property
    def ends(self):
        """When its response had been sent."""
        return self.begins + datetime.timedelta(seconds=self.seconds)

    @property
    def parts(self):
        """Path and query."""
        path, _, query = self.target.partition("?")
        return path, query

    @property
    def limit(self):
        """The limit that counts it."""
        path = self.parts[0]
        return "orders" if path.startswith("/orders/") else "login" if path == "/login" else "other"


def drawn(draw):
    """Requests of all clients within 50 minutes, in order of time."""
    def segment():
        return "".join(draw.choice([draw.choice(LETTERS), draw.choice(LETTERS), draw.choice(ESCAPES)])
                       for _ in range(draw.randrange(1, 12))).strip(".") + "z"
    times = sorted(draw.randrange(50 * 60 * 1000) for _ in range(COUNT))
    made = []
    for millis in times:
        client = draw.choice(CLIENTS)
        kind = draw.randrange(4)
        if kind == 0:
            method, target, status = "POST", "/login", 401 if client in GUESSERS else 204
        elif kind == 1:
            method, target = draw.choice(["GET", "DELETE", "PUT"]), "/orders/" + segment()
            status = draw.choice([200, 201, 404, 500])
        else:
            method, target = draw.choice(["GET", "HEAD"]), f"/{segment()}/{segment()}"
            status = draw.choice([200, 304, 403])
        if draw.randrange(3) == 0:
            target += f"?page={draw.randrange(100)}&q={segment()}"
        made.append(Request(client, method, target, status, millis))
    return made


def expected(requests):
    """Requests and denials of each limit."""
    found = {}
    for limit, allows in LIMITS.items():
        own = [request for request in requests if request.limit == limit]
        denied = 0
        for client in CLIENTS:
            of_client = sum(request.client == client for request in own)
            is_counted = limit != "login" or client in GUESSERS
            denied += max(0, of_client - allows) if is_counted else 0
        found[limit] = (len(own), denied)
    return found


def found_in(report):
    """The same, of a report."""
    return {own["limit"]: (own["requests"], own["denied"]) for own in report["limits"]}


def judge(tally, name, binary, folder, log, requests, format, extra=0):
    """Compares what the command finds in a log with what was sent."""
    report = programs.simulated(binary, folder, log)
    read = report["read"]
    programs.expect(tally, f"{name}: the format", read["files"][0]["format"], format)
    programs.expect(tally, f"{name}: the requests", read["requests"] - extra, len(requests))
    programs.expect(tally, f"{name}: lines that are none", read["bad"], 0)
    found, wanted = found_in(report), expected(requests)
    if extra:
        count, denied = found["other"]
        found["other"] = (count - extra, denied)
    programs.expect(tally, f"{name}: what limits count and deny", found, wanted)


class Api(programs.Api):
    """Answers with the status that a field names."""

    def answer(self):
        """Responds."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status = int(self.headers.get("x-status", "200"))
        self.send_response(status)
        if status not in (204, 304):
            self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = answer


def send_of(client, port, requests):
    """Sends what one client sends, in its order."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(client, 0))
    with contextlib.closing(connection):
        for request in requests:
            fields = {"User-Agent": AGENT, "x-status": str(request.status)}
            connection.request(request.method, request.target, headers=fields)
            connection.getresponse().read()


def try_program(program, binary, requests, tally):
    """Has a program write its log, and has Tollgate read it."""
    def send(port):
        senders = [threading.Thread(target=send_of, args=(
            client, port, [request for request in requests if request.client == client],
        )) for client in CLIENTS]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        return len(requests)
    # Tollgate's own proxy limits nothing here.
    unlimited = programs.POLICY.replace("limits: [core]", "limits: []")
    with programs.forwarded(program, Api, unlimited, send, tally) as (folder, places):
        log = folder / "access.log"
        extra = sum(b"/ready" in line for line in log.read_bytes().splitlines())
        (folder / "policies" / "main.yaml").write_text(POLICY.format(**places))
        judge(tally, program.name, binary, folder, log, requests, program.found, extra)


def clf(instant):
    """A time in a log of Apache or nginx."""
    return instant.strftime("%d/%b/%Y:%H:%M:%S +0000")


def rfc3339(instant):
    """A time to the microsecond."""
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def line(own):
    """The request line."""
    return f'"{own.method} {own.target} HTTP/1.1" {own.status} 512'


def alb(own):
    """An entry of AWS's application load balancer (docs.aws.amazon.com, access log entries)."""
    target = f'"{own.method} https://{HOST}:443{own.target} HTTP/2.0"'
    return (f"h2 {rfc3339(own.ends)} app/edge/50dc6c495c0c9188 {own.client}:40000 10.0.0.1:80 0.001 "
            f'{own.seconds:.3f} 0.000 {own.status} {own.status} 310 512 {target} "{AGENT}" '
            'ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/a/7 '
            f'"Root=1-58337262-36d228ad5d99923122bbe354" "{HOST}" "arn:aws:acm:eu-central-1:1:certificate/1" '
            f'0 {rfc3339(own.begins)} "forward" "-" "-" "10.0.0.1:80" "{own.status}" "-" "-" TID_123456')


def cloudfront(own):
    """An entry of CloudFront's standard log."""
    path, query = own.parts
    return "\t".join([
        own.ends.strftime("%Y-%m-%d"), own.ends.strftime("%H:%M:%S"), "FRA56-P4", "512", own.client, own.method,
        "d111111abcdef8.cloudfront.net", path, str(own.status), "-", AGENT.replace(" ", "%20"), query or "-",
        "-", "Miss", "SOX4xwn4XV6Q4rgb7XiVGOHms_BGlTAC4KyHmureZmBNrjGdRLiNIQ==", HOST, "https", "310",
        f"{own.seconds:.3f}", "-", "TLSv1.3", "TLS_AES_128_GCM_SHA256", "Miss", "HTTP/2.0", "-", "-", "11040",
        f"{own.seconds:.3f}", "Miss", "application/json", "512", "-", "-",
    ])


CLOUDFRONT_HEAD = (
    "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status "
    "cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header "
    "cs-protocol cs-bytes time-taken x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type "
    "cs-protocol-version fle-status fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type "
    "sc-content-type sc-content-len sc-range-start sc-range-end"
)


def cloudflare(own):
    """A line of Cloudflare's Logpush."""
    return json.dumps({
        "ClientIP": own.client, "ClientRequestHost": HOST, "ClientRequestMethod": own.method,
        "ClientRequestPath": own.parts[0], "ClientRequestURI": own.target, "ClientRequestUserAgent": AGENT,
        "EdgeEndTimestamp": rfc3339(own.ends), "EdgeResponseStatus": own.status,
        "EdgeStartTimestamp": rfc3339(own.begins), "RayID": "710e98d93d50357d",
    })


def gcp(own):
    """An entry of Google Cloud's load balancer."""
    request = {
        "latency": f"{own.seconds:.6f}s", "remoteIp": own.client, "requestMethod": own.method,
        "requestUrl": f"https://{HOST}{own.target}", "status": own.status, "userAgent": AGENT,
    }
    return json.dumps({
        "httpRequest": request, "insertId": "1abc", "logName": "projects/p/logs/requests",
        "resource": {"type": "http_load_balancer"}, "timestamp": rfc3339(own.begins),
    })


def iis(own):
    """A line of IIS (W3C extended)."""
    path, query = own.parts
    return " ".join([
        own.ends.strftime("%Y-%m-%d"), own.ends.strftime("%H:%M:%S"), "10.1.0.4", own.method, path, query or "-",
        "443", "-", own.client, AGENT.replace(" ", "+"), "-", str(own.status), "0", "0",
        str(int(own.seconds * 1000)),
    ])


IIS_HEAD = (
    "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2026-11-20 10:00:00\n"
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) "
    "sc-status sc-substatus sc-win32-status time-taken"
)


def apisix(own):
    """The access log that APISIX ships with."""
    return (f'{own.client} - - [{clf(own.ends)}] {HOST} {line(own)} {own.seconds:.3f} "-" "{AGENT}" '
            f'10.42.0.17:8080 {own.status} {own.seconds:.3f} "http://{HOST}"')


def ingress_nginx(own):
    """The access log that ingress-nginx ships with."""
    return (f'{own.client} - - [{clf(own.ends)}] {line(own)} "-" "{AGENT}" 310 {own.seconds:.3f} [api-8080] [] '
            f"10.42.0.17:8080 512 {own.seconds:.3f} {own.status} 529a007902362a5f51385a5fa7049884")


def kong(own):
    """The access log that Kong ships with."""
    return (f'{own.client} - - [{clf(own.ends)}] {line(own)} "-" "{AGENT}" kong_request_id: '
            '"5c1d7b0e6c3a5f4c2c1d7b0e6c3a5f4c"')


def common(own):
    """The common format."""
    return f"{own.client} - - [{clf(own.begins)}] {line(own)}"


def behind_proxy(own):
    """nginx with host and forwarded addresses in front."""
    return f'{HOST} "{own.client}, 10.0.0.1" 10.2.1.185 - - [{clf(own.begins)}] {line(own)} "-" "{AGENT}"'


def csv(own):
    """Columns with usual names."""
    return ",".join([rfc3339(own.begins), own.client, own.method, f'"{own.target}"', str(own.status)])


PUBLISHED = [
    ("aws-alb", "alb", None, alb), ("aws-cloudfront", "cloudfront", CLOUDFRONT_HEAD, cloudfront),
    ("cloudflare", "cloudflare", None, cloudflare), ("google-cloud", "gcp", None, gcp),
    ("iis", "w3c", IIS_HEAD, iis), ("apisix", "combined", None, apisix),
    ("ingress-nginx", "combined", None, ingress_nginx), ("kong", "combined", None, kong),
    ("common", "common", None, common), ("behind-a-proxy", "combined", None, behind_proxy),
    ("csv", "csv", "time,client,method,target,status", csv),
]


def try_published(binary, requests, tally):
    """Each form that services publish."""
    with tempfile.TemporaryDirectory(prefix="tollgate-forms-") as folder:
        folder = Path(folder)
        (folder / "policies").mkdir()
        (folder / "policies" / "main.yaml").write_text(POLICY.format(api=1))
        for name, format, head, write in PUBLISHED:
            lines = ([head] if head else []) + [write(request) for request in requests]
            log = folder / f"{name}.log"
            log.write_text("\n".join(lines) + "\n")
            judge(tally, name, binary, folder, log, requests, format)


def main():
    """Tries each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    options = parser.parse_args()
    give_up_after(SECONDS)
    print(f"SEED={SEED}")
    binary = str(Path(options.tollgate).resolve())
    requests = drawn(random.Random(SEED))
    tally = Tally()
    try_published(binary, requests, tally)
    own = [programs.tollgate(binary, "tollgate-json", "format: json"),
           programs.tollgate(binary, "tollgate-text", "format: text"), apache()]
    for program in own + programs.PROGRAMS:
        if shutil.which(program.binary) is None:
            print(f"skipped {program.name}: there is no {program.binary}")
            continue
        try_program(program, binary, requests, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
