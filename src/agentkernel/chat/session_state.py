"""State of an open session: tree, settings, module, target and goal.

Changed settings are kept as dotted keys over those that the session began with. The goal is
checked against the roofline.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agentkernel.agents.models.protocol import Model
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.protocols import Goals
from agentkernel.chat.figures import EstimateCache, ModuleEstimate
from agentkernel.chat.problem_sizes import restored
from agentkernel.chat.requests import CandidateRef, Intent, IntentContext
from agentkernel.chat.store import SessionStore
from agentkernel.chat.tree import (
    NONE_YET,
    Changes,
    Node,
    NoSuchCandidate,
    Place,
    SettingValue,
    Tree,
    better,
    fastest,
    for_target,
    is_accepted,
    label,
    problem_of,
    resolve,
    right_here,
)
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import AgentKernelError, SettingError, UnknownTarget, expected_of
from agentkernel.domain.exchange import Sampling
from agentkernel.domain.plan import Analysis, Plan
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Estimate, Measurement
from agentkernel.domain.settings import Settings
from agentkernel.storage.records import Records
from agentkernel.tools.own_files import LIVE, read_live
from agentkernel.tools.targets import find_target, load_targets
from agentkernel.workflows.events import (
    ModelPassedOver,
    OnEvent,
    ignore,
    model_asked,
    model_retried,
    model_writing,
)
from agentkernel.workflows.models import chat_options
from agentkernel.workflows.outcome import faster_baseline
from agentkernel.workflows.run import goals_of

if TYPE_CHECKING:
    from agentkernel.domain.target import Target
    from agentkernel.tools.problem.loading import LoadedProblem
    from agentkernel.tools.targets import ResolvedTarget
    from agentkernel.workflows.deps import RunFactory


SettingsFor = Callable[[Changes], Settings]
JITTED = re.compile(r"^@triton\.jit\b.*\n(?:@.*\n)*def (\w+)", re.M)
"""A kernel's name in a candidate's text."""
FIXED = {"runs": "the folder of the session", "models.replay": "a whole run's"}
"""What cannot be changed on the way, and why."""
WORDS = {
    "target": "target",
    "coder": "coder",
    "goals.precision": "precision",
    "goals.objective": "what is made small",
    "goals.speedup": "goal",
    "goals.max_memory_bytes": "memory limit in bytes",
    "goals.policy": "policy",
    "budget.rounds": "rounds",
    "budget.time_s": "seconds",
    "budget.usd": "US dollars",
}


def settings_overlay(began: Settings) -> SettingsFor:
    """Puts dotted keys over the settings that a session began with. Raises SettingError."""
    known = keys_of(began)

    def settings_for(changes: Changes) -> Settings:
        made = began.model_dump(mode="json")
        for key, value in changes.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
                hint = f"The nearest known one is {near[0]!r}." if near else "See 'settings'."
                raise SettingError(f"Unknown setting {key!r}. {hint}")
            _put(made, key, value)
        try:
            return Settings.model_validate(made)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            wanted = expected_of(first["msg"])
            raise SettingError(f"Setting {key!r} is {first['input']!r}. {wanted}.") from error

    return settings_for


def keys_of(settings: Settings) -> tuple[str, ...]:
    """The dotted keys of all settings, in order."""
    return tuple(_keys(settings, ""))


def _keys(value: Frozen, prefix: str) -> list[str]:
    found: list[str] = []
    for name in type(value).model_fields:
        inner = getattr(value, name)
        if isinstance(inner, Frozen):
            found += _keys(inner, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def value_of(settings: Settings, key: str) -> object:
    """What `key` is set to. Raises SettingError for an unknown one."""
    value: object = settings
    for name in key.split("."):
        if not isinstance(value, Frozen) or name not in type(value).model_fields:
            near = difflib.get_close_matches(key, keys_of(settings), n=1, cutoff=0.4)
            hint = f"The nearest known one is {near[0]!r}." if near else "See 'settings'."
            raise SettingError(f"Unknown setting {key!r}. {hint}")
        value = getattr(value, name)
    return value


def merge_changes(old: Changes, new: Mapping[str, SettingValue]) -> Changes:
    """`old` with `new`; None takes a change back. Raises SettingError for what stays as it is."""
    fixed = next((key for key in new if key in FIXED), None)
    if fixed is not None:
        raise SettingError(
            f"Setting {fixed!r} is {FIXED[fixed]}: it stays as it is in a session. "
            "Next: begin another session with it."
        )
    joined = {**old, **new}
    return {key: value for key, value in joined.items() if value is not None}


def difference(old: Settings, new: Settings) -> tuple[str, ...]:
    """Each setting that is another one, as `precision: strict -> tf32`."""
    lines = []
    for key in keys_of(new):
        before, after = effective_value(old, key), effective_value(new, key)
        if before != after:
            lines.append(
                f"{WORDS.get(key, key)}: {display_value(before)} -> {display_value(after)}"
            )
    return tuple(lines)


def effective_value(settings: Settings, key: str) -> object:
    """The value that counts: a policy that is not set follows from who drafts."""
    return settings.policy if key == "goals.policy" else value_of(settings, key)


def display_value(value: object) -> str:
    """A setting's value for people."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _put(tree: dict[str, object], key: str, value: SettingValue) -> None:
    *sections, last = key.split(".")
    node: object = tree
    for section in sections:
        node = node[section] if isinstance(node, dict) else {}
    if isinstance(node, dict):
        node[last] = value


