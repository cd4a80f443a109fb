"""Typed requests of a session, and the results of reading a sentence."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.problem import DType
from agentkernel.domain.verdict import Policy, Precision

Which = Literal[
    "current", "last", "second_last", "previous", "fastest", "better", "parent", "original"
]
"""A candidate named by its place: `second_last` is the newest but one, `previous` the one that was
current before, `parent` the one that it was made from, `original` the user's own module, `better`
the faster of the two that were compared last, or of all where none were."""
Count = Annotated[int, Field(ge=1, le=10**9)]
CandidateRef: TypeAlias = Count | Which
"""3 for c3, or a place."""
IdeaRef: TypeAlias = Count | Literal["next", "last"]
BranchRef: TypeAlias = Count | Annotated[str, Field(pattern=r"^[a-z][a-z0-9_./-]{0,63}$")]
"""2 for the second branch, or a name in lower case."""
Seconds = Annotated[float, Field(gt=0, le=1e9)]
PlainName = Literal[
    "more_aggressive",
    "less_energy",
    "lower_latency",
    "history",
    "tree",
    "compare_all",
    "ideas",
    "redo",
    "stop",
    "cost",
    "plan",
    "settings",
    "targets",
    "approve",
    "decline",
    "help",
    "quit",
    "status",
    "restart",
    "thanks",
]
CandidateName = Literal[
    "why_slow",
    "profile",
    "roofline",
    "explain_kernel",
    "why_rejected",
    "show_candidate",
    "show_kernel",
    "return_to",
    "fork",
    "keep",
    "reject",
    "verify",
    "certificate",
    "repair",
]


class Request(Frozen, defer_build=True):
    """A value whose validator is made on first use, so that the import stays light."""


class Plain(Request):
    """A request without values."""

    name: PlainName


class OnCandidate(Request):
    """A request about one candidate."""

    name: CandidateName
    candidate: CandidateRef = "current"


class Run(Request):
    """Go on: as the settings say, or for so many rounds or seconds more."""

    name: Literal["run"] = "run"
    rounds: Count | None = None
    seconds: Seconds | None = None


class LessMemory(Request):
    """Make the peak memory small: as small as can be, or to `fraction` of what it is now."""

    name: Literal["less_memory"] = "less_memory"
    fraction: float | None = Field(default=None, gt=0, lt=1)


class MemoryLimit(Request):
    """At most so many bytes at the peak."""

    name: Literal["memory_limit"] = "memory_limit"
    max_bytes: int = Field(ge=1, le=2**60)


class SetPrecision(Request):
    """How far results may be from the oracle's."""

    name: Literal["precision"] = "precision"
    precision: Precision


class SetTarget(Request):
    """Another GPU: a name of the context's targets, or `local`; None: which is still to be said."""

    name: Literal["target"] = "target"
    target: str | None = None


