"""Is every part of a line answered, and is nothing asked back that was said in so many words?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.chat.facts import BATCH, BESIDE_EAGER, _beside_eager, _of_batch
from agentkernel.chat.knobs import judged_before
from agentkernel.chat.language import understand
from agentkernel.chat.language.question_words import TERMS
from agentkernel.chat.replies import (
    ClarificationNeeded,
    Compared,
    FilesWritten,
    PositionChanged,
    Reply,
    StepRan,
    TextReply,
)
from agentkernel.chat.requests import (
    Ambiguous,
    AskFact,
    AskGpu,
    Cannot,
    Intent,
    IntentContext,
    Plain,
    Run,
    SetBudget,
    SetDtype,
    SetKnob,
    SetPolicy,
    SetPrecision,
    SetShapes,
    Size,
    Understood,
)
from agentkernel.chat.session import Session
from agentkernel.chat.terms import EXPLAINED
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.verdict import Verdict
from tests.workflows import fakes

CONTEXT = IntentContext(
    targets=("a100", "h100", "h200", "4090", "rtx4090", "mi300x", "local"),
    candidates=(1, 2, 3, 4),
    current=4,
    precision="strict",
    waiting="nothing",
    kernels=("attention_kernel", "bitwise_not_kernel"),
)
GIVEN = (
    "import triton\n\n\n@triton.jit\ndef attention_kernel(x):\n    pass\n\n\n"
    "class ModelNew:\n    def forward(self, x):\n"
    "        return attention_kernel[(1,)](x, num_warps=2)\n"
)


def read(text: str) -> tuple[Intent, ...]:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood), found
    return found.intents


def text_of(reply: Reply) -> str:
    assert isinstance(reply, TextReply | PositionChanged | FilesWritten | StepRan), reply
    return reply.text


@pytest.mark.parametrize("warps", [2, 4, 8, 16])
@pytest.mark.parametrize("name", ["attention_kernel", "the attention kernel", "bitwise_not_kernel"])
def test_a_wish_for_a_kernel_by_its_name_is_done(warps: int, name: str) -> None:
    (wish,) = read(f"use {warps} warps for {name}")
    assert isinstance(wish, SetKnob)
    assert (wish.knob, wish.value) == ("warps", warps)
    assert wish.kernels[0] in name


def test_a_file_that_is_called_like_a_kernel_keeps_its_name() -> None:
    (saved,) = read("save it to attention_kernel.py")
    assert saved.model_dump()["path"] == "attention_kernel.py"


def test_what_is_offered_is_done_where_it_is_typed(
    ran: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it asked whether that is meant, nor must it be 'yes'."""
    meant = (SetPrecision(precision="tf32"),)
    unsure = Ambiguous(text="allow tf32", options=(meant, (SetBudget(rounds=2),)))
    monkeypatch.setattr("agentkernel.chat.session.understand", lambda *_: unsure)
    assert isinstance(ran.say("something near it")[0], ClarificationNeeded)
    assert "precision: strict -> tf32" in text_of(ran.say("Allow  TF32.")[0])
    assert "rounds" in text_of(ran.say("at most 2 rounds")[0])


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("how would it do on an A100 and on a 4090?", ("a100", "4090")),
        ("how would it do on an A100, an H200 and a 4090?", ("a100", "h200", "4090")),
        ("would it be faster on h200 or a100?", ("h200", "a100")),
        ("how would it do on an A100 and on a V100?", ("a100", "v100")),
    ],
)
def test_each_gpu_of_a_list_is_answered_for(text: str, targets: tuple[str, ...]) -> None:
    assert read(text) == tuple(AskGpu(target=name) for name in targets)


def test_two_gpus_have_two_answers(ran: Session) -> None:
    one, other = ran.say("how would it do on an A100 and on a 4090?")
    assert "No candidate has a time on NVIDIA A100" in text_of(one)
    assert "No candidate has a time on NVIDIA GeForce RTX 4090" in text_of(other)
    known, unknown = ran.say("how would it do on an A100 and on a V100?")
    assert "NVIDIA A100" in text_of(known)
    assert "v100" in text_of(unknown)


