"""The requests that are compared: concrete ones for every endpoint that httpbin documents.

`DOCUMENTED` is keyed by the path templates of httpbin's own `/spec.json`, and `compare.py` fails
for an operation that has no case here, so an endpoint cannot be forgotten.
"""

import base64
import json
import random
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Case:
    """One request, and what may differ between two answers to it."""

    method: str
    target: str
    headers: tuple = ()
    body: bytes | list | None = None
    # The body is different each time by design: only its length is compared.
    random_body: bool = False
    # A HEAD of an endpoint that echoes the request: its length counts what the proxy added.
    echoes: bool = False
    # Headers whose value is different each time by design: only their presence is compared.
    volatile: frozenset = frozenset()
    # The status with which the proxy answers by itself, where it must not forward.
    refused: int | None = None

    @property
    def name(self):
        """How the case is called in the report."""
        extra = "".join(f" {name}: {value[:40]};" for name, value in self.headers)
        return f"{self.method} {self.target}{extra}"


def get(target, *headers, **differences):
    """A GET."""
    return Case("GET", target, headers, **differences)


def upload(method, target, content_type, body):
    """A request with a body."""
    return Case(method, target, (("Content-Type", content_type),), body)


def with_json(method, target):
    """A request with a small JSON body."""
    return upload(method, target, "application/json", JSON_BODY)


def every_method(target):
    """One case for each method of the endpoints that accept anything.

    TRACE is documented by httpbin, and refused by a proxy at the edge: it reflects credentials.
    """
    uploads = [with_json(method, target) for method in ("POST", "PUT", "PATCH")]
    return [get(target), *uploads, Case("DELETE", target), Case("TRACE", target, refused=405)]


def basic(user, password):
    """An Authorization header of scheme Basic."""
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    return ("Authorization", f"Basic {credentials}")


JSON_BODY = json.dumps({"name": "Ada", "tags": ["a", "b"], "emoji": "\U0001f6a7"}).encode()
FORM_BODY = b"name=Ada+Lovelace&tag=a&tag=b&empty=&symbol=%26"
BINARY_BODY = random.Random(7).randbytes(1024 * 1024)
BOUNDARY = "toll-gate-boundary"
MULTIPART_BODY = b"\r\n".join(
    [
        f"--{BOUNDARY}".encode(),
        b'Content-Disposition: form-data; name="field"',
        b"",
        b"value",
        f"--{BOUNDARY}".encode(),
        b'Content-Disposition: form-data; name="file"; filename="blob.bin"',
        b"Content-Type: application/octet-stream",
        b"",
        BINARY_BODY[:2048],
        f"--{BOUNDARY}--".encode(),
        b"",
    ]
)

# 1xx are no final responses. 407 loses its Proxy-Authenticate, which is for one hop only.
STATUSES = [200, 201, 202, 203, 204, 205, 206, 207, 226, 299]
STATUSES += [300, 301, 302, 303, 304, 305, 307, 308]
STATUSES += [400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416]
STATUSES += [418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 499]
STATUSES += [500, 501, 502, 503, 504, 505, 507, 508, 511, 599]

COMPRESSED = ("Accept-Encoding", "gzip, deflate, br")


def upload_cases(method, target):
    """Every shape of body that a method with one can carry."""
    return [
        with_json(method, target),
        upload(method, target, "application/x-www-form-urlencoded", FORM_BODY),
        upload(method, target, f"multipart/form-data; boundary={BOUNDARY}", MULTIPART_BODY),
        upload(method, target, "application/octet-stream", BINARY_BODY),
        upload(method, target, "text/plain; charset=utf-8", "caf\u00e9 \u20ac".encode()),
        upload(method, target, "text/plain", [b"one, ", b"two, ", b"three"]),
        upload(method, target, "application/octet-stream", [BINARY_BODY[:70_000]] * 3),
        Case(method, target, body=b""),
    ]


