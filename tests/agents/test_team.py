"""Each of a team gets its turn on what is best then, and the best stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.planner import ModelPlanner, RulesPlanner
from agentkernel.agents.protocols import Goals, PlanRequest
from agentkernel.agents.team import TeamCoder, TeamPlanner, Turn, read_turn
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable, NotRecorded
from agentkernel.domain.exchange import Reply as Says
from agentkernel.domain.plan import Hypothesis
from agentkernel.workflows.events import CandidateDrafted, Decided, Event
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest
from tests.agents.models.model_cases import H100, SAMPLING, ScriptedModel, analysis, request, right
from tests.agents.team_models import Speaking, TeamShop, answer, source
from tests.workflows.fakes import ANALYSIS, Script, settings, small_problem

ANN, BOB = "chat:openai:ann", "chat:openai:bob"
GONE = ModelUnavailable("Model 'chat:openai:ann' does not answer: gone. Next: start it.")
FAST = Script("fused", speedup=1.5, compiled=1.3)
SLOW = Script("library", speedup=1.35, compiled=1.3)
SAME = {"one": 1.4, "two": 1.4}
GOAL = "goals.speedup=9"
"""A goal that nobody reaches."""


class Run:
    """A run of a team with what happened in it."""

    def __init__(self, folder: Path, shop: TeamShop, *overrides: str, again: bool = False) -> None:
        self.shop = shop
        self.events: list[Event] = []
        self.runs = folder / "runs"
        self.result = self._again() if again else self._first(folder, overrides)

    def _first(self, folder: Path, overrides: tuple[str, ...]) -> Result:
        chosen = settings(self.runs, "coder=team", GOAL, "budget.patience=null", *overrides)
        request = OptimizeRequest(small_problem(folder), chosen)
        return run(request, self.events.append, workshop=self.shop)

    def _again(self) -> Result:
        return resume("last", self.events.append, runs=self.runs, workshop=self.shop)

    @property
    def drafts(self) -> list[CandidateDrafted]:
        return [item for item in self.events if isinstance(item, CandidateDrafted)]

    @property
    def coders(self) -> list[str]:
        return [item.coder for item in self.drafts]

    @property
    def stop(self) -> str | None:
        return next(item for item in reversed(self.events) if isinstance(item, Decided)).stop

    @property
    def handed(self) -> str:
        return Path(self.result.candidate or "").read_text()


def said(*names: str) -> list[str | ModelUnavailable]:
    return [answer(name) for name in names]


def shop(*scripts: Script, **more: object) -> TeamShop:
    return TeamShop(scripts or (FAST, SLOW), **more)  # type: ignore[arg-type]


def test_the_compiler_first_and_then_each_in_turn(tmp_path: Path) -> None:
    team = shop(
        answers={ANN: said("one", "three"), BOB: said("two", "four")},
        speeds={"one": 1.4, "two": 1.6, "three": 1.45, "four": 1.7},
    )
    made = Run(tmp_path, team, "budget.rounds=6")
    assert made.coders == ["scripted", "scripted", ANN, BOB, ANN, BOB]
    parents = [item.parent for item in made.drafts]
    fused, two = made.drafts[0].candidate, made.drafts[3].candidate
    assert parents[2:] == [fused, fused, two, two], "each goes on from the best of that moment"
    assert made.stop == "rounds"
    assert made.handed == source("four")
    assert "drawn up as two" in team.questions(BOB)[1].messages[0].text


def test_every_member_has_a_turn_within_the_rounds(tmp_path: Path) -> None:
    many = tuple(Script(f"s{index}", speedup=1.4, compiled=1.3) for index in range(5))
    team = shop(*many, answers={ANN: said("one"), BOB: said("two")}, speeds=SAME)
    assert Run(tmp_path, team, "budget.rounds=3").coders == ["scripted", ANN, BOB]


def test_the_compiler_goes_on_until_something_is_right(tmp_path: Path) -> None:
    wrong = [Script(f"s{index}", drafted=False) for index in range(3)]
    team = shop(*wrong, FAST, SLOW, answers={ANN: said("one")}, speeds={"one": 1.4})
    made = Run(tmp_path, team, "budget.rounds=6")
    assert [item.strategy for item in made.drafts][:5] == ["s0", "s1", "s2", "fused", "library"]
    assert made.drafts[5].strategy.startswith("improve ")


def test_members_that_are_worse_change_nothing_and_end_it(tmp_path: Path) -> None:
    team = shop(
        answers={ANN: said("one", "three"), BOB: said("two", "four")},
        speeds={"one": 1.2, "two": 1.1, "three": None, "four": 1.0},
    )
    made = Run(tmp_path, team, "budget.rounds=20", "budget.patience=3", "budget.repairs=0")
    assert (made.stop, len(made.drafts)) == ("stagnation", 5)
    assert "'''fused first'''" in made.handed


def test_a_goal_that_the_compiler_reaches_needs_no_model(tmp_path: Path) -> None:
    team = shop(Script("fused", speedup=2.0), answers={ANN: said("one")})
    made = Run(tmp_path, team, "goals.speedup=1.2")
    assert (made.stop, made.coders) == ("met", ["scripted"])
    assert team.questions(ANN) == []


@pytest.mark.parametrize("bad", [[GONE, GONE], ["No.", "Still no."]])
def test_who_fails_costs_its_turn_and_nothing_else(
    tmp_path: Path, bad: list[str | ModelUnavailable]
) -> None:
    team = shop(answers={ANN: bad, BOB: said("two", "four")}, speeds={"two": 1.6, "four": 1.7})
    made = Run(tmp_path, team, "budget.rounds=6")
    lost = [item for item in made.drafts if item.candidate is None]
    assert lost
    assert all("ann loses its turn" in (item.reason or "") for item in lost)
    assert [item.coder for item in made.drafts if item.candidate] == ["scripted"] * 2 + [BOB] * 2
    assert made.result.status == "improved"
    assert made.handed == source("four")


def test_all_are_away_but_the_verified_candidate_is_handed_over(tmp_path: Path) -> None:
    team = shop(answers={ANN: [GONE] * 9, BOB: [GONE] * 9})
    made = Run(tmp_path, team)
    assert made.result.status == "improved"
    assert "'''fused first'''" in made.handed


def test_nobody_stands_in_for_an_answer_that_a_replay_lacks(tmp_path: Path) -> None:
    lacking = NotRecorded("Run 'r' holds no answer to this question.")
    team = shop(answers={ANN: [lacking], BOB: said("two")}, speeds=SAME)
    with pytest.raises(NotRecorded, match="holds no answer"):
        Run(tmp_path, team, "budget.rounds=4")


def test_nobody_is_there_and_nothing_verified(tmp_path: Path) -> None:
    none = Script("fused", drafted=False)
    team = shop(none, answers={ANN: [GONE] * 9, BOB: [GONE] * 9})
    with pytest.raises(ModelUnavailable, match="does not answer: gone"):
        Run(tmp_path, team)
    assert [len(team.questions(name)) for name in (ANN, BOB)] == [1, 1]


def test_without_a_template_a_member_begins_and_the_next_goes_on(tmp_path: Path) -> None:
    none = Script("fused", drafted=False)
    team = shop(none, answers={ANN: said("one"), BOB: said("two")}, speeds={"one": 1.4, "two": 1.5})
    made = Run(tmp_path, team, "budget.rounds=3")
    assert made.drafts[1].strategy == f"one fused kernel with {ANN}, turn 1"
    assert made.drafts[2].strategy == f"improve {made.drafts[1].candidate} with {BOB}, turn 2"
    assert made.handed == source("two")


def test_from_scratch_nobody_is_shown_a_file(tmp_path: Path) -> None:
    team = shop(answers={ANN: said("one", "two")}, speeds={"one": 1.6, "two": 1.4})
    made = Run(tmp_path, team, "team.from_scratch=true", "budget.rounds=4")
    assert [item.strategy for item in made.drafts[2:]] == [
        f"one fused kernel with {ANN}, turn 1",
        f"two passes with {ANN}, turn 2",
    ]
    assert all(item.parent is None for item in made.drafts)
    told = "".join(item.messages[0].text for item in team.questions(ANN))
    assert "class ModelNew:" not in told
    assert "drawn up as" not in told


def test_a_beam_of_two_improves_the_best_two_in_turn(tmp_path: Path) -> None:
    edit = (
        "<<<<<<< SEARCH\n    '''library first'''\n=======\n    '''drawn up as two'''\n"
        ">>>>>>> REPLACE\n"
    )
    team = shop(answers={ANN: [answer("one"), edit]}, speeds={"one": 1.2, "two": 1.7})
    made = Run(tmp_path, team, "team.beam=2", "budget.rounds=4")
    fused, library = (item.candidate for item in made.drafts[:2])
    assert [item.parent for item in made.drafts[2:]] == [fused, library]
    first, second = (item.messages[0].text for item in team.questions(ANN))
    assert "## The best right file so far" in first
    assert "## A right file\n" in second
    assert made.handed == "class ModelNew:\n    '''drawn up as two'''\n"


def test_all_members_improve_one_before_the_next_of_the_beam(tmp_path: Path) -> None:
    slower = dict.fromkeys(("one", "two", "three", "four"), 1.2)
    answers = {ANN: said("one", "three"), BOB: said("two", "four")}
    made = Run(
        tmp_path, shop(answers=answers, speeds=slower), "team.beam=2", "budget.rounds=6"
    )  # fmt: skip
    fused, library = (item.candidate for item in made.drafts[:2])
    assert [item.parent for item in made.drafts[2:]] == [fused, fused, library, library]


def test_by_class_says_who_gets_the_turns(tmp_path: Path) -> None:
    answers = {ANN: said("one"), BOB: said("two", "four")}
    team = shop(answers=answers, speeds={"two": 1.4, "four": 1.5}, by_class={"memory": (BOB,)})
    made = Run(tmp_path, team, "budget.rounds=4")
    assert made.coders == ["scripted", "scripted", BOB, BOB]


def test_by_class_may_leave_it_to_the_compiler(tmp_path: Path) -> None:
    team = shop(answers={ANN: said("one")}, by_class={"memory": ()})
    made = Run(tmp_path, team)
    assert (made.coders, made.stop) == (["scripted"] * 2, "hypotheses")
    plans = [item for item in made.events if item.kind == "node_started" and item.node == "plan"]
    assert len(plans) == 2, "once it has nothing new to say it is not asked again"


def test_tokens_end_it(tmp_path: Path) -> None:
    team = shop(answers={ANN: said("one", "two", "three")}, speeds={"one": 1.4, "two": 1.4})
    assert Run(tmp_path, team, "budget.tokens=2000", "budget.rounds=9").stop == "tokens"
    assert len(team.questions(ANN)) == 2


def test_a_wrong_file_is_mended_by_who_wrote_it_with_the_same_parent_in_sight(
    tmp_path: Path,
) -> None:
    team = shop(
        answers={ANN: said("bad", "mended"), BOB: said("two")},
        speeds={"bad": None, "mended": 1.6, "two": 1.2},
    )
    made = Run(tmp_path, team, "budget.rounds=4")
    assert made.coders == ["scripted", "scripted", ANN, ANN, BOB]
    first, mending = team.questions(ANN)
    assert "'''fused first'''" in first.messages[0].text
    assert "'''fused first'''" in mending.messages[0].text
    assert "drawn up as bad" in mending.messages[1].text
    assert made.drafts[3].parent == made.drafts[2].candidate
    assert made.handed == source("mended")


def test_resume_asks_nobody_again(tmp_path: Path) -> None:
    def stop(candidate: Candidate) -> None:
        if "drawn up as two" in candidate.source:
            raise KeyboardInterrupt

    answers = {ANN: [GONE, answer("three")], BOB: said("two", "four")}
    speeds = {"two": 1.6, "three": 1.7, "four": 1.4}
    first = Run(tmp_path, shop(answers=answers, speeds=speeds, on_judge=stop), "budget.rounds=6")
    assert first.result.interrupted
    later = shop(answers={ANN: said("three"), BOB: said("four")}, speeds=speeds)
    made = Run(tmp_path, later, again=True)
    assert made.coders == [ANN, BOB]
    assert made.drafts[0].strategy.endswith(f"with {ANN}, turn 3")
    assert [len(later.questions(name)) for name in (ANN, BOB)] == [1, 1]
    assert made.handed == source("three")


def test_a_run_whose_checkpoint_is_lost_is_the_same_again_and_asks_nobody(tmp_path: Path) -> None:
    answers = {ANN: [GONE, answer("three")], BOB: said("two", "four")}
    speeds = {"two": 1.6, "three": 1.7, "four": 1.4}
    first = Run(tmp_path, shop(answers=answers, speeds=speeds), "budget.rounds=6")
    folder = next((tmp_path / "runs").iterdir())
    (folder / "checkpoint.sqlite").unlink()
    Path(first.result.report or "").unlink()
    later = shop(answers={ANN: [], BOB: []}, speeds=speeds)
    made = Run(tmp_path, later, again=True)
    assert [item.strategy for item in made.drafts] == [item.strategy for item in first.drafts]
    assert [later.questions(name) for name in (ANN, BOB)] == [[], []]
    assert made.handed == source("three")


REVIEW = """ANALYSIS
The row is read twice.

