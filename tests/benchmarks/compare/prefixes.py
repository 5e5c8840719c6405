"""The bound: how many tokens a batch of prompts has to prefill at the least."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglang_cpu import Server

from compare.calls import Call, Prompt

AT_ONCE = 64


class Tokens:
    """Prompts as the server's tokens: its chat template, written out here, and its tokenizer."""

    def __init__(self, server: Server) -> None:
        """Reads the template of the server's model. Raises OSError where it is not on this machine."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self._server = server
        folder = Path(server.json("/server_info")["tokenizer_path"])
        file = folder / "chat_template.jinja"
        if file.is_file():
            text = file.read_text("utf-8")
        else:
            text = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["chat_template"]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(text)

    def of_texts(self, texts: Sequence[str]) -> list[array[int]]:
        """The tokens of texts."""
        found: list[array[int]] = []
        for at in range(0, len(texts), AT_ONCE):
            body: Any = {"prompt": list(texts[at : at + AT_ONCE]), "add_special_tokens": False}
            found += [array("i", ids) for ids in self._server.json("/tokenize", body)["tokens"]]
        return found

    def of_prompts(self, prompts: Sequence[Prompt]) -> list[array[int]]:
        """The tokens of prompts in the chat template."""
        texts = []
        for prompt in prompts:
            messages = [{"role": role, "content": text} for role, text in prompt]
            texts.append(self._template.render(messages=messages, add_generation_prompt=True))
        return self.of_texts(texts)


def least_prefill(tokens: Tokens, calls: Sequence[Call]) -> tuple[int, int]:
    """P_min, the tokens on the distinct edges of the exact trie of the prompts, less those that decoding has left
    there; and the number of calls whose prompt the server counted otherwise.
    """
    from helix.optimizer.tree.trie import TokenTrie

    trie = TokenTrie()
    prompts = tokens.of_prompts([call.prompt for call in calls])
    replies = tokens.of_texts([call.text for call in calls])
    for prompt, reply in zip(prompts, replies, strict=True):
        trie.insert(prompt, reply)
    wrong = sum(len(prompt) != call.prompt_tokens for prompt, call in zip(prompts, calls, strict=True))
    return round(trie.distinct_tokens), wrong
