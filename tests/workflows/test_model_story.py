"""Does a run with a model at a real endpoint go as the model's known story has it?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from model_story import (
    BEYOND,
    FAST,
    KEY,
    MASKED,
    MILLION,
    TWO,
    Author,
    Ended,
    Place,
    events_of,
    kill_at,
    read_end,
    serve,
)

from agentkernel.cli.app import run as agentkernel
from agentkernel.tools.store import open_run

STORY = [BEYOND.source, MASKED.source, TWO, FAST]


def author() -> Author:
    return Author((BEYOND, MASKED), TWO, FAST)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Author, Ended]]:
    """The whole story, left alone."""
    with pytest.MonkeyPatch.context() as patch:
        place = Place(tmp_path_factory.mktemp("told"))
        for name, value in place.environment().items():
            patch.setenv(name, value)
        model = author()
        yield place, model, place.optimize(model)


def assert_story(end: Ended) -> None:
    """Refused, refused, accepted, accepted; the faster one is handed over with its proof."""
    assert end.code == 0
    assert end.sources() == STORY
    assert [item.accepted for item in end.verdicts] == [False, False, True, True]
    assert [item.gate for item in end.verdicts[:2]] == ["run", "correctness"]
    assert (end.result.status, end.result.drafts) == ("verified", 4)
    assert end.handed_over() == FAST
    assert len(end.exchanges) == 4


def test_wrong_debugged_right_faster(told: tuple[Place, Author, Ended]) -> None:
    place, model, end = told
    assert model.complaints == []
    assert_story(end)
    times = [item["estimated_time_us"] for item in end.of_kind("profile")]
    assert isinstance(times[0], float)
    assert isinstance(times[1], float)
    assert times[1] < 0.6 * times[0]
    assert end.result.estimated_time_us == times[1]


def test_tokens_and_money_are_counted(told: tuple[Place, Author, Ended]) -> None:
    _, _, end = told
    prompt, cached = 4 * 1000, 4 * 200
    completion = sum(item.reply.usage.completion for item in end.exchanges)
    cost = ((prompt - cached) * 2.0 + cached * 1.0 + completion * 10.0) / MILLION
    known = [item.cost_usd for item in end.exchanges]
    assert sum(item for item in known if item is not None) == pytest.approx(cost)
    assert [item["cost_usd"] for item in end.of_kind("model_asked")] == known
    assert completion > 500


def test_two_kills_and_no_question_twice(place: Place) -> None:
    model = author()
    with serve(model) as server:
        first = place.start(place.words(server))
        kill_at(first, lambda event: event["kind"] == "model_asked")
        judging = Judging(after=2)
        kill_at(place.start(place.resume_words()), judging, wait_s=0.2)
        store = open_run(place.runs, "last")
        unfinished = [item.task for item in store.records.executions() if not item.finished]
        store.close()
        last = place.start(place.resume_words())
        events = list(events_of(last))
        with last:
            code = last.wait()
    assert "judge" in unfinished
    assert_story(read_end(code, place.runs))
    asked = [json.dumps(item, sort_keys=True) for item in server.requests]
    assert len(asked) == len(set(asked)) == 4
    assert model.complaints == []
    assert events[-1]["status"] == "verified"


class Judging:
    """True at the beginning of a judgement, after some other ones."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, event: dict[str, object]) -> bool:
        begins = event["kind"] == "node_started" and event["node"] == "judge"
        self.left -= begins
        return begins and self.left < 0


def test_a_replay_needs_no_server(
    told: tuple[Place, Author, Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _, end = told
    monkeypatch.delenv("OPENAI_API_KEY")
    with serve(["gone"]) as server:
        words = place.words(server, "-c", f"models.replay={end.folder.name}")
    again = place.finish(words)
    assert again.folder != end.folder
    assert server.requests == []
    assert_story(again)
    assert [item.reply for item in again.exchanges] == [item.reply for item in end.exchanges]
    same = ("status", "reason", "candidate_sha256", "estimated_time_us", "drafts")
    assert again.result.model_dump(include=set(same)) == end.result.model_dump(include=set(same))


def test_a_replay_of_another_story_ends_with_one_line(
    told: tuple[Place, Author, Ended], capfd: pytest.CaptureFixture[str]
) -> None:
    place, _, end = told
    with serve(["gone"]) as server:
        words = place.words(server, "-c", f"models.replay={end.folder.name}")
    other = place.folder / "other.py"
    other.write_text((place.folder / "problem.py").read_text().replace("4096", "2048"))
    words[1] = str(other)
    assert agentkernel(words) == 4
    told_line = capfd.readouterr().err
    assert told_line.count("\n") == 1
    assert "holds no answer" in told_line
