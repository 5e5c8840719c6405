"""The tokenizer inside GGUF files: a small one by hand, broken ones, and the embedded model's against its engine."""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helix.errors import OptionError
from helix.optimizer.gguf import from_gguf
from helix.optimizer.tokens import from_file

TOKENS = ["h", "e", "l", "o", "Ġ", "1", "2", "he", "ll", "hell", "hello", "Ġh", "!", "Ã", "©", "Ã©", "Ċ"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ h", "Ã ©"]


def gguf(path: Path, **changes: Any) -> Path:
    """Writes a GGUF file of metadata alone."""
    values: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.scale": 0.5,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [1] * len(TOKENS),
        "tokenizer.ggml.merges": MERGES,
    }
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    for name, value in values.items():
        data += text(name) + written(value)
    path.write_bytes(data)
    return path


def text(value: str) -> bytes:
    raw = value.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def written(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(item) for item in value)
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ("hello", ["hello"]),
        ("hell", ["hell"]),
        # "h e" has a better rank than "Ġ h".
        (" hello", ["Ġ", "hello"]),
        ("hello ho", ["hello", "Ġh", "o"]),
        ("12", ["1", "2"]),
        ("hé!\n", ["h", "Ã©", "!", "Ċ"]),
        ("", []),
    ],
)
def test_by_hand(tmp_path: Path, given: str, tokens: Sequence[str]) -> None:
    found = from_file(gguf(tmp_path / "tiny.gguf"))
    assert found.exact
    assert found.name == "tiny"
    assert list(found.ids(given) or []) == [TOKENS.index(token) for token in tokens]
    assert found.count(given) == len(tokens)


def test_llama_3_takes_whole_words_of_the_vocabulary(tmp_path: Path) -> None:
    tokens = [*TOKENS, "Ġhello"]
    found = from_gguf(gguf(tmp_path / "a.gguf", tokenizer__ggml__pre="llama-bpe", tokenizer__ggml__tokens=tokens))
    assert list(found.ids(" hello") or []) == [tokens.index("Ġhello")]


@pytest.mark.parametrize(
    ("name", "value"), [("tokenizer__ggml__model", "llama"), ("tokenizer__ggml__pre", "deepseek-llm")]
)
def test_other_vocabularies_are_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(OptionError, match="byte-pair ones with gpt-2, smollm, llama-bpe, qwen2 are read"):
        from_gguf(gguf(tmp_path / "a.gguf", **{name: value}))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        from_gguf(tmp_path / "absent.gguf")
    whole = gguf(tmp_path / "a.gguf").read_bytes()
    for size in (0, 3, 10, 40, len(whole) - 1):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(OptionError, match="not a GGUF file"):
            from_gguf(tmp_path / "cut.gguf")
    (tmp_path / "huge.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60))
    with pytest.raises(OptionError, match="not a GGUF file"):
        from_gguf(tmp_path / "huge.gguf")


TEXTS = [
    "The quick brown fox, it's we'll I'M; 12 345 6.7e-5\n\n\ndef f(x):\n    return x\t\t# done  ",
    "$ 1,452.4 | (56.7) %\r\n\r\n a",
    "มนุษย์ทั้งปวงเกิดมามีอิสระ คน",
    "人人生而自由,在尊严和权利上一律平等。",
    "Все люди рождаются свободными; ² ½ Ⅷ",
    "e\u0301 a\u200db 👩\u200d🚀 \u00a0x\u3000y",
    " \n \n",
]


@pytest.mark.embedded
def test_the_embedded_models_tokens_are_its_engines() -> None:
    from helix.executor.engines.embedded.child import Child
    from helix.executor.engines.embedded.weights import ensure

    path = ensure(quiet=True, stop=threading.Event())
    found = from_gguf(path)
    key = secrets.token_urlsafe(16)
    settings = {"path": str(path), "alias": "m", "context": 512, "threads": 1, "connections": 4, "cache_mib": 0}
    child = Child(settings | {"key": key})

    async def told() -> list[list[int]]:
        try:
            address = await child.address(60)
            return await asyncio.to_thread(lambda: [ask(address, key, given) for given in TEXTS])
        finally:
            await child.close()

    assert asyncio.run(told()) == [list(found.ids(given) or []) for given in TEXTS]


def ask(address: str, key: str, given: str) -> list[int]:
    """The tokens of a text as llama.cpp tells them."""
    body = json.dumps({"content": given, "add_special": False, "parse_special": False}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/tokenize", data=body, headers=headers)
    with urllib.request.urlopen(request) as answer:
        found: list[int] = json.loads(answer.read())["tokens"]
    return found
