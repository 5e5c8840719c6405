"""Tools of MCP servers: declarations held against what a server lists, results, hints, servers that mean no good."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import run
from tool_servers import WebServer, web_server

from helix.errors import OptionError, ToolError
from helix.executor.tools import mcp_stdio
from helix.executor.tools.access import ToolAccess
from helix.executor.tools.mcp_config import find_servers
from helix.executor.tools.opener import ToolOpener
from helix.schema import Column
from helix.services import Tool
from helix.tools.types import columns_of_schema, type_of_schema, word
from helix.types import INT, JSON, TEXT, ListOf, Record, Type, optional

pytest.importorskip("mcp_types")
SERVER = Path(__file__).parents[1] / "mcp_server.py"


def folder_with(path: Path, mode: str = "", **more: Any) -> Path:
    """A folder whose `mcp.json` names the test server as `shop`."""
    entry = {"command": sys.executable, "args": [str(SERVER), *([mode] if mode else [])], **more}
    (path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    return path


def tool(own: str, *params: tuple[str, Type], returns: Type = JSON, name: str = "t", **traits: Any) -> Tool:
    """A tool of the test server."""
    columns = tuple(Column(param, kind) for param, kind in params)
    traits = {"hinted": True, "open_world": True, **traits}
    return Tool(name=name, origin="mcp", target=f"shop:{own}", params=columns, returns=returns, **traits)


def asked(path: Path, *calls: tuple[Tool, list[Any]], access: ToolAccess | None = None) -> list[Any]:
    """What several calls give on one conversation: values, and the errors of those that failed."""

    async def main() -> list[Any]:
        opener = ToolOpener({}, path, access or ToolAccess(environment={}))
        try:
            found: list[Any] = []
            for made, args in calls:
                run = await opener.open(made)
                try:
                    found.append(json.loads(await run(args)))
                except ToolError as error:
                    found.append(error)
            return found
        finally:
            await opener.close()

    async def watched() -> list[Any]:
        try:
            return await asyncio.wait_for(main(), 30)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left running: {left}"

    return asyncio.run(watched())


ECHO = tool("echo", ("text", TEXT), ("times", INT), returns=TEXT)


def test_calls_and_results(tmp_path: Path) -> None:
    folder_with(tmp_path)
    orders = tool("find-orders", ("customer_id", TEXT), returns=ListOf(Record((("id", INT), ("customer", TEXT)))))
    found = asked(
        tmp_path,
        (ECHO, ["ab", 2]),
        (orders, ["Ada"]),
        (tool("record", returns=Record((("a", INT), ("b", optional(TEXT))))), []),
        (tool("delete-all", name="other"), []),
    )
    assert found == ["abab", [{"id": 1, "customer": "Ada"}], {"a": 1, "b": None}, "deleted"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (tool("ecko"), "mcp tool `t`: server `shop` has no tool `ecko`; did you mean `echo`?"),
        (tool("echo"), "mcp tool `t`: `echo` needs text, which the declaration leaves out"),
        (tool("echo", ("text", INT)), "mcp tool `t`: `text` is declared int, `echo` takes text"),
        (tool("echo", ("text", TEXT), ("time", INT)), "mcp tool `t`: `echo` takes no `time`; did you mean `times`?"),
    ],
)
def test_declarations_are_held_against_what_the_server_lists(tmp_path: Path, made: Tool, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        asked(folder_with(tmp_path), (made, []))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "mcp.json is not JSON"),
        ("[]", "names no servers"),
        ('{"mcpServers": {"shop": {}}}', "server `shop` has either a `command` to start it or a `url`"),
        ('{"mcpServers": {"shop": {"comand": "x"}}}', "unknown field `comand`; did you mean `command`?"),
        ('{"mcpServers": {"shop": {"command": "x", "args": "y"}}}', "`args` is a list of texts"),
        ('{"mcpServers": {"shop": {"command": "x", "env": {"A": 1}}}}', "`env` is a record of texts"),
        ('{"mcpServers": {"shops": {"command": "x"}}}', "names no MCP server `shop`; did you mean `shops`?"),
    ],
)
def test_a_file_of_servers_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(OptionError) as caught:
        asked(tmp_path, (ECHO, ["a", 1]))
    assert message in str(caught.value)


def test_without_a_file_there_are_no_servers(tmp_path: Path) -> None:
    assert find_servers(None, tmp_path) == {}
    with pytest.raises(OptionError, match=r"mcp\.json names no MCP server `shop`; there are no servers here"):
        asked(tmp_path, (ECHO, ["a", 1]))


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.executor.tools.mcp.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"need the package mcp: pip install 'helix-workflows\[mcp\]'"):
        asked(folder_with(tmp_path), (ECHO, ["a", 1]))


# --- hints ---


def test_hints_count_only_of_trusted_servers(tmp_path: Path) -> None:
    """A server that lies about what is read-only moves nobody who has not said that it may be believed."""
    folder_with(tmp_path)

    async def effects(made: Tool, *trusted: str) -> str:
        opener = ToolOpener({}, tmp_path, ToolAccess(trusted=trusted, environment={}))
        try:
            await opener.open(made)
            return opener.effects(made)
        finally:
            await opener.close()

    def found(own: str, *trusted: str, **traits: Any) -> str:
        params = (("customer_id", TEXT),) if own == "find-orders" else ()
        return asyncio.run(effects(tool(own, *params, **traits), *trusted))

    assert found("delete-all") == "unknown"
    with pytest.raises(OptionError, match=r"names no MCP server `shopp`; did you mean `shop`\?"):
        found("delete-all", "shopp")
    assert found("delete-all", "shop") == "read"
    assert found("find-orders", "shop") == "read"
    assert found("save", "shop") == "idempotent_write"
    assert found("drop", "shop") == "unknown"
    assert found("record", "shop") == "unknown"
    # What the developer declares wins over any hint.
    assert found("delete-all", "shop", effects="destructive", hinted=False) == "destructive"


# --- servers that mean no good ---


def test_a_server_that_dies_in_a_call_is_started_again_for_the_next(tmp_path: Path) -> None:
    log = tmp_path / "log"
    folder_with(tmp_path, env={"MCP_LOG": str(log)})
    before, died, after = asked(tmp_path, (ECHO, ["a", 1]), (tool("die"), []), (ECHO, ["b", 1]))
    assert (before, after) == ("a", "b")
    assert str(died) == "t: the server `shop` is gone: it ended with exit code 3 (cannot go on)"
    # The call that it died in is not made again: it may have acted.
    assert log.read_text().split() == ["echo", "die", "echo"]


def test_calls_that_only_read_are_made_once_more_one_after_another(tmp_path: Path) -> None:
    """A server dies of one call while others are in flight: those that only read come to their results."""
    log = tmp_path / "log"
    folder_with(tmp_path, env={"MCP_LOG": str(log)})

    async def main() -> list[Any]:
        opener = ToolOpener({}, tmp_path, ToolAccess(environment={}))
        try:
            reading = await opener.open(tool("slow", returns=TEXT, effects="read", hinted=False))
            acting = await opener.open(tool("slow", returns=TEXT, name="acting"))
            deadly = await opener.open(tool("die", effects="read", hinted=False, name="deadly"))
            calls = [deadly([]), reading([]), reading([]), acting([])]
            return list(await asyncio.gather(*calls, return_exceptions=True))
        finally:
            await opener.close()

    died, one, two, acted = asyncio.run(asyncio.wait_for(main(), 30))
    assert (one, two) == ('"slow"', '"slow"')
    assert str(acted).startswith("acting: the server `shop` is gone")
    assert str(died).startswith("deadly: the server `shop` is gone")
    assert log.read_text().split().count("die") == 2


def test_a_server_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    *died, last = asked(folder_with(tmp_path), *[(tool("die"), [])] * 5, (ECHO, ["a", 1]))
    assert all("is gone" in str(each) for each in died)
    assert str(last) == "t: the server `shop` went away 5 times and is not started again"


def test_a_call_that_is_never_answered_ends_in_time_and_others_go_on(tmp_path: Path) -> None:
    began = time.monotonic()
    never, after = asked(folder_with(tmp_path), (tool("never", timeout=0.3), []), (ECHO, ["a", 1]))
    assert (never.kind, str(never)) == ("timeout", "t: no result within 0.3 s")
    assert after == "a"
    assert time.monotonic() - began < 8


def test_rubbish_strays_and_wrong_results(tmp_path: Path) -> None:
    noise, stray, wrong, bad, error, image, fine = asked(
        folder_with(tmp_path),
        (tool("noise", returns=TEXT), []),
        (tool("stray", returns=TEXT), []),
        (tool("wrong"), []),
        (tool("bad", returns=Record((("a", INT),))), []),
        (tool("error"), []),
        (tool("image"), []),
        (ECHO, ["a", 1]),
    )
    assert (noise, stray, fine) == ("heard", "yours", "a")
    assert str(wrong).startswith("t: the server `shop` sent what is no result of a tool")
    assert str(bad) == "t gave a text that is not JSON: '{\"a\": NaN}'"
    assert str(error).startswith("t failed: no ")
    assert str(image) == "t gave image content, which is no text"


def test_a_flood_is_read_as_far_as_the_limit(tmp_path: Path) -> None:
    flood, after = asked(folder_with(tmp_path), (tool("flood", max_bytes=100_000), []), (ECHO, ["a", 1]))
    assert str(flood) == "t: the server `shop` is gone: it sent a message of more than 265,536 bytes"
    assert after == "a"
    small = asked(folder_with(tmp_path), (tool("echo", ("text", TEXT), returns=TEXT, max_bytes=1000), ["x" * 2000]))[0]
    assert str(small) == "t gave a result of more than the 1,000 bytes that `max_bytes` allows"


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("dead", "the server `shop` cannot be spoken to: it ended with exit code 4 (no licence)"),
        ("rubbish", "the server `shop` cannot be spoken to: it sends lines that are no messages"),
    ],
)
def test_a_server_that_cannot_be_spoken_to_is_found_before_any_call(tmp_path: Path, mode: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        asked(folder_with(tmp_path, mode), (ECHO, ["a", 1]))
    assert str(caught.value) == message


def test_a_server_that_does_not_answer_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.executor.tools.mcp.TIME_LIMIT", 0.4)
    monkeypatch.setattr(mcp_stdio, "GRACE", 0.1)
    with pytest.raises(OptionError, match=r"the server `shop` does not answer within 0\.4 s"):
        asked(folder_with(tmp_path, "mute"), (ECHO, ["a", 1]))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"shop": {"command": "no-such-program-here"}}}')
    with pytest.raises(OptionError, match="the server `shop` cannot be spoken to: FileNotFoundError"):
        asked(tmp_path, (ECHO, ["a", 1]))


def test_a_server_gets_its_secrets_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_SECRET", "not for you")
    folder_with(tmp_path, env={"SHOP_TOKEN": "${TOKEN}"})
    access = ToolAccess(environment={"TOKEN": "s3cret-value"})
    assert asked(tmp_path, (tool("secret", returns=TEXT), []), access=access) == ["the token is ***, home None"]
    with pytest.raises(OptionError, match=r"MCP server `shop` wants \$\{TOKEN\}: the environment has no TOKEN"):
        asked(tmp_path, (ECHO, ["a", 1]))


def test_in_a_run_other_rows_are_unharmed(tmp_path: Path) -> None:
    text = """workflow w(t: text)
