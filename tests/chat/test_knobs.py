"""Does a wish about a launch become a text that differs in that alone, for the judge to see?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.chat.knobs import _of_the_block, changed
from agentkernel.chat.launches import NoChange
from agentkernel.chat.replies import Compared, StepRan, TextReply
from agentkernel.chat.requests import SetKnob
from agentkernel.chat.session import Session
from agentkernel.chat.tree import Node
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import CompileReport, Estimate, KernelResources, Profile
from tests.chat import scripted_session
from tests.chat.test_knowledge import EstimatingShop
from tests.workflows import fakes

ROWS = '''"""é: columns are counted in bytes."""
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr))


class ModelNew:
    def forward(self, x):
        é = 1; rows[(triton.cdiv(x.numel(), 1024),)](
            x, out, 8192, BLOCK=1024, num_warps=16,
        )
        rows[(1,)](x, out, 8192, BLOCK=1024)
        return [].append(x)
'''
LINEAR = Path(__file__).parents[1] / "golden" / "compiler" / "linear.py.txt"
"""Blocks of three names, one product in tf32x3."""


def node(core: str | None = None, registers: int = 120) -> Node:
    kernel = KernelResources(
        name="k", grid=(1, 1, 1), num_warps=4, num_stages=3, registers=registers, spill_bytes=0,
        shared_bytes=0, occupancy=1.0, tensor_core=core, constants={}, compile_s=0.0,
    )  # fmt: skip
    profile = Profile(
        candidate="0" * 64,
        target="h100-sxm",
        report=CompileReport(target="sm_90", kernels=(kernel,)),
        estimate=Estimate(target="h100-sxm", time_us=1.0, bytes_moved=1, flops=1, bound="memory"),
    )
    candidate = Candidate.model_construct(source=ROWS, sha256="0" * 64, id="0" * 10)
    return Node.model_construct(
        number=1, parent=None, step=1, origin="drafted", candidate=candidate, verdict=None,
        profile=profile, unprofiled=None, aside="",
    )  # fmt: skip


def test_an_option_is_replaced_or_put_in() -> None:
    found = changed(ROWS, node(), SetKnob(knob="warps", value=8))
    assert found == ROWS.replace("num_warps=16", "num_warps=8").replace(
        "BLOCK=1024)\n", "BLOCK=1024, num_warps=8)\n"
    )
    found = changed(ROWS, node(), SetKnob(knob="stages", value=2))
    assert "num_warps=16, num_stages=2)" in found
    ast.parse(found)


def test_what_a_launch_was_compiled_with_unsaid_is_so_already() -> None:
    text = "k[(1,)](x, num_warps=4)\n"
    with pytest.raises(NoChange, match="so already"):
        changed(text, node(), SetKnob(knob="stages", value=3))
    assert "num_stages=2" in changed(text, node(), SetKnob(knob="stages", value=2))


def test_a_block_changes_with_the_grid_that_counts_in_it() -> None:
    found = changed(ROWS, node(), SetKnob(knob="block", value=512))
    assert found == ROWS.replace("1024", "512")
    assert changed(ROWS, node(), SetKnob(knob="block")) == found
    assert changed(ROWS, node(), SetKnob(knob="block", more=True)) == ROWS.replace("1024", "2048")


def test_one_of_several_blocks_is_named() -> None:
    text = LINEAR.read_text()
    wish = SetKnob(knob="block", value=64, axis="N")
    grid = "-(-m // 128) * -(-n // 128)"
    found = changed(text, node(), wish)
    assert "BLOCK_M=128, BLOCK_N=64,\n    BLOCK_K=16 if k <= 32 else 64" in found
    assert grid in text
    assert "-(-m // 128) * -(-n // 64)" in found
    deeper = changed(text, node(), SetKnob(knob="block", value=32, axis="K"))
    assert "BLOCK_K=16 if k <= 32 else 32," in deeper


ROW = """
@triton.jit
def k(x_ptr, n_rows, n_cols: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    col = tl.arange(0, BLOCK_N)[None, :]
    x = tl.load(x_ptr + row * n_cols + col, mask=row < n_rows)


def forward(x):
    k[(-(-x.shape[0] // 2),)](x, x.shape[0], n_cols=512, BLOCK_M=2, BLOCK_N=512)
"""
"""BLOCK_N holds a row of 512 whole."""


@pytest.mark.parametrize(("more", "rows"), [(True, 4), (False, 1)])
def test_bigger_blocks_are_the_one_of_several_that_can_be(more: bool, rows: int) -> None:
    found = changed(ROW, node(), SetKnob(knob="block", more=more))
    assert f"// {rows}),)](x, x.shape[0], n_cols=512, BLOCK_M={rows}, BLOCK_N=512)" in found


def test_where_several_blocks_can_be_one_is_asked_for_with_its_next_width() -> None:
    with pytest.raises(NoChange, match="'BLOCK_M = 256' names one"):
        changed(LINEAR.read_text(), node(), SetKnob(knob="block", more=True))
    with pytest.raises(NoChange, match="'BLOCK_M = 64' names one"):
        changed(LINEAR.read_text(), node(), SetKnob(knob="block"))


def test_fewer_registers_is_a_limit_below_what_is_used() -> None:
    assert "maxnreg=88" in changed(ROWS, node(), SetKnob(knob="registers"))
    with pytest.raises(NoChange, match="few already"):
        changed(ROWS, node(registers=24), SetKnob(knob="registers"))


@pytest.mark.parametrize(("more", "warps"), [(True, 32), (False, 8)])
def test_more_and_fewer_are_by_a_step(more: bool, warps: int) -> None:
    assert f"num_warps={warps}" in changed(ROWS, node(), SetKnob(knob="warps", more=more))


def test_products_without_tensor_cores_are_in_ieee() -> None:
    text = LINEAR.read_text()
    found = changed(text, node(core="mma"), SetKnob(knob="tensor_cores", value=0))
    assert found == text.replace('="ieee" if SHORT else "tf32x3"', '="ieee"')


@pytest.mark.parametrize(
    ("source", "made", "wish", "said"),
    [
        (ROWS, node(), SetKnob(knob="warps", value=16), ""),
        (ROWS, node(), SetKnob(knob="warps", value=5), "a power of two from 1 to 32"),
        (ROWS, node(), SetKnob(knob="warps", value=64), "from 1 to 32"),
        (ROWS, node(), SetKnob(knob="registers", value=300), "from 1 to 255"),
        (ROWS, node(), SetKnob(knob="tensor_cores", value=0), "uses no tensor cores"),
        (ROWS, node("wgmma.f16"), SetKnob(knob="tensor_cores", value=0), "16 bits"),
        (ROWS, node("wgmma.bf16"), SetKnob(knob="tensor_cores", value=0), "16 bits"),
        (ROWS, node(), SetKnob(knob="persistent", value=1), "another kernel"),
        (ROWS, node(), SetKnob(knob="deterministic", value=1), "how it adds up"),
        ("class ModelNew: ...\n", node(), SetKnob(knob="warps", value=4), "launches no kernel"),
        (LINEAR.read_text(), node(), SetKnob(knob="block", value=64), "BLOCK_M 128, BLOCK_N 128"),
    ],
)
def test_what_cannot_be_changed_is_said_in_a_line(
    source: str, made: Node, wish: SetKnob, said: str
) -> None:
    if not said:
        assert "num_warps=16)" in changed(source, made, wish)
        return
    with pytest.raises(NoChange) as caught:
        changed(source, made, wish)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wish_becomes_a_candidate_that_is_judged(ran: Session) -> None:
    given = "class ModelNew:\n    def forward(self, x):\n        return k[(1,)](x, num_warps=4)\n"
    first = ran.offer(given, None, "pasted")
    assert isinstance(first, StepRan)
    ran.say(f"go back to c{first.made[0]}")
    (reply,) = ran.say("use 8 warps")
    assert isinstance(reply, StepRan), reply
    made = ran.tree.node(reply.made[0])
    assert made is not None
    assert made.verdict is not None
    assert made.parent == first.made[0]
    assert made.candidate.source == given.replace("num_warps=4", "num_warps=8")
    (again,) = ran.say("use 8 warps")
    assert isinstance(again, TextReply)
    assert "so already" in again.text


def test_without_a_candidate_there_is_nothing_to_change(session: Session) -> None:
    (reply,) = session.say("use 8 warps")
    assert isinstance(reply, TextReply)
    assert not reply.ok


FOUR = "class ModelNew:\n    def forward(self, x):\n        return k[(1,)](x, num_warps=4)\n"


@pytest.fixture
def at_four(ran: Session) -> Session:
    """At a candidate of 4 warps."""
    made = ran.offer(FOUR, None, "pasted")
    assert isinstance(made, StepRan)
    ran.say(f"go back to c{made.made[0]}")
    return ran


def source_of(session: Session) -> str:
    number = session.tree.place.candidate
    assert number is not None
    node = session.tree.node(number)
    assert node is not None
    return node.candidate.source


def test_wishes_of_one_sentence_are_one_candidate(at_four: Session) -> None:
    before = len(at_four.tree.nodes)
    at_four.say("use 8 warps and 2 stages")
    assert len(at_four.tree.nodes) == before + 1
    assert at_four.tree.nodes[-1].candidate.source == FOUR.replace(
        "num_warps=4", "num_warps=8, num_stages=2"
    )


def test_what_is_no_matter_of_the_launch_is_said_beside_what_is(at_four: Session) -> None:
    (reply,) = at_four.say("make it deterministic and use 8 warps")
    assert isinstance(reply, StepRan)
    assert "how it adds up" in reply.text
    assert "num_warps=8" in at_four.tree.nodes[-1].candidate.source


def test_a_text_that_was_judged_is_gone_back_to(at_four: Session) -> None:
    first = at_four.tree.place.candidate
    made = at_four.say("use 8 warps")[0]
    assert isinstance(made, StepRan)
    at_four.say(f"go back to c{made.made[0]}")
    before = len(at_four.tree.nodes)
    at_four.say("use 4 warps")
    assert at_four.tree.place.candidate == first
    assert len(at_four.tree.nodes) == before


def test_what_a_candidate_had_before_is_put_back(at_four: Session) -> None:
    made = at_four.say("use 8 warps and 2 stages")[0]
    assert isinstance(made, StepRan)
    at_four.say(f"go back to c{made.made[0]}")
    at_four.say("keep the stages, but put the warps back to what they were")
    assert "num_warps=4, num_stages=2" in at_four.tree.nodes[-1].candidate.source


def test_a_register_limit_is_taken_off() -> None:
    wish = SetKnob(knob="registers", value=0)
    limited = changed(ROWS, node(), SetKnob(knob="registers", value=64))
    assert "maxnreg=64" in limited
    assert ast.dump(ast.parse(changed(limited, node(), wish))) == ast.dump(ast.parse(ROWS))
    with pytest.raises(NoChange, match="so already"):
        changed(ROWS, node(), wish)


def test_a_sweep_is_judged_and_laid_side_by_side(at_four: Session) -> None:
    before = len(at_four.tree.nodes)
    (reply,) = at_four.say("sweep warps 4,8,16 and stages 2-3, give me a table")
    assert isinstance(reply, Compared)
    assert len(at_four.tree.nodes) == before + 6
    what, launches = reply.rows[0]
    assert what == "launch"
    assert launches[0] == "as it was"
    assert set(launches[1:]) == {f"{w} warps, {s} stages" for w in (4, 8, 16) for s in (2, 3)}
    (again,) = at_four.say("sweep warps 1,2,4,8,16 and stages 1-4")
    assert isinstance(again, TextReply)
    assert "at most 16" in again.text


def test_a_sweep_is_in_the_order_of_its_values_and_names_no_winner_among_equals(
    at_four: Session,
) -> None:
    (reply,) = at_four.say("sweep warps over 16, 4, 1")
    assert isinstance(reply, Compared)
    assert reply.rows[0] == ("launch", ("1 warp", "4 warps", "16 warps"))
    assert reply.verdict == (
        "3 candidates side by side. Fastest of them: c4, c5, c6, between which no difference can "
        "be told (by their measured intervals). Fastest of all: c1.\n"
        "The session stands at c4, as before."
    )
    assert at_four.tree.place.candidate == 4
    at_four.say("discard c1")
    (told,) = at_four.say("which one is best?")
    assert isinstance(told, TextReply)
    assert "Fastest: c4, c5, c6, between which no difference can be told" in told.text


def test_after_a_sweep_it_stands_at_the_winner(ran: Session) -> None:
    """One undo goes back to where it stood, past all that was tried."""
    ran.offer(f"{FOUR}# fast at 8 warps\n", None, "pasted")
    (reply,) = ran.say("sweep warps over 8, 2, 16")
    assert isinstance(reply, Compared)
    assert reply.verdict.endswith("Fastest of them: c6.\nThe session stands at c6.")
    assert ran.tree.place.candidate == 6
    ran.say("undo")
    assert ran.tree.place.candidate == 4


def test_a_block_that_makes_a_right_candidate_wrong_is_named_as_the_cause(ran: Session) -> None:
    given = "class ModelNew:\n    def forward(self, x):\n        return k[(1,)](x, BLOCK=1024)\n"
    first = ran.offer(given, None, "pasted")
    assert isinstance(first, StepRan)
    ran.say(f"go back to c{first.made[0]}")
    (right,) = ran.say("set BLOCK = 512")
    assert isinstance(right, StepRan)
    assert "block is the cause" not in right.text
    ran.say(f"go back to c{first.made[0]}")
    node = ran.tree.node(first.made[0])
    assert node is not None
    wrong = given + "# wrong"
    made = ran.offer(wrong.replace("1024", "256"), first.made[0], "edited")
    assert isinstance(made, StepRan)
    told = _of_the_block(ran._work, node, made, (SetKnob(knob="block", value=256),))
    assert told == [told[0]]
    assert f"c{made.made[0]} differs from c{node.number}, which is right, in its width" in told[0]
    assert not _of_the_block(ran._work, node, made, (SetKnob(knob="warps", value=2),))


def test_a_sweep_says_what_cannot_be(at_four: Session) -> None:
    (reply,) = at_four.say("try 5 or 8 warps")
    assert isinstance(reply, Compared)
    assert "5 warps: 5 cannot be" in reply.verdict


def test_a_number_alone_goes_back_to_the_knob_before_it(at_four: Session) -> None:
    at_four.say("use 8 warps")
    at_four.say("and with 2?")
    assert "num_warps=2" in at_four.tree.nodes[-1].candidate.source


TWO = (
    "class ModelNew:\n    def forward(self, x):\n"
    "        mul_kernel[(1,)](x, num_warps=4)\n"
    "        rms_norm_kernel[(1,)](x, num_warps=8, BLOCK_N=64)\n"
    "        return rows[(1,)](x, num_warps=4)\n"
)


@pytest.mark.parametrize(
    ("kernels", "before", "after"),
    [
        (("mul_kernel",), "(x, num_warps=4)\n        rms", "(x, num_warps=2)\n        rms"),
        (("mul",), "(x, num_warps=4)\n        rms", "(x, num_warps=2)\n        rms"),
        (("rms norm",), "num_warps=8", "num_warps=2"),
        (("norm",), "num_warps=8", "num_warps=2"),
        (("rows",), "rows[(1,)](x, num_warps=4)", "rows[(1,)](x, num_warps=2)"),
    ],
)
def test_a_wish_for_one_kernel_changes_that_alone(
    kernels: tuple[str, ...], before: str, after: str
) -> None:
    wish = SetKnob(knob="warps", value=2, kernels=kernels)
    assert changed(TWO, node(), wish) == TWO.replace(before, after)


@pytest.mark.parametrize("name", ["softmax", "softmax_kernel", "kernel"])
def test_a_kernel_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(NoChange, match="It launches mul_kernel, rms_norm_kernel, rows: nothing"):
        changed(TWO, node(), SetKnob(knob="warps", value=2, kernels=(name,)))


def test_tensor_cores_are_no_matter_of_one_kernel() -> None:
    with pytest.raises(NoChange, match="all products"):
        changed(TWO, node("mma"), SetKnob(knob="tensor_cores", value=0, kernels=("mul",)))


def test_a_kernel_is_named_in_a_sentence(ran: Session) -> None:
    made = ran.offer(TWO, None, "pasted")
    assert isinstance(made, StepRan)
    ran.say(f"go back to c{made.made[0]}")
    ran.say("use 2 warps for the mul kernel only")
    assert source_of(ran) == TWO.replace("4)\n        rms", "2)\n        rms")
    ran.say("and with 16?")
    assert "mul_kernel[(1,)](x, num_warps=16)" in ran.tree.nodes[-1].candidate.source
    assert "num_warps=8, BLOCK_N" in ran.tree.nodes[-1].candidate.source
    before = len(ran.tree.nodes)
    (reply,) = ran.say("use 4 warps for rms_kernel and 8 warps for mul_kernel")
    assert "one kernel at a time" in reply.model_dump_json()
    assert len(ran.tree.nodes) == before


def test_a_sweep_is_of_the_kernel_that_is_named(ran: Session) -> None:
    made = ran.offer(TWO, None, "pasted")
    assert isinstance(made, StepRan)
    ran.say(f"go back to c{made.made[0]}")
    ran.say("sweep warps 2,16 for rms_norm_kernel")
    assert [item.candidate.source for item in ran.tree.nodes[-2:]] == [
        TWO.replace("num_warps=8", "num_warps=2"),
        TWO.replace("num_warps=8", "num_warps=16"),
    ]


def test_without_a_current_candidate_the_newest_right_one_is_changed(at_four: Session) -> None:
    four = at_four.tree.nodes[-1]
    at_four.say("start over")
    assert at_four.tree.place.candidate is None
    (reply,) = at_four.say("use 8 warps")
    assert isinstance(reply, StepRan)
    assert f"Changed from c{four.number}, the newest right one" in reply.text
    assert at_four.tree.nodes[-1].parent == four.number
    assert at_four.tree.nodes[-1].candidate.source == FOUR.replace("num_warps=4", "num_warps=8")


def test_a_candidate_that_is_named_is_changed_wherever_the_session_stands(
    at_four: Session,
) -> None:
    four = at_four.tree.nodes[-1].number
    at_four.say("use 8 warps")
    for place, warps in (("start over", 1), ("go back to c1", 2)):
        at_four.say(place)
        (reply,) = at_four.say(f"use {warps} warps on c{four}")
        assert isinstance(reply, StepRan), reply
        assert "newest right one" not in reply.text
        assert at_four.tree.nodes[-1].parent == four
        assert f"num_warps={warps})" in at_four.tree.nodes[-1].candidate.source
    (reply,) = at_four.say("use 4 warps on c99")
    assert "c99" in reply.model_dump_json()


def test_what_was_not_changed_is_not_put_back(at_four: Session) -> None:
    four = at_four.tree.place.candidate
    at_four.say("use 8 warps")
    at_four.say(f"go back to c{four}")
    at_four.say("use 5 warps")
    before = at_four.tree
    (reply,) = at_four.say("put it back")
    assert isinstance(reply, TextReply)
    assert reply.text == f"Nothing was changed: still at c{four}. 'undo' goes a step back."
    assert at_four.tree == before
    at_four.say("undo")
    assert at_four.tree.place.candidate != four
    at_four.say(f"go back to c{four}")
    at_four.say("use 16 warps")
    at_four.say("put it back")
    assert at_four.tree.place.candidate == four


@pytest.fixture
def estimated(tmp_path: Path) -> Iterator[Session]:
    """At c2, of 4 warps, estimated for the H100; c3 is that at 8 warps. The H200 is in force."""
    with scripted_session.begin(tmp_path, EstimatingShop((fakes.Script("rows"),))) as session:
        session.say("run")
        session.offer(FOUR, None, "pasted")
        session.say("use 8 warps")
        session.say("go back to c2")
        session.say("for the h200")
        yield session


def test_a_sweep_after_a_change_of_target_judges_anew_what_has_a_time_for_another(
    estimated: Session,
) -> None:
    (reply,) = estimated.say("sweep 4, 8 and 16 warps")
    assert isinstance(reply, Compared)
    assert dict(reply.rows)["target"] == ("h200", "h200", "h200")
    assert [node.number for node in reply.nodes] == [4, 5, 6]
    assert [node.origin for node in reply.nodes] == ["judged anew", "wished", "wished"]
    assert "Fastest of them: c4, c5, c6, between which" in reply.verdict
    assert reply.verdict.endswith("c2, as before.\nc4 is c2, judged anew for h200.")
    (again,) = estimated.say("sweep 4, 8 and 16 warps")
    assert isinstance(again, Compared)
    assert again.nodes == reply.nodes


def test_a_wish_after_a_change_of_target_is_judged_for_the_one_in_force(estimated: Session) -> None:
    (reply,) = estimated.say("use 8 warps")
    assert isinstance(reply, StepRan)
    made = estimated.tree.nodes[-1]
    assert made.number == 4
    assert made.profile is not None
    assert made.profile.target == estimated._work.target_name == "h200"
    (told,) = estimated.say("history")
    assert isinstance(told, TextReply)
    assert "   c4 (current) changed as asked: right, 1.8 us estimated, for h200" in told.text
    assert "   c2 pasted: right, 2.5 us estimated, for h100-sxm" in told.text
