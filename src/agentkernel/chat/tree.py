"""Tree of a session's candidates, steps and branches, and the moves through it.

Every function gives a new tree; nodes and steps are only ever added or completed. Times may be
compared only where they rest on the same basis: measured on one GPU, or estimated for one
target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from agentkernel.chat.requests import CandidateRef
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import UserError
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.verdict import Verdict

Origin = Literal["drafted", "edited", "pasted", "wished", "judged anew"]
"""Who wrote a candidate: a coder, the user in an editor, or the user into the session. `wished` is
another's text with a wish about its launch in it, `judged anew` another's for another target."""
StepState = Literal["running", "done", "stopped", "failed"]
"""`running` is also what a kill leaves: such a step goes on when the session is opened again."""
SettingValue = str | int | float | bool | None
Changes = dict[str, SettingValue]
"""Dotted keys of `Settings` -> values, over what the session began with."""


class Node(Frozen):
    """One candidate; `number` 3 is shown as c3. Numbers are given once and never reused."""

    number: int = Field(ge=1)
    parent: int | None = None
    """The candidate that it was made from; None: the user's module."""
    step: int
    origin: Origin = "drafted"
    candidate: Candidate
    verdict: Verdict | None = None
    profile: Profile | None = None
    unprofiled: ProfileFailed | None = None
    aside: str = ""
    """Why it was not judged: the search had seen it too slow."""


class Step(Frozen):
    """One request that a run answered, or that a hand-written candidate came from."""

    number: int = Field(ge=1)
    text: str
    """The user's own words."""
    base: int | None = None
    """The candidate that it began with; None: the module."""
    changes: Changes = Field(default_factory=dict)
    """All that differs from the session's first settings."""
    run: str | None = None
    state: StepState = "running"
    outcome: str = ""
    """What came of it, in one line."""
    problem: str = ""
    """Of which problem: as in `Place`."""
    origin: Origin = "drafted"
    """Who writes its candidates."""
    seconds: float = 0.0
    """Wall seconds of its run, all processes together."""


class Place(Frozen):
    """Where a session stands: a candidate (None: the module), what was changed, and the branch."""

    candidate: int | None = None
    changes: Changes = Field(default_factory=dict)
    branch: int = 1
    problem: str = ""
    """Which sizes and dtypes: "" for the module as it came, else the key of a derived problem."""


class Branch(Frozen):
    """A line of work: where it began, and where it stands now."""

    number: int = Field(ge=1)
    began: Place
    tip: Place


class Tree(Frozen):
    """All of it. Nothing is ever taken away: undo and redo walk along `places`."""

    nodes: tuple[Node, ...] = ()
    steps: tuple[Step, ...] = ()
    branches: tuple[Branch, ...] = (Branch(number=1, began=Place(), tip=Place()),)
    places: tuple[Place, ...] = (Place(),)
    """Where the session stood, in order; those behind `at` can be redone."""
    at: int = 0
    kept: int | None = None
    """The candidate that the user keeps."""
    rejected: tuple[int, ...] = ()

    @property
    def place(self) -> Place:
        """Where the session stands now."""
        return self.places[self.at]

    def node(self, number: int) -> Node | None:
        """Candidate `number`, None where there is none."""
        return next((item for item in self.nodes if item.number == number), None)

    def step(self, number: int) -> Step | None:
        """Step `number`, None where there is none."""
        return next((item for item in self.steps if item.number == number), None)


class TimeBasis(NamedTuple):
    """Times of one basis may be compared. `where`: the GPU that it was measured on, or the target
    that it was estimated for."""

    measured: bool
    where: str

    @property
    def words(self) -> str:
        """`measured on h200`, `estimated for h100-sxm`."""
        return f"measured on {self.where}" if self.measured else f"estimated for {self.where}"


def basis_of(node: Node) -> TimeBasis | None:
    """What its time rests on; None where it has none."""
    profile = node.profile
    if profile is None:
        return None
    if profile.measurements:
        return TimeBasis(True, profile.measured_on or profile.measurements[0].gpu.name)
    return TimeBasis(False, profile.target)


