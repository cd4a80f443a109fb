"""Does a session answer whatever is asked, keep every turn, and hand over only what is right?"""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from agentkernel import open_session
from agentkernel.chat.replies import (
    ClarificationNeeded,
    Compared,
    DiffOf,
    EditRequested,
    Explained,
    FilesWritten,
    Planned,
    PositionChanged,
    Profiled,
    Reply,
    Roofline,
    SessionEnded,
    Source,
    StepRan,
    TextReply,
    TreeShown,
)
from agentkernel.chat.requests import (
    AskDocs,
    CandidateName,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    LessMemory,
    MemoryLimit,
    OnCandidate,
    Plain,
    PlainName,
    Run,
    SetBudget,
    SetDtype,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    Size,
    StopAt,
    SwitchBranch,
    TryIdea,
    Undo,
    WriteTo,
)
from agentkernel.chat.session import Session
from agentkernel.chat.steps import earlier_attempts
from agentkernel.domain.errors import RunBusy, RunNotFound
from agentkernel.storage.sqlite import connect
from agentkernel.workflows.events import Event
from tests.chat import scripted_session
from tests.workflows import fakes

SLOW = {"verify", "ask_docs"}
"""Answered by the real judge and the real knowledge base: asked for in tests of their own."""
EVERY: tuple[Intent, ...] = (
    *(Plain(name=name) for name in get_args(PlainName)),
    *(OnCandidate(name=name) for name in get_args(CandidateName) if name not in SLOW),
    *(OnCandidate(name=name, candidate=99) for name in get_args(CandidateName)),
    *(OnCandidate(name=name, candidate="original") for name in get_args(CandidateName)),
    Run(rounds=1),
    LessMemory(fraction=0.5),
    MemoryLimit(max_bytes=2**20),
    SetPrecision(precision="tf32"),
    SetTarget(),
    SetTarget(target="h200"),
    SetShapes(),
    SetShapes(sizes=(Size(name="batch", value=6),)),
    SetDtype(dtype="float16"),
    ExplainLine(line=1),
    ExplainLine(),
    Diff(),
    Compare(first="current", second="parent"),
    Compare(first="fastest", second="original"),
    TryIdea(idea=2),
    TryIdea(idea=9),
    Undo(),
    SwitchBranch(),
    SwitchBranch(branch=7),
    StopAt(speedup=2),
    StopAt(runtime_us=50),
    SetBudget(rounds=4),
    SetPolicy(policy="triton"),
    WriteTo(name="save"),
    WriteTo(name="export"),
    Edit(),
    Edit(candidate="original"),
)


def text_of(reply: Reply) -> str:
    assert isinstance(
        reply,
        TextReply | PositionChanged | StepRan | FilesWritten | ClarificationNeeded | SessionEnded,
    ), reply
    return reply.text


def test_a_run_becomes_candidates_and_the_best_is_where_it_stands(ran: Session) -> None:
    assert [item.candidate.strategy for item in ran.tree.nodes] == ["rows", "wrong", "slow"]
    assert ran.tree.place.candidate == 1
    step = ran.tree.steps[0]
    assert (step.state, step.text, step.base) == ("done", "run", None)
    assert step.run is not None
    assert step.seconds > 0
    assert (ran.folder.parent / step.run / "run.json").is_file()


def test_a_session_and_its_replies_are_short_where_they_are_shown(ran: Session) -> None:
    assert repr(ran) == f"<Session {ran.id}: at c1, 3 candidates>"
    (reply,) = ran.say("show me the diff to the original")
    assert str(reply).startswith("```diff\n")
    assert repr(reply).startswith("<DiffOf: ")
    assert len(repr(reply)) < 120
    (moved,) = ran.say("go back to c3")
    assert repr(moved) == f"<PositionChanged: {str(moved).splitlines()[0].strip()}>"
    ran.close()
    assert repr(ran) == f"<Session {ran.id}, closed>"


