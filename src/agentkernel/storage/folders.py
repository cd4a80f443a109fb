"""Where do a user's own files lie, by the XDG base directory specification?

https://specifications.freedesktop.org/basedir-spec/latest/
"""

from __future__ import annotations

import os
from pathlib import Path

from agentkernel.domain.errors import SettingError


def config_folder() -> Path:
    """`$XDG_CONFIG_HOME/agentkernel`, else `~/.config/agentkernel`. Raises SettingError."""
    return _below("XDG_CONFIG_HOME", ".config")


def data_folder() -> Path:
    """`$XDG_DATA_HOME/agentkernel`, else `~/.local/share/agentkernel`. Raises SettingError."""
    return _below("XDG_DATA_HOME", ".local/share")


def expanded(path: str) -> Path:
    """`path` with the home folder in place of `~`. Raises SettingError where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingError(
            f"No home folder for {path!r}. Expected HOME to name one, or the user to have one. "
            "Next: set HOME, or name the folder."
        ) from error


def _below(variable: str, usual: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else expanded(f"~/{usual}")) / "agentkernel"