class Size(Request):
    """One dimension by its name: `batch` 64."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")
    value: Count


class SetShapes(Request):
    """Other input shapes. All empty: others are wanted, which is still to be said."""

    name: Literal["shapes"] = "shapes"
    shapes: tuple[tuple[Count, ...], ...] = ()
    sizes: tuple[Size, ...] = ()


class SetDtype(Request):
    """Inputs of another dtype."""

    name: Literal["dtype"] = "dtype"
    dtype: DType


class ExplainLine(Request):
    """What `line` (counted from 1) of a candidate does; with `last_line`, from there to there.
    None: "this line", the one that was last shown."""

    name: Literal["explain_line"] = "explain_line"
    line: Count | None = None
    last_line: Count | None = None
    candidate: CandidateRef = "current"


class Diff(Request):
    """The changed lines of `candidate`, seen from `against`."""

    name: Literal["diff"] = "diff"
    candidate: CandidateRef = "current"
    against: CandidateRef = "parent"


class Compare(Request):
    """Times, memory and verdicts of two candidates beside each other. `second` None: the best that
    the newest step made, where that is another one, else the parent."""

    name: Literal["compare"] = "compare"
    first: CandidateRef
    second: CandidateRef | None = None


class TryIdea(Request):
    """Draft from this idea of the plan."""

    name: Literal["try_idea"] = "try_idea"
    idea: IdeaRef


class Undo(Request):
    """So many steps back."""

    name: Literal["undo"] = "undo"
    steps: Count = 1


class SwitchBranch(Request):
    """Work on another branch of the tree, by its number or its name; None: the other one."""

    name: Literal["switch_branch"] = "switch_branch"
    branch: BranchRef | None = None


class StopAt(Request):
    """The goal: a speedup (times the baseline), or a time of the module in microseconds."""

    name: Literal["stop_at"] = "stop_at"
    speedup: float | None = Field(default=None, gt=0, le=1e6)
    runtime_us: float | None = Field(default=None, gt=0, le=1e12)


class SetBudget(Request):
    """When a run stops, whatever it has reached."""

    name: Literal["budget"] = "budget"
    seconds: Seconds | None = None
    rounds: Count | None = None
    usd: float | None = Field(default=None, gt=0, le=1e6)


class SetPolicy(Request):
    """What a candidate may call besides its own kernels."""

    name: Literal["policy"] = "policy"
    policy: Policy


class WriteTo(Request):
    """Write the drop-in of `candidate` (`save`) or the whole session (`export`). `path` is as typed
    and unchecked; None: the usual place."""

    name: Literal["save", "export"]
    candidate: CandidateRef = "current"
    path: str | None = Field(default=None, min_length=1, max_length=1024)


class AskDocs(Request):
    """Search the documentation for `query`, words as typed."""

    name: Literal["ask_docs"] = "ask_docs"
    query: str = Field(min_length=1, max_length=1000)


class Edit(Request):
    """Open a candidate's source for a change by hand, at `line` where one is named."""

    name: Literal["edit"] = "edit"
    candidate: CandidateRef = "current"
    line: Count | None = None


Fact = Literal[
    "launch",
    "resources",
    "assembly",
    "accuracy",
    "holds",
    "repeatable",
    "speed",
    "use",
    "fusion",
    "checked",
    "least_error",
    "accumulate",
    "autotune",
    "noise",
    "timing",
    "whole_model",
    "package",
    "fastest",
    "meaning",
]
"""How it is launched; registers, shared memory, occupancy; PTX and SASS; errors; sizes and modes;
the same bits twice; against the baselines; how it gets into a model; what its kernels put
together; what the judge called it with; which candidate is the most accurate; what sums are kept
in; tuning where it runs; how sure the time is; how it is
taken; the gain of a model around it; how it becomes a package; the fastest with inputs of a dtype;
what a term means."""
Knob = Literal[
    "warps",
    "stages",
    "block",
    "registers",
    "tensor_cores",
    "persistent",
    "deterministic",
    "split_k",
]


class AskFact(Request):
    """What is on record about a candidate's kernels."""

    name: Literal["fact"] = "fact"
    about: Fact
    candidate: CandidateRef = "current"


class SetKnob(Request):
    """A candidate with one thing about its launch changed, to be judged as a new one.

    `value`: so many warps, stages, registers at most (0: no limit), or the width of a block; 0 or 1
    for what is off or on. None: fewer of it, or more where `more` says so, or with `former` what
    the candidate had that the current one was made from.
    """

    name: Literal["knob"] = "knob"
    knob: Knob
    value: int | None = Field(default=None, ge=0, le=10**6)
    more: bool = False
    former: bool = False
    axis: Literal["", "M", "N", "K"] = ""
    """Of a block that has several: BLOCK_M, BLOCK_N, BLOCK_K."""
    candidate: CandidateRef = "current"
    kernels: tuple[str, ...] = ()
    """Those whose launches alone change, as they were named; empty: all."""


class SweepAxis(Request):
    """One thing about a launch, and what it is set to in turn."""

    knob: Knob
    values: tuple[Count, ...] = Field(min_length=1, max_length=32)


class Sweep(Request):
    """A candidate at each combination of the values, each judged, side by side."""

    name: Literal["sweep"] = "sweep"
    axes: tuple[SweepAxis, ...] = Field(min_length=1, max_length=3)
    candidate: CandidateRef = "current"
    kernels: tuple[str, ...] = ()
    """As in SetKnob."""


