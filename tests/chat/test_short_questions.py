"""Are greetings, "was that better?", memory and foresight answered by what holds here?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.replies import Compared, DiffOf, PositionChanged, Reply, StepRan, TextReply
from agentkernel.chat.requests import Run, SetDtype, Understood
from agentkernel.chat.session import Session
from tests.chat import scripted_session
from tests.chat.test_knowledge import EstimatingShop
from tests.workflows import fakes

RIGHT = "import torch\n\n\nclass ModelNew:\n    pass\n"
WRONG = f"# wrong\n{RIGHT}"


def text_of(reply: Reply) -> str:
    assert isinstance(reply, TextReply), reply
    return reply.text


@pytest.mark.parametrize("asked", ["make it better", "make this even better", "improve it"])
def test_better_is_run_as_faster_is(ran: Session, asked: str) -> None:
    assert understand(asked, ran.context) == Understood(intents=(Run(),))
    assert understand(f"can you {asked}?", ran.context) != Understood(intents=(Run(),))


def test_better_begins_a_step(session: Session) -> None:
    (reply,) = session.say("make it better")
    assert isinstance(reply, StepRan)


@pytest.mark.parametrize("asked", ["was that better?", "is it better now?", "did that improve it?"])
def test_a_step_is_set_against_what_it_began_with(ran: Session, asked: str) -> None:
    ran.offer(WRONG, 1, "edited")
    ran.offer(RIGHT, 1, "edited")
    (reply,) = ran.say(asked)
    assert isinstance(reply, Compared)
    assert [node.number for node in reply.nodes] == [1, 5], "what it was made of"
    ran.offer(f"{WRONG}# twice\n", 1, "edited")
    said = text_of(ran.say(asked)[0])
    assert (
        said == "No: c6 is not right: refused at the gate correctness (mismatch). c5 still counts."
    )


def test_before_a_step_there_is_nothing_better(session: Session) -> None:
    assert text_of(session.say("was that better?")[0]).startswith("There is no candidate yet")


def test_one_candidate_is_not_set_beside_itself(ran: Session) -> None:
    (reply,) = ran.say("is it better than c1?")
    assert text_of(reply) == "c1 is one candidate: there is nothing to compare it with."


ASKED_OF_MEMORY = (
    "how much memory does it need",
    "what is the peak memory?",
    "how much vram does c1 use?",
)


@pytest.mark.parametrize("asked", ASKED_OF_MEMORY)
def test_the_peak_that_was_measured_is_said(ran: Session, asked: str) -> None:
    said = text_of(ran.say(asked)[0])
    assert said.startswith("c1: peak memory 1 KiB, eager's ")
    assert "measured on" in said


@pytest.mark.parametrize("asked", ASKED_OF_MEMORY)
def test_without_a_gpu_the_least_bytes_are_said(tmp_path: Path, asked: str) -> None:
    with scripted_session.begin(tmp_path, EstimatingShop((fakes.Script("rows"),))) as session:
        session.say("run")
        assert text_of(session.say(asked)[0]) == (
            "c1: peak memory was not measured, for there was no GPU. A call reads and writes 256 B "
            "at least."
        )


def test_of_the_module_alone_the_least_bytes_are_said(session: Session) -> None:
    said = text_of(session.say("how much memory does it need")[0])
    assert said.startswith("The module's peak memory was not measured. A call reads and writes ")


@pytest.mark.parametrize("hello", ["hi", "Hello!", "hey there", "good afternoon"])
def test_a_greeting_is_told_what_can_be_asked(session: Session, hello: str) -> None:
    assert text_of(session.say(hello)[0]).startswith("Hello. Ask in plain words")


@pytest.mark.parametrize("asked", ["should I use tf32?", "would tf32 help?", "should I allow tf32"])
def test_whether_a_format_pays_is_answered_from_the_module(ran: Session, asked: str) -> None:
    before = ran.tree
    said = text_of(ran.say(asked)[0])
    assert "'allow tf32' and 'run' try it. It changes little here: the module has no" in said
    assert ran.tree == before


def test_a_format_that_is_allowed_is_said_to_be(ran: Session) -> None:
    ran.say("allow tf32")
    assert text_of(ran.say("should I use tf32?")[0]).startswith("tf32 is allowed already")


def test_a_question_before_the_timing_keeps_to_its_own_number(ran: Session) -> None:
    first, second = ran.say("would it be faster with 2 warps?")
    assert text_of(first) == "Nobody knows before it is timed. Nothing was changed."
    assert "'use 2 warps'" in text_of(second)
    (alone,) = ran.say("would it be faster with 2 warps")
    assert "'use 2 warps' judges it" in text_of(alone)
    assert "8 warps" not in text_of(first) + text_of(second) + text_of(alone)


DIFFERENCES = (
    "what is different between it and the last one?",
    "difference between c1 and the last one",
    "diff c1 against the latest",
    "how does it differ from the newest candidate?",
    "what changed between the last one and c1?",
)
COMPARISONS = (
    "compare it with the last one",
    "compare the latest with c1",
    "how does c1 compare to the last one?",
    "c1 vs the last one",
    "is it better than the last one?",
)


@pytest.mark.parametrize("asked", DIFFERENCES)
def test_the_last_one_is_the_newest_candidate(ran: Session, asked: str) -> None:
    ran.say("go back to c1")
    (reply,) = ran.say(asked)
    assert isinstance(reply, DiffOf)
    assert (reply.old, reply.new) == ("c1.py", "c3.py")


@pytest.mark.parametrize("asked", COMPARISONS)
def test_a_candidate_is_set_beside_the_last_one(ran: Session, asked: str) -> None:
    ran.say("go back to c1")
    (reply,) = ran.say(asked)
    assert isinstance(reply, Compared)
    assert [node.number for node in reply.nodes] == [1, 3]


@pytest.mark.parametrize("asked", ["compare it with the last one", DIFFERENCES[0]])
def test_at_the_newest_the_last_one_is_the_one_before(ran: Session, asked: str) -> None:
    ran.offer(RIGHT, 1, "edited")
    (reply,) = ran.say(asked)
    if isinstance(reply, DiffOf):
        assert (reply.old, reply.new) == ("c3.py", "c4.py")
    else:
        assert isinstance(reply, Compared)
        assert [node.number for node in reply.nodes] == [3, 4]


@pytest.mark.parametrize("asked", [*DIFFERENCES, *COMPARISONS])
def test_one_candidate_alone_is_said_to_be(tmp_path: Path, asked: str) -> None:
    with scripted_session.begin(tmp_path, EstimatingShop((fakes.Script("rows"),))) as session:
        session.say("run")
        assert text_of(session.say(asked)[0]).startswith("c1 is the only candidate: ")


ASKED_OF_BYTES = (
    "how many bytes does it read and write?",
    "how much data does it move?",
    "how much does it read from memory?",
    "how many bytes are moved",
)


@pytest.mark.parametrize("asked", ASKED_OF_BYTES)
def test_the_bytes_that_were_counted_are_said(tmp_path: Path, asked: str) -> None:
    with scripted_session.begin(tmp_path, EstimatingShop((fakes.Script("rows"),))) as session:
        before = text_of(session.say(asked)[0])
        assert before.startswith("Eager's operations read and write 256 B in a call")
        session.say("run")
        said = text_of(session.say(asked)[0])
        assert said.startswith("c1 reads and writes ")
        assert said.endswith("The least is 256 B: each input, weight and output once.")


def test_a_wish_with_no_number_is_shown_how_it_is_said(ran: Session) -> None:
    (reply,) = ran.say("set warps to banana")
    examples = [item.example for item in reply.nearest]  # type: ignore[union-attr]
    assert examples[0] == "use 4 warps"
    assert "quit" not in examples


def test_rounding_is_asked_about_in_one_more_word(ran: Session) -> None:
    told = text_of(ran.say("would bf16 rounding help?")[0])
    assert told.startswith("Nobody knows before it is timed: 'allow bf16' and 'run' try it.")


@pytest.mark.parametrize("wish", ["make it fast", "make it fsat", "make it fatser"])
def test_a_misspelt_wish_for_speed_runs(ran: Session, wish: str) -> None:
    assert understand(wish, ran.context) == Understood(intents=(Run(),))


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("use a bock size of 512", "use a block size of 512"),
     ("which line launchs the kernel", "which line launches the kernel"),
     ("how do i mesure it for real", "how do i measure it for real")],
)  # fmt: skip
def test_a_word_that_is_misspelt_by_a_letter_is_read(
    ran: Session, misspelt: str, meant: str
) -> None:
    context = ran.context
    found = understand(misspelt, context)
    assert isinstance(found, Understood)
    assert found == understand(meant, context)


def test_never_mind_says_what_was_set_last_and_stays(ran: Session) -> None:
    nothing = "Nothing was waiting for an answer, and nothing was changed."
    assert text_of(ran.say("never mind")[0]) == nothing
    ran.say("allow tf32")
    told = text_of(ran.say("never mind")[0])
    assert "What was set last stays: precision: strict -> tf32. 'undo' takes it back." in told
    ran.say("undo")
    assert text_of(ran.say("never mind")[0]) == nothing


def test_another_dtype_is_said_to_be_another_problem(ran: Session) -> None:
    moved = ran.do(SetDtype(dtype="float16"))
    assert isinstance(moved, PositionChanged)
    assert "This dtype is another problem" in moved.text
    assert moved.place.problem
    back = ran.do(SetDtype(dtype="float32"))
    assert isinstance(back, PositionChanged)
    assert back.text.startswith("the module's own inputs: ")
    assert back.place.problem == ""
