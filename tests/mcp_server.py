"""An MCP server over standard streams for tests, written out by hand, so that it may do what servers should not do.

`python mcp_server.py [MODE]`: `mute` never answers, `dead` ends at once, `rubbish` sends lines without end; else it
offers the tools of TOOLS. It keeps a line for each call in the file that MCP_LOG names.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

FLOOD = 20 * 1024 * 1024


def tool(name: str, properties: dict[str, Any] | None = None, required: list[str] | None = None, **more: Any) -> Any:
    """A tool as it is listed."""
    schema = {"type": "object", "properties": properties or {}, "required": required or []}
    return {"name": name, "inputSchema": schema, **more}


TEXT = {"type": "string"}
TOOLS = [
    tool("echo", {"text": TEXT, "times": {"type": "integer", "default": 1}}, ["text"], description="Says it again."),
    tool("find-orders", {"customer-id": TEXT}, ["customer-id"], annotations={"readOnlyHint": True}),
    tool("delete-all", annotations={"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}),
    tool("save", annotations={"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}),
    tool("drop", annotations={"title": "Drop"}),
    tool("record"),
    *(
        tool(name)
        for name in ("die", "never", "noise", "flood", "wrong", "bad", "error", "stray", "image", "secret", "slow")
    ),
]


def send(message: dict[str, Any]) -> None:
    """One message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def texts(text: str, **more: Any) -> dict[str, Any]:
    """A result of text."""
    return {"content": [{"type": "text", "text": text}], **more}


def call(name: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a call; None where nothing is to be answered."""
    match name:
        case "echo":
            return texts(given["text"] * given.get("times", 1))
        case "find-orders":
            return texts(json.dumps([{"id": 1, "customer": given["customer-id"]}]))
        case "delete-all":
            return texts("deleted")
        case "record":
            return texts("{}", structuredContent={"a": 1, "b": None})
        case "die":
            sys.stderr.write("cannot go on\n")
            sys.stderr.flush()
            os._exit(3)
        case "never":
            return None
        case "noise":
            sys.stdout.write('hello, I am a log line\n{"jsonrpc": 1}\n[[[\n')
            sys.stdout.flush()
            sys.stdout.buffer.write(b"\xff\xfe\x00\n")
            sys.stdout.buffer.flush()
            return texts("heard")
        case "flood":
            return texts("x" * FLOOD)
        case "wrong":
            return {"content": 5}
        case "bad":
            return texts('{"a": NaN}')
        case "error":
            return texts("no \udce9 such \u001b[31mthing", isError=True)
        case "slow":
            time.sleep(0.05)
            return texts("slow")
        case "stray":
            send({"id": 999_999, "result": texts("not yours")})
            return texts("yours")
        case "image":
            return {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}
        case "secret":
            return texts(f"the token is {os.environ.get('SHOP_TOKEN')}, home {os.environ.get('OTHER_SECRET')}")
    return texts("?")


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The result or the error that answers a message; nothing where it is not to be answered."""
    match asked.get("method"):
        case "initialize":
            told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": INFO}
            return {"result": told}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            name = asked["params"]["name"]
            if log := os.environ.get("MCP_LOG"):
                with open(log, "a", encoding="utf-8") as file:
                    file.write(f"{name}\n")
            result = call(name, asked["params"].get("arguments") or {})
            return {} if result is None else {"result": result}
        case method:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def main() -> None:
    """Serves until the input ends."""
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "dead":
        sys.stderr.write("no licence\n")
        sys.exit(4)
    while mode == "rubbish":
        sys.stdout.write("rubbish\n")
    for line in sys.stdin:
        if mode == "mute":
            time.sleep(60)
        asked = json.loads(line)
        if asked.get("id") is not None:
            told = answer(asked)
            if told:
                send({"id": asked["id"], **told})


INFO = {"name": "test", "version": "1"}

if __name__ == "__main__":
    main()
