"""`--remote`, and the flags of the command that it starts on the other machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

RemoteUrl = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="Judge, time and search there: ssh://user@host[:port][?python=PATH].",
    ),
]
CheckedUrl = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="Check that machine: ssh://user@host[:port][?python=PATH].",
    ),
]


@dataclass(frozen=True)
class RemoteWorkerFlags:
    """Judge, time and search for another machine; `--remote` starts it."""

    session: Annotated[str, typer.Argument(metavar="SESSION", help="32 hexadecimal digits.")]
