"""How does a process that works for another end when that one does?"""

from __future__ import annotations

import os
import select
import signal
import threading


def end_with_parent(line: int) -> None:
    """From now on this process and what it started end as soon as the other end of `line` (a pipe
    or socket that the parent holds) closes, in the middle of a compilation too. It must lead its
    process group."""
    ends = select.poll()
    ends.register(line, 0)

    def watch() -> None:
        ends.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
