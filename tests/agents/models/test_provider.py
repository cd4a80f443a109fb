"""A name leads to a model, asked once, its answer kept before anyone uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.agents.models.endpoint_cases import options, question

# isort: split
from agentkernel.agents.models.costs import Price, Prices
from agentkernel.agents.models.protocol import OnText, ignore
from agentkernel.agents.models.provider import (
    ModelProvider,
    ModelSpec,
    RecordedModel,
    ReplayedModel,
    make_model,
    parse_model,
)
from agentkernel.domain.errors import ModelUnavailable, NotRecorded, SettingError
from agentkernel.domain.exchange import Exchange, ModelRequest, Reply, Usage
from agentkernel.storage.records import Records
from tests.agents.models.chat_server import ChatServer, Refuses, Says

URL = "http://127.0.0.1:8000/v1"
KEY = "sk-sentinel-0123456789"
PRICES = Prices(prices=(Price(model="fake", input=1.0, output=2.0),))


class Slow:
    """A model that counts its questions and takes a moment for each."""

    name = "fake"

    def __init__(self, seconds: float = 0.0) -> None:
        self.asked = 0
        self.seconds = seconds

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        self.asked += 1
        time.sleep(self.seconds)
        on_text("Yes.")
        return Reply(texts=("Yes.",), finish=("stop",), usage=Usage(prompt=10, completion=5))


class Noted:
    """Keeps what a recorded model reports."""

    def __init__(self) -> None:
        self.heard: list[tuple[Exchange, bool]] = []

    def __call__(self, exchange: Exchange, reused: bool) -> None:
        self.heard.append((exchange, reused))


@pytest.fixture
def records(tmp_path: Path) -> Records:
    folder = tmp_path / "run-7"
    folder.mkdir()
    return Records(folder / "run.sqlite")


def test_what_was_answered_is_not_asked_again(records: Records) -> None:
    model, noted, pieces = Slow(), Noted(), list[str]()
    first = RecordedModel(model, records, PRICES, noted).ask(question())
    again = RecordedModel(model, records, PRICES, noted).ask(question(), pieces.append)
    assert first == again
    assert model.asked == 1
    assert pieces == ["Yes."]
    assert [reused for _, reused in noted.heard] == [False, True]
    assert noted.heard[0][0].cost_usd == pytest.approx(20e-6)


def test_another_round_is_another_question(records: Records) -> None:
    model = Slow()
    recorded = RecordedModel(model, records, PRICES)
    recorded.ask(question())
    recorded.ask(question(round=2))
    assert model.asked == 2


def test_many_at_once_ask_once(records: Records) -> None:
    model = Slow(0.1)
    recorded = RecordedModel(model, records, PRICES)
    threads = [threading.Thread(target=recorded.ask, args=(question(),)) for _ in range(8)]
    others = [threading.Thread(target=recorded.ask, args=(question(str(n)),)) for n in range(4)]
    for thread in [*threads, *others]:
        thread.start()
    for thread in [*threads, *others]:
        thread.join()
    assert model.asked == 5
    assert len(records.exchanges()) == 5


def test_an_answer_is_kept_before_it_is_reported(records: Records) -> None:
    kept: list[int] = []

    def note(exchange: Exchange, reused: bool) -> None:
        kept.append(len(records.exchanges()))

    RecordedModel(Slow(), records, PRICES, note).ask(question())
    assert kept == [1]


def test_a_failure_is_not_kept(records: Records) -> None:
    with ChatServer([500, 500, "Yes."]) as server:
        chat = make_model("chat:openai:scripted", server.url, options(attempts=2))
        recorded = RecordedModel(chat, records)
        with pytest.raises(ModelUnavailable):
            recorded.ask(question())
        assert records.exchanges() == ()
        assert recorded.ask(question()).texts == ("Yes.",)


def test_a_replay_needs_no_model(records: Records, tmp_path: Path) -> None:
    RecordedModel(Slow(), records, PRICES).ask(question())
    noted, later = Noted(), Records(tmp_path / "later.sqlite")
    replayed = ReplayedModel("fake", records, noted, into=later)
    assert replayed.ask(question()).texts == ("Yes.",)
    assert [reused for _, reused in noted.heard] == [True]
    assert later.exchanges() == records.exchanges()
    with pytest.raises(ModelUnavailable, match=r"Run 'run-7' holds no answer of 'fake'.*coder"):
        replayed.ask(question("Something else."))


class Counting(Slow):
    """Says which question it answers."""

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        self.asked += 1
        return Reply(texts=(f"Answer {self.asked}.",), finish=("stop",))


def test_a_replay_that_measures_other_times_has_the_same_answers(records: Records) -> None:
    asked = (measured("12.5 us"), measured("9 us"), measured("80%, spills 4 bytes"))
    model = RecordedModel(Counting(), records)
    for text in asked:
        model.ask(question(text))
    replayed = ReplayedModel("fake", records)
    again = (measured("13.25 us"), measured("8 us"), measured("78%, spills 4 bytes"))
    texts = [replayed.ask(question(text)).texts[0] for text in again]
    assert texts == ["Answer 1.", "Answer 2.", "Answer 3."]
    assert replayed.ask(question(asked[1])).texts == ("Answer 2.",), "word for word counts first"
    with pytest.raises(NotRecorded):
        replayed.ask(question(measured("7 us")))  # both were given


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        ("It takes 7 ms.\n```python\nBLOCK = 64\n```\n", 1),
        ("It took 7 us.\n```python\nBLOCK = 64\n```\n", 1),
        ("It takes 7 us.\n```python\nBLOCK = 128\n```\n", 1),
        ("It takes 7 us.\n````python\nBLOCK = 64.5\n````\n", 1),
        ("It takes 7 us.\n```python\nBLOCK = 64\n```\n", 3),
    ],
)
def test_a_replay_answers_no_other_question(records: Records, text: str, rounds: int) -> None:
    RecordedModel(Counting(), records).ask(question(measured("9 us")))
    with pytest.raises(NotRecorded):
        ReplayedModel("fake", records).ask(question(text, round=rounds))


def measured(figure: str) -> str:
    return f"It takes {figure}.\n```python\nBLOCK = 64\n```\n"


def test_no_key_is_in_the_records(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer([Refuses(500), Says(f"Your key is {KEY}."), 401]) as server:
        heard: list[str] = []
        provider = ModelProvider(
            records,
            server.url.replace("http://", f"http://user:{KEY}@"),
            options(),
            on_exchange=lambda exchange, _: heard.append(exchange.model_dump_json()),
            on_retry=lambda retry: heard.append(str(retry)),
        )
        model = provider.model("chat:openai:scripted")
        model.ask(question())
        with pytest.raises(ModelUnavailable) as caught:
            model.ask(question(round=2))
    records.close()
    assert len(server.requests) == 3
    assert len(heard) == 2
    assert KEY not in str(caught.value) + "".join(heard)
    for file in records.path.parent.iterdir():
        assert KEY.encode() not in file.read_bytes()


ROOT = Path(__file__).parents[3]
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.agents.models.endpoint_cases import options, question
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.storage.records import Records
model = ModelProvider(Records(Path({path!r})), {url!r}, options()).model("chat:openai:scripted")
for number in range(3):
    print(model.ask(question(round=number)).texts[0], flush=True)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_answers(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    held = threading.Event()

    def third(request: dict[str, object]) -> str:
        held.wait(60)
        return "never heard"

    script = ["first", "second", third]
    with ChatServer([*script, "third"]) as server:
        code = CHILD.format(root=str(ROOT), path=str(path), url=server.url)
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert [child.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
        while len(server.requests) < 3:
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        held.set()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["first", "second", "third"]
    assert len(server.requests) == 4
    kept = Records(path).exchanges()
    assert [item.question.round for item in kept] == [0, 1, 2]
    assert json.loads(kept[0].model_dump_json())["attempts"] == 1


class Gone:
    """A model that never answers."""

    name = "fake"

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        raise ModelUnavailable("Model 'fake' refuses the key.")


def test_a_model_that_failed_fails_in_a_replay_too_and_is_asked_again_by_resume(
    tmp_path: Path,
) -> None:
    records = Records(tmp_path / "run.sqlite")
    with pytest.raises(ModelUnavailable):
        RecordedModel(Gone(), records).ask(question())
    with pytest.raises(ModelUnavailable, match="refuses the key") as caught:
        ReplayedModel("fake", records).ask(question())
    assert not isinstance(caught.value, NotRecorded)
    again = Slow()
    RecordedModel(again, records).ask(question())
    assert again.asked == 1
    assert ReplayedModel("fake", records).ask(question()).texts
    records.close()


@pytest.mark.parametrize(
    ("spec", "base_url", "expected"),
    [
        ("chat:openai:m", None, ModelSpec("chat:openai:m", None)),
        ("chat:openai:m", URL, ModelSpec("chat:openai:m", URL)),
        (f"chat:openai:m@{URL}", None, ModelSpec("chat:openai:m", URL)),
        (f"chat:openai:m@{URL}", "http://127.0.0.1:1", ModelSpec("chat:openai:m", URL)),
        ("chat:openai:org/m:8b", None, ModelSpec("chat:openai:org/m:8b", None)),
    ],
)
def test_names(spec: str, base_url: str | None, expected: ModelSpec) -> None:
    assert parse_model(spec, base_url) == expected
    assert make_model(spec, base_url).name == expected.name


@pytest.mark.parametrize("spec", ["chat:openai", "chat:", "chat::m", "chat:openai:"])
def test_a_name_without_a_model(spec: str) -> None:
    with pytest.raises(SettingError, match="names no model"):
        parse_model(spec)


def test_an_endpoint_is_a_url() -> None:
    with pytest.raises(SettingError, match="is no URL"):
        parse_model("chat:openai:m", "127.0.0.1:8000")
