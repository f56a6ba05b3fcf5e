"""What Envoy Gateway makes of the local rules of a BackendTrafficPolicy: as its `internal/xds/translator`
does, for the selectors that imported_envoy.py uses.
"""

YEAR_SECONDS = 365 * 86_400


def typed(name):
    """The type of an extension's configuration."""
    return {"@type": f"type.googleapis.com/envoy.extensions.filters.{name}"}


def bucket(requests, seconds=YEAR_SECONDS):
    """A bucket of tokens."""
    return {"max_tokens": requests, "tokens_per_fill": requests, "fill_interval": f"{seconds}s"}


def matched(key, name, matcher, inverted=False):
    """An action for a value of a header, and its entry."""
    action = {"descriptor_key": key, "descriptor_value": key, "expect_match": not inverted,
              "headers": [{"name": name, "string_match": matcher}]}
    return {"header_value_match": action}, {"key": key, "value": key}


def translated_rule(at, own):
    """The actions and the entries of a rule with selectors."""
    (selector,) = own["clientSelectors"]
    for number, header in enumerate(selector.get("headers", [])):
        key = f"rule-{at}-match-{number}"
        if header.get("type") == "Distinct":
            yield {"request_headers": {"header_name": header["name"], "descriptor_key": key}}, {"key": key}
        else:
            yield matched(key, header["name"], {"exact": header["value"]}, header.get("invert", False))
    for method in selector.get("methods", []):
        yield matched(f"rule-{at}-method", ":method", {"exact": method["value"]}, method.get("invert", False))
    if path := selector.get("path"):
        prefix = {"safe_regex": {"regex": f"^{path['value']}(/.*|\\?.*|#.*|;.*|$)"}}
        exact = {"exact": path["value"]}
        yield matched(f"rule-{at}-path", ":path", exact if path.get("type") == "Exact" else prefix)
    if network := selector.get("sourceCIDR"):
        address, bits = network["value"].split("/")
        ranges = {"address_matcher": {"ranges": [{"address_prefix": address, "prefix_len": int(bits)}]}}
        key = f"rule-{at}-masked-remote-address"
        action = {"descriptor_key": key, "descriptor_value": network["value"]} | ranges
        yield {"remote_address_match": action}, {"key": key, "value": network["value"]}
        if network.get("type") == "Distinct":
            key = f"rule-{at}-remote-address"
            action = {"descriptor_key": key, "descriptor_value": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}
            yield {"remote_address_match": action | ranges}, {"key": key}


def translated(rules):
    """The filter's configuration for a route."""
    defaults = [own for own in rules if "clientSelectors" not in own]
    default = bucket(defaults[0]["limit"]["requests"]) if defaults else bucket(2**32 - 1, 1)
    limits, descriptors = [], []
    for at, own in enumerate(own for own in rules if "clientSelectors" in own):
        actions, entries = zip(*translated_rule(at, own))
        limits.append({"actions": actions})
        descriptors.append({"entries": entries, "token_bucket": bucket(own["limit"]["requests"]),
                            "shadow_mode": own.get("shadowMode", False)})
    all_of_them = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    return typed("http.local_ratelimit.v3.LocalRateLimit") | {
        "stat_prefix": "http_local_rate_limiter", "token_bucket": default, "filter_enabled": all_of_them,
        "filter_enforced": all_of_them, "descriptors": descriptors, "rate_limits": limits,
        "always_consume_default_token_bucket": False}
