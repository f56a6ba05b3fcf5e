"""FastMCP's own client and server, with limits by tool between them.

For a client of revision 2026-07-28, which names the tool in a header, and for one that speaks the older
revisions, where only the body names it: both tools work, a cheap one that is used up leaves the dear one,
connecting costs nothing, a denial is the client's own error, and the client goes on after it.
"""

import asyncio
import http.client
import json
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "httpbin")]
from fastmcp import Client, FastMCP
from harness import Tally, binary_under_test, free_port, tollgate, wait_until_listening
from mcp import MCPError
from mcp.shared.inbound import encode_header_value

SECONDS = 60
REVISION = "2026-07-28"
HEADER_MISMATCH = -32020
# A denial has the status as its code, which no standard keeps for itself.
DENIED = 429
# How a client connects, and what it speaks then.
MODES = {"auto": REVISION, "legacy": "2025-11-25"}

POLICY = """\
version: 1
upstreams: {{ tools: {{ servers: ["http://127.0.0.1:{upstream}"] }} }}
identity: {{ callers: [{{ name: visitor, key: client.ip }}] }}
limits:
  calls: {{ per: [caller, mcp.tool], rate: 3/minute, cost: {{ mcp: {{ tools/call: 1, default: 0 }} }} }}
  budget:
    per: caller
    rate: 10/minute
    cost: {{ mcp: {{ tools: {{ render: 5 }}, tools/call: 1, default: 0 }} }}
routes:
  - {{ match: {{ path: /mcp }}, limits: [calls, budget] }}
"""


class Tools:
    """A server of two tools, in a thread that ends with this process."""

    def __init__(self):
        self.port = free_port()
        self.calls = []
        server = FastMCP("tools", tools=[self.search, self.render])
        options = {"host": "127.0.0.1", "port": self.port, "show_banner": False, "log_level": "error"}
        self.thread = threading.Thread(target=server.run, args=("http",), kwargs=options, daemon=True)
        self.thread.start()
        wait_until_listening("the server of tools", self, self.port)

    def poll(self):
        """As of a process: none while it runs."""
        return None if self.thread.is_alive() else 1

    def search(self, text: str) -> str:
        """Finds a text, which is cheap."""
        self.calls.append("search")
        return f"found {text}"

    def render(self, text: str) -> str:
        """Draws a text, which is dear."""
        self.calls.append("render")
        return f"drawn {text}"


def differs(what, expected, got):
    return [] if expected == got else [f"{what}: expected {expected!r}, got {got!r}"]


def used(port):
    """Units of the budget that the caller has used, as it is told itself."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/rate_limit")
    return json.load(connection.getresponse())["resources"]["budget"]["used"]


async def check_connecting(tally, address, port, mode):
    """Connecting and listing cost nothing, however often."""
    for _ in range(5):
        async with Client(address, mode=mode) as client:
            names = sorted(tool.name for tool in await client.list_tools())
            tally.record(f"{mode}: the tools", differs("names", ["render", "search"], names))
            tally.record(f"{mode}: revision", differs("it", MODES[mode], client.protocol_version))
    tally.record(f"{mode}: connecting is free", differs("units", 0, used(port)))


async def check_denial(tally, what, limit, call):
    """A denial is the client's own error, and says which limit it was and when to come again."""
    try:
        problems = [f"it passed: {(await call).data!r}"]
    except MCPError as error:
        problems = differs("code", DENIED, error.error.code)
        told = f"{error.error.message} {json.dumps(error.error.data)}"
        problems += [f"{limit} is not in {told}"] if limit not in told else []
        problems += ["it has no message"] if not error.error.message else []
        problems += [f"no time to wait is in {told}"] if "retry" not in told else []
    tally.record(what, problems)


async def check_limits(tally, tools, address, port, mode):
    """Three cheap calls pass and a dear one, by the same client that was denied in between."""
    tools.calls.clear()
    async with Client(address, mode=mode) as client:
        for number in range(3):
            found = (await client.call_tool("search", {"text": str(number)})).data
            tally.record(f"{mode}: search {number}", differs("data", f"found {number}", found))
        tally.record(f"{mode}: three searches", differs("units", 3, used(port)))
        fourth = client.call_tool("search", {"text": "4"})
        await check_denial(tally, f"{mode}: the fourth search is denied", "calls", fourth)
        tally.record(f"{mode}: a denial is free", differs("units", 3, used(port)))

        drawn = (await client.call_tool("render", {"text": "x"})).data
        tally.record(f"{mode}: render passes after the denial", differs("data", "drawn x", drawn))
        tally.record(f"{mode}: render is dear", differs("units", 8, used(port)))
        again = client.call_tool("render", {"text": "y"})
        await check_denial(tally, f"{mode}: a second render is denied", "budget", again)
        names = [tool.name for tool in await client.list_tools()]
        tally.record(f"{mode}: the client goes on", differs("tools", 2, len(names)))
    expected = ["search"] * 3 + ["render"]
    tally.record(f"{mode}: what the server saw", differs("calls", expected, tools.calls))


def post(port, headers, name):
    """A call of a tool by hand, as FastMCP's client writes it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": {"text": "x"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": "an-id", "method": "tools/call", "params": params})
    sent = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    sent |= {"mcp-protocol-version": REVISION} | headers
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/mcp", body, sent)
    response = connection.getresponse()
    return response.status, response.getheader("content-type"), json.load(response)


def check_headers(tally, tools, port):
    """A client that names a cheap tool in the header and a dear one in the body is refused."""
    tools.calls.clear()
    right = {"mcp-method": "tools/call", "mcp-name": "render"}
    wrong = {
        "another tool": right | {"mcp-name": "search"},
        "another case": right | {"mcp-name": "Render"},
        "no tool": {"mcp-method": "tools/call"},
        "another method": right | {"mcp-method": "tools/list"},
        "no method": {"mcp-name": "render"},
        "no base64": right | {"mcp-name": "=?base64?cmVuZGV?="},
    }
    for what, headers in wrong.items():
        status, kind, answer = post(port, headers, "render")
        problems = differs("status", 400, status) + differs("content-type", "application/json", kind)
        problems += differs("id", "an-id", answer.get("id"))
        problems += differs("code", HEADER_MISMATCH, answer.get("error", {}).get("code"))
        tally.record(f"headers with {what}", problems)
    tally.record("refused calls are free", differs("units", 0, used(port)))
    tally.record("and the server saw none", differs("calls", [], tools.calls))

    # Both spellings of a name are one key.
    wrapped = "=?base64?c2VhcmNo?="
    for name in [encode_header_value("search"), wrapped, wrapped]:
        status, _, answer = post(port, right | {"mcp-name": name}, "search")
        tally.record(f"a call of {name}", differs("status", 200, status))
    status, kind, answer = post(port, right | {"mcp-name": "search"}, "search")
    problems = differs("status", 429, status) + differs("content-type", "application/json", kind)
    problems += differs("id", "an-id", answer.get("id"))
    tally.record("the fourth by either name is denied", problems)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    tools = Tools()
    policy = POLICY.format(upstream=tools.port)
    for mode in MODES:
        # Counters of its own for each.
        with tollgate(binary, policy, tally) as port:
            address = f"http://127.0.0.1:{port}/mcp"
            asyncio.run(check_connecting(tally, address, port, mode))
            asyncio.run(check_limits(tally, tools, address, port, mode))
    with tollgate(binary, policy, tally) as port:
        check_headers(tally, tools, port)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