Approve = Callable[..., bool]
"""Asked with what waits for a yes: a plan or a candidate."""


@dataclass
class SessionState:
    """The state of one open session. Only `tree` and the caches ever change."""

    folder: Path
    store: SessionStore
    settings_for: SettingsFor
    tree: Tree
    on_event: OnEvent = ignore
    approve: Approve | None = None
    workshop: RunFactory | None = None
    estimates: EstimateCache = field(default_factory=EstimateCache)
    loaded: dict[str, LoadedProblem] = field(default_factory=dict)
    options: tuple[tuple[Intent, ...], ...] = ()
    """The readings of the last sentence that had more than one."""
    last: tuple[Intent, ...] = ()
    """What the last sentence that was understood asked for, since the session was opened."""
    left_alone: bool = False
    """The last sentence was a wish about a launch, and the session stands where it stood."""
    compared: tuple[int, int] | None = None
    """The candidates that were compared last, since the session was opened."""
    shown: tuple[int | None, int] | None = None
    """The candidate and the line that were shown last."""
    approved: list[bool] = field(default_factory=list)
    """What was said to the questions of this turn."""
    settings_known: dict[tuple[tuple[str, object], ...], Settings] = field(default_factory=dict)
    targets_known: dict[str | None, str | None] = field(default_factory=dict)
    """What a target is called -> the GPU's own name; None where there is none of that name."""

    @property
    def id(self) -> str:
        """The session's name, which is its folder's."""
        return self.folder.name

    @property
    def runs(self) -> Path:
        """Where the runs of its steps lie: beside it."""
        return self.folder.parent

    @property
    def place(self) -> Place:
        """Where the session stands."""
        return self.tree.place

    @property
    def settings(self) -> Settings:
        """What is in force."""
        return self.settings_of(self.place.changes)

    def settings_of(self, changes: Changes) -> Settings:
        """The settings with these changes. Raises SettingError, UnknownTarget."""
        key = tuple(sorted(changes.items()))
        if key not in self.settings_known:
            made = self.settings_for(changes)
            self.settings_known[key] = made.evolve(runs=str(self.runs))
        return self.settings_known[key]

    @property
    def module(self) -> Problem:
        """The problem as it came."""
        return self.store.problem("")

    def inputs_apart(self, key: str) -> str:
        """What the inputs of a derived problem are beside the module's own: `inputs of another
        dtype than the module's own`; "" for the module's own."""
        if not key:
            return ""
        # Constants of the file that follow a size leave the inputs as they are.
        apart = self.inputs_apart_from(self.store.problem(key)) or ["other sizes"]
        return f"inputs of {' and '.join(apart)} than the module's own"

    def inputs_apart_from(self, problem: Problem) -> list[str]:
        """In what the inputs of `problem` differ from the module's own."""
        own, other = self.module.shape_sets[0], problem.shape_sets[0]
        sizes = [item.shape for item in own.tensors] != [item.shape for item in other.tensors]
        dtypes = [item.dtype for item in own.tensors] != [item.dtype for item in other.tensors]
        return ["other sizes"] * sizes + ["another dtype"] * dtypes

    @property
    def problem(self) -> LoadedProblem:
        """The problem in force, loaded on first use. Raises ProblemError."""
        return self.problem_at(self.place.problem)

    def problem_at(self, key: str) -> LoadedProblem:
        """The problem that a candidate answers, loaded on first use. Raises ProblemError."""
        if key not in self.loaded:
            self.loaded[key] = restored(self.store.problem(key), self.live())
        return self.loaded[key]

    def live(self) -> object | None:
        """The live module with its inputs; None for a module in a file."""
        if self.module.origin != "live":
            return None
        known = self.loaded.get("")
        return read_live(self.folder / LIVE) if known is None else (known.live, known.live_inputs)

    @property
    def target(self) -> Target:
        """The GPU in force. Raises UnknownTarget."""
        return self.resolved.target

    @property
    def resolved(self) -> ResolvedTarget:
        """The same with what this machine can do for it. Raises UnknownTarget."""
        return self._resolved(self.settings)

    def _resolved(self, settings: Settings) -> ResolvedTarget:
        if self.workshop is not None:
            return self.workshop.resolve(settings)

        return find_target(settings.target)

    @property
    def target_name(self) -> str | None:
        """The name of the GPU in force; None where it is not known here."""
        return self.target_of(self.place.changes)

    def target_of(self, changes: Changes) -> str | None:
        """The name of the GPU under these changes; None where it is not known here."""
        try:
            settings = self.settings_of(changes)
            if settings.target not in self.targets_known:
                self.targets_known[settings.target] = self._resolved(settings).target.name
        except (SettingError, UnknownTarget):
            return None
        return self.targets_known[settings.target]

    @property
    def looked_at(self) -> bool:
        """True where figures and first plan of the module in force are worked out already."""
        try:
            loaded = self.loaded.get(self.place.problem)
            return loaded is not None and self.estimates.holds(
                loaded, self.resolved, self.goals, self.settings
            )
        except (SettingError, UnknownTarget):
            return False

    @property
    def figures(self) -> ModuleEstimate:
        """What bounds the module in force. Raises ProblemError, UnknownTarget."""
        return self.estimates.figures(self.problem, self.target, self.settings.goals.precision)

    @property
    def first_plan(self) -> Plan:
        """What the rules would try on it. Raises ProblemError, UnknownTarget."""
        return self.estimates.first_plan(self.problem, self.resolved, self.goals, self.settings)

    @property
    def asking(self) -> Approve | None:
        """`approve`, with its word written down for the turn."""
        approve = self.approve
        if approve is None:
            return None

        def ask(asked: object) -> bool:
            self.approved.append(approve(asked))
            return self.approved[-1]

        return ask

    @contextmanager
    def model(self, named: str) -> Iterator[tuple[Model, Sampling]]:
        """The model `named`; its answers are kept in the session's own records. Raises
        AgentKernelError."""
        chosen, tell = self.settings.models, self.on_event
        records = Records(self.folder / "models.sqlite")
        provider = ModelProvider(
            records=records,
            base_url=chosen.base_url,
            options=chat_options(chosen),
            on_exchange=lambda exchange, reused: tell(model_asked(exchange, reused)),
            on_retry=lambda retry: tell(model_retried(retry)),
            on_piece=lambda piece: tell(model_writing(piece)),
            tell=lambda line: tell(ModelPassedOver(text=line)),
        )
        try:
            yield provider.model(named), provider.sampling(named)
        finally:
            provider.close()
            records.close()

    @property
    def goals(self) -> Goals:
        """What a run would aim at now."""
        return goals_of(self.settings)

    @property
    def plan(self) -> Plan | None:
        """The newest plan for the sizes and the target in force, None before the first."""
        return self._plan_for(self.place.problem, self.target_name)

    def _plan_for(self, problem: str, target: str | None) -> Plan | None:
        for step in reversed(self.tree.steps):
            if step.problem == problem and self.target_of(step.changes) == target:
                found = self.store.plan(step.number)
                if found is not None:
                    return found
        return None

    def plan_of(self, node: Node) -> Plan | None:
        """The plan that a candidate comes from; a hand-written one's is the newest for its sizes
        and target."""
        step = self.tree.step(node.step)
        own = self.store.plan(node.step)
        if own is not None or step is None:
            return own
        return self._plan_for(step.problem, self.target_of(step.changes))

    @property
    def context(self) -> IntentContext:
        """What a sentence may refer to."""
        names: list[str] = []
        for target in load_targets().values():
            names += [target.name, *target.aliases]
        return IntentContext(
            targets=(*names, "local"),
            candidates=tuple(item.number for item in self.tree.nodes),
            current=self.place.candidate,
            precision=self.settings.goals.precision,
            waiting="choice" if self.options else "nothing",
            last=self.last,
            kernels=tuple(
                dict.fromkeys(
                    name
                    for node in self.tree.nodes
                    for name in JITTED.findall(node.candidate.source)
                )
            ),
        )

    def meant(self, ref: CandidateRef) -> int | None:
        """The candidate that a reference names, None for the module; "better" is one of the two
        that were compared last, in this turn or an earlier one. Raises NoSuchCandidate."""
        pair = (self.compared or self._last_compared()) if ref == "better" else None
        if pair is None:
            aimed = self.target_name if ref in ("fastest", "better") else None
            return resolve(self.tree, ref, aimed)
        number = better(self.tree, pair)
        if number is None:
            names = " and ".join(map(label, pair))
            raise NoSuchCandidate(
                f"Of {names} none is known to be the better. 'keep c{pair[0]}' names one."
            )
        return number

    def _last_compared(self) -> tuple[int, int] | None:
        for turn in reversed(self.store.turns()):
            for reply in reversed(turn.replies):
                if reply.kind == "compared" and len(reply.nodes) == 2:
                    return reply.nodes[0].number, reply.nodes[1].number
        return None

    @property
    def current(self) -> Node | None:
        """What "current" means: the candidate where the session stands; at the module the fastest
        right one for the inputs in force, else the newest right one. None where there is none:
        what was refused, and what is for other inputs, is meant by name alone."""
        number = self.place.candidate
        if number is None:
            number = fastest(self.tree, self.target_name)
        if number is not None:
            return self.tree.node(number)
        right = right_here(self.tree) or tuple(filter(is_accepted, self.judged_here))
        return next(reversed(right), None)

    @property
    def judged_here(self) -> tuple[Node, ...]:
        """The candidates for the inputs in force, right or not."""
        key = self.place.problem
        return tuple(node for node in self.tree.nodes if problem_of(self.tree, node) == key)

    @property
    def to_mend(self) -> Node | None:
        """What a repair and an edit are of: the current candidate, else the last one for the inputs
        in force, which was refused."""
        return self.current or next(reversed(self.judged_here), None)

    def node(self, ref: CandidateRef) -> Node:
        """The candidate that is meant. Raises NoSuchCandidate."""
        if ref == "current":
            current = self.current
            if current is None:
                raise NoSuchCandidate(self._none_here())
            return current
        number = self.meant(ref)
        node = self.tree.node(number) if number is not None else None
        if node is not None:
            return node
        if not self.tree.nodes:
            raise NoSuchCandidate(self._none_here())
        raise NoSuchCandidate("That is the module itself. Expected a candidate, such as 'c1'.")

    def _none_here(self) -> str:
        """Why no candidate is the current one, and what makes one."""
        if not self.tree.nodes:
            return NONE_YET
        here = self.judged_here
        if not here:
            return "There is no candidate for these inputs yet: 'run' drafts one."
        return (
            "No candidate is right for these inputs yet: 'run' drafts others, 'why was "
            f"{label(here[-1].number)} refused?' says what is wrong with the last."
        )

    def source(self, number: int | None) -> str:
        """The text of a candidate, or of the module's file."""
        node = self.tree.node(number) if number is not None else None
        return self.module.source if node is None else node.candidate.source

    def file_name(self, number: int | None) -> str:
        """`c3.py`, or the module's own file."""
        if number is not None:
            return f"c{number}.py"
        return Path(self.module.path).name or f"{self.module.name}.py"


