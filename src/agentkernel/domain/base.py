"""The base class of all value types: frozen, closed to unknown fields, JSON in and out."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from typing import Self


INFINITE_AS_TEXT = ConfigDict(ser_json_inf_nan="strings")
"""For a TypeAdapter that writes a union: it does not take the members' own setting, and would write
null for an infinite figure."""


class Frozen(BaseModel):
    """An immutable value that rejects unknown fields."""

    model_config = INFINITE_AS_TEXT | ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def evolve(self, **changes: Any) -> Self:
        """This value with `changes`, which are not validated: mypy checks their names and types
        with .ci/mypy_evolve.py. Raises TypeError for what is no field."""
        kind = type(self)
        unknown = changes.keys() - kind.__pydantic_fields__.keys()
        if unknown:
            names = ", ".join(kind.__pydantic_fields__)
            raise TypeError(
                f"{kind.__name__} has no field {', '.join(map(repr, sorted(unknown)))}, "
                f"only {names or 'none at all'}"
            )
        return self.model_copy(update=changes)


def sha256_text(text: str) -> str:
    """Hex SHA-256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
