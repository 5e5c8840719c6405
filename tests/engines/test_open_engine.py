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
from helix.executor.engines.sglang import SGLangEngine


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


@pytest.mark.parametrize(
    ("address", "name", "hosts"),
    [
        ("sglang://host", "sglang://host:30000", ("http://host:30000",)),
        ("SGLang://Host:1/", "sglang://host:1", ("http://host:1",)),
        ("sglang://a:1, b:2?tls=on&tenant=x", "sglang://a:1,b:2", ("https://a:1", "https://b:2")),
        ("sglang://[::1]:5", "sglang://[::1]:5", ("http://[::1]:5",)),
    ],
)
def test_sglang_servers(address: str, name: str, hosts: tuple[str, ...]) -> None:
    engine = open_engine(address)
    assert isinstance(engine, SGLangEngine)
    assert engine.name == name
    assert engine._address.bases == hosts


def test_tenants_of_sglang_servers() -> None:
    def tenant(address: str, given: str | None) -> str | None:
        engine = open_engine(address, tenant=given)
        assert isinstance(engine, SGLangEngine)
        return engine._address.tenant

    assert tenant("sglang://host", None) is None
    assert tenant("sglang://host", "ann") == "ann"
    assert tenant("sglang://host?tenant=ann", "ann") == "ann"
    with pytest.raises(OptionError, match="two tenants for `sglang://host`: `ann` in the address, `bob` beside it"):
        tenant("sglang://host?tenant=ann", "bob")


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
            "sglang:host:30000",
            "not an address of SGLang servers: `sglang:host:30000`; did you mean `sglang://host:30000`?",
        ),
        ("sglang", "not an address of SGLang servers: `sglang`; expected sglang://HOST:PORT"),
        ("sglang:", "nothing follows `sglang:`;"),
        ("sglag://host", "unknown engine `sglag://host`; did you mean `sglang://host`?"),
        ("ftp://host/v1", "unknown engine `ftp://host/v1`; did you mean `http"),
        (
            "sglang://",
            "not an address of SGLang servers: `sglang://`, for an empty place in it; expected sglang://HOST",
        ),
        (
            "sglang://host:30000/v1",
            "for `host:30000/v1` in it; expected sglang://HOST:PORT[,HOST:PORT...] (without a path)",
        ),
        ("sglang://a:1,,b:2", "for an empty place in it"),
        ("sglang://a:1,b:x", "for `b:x` in it"),
        ("sglang://a:1,b:2,a:1", "names a:1 twice"),
        ("sglang://ann:pw@host:30000", "holds a key; give it in HELIX_API_KEY instead"),
        ("sglang://host?tenent=x", "no option `tenent` of `sglang://host`; did you mean `tenant`?"),
        ("sglang://host?tenant=", "the option `tenant` of `sglang://host` is ``; expected a name"),
        ("sglang://host?api=completions", "the option `api` of `sglang://host` is `completions`; expected `chat`"),
        (
            "sim:h100x2/llama",
            "no shape of model `llama`; did you mean `llama-3-8b`?",
        ),
        ("sim:h100", "not an address of a simulated engine: `sim:h100`; expected sim:GPU[xRANKS]/MODEL"),
        ("sim:h100x0/llama-3.1-8b", "there is at least one GPU, found `h100x0`"),
        ("sim:h10/llama-3.1-8b", "unknown GPU `h10`; did you mean `h100`?"),
        ("sim:h100/llama-3.1-8b?polcy=lpm", "no setting `polcy` of a simulated engine; did you mean `policy`?"),
        ("sim:h100/llama-3.1-8b?policy=lmp", "unknown policy `lmp`; did you mean `lpm`?"),
        ("sim:h100/llama-3.1-8b?seed=x", "the setting `seed` of a simulated engine is a number, found `x`"),
        ("sim:h100/llama-3.1-8b?mixed_chunk=1", "the setting `mixed_chunk` of a simulated engine is on or off"),
        ("sim:h100/llama-3.1-8b?cost=absent.json", "cannot read the sweep absent.json"),
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
