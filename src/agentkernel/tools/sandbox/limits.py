"""How much may a sandboxed worker use?"""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Bounds of one worker. `memory_bytes` is private resident memory, watched by the parent
    (address space is not limited: CUDA reserves terabytes of it)."""

    memory_bytes: int = 12 << 30
    file_bytes: int = 2 << 30
    open_files: int = 4096
    log_bytes: int = 64 << 10
    reply_bytes: int = 16 << 20
    start_timeout_s: float = 120.0
    threads: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
