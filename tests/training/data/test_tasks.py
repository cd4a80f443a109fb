"""Do the three conversations say what the rows prove, and nothing besides?"""

from __future__ import annotations

from agentkernel.agents.answers import extract_module
from agentkernel.agents.reviewer import Review
from agentkernel.domain.base import sha256_text
from agentkernel.training.data.conversations import (
    DraftedConversation,
    conversations,
    repair_words,
    schedule_of,
    speed_facts,
    training_row,
)
from agentkernel.training.data.generator import make_problem
from agentkernel.training.data.rows import kernel_of
from agentkernel.training.settings import HALVED, JudgedKernel
from tests.training.data.judged_rows import family_rows, kernel, right, wrong

PROBLEM = make_problem(1).text
FAST, SLOW = kernel(2, 64), kernel(2, 128, 8)


def drafted(
    rows: list[JudgedKernel], reviews: dict[str, Review] | None = None
) -> list[DraftedConversation]:
    return list(conversations(rows, reviews or {}))


def test_one_module_gives_all_three_and_each_completion_holds_a_right_kernel() -> None:
    rows = family_rows(1)
    found = drafted(rows)
    assert [item.task for item in found] == ["write", "optimise", "repair"]
    good = {row.sha256 for row in rows if row.label == "interpreter"}
    for item in found:
        row = training_row(item, "train", "Apache-2.0")
        file = extract_module(row.completion)
        assert file is not None
        assert row.kernel_sha256 == sha256_text(file)
        assert row.kernel_sha256 in good
        assert kernel_of(row.completion) == file
        roles = [turn.role for turn in row.messages]
        assert roles == (["user"] if row.task == "write" else ["user", "assistant", "user"])


def test_a_plan_is_of_facts_and_without_any_there_is_no_word() -> None:
    row = right(PROBLEM, FAST, structure="mul sum")
    (item,) = drafted([row])
    words, _, _ = item.completion.partition("\n\n")
    assert words == (
        "Operators: mul, sum. Bound: memory. Plan: fused, 1 launch (sum_kernel). "
        "Tiles: BLOCK_N=64, num_warps=4."
    )
    assert "NVIDIA H100" in item.messages[0].text
    bare = right(
        PROBLEM,
        "class ModelNew: pass\n",
        verdict=None,
        bound=None,
        strategy="",
        structure="",
        facts={},
        target=None,
    )
    (item,) = drafted([bare])
    assert item.completion == "```python\nclass ModelNew: pass\n```"
    assert item.reasoning_by == "none"


def test_what_is_slower_or_cut_in_two_is_not_taught_to_write() -> None:
    halved = right(PROBLEM, SLOW, strategy=HALVED)
    for rows in (family_rows(1), [right(PROBLEM, FAST), halved]):
        written = [item.row.kernel for item in drafted(rows) if item.task == "write"]
        assert len(written) == 1
        assert SLOW not in written


def test_a_graph_is_part_of_the_question_and_not_of_the_answer() -> None:
    graph = "mul = mul(x, 2.0) [3, 5]\nsum = sum(mul) []"
    facts = {"inputs": "x float32[3, 5]", "graph": graph}
    (item,) = drafted([right(PROBLEM, FAST, structure="mul sum", facts=facts)])
    words, _, _ = item.completion.partition("```")
    assert words == (
        "Bound: memory. Plan: fused, 1 launch (sum_kernel). Tiles: BLOCK_N=64, num_warps=4.\n\n"
    )
    assert f"\n\nGraph:\n```text\n{graph}\n```\n\nOne file" in item.messages[0].text
    assert not any(fact.name == "graph" for fact in speed_facts(item.row))


def test_the_inputs_are_named_as_a_run_names_them() -> None:
    (item,) = drafted([right(PROBLEM, FAST)])
    assert "called with x float32[3, 5]." in item.messages[0].text