OPTIMIZATIONS
1. Keep the row in registers.

ESTIMATED_SPEEDUP
1.25x
"""


def test_a_review_of_the_parent_is_shown_once_asked_for_and_remembered(tmp_path: Path) -> None:
    reviewer = Speaking([REVIEW], name="chat:openai:critic")
    team = shop(
        answers={ANN: said("one"), BOB: said("two")}, speeds={"one": 1.2, "two": 1.6},
        reviewer=reviewer,
    )  # fmt: skip
    made = Run(tmp_path, team, "budget.rounds=4")
    assert len(reviewer.questions) == 1
    for name in (ANN, BOB):
        told = team.questions(name)[0].messages[0].text
        assert "The row is read twice." in told
        assert "Keep the row in registers." in told
    plans = [item.plan.hypotheses for item in made.events if item.kind == "planned"]
    (turn,) = plans[-1]
    assert turn.predicted_us == pytest.approx(20.0 / 1.5 / 1.25)
    assert turn.predicted_by == "chat:openai:critic"


def test_a_reviewer_that_is_away_is_asked_once_a_candidate_and_missed_aloud(tmp_path: Path) -> None:
    reviewer = Speaking([GONE, REVIEW], name="chat:openai:critic")
    team = shop(
        answers={ANN: said("one"), BOB: said("two")}, speeds={"one": 1.2, "two": 1.6},
        reviewer=reviewer,
    )  # fmt: skip
    made = Run(tmp_path, team, "budget.rounds=4")
    assert len(reviewer.questions) == 1
    (turn,) = [item.plan.hypotheses for item in made.events if item.kind == "planned"][-1]
    assert "no review: Model 'chat:openai:ann' does not answer" in turn.reason
    assert turn.predicted_by == ""
    assert made.handed == source("two")


def test_without_a_gpu_members_are_asked_as_long_as_the_roofline_leaves_room(
    tmp_path: Path,
) -> None:
    team = shop(
        Script("fused"), Script("library"),
        answers={ANN: said("one", "two")}, estimates={"one": 2.2, "two": 2.0},
    )  # fmt: skip
    made = Run(tmp_path, team, "budget.rounds=9")
    assert [item.coder for item in made.drafts][-2:] == [ANN, ANN]
    assert made.stop == "estimate", "2.0 us is the roofline of the fake analysis"
    assert made.handed == source("two")


def test_without_a_gpu_what_the_compiler_promises_no_gain_from_is_passed_over(
    tmp_path: Path,
) -> None:
    team = shop(
        Script("fused"), Script("library"),
        answers={ANN: said("one")}, estimates={"one": 2.0},
    )  # fmt: skip
    team.coder.predicted_us = 100.0
    assert Run(tmp_path, team).coders == ["scripted", ANN]


def test_without_a_gpu_nobody_is_asked_where_the_compiler_is_at_the_roofline(
    tmp_path: Path,
) -> None:
    near = ANALYSIS.evolve(bound_us=2.45)
    team = shop(Script("fused"), answers={ANN: said("one")}, analysis=near)
    made = Run(tmp_path, team)
    assert (made.stop, made.coders) == ("estimate", ["scripted"])


def test_a_turn_is_read_as_it_was_written() -> None:
    for turn in (Turn(3, ANN, parent="0123456789"), Turn(12, f"{BOB} #2", idea="two passes")):
        assert read_turn(turn.strategy) == turn
    assert read_turn("fused") is None


def member(name: str, said: list[str | ModelUnavailable]) -> ModelCoder:
    return ModelCoder(name, ScriptedModel(said, name=name), SAMPLING)


def test_a_file_made_from_one_for_declared_sizes_is_judged_as_such_a_file(tmp_path: Path) -> None:
    fixed = right()
    lifted = fixed.candidate.evolve(coder="compiler", declared_sizes=True)
    team = TeamCoder(member(BOB, []), [member(ANN, [answer("one")])])
    turn = Turn(1, ANN, parent=lifted.id)
    asked = request(
        (fixed.evolve(candidate=lifted),),
        hypothesis=Hypothesis(strategy=turn.strategy, reason=""),
    )
    made = team.draft(small_problem(tmp_path), asked).candidate
    assert (made.declared_sizes, made.parent, made.coder) == (True, lifted.sha256, ANN)


def test_samples_left_over_stay_with_who_gave_them(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    ann, bob = member(ANN, [answer("one")]), member(f"{ANN} #2", [answer("two")])
    for each in (ann, bob):
        each._keep(1, Says(texts=(answer("one"), answer("spare")), finish=("stop", "stop")))
    team = TeamCoder(member(BOB, []), [ann, bob])
    first = right(source=source("one")).model_copy()
    drawn = first.candidate.evolve(coder=ANN, parent="p" * 64)
    history = (first.evolve(candidate=drawn),)

    def drafted(turn: Turn) -> Candidate:
        hypothesis = Hypothesis(strategy=turn.strategy, reason="")
        made = team.draft(problem, request(history, hypothesis=hypothesis)).candidate
        assert made is not None
        return made

    other = drafted(Turn(2, f"{ANN} #2", parent=drawn.id))
    assert (other.source, other.parent) == (source("two"), drawn.sha256)
    own = drafted(Turn(3, ANN, parent=drawn.id))
    assert (own.source, own.parent, own.note) == (
        source("spare"), "p" * 64, "another sample of round 1",
    )  # fmt: skip
    assert own.strategy == Turn(3, ANN, parent=drawn.id).strategy


def test_a_planner_that_is_a_model_says_what_the_member_is_to_try(tmp_path: Path) -> None:
    told = (
        '{"hypotheses": [{"strategy": "persistent rows", "reason": "fewer launches", '
        '"predicted_us": 170.0, "predicted_speedup": null}]}'
    )
    nothing = RulesPlanner(lambda problem, target: ())
    ideas = ModelPlanner(ScriptedModel([told], name=BOB), nothing, SAMPLING)
    team = TeamCoder(member(BOB, []), [member(ANN, [])])
    planner = TeamPlanner(nothing, team, 5, ideas=ideas)
    best = right()
    problem = small_problem(tmp_path)
    made = planner.plan(
        PlanRequest(problem, analysis(), H100, Goals(), (best,), exhausted=("fused",))
    )
    (turn,) = made.hypotheses
    assert turn.strategy == f"improve {best.candidate.id} with {ANN}, turn 1"
    assert "persistent rows: fewer launches" in turn.reason
    assert (turn.predicted_us, turn.predicted_by) == (170.0, BOB)


def test_one_that_only_a_class_names_drafts_too(tmp_path: Path) -> None:
    cid = member("chat:openai:cid", [answer("one")])
    team = TeamCoder(member(BOB, []), [member(ANN, [])], {"memory": (cid.name,)}, [cid])
    assert [item.name for item in team.members_for("memory")] == [cid.name]
    hypothesis = Hypothesis(strategy=Turn(1, cid.name, idea="tiled").strategy, reason="")
    made = team.draft(small_problem(tmp_path), request(hypothesis=hypothesis)).candidate
    assert made.coder == cid.name
