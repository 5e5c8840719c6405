"""Tools over HTTP: what is sent, what is read, where they may not go, and servers that mean no good."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from running import Ran, run
from tool_servers import FLOOD, WebServer, web_server

from helix.errors import OptionError, ToolError
from helix.executor.tools.access import Secrets, ToolAccess, is_public, matches
from helix.executor.tools.addresses import CheckedResolver, RefusedAddress, check_host
from helix.executor.tools.opener import ToolOpener
from helix.executor.tools.threads import Threads
from helix.schema import Column
from helix.services import Tool
from helix.types import INT, JSON, TEXT, ListOf, Record, Type, optional


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


HERE = ToolAccess(private=("127.0.0.1",), environment={"TOKEN": "s3cret-value", "KEY": "a/b c+d&e"})


def tool(target: str, *params: tuple[str, Type], returns: Type = JSON, **traits: Any) -> Tool:
    """An HTTP tool."""
    columns = tuple(Column(name, kind) for name, kind in params)
    return Tool(name="web", origin="http", target=target, params=columns, returns=returns, **traits)


def ask(made: Tool, *args: Any, access: ToolAccess = HERE) -> Any:
    """What one call gives."""

    async def main() -> str:
        opener = ToolOpener({}, None, access)
        try:
            return await (await opener.open(made))(list(args))
        finally:
            await opener.close()

    return json.loads(asyncio.run(main()))


def fails(made: Tool, *args: Any, access: ToolAccess = HERE) -> ToolError:
    """The error of one call."""
    with pytest.raises(ToolError) as caught:
        ask(made, *args, access=access)
    return caught.value


# --- what is sent ---


def test_parameters_go_into_the_address_the_query_or_the_body(server: WebServer) -> None:
    params = (("id", TEXT), ("q", optional(TEXT)), ("n", INT), ("tags", ListOf(TEXT)))
    seen = ask(tool(f"GET {server.url('/v1/items/{id}?fixed=1')}", *params), "a/b ü&?#", None, 3, ["x", "y z"])
    assert seen["raw"].startswith("/v1/items/a%2Fb%20%C3%BC%26%3F%23?fixed=1&")
    assert seen["query"] == {"fixed": ["1"], "n": ["3"], "tags": ["x", "y z"]}
    seen = ask(tool(f"POST {server.url('/v1/{id}')}", *params), "i", "what", 3, ["x"])
    assert (seen["method"], seen["path"], seen["query"]) == ("POST", "/v1/i", {})
    assert seen["body"] == {"q": "what", "n": 3, "tags": ["x"]}
    assert seen["headers"]["Content-Type"] == "application/json"


def test_an_argument_cannot_leave_its_place_in_the_address(server: WebServer) -> None:
    made = tool(f"GET {server.url('/v1/items/{id}')}", ("id", TEXT))
    for way_out in ("..", "."):
        assert "may not be `.` or `..`" in fails(made, way_out).message
    assert ask(made, "../admin?x=1#y")["raw"] == "/v1/items/..%2Fadmin%3Fx%3D1%23y"
    assert ask(made, "${TOKEN}")["raw"] == "/v1/items/%24%7BTOKEN%7D"
    assert "cannot be null" in fails(tool(f"GET {server.url('/{id}')}", ("id", optional(TEXT))), None).message


def test_secrets_are_sent_and_shown_nowhere(server: WebServer) -> None:
    headers = ("Authorization: Bearer ${TOKEN}", "X-Plain: here")
    made = tool(f"GET {server.url('/echo?key=${KEY}')}", headers=headers)
    seen = ask(made)
    asked = server.asked[-1]
    assert asked["headers"]["Authorization"] == "Bearer s3cret-value"
    assert asked["query"] == {"key": ["a/b c+d&e"]}
    # What the server echoes is a result, and results are kept: no secret is in it.
    assert seen["headers"]["Authorization"] == "Bearer ***"
    assert seen["headers"]["X-Plain"] == "here"
    assert seen["query"] == {"key": ["***"]}
    error = fails(tool(f"GET {server.url('/status?code=403')}", headers=headers))
    assert error.message == "web: 127.0.0.1 answered 403 Forbidden: no: Bearer ***"
    assert "s3cret" not in repr(made) + repr(HERE)


def test_a_short_secret_changes_no_result(server: WebServer) -> None:
    access = ToolAccess(private=("127.0.0.1",), environment={"TOKEN": "echo"})
    made = tool(f"GET {server.url('/echo')}", headers=("Authorization: ${TOKEN}",))
    assert ask(made, access=access)["path"] == "/echo"
    refused = tool(f"GET {server.url('/status?code=403')}", headers=("Authorization: ${TOKEN}",))
    assert fails(refused, access=access).message.endswith("no: ***")


def test_a_secret_that_is_not_there_is_found_before_any_call(server: WebServer) -> None:
    made = tool(f"GET {server.url('/')}", headers=("Authorization: Bearer ${NOPE}",))
    with pytest.raises(OptionError, match=r"http tool `web` wants \$\{NOPE\}: the environment has no NOPE"):
        ask(made)
    with pytest.raises(OptionError, match="control characters"):
        Secrets("it", ("${A}",), {"A": "one\r\nHost: two"})


# --- what is read ---


def test_replies_are_json_or_text(server: WebServer) -> None:
    assert ask(tool(f"GET {server.url('/text')}")) == "grüße\n"
    assert ask(tool(f"GET {server.url('/latin')}", returns=TEXT)) == "grüße"
    assert ask(tool(f"GET {server.url('/nothing')}")) is None
    assert ask(tool(f"GET {server.url('/gzip')}")) == {"packed": True}
    assert ask(tool(f"GET {server.url('/x')}", returns=Record((("method", TEXT),)))) == {"method": "GET"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/garbage", "web: the reply is no text in UTF-8"),
        ("/nan", "web: the reply, application/json, is not JSON: NaN is not JSON"),
        ("/deep", "web: the reply, application/json, is not JSON: "),
        ("/status?code=500", "web: 127.0.0.1 answered 500 Internal Server Error: no: None"),
        ("/drop", "web: the reply of 127.0.0.1 cannot be read: "),
        ("/cut", "web: the reply of 127.0.0.1 cannot be read: "),
    ],
)
def test_what_cannot_be_read_is_an_error(server: WebServer, path: str, message: str) -> None:
    assert fails(tool(f"GET {server.url(path)}")).message.startswith(message)


def test_what_does_not_fit_the_declared_type_is_an_error(server: WebServer) -> None:
    error = fails(tool(f"GET {server.url('/x')}", returns=Record((("method", INT),))))
    assert error.message == 'web gave a result that does not fit at `/method`: expected int, found text "GET"'


# --- servers that mean no good ---


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_a_server_that_never_ends_is_left_in_time(server: WebServer, path: str) -> None:
    began = time.monotonic()
    error = fails(tool(f"GET {server.url(path)}", timeout=0.3))
    assert (error.kind, error.message) == ("timeout", "web: no whole reply within 0.3 s")
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("path", ["/flood", "/bomb"])
def test_a_flood_is_read_as_far_as_the_limit(server: WebServer, path: str) -> None:
    server.sent = 0
    error = fails(tool(f"GET {server.url(path)}", max_bytes=100_000))
    assert error.message == "web gave a result of more than the 100,000 bytes that `max_bytes` allows"
    assert server.sent < FLOOD // 2


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again_where_that_does_no_harm(server: WebServer, code: int) -> None:
    server.busy, before = 0, len(server.asked)
    target = f"GET {server.url(f'/busy?code={code}&wait=0')}"
    assert ask(tool(target, effects="read")) == "at last"
    assert len(server.asked) - before == 3
    server.busy = 0
    assert fails(tool(target, effects="write")).message.startswith(f"web: 127.0.0.1 answered {code}")
    assert server.busy == 1
    # A wait that is longer than the call has is not begun.
    began = time.monotonic()
    server.busy = 0
    error = fails(tool(f"GET {server.url(f'/busy?code={code}&wait=60')}", effects="read", timeout=5))
    assert (error.kind, server.busy) == ("tool", 1)
    assert time.monotonic() - began < 4


# --- where it may not go ---


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "no address",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


def test_rules_for_hosts() -> None:
    assert matches("api.example.org", 443, ("API.example.org",))
    assert matches("api.example.org.", 443, ("*.example.org",))
    assert not matches("example.org", 443, ("*.example.org",))
    assert not matches("evilexample.org", 443, ("*.example.org", "example.org:444"))
    assert matches("::1", 80, ("[::1]:80",))
    assert matches("[::1]", 80, ("::1",))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]", "[fd00::1]", "10.0.0.1:8080"]
)
def test_a_private_address_is_refused_before_any_call(host: str) -> None:
    with pytest.raises(OptionError, match=r"is no public address; --allow-private .+ allows it"):
        ask(tool(f"GET http://{host}/"), access=ToolAccess())


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0x7f000001", "127.1", "017700000001", "127.0.0.1.", "1.2.3"])
def test_an_address_that_is_written_oddly_is_refused(server: WebServer, host: str) -> None:
    before = len(server.asked)
    with pytest.raises(OptionError, match="is no name, and no address of four numbers"):
        ask(tool(f"GET http://{host}:{server.port}/"), access=HERE)
    made = tool(f"GET {server.url('/redirect')}", ("to", TEXT), hosts=(host,))
    assert "is no name" in fails(made, f"http://{host}:{server.port}/").message
    assert len(server.asked) == before + 1


def test_a_name_that_leads_to_a_private_address_is_refused(server: WebServer) -> None:
    before = len(server.asked)
    error = fails(tool(f"GET http://localhost:{server.port}/"), access=ToolAccess())
    assert error.message.startswith("web: localhost (")
    assert error.message.endswith(") is no public address; --allow-private localhost allows it")
    assert len(server.asked) == before
    assert ask(tool(f"GET http://localhost:{server.port}/x"), access=ToolAccess(private=("localhost",)))["path"] == "/x"


def test_only_hosts_that_are_allowed_are_asked(server: WebServer) -> None:
    with pytest.raises(OptionError, match=r"127\.0\.0\.1 is not among the hosts that --allow-host names"):
        ask(tool(f"GET {server.url('/')}"), access=ToolAccess(hosts=("example.org",), private=("127.0.0.1",)))
    allowed = ToolAccess(hosts=(f"127.0.0.1:{server.port}",), private=("127.0.0.1",))
    assert ask(tool(f"GET {server.url('/x')}"), access=allowed)["path"] == "/x"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254, which is not among the tool's `hosts`"),
        ("http://localhost:1/", "localhost, which is not among the tool's `hosts`"),
        ("//127.0.0.2/", "127.0.0.2 is no public address; --allow-private 127.0.0.2 allows it"),
        ("file:///etc/passwd", "file:///etc/passwd, which is no http address"),
        ("http://user:pw@127.0.0.1/", "an address with a user in it"),
    ],
)
def test_a_redirect_is_checked_like_the_first_address(server: WebServer, status: int, to: str, message: str) -> None:
    made = tool(f"GET {server.url(f'/redirect?status={status}')}", ("to", TEXT), hosts=("127.0.0.2",))
    assert fails(made, to).message == f"web: redirected to {message}"


def test_redirects_are_followed_where_they_may_lead_and_not_for_good(server: WebServer) -> None:
    made = tool(f"GET {server.url('/redirect')}", ("to", TEXT), headers=("Authorization: Bearer ${TOKEN}",))
    assert ask(made, "/there?x=1")["path"] == "/there"
    posted = tool(f"POST {server.url('/redirect?status=303&to=/there')}", ("a", INT))
    seen = ask(posted, 1)
    assert (seen["method"], seen["body"]) == ("GET", None)
    kept = tool(f"POST {server.url('/redirect?status=307&to=/there')}", ("a", INT))
    assert ask(kept, 1)["body"] == {"a": 1}


def test_a_circle_of_redirects_ends(server: WebServer) -> None:
    before = len(server.asked)
    assert fails(tool(f"GET {server.url('/loop')}")).message == "web: 127.0.0.1 redirects more than 5 times"
    assert len(server.asked) - before == 6


def test_secrets_go_to_no_other_server(server: WebServer) -> None:
    with web_server() as other:
        made = tool(
            f"GET {server.url('/redirect')}",
            ("to", TEXT),
            headers=("Authorization: Bearer ${TOKEN}", "X-Other: 1"),
        )
        seen = ask(made, other.url("/there"))
        assert seen["path"] == "/there"
        assert not {"Authorization", "X-Other"} & other.asked[-1]["headers"].keys()


def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is checked and private when it is looked up again (DNS rebinding)."""
    answers = iter(["93.184.215.14", "127.0.0.1", "127.0.0.1"])
    looked_up: list[str] = []

    def getaddrinfo(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    connected: list[Any] = []

    async def connect(*args: Any, **kwargs: Any) -> Any:
        connected.append(list(kwargs["addr_infos"]))
        raise OSError("not in a test")

    import aiohttp.connector

    monkeypatch.setattr(aiohttp.connector.aiohappyeyeballs, "start_connection", connect)
    assert "cannot be reached" in fails(tool("GET http://rebind.example/"), access=ToolAccess()).message
    assert looked_up == ["rebind.example"]
    assert [info[4][0] for infos in connected for info in infos] == ["93.184.215.14"]


def test_of_several_addresses_only_public_ones_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 80)) for each in ("10.0.0.1", "93.184.215.14")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)

    async def main() -> list[str]:
        threads = Threads()
        try:
            return [each["host"] for each in await CheckedResolver(ToolAccess(), threads).resolve("two.example", 80)]
        finally:
            threads.close()

    assert asyncio.run(main()) == ["93.184.215.14"]
    with pytest.raises(RefusedAddress, match=r"127\.0\.0\.1 is no public address"):
        check_host(ToolAccess(), "127.0.0.1", 80)


def test_no_proxy_of_the_environment_is_asked(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert ask(tool(f"GET {server.url('/x')}"))["path"] == "/x"


# --- in a run ---


def test_a_failed_request_is_one_rows_error(server: WebServer) -> None:
    text = f"""workflow w(path: text)
tool web(p: text) -> json from http "GET {server.url("/{p}?code=404")}" effects read, timeout 1500ms
x = web(path)
output x"""
    ran: Ran = run(text, [{"path": p} for p in ("ok", "status", "hang", "fine")], allow_private=["127.0.0.1"])
    assert ran.errors == [None, ("tool", "x"), ("timeout", "x"), None]
    assert ran.rows[3]["x"]["path"] == "/fine"
