"""Which coder does `--coder` name?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentkernel.domain.errors import SettingError
from agentkernel.domain.settings import FILE_PREFIX, MODEL_PREFIXES, TEAM

if TYPE_CHECKING:
    from agentkernel.agents.coder import InductorCodes
    from agentkernel.agents.model import ModelCoder
    from agentkernel.agents.models.factory import ModelProvider
    from agentkernel.agents.protocols import Coder, Searcher
    from agentkernel.agents.reviewer import Reviews
    from agentkernel.agents.team import TeamCoder
    from agentkernel.domain.settings import Settings, TeamOptions

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
) -> Coder:
    """The coder of `spec`; `searcher` ranks the schedules of a coder that drafts families, `writer`
    asks TorchInductor for one that lifts its code, `provider` gives a coder that is a model its
    model (None: one whose answers nobody keeps), `settings` say who is in a team and who reviews.

    Raises SettingError for a name that is not known, or a file that cannot be read.
    """
    if spec == COMPILER:
        from agentkernel.agents.coder import CompilerCoder

        return CompilerCoder(searcher, writer)
    if spec.startswith(FILE_PREFIX):
        from agentkernel.agents.given import file_coder

        return file_coder(spec)
    if spec.startswith(MODEL_PREFIXES):
        coder = _model_coder(spec, provider, make_reviews(settings, provider), settings)
        return replace(coder, seed_step=coder.sampling.samples, _unused_samples=[])
    if spec == TEAM or spec.startswith(f"{TEAM}:"):
        return _team(spec, make_coder(COMPILER, searcher, writer), provider, settings)
    raise SettingError(
        f"Unknown coder {spec!r}. Known: {KNOWN}. Next: leave --coder out for the compiler coder."
    )


def make_reviews(settings: Settings | None, provider: ModelProvider | None) -> Reviews | None:
    """The reviews of the model that the settings name, None where they name none."""
    named = settings.models.reviewer if settings else None
    if named is None or provider is None:
        return None
    from agentkernel.agents.reviewer import Reviewer, Reviews

    return Reviews(Reviewer(provider.model(named), provider.sampling(named)))


def check_coder(spec: str, options: TeamOptions) -> None:
    """Nothing, where `spec` can be made: for a word before anything is begun. Raises SettingError.

    Loads no weights and asks nobody.
    """
    from agentkernel.agents.models.factory import record_name

    if spec == COMPILER:
        return
    if spec.startswith(FILE_PREFIX):
        from agentkernel.agents.given import file_coder

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
    from agentkernel.agents.model import ModelCoder
    from agentkernel.agents.models.factory import ModelProvider
    from agentkernel.domain.settings import TurnOptions

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
    from agentkernel.domain.settings import TeamOptions

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
        told = {
            "temperature": temperatures[index % len(temperatures)] if temperatures else warmer,
            "seed": first + index * stride,
        }
        name = f"{item.name} #{again + 1}" if again else item.name
        sampling = item.sampling.model_copy(update=told)
        step = len(coders) * stride
        made.append(replace(item, name=name, sampling=sampling, seed_step=step, _unused_samples=[]))
    return made


__all__ = ["KNOWN", "check_coder", "coder_models", "make_coder", "make_reviews", "team_members"]
