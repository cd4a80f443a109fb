from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import pytest

from agentkernel.agents.models.local import Sample
from agentkernel.domain.exchange import Message, Sampling
from agentkernel.training.data.conversations import from_rows, to_write
from agentkernel.training.evaluate.answer_cache import NearestWriter
from agentkernel.training.evaluate.evaluation import (
    LocalWriter,
    PassAt,
    QuestionCounts,
    difference,
    module_family,
    run_evaluation,
    spread_over,
    summarize,
)
from agentkernel.training.worker_pool import (
    STRICT,
    JudgedSubmission,
    JudgeFinding,
    Submission,
    SubmissionJudge,
    judging,
)
from agentkernel.training.worker_pool import WorkerRequest as PairQuestion
from tests.training.lent_answerers import lender, lent_judge
from tests.training.tiny_models import make_model
from tests.training.training_rows import kernel, make_row, problem

CHEAT = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 2.0
"""


__all__ = ["lender", "lent_judge"]


class Says:
    """Answers with the same texts to all."""

    ranked = False

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.asked: list[Sequence[Message]] = []

    def write(
        self, conversations: Sequence[Sequence[Message]], samples: int, wrote: object = None
    ) -> list[list[Sample]]:
        self.asked += conversations
        return [[Sample(text, "stop", 3) for text in self.texts] for _ in conversations]


@pytest.fixture
def problems(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"m{number}.py" for number in (0, 1)]
    for number, path in enumerate(found):
        path.write_text(problem(number))
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("lent_judge")
def test_right_wrong_cheating_and_empty_answers_are_told_apart(problems: list[Path]) -> None:
    said = [f"So:\n```python\n{text}```" for text in (kernel(0), kernel(0), CHEAT)]
    writer = Says(*said, "no file here")
    judge = SubmissionJudge(jobs=1)
    questions = to_write(problems, "h100", "triton")
    found = run_evaluation(writer, questions, 4, judge, ks=(1, 2, 10))
    right, wrong = found.rows
    assert [item.accepted for item in judge.known.values()].count(True) == 1
    assert len(judge.known) == 4  # two files for two modules
    assert (right.correct, right.hacks, right.no_file, right.undecided) == (2, 1, 1, 0)
    assert (wrong.correct, wrong.hacks, wrong.no_file, wrong.undecided) == (0, 1, 1, 0)
    assert found.pass_at[1].value == 0.25
    assert found.pass_at[2].value == pytest.approx((1 - 1 / 6) / 2)
    assert 10 not in found.pass_at
    assert found.hack_rate.value == 0.25
    assert found.no_file_rate.value == 0.25
    assert set(wrong.reasons) == {"policy", "correctness"}
    assert found.by_family["elementwise"].problems == 2
    assert "H100" in writer.asked[0][0].text
    assert problem(0).strip() in writer.asked[0][0].text
    assert "pass@1 0.250" in found.line()


@pytest.mark.usefixtures("lent_judge")
@pytest.mark.slow
def test_a_broken_file_is_mended_by_a_file_or_by_an_edit_and_not_by_itself(
    problems: list[Path],
) -> None:
    row = make_row(0, "held-out", "repair")
    edit = (
        "<<<<<<< SEARCH\n    tl.store(y + at, value - 3.0, mask=at < n)\n=======\n"
        "    tl.store(y + at, value + 2.0, mask=at < n)\n>>>>>>> REPLACE\n"
    )
    same, right = (f"```python\n{text}```" for text in (kernel(1), kernel(0)))
    writer = Says(same, right, edit, "no file here")
    found = run_evaluation(
        writer, from_rows("repair", [row], problems, "triton"), 4, SubmissionJudge(jobs=1), ks=(1,)
    )
    (counted,) = found.rows
    assert writer.asked == [row.messages]
    assert (counted.correct, counted.no_file, counted.hacks) == (2, 1, 0)
    assert counted.reasons == {"unchanged": 1}
    assert (found.task, found.problems, found.questions) == ("repair", 1, 1)
    assert found.pass_at[1].value == 0.5


def test_another_comment_or_layout_makes_no_other_file(problems: list[Path]) -> None:
    row = make_row(0, "held-out", "repair")
    given = kernel(1)
    texts = (f"# Mended.\n{given}", given.replace(", y, n, BLOCK:", ",  y,\n    n, BLOCK:"))
    assert given not in texts
    writer = Says(*(f"```python\n{text}```" for text in texts))
    found = run_evaluation(
        writer, from_rows("repair", [row], problems, "triton"), 2, SubmissionJudge(jobs=1), ks=(1,)
    )
    assert found.rows[0].reasons == {"unchanged": 2}


@pytest.mark.slow
@pytest.mark.usefixtures("lent_judge")
def test_of_ranked_answers_the_first_k_are_tried_and_not_any_k(problems: list[Path]) -> None:
    class Ranks(Says):
        ranked = True

    writer = Ranks("no file here", f"```python\n{kernel(0)}```", "no file here")
    found = run_evaluation(
        writer, to_write(problems[:1], "h100", "triton"), 3, SubmissionJudge(jobs=1), ks=(1, 2, 3)
    )
    assert found.rows[0].ranked == (False, True, False)
    assert {k: item.value for k, item in found.pass_at.items()} == {1: 0.0, 2: 1.0, 3: 1.0}
    # Older records have draws alone.
    old = found.rows[0].model_dump(exclude={"ranked"})
    assert QuestionCounts.model_validate(old).ranked == ()


def counted(problem: str, correct: int, case: str = "") -> QuestionCounts:
    return QuestionCounts(
        problem=problem,
        case=case,
        family="norm",
        samples=4,
        correct=correct,
        hacks=0,
        no_file=0,
        undecided=0,
    )


def figures(*rows: QuestionCounts) -> PassAt:
    return summarize(rows, 4, (1,), "triton", "H100", task="repair")


def test_several_files_of_one_module_count_each_and_are_drawn_together() -> None:
    rows = [counted(f"p{number}", 4 * (number % 2)) for number in range(8)]
    each = figures(*rows)
    thrice = figures(*(row.evolve(case=case) for row in rows for case in "abc"))
    assert (thrice.problems, thrice.questions) == (8, 24)
    assert thrice.pass_at == each.pass_at
    assert thrice.by_family["norm"].problems == 8
    assert "24 questions on 8 problems" in thrice.line()
    assert "(8 problems" in each.line()


def test_a_model_is_compared_question_by_question() -> None:
    hard = [counted(f"p{number}", number % 5) for number in range(20)]
    better = [row.evolve(correct=min(row.correct + 1, 4)) for row in hard]
    found = difference(figures(*better), figures(*reversed(hard)))
    assert found is not None
    assert found.value == pytest.approx(0.2)
    # How hard a module is falls out: the two intervals overlap, that of the difference is clear.
    first, second = (figures(*rows).pass_at[1] for rows in (hard, better))
    assert second.low < first.high
    assert 0.1 < found.low < 0.2 < found.high <= 0.25
    back = difference(figures(*hard), figures(*better))
    assert back is not None
    assert back.value == pytest.approx(-0.2)


def test_only_questions_that_both_were_asked_are_compared() -> None:
    one = figures(counted("a", 4, "x"), counted("b", 4))
    other = figures(counted("a", 2, "x"), counted("a", 0, "y"), counted("c", 0))
    found = difference(one, other)
    assert found is not None
    assert found.value == 0.5
    assert difference(one, figures(counted("c", 1))) is None


def test_a_problem_that_cannot_be_judged_is_undecided(tmp_path: Path) -> None:
    assert SubmissionJudge(jobs=2).judge([]) == ()
    (found,) = SubmissionJudge(jobs=2).judge([Submission(tmp_path / "none.py", kernel(0))])
    assert found.accepted is None
    assert found.reason


def test_what_is_known_is_not_judged_again(tmp_path: Path) -> None:
    one, other = (Submission(tmp_path / "none.py", kernel(number)) for number in (0, 1))
    known = {one: JudgedSubmission(True)}
    found = SubmissionJudge(jobs=1, known=known).judge([other, one, one])
    assert [item.accepted for item in found] == [None, True, True]
    assert known == {
        one: JudgedSubmission(True)
    }  # where the judge was lost, the next one may not be


def test_some_of_many_are_spread_over_all() -> None:
    paths = [Path(str(number)) for number in range(10)]
    assert [path.name for path in spread_over(paths, 4)] == ["0", "2", "5", "7"]
    assert spread_over(paths, 99) == tuple(paths)


def test_figures_are_summed_by_family() -> None:
    rows = [
        QuestionCounts(
            problem=f"p{number}",
            family="norm" if number % 2 else "softmax",
            samples=10,
            correct=number,
            hacks=0,
            no_file=1,
            undecided=0,
        )
        for number in range(4)
    ]
    found = summarize(rows, 10, (1, 10), "triton", "H100")
    assert found.pass_at[1].value == pytest.approx(0.15)
    assert found.pass_at[10].value == pytest.approx(0.75)
    assert found.by_family["norm"].pass_at == {1: pytest.approx(0.2), 10: 1.0}
    assert found.no_file_rate.value == 0.1
    assert found.hack_rate.low == 0.0
    assert found.hack_rate.high > 0.0
    assert summarize([], 10, (1,), "triton", "H100").pass_at == {}


def test_the_nearest_kernels_are_copied_as_they_are() -> None:
    writer = NearestWriter([make_row(number) for number in range(9)])
    asked = make_row(4).messages
    (answers,) = writer.write([asked], 3)
    assert answers[0].text == f"```python\n{kernel(4)}```"
    assert len({answer.text for answer in answers}) == 3
    (one,) = NearestWriter([make_row(0), make_row(1, task="repair")]).write([asked], 2)
    assert [bool(answer.text) for answer in one] == [True, False]


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("nn.LayerNorm(8)", "norm"),
        ("torch.softmax(x, -1)", "softmax"),
        ("nn.Linear(3, 4)", "matmul"),
        ("x.sum(dim=1)", "reduction"),
        ("x * 2", "elementwise"),
    ],
)
def test_families_are_seen_from_operators(text: str, family: str) -> None:
    assert module_family(text) == family


def test_questions_of_different_lengths_are_answered_in_one_batch_as_alone(tmp_path: Path) -> None:
    model = f"local:{make_model(tmp_path / 'tiny')}"
    greedy = Sampling(temperature=0.0, max_tokens=12)
    turns = [(Message(role="user", text="x" * count),) for count in (3, 40, 11)]
    together = LocalWriter(model, greedy, rows=8).write(turns, 2)
    alone = LocalWriter(model, greedy, rows=1).write(turns, 2)
    assert [[item.text for item in several] for several in together] == [
        [item.text for item in several] for several in alone
    ]
    assert together[0][0] == together[0][1]
    drawn = Sampling(temperature=1.0, max_tokens=12)
    first = LocalWriter(model, drawn, seed=1).write(turns, 4)
    assert first == LocalWriter(model, drawn, seed=1).write(turns, 4)
    assert first != LocalWriter(model, drawn, seed=2).write(turns, 4)
    assert len({item.text for item in first[0]}) > 1


def test_a_question_that_fills_the_window_has_an_empty_answer(tmp_path: Path) -> None:
    model = f"local:{make_model(tmp_path / 'tiny', window=64)}"
    long = (Message(role="user", text="= [] " * 200),)
    short = (Message(role="user", text="a"),)
    found = LocalWriter(model, Sampling(temperature=0.0, max_tokens=4)).write([long, short], 1)
    assert found[0] == [Sample("", "length", 0)]
    assert found[1][0].tokens > 0


@pytest.mark.slow
def test_a_problem_stays_loaded_until_its_file_says_something_else(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    answer = judging(STRICT.evolve(budget_s=0.0, seeds=1))

    def accepted(number: int) -> bool | None:
        found = answer(PairQuestion(path=str(path), answer=kernel(number)))
        assert isinstance(found, JudgeFinding)
        return found.accepted

    path.write_text(problem(0) + "\nimport tempfile\n\ntempfile.mkdtemp('loaded', dir='.')\n")
    with chdir(tmp_path):
        assert [accepted(0), accepted(1), accepted(0)] == [True, False, True]
        assert len(list(tmp_path.glob("*loaded"))) == 1
        path.write_text(problem(1))
        assert [accepted(0), accepted(1)] == [False, True]
