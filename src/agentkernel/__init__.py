"""agentkernel: a PyTorch module goes in, a faster verified Triton drop-in comes out.

The API is imported on first use, so that `import agentkernel` loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.version import __version__

__all__ = [
    "Session",
    "__version__",
    "apply",
    "apply_all",
    "counts",
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


def __getattr__(name: str) -> object:
    """Import the API on first use, so that `import agentkernel` costs nothing."""
    if name in __all__:
        from agentkernel import api

        return getattr(api, name)
    raise AttributeError(f"module 'agentkernel' has no attribute {name!r}")
