"""The settings tree of a run: one frozen value with all user options and their types."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.plan import RooflineClass
from agentkernel.domain.verdict import Policy, Precision

Baseline = Literal["best", "eager", "compile"]
Objective = Literal["latency", "memory", "energy"]
Approval = Literal["never", "plan", "candidate"]
"""Before what somebody is asked: nothing, a plan is drafted, or a candidate is judged."""
MODEL_PREFIXES = ("chat:", "local:")
"""How the names of models begin."""
TEAM = "team"
FILE_PREFIX = "file:"
"""How the coder is named that offers a file as it stands."""


def _listed(value: object) -> object:
    """One name is a list of one."""
    return (value,) if isinstance(value, str) else value


Coders = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""Names as after `--coder`; one may stand without a list around it."""


class GoalSettings(Frozen):
    """What a run aims at. `policy` None: "mixed" for the compiler coder, a team and a given
    file, "triton" for models."""

    speedup: float = Field(gt=0)
    baseline: Baseline
    objective: Objective
    max_memory_bytes: int | None = Field(default=None, gt=0)
    precision: Precision
    policy: Policy | None = None


class BudgetSettings(Frozen):
    """When a run stops: drafts per run, repairs per hypothesis, wall seconds (None: no limit)."""

    rounds: int = Field(ge=1)
    repairs: int = Field(ge=0)
    time_s: float | None = Field(default=None, gt=0)
    headroom: float = Field(ge=0, lt=1)
    """Stop where the measured roofline fraction is past 1 - headroom."""
    tokens: int | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0)
    """Stop once the models have taken so much; what has no known price counts as nothing."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many drafts of models, one after the other, of which none was the best."""


class JudgeOptions(Frozen):
    """How hard the judge looks: seeds, seconds for each call of the candidate and for the whole
    of an interpreted judgement (past it only the required cases are tried)."""

    seed: int | None = Field(default=None, ge=0)
    """Of all that the judge draws; None draws a fresh one for each judgement."""
    seeds: int = Field(ge=1)
    time_limit_s: float = Field(gt=0)
    budget_s: float = Field(ge=0)
    allow_unsandboxed: bool
    kernelbench: bool = False
    """Ask KernelBench's own rule as well: allclose at 1e-4 to eager, over 5 seeds."""


class ProfileOptions(Frozen):
    """Which baselines are timed beside eager and torch.compile, and how long one may compile."""

    max_autotune: bool = True
    autotune_limit_s: float = Field(default=120.0, gt=0)


class KnowledgeOptions(Frozen):
    """What is asked and learned: `embedder` is "static" or a model's name, `index` a folder,
    `limit` the most entries that a run is told of (0: none, and nothing is learned)."""

    embedder: str
    index: str | None = None
    limit: int = Field(ge=0)
    experience: bool = False
    """Start from what won in earlier runs of the like, and keep what wins in this one."""


class ModelOptions(Frozen):
    """Which models work beside the coder, and how they are asked. None: the rules in place of a
    model, and what the model's own file in configs/coders/ says."""

    base_url: str | None = None
    planner: str | None = None
    debugger: str | None = None
    reviewer: str | None = None
    replay: str | None = None
    """A run whose answers are given again, in place of asking."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Longest silence of an endpoint."""
    samples: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None


class TurnOptions(Frozen):
    """Which of a problem's files a model is asked about next."""

    shown: Literal["best", "last"] = "best"
    """The best that is not worn out, or what was drafted last."""
    patience: int = Field(default=2, ge=1)
    """Questions about one file that brought no better one, after which it is worn out."""
    held: int = Field(default=2, ge=1)
    """Refused files in one conversation, the one to fix included; a model of `agentkernel train`
    was taught to be shown one."""


class ClassCoders(Frozen):
    """Who of a team gets the turns on a problem of each roofline class; None: all members."""

    memory: Coders | None = None
    compute: Coders | None = None
    latency: Coders | None = None
    mixed: Coders | None = None

    def named(self) -> dict[RooflineClass, tuple[str, ...]]:
        """The classes that have coders of their own."""
        every: dict[RooflineClass, Coders | None] = {
            "memory": self.memory,
            "compute": self.compute,
            "latency": self.latency,
            "mixed": self.mixed,
        }
        return {kind: names for kind, names in every.items() if names is not None}


class TeamOptions(Frozen):
    """Who goes on from the compiler's candidate where the coder is `team`, and how."""

    members: Coders = ()
    """Models in the order of their turns; one may be named twice."""
    segments: int = Field(default=0, ge=0)
    """So many segments of the compiler's candidate, the most expensive ones, are asked for one a
    turn before the whole module is."""
    from_scratch: bool = False
    """They start from the module alone, not from the best candidate."""
    beam: int = Field(default=1, ge=1)
    """So many of the best candidates are improved in turn."""
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """One a member, from the beginning again where there are fewer; none: each model's own, and
    warmer for a model that is named again."""
    by_class: ClassCoders = ClassCoders()
    """`compiler` stands for the compiler alone."""


class Settings(Frozen):
    """All of it. `target` None: the local GPU, else h100. `runs` is the folder of run folders.
    `remote`: the machine that judges, measures and searches, as an ssh:// URL; None: this one."""

    target: str | None = None
    coder: str
    seed: int
    runs: str
    approve: Approval = "never"
    remote: str | None = None
    goals: GoalSettings
    budget: BudgetSettings
    judge: JudgeOptions
    profile: ProfileOptions = ProfileOptions()
    knowledge: KnowledgeOptions
    models: ModelOptions = ModelOptions()
    turns: TurnOptions = TurnOptions()
    team: TeamOptions = TeamOptions()

    @property
    def in_turns(self) -> bool:
        """True where a team drafts: who is next is planned turn by turn."""
        return self.coder == TEAM or self.coder.startswith(f"{TEAM}:")

    @property
    def policy(self) -> Policy:
        """The policy in force: as asked, else by who drafts."""
        if self.goals.policy is not None:
            return self.goals.policy
        if self.coder.startswith(FILE_PREFIX):
            # Whoever edits a compiler's candidate keeps the library's products that stand in it,
            # and both must have been judged by one rule to be compared.
            return "mixed"
        return "mixed" if self.coder == "compiler" or self.in_turns else "triton"