DOCUMENTED = {
    "/absolute-redirect/{n}": [get("/absolute-redirect/1"), get("/absolute-redirect/3")],
    "/anything": [
        *every_method("/anything?x=1&x=2&y="),
        get("/anything", ("X-Custom", "one"), ("X-Empty", ""), ("X-Latin", "caf\xe9")),
        get("/anything", ("Accept-Language", "de"), ("Accept-Language", "en;q=0.5")),
        get("/anything", ("Cookie", "a=1; b=2; c=%20")),
        get("/anything", ("Origin", "https://example.com"), ("Referer", "https://example.com/x")),
    ],
    "/anything/{anything}": [
        *every_method("/anything/a/b/c"),
        get("/anything/a%20b/%E2%82%AC?q=%2F%3F%26&r=a+b"),
        get("/anything/semi;colon=1/at@sign/tilde~/star*"),
        get("/anything/%41bc/%7Euser"),
        get("/anything/trailing/"),
    ],
    "/base64/{value}": [get("/base64/SFRUUEJJTiBpcyBhd2Vzb21l"), get("/base64/not-base64!")],
    "/basic-auth/{user}/{passwd}": [
        get("/basic-auth/ada/secret"),
        get("/basic-auth/ada/secret", basic("ada", "secret")),
        get("/basic-auth/ada/secret", basic("ada", "wrong")),
    ],
    "/bearer": [
        get("/bearer"),
        get("/bearer", ("Authorization", "Bearer no.jwt.at-all")),
        get("/bearer", ("Authorization", "Basic x")),
    ],
    "/brotli": [get("/brotli", COMPRESSED)],
    "/bytes/{n}": [
        get("/bytes/0?seed=1"),
        get("/bytes/1024?seed=7"),
        get("/bytes/102400?seed=7"),
        get("/bytes/100", random_body=True),
    ],
    "/cache": [
        get("/cache", volatile=frozenset({"etag", "last-modified"})),
        get("/cache", ("If-None-Match", '"x"')),
        get("/cache", ("If-Modified-Since", "Sat, 01 Jan 2022 00:00:00 GMT")),
    ],
    "/cache/{value}": [get("/cache/60")],
    "/cookies": [get("/cookies"), get("/cookies", ("Cookie", "a=1; b=two"))],
    "/cookies/delete": [get("/cookies/delete?a&b", ("Cookie", "a=1; b=2"))],
    "/cookies/set": [get("/cookies/set?a=1&b=2&c=3")],
    "/cookies/set/{name}/{value}": [get("/cookies/set/flavour/oat")],
    "/deflate": [get("/deflate", COMPRESSED)],
    "/delay/{delay}": [*every_method("/delay/0"), get("/delay/1")],
    "/delete": upload_cases("DELETE", "/delete"),
    "/deny": [get("/deny")],
    # The second half of these conversations is in compare.py.
    "/digest-auth/{qop}/{user}/{passwd}": [
        get("/digest-auth/auth/ada/secret"),
        get("/digest-auth/auth-int/ada/secret"),
    ],
    "/digest-auth/{qop}/{user}/{passwd}/{algorithm}": [
        get("/digest-auth/auth/ada/secret/SHA-256"),
        get("/digest-auth/auth-int/ada/secret/SHA-512"),
    ],
    "/digest-auth/{qop}/{user}/{passwd}/{algorithm}/{stale_after}": [
        get("/digest-auth/auth/ada/secret/MD5/never"),
        get("/digest-auth/auth/ada/secret/MD5/1"),
    ],
    "/drip": [
        get("/drip?duration=1&numbytes=5&delay=0"),
        get("/drip?duration=0&numbytes=5000"),
        get("/drip?duration=0&numbytes=3&code=503"),
        get("/drip?numbytes=0"),
    ],
    "/encoding/utf8": [get("/encoding/utf8")],
    "/etag/{etag}": [
        get("/etag/abc"),
        get("/etag/abc", ("If-None-Match", "abc")),
        get("/etag/abc", ("If-None-Match", "W/abc, xyz")),
        get("/etag/abc", ("If-Match", "abc")),
        get("/etag/abc", ("If-Match", "xyz")),
    ],
    "/get": [get("/get"), get("/get?a=1&a=2&b=%C3%A9&c=a%2Fb&d")],
    "/gzip": [get("/gzip", COMPRESSED)],
    "/headers": [get("/headers"), get("/headers", ("X-Custom", "value, with comma"))],
    "/hidden-basic-auth/{user}/{passwd}": [
        get("/hidden-basic-auth/ada/secret"),
        get("/hidden-basic-auth/ada/secret", basic("ada", "secret")),
    ],
    "/html": [get("/html")],
    "/image": [
        get("/image"),
        get("/image", ("Accept", "image/webp")),
        get("/image", ("Accept", "image/svg+xml")),
        get("/image", ("Accept", "image/jpeg")),
        get("/image", ("Accept", "image/*")),
    ],
    "/image/jpeg": [get("/image/jpeg")],
    "/image/png": [get("/image/png")],
    "/image/svg": [get("/image/svg")],
    "/image/webp": [get("/image/webp")],
    "/ip": [get("/ip")],
    "/json": [get("/json")],
    "/links/{n}/{offset}": [get("/links/10/0"), get("/links/10/5")],
    "/patch": upload_cases("PATCH", "/patch"),
    "/post": upload_cases("POST", "/post"),
    "/put": upload_cases("PUT", "/put"),
    "/range/{numbytes}": [
        get("/range/1024"),
        get("/range/102400?chunk_size=1000"),
        get("/range/1024", ("Range", "bytes=10-19")),
        get("/range/1024", ("Range", "bytes=1000-")),
        get("/range/1024", ("Range", "bytes=-24")),
        get("/range/1024", ("Range", "bytes=2000-")),
        get("/range/0"),
    ],
    "/redirect-to": [
        get("/redirect-to?url=http%3A%2F%2Fexample.com%2Fx%3Fy%3D1"),
        get("/redirect-to?url=%2Fget&status_code=307"),
        *every_method("/redirect-to?url=%2Fanything&status_code=308"),
    ],
    "/redirect/{n}": [
        get("/redirect/1"),
        get("/redirect/5"),
        get("/redirect/2?absolute=true"),
    ],
    "/relative-redirect/{n}": [get("/relative-redirect/1"), get("/relative-redirect/4")],
    "/response-headers": [
        get("/response-headers?X-Twice=1&X-Twice=2&X-Empty="),
        get("/response-headers?Link=%3Chttps%3A%2F%2Fexample.com%2F2%3E%3B+rel%3Dnext"),
        get("/response-headers?Cache-Control=no-store&Vary=Accept&Age=5&ETag=%22v1%22"),
        get("/response-headers?Last-Modified=Sat%2C+01+Jan+2022+00%3A00%3A00+GMT"),
        get("/response-headers?Set-Cookie=a%3D1&Set-Cookie=b%3D2&Content-Language=de"),
        get("/response-headers?Retry-After=120&Content-Disposition=attachment"),
        Case("POST", "/response-headers?X-Custom=yes", body=b""),
    ],
    "/robots.txt": [get("/robots.txt")],
    "/status/{codes}": [
        *every_method("/status/200"),
        *(get(f"/status/{status}") for status in STATUSES),
        *(Case("DELETE", f"/status/{status}") for status in (204, 404, 503)),
        *(with_json("POST", f"/status/{status}") for status in (201, 204, 304, 409, 502)),
        get("/status/no-number"),
    ],
    "/stream-bytes/{n}": [
        get("/stream-bytes/0?seed=7"),
        get("/stream-bytes/4096?seed=7&chunk_size=100"),
        get("/stream-bytes/102400?seed=7"),
    ],
    "/stream/{n}": [get("/stream/1"), get("/stream/20"), get("/stream/100")],
    "/user-agent": [get("/user-agent", ("User-Agent", "curl/0 (a; b) \u00e9"))],
    "/uuid": [get("/uuid")],
    "/xml": [get("/xml")],
}

