"""Coders by the name given to `--coder`, and the coder of a file written by hand.

A hand-written file goes to the same judge and the same timing as any other candidate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.agents.models.provider import ModelProvider, record_name
from agentkernel.agents.planner import plan_of
from agentkernel.agents.protocols import Attempt, DraftRequest, PlanRequest
from agentkernel.agents.reviewer import Reviewer, Reviews
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.settings import FILE_PREFIX, MODEL_PREFIXES, TEAM, TeamOptions, TurnOptions
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    from agentkernel.agents.compiler_coder import InductorCodes
    from agentkernel.agents.model_coder import ModelCoder
    from agentkernel.agents.protocols import Coder, Searcher
    from agentkernel.agents.segment_coder import JudgeSegment, SegmentCoder
    from agentkernel.agents.team import TeamCoder
    from agentkernel.domain.settings import Settings
    from agentkernel.tools.search.store import ScheduleStore


COMPILER = "compiler"
MODELS = "chat:PROVIDER:MODEL[@URL], local:NAME_OR_PATH[+ADAPTER]"
KNOWN = f"{COMPILER}, {MODELS}, {TEAM}[:MODEL,MODEL], {FILE_PREFIX}PATH"
WARMER = 0.3
"""What a model that is named again is warmer by."""
WARM = 1.0
"""Up to this; some providers take no more."""


def make_coder(
    spec: str,
    searcher: Searcher,
    writer: InductorCodes | None = None,
    provider: ModelProvider | None = None,
    settings: Settings | None = None,
    store: ScheduleStore | None = None,
    judge_segment: JudgeSegment | None = None,
) -> Coder:
    """The coder of `spec`; `searcher` ranks the schedules of a coder that drafts families, `store`
    keeps their times beyond the run, `writer` asks TorchInductor for one that lifts its code,
    `provider` gives a coder that is a model its model (None: one whose answers nobody keeps),
    `settings` say who is in a team and who reviews, `judge_segment` judges what a team's models
    write of a module (None: they are asked for no segments).

    Raises SettingError for a name that is not known, or a file that cannot be read.
    """
    if spec == COMPILER:
        from agentkernel.agents.compiler_coder import CompilerCoder

        return CompilerCoder(searcher, writer, store)
    if spec.startswith(FILE_PREFIX):
        return file_coder(spec)
    if spec.startswith(MODEL_PREFIXES):
        coder = _model_coder(spec, provider, make_reviews(settings, provider), settings)
        return replace(coder, seed_step=coder.sampling.samples, _unused_samples=[])
    if spec == TEAM or spec.startswith(f"{TEAM}:"):
        compiler = make_coder(COMPILER, searcher, writer, store=store)
        team = _team(spec, compiler, provider, settings)
        if settings is not None and judge_segment is not None:
            team.segments = _segments(compiler, judge_segment, settings)
        return team
    raise SettingError(
        f"Unknown coder {spec!r}. Known: {KNOWN}. Next: leave --coder out for the compiler coder."
    )


def make_reviews(settings: Settings | None, provider: ModelProvider | None) -> Reviews | None:
    """The reviews of the model that the settings name, None where they name none."""
    named = settings.models.reviewer if settings else None
    if named is None or provider is None:
        return None

    return Reviews(Reviewer(provider.model(named), provider.sampling(named)))


def check_coder(spec: str, options: TeamOptions) -> None:
    """Nothing, where `spec` can be made: for a word before anything is begun. Raises SettingError.

    Loads no weights and asks nobody.
    """
    if spec == COMPILER:
        return
    if spec.startswith(FILE_PREFIX):
        file_coder(spec)
        return
    if spec == TEAM or spec.startswith(f"{TEAM}:"):
        named = [*team_members(spec, options), *_by_class(options)]
        for member in named:
            if member != COMPILER:
                record_name(member)
        return
    if not spec.startswith(MODEL_PREFIXES):
        raise SettingError(f"Unknown coder {spec!r}. Known: {KNOWN}.")
    record_name(spec)


def team_members(spec: str, options: TeamOptions) -> tuple[str, ...]:
    """The models of `team:MODEL,MODEL`, else those of the settings. Raises SettingError."""
    members = coder_models(spec, options)
    if not members and not any(item != COMPILER for item in _by_class(options)):
        raise SettingError(
            f"Coder {spec!r} names no model. Expected {TEAM}:MODEL,MODEL such as "
            f"{TEAM}:chat:openai:gpt-5, or the setting team.members. Known models: {MODELS}."
        )
    return members


def coder_models(spec: str, options: TeamOptions) -> tuple[str, ...]:
    """The models that the coder `spec` asks in its turns, as they were written; none for the
    compiler, or where nobody is named."""
    if spec == TEAM or spec.startswith(f"{TEAM}:"):
        parts = (part.strip() for part in spec.removeprefix(TEAM).removeprefix(":").split(","))
        members = tuple(part for part in parts if part) or options.members
        return tuple(item for item in members if item != COMPILER)
    return (spec,) if spec.startswith(MODEL_PREFIXES) else ()


def _by_class(options: TeamOptions) -> tuple[str, ...]:
    named = options.by_class.named().values()
    return tuple(dict.fromkeys(name for names in named for name in names))


def _model_coder(
    spec: str, provider: ModelProvider | None, reviews: Reviews | None, settings: Settings | None
) -> ModelCoder:
    from agentkernel.agents.model_coder import ModelCoder

    own = provider or ModelProvider()
    model = own.model(spec)
    return ModelCoder(
        model.name, model, own.sampling(spec), own.prompt(spec), own.answered(), reviews=reviews,
        turns=settings.turns if settings else TurnOptions(),
    )  # fmt: skip


def _team(
    spec: str, compiler: Coder, provider: ModelProvider | None, settings: Settings | None
) -> TeamCoder:
    from agentkernel.agents.team import TeamCoder

    options = settings.team if settings else TeamOptions()
    specs = team_members(spec, options)
    more = [item for item in _by_class(options) if item not in (*specs, COMPILER)]
    reviews = make_reviews(settings, provider)
    made = [_model_coder(item, provider, reviews, settings) for item in (*specs, *more)]
    pool = _told_apart(made, options.temperatures, settings.seed if settings else 0)
    names: dict[str, list[str]] = {COMPILER: []}
    for item, member in zip((*specs, *more), pool, strict=True):
        names.setdefault(item, []).append(member.name)
    by_class = {
        kind: [one for item in named for one in names[item]]
        for kind, named in options.by_class.named().items()
    }
    return TeamCoder(compiler, pool[: len(specs)], by_class, pool[len(specs) :], reviews)


def _segments(
    compiler: Coder, judge_segment: JudgeSegment, settings: Settings
) -> SegmentCoder | None:
    from agentkernel.agents.compiler_coder import CompilerCoder
    from agentkernel.agents.segment_coder import SegmentCoder

    most, repairs = settings.team.segments, settings.budget.repairs
    if most == 0 or not isinstance(compiler, CompilerCoder):
        return None
    return SegmentCoder(compiler, judge_segment, most, repairs)


def _told_apart(
    coders: list[ModelCoder], temperatures: tuple[float, ...], seed: int
) -> list[ModelCoder]:
    """Each with a name, a temperature and seeds of its own."""
    stride = max(item.sampling.samples for item in coders)
    seen: dict[str, int] = {}
    made = []
    for index, item in enumerate(coders):
        again = seen[item.name] = seen.get(item.name, -1) + 1
        own = item.sampling.temperature
        warmer = max(own, min(WARM, own + WARMER * again))
        first = seed if item.sampling.seed is None else item.sampling.seed
        name = f"{item.name} #{again + 1}" if again else item.name
        sampling = item.sampling.evolve(
            temperature=temperatures[index % len(temperatures)] if temperatures else warmer,
            seed=first + index * stride,
        )
        step = len(coders) * stride
        made.append(replace(item, name=name, sampling=sampling, seed_step=step, _unused_samples=[]))
    return made


GIVEN = "given"
"""The one strategy."""
MOST_BYTES = 1_000_000
"""No drop-in is longer: what is, is some other file."""


@dataclass
class FileCoder:
    """Drafts `source` as it stands, once."""

    name: str
    source: str

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """The text, unless it was tried before: there is no other to offer."""
        if self.tried(request.history):
            return Draft(candidate=None, none=NoTemplate(reason=f"{self.name} was tried before"))
        note = f"as it stands in {self.name.removeprefix(FILE_PREFIX)}"
        candidate = Candidate(
            source=self.source, coder=self.name, round=request.round, strategy=GIVEN, note=note
        )
        return Draft(candidate=candidate)

    def tried(self, history: Iterable[Attempt]) -> bool:
        """True where an attempt has the same text."""
        own = sha256_text(self.source)
        return any(item.candidate.sha256 == own for item in history)


@dataclass(frozen=True)
class FilePlanner:
    """Offers the text of the coder, and nothing once that was tried.

    Another file that was given before has the same strategy: the text tells them apart.
    """

    coder: FileCoder

    def plan(self, request: PlanRequest) -> Plan:
        """One hypothesis, of which nobody predicts a time."""
        over = GIVEN in request.exhausted or self.coder.tried(request.history)
        idea = Hypothesis(strategy=GIVEN, reason=f"the text of {self.coder.name}")
        return plan_of(request, () if over else (idea,))


def file_coder(spec: str) -> FileCoder:
    """The coder of `file:PATH`. Raises SettingError where there is no such text."""
    path = file_coder_path(spec)
    return FileCoder(f"{FILE_PREFIX}{path.name}", read_candidate_file(path))


def file_coder_path(spec: str) -> Path:
    """PATH of `file:PATH`. Raises SettingError where none is named."""
    named = spec.removeprefix(FILE_PREFIX)
    if not named:
        raise SettingError(f"Coder {spec!r} names no file. Expected file:PATH, as file:kernel.py.")
    try:
        return Path(named).expanduser()
    except RuntimeError as error:  # a home that nobody has
        raise SettingError(f"Coder {spec!r}: {one_line(error)}. Expected file:PATH.") from error


def read_candidate_file(path: Path) -> str:
    """The text of `path`, with its line ends as Python reads them. Raises SettingError."""
    expected = "Expected a file of Python that defines ModelNew. Next: fix the path after 'file:'."
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8-sig") if size <= MOST_BYTES else ""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
        raise SettingError(f"Cannot read {str(path)!r}: {why}. {expected}") from error
    if size > MOST_BYTES:
        raise SettingError(f"{str(path)!r} has {size} bytes, the most is {MOST_BYTES}. {expected}")
    if not text.strip():
        raise SettingError(f"{str(path)!r} is empty. {expected}")
    if "\0" in text:
        raise SettingError(f"{str(path)!r} is binary. {expected}")
    return text
