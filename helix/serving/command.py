"""The command line that starts SGLang: each flag with its reason, and as one line for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

# Flags of SGLang that have two names.
ALIASES = {"--data-parallel-size": "--dp-size", "--dp": "--dp-size", "--model": "--model-path"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of the server, its value (None: a switch), and why it is given."""

    name: str
    value: str | None = None
    why: str

    @property
    def words(self) -> tuple[str, ...]:
        """The flag as it stands on a command line."""
        return (self.name,) if self.value is None else (self.name, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """What is run: variables of the environment, each with its reason, the program, flags, and what the user adds."""

    program: tuple[str, ...]
    flags: tuple[Flag, ...]
    environment: tuple[Flag, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The command without its environment."""
        return (*self.program, *(word for flag in self.flags for word in flag.words), *self.extra)

    @property
    def line(self) -> str:
        """The command as one line that can be pasted into a shell."""
        variables = [f"{flag.name}={shlex.quote(flag.value or '')}" for flag in self.environment]
        return " ".join((*variables, shlex.join(self.words)))

    def value(self, name: str) -> str | None:
        """The value of a flag, wherever it is from; of several the last."""
        found = next((flag.value for flag in self.flags if flag.name == name), None)
        for number, word in enumerate(self.extra):
            own, equals, value = word.partition("=")
            if ALIASES.get(own, own) != name:
                continue
            if equals:
                found = value
            elif number + 1 < len(self.extra):
                found = self.extra[number + 1]
        return found

    def reasons(self) -> list[str]:
        """A line for each variable and flag: what it is, and why."""
        shown = [(" ".join((flag.name, flag.value or "")).strip(), flag.why) for flag in self.flags]
        shown += [(word, "given after `--`") for word in _heads(self.extra)]
        shown = [(f"{flag.name}={flag.value}", flag.why) for flag in self.environment] + shown
        width = min(40, max(len(name) for name, _ in shown))
        return [f"{name:<{width}}  {why}" for name, why in shown]


def with_extra(command: ServerCommand, extra: Sequence[str]) -> ServerCommand:
    """The command with flags of the user's own, which take the place of those of the same name."""
    given = {ALIASES.get(name, name) for name in (head.partition("=")[0].partition(" ")[0] for head in _heads(extra))}
    kept = tuple(flag for flag in command.flags if flag.name not in given)
    return replace(command, flags=kept, extra=tuple(extra))


def _heads(words: Iterable[str]) -> list[str]:
    """Flags with their values, one text each."""
    heads: list[str] = []
    for word in words:
        if word.startswith("--") or not heads:
            heads.append(word)
        else:
            heads[-1] = f"{heads[-1]} {word}"
    return heads
