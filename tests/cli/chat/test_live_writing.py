"""Does a screen show what a model is writing, a few lines of it, and nothing once it is done?"""

from __future__ import annotations

import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from agentkernel.cli.chat.screen import JsonScreen, TextScreen
from agentkernel.cli.rendering.live import KEPT, LINES, LiveTable, LiveWriting, RunProgress
from agentkernel.cli.rendering.run import follow
from agentkernel.workflows.events import (
    Event,
    ModelAsked,
    ModelPassedOver,
    ModelRetried,
    ModelWriting,
    NodeFinished,
    Noted,
    OnEvent,
)
from agentkernel.workflows.outcome import Result
from tests.cli.run_events import result, started

CODER = "chat:openai:scripted"
ASKED = ModelAsked(
    agent="coder",
    model=CODER,
    round=1,
    prompt_tokens=100,
    completion_tokens=20,
    cached_tokens=0,
    cost_usd=None,
    seconds=1.0,
    reused=False,
)
FILE = "".join(f"    y{number} = tl.load(x_ptr + {number})\n" for number in range(20))


def piece(text: str, characters: int | None = None) -> ModelWriting:
    size = len(text) if characters is None else characters
    return ModelWriting(agent="coder", model=CODER, round=1, text=text, characters=size)


def lines(*events: Event, width: int = 80) -> list[str]:
    shown = LiveWriting()
    for event in events:
        shown.show(event)
    console = Console(file=io.StringIO(), width=width)
    for item in shown.lines():
        console.print(item)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_last_lines_are_shown_with_their_indents() -> None:
    shown = lines(piece(FILE[:300]), piece(FILE[300:], len(FILE)))
    assert shown[0] == f"coder writes: {len(FILE)} characters"
    assert shown[1:] == [f"      y{at} = tl.load(x_ptr + {at})" for at in range(20 - LINES, 20)]


@pytest.mark.parametrize("text", ["word " * 900, "x" * 9000, "漢字" * 3000, "\t" * 90 + "x"])
@pytest.mark.parametrize("width", [20, 80])
def test_no_line_is_wider_than_the_screen(text: str, width: int) -> None:
    shown = lines(piece(text), width=width)
    assert 1 < len(shown) <= 2 + LINES
    assert all(cell_len(line) <= width for line in shown)


def test_the_newest_of_a_long_line_is_what_is_seen() -> None:
    assert lines(piece("word " * 900 + "and the end"))[-1].endswith("and the end")


def test_little_of_a_long_answer_is_kept() -> None:
    shown = LiveWriting()
    for _ in range(100):
        shown.show(piece("x" * 1000, 100_000))
    assert len(shown.tail) == KEPT


def test_an_answer_that_begins_anew_is_shown_from_its_beginning() -> None:
    assert lines(piece("half"), piece("whole"))[1:] == ["  whole"]


@pytest.mark.parametrize(
    "event",
    [
        ASKED,
        ModelRetried(model=CODER, failure="server", text="no", attempt=1, wait_s=1.0),
        ModelPassedOver(text="silent"),
        NodeFinished(node="draft", round=1, seconds=1.0, spent_s=1.0),
    ],
    ids=lambda item: item.kind,
)
def test_it_is_gone_when_the_model_is_done(event: Event) -> None:
    assert lines(piece("half"), event) == []


def test_it_stands_below_the_table() -> None:
    progress = RunProgress()
    for event in (started(), Noted(text="a note"), piece("x = 1")):
        progress.show(event)
    console = Console(file=io.StringIO(), width=80)
    console.print(progress.table())
    assert isinstance(console.file, io.StringIO)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert shown[-3:] == ["a note", "coder writes: 5 characters", "  x = 1"]


def drawn(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, _environ={"TERM": "xterm"})


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_half_an_answer_does_not_stay_on_the_screen() -> None:
    console = drawn()
    with LiveTable(console) as table:
        table.show(started())
        table.show(piece("half of it"))
    assert "half of it" not in text_of(console).rpartition("layernorm for")[2]


def test_nor_in_a_session() -> None:
    console = drawn()
    screen = TextScreen(console)
    screen.event(started())
    screen.event(piece("half of it"))
    assert screen._live is not None
    screen._live.refresh()
    screen.end_turn()
    seen = text_of(console)
    assert "half of it" in seen
    assert "half of it" not in seen.rpartition("layernorm for")[2]


def test_a_model_that_reads_a_sentence_draws_no_table() -> None:
    console = drawn()
    screen = TextScreen(console)
    for event in (Noted(text="asking a model"), piece('{"intents": []}'), ASKED):
        screen.event(event)
    assert text_of(console) == "asking a model\n"


def test_a_pipe_hears_of_whole_answers_alone() -> None:
    console = Console(file=io.StringIO(), width=80)
    screen = TextScreen(console)
    for event in (started(), piece("half"), ASKED):
        screen.event(event)
    told = text_of(console).splitlines()
    assert [line.split(" ")[0] for line in told] == ["run", "coder"]


def test_a_program_hears_every_piece() -> None:
    stream = io.StringIO()
    JsonScreen(stream).event(piece("half\x1b\n"))
    told = json.loads(stream.getvalue())["event"]
    assert (told["kind"], told["text"]) == ("model_writing", "half\x1b\n")


def test_only_json_has_the_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    def job(told: OnEvent) -> Result:
        told(piece("half"))
        told(ASKED)
        return result()

    follow(job, as_json=True, panel=False)
    seen = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert seen == ["model_writing", "model_asked"]
    follow(job, as_json=False, panel=False)
    told = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in told] == ["coder"]
