"""ThunderAgent (arXiv 2602.13692): programs are paused and resumed by the room that their contexts take.

Every 5 seconds, for each rank: where what active programs hold, what they share counted once, and 100 tokens for each
is more than the cache, programs that wait for a tool are paused, the smallest first; where that is not enough, programs
that have a call are marked, the smallest first, and paused when it ends. Then programs go on where there is room: those
that come back from a pause with a call before new ones, these before paused ones that wait for a tool, small ones
first; of those that fit together the largest is placed first, on the rank where least room is left over. A new program
goes where most is: its authors want memory balanced over ranks, and a batch that fits into one would stay on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helix.executor.engines.base import Capabilities, Load
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.prefix_cache import Node, PrefixCache, prompt_text
from helix.executor.policies.programs import PER_TOKEN, Clock, Program, ProgramQueue

if TYPE_CHECKING:
    from helix.executor.calls import Call

TICK = 5.0
# Tokens kept for each program, for what it is about to add.
ROOM = 100.0


class ThunderAgent(PolicyBase):
    """See the module. `tick` is in seconds: rows that are done in a few of them want a shorter one."""

    def __init__(self, tick: float = TICK) -> None:
        self._tick = tick

    @property
    def name(self) -> str:
        return "thunder-agent" if self._tick == TICK else f"thunder-agent:{self._tick:g}"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        return max(usual, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return ThunderAgentQueue(place, self._tick)

    def describe(self) -> str:
        return f"rows paused and resumed every {self._tick:g} s by the room that their contexts take"


class ThunderAgentQueue(ProgramQueue):
    """`capacity` are the tokens of a rank's cache; None: all programs fit."""

    def __init__(self, place: EnginePlace, tick: float = TICK) -> None:
        super().__init__(place.ranks)
        self.capacity = place.capabilities.kv_tokens
        # By rank, the prompts of its active programs: what they share is in them once.
        self._prompts = [PrefixCache() for _ in range(place.ranks)]
        self._texts: dict[object, str] = {}
        self._flying = 0
        self._clock = Clock(tick, self.tick, lambda: bool(self.programs))

    def put(self, call: Call) -> None:
        super().put(call)
        if call.request is not None:
            text = prompt_text(call.request.model or "", call.request.messages)
            before = self._texts.get(call.instance, "")
            if text is not None and len(text) >= len(before):
                self._texts[call.instance] = text
        program = self.programs[call.instance]
        if program.active:
            self._enter(program)

    def take(self) -> Call | Warmup | None:
        self._clock.start()
        call = self.next_call()
        if call is None and not self._flying and self.waiting:
            # Nothing goes on by itself: no tick is waited for.
            self.tick(())
            call = self.next_call()
        if call is not None:
            self._flying += 1
        return call

    def tick(self, load: tuple[Load, ...]) -> None:
        """Pauses and resumes."""
        if self.capacity is not None:
            for rank in range(self._ranks):
                self._pause_some(rank, self.capacity)
        self._resume_some()
        self.wake()

    # --- what programs take ---

    def used(self, rank: int) -> float:
        """The tokens of a rank's active programs: contexts, what they share once, and the room for each."""
        active = [each for each in self.programs.values() if each.active and each.rank == rank]
        return sum(self._tokens(each) for each in active) - self._shared(rank)

    def _tokens(self, program: Program) -> float:
        return program.tokens + ROOM

    def _shared(self, rank: int) -> float:
        """The tokens that are in several active programs of a rank, once less than they are there."""
        again = sum((node.users - 1) * len(node.text) for node in self._prompts[rank].nodes() if node.users > 1)
        return again / PER_TOKEN

    def _enter(self, program: Program) -> None:
        """Puts an active program's prompt to those of its rank."""
        self._leave(program)
        text = self._texts.get(program.instance)
        if text is not None:
            program.prompt = (program.rank, self._prompts[program.rank].add(text))

    def _leave(self, program: Program) -> None:
        if program.prompt is not None:
            rank, node = program.prompt
            assert isinstance(node, Node)
            self._prompts[rank].drop(node)
            program.prompt = None

    # --- pausing and resuming ---

    def _pause_some(self, rank: int, capacity: int) -> None:
        active = [each for each in self.programs.values() if each.active and each.rank == rank]
        active.sort(key=lambda each: (each.reasoning, each.tokens, each.number))
        over = self.used(rank) - capacity
        over -= sum(self._tokens(each) for each in active if each.leaving)
        for program in active:
            if over <= 0 or len(active) == 1:
                return
            if program.leaving:
                continue
            over -= self._tokens(program)
            if program.running:
                program.leaving = True
            else:
                self.pause(program)

    def _resume_some(self) -> None:
        paused = [each for each in self.programs.values() if not each.active]
        if not paused:
            return
        paused.sort(key=lambda each: (_turn(each), each.tokens, each.number))
        if self.capacity is None:
            for program in paused:
                self._resume(program, program.number % self._ranks)
            return
        left = [self.capacity - self.used(rank) for rank in range(self._ranks)]
        chosen = self._fitting(paused, sum(max(0.0, each) for each in left))
        for program in sorted(chosen, key=lambda each: (-each.tokens, each.number)):
            need = [self._tokens(program) - self._found(program, cache) for cache in self._prompts]
            fitting = [rank for rank in range(self._ranks) if left[rank] >= need[rank]]
            if fitting:
                # Packing new ones as tightly as those that come back would leave other ranks idle.
                tight = 1 if program.begun else -1
                rank = min(fitting, key=lambda each: (tight * (left[each] - need[each]), each))
                left[rank] -= need[rank]
                self._resume(program, rank)
        if not any(each.active for each in self.programs.values()):
            # One that is larger than any rank goes alone.
            first = next((each for each in paused if each.waiting), paused[0])
            self._resume(first, max(range(self._ranks), key=lambda each: (left[each], -each)))

    def _fitting(self, paused: list[Program], room: float) -> list[Program]:
        """The first of some programs that fit together into so many tokens."""
        together = PrefixCache()
        for program in self.programs.values():
            if program.active and program.instance in self._texts:
                together.add(self._texts[program.instance])
        chosen: list[Program] = []
        for program in paused:
            room -= self._tokens(program) - self._found(program, together)
            if room < 0:
                break
            chosen.append(program)
            if program.instance in self._texts:
                together.add(self._texts[program.instance])
        return chosen

    def _found(self, program: Program, prompts: PrefixCache) -> float:
        """The tokens of a program that others have too."""
        text = self._texts.get(program.instance)
        return 0.0 if text is None else prompts.matched(text, expected=True) / PER_TOKEN

    def _resume(self, program: Program, rank: int) -> None:
        program.rank = rank
        self.let_in(program)
        self._enter(program)

    def pause(self, program: Program) -> None:
        super().pause(program)
        self._leave(program)

    # --- calls done ---

    def dropped(self, call: Call) -> None:
        self._flying -= 1
        super().dropped(call)

    def row_ended(self, row: object) -> None:
        program = self.programs.get(row)
        if program is not None:
            self._leave(program)
        self._texts.pop(row, None)
        super().row_ended(row)


def _turn(program: Program) -> int:
    """Programs that come back with a call, new ones, those that wait for a tool."""
    if program.begun:
        return 0 if program.waiting else 2
    return 1
