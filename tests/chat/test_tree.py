"""Is nothing ever lost in a session's tree, however somebody walks about in it?"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentkernel.chat import tree as trees
from agentkernel.chat.tree import Branch, Node, NoSuchCandidate, Place, Tree
from agentkernel.domain.candidate import Candidate
from tests.workflows import fakes


def node(step: int, name: str, parent: int | None = None, speedup: float | None = None) -> Node:
    candidate = Candidate(source=name, coder="scripted", round=1, strategy=name)
    measured = (fakes.measurement(candidate_us=20 / speedup),) if speedup else ()
    return Node(
        number=1,
        parent=parent,
        step=step,
        candidate=candidate,
        verdict=fakes.verdict(candidate),
        profile=fakes.profile(candidate, *measured),
    )


def grown(count: int = 3) -> Tree:
    """Candidates c1 to c3 of one step, stood at one after the other."""
    tree = trees.begin_step(Tree(), "run")
    tree = trees.grow(tree, [node(1, f"n{item}", speedup=1.0 + item) for item in range(count)])
    for number in range(1, count + 1):
        tree = trees.move(tree, tree.place.evolve(candidate=number))
    return trees.end_step(tree, 1, "done", "improved", 1.0)


class Walk(RuleBasedStateMachine):
    """Any order of everything that can be done to a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self.seen: dict[int, str] = {}
        self.stood: set[int] = set()

    @rule(count=st.integers(0, 3), text=st.text(max_size=5))
    def run(self, count: int, text: str) -> None:
        base = self.tree.place.candidate
        self.tree = trees.begin_step(self.tree, text, base=base)
        step = self.tree.steps[-1].number
        before = len(self.tree.nodes)
        names = [f"s{step}n{item}" for item in range(count)]
        self.tree = trees.grow(self.tree, [node(step, name, base) for name in names])
        self.tree = trees.end_step(self.tree, step, "done", "", 0.0)
        if count:
            place = self.tree.place.evolve(candidate=before + count)
            self.tree = trees.move(self.tree, place)

    @rule(key=st.sampled_from(["seed", "target"]), value=st.integers(0, 3))
    def change(self, key: str, value: int) -> None:
        changes = {**self.tree.place.changes, key: value}
        self.tree = trees.move(self.tree, self.tree.place.evolve(changes=changes))

    @rule(steps=st.integers(1, 4))
    def undo_then_redo(self, steps: int) -> None:
        back = min(steps, self.tree.at)
        undone = trees.undo(self.tree, steps)
        assert undone.at == self.tree.at - back
        assert trees.redo(undone, back) == self.tree or not back

    @rule(steps=st.integers(1, 4))
    def undo(self, steps: int) -> None:
        self.tree = trees.undo(self.tree, steps)

    @rule()
    def redo(self) -> None:
        self.tree = trees.redo(self.tree)

    @precondition(lambda self: self.tree.nodes)
    @rule(data=st.data())
    def pick(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([item.number for item in self.tree.nodes]))
        act = data.draw(st.sampled_from(["return", "fork", "keep", "reject"]))
        acts = {
            "return": trees.return_to,
            "fork": trees.fork,
            "keep": trees.keep,
            "reject": trees.reject,
        }
        self.tree = acts[act](self.tree, number)

    @rule(number=st.none() | st.integers(1, 5))
    def switch(self, number: int | None) -> None:
        with suppress(NoSuchCandidate):
            self.tree = trees.switch(self.tree, number)

    @invariant()
    def nothing_is_lost(self) -> None:
        now = {item.number: item.candidate.source for item in self.tree.nodes}
        assert self.seen.items() <= now.items()
        self.seen = now
        numbers = [item.number for item in self.tree.nodes]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len({item.number for item in self.tree.branches}) == len(self.tree.branches)

    @invariant()
    def the_place_is_in_the_tree(self) -> None:
        place = self.tree.place
        assert place.candidate is None or self.tree.node(place.candidate) is not None
        tips = {item.number: item.tip for item in self.tree.branches}
        assert tips[place.branch] == place
        assert all(tip.branch == number for number, tip in tips.items())

    @invariant()
    def it_survives_being_written(self) -> None:
        assert Tree.model_validate_json(self.tree.model_dump_json()) == self.tree


Walk.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
TestWalk = Walk.TestCase