def infeasible_goal(work: SessionState, *, look: bool = True) -> str:
    """One line where the roofline allows less than the goal against the faster baseline known; ""
    where the goal may be reached, or nobody knows.

    Measurements for the target count, else the estimates. `look`: work them out where
    no run did; False: only where they are at hand.
    """
    goal, against = work.settings.goals.speedup, work.settings.goals.baseline
    try:
        plan = work.plan or (work.first_plan if look or work.looked_at else None)
    except AgentKernelError:
        return ""
    if plan is None or _does_less(plan):
        return ""
    measured = _measured(work)
    if measured:
        most, baseline = max(_against(item, against) for item in measured)
        basis = "measured"
    else:
        eager = _eager(work, look)
        if eager is None or against == "compile":
            return ""
        most, baseline, basis = roofline_speedup(eager, plan.analysis), "eager", "estimated"
    if most >= goal:
        return ""
    return (
        f"The roofline allows at most {most:.2f}x of {baseline} ({basis}): the goal of {goal:g}x "
        "is out of reach."
    )


def roofline_speedup(eager: Estimate, analysis: Analysis) -> float:
    """The speedup over eager of what reaches the roofline, both estimated."""
    return eager.time_us / analysis.bound_us if analysis.bound_us else float("inf")


def _does_less(plan: Plan) -> bool:
    """True where an idea rewrites the graph: the bound of the graph as it came is then not its
    own."""
    return any(item.algebra is not None for item in plan.hypotheses)