def for_target(node: Node, target: str | None) -> bool:
    """True where its time is for `target`; None: for any."""
    return node.profile is not None and target in (None, node.profile.target)


class NoSuchCandidate(UserError):
    """No candidate or branch of that name."""


def begin_step(
    tree: Tree,
    text: str,
    *,
    base: int | None = None,
    changes: Changes | None = None,
    origin: Origin = "drafted",
) -> Tree:
    """With one step more, which runs; its problem is that of the place."""
    place = tree.place
    step = Step(
        number=len(tree.steps) + 1,
        text=text,
        base=base,
        changes=place.changes if changes is None else changes,
        problem=place.problem,
        origin=origin,
    )
    return tree.evolve(steps=(*tree.steps, step))


def note_run(tree: Tree, number: int, run: str) -> Tree:
    """Step `number` is the run of that id."""
    return _with_step(tree, number, lambda step: step.evolve(run=run))


def go_on(tree: Tree, number: int, run: str) -> Tree:
    """Step `number`, which was stopped or cut off, runs again as that run."""
    return _with_step(tree, number, lambda step: step.evolve(run=run, state="running"))


def end_step(tree: Tree, number: int, state: StepState, outcome: str, seconds: float) -> Tree:
    """Step `number` came to its end."""
    return _with_step(
        tree, number, lambda step: step.evolve(state=state, outcome=outcome, seconds=seconds)
    )


def _with_step(tree: Tree, number: int, change: Callable[[Step], Step]) -> Tree:
    steps = tuple(change(item) if item.number == number else item for item in tree.steps)
    return tree.evolve(steps=steps)


def grow(tree: Tree, nodes: Sequence[Node]) -> Tree:
    """With more candidates, numbered on from the last one; the numbers that they come with do not
    count."""
    last = max((item.number for item in tree.nodes), default=0)
    added = tuple(item.evolve(number=last + place) for place, item in enumerate(nodes, 1))
    return tree.evolve(nodes=(*tree.nodes, *added))


def complete(tree: Tree, node: Node) -> Tree:
    """With what is known now of the candidate of that number; its text stays."""
    nodes = tuple(
        node.evolve(candidate=item.candidate) if item.number == node.number else item
        for item in tree.nodes
    )
    return tree.evolve(nodes=nodes)


def move(tree: Tree, place: Place) -> Tree:
    """Stand elsewhere. What was undone before stays as a branch, where it held a candidate."""
    if place == tree.place:
        return tree
    kept = tree.places[: tree.at + 1]
    branches = _keeping(tree, tree.places[tree.at + 1 :])
    places = (*kept, place)
    moved = tree.evolve(places=places, at=len(places) - 1, branches=branches)
    return _with_tips(moved)


def stand_again(tree: Tree, before: Tree) -> Tree:
    """With all its candidates, where the session stood `before` them and on the same way."""
    return tree.evolve(places=before.places, at=before.at, branches=before.branches)


def undo(tree: Tree, steps: int = 1) -> Tree:
    """So many places back, at most to the first."""
    return _with_tips(tree.evolve(at=max(0, tree.at - steps)))


def redo(tree: Tree, steps: int = 1) -> Tree:
    """So many places on, at most to the last that was undone."""
    return _with_tips(tree.evolve(at=min(len(tree.places) - 1, tree.at + steps)))


def _with_tips(tree: Tree) -> Tree:
    """Each branch stands where the way to the place left it last; one that the way does not touch
    stays where it is."""
    last = {item.branch: item for item in tree.places[: tree.at + 1]}
    branches = tuple(item.evolve(tip=last.get(item.number, item.tip)) for item in tree.branches)
    return tree.evolve(branches=branches)


def _keeping(tree: Tree, undone: Sequence[Place]) -> tuple[Branch, ...]:
    """The branches, with one for what was undone and is now left behind."""
    held = {item.candidate for item in tree.places[: tree.at + 1]}
    held |= {item.tip.candidate for item in tree.branches}
    left = [item for item in undone if item.candidate not in held]
    if not left:
        return tree.branches
    number = _next_branch(tree)
    tip = left[-1].evolve(branch=number)
    return (*tree.branches, Branch(number=number, began=tree.place, tip=tip))