tool echo(text: text) -> text from mcp "shop:echo" effects read
tool die() -> text from mcp "shop:die" timeout 5s
x = echo(t)
y = die() when x == "b"
output x, y"""
    ran = run(text, [{"t": "a"}, {"t": "b"}, {"t": "c"}], folder=folder_with(tmp_path))
    assert ran.errors[0] is None
    assert ran.errors[1] == ("tool", "y")
    assert ran.column("x")[0] == "a"
    assert ran.errors[2] is None or ran.errors[2][0] == "tool"


# --- servers at an address ---


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


def named(path: Path, url: str, **headers: str) -> Path:
    """A folder whose `mcp.json` names a server at an address as `shop`."""
    (path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": {"url": url, "headers": headers}}}))
    return path


HERE = ToolAccess(private=("127.0.0.1",), environment={"TOKEN": "s3cret-value"})


def test_a_server_at_an_address(tmp_path: Path, web: WebServer) -> None:
    folder = named(tmp_path, web.url("/mcp"), Authorization="Bearer ${TOKEN}")
    orders = tool("find-orders", ("customer_id", TEXT), returns=ListOf(Record((("id", INT), ("customer", TEXT)))))
    echo, found, flood, after = asked(
        folder,
        (ECHO, ["ab", 2]),
        (orders, ["Ada"]),
        (tool("flood", max_bytes=100_000), []),
        (tool("echo", ("text", TEXT), returns=TEXT, max_bytes=100_000), ["c"]),
        access=HERE,
    )
    assert (echo, found, after) == ("abab", [{"id": 1, "customer": "Ada"}], "c")
    assert isinstance(flood, ToolError)
    assert "s3cret" not in str(flood)
    assert {each["headers"]["Authorization"] for each in web.asked} == {"Bearer s3cret-value"}


@pytest.mark.parametrize(
    ("url", "access", "message"),
    [
        ("http://127.0.0.1:{port}/mcp", ToolAccess(), "127.0.0.1 is no public address; --allow-private 127.0.0.1"),
        ("http://localhost:{port}/mcp", ToolAccess(), ") is no public address; --allow-private localhost allows it"),
        ("http://2130706433:{port}/mcp", HERE, "2130706433 is no name, and no address of four numbers"),
        ("http://169.254.169.254/mcp", HERE, "169.254.169.254 is no public address"),
        (
            "http://127.0.0.1:{port}/mcp",
            ToolAccess(hosts=("example.org",), private=("127.0.0.1",)),
            "127.0.0.1 is not among the hosts that --allow-host names",
        ),
        ("http://127.0.0.1:{port}/redirect?to=http%3A%2F%2F169.254.169.254%2F", HERE, "cannot be spoken to"),
        ("http://127.0.0.1:{port}/status?code=500", HERE, "cannot be spoken to"),
        ("http://127.0.0.1:{port}/garbage", HERE, "cannot be spoken to"),
        ("http://127.0.0.1:1/mcp", HERE, "cannot be spoken to"),
    ],
)
def test_where_a_server_may_not_be(tmp_path: Path, web: WebServer, url: str, access: ToolAccess, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        asked(named(tmp_path, url.replace("{port}", str(web.port))), (ECHO, ["a", 1]), access=access)
    assert message in str(caught.value)


# --- schemas ---


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "text"),
        ({"enum": ["a", "b"]}, 'choice["a", "b"]'),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": "array"}, "list[json]"),
        ({"type": ["string", "null"]}, "text?"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "float?"),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "json"),
        ({"type": "object"}, "json"),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, "{ a: bool }"),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, "{ a: bool? }"),
        ({"$ref": "#/$defs/P", "$defs": {"P": {"type": "string"}}}, "text"),
        ({"$ref": "#/$defs/P"}, "json"),
        ({"$ref": "#"}, "json"),
        ({"$ref": "https://example.org/schema"}, "json"),
        ({"$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}}, "$ref": "#/$defs/T"}, None),
        (True, "json"),
        (None, "json"),
        ({"type": 7}, "json"),
    ],
)
def test_types_of_schemas(schema: Any, kind: str | None) -> None:
    found = str(type_of_schema(schema))
    assert found == kind if kind is not None else found.startswith("list[list[")


def test_names_and_parameters_of_schemas() -> None:
    assert [word(name) for name in ("search-pages", "ns/tool.x", "2nd", "in", "", "grün")] == [
        "search_pages", "ns_tool_x", "_2nd", "in_", "_", "gr_n",
    ]  # fmt: skip
    schema = {
        "properties": {
            "a-b": {"type": "string"},
            "a_b": {"type": "integer", "default": 3},
            "n": {"type": "integer", "default": "x"},
        },
        "required": ["a-b"],
    }
    found = [(own, column.name, str(column.type), column.default) for own, column in columns_of_schema(schema)]
    assert found[:2] == [("a-b", "a_b", "text", found[0][3]), ("a_b", "a_b_", "int", 3)]
    assert found[2][:3] == ("n", "n", "int?")
    assert columns_of_schema(None) == ()
    assert columns_of_schema({"properties": [1]}) == ()