@pytest.mark.quick(1)
@pytest.mark.parametrize("when", ["before", "after"])
def test_every_request_is_answered(session: Session, when: str) -> None:
    if when == "after":
        session.say("run")
    for intent in EVERY:
        if intent.name in ("less_energy", "lower_latency", "less_memory") and when == "before":
            continue  # each is a run: once is enough
        reply = session.do(intent)
        assert reply.kind
        if isinstance(
            reply, TextReply | PositionChanged | StepRan | FilesWritten | ClarificationNeeded
        ):
            assert reply.text.strip()
    assert len(session.transcript()) >= len(EVERY) - 3


def test_a_setting_waits_for_a_run_and_is_run_once(ran: Session) -> None:
    (reply,) = ran.say("allow tf32")
    assert isinstance(reply, PositionChanged)
    assert "strict -> tf32" in reply.text
    assert "'run'" in reply.text
    assert len(ran.tree.steps) == 1
    moved, again = ran.say("allow bf16 and run")
    assert isinstance(moved, PositionChanged)
    assert isinstance(again, StepRan)
    assert len(ran.tree.steps) == 2
    assert ran.tree.steps[1].changes == {"goals.precision": "bf16"}
    assert text_of(ran.say("allow bf16")[0]).startswith("Already set")


def test_less_memory_is_done_at_once(ran: Session) -> None:
    (reply,) = ran.say("use less memory")
    assert isinstance(reply, StepRan)
    assert ran.settings.goals.objective == "memory"
    both = ran.say("use less energy and run")
    assert [item.kind for item in both] == ["moved", "ran"]
    assert len(ran.tree.steps) == 3


def test_half_the_memory_is_half_of_what_was_measured(ran: Session) -> None:
    ran.do(LessMemory(fraction=0.5))
    assert ran.settings.goals.max_memory_bytes == 512


def test_more_aggressive_looks_further(ran: Session) -> None:
    before = ran.settings
    ran.say("be more aggressive")
    now = ran.settings
    assert now.budget.rounds > before.budget.rounds
    assert now.seed != before.seed
    assert not now.knowledge.experience
    assert now.goals.speedup > before.goals.speedup


def test_undo_and_redo_settings(ran: Session) -> None:
    ran.say("allow tf32")
    assert "tf32 -> strict" in text_of(ran.say("undo")[0])
    assert "strict -> tf32" in text_of(ran.say("redo")[0])
    assert ran.settings.goals.precision == "tf32"


def test_more_steps_than_there_were_are_not_undone(ran: Session) -> None:
    """Going to the very beginning would leave every candidate behind."""
    before = ran.tree.place
    assert "can be undone" in text_of(ran.do(Undo(steps=99)))
    assert ran.tree.place == before


def test_compare_concludes_from_measured_intervals(ran: Session) -> None:
    (reply,) = ran.say("compare c1 and c3")
    assert isinstance(reply, Compared)
    assert reply.verdict == "c3 is slower than c1: 0.50x [0.49, 0.51], measured."
    rows = dict(reply.rows)
    assert rows["time"][0].startswith("12.5 us")
    assert rows["precision"] == ("strict", "strict")
    (wrong,) = ran.say("compare c1 and c2")
    assert isinstance(wrong, Compared)
    assert wrong.verdict.startswith("c2 is not right")


def test_keeping_what_loses_names_the_baseline_that_wins(ran: Session) -> None:
    (kept,) = ran.say("keep c3")
    assert "It is not surely faster than torch.compile, which takes " in text_of(kept)
    (kept,) = ran.say("keep c1")
    assert "not surely" not in text_of(kept)


