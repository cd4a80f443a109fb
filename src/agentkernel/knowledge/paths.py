"""Where does the knowledge lie, if nobody says?"""

from __future__ import annotations

import os
from pathlib import Path


def default_folder() -> Path:
    """`$XDG_DATA_HOME/agentkernel/knowledge`, below `~/.local/share` where that is not set."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "agentkernel" / "knowledge"
