"""A server that looks like SGLang to its clients: a tokenizer, a chat template, a prefix cache, and its account of
itself. It generates nothing: replies are made up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from fake_server import Answer, Call, FakeServer

PIECE = re.compile(r"<\|?\w+\|?>|\s?\w+|\s|[^\w\s]")
ENDLESS = "Count from one to a million, never stop."

Message = dict[str, str]


def chatml(messages: Sequence[Message], generate: bool = True) -> str:
    """Contents as they stand, between marks."""
    texts = [f"<|start|>{message['role']}\n{message['content']}<|end|>\n" for message in messages]
    return "".join(texts) + ("<|start|>assistant\n" if generate else "")


def trimming(messages: Sequence[Message]) -> str:
    """Contents without white space around them, and a token that the tokenizer puts first by itself as well."""
    return "<s>" + chatml([{**message, "content": message["content"].strip()} for message in messages])


def forgetful(messages: Sequence[Message]) -> str:
    """Thoughts are cut out of earlier replies."""
    cut = [{**message, "content": message["content"].rpartition("</think>")[2]} for message in messages]
    return chatml(cut)


def shouting(messages: Sequence[Message]) -> str:
    """Changes the contents: nothing that a client could foresee."""
    return chatml([{**message, "content": message["content"].upper()} for message in messages])


class FakeSGLang(FakeServer):
    """Use as a context manager. `info` and `about` are added to its account of itself; `first`, a token, is put before
    every text, as some tokenizers do; `answer` may take a call (None leaves it to the server).
    """

    def __init__(
        self,
        template: Callable[[Sequence[Message]], str] = chatml,
        *,
        info: dict[str, Any] | None = None,
        about: dict[str, Any] | None = None,
        first: str = "",
        adapters: Sequence[str] = (),
        answer: Callable[[Call], Answer | None] = lambda call: None,
    ) -> None:
        super().__init__(self._respond_to)
        self._template = template
        self._first = first
        self._adapters = adapters
        self._take = answer
        self._vocabulary: dict[str, int] = {}
        self._texts: list[str] = []
        self._kept: dict[tuple[Any, ...], list[list[int]]] = {}
        self.info = {
            "dp_size": 1,
            "page_size": 1,
            "max_running_requests": 16,
            "max_total_num_tokens": 16384,
            "schedule_policy": "lpm",
            "radix_eviction_policy": "lru",
            "disable_radix_cache": False,
            "enable_cache_report": True,
            **(info or {}),
        }
        self.about = {"model_path": "models/tiny", "served_model_name": "tiny", "weight_version": "v1", **(about or {})}

    @property
    def address(self) -> str:
        return f"sglang://127.0.0.1:{self.port}"

    def bodies(self, path: str) -> list[Any]:
        """What was sent to a path, but for the calls at opening, which generate nothing."""
        found = [call.json for call in self.calls if call.route == path]
        return [body for body in found if not body.get("return_prompt_token_ids")]

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        return [self._id(piece) for piece in PIECE.findall(text)]

    def _id(self, piece: str) -> int:
        if piece not in self._vocabulary:
            self._vocabulary[piece] = len(self._texts)
            self._texts.append(piece)
        return self._vocabulary[piece]

    def _respond_to(self, call: Call) -> Answer | None:
        taken = self._take(call)
        if taken is not None:
            return taken
        body = call.json if call.body else {}
        match call.route:
            case "/server_info":
                return Answer(body=self.info)
            case "/model_info":
                return Answer(body=self.about)
            case "/v1/models":
                base = {"id": self.about["served_model_name"], "owned_by": "sglang", "max_model_len": 8192}
                more = [{"id": name, "parent": base["id"]} for name in self._adapters]
                return Answer(body={"data": [base, *more]})
            case "/v1/loads":
                return Answer(body={"loads": [self._load(rank) for rank in range(self.info["dp_size"])]})
            case "/v1/tokenize":
                return Answer(body=self._tokenized(body))
            case "/v1/detokenize":
                return Answer(body={"text": "".join(self._texts[token] for token in body["tokens"])})
            case "/generate":
                ids = body["input_ids"] if "input_ids" in body else self.ids(self._first + body["text"])
                return self._generated(body, ids, body["sampling_params"], body["sampling_params"]["max_new_tokens"])
            case "/v1/chat/completions":
                ids = self.ids(self._template(body["messages"]))
                return _as_chat(self._generated(body, ids, body, body.get("max_tokens")))
            case "/abort_request" | "/flush_cache":
                return Answer()
        return Answer(status=404, body={"detail": "Not Found"})

    def _load(self, rank: int) -> dict[str, Any]:
        return {
            "dp_rank": rank,
            "num_running_reqs": rank + 1,
            "num_waiting_reqs": 0,
            "token_usage": 0.25,
            "max_total_num_tokens": self.info["max_total_num_tokens"],
            "max_running_requests": self.info["max_running_requests"],
        }

    def _tokenized(self, body: dict[str, Any]) -> dict[str, Any]:
        if "messages" in body:
            return {"tokens": self.ids(self._template(body["messages"]))}
        first = self._first if body["add_special_tokens"] else ""
        prompt = body["prompt"]
        if isinstance(prompt, str):
            return {"tokens": self.ids(first + prompt)}
        return {"tokens": [self.ids(first + text) for text in prompt]}

    def _generated(self, body: dict[str, Any], ids: list[int], sampling: dict[str, Any], most: int | None) -> Answer:
        if len(ids) + (most or 0) > 8192:
            said = f"The input ({len(ids)} tokens) is longer than the model's context length (8192 tokens)."
            return Answer(status=400, body={"error": {"message": said}})
        prompt = "".join(self._texts[token] for token in ids)
        if ENDLESS in prompt:
            return Answer(end="silence")
        kept = self._kept.setdefault((body.get("routed_dp_rank"), body.get("extra_key")), [])
        cached = max((_shared(ids, other) for other in kept), default=0)
        if not self.info["disable_radix_cache"]:
            kept.append(ids)
        text = "" if most == 0 else f"Green {sampling.get('sampling_seed', sampling.get('seed', ''))}".strip()
        if "json_schema" in sampling or "response_format" in sampling:
            text = '{"label": "good", "sure": true}'
        meta = {
            "finish_reason": {"type": "length" if most == 0 else "stop"},
            "prompt_tokens": len(ids),
            "completion_tokens": 0 if most == 0 else 2,
            "cached_tokens": min(cached, len(ids) - 1),
            "queue_time": 0.125,
            "dp_rank": body.get("routed_dp_rank"),
        }
        answer: dict[str, Any] = {"text": text, "meta_info": meta}
        if body.get("return_prompt_token_ids"):
            answer["prompt_token_ids"] = ids
        return Answer(body=answer)


def _as_chat(answer: Answer) -> Answer:
    if answer.status != 200 or answer.end != "whole":
        return answer
    assert isinstance(answer.body, dict)
    meta = answer.body["meta_info"]
    choice = {
        "message": {"role": "assistant", "content": answer.body["text"]},
        "finish_reason": meta["finish_reason"]["type"],
        "meta_info": meta,
    }
    return Answer(body={"choices": [choice], "usage": {name: meta[name] for name in ("prompt_tokens",)}})


def _shared(left: list[int], right: list[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
