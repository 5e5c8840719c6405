r"""The scripted engine: replies, delays and failures by rule, the same on every run. It is what tests run on.

From Python:

    ScriptedEngine(rules=[{"step": "triage", "match": "refund of (\\d+)", "reply": "amount \\1"}])
    ScriptedEngine(reply=lambda request: request.messages[-1].content.upper())

`reply` is asked first; it gives a text, a Reply, an Exception (raised), an awaitable of these, or None for
"no answer". Then the rules are tried in order; the first whose conditions all hold answers. If none does, the
default reply is given.

From a file, `scripted:replies.toml`:

    [engine]                        # all optional
    max_context = 8192              # tokens; a longer prompt fails with `prompt.too_long`
    schema_decoding = true          # what the engine says it can do
    counts_tokens = true
    keep_log = true                 # false: no request log; nor where the engine is opened by its address
    tool_calls = false              # true: agents call tools natively; else in JSON
    strict = false                  # true: a request that no rule matches is an error
    models = ["scripted"]

    [[rule]]                        # conditions, all optional, all must hold
    step = "triage"                 # or a list of names
    match = 'refund of (\d+)'       # regular expression, searched for in the last user message
    contains = "refund"             # plain text in the last user message
    prompt_match = '...'            # the same two over the whole prompt: all contents, joined by a newline
    prompt_contains = "..."
    row = 3                         # from 0; or a list
    sample = [1, 2]                 # from 0
    attempt = 1                     # how often this request (step, row, sample, messages) was made, from 1
    call = 2                        # how many requests met this rule's other conditions, from 1
    turn = 1                        # the assistant messages of the prompt plus one: the turn of an agent
    reply = 'amount \1'             # or a list: one per sample, in turn; \1 and \g<name> are groups of
                                    # `match`, else of `prompt_match`
    calls = [{ tool = "orders", args = { customer = '\1' } }]   # instead of a reply: calls that an agent asks for
    answer = "done"                 # instead of a reply: an agent's answer, any JSON
    finish = "length"               # stop (default), length, tool, other
    delay = 0.2                     # seconds before the answer
    error = 429                     # instead of a reply: a status, or "connection", "malformed",
                                    # "prompt.too_long"
    message = "slow down"           # of the error
    retry_after = 1.5               # seconds, of the error
    hang = true                     # instead of a reply: never answers

The default reply is `scripted ` and twelve hex digits of BLAKE2b over the model's name, the sample number and
the role and content of every message: equal prompts get equal replies, samples differ. Where the request has
a schema, the default reply is a JSON value that satisfies it, drawn from the same hash (see `schema_value`).

Tokens are the bytes of the UTF-8 text divided by four, rounded up: a count that never changes, not a
tokenizer.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from helix.canonical import to_json_text
from helix.errors import EngineError, name_help
from helix.executor.engines.base import Capabilities, Reply, Request, ToolUse
from helix.executor.engines.failures import status_error
from helix.executor.engines.schema_value import schema_value
from helix.executor.engines.scripted_rules import (
    Answer,
    Responder,
    Rule,
    expand,
    expanded,
    load_rules,
    make_rule,
    make_settings,
)


class ScriptedEngine:
    """Answers by rule. `requests` is the log in order of arrival (empty with keep_log=False: memory then
    stays flat).

    `calls` counts the requests, `in_flight` those being answered, `peak_in_flight` the most at once, `hits`
    the answers of each rule. `opened` and `closed` count what their names say, `concurrency` is what `open`
    was told. `notes` holds what the report of a run should say.
    """

    def __init__(
        self,
        rules: Iterable[Rule | Mapping[str, Any]] = (),
        *,
        reply: Responder | None = None,
        name: str = "scripted",
        **settings: Any,
    ) -> None:
        """`settings` are the keys of the [engine] table. Raises OptionError for a rule or a setting that does
        not fit.
        """
        self._rules = tuple(
            rule if isinstance(rule, Rule) else make_rule(rule, f"rule {number}")
            for number, rule in enumerate(rules, 1)
        )
        self._settings = make_settings(settings, "scripted engine")
        self._reply = reply
        self._name = name
        # Counting attempts keeps a digest per request, so it is done only where a rule asks for it.
        self._attempts: dict[bytes, int] | None = {} if any(rule.attempt for rule in self._rules) else None
        self._matched = [0] * len(self._rules)
        self.hits = [0] * len(self._rules)
        self.requests: list[Request] = []
        self.calls = self.in_flight = self.peak_in_flight = 0
        self.opened = self.closed = self.concurrency = 0
        self.notes: list[str] = []

    @classmethod
    def from_file(cls, path: str | Path, *, keep_log: bool = True) -> ScriptedEngine:
        """The engine of a TOML file; without `keep_log` it keeps no log, whatever the file says. Raises OptionError
        with the file's name and what is wrong in it.
        """
        rules, settings = load_rules(path)
        engine = cls(rules, name=f"scripted:{path}")
        engine._settings = settings if keep_log else replace(settings, keep_log=False)
        return engine

    def __repr__(self) -> str:
        return f"ScriptedEngine({self._name!r}, rules={len(self._rules)}, calls={self.calls})"

    @property
    def name(self) -> str:
        """The address: `scripted` or `scripted:FILE`."""
        return self._name

    async def open(self, *, concurrency: int) -> Capabilities:
        """What the settings say; there is nothing to connect to."""
        self.opened += 1
        self.concurrency = concurrency
        settings = self._settings
        return Capabilities(
            max_context=settings.max_context,
            schema_decoding=settings.schema_decoding,
            counts_tokens=settings.counts_tokens,
            models=settings.models,
            model=settings.models[0] if settings.models else None,
            tool_calls=settings.tool_calls,
            revision=f"scripted {self._revision()}",
        )

    def _revision(self) -> str:
        """A digest of what decides replies. Delays and rules that fail take no part: a run that they stopped can be
        resumed after they are gone, as with a server that is mended.
        """
        shown = [repr(replace(rule, delay=0.0)) for rule in self._rules if rule.error is None and not rule.hang]
        return blake2b("\n".join(shown).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    async def generate(self, request: Request) -> Reply:
        """The reply that the script has for the request."""
        self.calls += 1
        if self._settings.keep_log:
            self.requests.append(request)
        self.in_flight += 1
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1

    def look_for(self, steps: Iterable[str]) -> None:
        """Notes the rules for steps that a workflow does not have: they answer nothing."""
        known = tuple(steps)
        missing = dict.fromkeys(name for rule in self._rules for name in rule.step if name not in known)
        self.notes = [
            f"{self._name} has a rule for step `{name}`, which is not there; {name_help(name, known, 'steps')}"
            for name in missing
        ]

    async def count_tokens(self, request: Request) -> int:
        """A quarter of the bytes of all messages, rounded up."""
        return _prompt_tokens(request)

    async def close(self) -> None:
        """Counts the call; there is nothing to release."""
        self.closed += 1

    async def _answer(self, request: Request) -> Reply:
        tokens = _prompt_tokens(request)
        if (limit := self._settings.max_context) is not None and tokens > limit:
            raise _too_long(f"prompt too long: needs {tokens} tokens, has {limit}")
        if self._reply is not None:
            given = self._reply(request)
            answer: Answer = await given if inspect.isawaitable(given) else given
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, Reply):
                return answer
            if answer is not None:
                return _counted(answer, tokens)
        found = self._rule(request)
        if found is not None:
            return await self._follow(*found, request, tokens)
        if self._settings.strict:
            what = f"step `{request.step}`, row {request.row}, sample {request.sample}"
            raise EngineError(f"no scripted rule for {what}")
        return _counted(_default(request), tokens)

    def _rule(self, request: Request) -> tuple[int, str | Reply | None] | None:
        """The number of the first rule that holds, and its reply for the request's sample with the groups put
        in.
        """
        if not self._rules:
            return None
        attempt = self._attempt(request) if self._attempts is not None else 0
        last = next((m.content for m in reversed(request.messages) if m.role in ("user", "tool")), "")
        prompt: str | None = None
        for number, rule in enumerate(self._rules):
            if (
                (rule.step and request.step not in rule.step)
                or (rule.row and request.row not in rule.row)
                or (rule.sample and request.sample not in rule.sample)
                or (rule.attempt and attempt not in rule.attempt)
                or (rule.contains is not None and rule.contains not in last)
                or (rule.turn and _turn(request) not in rule.turn)
            ):
                continue
            if prompt is None and (rule.prompt_contains is not None or rule.prompt_match is not None):
                prompt = "\n".join(message.shown for message in request.messages)
            if rule.prompt_contains is not None and rule.prompt_contains not in (prompt or ""):
                continue
            match = rule.match.search(last) if rule.match is not None else None
            if rule.match is not None and match is None:
                continue
            whole = rule.prompt_match.search(prompt or "") if rule.prompt_match is not None else None
            if rule.prompt_match is not None and whole is None:
                continue
            self._matched[number] += 1
            if rule.call and self._matched[number] not in rule.call:
                continue
            self.hits[number] += 1
            groups = match or whole
            if rule.calls or rule.answer:
                return number, _agents_reply(rule, request, groups)
            if not rule.reply:
                return number, None
            text = rule.reply[request.sample % len(rule.reply)]
            return number, text if groups is None else expand(text, groups)
        return None

    async def _follow(self, number: int, text: str | Reply | None, request: Request, tokens: int) -> Reply:
        rule = self._rules[number]
        if rule.delay > 0:
            await asyncio.sleep(rule.delay)
        if rule.hang:
            await asyncio.Event().wait()
        if rule.error is not None:
            raise _error(rule)
        if isinstance(text, Reply):
            size = _size(text.text) + sum(_size(call.arguments) for call in text.calls)
            return replace(text, finish=rule.finish, prompt_tokens=tokens, completion_tokens=-(-size // 4))
        return _counted(_default(request) if text is None else text, tokens, rule)

    def _attempt(self, request: Request) -> int:
        assert self._attempts is not None
        key = _digest(request, f"{request.step}\0{request.row}\0")
        count = self._attempts[key] = self._attempts.get(key, 0) + 1
        return count


def _turn(request: Request) -> int:
    """The turn of an agent that a request is for: what the model has said before, plus one."""
    return 1 + sum(message.role == "assistant" for message in request.messages)


def _agents_reply(rule: Rule, request: Request, groups: re.Match[str] | None) -> Reply:
    """The calls or the answer of a rule: natively where the request offers tools, else in JSON."""
    calls = [(call.tool, expanded(call.args, groups)) for call in rule.calls]
    if request.tools and calls:
        uses = (
            ToolUse(id=f"scripted {place}", name=tool, arguments=to_json_text(args))
            for place, (tool, args) in enumerate(calls)
        )
        return Reply(text="", calls=tuple(uses))
    if calls:
        shown = [{"tool": tool, "args": args} for tool, args in calls]
        return Reply(text=to_json_text(shown[0] if len(shown) == 1 else {"calls": shown}))
    answer = expanded(rule.answer[0], groups)
    if not request.tools:
        return Reply(text=to_json_text({"answer": answer}))
    return Reply(text=answer if isinstance(answer, str) else to_json_text(answer))


def _error(rule: Rule) -> EngineError:
    match rule.error:
        case "connection":
            message = rule.message or "the scripted engine closed the connection"
            return EngineError(message, retryable=True)
        case "malformed":
            message = rule.message or "the scripted engine sent a malformed reply"
            return EngineError(message, status=200, retryable=True)
        case "prompt.too_long":
            return _too_long(rule.message or "prompt too long, says the scripted engine")
    status = int(rule.error or 500)
    message = rule.message or f"the scripted engine answers {status}"
    return status_error(status, message, retry_after=rule.retry_after)


def _too_long(message: str) -> EngineError:
    return status_error(400, message, kind="prompt.too_long")


def _counted(text: str, prompt_tokens: int, rule: Rule | None = None) -> Reply:
    return Reply(
        text=text,
        finish="stop" if rule is None else rule.finish,
        prompt_tokens=prompt_tokens,
        completion_tokens=-(-_size(text) // 4),
    )


def _prompt_tokens(request: Request) -> int:
    return -(-sum(_size(message.shown) for message in request.messages) // 4)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _default(request: Request) -> str:
    digest = _digest(request, "")
    if request.schema is None:
        return f"scripted {digest.hex()[:12]}"
    return json.dumps(schema_value(request.schema, digest), ensure_ascii=False)


def _digest(request: Request, more: str) -> bytes:
    """A hash of model, sample and messages; every part carries its length, so no two prompts run together."""
    parts = [more, request.model or "", str(request.sample)]
    for message in request.messages:
        parts += (message.role, message.shown)
    hasher = blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "big"))
        hasher.update(raw)
    return hasher.digest()
