"""What a workflow wants of its input: the columns it declares, with their types and defaults."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final

from helix.types import Optional, Type


class NoDefault(enum.Enum):
    """The type of the mark for a column that declares no default (null is a default of its own)."""

    NO_DEFAULT = enum.auto()

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class Column:
    """A declared input column. `default` is a JSON value, taken where the field is null or absent."""

    name: str
    type: Type
    # A default may be a list or a record, which have no hash; equal columns still hash equal without it.
    default: Any = field(default=NO_DEFAULT, hash=False)


InputSchema = tuple[Column, ...]


def has_default(column: Column) -> bool:
    """Whether the column declares a default."""
    return column.default is not NO_DEFAULT


def is_required(column: Column) -> bool:
    """Whether a row without the field is an error: its type does not allow null and it has no default."""
    return not has_default(column) and not isinstance(column.type, Optional)
