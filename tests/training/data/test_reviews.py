"""Questions to a teacher: the right kernels, once each, and the answers kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.agents.models.endpoint_cases import QUICK

# isort: split
from agentkernel.domain.errors import ModelUnavailable, TrainingError
from agentkernel.domain.exchange import Reply
from agentkernel.training.data.reviews import (
    ReviewsReport,
    Teacher,
    answers_file,
    concurrent_answers,
    gather_rows,
    make_reviews,
    review_file,
    reviewable,
)
from agentkernel.training.data.sources import Origin, TeacherReview
from agentkernel.training.settings import JudgedKernel
from tests.agents.models.chat_server import ChatServer, Cuts, Refuses, Says, Scripted
from tests.training.data.judged_rows import (
    CHEAT,
    by_number,
    kernel,
    number_in,
    profiled,
    review,
    reviewed_rows,
    right,
    slow_ones,
    write_rows,
)

KEY = "sk-abcdefgh12345678"
NAME = "chat:openai:scripted"
LICENCES = ("Apache-2.0",)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def made(
    folder: Path, server: ChatServer, rows: Sequence[JudgedKernel] | None = None, **asked: object
) -> ReviewsReport:
    path = write_rows(folder / "pairs.jsonl.gz", reviewed_rows(4) if rows is None else rows)
    values: dict[str, object] = {"jobs": 1, "options": QUICK, "base_url": server.url}
    teacher = Teacher(NAME, **(values | asked))  # type: ignore[arg-type]
    return make_reviews([Origin("pairs", path)], teacher, folder / "reviews.jsonl")


def kept(folder: Path) -> list[TeacherReview]:
    text = (folder / "reviews.jsonl").read_text()
    return [TeacherReview.model_validate_json(line) for line in text.splitlines()]


def order(folder: Path, rows: Sequence[JudgedKernel], *, everything: bool = False) -> list[str]:
    origin = Origin("pairs", write_rows(folder / "p.jsonl.gz", rows))
    with closing(gather_rows([origin], LICENCES, folder, lambda *_: None)) as gathered:
        return [item.kernel for item in reviewable(gathered, everything=everything)]


def test_those_that_a_faster_kernel_is_taught_with_come_first(tmp_path: Path) -> None:
    ladder = [profiled(0, 64, 2.0), profiled(0, 128, 3.0), profiled(0, 256, 4.0)]
    pair = [profiled(1, 64, 2.0), profiled(1, 128, 3.0)]
    close = [profiled(2, 64, 2.0), profiled(2, 128, 2.05)]
    alone = [profiled(3, 64, 2.0)]
    rows = [*ladder, *pair, *close, *alone]
    found = order(tmp_path, rows)
    assert set(found[:2]) == {ladder[2].sha256, pair[1].sha256}
    assert found[2:] == [ladder[1].sha256]
    every = order(tmp_path, rows, everything=True)
    assert every[:3] == found
    assert set(every) == {row.sha256 for row in rows}
    assert not list(tmp_path.glob(".reviews-*"))


def test_times_of_two_kinds_make_no_slower_kernel(tmp_path: Path) -> None:
    timed = profiled(0, 128, 9.0, time_us=9.0, gpu="H100", estimated_us=None)
    other = profiled(1, 128, 9.0, target="a100")
    assert order(tmp_path, [profiled(0, 64, 2.0), timed, profiled(1, 64, 2.0), other]) == []


def test_what_data_would_leave_out_is_never_sent(tmp_path: Path) -> None:
    problem = profiled(0, 64, 2.0).problem
    facts = {"time": "9.0 us, estimated"}
    slow = {"estimated_us": 9.0, "facts": facts}
    rows = [
        profiled(0, 64, 2.0),
        profiled(0, 128, 3.0, licence="GPL-3.0"),
        profiled(0, 256, 3.0, label="not-judged", verdict=None),
        right(problem, kernel(7, text=CHEAT), **slow),
        right(problem, kernel(8), estimated_us=9.0, facts={}),
        profiled(0, 512, 3.0, verdict=profiled(0, 64, 2.0).verdict),
    ]
    assert order(tmp_path, rows, everything=True) == [rows[0].sha256]


def test_the_teacher_reads_the_kernel_the_gpu_and_the_facts(tmp_path: Path) -> None:
    with ChatServer([by_number(review)], forever=True) as server:
        found = made(tmp_path, server)
    assert (found.kernels, found.asked, found.kept, found.known) == (4, 4, 4, 0)
    assert (found.taken.prompt, found.taken.completion) == (400, 80)
    assert found.unpriced is not None
    text = json.dumps(server.requests[0]["messages"])
    for said in ("H100", "bound by: memory", "time: 3.0 us, estimated", "OPTIMIZATIONS", "BLOCK_N"):
        assert said in text, said
    lines = kept(tmp_path)
    assert {item.kernel_sha256 for item in lines} == slow_ones(4)
    assert all(item.by == NAME for item in lines)
    assert all(item.review.estimated_speedup == 1.4 for item in lines)
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())
    assert server.url.encode() not in b"".join(p.read_bytes() for p in tmp_path.iterdir())


def test_count_bounds_the_kernels_of_all_calls(tmp_path: Path) -> None:
    with ChatServer([by_number(review)], forever=True) as server:
        assert made(tmp_path, server, count=2).asked == 2
        again = made(tmp_path, server, count=2)
        assert (again.asked, again.known, again.kept) == (0, 2, 0)
        assert made(tmp_path, server, count=3).asked == 1
    assert len({number_in(item) for item in server.requests}) == 3


def test_answers_that_cannot_be_read_are_counted_once_and_never_kept(tmp_path: Path) -> None:
    whole = review(0)
    script: list[Scripted] = [
        "It is slow, and could be faster.",
        "ANALYSIS\n\nOPTIMIZATIONS\n\nESTIMATED_SPEEDUP\n2x",
        Says(whole, finish="length"),
        whole,
    ]
    with ChatServer(script) as server:
        found = made(tmp_path, server)
        assert (found.kept, found.without_sections, found.cut_off) == (1, 2, 1)
        again = made(tmp_path, server)
    assert (again.asked, again.known, again.without_sections, again.cut_off) == (0, 1, 2, 1)
    assert again.taken.questions == 4
    (line,) = kept(tmp_path)
    assert line.text == whole


def test_after_an_interrupt_nothing_is_asked_twice(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int | None, words: str) -> None:
        if words == "2 kept":
            raise Stop

    path = write_rows(tmp_path / "pairs.jsonl.gz", reviewed_rows(5))
    out = tmp_path / "reviews.jsonl"
    with ChatServer([by_number(review)], forever=True) as server:
        teacher = Teacher(NAME, server.url, jobs=2, options=QUICK)
        with pytest.raises(Stop):
            make_reviews([Origin("pairs", path)], teacher, out, show=stop)
        assert len(kept(tmp_path)) == 2
        with out.open("a") as file:
            file.write('{"kernel_sha256": "ab')
        found = make_reviews([Origin("pairs", path)], teacher, out)
    assert found.known == 2
    assert found.kept == 3
    assert {item.kernel_sha256 for item in kept(tmp_path)} == slow_ones(5)
    assert len(kept(tmp_path)) == 5
    # The one that was under way may have been answered to nobody.
    assert len(server.requests) <= 6


def test_an_answer_that_never_reached_the_file_is_taken_from_the_record(tmp_path: Path) -> None:
    with ChatServer([by_number(review)], forever=True) as server:
        made(tmp_path, server)
        (tmp_path / "reviews.jsonl").unlink()
        found = made(tmp_path, server)
    assert (found.asked, found.kept) == (0, 4)
    assert len(server.requests) == 4


def test_one_question_that_is_refused_stops_nobody(tmp_path: Path) -> None:
    def answer(request: dict[str, object]) -> str | Refuses:
        return Refuses(400) if number_in(request) == 1 else review(0)

    with ChatServer([answer], forever=True) as server:
        found = made(tmp_path, server)
    assert (found.kept, found.unanswered, found.left) == (3, 1, 0)


def test_a_teacher_that_is_gone_is_left_alone_and_what_it_said_is_kept(tmp_path: Path) -> None:
    rows = reviewed_rows(8)
    with ChatServer([review(0), review(0), Refuses(401)]) as server:
        server.answers += [Refuses(401)] * 20
        with pytest.raises(ModelUnavailable, match="refuses the key") as caught:
            made(tmp_path, server, rows)
        assert len(server.requests) == 5
    assert KEY not in str(caught.value)
    assert len(kept(tmp_path)) == 2
    with ChatServer([by_number(review)], forever=True) as server:
        assert made(tmp_path, server, rows).asked == 6
    assert len(kept(tmp_path)) == 8


def test_the_line_of_an_endpoint_that_is_not_there_names_the_same_command(tmp_path: Path) -> None:
    with ChatServer([]) as server:
        pass
    quick = QUICK.evolve(attempts=1)
    with pytest.raises(ModelUnavailable, match="then the same command goes on from here"):
        made(tmp_path, server, options=quick)
    assert kept(tmp_path) == []


def test_no_more_is_asked_once_the_money_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "config" / "agentkernel" / "prices.yaml"
    prices.parent.mkdir(parents=True)
    prices.write_text('prices: [{model: "openai:scripted@*", input: 1000.0, output: 0.0}]')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with ChatServer([by_number(review)], forever=True) as server:
        found = made(tmp_path, server, usd=0.15)
        assert (found.kept, found.left) == (2, 2)
        assert found.taken.cost_usd == pytest.approx(0.2)
        assert made(tmp_path, server, usd=0.15).asked == 0
        assert made(tmp_path, server, usd=0.25).asked == 1


def test_a_stream_that_is_cut_off_is_no_review(tmp_path: Path) -> None:
    cut = Cuts(review(0)[:60])
    with ChatServer([cut], forever=True) as server:
        found = made(tmp_path, server, count=1)
    assert (found.kept, found.cut_off) == (0, 1)


@pytest.mark.parametrize(
    "tail", [b"", b"\n" + b'{"kernel_sha256": "ab', b"\n\0\0\0\0", b"\nnonsense\n", b"\n{"]
)
def test_a_spoiled_last_line_is_cut_and_one_without_its_end_kept(
    tail: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "reviews.jsonl"
    path.write_bytes(b'{"kernel_sha256": "a", "text": "x"}' + tail)
    with review_file(path) as file:
        assert file.known == {"a"}
        file.add(TeacherReview(kernel_sha256="b", text="y"))
    assert [item.kernel_sha256 for item in kept(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    "text", [b"my notes", b'{"problem": "x"}\n', b'{"kernel_sha256": "a"}\nnotes\n{"kernel_sha2']
)
def test_nothing_is_cut_from_a_file_of_somebody_else(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl"
    path.write_bytes(text)
    with pytest.raises(TrainingError, match="holds no reviews"), review_file(path):
        pass
    assert path.read_bytes() == text


def test_two_writers_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkernel.training.data.reviews.BUSY_S", 0.1)
    path = tmp_path / "reviews.jsonl"
    with (
        review_file(path),
        pytest.raises(TrainingError, match="Another process"),
        review_file(path),
    ):
        pass


def test_a_damaged_record_is_told_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "reviews.jsonl"
    answers_file(out).write_bytes(b"no database at all, and long enough to be looked at" * 40)
    with (
        ChatServer([review(0)], forever=True) as server,
        pytest.raises(TrainingError, match="remove it"),
    ):
        made(tmp_path, server)


def test_a_bug_in_asking_is_no_missing_answer() -> None:
    def ask(row: JudgedKernel) -> Reply:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(concurrent_answers(iter([profiled(0, 64, 2.0)]), ask, 2))


def test_as_many_questions_as_jobs_are_under_way(tmp_path: Path) -> None:
    taken: list[int] = []

    def rows() -> object:
        for seed in range(6):
            taken.append(seed)
            yield profiled(seed, 64, 2.0)

    def ask(row: JudgedKernel) -> Reply:
        return Reply(texts=(json.dumps(row.facts),), finish=("stop",))

    found = concurrent_answers(rows(), ask, 3)  # type: ignore[arg-type]
    next(found)
    assert len(taken) == 3
    assert len(list(found)) == 5
