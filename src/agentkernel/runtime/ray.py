"""The child process that talks to a Ray cluster: its settings, its start and its end."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

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

CONNECT_S = 120.0
"""A cluster answers by then, or there is none: Ray itself would wait on."""
LEAVE_S = 30.0
"""A cluster that was started here has ended by then."""
POLL_S = 0.1
"""So often is the pipe looked at while jobs are under way."""
STDOUT, STDERR = 1, 2


def ray_folder() -> tempfile.TemporaryDirectory[str]:
    """For what Ray writes. Its sockets lie there, whose paths may not be long."""
    parent = os.environ.get("RAY_TMPDIR", "/tmp")
    return tempfile.TemporaryDirectory(prefix="ak-ray-", dir=parent, ignore_cleanup_errors=True)


def detach(log: Path, leave_s: float = 0.0) -> None:
    """Make this child one that may talk to Ray: no Ctrl-C, its output in `log`, SETTINGS in its
    environment, and an end `leave_s` after its parent's."""
    os.setsid()  # Ctrl-C is the parent's, which closes the line
    threading.Thread(target=_end_after_parent, args=(leave_s,), daemon=True).start()
    with log.open("ab") as file:
        os.dup2(file.fileno(), STDOUT)
        os.dup2(file.fileno(), STDERR)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def _end_after_parent(leave_s: float) -> None:
    """Ray may be in the middle of a call that does not end when the parent has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        time.sleep(leave_s)
        os._exit(1)


def connect_ray(
    ray: Any, address: str, folder: Path | None, resources: Mapping[str, float] | None = None
) -> None:
    """Connect to the cluster at `address`, or start one here, which writes to `folder`."""
    if address != LOCAL:
        ray.init(address=address, log_to_driver=False)
        return
    ray.init(
        # Without this word Ray takes any cluster that it finds here.
        address=LOCAL,
        resources=dict(resources or {}) or None,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=str(folder) if folder else None,
    )


def last_words(log: Path) -> str:
    """The last line that Ray printed before its process ended; "" where it said nothing."""
    with suppress(OSError):
        lines = [item for item in log.read_text(errors="replace").splitlines() if item.strip()]
        return one_line(lines[-1]) if lines else ""
    return ""