def fork(tree: Tree, candidate: int | None) -> Tree:
    """Begin a branch at a candidate (None: the module) and stand there. The branch before keeps
    its own tip."""
    began = at_candidate(tree, candidate)
    number = _next_branch(tree)
    place = began.evolve(branch=number)
    branch = Branch(number=number, began=began, tip=place)
    grown = tree.evolve(branches=(*tree.branches, branch))
    return move(grown, place)


def _next_branch(tree: Tree) -> int:
    return max(item.number for item in tree.branches) + 1


def switch(tree: Tree, number: int | None) -> Tree:
    """Stand at the tip of branch `number`; None: the other one, where there are two. Raises
    NoSuchCandidate."""
    others = [item for item in tree.branches if item.number != tree.place.branch]
    known = ", ".join(str(item.number) for item in tree.branches)
    if not others:
        raise NoSuchCandidate("There is one branch only. 'split from here' begins another.")
    if number is None:
        if len(others) > 1:
            raise NoSuchCandidate(
                f"Which branch? There are {known}: 'switch to branch {others[0].number}'."
            )
        return move(tree, others[0].tip)
    if number == tree.place.branch:
        raise NoSuchCandidate(f"Branch {number} is where the session stands. Others: {known}.")
    found = next((item for item in others if item.number == number), None)
    if found is None:
        raise NoSuchCandidate(f"There is no branch {number}. Known: {known}.")
    return move(tree, found.tip)


def return_to(tree: Tree, candidate: int | None) -> Tree:
    """Stand at a candidate again, with the settings and sizes that it was made with."""
    return move(tree, at_candidate(tree, candidate))


def at_candidate(tree: Tree, candidate: int | None) -> Place:
    """The place of a candidate on the present branch; the place itself where it stands there, and
    for the module the present settings."""
    place = tree.place
    node = tree.node(candidate) if candidate is not None else None
    if candidate == place.candidate or node is None:
        return place.evolve(candidate=candidate)
    step = tree.step(node.step)
    if step is None:
        return place.evolve(candidate=candidate)
    return place.evolve(candidate=candidate, changes=step.changes, problem=step.problem)


def keep(tree: Tree, number: int) -> Tree:
    """Candidate `number` is the user's choice; one that was discarded is taken back."""
    rejected = tuple(item for item in tree.rejected if item != number)
    return tree.evolve(kept=number, rejected=rejected)


def reject(tree: Tree, number: int) -> Tree:
    """Discard candidate `number`. It stays in the tree; who stood at it stands at its parent."""
    kept = None if tree.kept == number else tree.kept
    rejected = tree.rejected if number in tree.rejected else (*tree.rejected, number)
    marked = tree.evolve(rejected=rejected, kept=kept)
    node = tree.node(number)
    if tree.place.candidate != number or node is None:
        return marked
    return move(marked, tree.place.evolve(candidate=node.parent))


def is_accepted(node: Node) -> bool:
    """True where the judge passed it and it could be run for the target."""
    broken = node.unprofiled is not None and node.unprofiled.side == "candidate"
    return node.verdict is not None and node.verdict.accepted and not broken


def time_us(node: Node) -> float | None:
    """Its median time for the primary shapes where that was measured, else the estimate."""
    if node.profile is None:
        return None
    if node.profile.measurements:
        return node.profile.measurements[0].candidate.median_us
    return node.profile.estimate.time_us


def fastest(tree: Tree, target: str | None = None) -> int | None:
    """The fastest right candidate for the sizes in force and `target` (None: any) that was not
    discarded: of those whose times can be compared."""
    found = fastest_of(contenders(tree, target))
    return None if found is None else found.number


def fastest_of(nodes: Sequence[Node]) -> Node | None:
    """The one of the least time, of nodes whose times can be compared."""
    return min(nodes, key=lambda node: time_us(node) or 0.0, default=None)