def test_only_times_of_one_kind_and_one_gpu_are_compared() -> None:
    def timed(text: str, time_us: float | None, gpu: str, estimated: float | None) -> JudgedKernel:
        return right(PROBLEM, text, time_us=time_us, gpu=gpu, estimated_us=estimated)

    def speedups(*rows: JudgedKernel) -> list[float | None]:
        return [item.speedup for item in drafted(list(rows)) if item.task == "optimise"]

    assert speedups(timed(FAST, 2.0, "H200", None), timed(SLOW, 3.0, "H200", None)) == [1.5]
    assert speedups(timed(FAST, 2.0, "H200", None), timed(SLOW, 3.0, "H100", None)) == []
    assert speedups(timed(FAST, 2.0, "", None), timed(SLOW, 3.0, "", None)) == []
    assert speedups(timed(FAST, 2.0, "H200", 2.0), timed(SLOW, None, "", 9.0)) == []
    assert speedups(timed(FAST, None, "", 2.0), timed(SLOW, None, "", 3.0)) == [None]
    assert speedups(timed(FAST, 2.0, "H200", None), timed(SLOW, 2.05, "H200", None)) == []


def test_what_was_slow_is_told_and_what_changed_is_learned() -> None:
    rows = [
        right(PROBLEM, FAST, time_us=2.0, eager_us=8.0, gpu="H200"),
        right(PROBLEM, SLOW, time_us=3.0, eager_us=8.0, gpu="H200"),
    ]
    item = next(item for item in drafted(rows) if item.task == "optimise")
    asked = item.messages[-1].text
    assert "- time: 3.0 us, measured" in asked
    assert "- speedup over eager: 2.67x" in asked
    words, _, _ = item.completion.partition("\n\n")
    assert words == "Bottlenecks: memory-bound. Changes: BLOCK_N 128 -> 64, num_warps 8 -> 4."


def test_of_several_kernels_each_has_its_own_tiles() -> None:
    launch = "        {}_kernel[(triton.cdiv(n, 4),)](\n            x, BLOCK_N={}, num_warps=2)\n"
    one = launch.format("sum", 64)
    assert schedule_of(one) == {"BLOCK_N": 64, "num_warps": 2}
    assert schedule_of(one + launch.format("add", 128)) == {
        "sum_kernel BLOCK_N": 64,
        "sum_kernel num_warps": 2,
        "add_kernel BLOCK_N": 128,
        "add_kernel num_warps": 2,
    }


def test_a_teachers_words_stand_for_the_facts_and_bring_no_second_file() -> None:
    rows = family_rows(1)
    slow = next(row for row in rows if row.estimated_us == 3.0)
    review = Review(
        analysis="The tile is too wide.\n```python\nclass ModelNew: pass\n```",
        optimizations=("Halve BLOCK_N.",),
        estimated_speedup=1.4,
        by="chat:x",
    )
    found = drafted(rows, {slow.sha256: review})
    item = next(item for item in found if item.task == "optimise")
    assert item.reasoning_by == "teacher"
    assert item.completion.startswith("Bottlenecks: The tile is too wide.")
    assert "- Halve BLOCK_N.\nEstimated speedup: 1.40x\n\n```python\n" in item.completion
    assert extract_module(item.completion) == FAST
    assert item.completion.count("```") == 2


def test_a_repair_names_the_mistake_and_the_line() -> None:
    item = next(item for item in drafted(family_rows(1)) if item.task == "repair")
    words, _, _ = item.completion.partition("\n\n")
    assert words == (
        "Diagnosis: a load has lost its mask.\nLine 10: `x = tl.load(x_ptr + col)` -> "
        "`x = tl.load(x_ptr + col, mask=col < n_cols, other=0.0)`"
    )
    assert "Not accepted: values." in item.messages[-1].text
    assert repair_words(FAST, "all else\n", "") == ""


def test_what_a_run_mended_is_a_repair_too_whose_cause_nobody_wrote_down() -> None:
    broken = FAST.replace("x * 2.0", "x + 2.0")
    rows = [
        wrong(PROBLEM, broken, "nobody", change=""),
        right(PROBLEM, FAST, parent=sha256_text(broken)),
    ]
    item = next(item for item in drafted(rows) if item.task == "repair")
    assert item.completion.startswith("Line 11: `tl.store(output_ptr + col, x + 2.0")


def test_an_orphan_is_no_repair_and_a_row_that_nobody_judged_is_no_conversation() -> None:
    orphan = wrong(PROBLEM, kernel(5), "a kernel that is not here")
    told = right(PROBLEM, kernel(6), label="not-judged", verdict=None)
    assert drafted([orphan, told]) == []


def test_no_field_of_a_row_can_open_a_fence_or_a_line() -> None:
    row = right(PROBLEM, FAST, strategy="a\n```python\nclass ModelNew: pass\n```\n")
    (item,) = drafted([row])
    assert extract_module(item.completion) == FAST
    assert item.completion.count("```") == 2
