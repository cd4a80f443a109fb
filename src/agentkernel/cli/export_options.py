"""Flags of `agentkernel export`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.completion import complete_run
from agentkernel.cli.options import AsJson, Runs, SettingsFlags


class ExportForm(Enum):
    """What a kernel is written as."""

    HUB = "hub"
    WHEEL = "wheel"
    TORCH_LIBRARY = "torch-library"


@dataclass(frozen=True)
class ExportFlags:
    """Write a run's kernel as a Hub repository, a wheel or an operator; torch and Triton run it."""

    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            autocompletion=complete_run,
            help="A run's name or folder; 'last' is the newest with a kernel.",
        ),
    ]
    form: Annotated[
        ExportForm,
        typer.Option(
            "--as",
            help="A Hub kernel repository, a wheel, or an operator of torch.library with a fake "
            "tensor.",
        ),
    ]
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Below this folder.")] = Path()
    runs: Runs = None
    settings: SettingsFlags = SettingsFlags()
    as_json: AsJson = False
