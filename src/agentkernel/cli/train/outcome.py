"""Where the kernels of a training are judged, and its outcome in print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import typer
from pydantic import BaseModel

from agentkernel.cli.console import console
from agentkernel.cli.terminal import print_json
from agentkernel.domain.errors import SettingError

EXIT_INTERRUPTED = 130


class TrainingOutcome(Protocol):
    """What a training came to."""

    @property
    def finished(self) -> bool: ...
    @property
    def out(self) -> Path: ...


def judging_device(
    device: Literal["auto", "cpu", "cuda"], *, measurable: bool, target: str
) -> Literal["cpu", "cuda"]:
    """Where kernels for `target` are judged. Raises SettingError for a GPU that is not there."""
    if device == "cuda" and not measurable:
        raise SettingError(
            f"--device 'cuda': no GPU here stands for {target!r}. Expected one, or 'cpu'. Next: "
            "--device cpu judges in Triton's interpreter."
        )
    if device == "auto":
        return "cuda" if measurable else "cpu"
    return device


def print_line(line: str) -> None:
    """One line on stdout, as it stands."""
    console().print(line, markup=False, soft_wrap=True)


def line_printer(as_json: bool) -> Callable[[str], None]:
    """Prints each line while a model is trained; nothing where JSON is asked for."""
    return (lambda line: None) if as_json else print_line


def print_outcome(
    done: TrainingOutcome, record: BaseModel, ended: str, lines: Sequence[str], *, as_json: bool
) -> None:
    """What came out, then how to use it or go on, or all of it as JSON. Raises typer.Exit where a
    signal `ended` it."""
    if as_json:
        values = record.model_dump(mode="json", exclude={"settings", "versions"})
        print_json({"out": str(done.out), "finished": done.finished, **values})
    else:
        for line in (*lines, *_next(done, ended)):
            print_line(line)
    if ended == "signal":
        raise typer.Exit(EXIT_INTERRUPTED)


def _next(done: TrainingOutcome, ended: str) -> list[str]:
    if ended == "signal":
        return ["Next: the same command goes on."]
    use = f"Use: agentkernel optimize FILE.py --coder local:{done.out}"
    if done.finished:
        return [use]
    return ["The time was up; the model can be used. Next: more most_minutes go on.", use]
