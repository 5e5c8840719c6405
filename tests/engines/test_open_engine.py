"""Addresses: which engine each opens, and what is said about those that open none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helix.errors import OptionError
from helix.executor.engines import open_engine
from helix.executor.engines.openai import OpenAIEngine
from helix.executor.engines.scripted import ScriptedEngine


def test_scripted(tmp_path: Path) -> None:
    assert isinstance(open_engine("scripted"), ScriptedEngine)
    path = tmp_path / "a:b.toml"
    path.write_text("[[rule]]\nreply = 'x'", encoding="utf-8")
    engine = open_engine(f" scripted:{path} ")
    assert engine.name == f"scripted:{path}"
    with pytest.raises(OptionError, match="cannot read the scripted replies"):
        open_engine("scripted:absent.toml")


@pytest.mark.parametrize("address", ["http://host:8000/v1", "https://host/v1", "HTTPS://host/v1"])
def test_servers(address: str) -> None:
    engine = open_engine(address, model="m")
    assert isinstance(engine, OpenAIEngine)
    assert engine.name == address.replace("HTTPS", "https")


def test_names_hold_no_password() -> None:
    assert open_engine("https://ann:pw@host/v1?key=5").name == "https://host/v1"


@pytest.mark.parametrize(
    ("given", "helix", "openai", "sent"),
    [
        ("given-key", "helix-key", "openai-key", "Bearer given-key"),
        (None, "helix-key", "openai-key", "Bearer helix-key"),
        (None, "", "openai-key", "Bearer openai-key"),
        (None, "", "", None),
    ],
)
def test_keys_come_from_the_caller_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: str | None, helix: str, openai: str, sent: str | None
) -> None:
    monkeypatch.setenv("HELIX_API_KEY", helix)
    monkeypatch.setenv("OPENAI_API_KEY", openai)
    engine = open_engine("http://host/v1", api_key=given)
    assert isinstance(engine, OpenAIEngine)
    assert engine._authorization == sent


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("embeded", "unknown engine `embeded`; did you mean `embedded`? known forms: embedded, embedded:FILE.gguf,"),
        ("scriptd:x", "unknown engine `scriptd:x`; did you mean `scripted`?"),
        ("model.gguf", "did you mean `embedded:model.gguf`?"),
        ("replies.toml", "did you mean `scripted:replies.toml`?"),
        ("localhost:8000/v1", "did you mean `http://localhost:8000/v1`?"),
        ("localhost", "did you mean `http://localhost`?"),
        ("server:8000", "did you mean `http://server:8000`?"),
        ("ann:pw@10.0.0.1:8000/v1", "did you mean `http://10.0.0.1:8000/v1`?"),
        ("embedded:", "unknown engine `embedded:`; nothing follows `embedded:`;"),
        ("scripted:", "nothing follows `scripted:`;"),
        ("zzz", "unknown engine `zzz`; known forms: embedded,"),
        (" ", "unknown engine ``"),
        (
            "sglang://host:30000",
            "`sglang://host:30000` is not part of this version; an SGLang server also answers at http:",
        ),
        (
            "sim:h100x2/llama",
            "`sim:h100x2/llama` is not part of this version; scripted runs a workflow without a model",
        ),
        ("http://", "not an address of a server"),
    ],
)
def test_addresses_that_open_nothing(address: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_engine(address)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)


def test_engines_are_imported_when_used() -> None:
    code = (
        "import sys; from helix.executor.engines import open_engine; open_engine('scripted');"
        "assert not {'openai', 'aiohttp', 'httpx', 'xllamacpp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