def test_a_bare_comparison_looks_at_the_newest_step(ran: Session) -> None:
    """From an older candidate it is with the newest right one; from the newest with its parent."""
    ran.offer(scripted_session.GIVEN, 1, "edited")
    newest = ran.tree.nodes[-1].number
    for stands in ("c1", f"c{newest}"):
        ran.say(f"go back to {stands}")
        (found,) = ran.say("compare")
        assert isinstance(found, Compared)
        assert [node.number for node in found.nodes] == [1, newest]


def test_the_better_of_what_was_compared_is_kept(ran: Session) -> None:
    """Of c1 and c3 the first is faster, also where the session stands at the other one."""
    ran.say("go back to c3")
    ran.say("compare c1 and c3")
    (kept,) = ran.say("keep the better one")
    assert ran.tree.kept == 1, kept
    with_one_sentence = ran.say("compare c3 with c1 and keep the better of the two")
    assert with_one_sentence[0].kind == "compared"
    assert ran.tree.kept == 1


def test_why_slow_and_why_rejected(ran: Session) -> None:
    slow = ran.say("why is it slow?")[0]
    assert isinstance(slow, Profiled)
    assert slow.node.number == 1
    assert dict(slow.facts)["basis"] == "measured on h200"
    refused = ran.say("why was c2 rejected?")[0]
    assert isinstance(refused, Explained)
    assert "refused at the gate correctness" in refused.name
    assert any("expected there" in words for _, words in refused.notes)


def test_roofline_and_plan(ran: Session) -> None:
    found = ran.say("how close are we to the roofline?")[0]
    assert isinstance(found, Roofline)
    assert {"c1", "c3", "eager"} <= {point.label for point in found.points}
    assert all(point.measured for point in found.points)
    plan = ran.say("what is the plan?")[0]
    assert isinstance(plan, Planned)
    assert plan.tried == ("rows", "wrong", "slow")


def test_look_at_the_text(ran: Session) -> None:
    source = ran.say("show c2")[0]
    assert isinstance(source, Source)
    assert source.number == 2
    diff = ran.say("show the diff")[0]
    assert isinstance(diff, DiffOf)
    assert (diff.old, diff.new) == ("plus.py", "c1.py")
    assert isinstance(ran.say("show the tree")[0], TreeShown)
    assert "no line 40" in text_of(ran.do(ExplainLine(line=40)))


def test_keep_writes_what_is_right_and_refuses_what_is_not(ran: Session, tmp_path: Path) -> None:
    refused = ran.say("keep c2")[0]
    assert isinstance(refused, TextReply)
    assert not refused.ok
    assert "refused at the gate" in refused.text
    kept = ran.say("keep it")[0]
    assert isinstance(kept, FilesWritten)
    assert (tmp_path / "plus_optimized.py").read_text() == ran.tree.nodes[0].candidate.source
    assert (tmp_path / "plus_optimized.certificate.json").is_file()
    assert ran.tree.kept == 1
    slow = ran.say("keep c3")[0]
    assert "not surely faster" in text_of(slow)


def test_save_destroys_nothing(ran: Session, tmp_path: Path) -> None:
    other = tmp_path / "mine.py"
    other.write_text("print()\n")
    for path in (str(tmp_path / "plus.py"), str(other), str(tmp_path / "a.txt"), "\0.py"):
        reply = ran.do(WriteTo(name="save", path=path))
        assert isinstance(reply, TextReply), path
        assert not reply.ok
    assert other.read_text() == "print()\n"
    assert isinstance(
        ran.do(WriteTo(name="save", path=str(tmp_path / "new/fast.py"))), FilesWritten
    )
    assert (tmp_path / "new/fast.py").is_file()


