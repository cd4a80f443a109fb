"""Progress in a notebook that has no widgets: plain lines, and no warning."""

from __future__ import annotations

import pytest
import rich.console

from agentkernel.workflows import progress
from agentkernel.workflows.events import Event, NodeStarted
from tests.cli.run_events import started

EVENTS: list[Event] = [
    started(rounds=2),
    NodeStarted(node="plan", round=0, spent_s=0.0),
    NodeStarted(node="judge", round=1, spent_s=1.0),
]


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich takes the process for a notebook's; no ipywidgets can be imported."""
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)


@pytest.mark.usefixtures("in_notebook")
def test_a_notebook_without_widgets_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress_bar() as show:
        for event in EVENTS:
            show(event)
    written = capsys.readouterr()
    assert written.out == "round 1 of 2: planning\nround 1 of 2: judging\n"
    assert written.err == ""