@pytest.mark.parametrize(
    ("text", "intents"),
    [
        (
            "make it as fast as you can but only with your own kernels",
            (SetPolicy(policy="triton"), Run()),
        ),
        ("make it faster, but at most 10 minutes", (SetBudget(seconds=600), Run())),
        ("run 1", (Run(rounds=1),)),
        ("set rounds 2", (SetBudget(rounds=2),)),
        ("rounds = 3", (SetBudget(rounds=3),)),
        ("compare candidates", (Plain(name="compare_all"),)),
        ("give me a side by side of all candidates", (Plain(name="compare_all"),)),
        ("which one should I ship?", (Plain(name="status"),)),
        ("which is fastest in fp32?", (AskFact(about="fastest"),)),
        ("which is the fastest fp16 candidate?", (AskFact(about="fastest"),)),
        ("does it handle a float mask instead of bool?", (AskFact(about="holds"),)),
        ("can the mask be folded into the attention kernel?", (Cannot(about="by_hand"),)),
        ("will it work on my AMD card?", (Cannot(about="device"),)),
        ("will it run on an MI300X?", (AskGpu(target="mi300x"),)),
        ("what does bound by latency mean?", (AskFact(about="meaning"),)),
        ("what is memory-bound?", (AskFact(about="meaning"),)),
    ],
)
def test_what_a_line_asks_for(text: str, intents: tuple[Intent, ...]) -> None:
    assert read(text) == intents


@pytest.mark.parametrize("text", ["use bf16", "try bf16 please", "never mind, go back to bf16"])
def test_a_bare_format_is_asked_about(text: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Ambiguous)
    assert set(found.options) == {
        (SetDtype(dtype="bfloat16"),),
        (SetPrecision(precision="bf16"),),
    }


def test_a_term_is_explained_in_two_sentences_and_the_picture_stays(ran: Session) -> None:
    assert EXPLAINED.keys() == TERMS.keys()
    assert all(2 <= text.count(". ") + 1 <= 3 for text in EXPLAINED.values())
    term, picture = ran.say("explain the roofline")
    assert text_of(term).startswith("The roofline is the least time")
    assert picture.kind == "roofline"
    (latency,) = ran.say("what does bound by latency mean?")
    assert text_of(latency).startswith("Bound by latency means")


def test_all_candidates_for_the_inputs_stand_side_by_side(ran: Session) -> None:
    (table,) = ran.say("compare all candidates")
    assert isinstance(table, Compared)
    assert [node.number for node in table.nodes] == [1, 2, 3]
    assert table.verdict.startswith("3 candidates side by side. Fastest: c1")
    ran.say("discard c3")
    ran.do(SetDtype(dtype="float16"))
    (none,) = ran.say("compare all candidates")
    assert "no candidate for these inputs" in text_of(none)
    ran.offer(GIVEN, None, "pasted")
    (rest,) = ran.say("compare all candidates")
    assert isinstance(rest, Compared)
    assert "Left out, for other inputs: c1, c2, c3." in rest.verdict


def test_another_dtype_is_not_called_another_size(ran: Session, tmp_path: Path) -> None:
    ran.do(SetDtype(dtype="float16"))
    ran.offer(GIVEN, None, "pasted")
    told = text_of(ran.do(Plain(name="status")))
    assert "With inputs of another dtype than the module's own: x float16" in told
    assert "sizes" not in told
    saved = text_of(ran.say(f"save it to {tmp_path / 'half.py'}")[0])
    assert "It was judged with inputs of another dtype than the module's own: x float16" in saved
    ran.do(SetShapes(sizes=(Size(name="batch", value=2),)))
    assert "other sizes and another dtype than" in text_of(ran.do(Plain(name="status")))
    ran.do(SetDtype(dtype="float32"))
    sized = text_of(ran.do(Plain(name="status")))
    assert "With inputs of other sizes than the module's own: x float32[2" in sized


def test_the_fastest_is_that_of_the_dtype_that_is_named(ran: Session) -> None:
    ran.do(SetDtype(dtype="float16"))
    ran.offer(GIVEN, None, "pasted")
    assert "x float32[4, 8]: c1;" in text_of(ran.say("which is fastest in fp32?")[0])
    assert "x float16[4, 8]: c4;" in text_of(ran.say("which is fastest in fp16?")[0])
    none = text_of(ran.say("which is fastest in bf16?")[0])
    assert "No right candidate with bfloat16 inputs" in none
    assert "'use bf16 inputs' and 'run'" in none


def test_a_wish_keeps_the_policy_in_force(ran: Session) -> None:
    """A text that was judged before is gone back to with the settings in force, where its pass
    holds under them."""
    ran.offer(GIVEN, None, "pasted")
    ran.say("use 4 warps")
    ran.say("go back to c4")
    ran.do(SetPolicy(policy="any"))
    ran.say("set rounds 2")
    assert "At c5" in text_of(ran.say("use 4 warps")[0])
    assert ran.tree.place.candidate == 5
    assert (ran.settings.policy, ran.settings.budget.rounds) == ("any", 2)


