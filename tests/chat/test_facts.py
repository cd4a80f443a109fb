"""Do the answers about a kernel say what is on record, and where nothing is, that?"""

from __future__ import annotations

import shlex

import pytest

from agentkernel.chat.facts import _launch, _layouts, free_sizes
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.session import Session
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import KernelResources
from agentkernel.tools.command_lines import problem_words
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target
from tests.workflows.fakes import verdict


def said(session: Session, text: str) -> TextReply:
    (reply,) = session.say(text)
    assert isinstance(reply, TextReply)
    return reply


@pytest.mark.parametrize(
    "text",
    ["how many warps?", "does it spill?", "is it faster than torch.compile?", "how do I use it?"],
)
def test_before_a_candidate_there_is_none_to_ask_about(session: Session, text: str) -> None:
    reply = said(session, text)
    assert not reply.ok
    assert "no candidate yet" in reply.text


def test_accuracy_sizes_modes_and_bits_come_from_the_verdict(ran: Session) -> None:
    node = ran.tree.node(1)
    assert node is not None
    assert node.verdict is not None
    assert "error against fp64" in said(ran, "how accurate is it?").text
    holds = said(ran, "does it work in training?").text
    assert ("eval mode only" in holds) == node.verdict.eval_only
    assert ("gradients as" in holds) == bool(node.verdict.gradients)
    known = "not known" if node.verdict.repeatable is None else "same bits"
    assert known in said(ran, "is it deterministic?").text


@pytest.mark.parametrize(
    ("layouts", "source", "starts", "says"),
    [
        (("", "strided inputs", "sliced inputs"), "x.contiguous()", "no,", "2 of 3 judged calls"),
        (("", "strided inputs"), "", "no,", "(strided)."),
        (("", "offset inputs"), "x = x.contiguous()", "no:", "copies them first"),
        (("",), "", "not known", "all judged calls had contiguous inputs"),
    ],
)
def test_whether_inputs_must_be_contiguous_is_answered_in_a_line(
    layouts: tuple[str, ...], source: str, starts: str, says: str
) -> None:
    made = verdict(Candidate(source="x", coder="file", round=1))
    case = made.cases[0]
    cases = tuple(case.evolve(label=f"normal, seed 1, x float32[4], {item}") for item in layouts)
    told = _layouts(made.evolve(cases=cases), source)
    assert told.startswith(starts)
    assert says in told


@pytest.mark.parametrize(
    "text",
    ["does it need the input contiguous?", "must the input be contiguous?",
     "can I pass a strided tensor?"],
)  # fmt: skip
def test_a_question_about_layouts_lists_no_calls(ran: Session, text: str) -> None:
    told = said(ran, text).text
    assert "contiguous" in told
    assert "\n" not in told
    assert "calls:" in said(ran, "what did the judge check?").text


def test_sizes_that_may_change_are_told_from_those_that_are_fixed() -> None:
    shapes = [f"x float32[{rows}, 1024], w float32[1024]" for rows in (33, 1, 7)]
    assert free_sizes(shapes) == (
        "x float32[free, 1024], w float32[1024]: a free size was judged at 1, 7, 33; a number is "
        "fixed, no other was judged"
    )
    assert free_sizes(shapes[:1]) == ""
    assert free_sizes(["x float32[4, 8]", "x float32[4, 2, 8]"]) == ""


def test_a_refused_candidate_has_no_figures(ran: Session) -> None:
    for text in ("how accurate is c2?", "is c2 faster than torch.compile?"):
        reply = said(ran, text)
        assert not reply.ok
        assert "refused" in reply.text


def test_speed_is_told_with_its_interval_against_each_baseline(ran: Session) -> None:
    text = said(ran, "is it faster than torch.compile?").text
    node = ran.tree.node(1)
    assert node is not None
    assert node.profile is not None
    ratio = node.profile.measurements[0].vs_compile
    assert ratio is not None
    assert f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}], than torch.compile" in text
    assert "than eager" in text
    assert "measured on" in text


def test_how_it_was_timed_says_how_many_rounds_it_rests_on(ran: Session) -> None:
    text = said(ran, "how'd you time this? warm cache or cold?").text
    node = ran.tree.node(1)
    assert node is not None
    assert node.profile is not None
    (found, *_) = node.profile.measurements
    assert text.startswith(f"c1: {found.rounds} rounds, measured on {node.profile.measured_on}.")
    assert "cold L2" in text
    assert "95% interval" in text


def test_the_way_into_a_model_names_a_command_that_is_understood(ran: Session) -> None:
    text = said(ran, "how do I put it in my model?").text
    assert text.startswith("'save c1 to fast.py'")
    assert "agentkernel.apply_all(model, " in text


def test_what_was_not_compiled_is_said_to_be_unknown(ran: Session) -> None:
    reply: Reply = said(ran, "how many registers does it use?")
    assert isinstance(reply, TextReply)
    assert reply.ok == bool(_kernels(ran))


@pytest.mark.parametrize(("target", "threads"), [("h100-sxm", 128), ("mi300x", 256)])
def test_threads_are_counted_by_the_warps_of_the_target(target: str, threads: int) -> None:
    kernel = KernelResources(
        name="k", grid=(2, 1, 1), num_warps=4, num_stages=3, registers=40, spill_bytes=0,
        shared_bytes=0, occupancy=1.0, tensor_core=None, constants={"BLOCK": 64}, compile_s=0.0,
    )  # fmt: skip
    size = find_target(target).target.warp_size
    said = "grid 2 x 1 x 1, 4 warps ({} threads), 3 stages, BLOCK 64"
    assert _launch(size, kernel) == said.format(threads)


def _kernels(session: Session) -> int:
    node = session.tree.node(1)
    assert node is not None
    report = node.profile.report if node.profile is not None else None
    return len(report.kernels) if report is not None else 0


@pytest.mark.parametrize("before", ["", "use inputs of shape 64x512"])
def test_the_command_that_times_it_once_more_is_whole(ran: Session, before: str) -> None:
    if before:
        ran.say(before)
        ran.say("run")
    told = said(ran, "is it noise?").text
    program, verb, *words = shlex.split(told.splitlines()[-1])
    work = ran._work
    assert (program, verb) == ("agentkernel", "profile")
    assert work.target_name is not None
    loads = problem_words(work.problem.problem)
    assert words == [*loads, "--candidate", "fast.py", "--target", work.target_name]
    again = load_problem(words[0]).problem
    assert again.shape_sets == work.problem.problem.shape_sets
    assert (again.shape_sets == work.module.shape_sets) == (not before)