def test_a_candidate_by_hand_is_judged_like_any_other(ran: Session) -> None:
    editing = ran.do(Edit(candidate=1))
    assert isinstance(editing, EditRequested)
    same = ran.offer(editing.text, 1, "edited")
    assert text_of(same).startswith("Unchanged")
    better = ran.offer(scripted_session.GIVEN + "# speedup 1.9\n", 1, "edited")
    assert isinstance(better, StepRan)
    assert better.made == (4,)
    node = ran.tree.nodes[-1]
    assert (node.origin, node.parent) == ("edited", 1)
    assert ran.tree.place.candidate == 4
    (wrong,) = ran.say(f"```python\n{scripted_session.GIVEN}# wrong\n```")
    assert isinstance(wrong, StepRan)
    assert ran.tree.nodes[-1].origin == "pasted"
    assert ran.tree.place.candidate == 4
    assert ran.tree.nodes[-1].verdict is not None
    assert not ran.tree.nodes[-1].verdict.accepted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Nothing was typed"),
        (" \t ", "Nothing was typed"),
        ("\x00\x07\x1b", "No letters in it"),
        ("x" * 2**20, "1,048,576 characters"),
        ("import torch\n" + "x = 1\n" * 60_000, "characters"),
        ("import torch\nclass ModelNew(:", "no Python: line 2"),
        ("import torch\nx = 1", "no class ModelNew"),
        ("```\n" + "\n" * 2**20, "The file is empty"),
        ("import torch\x00", "no Python"),
        ("run \ud800", ""),
    ],
)
def test_bad_input_is_one_clear_line(session: Session, text: str, said: str) -> None:
    began = time.perf_counter()
    (reply,) = session.say(text)
    assert time.perf_counter() - began < 5
    assert said in text_of(reply)
    assert "\n" not in text_of(reply)
    assert session.say("show the tree")
    assert len(session.transcript()[0].text) < 300


def test_unknown_candidates_settings_and_sentences(ran: Session) -> None:
    assert "no candidate c99" in text_of(ran.do(OnCandidate(name="keep", candidate=99)))
    puzzled = ran.say("sing me a song")[0]
    assert isinstance(puzzled, ClarificationNeeded)
    assert puzzled.nearest
    unknown = ran.set({"budget.round": 3}, "/set budget.round 3")
    assert "budget.rounds" in text_of(unknown)
    assert "stays as it is" in text_of(ran.set({"runs": "elsewhere"}, "/set runs elsewhere"))
    assert "tyrannosaurus" in text_of(ran.do(SetTarget(target="tyrannosaurus")))


def test_set_and_take_back(session: Session) -> None:
    assert "5 -> 9" in text_of(session.set({"budget.rounds": 9}, "/set budget.rounds 9"))
    assert session.settings.budget.rounds == 9
    session.set({"budget.rounds": None}, "/set budget.rounds default")
    assert session.settings.budget.rounds == 5
    assert session.tree.place.changes == {}


def test_an_uncertain_sentence_waits_for_a_yes(ran: Session) -> None:
    asked = ran.say("go fp32")[0]
    if isinstance(asked, ClarificationNeeded) and asked.options:
        answered = ran.say("1")[0]
        assert not isinstance(answered, ClarificationNeeded)
    assert not isinstance(ran.say("yes")[0], StepRan)


def test_go_ahead_begins_a_run_where_nothing_waits(ran: Session) -> None:
    assert isinstance(ran.say("go ahead")[0], StepRan)


def test_other_sizes_are_another_problem_and_undo_goes_back(ran: Session) -> None:
    moved = ran.say("use batch size 16")[0]
    assert "x float32[16, 8]" in text_of(moved)
    assert ran.problem.problem.shape_sets[0].label == "x float32[16, 8]"
    again = ran.say("run")[0]
    assert isinstance(again, StepRan)
    assert again.made == (4, 5, 6)
    assert "for other sizes" in text_of(ran.do(Compare(first=1, second=4)))
    ran.say("go back to c1")
    assert ran.problem.problem.shape_sets[0].label == "x float32[4, 8]"


