"""Settings shared by every use of a Ray cluster."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from agentkernel.domain.errors import one_line

LOCAL = "local"
"""The address that stands for a cluster that is started here."""
OBJECT_STORE_BYTES = 200_000_000
"""Of a cluster that is started here: jobs and answers are text."""
SHARED = ("agentkernel", "torch", "triton")
"""What is part of a kernel's identity or of how it is judged, so that all nodes must agree on it.
Ray itself compares Python and Ray."""
SETTINGS = {
    # Ray's own warnings about a driver's settings are nobody's business here.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's workers are at the lowest priority but four otherwise, and what they time with them.
    "RAY_worker_niceness": "0",
}
"""Environment of a cluster that is started here, where the user's says nothing else."""


def last_words(log: Path) -> str:
    """The last line that Ray printed before its process ended; "" where it said nothing."""
    with suppress(OSError):
        lines = [item for item in log.read_text(errors="replace").splitlines() if item.strip()]
        return one_line(lines[-1]) if lines else ""
    return ""
