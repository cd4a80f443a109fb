"""The base class of all value types: frozen, closed to unknown fields, JSON in and out."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value that rejects unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True
    )


def sha256_text(text: str) -> str:
    """Hex SHA-256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