class AskGpu(Request):
    """What is known of the module and its candidates on another GPU; with `shared_kb`, whether a
    block may have so much shared memory there. Changes nothing."""

    name: Literal["gpu"] = "gpu"
    target: str
    shared_kb: float | None = Field(default=None, gt=0, le=1e6)


class OtherModule(Request):
    """Work on a module by its file or its class: the session's own is run, any other is another
    session."""

    name: Literal["module"] = "module"
    path: str | None = Field(default=None, min_length=1, max_length=1024)
    class_name: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w{0,127}$")


Impossible = Literal[
    "by_hand",
    "clocks",
    "condition",
    "device",
    "fleet",
    "foresight",
    "format",
    "gpus",
    "graphs",
    "guarantee",
    "judge",
    "language",
    "message",
    "machine",
    "module",
    "other_baseline",
    "other_run",
    "proof",
    "repository",
    "rounding",
    "shared",
    "shell",
    "targets",
    "tolerance",
    "training",
]


class Cannot(Request):
    """Something that is never done here; said in a line, with what there is instead."""

    name: Literal["cannot"] = "cannot"
    about: Impossible


Intent: TypeAlias = Annotated[
    Plain
    | OnCandidate
    | Run
    | LessMemory
    | MemoryLimit
    | SetPrecision
    | SetTarget
    | SetShapes
    | SetDtype
    | ExplainLine
    | Diff
    | Compare
    | TryIdea
    | Undo
    | SwitchBranch
    | StopAt
    | SetBudget
    | SetPolicy
    | WriteTo
    | AskDocs
    | Edit
    | AskFact
    | SetKnob
    | Sweep
    | AskGpu
    | OtherModule
    | Cannot,
    Field(discriminator="name"),
]
IntentName = (
    PlainName
    | CandidateName
    | Literal[
        "run",
        "less_memory",
        "memory_limit",
        "precision",
        "target",
        "shapes",
        "dtype",
        "explain_line",
        "diff",
        "compare",
        "try_idea",
        "undo",
        "switch_branch",
        "stop_at",
        "budget",
        "policy",
        "save",
        "export",
        "ask_docs",
        "edit",
        "fact",
        "knob",
        "sweep",
        "gpu",
        "module",
        "cannot",
    ]
)


class IntentContext(Request):
    """What a sentence may refer to.

    `targets`: every name and alias that the session takes. `candidates`: numbers that exist; empty:
    not known, so that any number is taken. `current`: where the session stands. `precision`: the
    one in force; None: not known, so that whatever is forbidden counts. `waiting`: what the next
    sentence may answer, a step that asks for leave or readings to choose from; None: not known.
    `last`: what the sentence before asked for, to which "and with 8?" goes back. `kernels`: names
    of the candidates' kernels.
    """

    targets: tuple[str, ...] = ()
    candidates: tuple[int, ...] = ()
    current: int | None = None
    precision: Precision | None = None
    waiting: Literal["approval", "choice", "nothing"] | None = None
    last: tuple[Intent, ...] = ()
    kernels: tuple[str, ...] = ()


class Suggestion(Request):
    """Something that is understood, with a sentence that asks for it."""

    name: IntentName
    example: str


class Understood(Request):
    """What to do, in this order. `offers`: what the question is about, which is not done for it."""

    intents: tuple[Intent, ...] = Field(min_length=1)
    offers: tuple[Intent, ...] = ()


class Ambiguous(Request):
    """The sentence has more than one reading, or one that is not sure: each of `options` is one.

    `asked`: a question, which changes nothing; the option is what it asks about.
    """

    text: str
    options: tuple[tuple[Intent, ...], ...] = Field(min_length=1)
    asked: bool = False


class NotUnderstood(Request):
    """No reading. `reason` is one line for the user; `nearest` comes best first, never empty."""

    text: str
    reason: str
    nearest: tuple[Suggestion, ...] = Field(min_length=1)


Understanding: TypeAlias = Understood | Ambiguous | NotUnderstood