@given(st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_undo_then_redo_is_identity(count: int, steps: int) -> None:
    tree = grown(count)
    back = min(steps, tree.at)
    assert trees.redo(trees.undo(tree, steps), back) == tree


def test_what_was_undone_stays_as_a_branch() -> None:
    tree = trees.undo(grown(3), 2)
    assert tree.place.candidate == 1
    tree = trees.move(tree, tree.place.evolve(changes={"seed": 1}))
    assert [item.tip.candidate for item in tree.branches] == [1, 3]
    back = trees.switch(tree, 2)
    assert isinstance(back, Tree)
    assert back.place.candidate == 3
    assert back.place.branch == 2


def test_a_fork_leaves_the_other_branch_where_it_was() -> None:
    tree = trees.fork(grown(3), 2)
    assert tree.place == Place(candidate=2, branch=2)
    assert tree.branches[0] == Branch(number=1, began=Place(), tip=Place(candidate=3))
    other = trees.switch(tree, None)
    assert isinstance(other, Tree)
    assert other.place.candidate == 3


def test_going_back_to_a_candidate_brings_its_settings_and_sizes() -> None:
    tree = grown(1)
    place = Place(candidate=1, changes={"goals.precision": "tf32"}, problem="p1")
    tree = trees.move(tree, place)
    tree = trees.begin_step(tree, "run", base=1)
    tree = trees.grow(tree, [node(2, "late", 1)])
    tree = trees.move(tree, place.evolve(candidate=2))
    assert trees.return_to(tree, 1).place == Place(candidate=1)
    assert trees.return_to(trees.return_to(tree, 1), 2).place == tree.place


def test_undo_past_a_fork_and_back_moves_no_branch() -> None:
    tree = trees.fork(grown(1), 1)
    assert trees.redo(trees.undo(tree, 2), 2) == tree


def test_discarding_stands_at_the_parent_and_keeping_takes_back() -> None:
    tree = trees.grow(trees.begin_step(grown(1), "run", base=1), [node(2, "child", 1)])
    tree = trees.move(tree, tree.place.evolve(candidate=2))
    tree = trees.reject(trees.keep(tree, 2), 2)
    assert (tree.place.candidate, tree.rejected, tree.kept) == (1, (2,), None)
    assert trees.reject(tree, 2) == tree
    tree = trees.keep(tree, 2)
    assert (tree.rejected, tree.kept) == ((), 2)


def test_references() -> None:
    tree = grown(3)
    assert trees.resolve(tree, 2) == 2
    assert trees.resolve(tree, "current") == 3
    assert trees.resolve(tree, "last") == 3
    assert trees.resolve(tree, "previous") == 2
    assert trees.resolve(tree, "fastest") == 3
    assert trees.resolve(trees.reject(tree, 3), "fastest") == 2
    assert trees.resolve(tree, "parent") is None
    assert trees.resolve(tree, "original") is None


def test_the_fastest_is_a_measured_one() -> None:
    tree = trees.begin_step(Tree(), "run")
    tree = trees.grow(tree, [node(1, "guess"), node(1, "fact", speedup=1.1)])
    assert trees.resolve(tree, "fastest") == 2


def test_the_better_of_two_is_known_only_where_both_were_timed_alike() -> None:
    tree = trees.begin_step(Tree(), "run")
    tree = trees.grow(
        tree, [node(1, "guess"), node(1, "fact", speedup=1.1), node(1, "faster", speedup=2.0)]
    )
    assert trees.better(tree, (2, 3)) == trees.better(tree, (3, 2)) == 3
    assert trees.better(tree, (1, 3)) is None
    assert trees.resolve(tree, "better") == trees.resolve(tree, "fastest") == 3


def test_missing_references_say_what_there_is() -> None:
    for tree, ref, said in (
        (grown(2), 9, "c1, c2"),
        (Tree(), 1, "'run' makes the first"),
        (Tree(), "fastest", "no candidate yet"),
        (Tree(), "last", "no candidate yet"),
        (trees.undo(grown(1)), "parent", "the module itself"),
        (trees.undo(grown(1)), "previous", "nowhere else"),
    ):
        with pytest.raises(NoSuchCandidate, match=said) as found:
            trees.resolve(tree, ref)  # type: ignore[arg-type]
        assert "\n" not in str(found.value)