def right_here(tree: Tree, problem: str | None = None) -> tuple[Node, ...]:
    """The right candidates for the inputs in force, or those of `problem`, that were not
    discarded."""
    key = tree.place.problem if problem is None else problem
    return tuple(
        node
        for node in tree.nodes
        if is_accepted(node) and node.number not in tree.rejected and problem_of(tree, node) == key
    )


def contenders(
    tree: Tree, target: str | None = None, problem: str | None = None
) -> tuple[Node, ...]:
    """The right candidates for the inputs in force, or those of `problem`, and `target` (None: any)
    that were not discarded and whose times rest on one basis: the newest measured one's, else the
    newest estimated one's. Where nobody has a time, the first."""
    usable = right_here(tree, problem)
    timed = [(basis, node) for node in usable if (basis := basis_of(node)) is not None]
    if not timed:
        return tuple(usable[:1])
    aimed = [(basis, node) for basis, node in timed if for_target(node, target)]
    if not aimed:
        return ()
    measured = [basis for basis, _ in aimed if basis.measured]
    last = (measured or [basis for basis, _ in aimed])[-1]
    return tuple(node for basis, node in aimed if basis == last)


def better(tree: Tree, pair: tuple[int, int]) -> int | None:
    """The faster of two candidates that are right; None where neither is, has a time, or one is
    measured and the other only estimated, or their times are for two GPUs."""
    nodes = [node for node in map(tree.node, pair) if node is not None and is_accepted(node)]
    timed = [(time, node) for node in nodes if (time := time_us(node)) is not None]
    bases = {basis_of(node) for _, node in timed}
    if not timed or len(bases) > 1:
        return None
    return min(timed, key=lambda item: item[0])[1].number


def problem_of(tree: Tree, node: Node) -> str:
    """The key of the problem that a candidate answers."""
    step = tree.step(node.step)
    return "" if step is None else step.problem


NONE_YET = "There is no candidate yet. 'run' makes the first."


def resolve(tree: Tree, ref: CandidateRef, target: str | None = None) -> int | None:
    """Which candidate is meant, None for the module. "fastest" is that for `target`. Raises
    NoSuchCandidate."""
    if isinstance(ref, int):
        return _numbered(tree, ref)
    if ref == "original":
        return None
    if not tree.nodes and ref != "current":
        raise NoSuchCandidate(NONE_YET)
    current = tree.place.candidate
    match ref:
        case "current":
            return current
        case "last":
            return tree.nodes[-1].number
        case "second_last":
            if len(tree.nodes) < 2:
                raise NoSuchCandidate("There is one candidate only: c1.")
            return tree.nodes[-2].number
        case "fastest" | "better":
            found = fastest(tree, target)
            if found is None:
                raise NoSuchCandidate(_none_fastest(tree, target))
            return found
        case "parent":
            node = tree.node(current) if current is not None else None
            if node is None:
                raise NoSuchCandidate(
                    "The session stands at the module itself, which was made from nothing."
                )
            return node.parent
        case "previous":
            earlier = [item.candidate for item in tree.places[: tree.at]]
            others = [item for item in earlier if item != current]
            if not others:
                raise NoSuchCandidate("The session stood nowhere else before.")
            return others[-1]


def _none_fastest(tree: Tree, target: str | None) -> str:
    elsewhere = fastest(tree)
    node = tree.node(elsewhere) if elsewhere is not None else None
    basis = None if node is None else basis_of(node)
    if basis is None:
        here = " for these inputs" if any(map(is_accepted, tree.nodes)) else ""
        return f"No candidate is right{here} yet: none is the fastest."
    return (
        f"No right candidate has a time for {target} yet: 'run' tries it. {label(elsewhere)} was "
        f"{basis.words}."
    )


def _numbered(tree: Tree, number: int) -> int:
    if tree.node(number) is not None:
        return number
    known = ", ".join(f"c{item.number}" for item in tree.nodes[-12:])
    hint = f"Known: {known}." if known else "There is none yet: 'run' makes the first."
    raise NoSuchCandidate(f"There is no candidate c{number}. {hint}")


def label(number: int | None) -> str:
    """`c3`, or `the module`."""
    return "the module" if number is None else f"c{number}"
