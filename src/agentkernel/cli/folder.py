"""In which folder do the run folders lie?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def runs_path(runs: Path | None, config: Path | None, overrides: Sequence[str] | None) -> Path:
    """`--runs`, else what the settings say."""
    from agentkernel.storage.settings import load_settings

    flags = {"runs": None if runs is None else str(runs)}
    return Path(load_settings(config, overrides or (), flags).runs)
