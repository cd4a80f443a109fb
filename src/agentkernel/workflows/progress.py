"""Progress of a run as a bar, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentkernel.workflows.events import Event, Finished, NodeStarted, OnEvent, RunStarted

WORDS = {
    "plan": "planning",
    "retrieve": "searching what is known",
    "draft": "drafting",
    "judge": "judging",
    "profile": "timing",
    "debug": "finding out what went wrong",
    "decide": "deciding",
    "finish": "writing the result",
}
"""What a node does, for people."""


def _no_widgets() -> bool:
    """True in a notebook without ipywidgets: rich draws no bar there, and warns at each turn."""
    return Console().is_jupyter and find_spec("ipywidgets") is None


def _printed() -> OnEvent:
    """The events as plain lines: the round, and what is done."""
    rounds = 0

    def show(event: Event) -> None:
        nonlocal rounds
        match event:
            case RunStarted():
                rounds = event.rounds
            case NodeStarted():
                print(f"round {max(event.round, 1)} of {rounds}: {WORDS[event.node]}", flush=True)
            case Finished():
                print("done", flush=True)
            case _:
                pass

    return show


@contextmanager
def progress_bar() -> Iterator[OnEvent]:
    """While it holds, a bar of the rounds with what is being done; it hears the run's events. A
    notebook without ipywidgets gets a line a step."""
    if _no_widgets():
        yield _printed()
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("starting", total=None)

        def show(event: Event) -> None:
            match event:
                case RunStarted():
                    bar.update(task, total=event.rounds)
                case NodeStarted():
                    done = max(event.round - 1, 0)
                    bar.update(task, completed=done, description=WORDS[event.node])
                case _:
                    pass

        yield show
        bar.update(task, completed=bar.tasks[0].total, description="done")