def test_ctrl_c_ends_the_step_and_not_the_session(
    tmp_path: Path, shop: scripted_session.SessionShop
) -> None:
    stopped: list[int] = []

    def stop(candidate: object) -> None:
        if not stopped:
            stopped.append(1)
            raise KeyboardInterrupt

    shop.on_judge = stop
    with scripted_session.begin(tmp_path, shop) as session:
        (reply,) = session.say("run")
        assert "stopped" in text_of(reply)
        assert [item.state for item in session.tree.steps] == ["stopped"]
        (after,) = session.say("run")
        assert isinstance(after, StepRan)
        assert [item.state for item in session.tree.steps] == ["done"]
        assert session.tree.place.candidate is not None


class _Killed(BaseException):
    """The process ends here, as by a kill: nothing after it is done."""


def test_a_stopped_step_that_goes_on_and_is_killed_is_finished_on_reopening(
    tmp_path: Path, shop: scripted_session.SessionShop
) -> None:
    ends: list[type[BaseException]] = [_Killed, KeyboardInterrupt]

    def end(candidate: object) -> None:
        if ends:
            raise ends.pop()

    shop.on_judge = end
    with scripted_session.begin(tmp_path, shop) as session:
        session.say("run")
        assert [item.state for item in session.tree.steps] == ["stopped"]
        with pytest.raises(_Killed):
            session.say("run")
        folder = session.folder
    with Session.reopen(folder, workshop=shop) as session:
        assert [item.state for item in session.tree.steps] == ["done"]
        assert session.tree.place.candidate == 1


def test_ctrl_c_before_the_first_draft_is_gone_on_with(
    tmp_path: Path, shop: scripted_session.SessionShop
) -> None:
    stopped: list[str] = []

    def stop(event: Event) -> None:
        if not stopped:
            stopped.append(event.kind)
            raise KeyboardInterrupt

    with scripted_session.begin(tmp_path, shop, stop) as session:
        assert "nothing was drafted" in text_of(session.say("run")[0])
        assert [item.state for item in session.tree.steps] == ["stopped"]
        assert isinstance(session.say("run")[0], StepRan)
        assert len(list((tmp_path / "runs").glob("*/run.json"))) == 1


def test_a_slower_candidate_by_hand_is_where_it_stands(ran: Session) -> None:
    ran.offer(scripted_session.GIVEN, 1, "edited")
    assert ran.tree.place.candidate == 4


def test_a_bug_in_a_step_is_told_and_the_session_lives(
    tmp_path: Path, shop: scripted_session.SessionShop
) -> None:
    def fail(candidate: object) -> None:
        raise TypeError("a bug")

    shop.on_judge = fail
    with scripted_session.begin(tmp_path, shop) as session:
        (reply,) = session.say("run")
        assert "a bug" in text_of(reply)
        assert session.tree.steps[0].state == "failed"
        assert session.say("show the tree")


def test_a_run_is_told_what_holds_of_earlier_ones(ran: Session) -> None:
    work = ran._work
    names = [item.candidate.strategy for item in earlier_attempts(work, work.settings)]
    assert names == ["rows", "wrong", "slow"]
    ran.say("discard c3")
    assert len(earlier_attempts(work, work.settings)) == 2
    ran.say("allow tf32")
    assert earlier_attempts(work, work.settings) == ()


def test_what_was_drafted_by_rule_is_not_drafted_again(ran: Session) -> None:
    reply = ran.do(OnCandidate(name="repair", candidate=2))
    assert "drafts by rule" in text_of(reply)
    assert len(ran.tree.steps) == 1


def test_export_is_readable_and_does_it_again(ran: Session, tmp_path: Path) -> None:
    ran.say("allow tf32")
    ran.offer(scripted_session.GIVEN, 1, "edited")
    ran.say("go back to c1")
    wrote = ran.do(WriteTo(name="export", path=str(tmp_path / "out")))
    assert isinstance(wrote, FilesWritten)
    folder = tmp_path / "out"
    told = (folder / "session.md").read_text()
    assert "## allow tf32" in told
    assert "c2 refused at the gate correctness" in told
    script = (folder / "session.txt").read_text()
    assert script.startswith("run\nallow tf32\n<<<\n")
    assert (folder / "plus_optimized.py").is_file()
    assert (folder / "plus.py").read_text() == fakes.PROBLEM
    assert len((folder / "session.jsonl").read_text().splitlines()) == 4


