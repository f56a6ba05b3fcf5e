"""Attacks on where tokens are looked for: a request has one credential, in one place and form."""

import json

from forge import with_member
from front import MALFORMED, MISSING, SEVERAL, bearer, expect, front


def check_credentials(on, cast):
    """One credential, in the one form that there is."""
    good, bad = cast.good(), "x.y.z"
    for what, *headers in (
        ("the same token twice", bearer(good), bearer(good)),
        ("two good tokens", bearer(good), bearer(cast.good())),
        ("a good and a bad token", bearer(good), bearer(bad)),
        ("a bad and a good token", bearer(bad), bearer(good)),
        ("a token and another scheme", bearer(good), ("Authorization", "Basic YTpi")),
        ("another scheme and a token", ("Authorization", "Basic YTpi"), bearer(good)),
        ("a token and nothing", bearer(good), ("Authorization", "")),
        (
            "names in another case",
            ("authorization", bearer(good)[1]),
            ("AUTHORIZATION", "Bearer x"),
        ),
        ("no token", ("Authorization", "Bearer")),
        ("no token and a space", ("Authorization", "Bearer ")),
    ):
        on.refuses(f"credentials: {what}", *headers, answer=SEVERAL)
        on.refuses(f"credentials: {what}, optional", *headers, answer=SEVERAL, path="/optional/")
    for what, value in {
        "a tab": f"Bearer \t{good}",
        "a tab for a space": f"Bearer\t{good}",
        "a scheme that goes on": f"Bearers {good}",
        "a colon behind the scheme": f"Bearer: {good}",
        "an equals sign behind the scheme": f"Bearer={good}",
        "no space": f"Bearer{good}",
        "two in one field": f"Bearer {good}, Bearer {good}",
    }.items():
        malformed = ("Authorization", value)
        on.refuses(f"credentials: {what}", malformed, answer=MALFORMED)
        on.refuses(f"credentials: {what}, optional", malformed, answer=MALFORMED, path="/optional/")
    for what, value in {
        "Basic": "Basic YTpi",
        "Digest": 'Digest username="a"',
        "a token without a scheme": good,
        "DPoP": f"DPoP {good}",
        "nothing": "",
    }.items():
        on.refuses(f"credentials: {what}", ("Authorization", value), answer=MISSING)
    on.refuses("credentials: none", answer=MISSING)
    for what, headers, path in (
        ("in a query", [], f"/?access_token={good}"),
        ("in a cookie", [("Cookie", f"access_token={good}; token={good}")], "/"),
        ("in a field of its own", [("X-Access-Token", good), ("X-Authorization", good)], "/"),
        ("for a proxy", [("Proxy-Authorization", f"Bearer {good}")], "/"),
    ):
        where = f"credentials: a token {what}, where the proxy looks for none"
        on.refuses(where, *headers, answer=MISSING, path=path)
    for scheme in ("bearer", "BEARER", "BeArEr", "Bearer  "):
        on_scheme = f"{scheme} {cast.good()}"
        reply, seen = on.ask(("Authorization", on_scheme))
        problems = expect("status", 200, reply.status) + expect("requests", 1, len(seen))
        on.tally.record(f"credentials: the scheme {scheme!r} is accepted", problems)


def check_heads(on, cast):
    """A token that does not fit into a request's head is none: the proxy does not read so far."""
    for members in (1500, 10_000, 100_000):
        many = json.dumps({f"m{number}": 1 for number in range(members)})
        payload = with_member(cast.claims(), "many", many)
        reply, seen = on.ask(bearer(cast.signed(cast.header(), payload)))
        problems = expect("status", 431, reply.status) + expect("requests", [], seen)
        on.tally.record(f"a token of {members} members is too large", problems)
        on.accepts("a good token after that", cast.good())


def check_places(binary, cast, tally):
    """Where tokens may come in four places, they come in one at a time, and go no further."""
    plan = cast.plan()
    plan.identity = "token: { header: x-token, cookie: session, query: access_token }"
    with front(binary, plan, tally) as on:
        places = {
            "Authorization": lambda good: ([bearer(good)], "/a?b=1"),
            "header": lambda good: ([("X-Token", good)], "/a?b=1"),
            "cookie": lambda good: ([("Cookie", f"a=1; session={good}; b=2")], "/a?b=1"),
            "query": lambda good: ([], f"/a?access_token={good}&b=1"),
            "query, spelt with percent signs": lambda good: ([], f"/a?%61ccess_token={good}&b=1"),
        }
        for what, place in places.items():
            good = cast.good()
            headers, path = place(good)
            reply, seen = on.ask(*headers, path=path)
            problems = expect("status", 200, reply.status)
            problems += expect("paths at the API", ["/a?b=1"], [at[":path"] for at in seen])
            left = [
                f"{name}: {value}" for at in seen for name, value in at.items() if good in value
            ]
            problems += expect("the token at the API", [], left)
            tally.record(f"places: a token in {what} is accepted", problems)
        for one, place in places.items():
            for other, second in places.items():
                headers, path = place(cast.good())
                more, target = second(cast.good())
                if one != other:
                    query = f"{path}&{target.split('?')[1]}"
                    name = f"places: tokens in {one} and in {other}"
                    on.refuses(name, *headers, *more, answer=SEVERAL, path=query)
        twice = f"/?access_token={cast.good()}&access_token={cast.good()}"
        on.refuses("places: two parameters", answer=SEVERAL, path=twice)
        cookies = [("Cookie", f"session={cast.good()}; session={cast.good()}")]
        on.refuses("places: two cookies", *cookies, answer=SEVERAL)
        header, payload, signature = cast.good().split(".")
        on.refuses("places: a bad cookie", ("Cookie", f"session={header}.{payload}.{signature}A"))