def test_a_pass_under_a_looser_policy_is_none_under_the_one_in_force(ran: Session) -> None:
    source = ran.tree.nodes[0].candidate.source
    work = ran._work
    found = judged_before(work, source)
    assert found is not None
    assert found.verdict is not None
    ran.do(SetPolicy(policy="triton"))
    loose = found.evolve(verdict=found.verdict.evolve(policy="mixed"))
    work.tree = work.tree.evolve(nodes=(loose, *work.tree.nodes[1:]))
    assert judged_before(work, source) is None
    ran.do(SetPolicy(policy="mixed"))
    assert judged_before(work, source) == loose


def judged(own: float, eager: float, *sizes: int) -> Verdict:
    made = fakes.verdict(Candidate(source="x", coder="file", round=1))
    case = made.cases[0].evolve(norm_error=own, eager_norm_error=eager)
    cases = tuple(case.evolve(shapes=f"x float32[{size}, 8]") for size in sizes or (4,))
    return made.evolve(cases=cases)


@pytest.mark.parametrize(
    ("text", "own", "eager", "starts"),
    [
        ("is it more accurate than eager", 1e-7, 9e-7, "yes, it is more accurate"),
        ("is it more accurate than eager", 9e-7, 1e-7, "no, it is less accurate"),
        ("is it less accurate than eager", 9e-7, 1e-7, "yes, it is less accurate"),
        ("is eager more accurate than it", 1e-7, 9e-7, "no, it is more accurate"),
        ("is it closer to fp64 than eager", 4e-7, 5e-7, "no difference to eager"),
    ],
)
def test_a_question_about_eager_has_a_yes_or_a_no(
    text: str, own: float, eager: float, starts: str
) -> None:
    asked = BESIDE_EAGER.match(text)
    assert asked is not None
    assert _beside_eager(judged(own, eager), asked).startswith(starts)


@pytest.mark.parametrize(
    ("sizes", "starts"),
    [
        ((1, 4, 7), "yes, a first dimension of 1 was judged"),
        ((2, 4, 7), "yes, the first dimension is free; 1 itself was not judged"),
        ((4, 4), "no, its first dimension is 4 alone"),
    ],
)
def test_a_question_about_a_batch_has_a_yes_or_a_no(sizes: tuple[int, ...], starts: str) -> None:
    asked = BATCH.match("does it support batch size 1")
    assert asked is not None
    assert _of_batch(judged(1e-7, 1e-7, *sizes), int(asked[1])).startswith(starts)


@pytest.mark.parametrize("text", ["will it crash at batch 1", "is it only for batch 1"])
def test_a_yes_answers_no_question_that_is_put_the_other_way_round(text: str) -> None:
    assert BATCH.match(text) is None


def test_errors_that_are_near_name_no_most_accurate(ran: Session) -> None:
    told = text_of(ran.say("which one is the most accurate?")[0])
    assert told.startswith("No difference that can be told between c1, c3")
    first = ran.tree.nodes[0]
    assert first.verdict is not None
    cases = tuple(case.evolve(norm_error=1e-9, element_error=1e-9) for case in first.verdict.cases)
    better = first.evolve(verdict=first.verdict.evolve(cases=cases))
    ran._work.tree = ran.tree.evolve(nodes=(better, *ran.tree.nodes[1:]))
    told = text_of(ran.say("which one is the most accurate?")[0])
    assert told.startswith("Most accurate: c1.")


def test_of_another_kind_of_input_it_is_said_what_it_takes(ran: Session) -> None:
    assert text_of(ran.say("does it handle a bool x instead of float?")[0]).startswith(
        "No: x is float32."
    )
    assert text_of(ran.say("does it handle a float x?")[0]).startswith("Yes: x is float32.")


def test_strict_is_not_exact(session: Session) -> None:
    told = text_of(session.say("make it numerically exact")[0])
    assert "not exact" in told
    assert "not exact" not in text_of(session.say("strict precision")[0])


def test_the_help_has_no_names_of_the_code(session: Session) -> None:
    told = text_of(session.say("what can you do?")[0])
    assert "use 4 warps" in told
    assert not {"why_slow", "knob", "fact", "stop_at"} & set(told.split())
