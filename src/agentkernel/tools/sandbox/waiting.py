"""Which of these descriptors can be read? As select(2), which no number above 1023 may be given to.

Standard library only.
"""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(fds: Iterable[int], timeout_s: float) -> set[int]:
    """Those that have something, or have ended, waited for until one does."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(math.ceil(timeout_s * 1000))}
