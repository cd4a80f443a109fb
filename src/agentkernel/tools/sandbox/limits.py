"""How much may a sandboxed worker use?"""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Bounds of one worker and of all that it starts, together. `memory_bytes` is memory that is
    no file's on a disk, what the parent shares left out; the launcher watches it (address space is
    not limited: CUDA reserves terabytes of it). `output_bytes` bounds what is printed in all,
    `log_bytes` what of it is kept."""

    memory_bytes: int = 12 << 30
    scratch_bytes: int = 2 << 30
    file_bytes: int = 2 << 30
    open_files: int = 4096
    processes: int = 64
    tasks: int = 1024
    log_bytes: int = 64 << 10
    output_bytes: int = 64 << 20
    reply_bytes: int = 16 << 20
    start_timeout_s: float = 120.0
    threads: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
