"""What does a night leave behind for programs, and how is it read again?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import RunNotFound, one_line
from agentkernel.domain.night import Comparison, NightlyRun
from agentkernel.domain.region import Kernel
from agentkernel.nightly.page.costs import ModelCost
from agentkernel.nightly.page.merged import MergedRegions
from agentkernel.storage.disk import read_regular_text

JSON_NAME = "night.json"


class NightFile(Frozen):
    """`night.json`: all that the page is made from, so that it can be made again. `history` keeps
    of earlier nights what the trend and the lineage need; `kernels` those that the page shows, by
    SHA-256. `costs` and `merged` follow from the night; they are there for other programs."""

    # What a later version adds for its page is no reason not to read the rest.
    model_config = ConfigDict(extra="ignore")

    format: Literal[1] = 1
    night: NightlyRun
    comparison: Comparison
    history: tuple[NightlyRun, ...] = ()
    kernels: dict[str, Kernel] = Field(default_factory=dict)
    costs: tuple[ModelCost, ...] = ()
    merged: MergedRegions | None = None


def read_night_file(path: Path) -> NightFile:
    """`night.json`, or the folder that it lies in. Raises RunNotFound."""
    file = path / JSON_NAME if path.is_dir() else path
    try:
        return NightFile.model_validate_json(read_regular_text(file, typed=True))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        what = "cannot be read" if isinstance(error, OSError) else "is no record of a night"
        why = getattr(error, "strerror", None) or one_line(error, 120)
        raise RunNotFound(
            f"{str(file)!r} {what}: {why}. Expected the {JSON_NAME} that "
            "'agentkernel batch ZOO.yaml' writes. Next: name its folder."
        ) from error