def _measured(work: SessionState) -> tuple[Measurement, ...]:
    """Of every candidate for these sizes and this target: the most hopeful one counts."""
    target, found = work.target_name, []
    for node in reversed(work.tree.nodes):
        same = problem_of(work.tree, node) == work.place.problem and for_target(node, target)
        if same and node.profile is not None and node.profile.measurements:
            found.append(node.profile.measurements[0])
    return tuple(found)


def _against(measured: Measurement, baseline: str) -> tuple[float, str]:
    """The most speedup over the baseline of the goal, and that baseline's name."""
    compiled, autotuned = measured.compiled, measured.autotuned
    name = faster_baseline(measured)
    if baseline == "eager" or (baseline == "compile" and compiled is None):
        name = "eager"
    elif baseline == "compile":
        name = "torch.compile"
    times = {
        "eager": measured.eager.median_us,
        "torch.compile": compiled.median_us if compiled is not None else 0.0,
        "max-autotune": autotuned.median_us if autotuned is not None else 0.0,
    }
    return times[name] / measured.roofline_us, name


def _eager(work: SessionState, look: bool) -> Estimate | None:
    """Eager's estimate: a candidate's for this target, else the module's own."""
    target = work.target_name
    for node in reversed(work.tree.nodes):
        same = problem_of(work.tree, node) == work.place.problem and for_target(node, target)
        if same and node.profile is not None and node.profile.baseline_estimate is not None:
            return node.profile.baseline_estimate
    if not (look or work.looked_at):
        return None
    try:
        return work.figures.eager
    except AgentKernelError:
        return None
