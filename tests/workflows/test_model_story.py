"""Does a run with a model at a real endpoint go as the model's known story has it?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from model_story import (
    ASKS_THE_ORIGINAL,
    BEYOND,
    CALLS_TORCH,
    FAST,
    FOUR,
    KEEPS,
    KEY,
    MASKED,
    MILLION,
    PROSE,
    THREE,
    TWO,
    Author,
    Ended,
    Place,
    all_of,
    kill_at,
    line_of,
    said,
    seen,
    serve,
    text_of,
)

# isort: split
from chat_server import Answer, Cuts, Garbage, Refuses, Scripted, Stalls

from agentkernel.agents.coders.model import NO_CODE, SAME
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
    _, model, end = told
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
        end = place.finish(place.resume_words())
    assert "judge" in unfinished
    assert_story(end)
    asked = [json.dumps(item, sort_keys=True) for item in server.requests]
    assert len(asked) == len(set(asked)) == 4
    assert model.complaints == []


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


@dataclass
class Cheat:
    """Cheats, and writes an honest file only where it is told the rule and the line."""

    source: str
    rule: str
    line: int | None
    told: list[str] = field(default_factory=list)

    def __call__(self, request: dict[str, object]) -> Answer:
        shown = seen(request)
        if shown.refused is None:
            return said(self.source)
        self.told.append(shown.facts.get("what happened", ""))
        honest = self.rule in self.told[-1] and shown.marked == self.line
        return said(FAST if honest else self.source)


@pytest.mark.parametrize(
    ("source", "gate", "rule", "mark"),
    [
        pytest.param(CALLS_TORCH, "policy", "torch-compute: ", "torch.relu(y0)", id="torch"),
        pytest.param(ASKS_THE_ORIGINAL, "policy", "import: ", "import problem", id="the original"),
        pytest.param(KEEPS, "run", "the storage of an earlier call's output", "", id="kept result"),
    ],
)
def test_a_cheat_is_told_why_and_goes(
    place: Place, source: str, gate: str, rule: str, mark: str
) -> None:
    model = Cheat(source, rule, line_of(source, mark) if mark else None)
    end = place.optimize(model)
    assert [item.gate for item in end.verdicts] == [gate, "accepted"], model.told
    assert (end.code, end.handed_over()) == (0, FAST)
    assert source not in (end.folder / "certificate.json").read_text()


def test_a_model_that_gets_worse_is_stopped_and_its_best_is_the_answer(place: Place) -> None:
    end = place.optimize([said(TWO), said(THREE), said(FOUR)], "-c", "budget.patience=2")
    assert end.sources() == [TWO, THREE, FOUR]
    times = [item["estimated_time_us"] for item in end.of_kind("profile")]
    assert times == sorted(times, key=float)
    assert end.of_kind("decision")[-1]["stop"] == "stagnation"
    assert (end.code, end.handed_over()) == (0, TWO)


def test_the_same_wrong_file_again_and_again(place: Place) -> None:
    with serve([said(MASKED.source)]) as server:
        end = place.finish(place.words(server))
    assert (end.code, end.result.status, end.result.candidate) == (3, "kept_original", None)
    assert len(end.verdicts) == 1
    again = [item for item in server.requests if "that you had given before" in text_of(item)]
    assert len(again) == len(server.requests) // 2
    assert len(server.requests) == len(end.exchanges) == len(end.of_kind("model_asked"))
    assert {item["reason"] for item in end.of_kind("candidate_drafted")} == {None, SAME}


IMPATIENT = ("-c", "models.timeout_s=1")


class Troubled:
    """A model that is asked through an endpoint with troubles: `before` each of its answers."""

    def __init__(self, model: Author, *before: Sequence[Scripted]) -> None:
        self.model = model
        self.script: list[Scripted] = []
        for troubles in before:
            self.script += [*troubles, model]


def test_troubles_that_pass_change_nothing(place: Place) -> None:
    told_to_wait = Refuses(429, {"Retry-After": "1"})
    silent, nonsense = [Stalls(60.0)], [Garbage("{"), Garbage()]
    given = Troubled(author(), [told_to_wait], [500, 500], nonsense, [*silent, Cuts("")])
    with serve(given.script) as server:
        end = place.finish(place.words(server, *IMPATIENT))
    assert given.model.complaints == []
    assert_story(end)
    assert [item.attempts for item in end.exchanges] == [2, 3, 3, 3]
    failures = [item["failure"] for item in end.of_kind("model_retried")]
    kinds = ["rate_limit", "server", "server", "server", "server", "timeout", "connection"]
    assert failures == kinds
    assert server.times[1] - server.times[0] >= 1.0


def test_an_answer_without_a_file_is_asked_for_once_more(place: Place) -> None:
    cut = Cuts(f"```python\n{FAST[:400]}")
    with serve([cut, said(TWO), "", PROSE, said(FAST)]) as server:
        end = place.finish(place.words(server))
    assert (end.code, end.sources(), end.handed_over()) == (0, [TWO, FAST], FAST)
    told_so = ["no complete Python file" in text_of(item) for item in server.requests]
    assert told_so == [False, True, False, True, False]
    assert [item["reason"] for item in end.of_kind("candidate_drafted")] == [None, NO_CODE, None]
    assert max(map(len, map(all_of, server.requests))) < 60_000


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        pytest.param([401], "refuses the key", id="401"),
        pytest.param([Stalls(60.0), Stalls(60.0)], "does not answer", id="stalls"),
    ],
)
def test_a_trouble_that_stays_leaves_the_best(
    place: Place, capfd: pytest.CaptureFixture[str], trouble: list[Scripted], words: str
) -> None:
    with serve([said(TWO), *trouble, said(FAST)]) as server:
        end = place.finish(place.words(server, *IMPATIENT))
        line = capfd.readouterr().err
        left = end.handed_over()
        again = place.finish(place.resume_words())
    assert (end.code, line.count("\n")) == (4, 1)
    assert words in line
    assert "Next: " in line
    assert left == TWO
    assert_no_key(place.folder, line)
    assert (again.code, again.folder, again.handed_over()) == (0, end.folder, FAST)
    assert len(server.requests) == 2 + len(trouble)


def test_a_model_that_only_talks_keeps_the_best(place: Place) -> None:
    with serve([said(TWO), PROSE]) as server:
        end = place.finish(place.words(server))
    assert (end.code, end.handed_over()) == (0, TWO)
    assert len(server.requests) == 5
    assert [item["reason"] for item in end.of_kind("candidate_drafted")][1:] == [NO_CODE] * 2


def test_a_key_that_is_refused_at_once(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    with serve([401]) as server:
        end = place.finish(place.words(server))
    line = capfd.readouterr().err
    assert (end.code, end.result.status, end.result.candidate) == (4, "failed", None)
    assert line.count("\n") == 1
    assert server.authorizations == [f"Bearer {KEY}"]
    assert_no_key(place.folder, line)


def assert_no_key(folder: Path, *texts: str) -> None:
    files = [item for item in folder.rglob("*") if item.is_file()]
    assert len(files) > 5
    assert [str(item) for item in files if KEY.encode() in item.read_bytes()] == []
    assert all(KEY not in item for item in texts)
