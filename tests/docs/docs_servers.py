"""The servers of blocks with the flag `servers`: what stands in their commands as an address leads to one of the tests.

They speak SGLang's protocol and OpenAI's, have a prefix cache, and generate nothing: replies are made up, of the type
that is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from fake_server import Answer
from fake_sglang import FakeSGLang

from helix.executor.engines.schema_value import schema_value

_ADDRESS = re.compile(r"sglang://[\w.:,-]+|https?://[\w.:-]+/v1")
_HOST = re.compile(r"[\w.-]+(?::\d+)?")
_MODEL = re.compile(r"(?:-m|--model) (\S+)")
_NAMED = re.compile(r"^model .*\bname: \"([^\"]+)\"", re.MULTILINE)


class _Server(FakeSGLang):
    def _generated(self, body: dict[str, Any], ids: list[int], sampling: dict[str, Any], most: int | None) -> Answer:
        answer = super()._generated(body, ids, sampling, most)
        schema: Any = None
        if "json_schema" in sampling:
            schema = json.loads(sampling["json_schema"])
        elif "response_format" in sampling:
            schema = sampling["response_format"]["json_schema"]["schema"]
        if schema is not None and isinstance(answer.body, dict) and answer.status == 200:
            value = schema_value(schema, json.dumps(ids).encode())
            answer.body["text"] = json.dumps(value)
        return answer


class Servers:
    """Use as a context manager: a server for each place that the commands name.

    They serve the model that a command or one of the workflows in `folder` names.
    """

    def __init__(self, commands: Sequence[str], folder: Path) -> None:
        text = "\n".join(commands)
        files = [folder / name for name in re.findall(r"\S+\.helix\b", text)]
        named = [_NAMED.search(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
        model = next((found[1] for found in (_MODEL.search(text), *named) if found), "tiny")
        places = sorted({place for address in _ADDRESS.findall(text) for place in _places(address)})
        self._servers = {place: _Server(about={"served_model_name": model}) for place in places}
        self._stack = ExitStack()

    def __enter__(self) -> Servers:
        for server in self._servers.values():
            self._stack.enter_context(server)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def led(self, command: str) -> str:
        """The command with the addresses of the servers of the tests."""
        return _ADDRESS.sub(lambda found: self._led(found[0]), command)

    def shown(self, output: str) -> str:
        """What a command says, with the addresses that the page shows."""
        for place, server in self._servers.items():
            output = output.replace(f"127.0.0.1:{server.port}", place)
        return output

    def _led(self, address: str) -> str:
        scheme, _, rest = address.partition("://")
        places = ",".join(f"127.0.0.1:{self._servers[place].port}" for place in _places(address))
        return f"sglang://{places}" if scheme == "sglang" else f"http://{places}{rest[rest.index('/') :]}"


def _places(address: str) -> list[str]:
    return _HOST.findall(address.partition("://")[2].partition("/")[0])