PREFLIGHT = (
    ("Origin", "https://example.com"),
    ("Access-Control-Request-Method", "PUT"),
    ("Access-Control-Request-Headers", "authorization, x-custom"),
)

# Pages and methods that the specification leaves out.
UNDOCUMENTED = [
    get("/"),
    get("/spec.json"),
    get("/legacy"),
    get("/forms/post"),
    get("/links/5"),
    get("/static/favicon.ico"),
    get("/nowhere"),
    Case("POST", "/get", body=b""),
    Case("PUT", "/html", body=b"x"),
    Case("PURGE", "/get"),
    *(
        Case("HEAD", target, echoes=target in {"/get", "/gzip", "/headers", "/etag/abc"})
        for target in (
            "/get /gzip /headers /ip /html /json /xml /image/png /bytes/100?seed=1 /stream/3 "
            "/range/1024 /drip?duration=0&numbytes=10 /redirect/1 /status/204 /status/404 "
            "/etag/abc /encoding/utf8 /nowhere"
        ).split()
    ),
    Case("HEAD", "/range/1024", (("Range", "bytes=10-19"),)),
    Case("HEAD", "/etag/abc", (("If-None-Match", "abc"),)),
    *(Case("OPTIONS", target) for target in ("/get", "/post", "/anything", "/status/200")),
    *(Case("OPTIONS", target, PREFLIGHT) for target in ("/put", "/anything/x")),
]

# What HTTP/2 frames differently: bodies both ways, none at all, streams, repeated headers.
HTTP2 = [
    get("/get?a=1&b=%20"),
    get("/headers", ("Cookie", "a=1; b=2"), ("X-Custom", "value")),
    get("/stream/20"),
    get("/bytes/102400?seed=7"),
    get("/gzip", COMPRESSED),
    get("/redirect/1"),
    get("/cookies/set?a=1&b=2"),
    get("/drip?duration=0&numbytes=5000"),
    get("/status/204"),
    get("/status/304"),
    get("/status/418"),
    get("/range/1024", ("Range", "bytes=10-19")),
    Case("HEAD", "/html"),
    Case("OPTIONS", "/get"),
    with_json("POST", "/post"),
    with_json("DELETE", "/delete"),
    upload("PUT", "/put", "application/octet-stream", BINARY_BODY),
    upload("POST", "/post", f"multipart/form-data; boundary={BOUNDARY}", MULTIPART_BODY),
]


def authorized(case, authorization):
    """The same request with credentials."""
    return replace(case, headers=(*case.headers, ("Authorization", authorization)))