def test_reopening_finds_everything(ran: Session, shop: scripted_session.SessionShop) -> None:
    ran.say("allow tf32")
    tree, turns, folder = ran.tree, ran.transcript(), ran.folder
    ran.close()
    with Session.reopen(folder, workshop=shop) as again:
        assert again.tree == tree
        assert again.transcript() == turns
        assert again.settings.goals.precision == "tf32"
        assert isinstance(again.say("run")[0], StepRan)


def test_one_process_at_a_time(session: Session) -> None:
    with pytest.raises(RunBusy, match="Another process"):
        Session.reopen(session.folder)
    assert session.say("show the tree")


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_damaged_file_is_one_clear_line(session: Session, content: bytes) -> None:
    folder = session.folder
    session.close()
    for item in folder.glob("session.sqlite*"):
        item.unlink()
    (folder / "session.sqlite").write_bytes(content)
    with pytest.raises(RunNotFound, match="Cannot read the session") as caught:
        Session.reopen(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_what_was_infinitely_wrong_can_be_read_and_exported(tmp_path: Path, error: float) -> None:
    wrong = fakes.Script("wrong", fakes.mismatch("nan", error), repaired=False)
    shop = scripted_session.SessionShop((wrong,))
    with scripted_session.begin(tmp_path, shop) as session:
        session.say("run")
        session.say("show the tree")
        assert repr(session.tree.nodes[0].verdict.failure.norm_error) == repr(error)
        assert isinstance(
            session.do(WriteTo(name="export", path=str(tmp_path / "a"))), FilesWritten
        )
        (shown,) = session.transcript()[1].replies
        assert repr(shown) == repr(TreeShown(tree=session.tree, target=shown.target))


def test_a_figure_that_was_written_as_null_is_not_known(ran: Session) -> None:
    ran.say("show the tree")
    folder = ran.folder
    ran.close()
    with closing(connect(folder / "session.sqlite")) as db:
        db.execute(
            "update turns set replies = replace(replies, '\"norm_error\":1.0', "
            "'\"norm_error\":null')"
        )
        (text,) = db.execute("select replies from turns where id = 2").fetchone()
        assert '"norm_error":null' in text
    with Session.reopen(folder) as again:
        (shown,) = again.transcript()[1].replies
        assert isinstance(shown, TreeShown)
        failure = shown.tree.nodes[1].verdict.failure
        assert math.isnan(failure.norm_error)
        assert failure.norm_allowed == 1e-6


def test_turns_that_cannot_be_read_leave_the_session_as_it_is(ran: Session) -> None:
    with closing(connect(ran.folder / "session.sqlite")) as db:
        db.execute("update turns set replies = '[{}]'")
    assert "Cannot read the turns" in text_of(ran.do(WriteTo(name="export")))
    assert "begin a session anew" not in text_of(ran.do(WriteTo(name="export")))
    assert isinstance(ran.do(Plain(name="tree")), TreeShown)


def test_the_last_two_are_the_two_newest(ran: Session) -> None:
    ran.offer("class ModelNew: ...\n", None, "pasted")
    (reply,) = ran.say("compare the last two")
    assert isinstance(reply, Compared)
    assert [node.number for node in reply.nodes] == [3, 4]


def test_the_last_two_of_one_are_one_clear_line(tmp_path: Path) -> None:
    with scripted_session.begin(
        tmp_path, scripted_session.SessionShop((fakes.Script("rows", speedup=1.6),))
    ) as one:
        one.say("run")
        (reply,) = one.say("compare the last two")
        assert isinstance(reply, TextReply)
        assert "one candidate only" in reply.text


def test_undoing_a_step_back_goes_on_again(ran: Session) -> None:
    ran.say("go back to c3")
    ran.say("go back one")
    assert ran.tree.place.candidate == 1
    ran.say("undo that")
    assert ran.tree.place.candidate == 3
    ran.say("undo")
    ran.say("undo")
    assert ran.tree.place.candidate is None


def test_the_settings_come_with_their_keys(session: Session) -> None:
    told = text_of(session.do(Plain(name="settings")))
    assert "seconds: none  (budget.time_s)" in told
    assert "precision: strict  (goals.precision)" in told


def test_why_a_candidate_is_not_persistent_is_said(ran: Session) -> None:
    before = len(ran.tree.nodes)
    for text in ("why not persistent", "why is it not persistent?"):
        assert "cannot be made persistent by its launch" in text_of(ran.say(text)[0])
    assert len(ran.tree.nodes) == before


def test_no_session_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="No session in"):
        Session.reopen(tmp_path / "nowhere")


