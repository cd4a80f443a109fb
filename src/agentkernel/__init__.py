"""agentkernel: a PyTorch module goes in, a faster verified Triton drop-in comes out.

The API is imported on first use, so that `import agentkernel` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agentkernel.version import __version__

__all__ = [
    "Session",
    "__version__",
    "apply",
    "apply_all",
    "counts",
    "interpret",
    "open_session",
    "optimize",
    "restore",
]

if TYPE_CHECKING:
    from agentkernel.api import (
        Session,
        apply,
        apply_all,
        counts,
        open_session,
        optimize,
        restore,
    )
    from agentkernel.swap.interpreted import interpret


def __getattr__(name: str) -> object:
    """Import the API on first use, so that `import agentkernel` costs nothing."""
    if name == "errors":
        return import_module("agentkernel.errors")
    if name == "interpret":  # Triton must not be imported before it is called
        return import_module("agentkernel.swap.interpreted").interpret
    if name in __all__:
        return getattr(import_module("agentkernel.api"), name)
    raise AttributeError(f"module 'agentkernel' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The API, also before it is imported."""
    return sorted([*__all__, "errors"])
