"""The table of what became of each drawn block."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


def write_table(rows: Path, out: Path, seed: int) -> None:
    """Write `out` anew from the rows."""
    raise NotImplementedError