def test_events_of_a_step_are_heard(tmp_path: Path, shop: scripted_session.SessionShop) -> None:
    heard: list[Event] = []
    with scripted_session.begin(tmp_path, shop, heard.append) as session:
        session.say("run")
    kinds = [item.kind for item in heard]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "finished"


def test_the_python_api(tmp_path: Path, shop: scripted_session.SessionShop) -> None:
    from torch import nn, ones

    runs = str(tmp_path / "runs")
    with open_session(nn.Softmax(dim=-1), (ones(4, 8),), workshop=shop, runs=runs) as session:
        assert isinstance(session.say("run")[0], StepRan)
        assert isinstance(session.say("use batch size 2")[0], PositionChanged)
        folder = session.folder
    with open_session(folder, workshop=shop) as again:
        assert again.problem.problem.shape_sets[0].tensors[0].shape == (2, 8)
        assert again.problem.make_inputs(0, seed=0)[0].shape == (2, 8)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_looking_needs_no_torch_and_is_quick(ran: Session) -> None:
    """In a process of its own: opening the session and turns that need no GPU."""
    folder = ran.folder
    ran.close()
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from agentkernel.chat.session import Session\n"
        f"s = Session.reopen(Path({str(folder)!r}))\n"
        "s.say('show the settings')\n"
        "times = []\n"
        "for text in ('show the tree', 'allow tf32', 'undo', 'compare c1 and c3', 'status'):\n"
        "    began = time.process_time(); s.say(text); times.append(time.process_time() - began)\n"
        "assert 'torch' not in sys.modules\n"
        "print(max(times))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.15


def test_ask_docs_says_what_it_found_or_why_not(session: Session) -> None:
    if importlib.util.find_spec("chromadb") is None:
        pytest.skip("no vector index here")
    reply = session.do(AskDocs(query="split-K"))
    assert reply.kind in ("found", "said")


def test_verify_replays_the_judgement(ran: Session) -> None:
    reply = ran.do(OnCandidate(name="verify", candidate=1))
    assert isinstance(reply, TextReply)
    assert "does not hold" in reply.text  # the real judge does not take the scripted text
    assert "signature valid" in reply.text


def test_a_question_offers_the_words_and_a_yes_does_it(session: Session) -> None:
    (offered,) = session.say("can you use bf16?")
    assert isinstance(offered, ClarificationNeeded)
    assert offered.text.startswith("A question changes nothing. Say 'allow bf16'")
    assert session.settings.goals.precision == "strict"
    session.say("yes")
    assert session.settings.goals.precision == "bf16"


def test_a_question_about_a_knob_is_answered_with_what_tries_it(ran: Session) -> None:
    answer, offer = ran.say("what if I used 4 warps?")
    assert "Nobody knows before it is timed" in text_of(answer)
    assert text_of(offer) == "Say 'use 4 warps', or 'yes', to try it."
