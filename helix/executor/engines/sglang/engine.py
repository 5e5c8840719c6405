"""SGLang servers: one model on one server or several, each with one rank or several.

Calls go to `/generate` with the prompt as the server itself would write it (`template.py`), where the server's answers
allow that; else to `/v1/chat/completions` (a note says why). Each carries an id, with which it is aborted when it is
cancelled: SGLang notices a closed connection only seconds later. The model, its context, the caches and the flags are
read from the servers at `open`; what the flags keep from being used is in `notes`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helix.errors import EngineError, OptionError, name_help
from helix.executor.engines.base import Capabilities, Load, Message, Reply, Request, above
from helix.executor.engines.fields import count_of, schema_key
from helix.executor.engines.openai_errors import Place, refuses_schema
from helix.executor.engines.sglang.address import parse_address
from helix.executor.engines.sglang.advice import advice, no_pins, no_seeds, through_chat
from helix.executor.engines.sglang.calls import (
    Routing,
    chat_body,
    chat_reply,
    is_native,
    native_body,
    native_reply,
    warm_body,
    warm_chat_body,
)
from helix.executor.engines.sglang.facts import Facts, rank_loads, read_facts, read_identity
from helix.executor.engines.sglang.http import Transport, together
from helix.executor.engines.sglang.ranks import Ranks, Worker
from helix.executor.engines.sglang.template import Ask, Template, Templates, chat_tokens, tokens
from helix.executor.engines.sglang.warmup import beginning, closed

READY_PAUSE = 0.25  # seconds between looks at a server that is still loading its model
ABORT_SECONDS = 2.0  # how long `close` waits for aborts that are on their way
PROBE = (Message(role="system", content="Be brief."), Message(role="user", content="Say one word."))

# What a pass of prefill costs beside its tokens, in tokens: the constants of the time model over the cost of a token.
PASS, PASS_ON_CPU = 256.0, 16.0


class SGLangEngine:
    """SGLang servers at one address. `notes` holds what a report should say about how they were used."""

    def __init__(
        self,
        address: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        tenant: str | None = None,
        max_tokens: int | None = None,
        open_timeout: float = 10.0,
    ) -> None:
        """`max_tokens` is for requests that name none; `open_timeout` is the time in seconds that `open` may take.
        Calls of another `tenant` share no cached prefix with these.

        No key is looked for in the environment. Raises OptionError for an address or a key that cannot be one.
        """
        self._address = parse_address(address, tenant)
        self._key = (api_key or "").strip() or None
        if self._key is not None and not all("!" <= char <= "~" for char in self._key):
            raise OptionError("the API key holds a space or a character that is not ASCII; check HELIX_API_KEY")
        hidden = () if self._key is None else (self._key,)
        self._places = [
            Place(address=base, secrets=hidden, keyed=self._key is not None) for base in self._address.bases
        ]
        self._model = model
        self._max_tokens = max_tokens
        self._open_timeout = open_timeout
        self._transport: Transport | None = None
        self._facts: list[Facts] = []
        self._ranks = Ranks([], [])
        self._templates = Templates(self._cannot_learn)
        self._native = False
        self._tokenizes = False
        self._refused: set[str] = set()
        self._loading: EngineError | None = None
        self._aborts: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._run = secrets.token_hex(8)
        self.notes: list[str] = []

    def __repr__(self) -> str:
        return f"SGLangEngine({self.name!r}, model={self._model!r})"

    @property
    def name(self) -> str:
        """The address, without options."""
        return self._address.name

    @property
    def tenant(self) -> str | None:
        """Whose calls these are; None: nobody's in particular."""
        return self._address.tenant

    @property
    def device(self) -> str:
        """What it computes on, once it is open: `cuda`, `cpu`, ...; empty where it does not tell."""
        return self._facts[0].device if self._facts else ""

    async def open(self, *, concurrency: int) -> Capabilities:
        """Asks the servers what they are, and learns how they write prompts. `concurrency` is how many calls are to be
        made at once, as far as is known. Raises EngineError.
        """
        self._transport = Transport(key=self._key, proxies=not self._address.local)
        try:
            async with asyncio.timeout(self._open_timeout):
                self._facts = await together(*(self._ready(place) for place in self._places))
                self._check_same()
                self._ranks = Ranks(self._places, [facts.ranks for facts in self._facts])
                await self._try_template()
        except TimeoutError:
            await self.close()
            said = "" if self._loading is None else f" ({self._loading.message})"
            what = f"{self.name} was not ready in {self._open_timeout:g} seconds{said}"
            raise EngineError(f"{what}; is the server running and reachable?", fatal=True) from None
        except EngineError as error:
            await self.close()
            raise EngineError(error.message, status=error.status, fatal=True, kind=error.kind) from None
        except BaseException:
            await self.close()
            raise
        first = self._facts[0]
        for facts, place in zip(self._facts, self._places, strict=True):
            share = max(1, round(concurrency * facts.ranks / len(self._ranks)))
            name = self.name if len(self._places) == 1 else f"sglang://{place.address.partition('://')[2]}"
            self._note(*advice(facts, name, concurrency=share, ranks=facts.ranks))
        return Capabilities(
            max_context=_least([facts.max_context for facts in self._facts]),
            schema_decoding=True,
            reports_cached_tokens=all(self._native or facts.cache_report for facts in self._facts),
            counts_tokens=self._tokenizes,
            models=(first.model, *first.adapters),
            model=first.model,
            revision=first.revision + (" chat" if self._address.chat else ""),
            ranks=len(self._ranks),
            kv_tokens=_least([facts.kv_tokens for facts in self._facts]),
            page=max(facts.page for facts in self._facts),
            max_running=_least([facts.max_running for facts in self._facts]),
            prefix_cache=all(facts.prefix_cache for facts in self._facts),
            warms=all(facts.prefix_cache for facts in self._facts),
            keeps=self._keeps(),
            pass_tokens=PASS_ON_CPU if self.device == "cpu" else PASS,
            mixes=all(facts.mixes for facts in self._facts),
        )

    async def look(self) -> None:
        """Looks whether a server answers again, with the model that it had. Raises EngineError."""
        found = await asyncio.gather(*(self._look_at(number) for number in range(len(self._places))))
        failed = [error for error in found if error is not None]
        fatal = next((error for error in failed if error.fatal), None)
        if fatal is not None or len(failed) == len(found):
            raise fatal or failed[0]

    async def generate(self, request: Request) -> Reply:
        """One call. Cancelled, it is aborted on the server."""
        worker = self._pick(request.rank)
        with self._ranks.busy(worker):
            constrained = request.schema is not None
            if constrained and self._refused:
                constrained = schema_key(request.schema) not in self._refused
            refusal = None
            while True:
                try:
                    reply = await self._complete(request, worker, constrained)
                except EngineError as error:
                    if not (constrained and refuses_schema(error)):
                        raise
                    constrained, refusal = False, error
                else:
                    if refusal is not None:
                        self._refuse(request, refusal)
                    return reply

    async def warm(self, request: Request) -> Reply:
        """Computes the beginning that prompts with these messages have in common, whatever follows in the last one."""
        worker = self._pick(request.rank)
        if self._keeps():
            request = replace(request, priority=above(request.priority))
        routing = self._routing(request, worker)
        model = self._named(request.model)
        with self._ranks.busy(worker):
            # Adapters have caches of their own, which the chat endpoint finds by the model's name.
            if self._tokenizes and request.messages and model == self._facts[0].model:
                ids = await self._beginning(request, worker.place)
                raw = await self._call(worker, "/generate", warm_body(request, ids, routing), routing.rid)
                return native_reply(worker.place, raw, worker)
            plain = not self._address.chat
            body = warm_chat_body(request, closed(request.messages), model, routing, plain=plain)
            raw = await self._call(worker, "/v1/chat/completions", body, routing.rid)
            return chat_reply(worker.place, raw, worker)

    async def load(self) -> tuple[Load, ...]:
        """What each rank is doing. A server that does not answer is left out while others do. Raises EngineError."""
        self._connected()
        found = await asyncio.gather(
            *(self._load_of(number) for number in range(len(self._places))), return_exceptions=True
        )
        loads = [load for entries in found if not isinstance(entries, BaseException) for load in entries]
        for error in found:
            if isinstance(error, BaseException) and (not loads or not isinstance(error, EngineError)):
                raise error
        return tuple(loads)

    async def count_tokens(self, request: Request) -> int:
        """The prompt's tokens as the server counts them, chat template included."""
        place = self._somewhere()
        try:
            return len(await chat_tokens(request.messages, self._asking(place)))
        except (KeyError, TypeError, ValueError):
            raise EngineError(f"{self.name} gave no token count", retryable=True) from None

    async def tokenize_prompt(self, messages: Sequence[Message]) -> list[int]:
        """A prompt's tokens, chat template included; only where `counts_tokens` is set."""
        try:
            return await chat_tokens(messages, self._asking(self._somewhere()))
        except (KeyError, TypeError, ValueError):
            raise EngineError(f"{self.name} gave no tokens", retryable=True) from None

    async def tokenize(self, text: str) -> list[int]:
        """A text's tokens, without those of the chat template; only where `counts_tokens` is set."""
        try:
            return (await tokens([text], self._asking(self._somewhere()), special=False))[0]
        except (KeyError, TypeError, ValueError, IndexError):
            raise EngineError(f"{self.name} gave no tokens", retryable=True) from None

    async def close(self) -> None:
        """Waits shortly for aborts under way, and closes the connections."""
        await self._templates.close()
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=ABORT_SECONDS)
        for task in list(self._aborts):
            task.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    # --- at open

    async def _ready(self, place: Place) -> Facts:
        """What a server is; waits for one that is still loading or busy, as long as `open` may take."""
        while True:
            try:
                return await read_facts(self._connected(), place)
            except EngineError as error:
                if error.status != 425 and not error.overloaded:
                    raise
                self._loading = error
            await asyncio.sleep(READY_PAUSE)

    def _check_same(self) -> None:
        """Raises EngineError where the servers do not serve one model, or not the one that was asked for."""
        first, place = self._facts[0], self._places[0]
        for other, where in zip(self._facts, self._places, strict=True):
            if (other.identity, other.revision) != (first.identity, first.revision):
                here, there = first.revision or first.model, other.revision or other.model
                what = f"{self.name}: {place.address} serves `{here}`, but {where.address} serves `{there}`"
                raise EngineError(f"{what}; all servers of one address serve the same model", fatal=True)
        self._named(self._model)

    async def _try_template(self) -> None:
        """Learns whether the server tells tokens, and whether prompts can be written here."""
        first, place = self._facts[0], self._places[0]
        ask = self._asking(place)
        try:
            self._tokenizes = bool(await chat_tokens(PROBE[1:], ask))
        except EngineError as error:
            if error.status is None or error.overloaded:
                raise
        except (KeyError, TypeError, ValueError):
            pass
        why = first.native
        if self._address.chat:
            return
        if why is None and not self._tokenizes:
            why = "it does not tell the tokens of a prompt"
        if why is None and not await self._agrees(ask):
            why = "its chat template cannot be told from outside"
        self._native = why is None
        if why is not None:
            self._note(through_chat(self.name, why))

    async def _agrees(self, ask: Ask) -> bool:
        """Whether /generate makes the same tokens of a prompt written here as the chat endpoint of its messages."""
        for messages in (PROBE[1:], PROBE):
            template = await self._templates.get(_roles(messages), ask)
            text = None if template is None else template.render(messages)
            if text is None:
                continue
            body = {
                "text": text,
                "sampling_params": {"max_new_tokens": 0},
                "return_prompt_token_ids": True,
            }  # tokens of text  # nosec B105
            found = await ask("/generate", body)
            told = found.get("prompt_token_ids") if isinstance(found, dict) else None
            return bool(told == await chat_tokens(messages, ask))
        return False

    def _cannot_learn(self, roles: tuple[str, ...]) -> None:
        if self._native:
            self._note(through_chat(self.name, f"its template for the messages {', '.join(roles)} cannot be told"))

    # --- calls

    async def _complete(self, request: Request, worker: Worker, constrained: bool) -> Reply:
        model = self._named(request.model)
        routing = self._routing(request, worker)
        if request.seed is not None and request.temperature != 0 and not self._facts[0].seeded:
            self._note(no_seeds(self.name))
        text = None
        if self._native and model == self._facts[0].model and is_native(request):
            template = await self._template(request.messages, worker.place)
            text = None if template is None else template.render(request.messages)
        if text is not None:
            body = native_body(request, text, routing, constrained, self._max_tokens)
            raw = await self._call(worker, "/generate", body, routing.rid)
            return native_reply(worker.place, raw, worker)
        plain = not self._address.chat
        body = chat_body(request, model, routing, constrained, self._max_tokens, plain=plain)
        raw = await self._call(worker, "/v1/chat/completions", body, routing.rid)
        return chat_reply(worker.place, raw, worker)

    async def _call(self, worker: Worker, path: str, body: dict[str, Any], rid: str) -> bytes:
        """The answer to a call. Cancelled, it is aborted on the server."""
        place = worker.place
        try:
            raw = await self._connected().send(place, path, body)
        except asyncio.CancelledError:
            task = asyncio.ensure_future(self._abort(place, rid))
            self._aborts.add(task)
            task.add_done_callback(self._aborts.discard)
            raise
        except EngineError as error:
            if error.status is None and error.retryable and len(self._places) > 1:
                self._ranks.away(place, asyncio.get_running_loop().time())
            raise
        if len(self._places) > 1:
            self._ranks.back(place)
        return raw

    async def _abort(self, place: Place, rid: str) -> None:
        try:
            await self._connected().send(place, "/abort_request", {"rid": rid})
        except EngineError as error:
            if error.status in (401, 403):
                what = "calls that are cancelled run on for some seconds, since aborts take the server's admin key"
                self._note(f"{self.name}: {what}")

    def _routing(self, request: Request, worker: Worker) -> Routing:
        # The scheduler aborts all ids that begin with the given one, so that none may be the beginning of another.
        self._calls += 1
        rid = f"{self._run}.{self._calls}."
        return Routing(rid=rid, worker=worker, tenant=self._address.tenant, priority=self._priority(request.priority))

    def _priority(self, wanted: int | None) -> int | None:
        """The priority to send: none where nothing heeds it; always one where calls without one come last."""
        facts = self._facts[0] if self._facts else None
        if facts is None or not (facts.pins or facts.orders_by_priority):
            if wanted is not None and facts is not None:
                self._note(no_pins(self.name, facts))
            return None
        value = wanted or 0
        return -value if facts.low_first and not facts.pins else value

    def _keeps(self) -> bool:
        """Whether priorities say how long prompts stay cached, and nothing else."""
        return all(facts.pins and not facts.orders_by_priority for facts in self._facts)

    async def _template(self, messages: Sequence[Message], place: Place) -> Template | None:
        roles = _roles(messages)
        return await self._templates.get(roles, self._asking(place)) if roles else None

    async def _beginning(self, request: Request, place: Place) -> list[int]:
        messages = request.messages
        template = await self._template(closed(messages), place) if self._native else None
        try:
            return await beginning(messages, template, self._asking(place), request.follows)
        except (KeyError, TypeError, ValueError):
            raise EngineError(f"{self.name} gave no tokens", retryable=True) from None

    def _named(self, model: str | None) -> str:
        """The served name of a model. Raises EngineError (fatal) for one that is not served."""
        facts = self._facts[0] if self._facts else None
        wanted = model if model is not None else self._model
        if facts is None or wanted is None or wanted in facts.names:
            return facts.model if facts is not None else ""
        if wanted in facts.adapters:
            return wanted
        what = f"{self.name} does not serve the model `{wanted}`"
        served = name_help(wanted, (facts.model, *facts.adapters), "models served")
        raise EngineError(f"{what}; {served}", status=404, fatal=True)

    # --- looks

    async def _look_at(self, number: int) -> EngineError | None:
        place = self._places[number]
        try:
            identity = await read_identity(self._connected(), place)
        except EngineError as error:
            return error
        before = self._facts[number].identity if self._facts else identity
        if identity != before:
            return EngineError(f"{place.address} came back with `{identity}` instead of `{before}`", fatal=True)
        self._ranks.back(place)
        return None

    async def _load_of(self, number: int) -> list[Load]:
        place = self._places[number]
        found = rank_loads(await self._connected().ask(place, "/v1/loads?include=core,queues"))
        first = self._ranks.first_of(place)
        loads = []
        for entry in found[: self._facts[number].ranks]:
            held = entry.get("token_usage")
            loads.append(
                Load(
                    rank=first + int(entry["dp_rank"]),
                    running=count_of(entry.get("num_running_reqs")) or 0,
                    waiting=count_of(entry.get("num_waiting_reqs")) or 0,
                    held=float(held) if isinstance(held, int | float) else None,
                )
            )
        return loads

    def _pick(self, rank: int | None) -> Worker:
        self._connected()
        return self._ranks.pick(rank, asyncio.get_running_loop().time())

    def _connected(self) -> Transport:
        if self._transport is None:
            raise EngineError(f"{self.name} is not open", fatal=True)
        return self._transport

    def _asking(self, place: Place) -> Ask:
        async def ask(path: str, body: dict[str, Any]) -> Any:
            return await self._connected().ask(place, path, body)

        return ask

    def _somewhere(self) -> Place:
        """A server that answered lately. Raises EngineError where tokens are not told."""
        self._connected()
        if not self._tokenizes:
            raise EngineError(f"{self.name} does not count tokens")
        return self._pick(None).place

    def _refuse(self, request: Request, error: EngineError) -> None:
        self._refused.add(schema_key(request.schema))
        step = f"the schema of step `{request.step}`" if request.step else "an output schema"
        self._note(f"{self.name} refused {step}, so replies are checked but not constrained: {error.message}")

    def _note(self, *notes: str) -> None:
        self.notes += [note for note in notes if note not in self.notes]


def _roles(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(message.role for message in messages)


def _least(values: list[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
