"""Do the answers about a kernel say what is on record, and where nothing is, that?"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from agentkernel.chat import facts
from agentkernel.chat.facts import _launch, _layouts, _training, free_sizes
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.session import Session
from agentkernel.chat.tree import Node
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Estimate, KernelResources, Profile
from agentkernel.tools.command_lines import problem_words
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target
from tests.chat import scripted_session
from tests.chat.test_knowledge import EstimatingShop
from tests.workflows import fakes
from tests.workflows.fakes import verdict

KERNEL = KernelResources(
    name="k", grid=(2, 1, 1), num_warps=4, num_stages=3, registers=40, spill_bytes=0,
    shared_bytes=0, occupancy=1.0, tensor_core=None, constants={"BLOCK": 64}, compile_s=0.0,
)  # fmt: skip


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("show the ptx", "ld.0"),
        ("show me the SASS", "LDG 0"),
        ("show me the sass of the minus kernel", "STG 1"),
    ],
)
def test_assembly_is_compiled_and_kept_in_files(
    ran: Session, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    ptx = "".join(f"ld.{line}\n" for line in range(100))
    made = {
        "plus_kernel": {"ptx": ptx, "sass": "LDG 0\n"},
        "minus_kernel": {"ptx": "", "sass": "STG 1\n"},
    }
    monkeypatch.setattr(facts, "assembly_of", lambda *_, **__: made)
    monkeypatch.setattr(facts, "kernels_of", lambda _: (KERNEL,))
    reply = said(ran, text).text
    path = next(Path(line) for line in re.findall(r": (.+plus_kernel\.ptx)$", reply, re.M))
    assert path.read_text() == ptx
    assert f"PTX of plus_kernel, 100 lines: {path}" in reply
    assert shown in reply
    assert ("and 40 lines more." in reply) == ("ptx" in text)


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
    assert "sizes:" in said(ran, "what did the judge check?").text


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
    size = find_target(target).target.warp_size
    said = "grid 2 x 1 x 1, 4 warps ({} threads), 3 stages, BLOCK 64"
    assert _launch(size, KERNEL) == said.format(threads)


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


HOW_TO_TRAIN = (
    "how do I use it in my training loop?",
    "how do I use this for training",
    "how do I train with it?",
    "can it be used while training?",
    "how would I put this into my training script?",
    "how do I fine-tune a model with it?",
)


@pytest.mark.parametrize("before", [None, "use 4 warps"])
@pytest.mark.parametrize("text", HOW_TO_TRAIN)
def test_a_question_about_training_is_told_whether_it_may_be(
    ran: Session, text: str, before: str | None
) -> None:
    if before is not None:
        ran.say(before)
    told = said(ran, text).text
    assert told.startswith("c1: train and eval; forward only; ")
    assert "Train with the original" in told
    assert "apply_all(model, " not in told


def test_with_gradients_it_is_the_new_module_itself_that_trains(ran: Session) -> None:
    """Behind the guard of `apply_all` a model in training mode runs its own modules."""
    node = ran.tree.node(1)
    assert node is not None
    assert node.verdict is not None
    told = _training(node, node.verdict.evolve(gradients=True)).text
    assert told.startswith("c1: train and eval; gradients as the original's; ")
    assert "an applied model that trains runs its own modules" in told
    assert "from fast import ModelNew" in told
    assert "apply_all(model, " not in told


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"eval_only": True}, "eval mode only: in training mode it raises; "),
        ({"gradients": False}, "train and eval; forward only; "),
    ],
)
def test_of_eval_mode_alone_or_without_gradients_the_way_to_train_is_the_original(
    ran: Session, changes: dict[str, bool], mode: str
) -> None:
    node = ran.tree.node(1)
    assert node is not None
    assert node.verdict is not None
    told = _training(node, node.verdict.evolve(**changes)).text
    assert told.startswith(f"c1: {mode}")
    assert "Train with the original" in told
    assert "from fast import" not in told


@pytest.mark.parametrize(
    "text",
    ["how do I load my trained weights into it?", "how do I use it with pre-trained weights?"],
)
def test_trained_weights_are_no_training(ran: Session, text: str) -> None:
    assert said(ran, text).text.startswith("'save c1 to fast.py'")


UNDER_TORCH_COMPILE = (
    "does this support torch.compile?",
    "does it work with torch.compile?",
    "does it work under torch.compile?",
    "is it compatible with torch.compile",
    "can I torch.compile the model with it inside?",
    "does it cause graph breaks?",
)


@pytest.mark.parametrize("text", UNDER_TORCH_COMPILE)
def test_whether_it_may_stand_in_torch_compile_is_no_question_of_speed(
    session: Session, text: str
) -> None:
    assert "without a graph break" in said(session, text).text


@pytest.mark.parametrize(
    "text",
    ["is it faster than torch.compile?", "what about torch.compile?", "does it beat inductor?"],
)
def test_the_speed_of_torch_compile_stays_one(ran: Session, text: str) -> None:
    assert "than torch.compile" in said(ran, text).text


MEASURED_ELSEWHERE = (
    "how can I measure it on a real gpu?",
    "I have a machine with a GPU, how do I time it there?",
    "we have an H100 in the lab, how do I run it there?",
    "how do I benchmark it on my own GPU?",
    "can I use a remote gpu?",
    "how can I get a real measurement?",
    "how can I time this?",
    "how do i measure it for real",
    "how would I actually measure this?",
    "measure it on a gpu",
    "please benchmark c1 on a real GPU",
)


@pytest.mark.parametrize("text", MEASURED_ELSEWHERE)
def test_the_way_to_a_gpu_elsewhere_is_a_whole_command(ran: Session, text: str) -> None:
    told = said(ran, text).text
    assert "'save c1 to fast.py'" in told
    program, verb, *words = shlex.split(told.splitlines()[1])
    assert (program, verb) == ("agentkernel", "profile")
    loads = problem_words(ran._work.problem.problem)
    assert words == [*loads, "--candidate", "fast.py", "--remote", "ssh://USER@HOST"]
    assert "'run' measures where there is a GPU, and 'profile'" in told


def test_before_a_candidate_the_run_itself_goes_elsewhere(session: Session) -> None:
    program, verb, *_ = shlex.split(said(session, MEASURED_ELSEWHERE[0]).text.splitlines()[1])
    assert (program, verb) == ("agentkernel", "optimize")


@pytest.mark.parametrize(
    "text",
    ["what does 'estimated' mean?", "what is an estimate?", "how is the time estimated?",
     "where does the estimate come from?", "how accurate is the estimate?",
     "why is it only estimated?"],
)  # fmt: skip
def test_an_estimate_is_explained_with_the_way_to_a_measurement(ran: Session, text: str) -> None:
    first, *rest = said(ran, text).text.splitlines()
    assert first.startswith("An estimate is no measurement: nothing was timed")
    assert first.count(". ") == 1, "two sentences"
    assert "--remote ssh://USER@HOST" in rest[1]


@pytest.mark.parametrize("text", ["is it safe?", "is c1 safe to use?", "is it production-ready?"])
def test_whether_it_is_safe_is_answered_in_a_line(ran: Session, text: str) -> None:
    told = said(ran, text).text
    assert told.startswith("c1: right in ")
    assert "'how was it checked?' lists the calls" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    "text",
    ["what would happen with 3x bigger inputs?", "with bigger inputs?", "what about larger inputs?",
     "what if my inputs are twice as big?", "and with a larger batch?",
     "how would it do with longer sequences?"],
)  # fmt: skip
def test_of_other_sizes_it_is_said_which_were_judged(ran: Session, text: str) -> None:
    before = ran.tree
    told = said(ran, text).text
    assert "judged at" in told
    assert "'use batch 64', say, and 'run' draft" in told
    assert ran.tree == before


@pytest.mark.parametrize("before", ["", "use inputs of shape 64x512"])
@pytest.mark.parametrize(
    "text",
    ["how big are the inputs now?", "how big are the inputs?", "what are the input shapes?",
     "what shape is the input?"],
)  # fmt: skip
def test_the_inputs_in_force_are_said(session: Session, text: str, before: str) -> None:
    if before:
        session.say(before)
    label = session.problem.problem.shape_sets[0].label
    assert f"The inputs in force: {label}." in said(session, text).text


def test_the_line_of_a_launch_is_named(ran: Session) -> None:
    ran.offer(
        "import torch\n\n\nclass ModelNew:\n    def forward(self, x):\n        rows[(1,)](x)\n",
        None,
        "pasted",
    )
    told = said(ran, "which line launches the kernel?").text
    assert told == "c4: line 6 launches rows. 'explain line 6' says how."


def test_where_nothing_can_be_timed_the_way_is_to_a_gpu_elsewhere(tmp_path: Path) -> None:
    with scripted_session.begin(tmp_path, EstimatingShop((fakes.Script("rows"),))) as session:
        session.say("run")
        told = said(session, "is it noise?").text
    assert told.startswith("Cannot tell: nothing was measured.")
    assert "--remote ssh://USER@HOST" in told
    assert "time it once more" not in told


@pytest.mark.parametrize(
    "text", ["is 8.89 us incl launch overhead", "does the time include launch overhead?"]
)
def test_the_launches_are_said_to_be_in_a_time(ran: Session, text: str) -> None:
    assert "c1: yes, on the device:" in said(ran, text).text


def test_of_an_estimate_the_share_of_the_launches_is_said() -> None:
    estimate = Estimate(
        target="h100-sxm", time_us=8.89, bytes_moved=1, flops=1, bound="memory",
        assumptions=("bandwidth", "2 us a launch on the device, 2 launches"),
    )  # fmt: skip
    profile = Profile(candidate="0" * 64, target="h100-sxm", report=None, estimate=estimate)
    node = Node.model_construct(number=1, profile=profile)
    reply = facts._with_launches(node)
    assert isinstance(reply, TextReply)
    assert reply.text.startswith(
        "c1: yes, its 8.89 us (estimated) have the launches in them: 2 us a launch on the device, "
        "2 launches."
    )


@pytest.mark.parametrize(
    "text", ["is it correct for the size i gave you", "did you test it at my size?"]
)
def test_whether_the_size_that_was_given_was_judged_is_answered(ran: Session, text: str) -> None:
    node = ran.tree.node(1)
    assert node is not None
    assert node.verdict is not None
    given = ran._work.module.shape_sets[0].label
    cases = node.verdict.cases
    at_it = node.verdict.evolve(cases=(cases[0].evolve(shapes=given),))
    elsewhere = at_it.evolve(cases=(cases[0].evolve(shapes="x float32[2, 3]"),), interpreted=True)
    assert said(ran, text).text.startswith("c1: ")
    assert facts._at_its_size(ran._work, node, at_it).startswith(f"yes: 1 judged call had {given}")
    told = facts._at_its_size(ran._work, node, elsewhere)
    assert told.startswith(f"right in all 1 judged call, but none had {given} itself.")
    assert "Without a GPU large sizes are judged at smaller ones. Judged: x float32[2, 3]." in told


def test_how_it_was_checked_counts_the_calls_of_each_kind() -> None:
    case = verdict(Candidate.model_construct(source="")).cases[0]
    shapes = "x float32[4, 8]"
    calls = (
        case.evolve(label=f"normal, seed 1, {shapes}, strided inputs", shapes=shapes),
        case.evolve(label=f"normal, seed 1, {shapes}, strided inputs, frozen", shapes=shapes),
    )
    told = facts._checked(verdict(Candidate.model_construct(source="")).evolve(cases=calls))
    lines = told.splitlines()
    assert lines[1:4] == [
        "sizes: x float32[4, 8] (2)",
        f"values: {case.distribution} (2)",
        "also: strided inputs (2), frozen (1)",
    ]
    assert len(lines) == 5


def test_of_a_size_that_is_named_it_is_said_what_was_judged_and_the_size_is_offered(
    ran: Session,
) -> None:
    told, offered = ran.say("what of much bigger inputs, say 100000 rows")
    assert isinstance(told, TextReply)
    assert "judged at" in told.text
    assert isinstance(offered, TextReply)
    assert offered.text.startswith("Say 'use rows 100000', or 'yes'")


def test_whether_it_does_a_dtype_is_a_question_of_its_inputs(ran: Session) -> None:
    assert said(ran, "does it do fp16?").text.startswith("No: c1 takes x float32 alone")
