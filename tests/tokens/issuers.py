"""Access tokens as RFC 9068 and the usual providers write them, and who is calling by them.

For each provider a policy says, as its operator would, what the caller and its tier are called,
which claims there must be, and which scopes a route takes: see providers.py. What a provider signs
for another purpose, or for somebody else, is refused.
"""

import json
import sys
from pathlib import Path

from joserfc import jwk

from front import Answer, Plan, front
from harness import Tally, binary_under_test
from providers import KEY, OLD_KEY, PROVIDERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "providers.md"


def plan():
    """All providers in one policy; each has routes of its own, and its tokens no others."""
    issuers, routes = [], []
    for at, provider in enumerate(PROVIDERS.values()):
        keys = {"name": f"p{at}", "jwks_file": "../keys.jwks", "algorithms": ["RS256"]}
        issuers.append(keys | provider.settings)
        if "key_hints" in provider.settings:
            strict = provider.settings | {"issuer": strict_issuer(provider), "key_hints": "reject"}
            issuers.append(keys | strict | {"name": f"p{at}-strict"})
        own = f"auth: {{ required: [p{at}] }}"
        for path, scopes in scoped(provider):
            routes.append(f'{{ match: {{ path: "/p{at}/{path}" }}, {own}, scopes: {scopes} }}')
        routes.append(f'{{ match: {{ path: "/p{at}/**" }}, {own} }}')
    routes.append('{ match: { path: "/**" }, auth: required }')
    published = jwk.KeySet([OLD_KEY, KEY]).as_dict(private=False)
    tiers = "{ default: free, names: [free, pro, private] }"
    files = {"keys.jwks": json.dumps(published).encode()}
    return Plan(issuers, tiers=tiers, routes=routes, files=files)


def said(settings):
    """What of the settings a page has to say, each as it stands there."""
    for name, value in settings.items():
        yield name
        values = value.items() if isinstance(value, dict) else [("", value)]
        for inner, own in values:
            yield str(inner)
            for text in own if isinstance(own, list) else [own]:
                yield {None: "", True: "true", False: "false"}.get(text, str(text))


def is_on_page(name, provider):
    """Whether the page for operators has these settings in the provider's section."""
    section = PAGE.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    return [text for text in said(provider.settings) if text not in section]


def scoped(provider):
    """Paths and the scopes that they take: one that the token has, and one more that it has not."""
    if provider.scope:
        yield "scoped", [provider.scope]
        yield "beyond", [provider.scope, provider.scope + "-all"]
    else:
        yield "beyond", ["orders:read"]


def strict_issuer(provider):
    """An issuer whose hints are not to be ignored, though its tokens have them."""
    return f"{provider.settings['issuer']}#strict"


def check(on, at, name, provider):
    """Its tokens are accepted as what they are, and no others are."""
    who = {"subject": provider.subject, "tier": provider.tier}
    on.accepts(f"{name}", provider.token(), path=f"/p{at}/", **who)
    on.accepts(f"{name}, on a route for all", provider.token(), **who)
    for what, changes in provider.others.items():
        on.refuses(f"{name}: {what}", provider.token(changes))
    for what, changes in provider.other_headers.items():
        on.refuses(f"{name}: {what}", provider.token(header=changes))
    for path, scopes in scoped(provider):
        label, path = f"{name}: scopes {scopes}", f"/p{at}/{path}"
        if path.endswith("scoped"):
            on.accepts(label, provider.token(), path=path, **who)
        else:
            on.refuses(label, provider.token(), answer=lacks(scopes), path=path)
    for other in PROVIDERS.values():
        if other is not provider:
            stranger = other.token()
            on.refuses(f"{name}: {other.settings['issuer']}", stranger, path=f"/p{at}/")
    if "key_hints" in provider.settings:
        on.refuses(f"{name}: hints", provider.token({"iss": strict_issuer(provider)}))


def lacks(scopes):
    """How a token is answered that is good, and does not grant enough."""
    needed = " ".join(scopes)
    message = f"The credentials do not grant what this needs: {needed}."
    return Answer(403, "insufficient_scope", message)


def main():
    """One proxy that knows all of them."""
    binary = binary_under_test(__doc__, 120)

    tally = Tally()
    with front(binary, plan(), tally) as on:
        for at, (name, provider) in enumerate(PROVIDERS.items()):
            print(f"{name}: {provider.settings['issuer']}")
            check(on, at, name, provider)
            tally.record(f"{name}: docs/providers.md says so", is_on_page(name, provider))
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
