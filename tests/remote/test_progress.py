"""What another machine does now is on the screen while it does it."""

from __future__ import annotations

import io

from rich.console import Console

from agentkernel.cli.rendering.events import event_line
from agentkernel.cli.rendering.live import RunProgress
from agentkernel.workflows.events import NodeFinished, NodeStarted, RemoteProgress

SEARCH = RemoteProgress(host="ada@box", text="search")


def screen(progress: RunProgress) -> str:
    text = io.StringIO()
    Console(width=100, file=text).print(progress.table())
    return text.getvalue()


def test_it_is_a_line_in_a_pipe_and_words_on_a_terminal() -> None:
    assert event_line(SEARCH) == "ada@box: search"
    progress = RunProgress()
    progress.show(NodeStarted(node="draft", round=1, spent_s=0.0))
    progress.show(SEARCH)
    assert "round 1: draft, 0 s  ada@box: search" in screen(progress)
    progress.show(NodeFinished(node="draft", round=1, seconds=1.0, spent_s=1.0))
    assert "ada@box" not in screen(progress)
