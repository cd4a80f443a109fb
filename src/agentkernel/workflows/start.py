"""What does a run begin with beside its problem and settings, and how does its folder keep that?"""

from __future__ import annotations

from agentkernel.agents.coders.given import given_path, read_given
from agentkernel.domain.settings import FILE_PREFIX, Settings
from agentkernel.tools.store import RunStore
from agentkernel.workflows.state import OptimizeRequest

GIVEN = "given"
"""The folder that a given file is copied to, under its own name."""


def start_files(request: OptimizeRequest) -> dict[str, str]:
    """What the folder of a new run is to keep: path below it -> text. Raises SettingError."""
    files: dict[str, str] = {}
    if request.settings.coder.startswith(FILE_PREFIX):
        path = given_path(request.settings.coder)
        files[f"{GIVEN}/{path.name}"] = read_given(path)
    return files


def settings_of(store: RunStore) -> Settings:
    """The run's settings; a given file is the folder's own copy, whatever became of the file."""
    settings = store.manifest.settings
    if not settings.coder.startswith(FILE_PREFIX):
        return settings
    copy = store.folder.absolute() / GIVEN / given_path(settings.coder).name
    return settings.model_copy(update={"coder": f"{FILE_PREFIX}{copy}"})
