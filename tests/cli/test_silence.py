"""A pipe is never silent for long: what is done, for how long, and how far it is."""

from __future__ import annotations

import re
import time

import pytest

from agentkernel.cli.nightly.zoo import NightlyScreen
from agentkernel.cli.rendering import live, run
from agentkernel.cli.rendering.live import RunProgress, counting, progress_words
from agentkernel.cli.rendering.run import EventLines, follow
from agentkernel.runtime.stages import at, recording, stage
from agentkernel.workflows.events import NodeStarted, OnEvent
from tests.cli.run_events import result

TICK_S = 0.05
JUDGE = NodeStarted(node="judge", round=1, spent_s=0.0)


def long_silence(on_event: OnEvent) -> None:
    """A judgement of which no event tells, for many ticks."""
    on_event(JUDGE)
    with stage("judge"):
        at("12 of 35 cases done")
        time.sleep(6 * TICK_S)


def test_a_run_in_a_pipe_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "SILENCE_S", TICK_S)
    with recording(), EventLines() as told:
        long_silence(told)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "round 1: judge ..."
    assert re.fullmatch(r"round 1: judge, \d+ s: 12 of 35 cases done", lines[1])
    assert len(lines) > 2


def test_json_has_no_such_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "SILENCE_S", TICK_S)

    def job(on_event: OnEvent) -> object:
        long_silence(on_event)
        return result()

    with recording():
        follow(job, as_json=True, panel=False)  # type: ignore[arg-type]
    written = capsys.readouterr()
    assert [line[:1] for line in written.out.splitlines()] == ["{"]
    assert written.err == ""


def test_a_terminal_shows_the_cases_beside_the_clock() -> None:
    with recording():
        progress = RunProgress()
        progress.show(JUDGE)
        with stage("judge"):
            at("12 of 35 cases done")
            assert re.fullmatch(r"round 1: judge, 0 s: 12 of 35 cases done", progress.doing())


@pytest.mark.parametrize("silent", [False, True])
def test_a_command_counts_on_stderr_alone(
    silent: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "SILENCE_S", TICK_S)
    with counting("judge", silent=silent):
        at("3 of 9 cases done")
        time.sleep(4 * TICK_S)
    written = capsys.readouterr()
    assert written.out == ""
    assert ("judge, 0 s: 3 of 9 cases done\n" in written.err) is not silent


def test_a_stage_of_the_nodes_name_is_not_said_twice() -> None:
    assert progress_words("round 1: judge", 3.2, "judge: 2 of 4") == "round 1: judge, 3 s: 2 of 4"
    assert progress_words("judge", 3.0, "other modules: 1 of 2 done") == (
        "judge, 3 s: other modules: 1 of 2 done"
    )
    assert progress_words("judge", 3.0, "") == "judge, 3 s"


def test_a_night_in_a_pipe_is_heard_before_its_first_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentkernel.cli.nightly.zoo.SILENCE_S", TICK_S)
    with NightlyScreen(as_json=False).live():
        time.sleep(4 * TICK_S)
    assert "preparing the night" in capsys.readouterr().out
