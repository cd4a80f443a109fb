"""Flags that several commands share, their option groups, and checks of the models they name.

The models are checked before a run folder is made for them. `with_groups` expands parameters
that are dataclasses into one flag for each field; typer itself has no groups. Imports of this
module stay light, as every `--help` loads it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_type_hints
from urllib.parse import urlsplit

import typer

from agentkernel.domain.errors import RunNotFound, SettingError

if TYPE_CHECKING:
    from agentkernel.cli.rendering.live import ModelUsage
    from agentkernel.domain.exchange import AgentName, Exchange
    from agentkernel.domain.settings import Settings


Reference = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:CLASS]",
        help="A file with Model, get_inputs and get_init_inputs, or FILE:CLASS with --input; "
        "FILE may be a module, package.module.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="With FILE:CLASS, one each: 'x=f32[4096,8192]'; nested: 'state=(f32[8], f32[8])'.",
    ),
]
Init = Annotated[
    str,
    typer.Option(
        "--init", help="With FILE:CLASS, the constructor's arguments: '4096, bias=False'."
    ),
]
Kwargs = Annotated[
    str,
    typer.Option("--kwargs", help="Keyword arguments of forward, literals: 'alpha=0.5'."),
]
TargetName = Annotated[
    str | None,
    typer.Option("--target", help="GPU the kernel is for; the local one, else h100."),
]
Speedup = Annotated[
    float | None, typer.Option("--speedup", help="Stop at this speedup over the baseline.")
]
BaselineName = Annotated[
    Literal["best", "eager", "compile"] | None,
    typer.Option("--baseline", help="What to beat; best is the faster of the two."),
]
ObjectiveName = Annotated[
    Literal["latency", "memory", "energy"] | None,
    typer.Option("--objective", help="What to make small."),
]
MaxMemory = Annotated[
    str | None, typer.Option("--max-memory", help="Peak memory allowed: 512M, 4G, or bytes.")
]
PrecisionName = Annotated[
    Literal["strict", "tf32", "bf16"] | None,
    typer.Option("--precision", help="Rounding allowed; strict is that of an honest evaluation."),
]
PolicyName = Annotated[
    Literal["triton", "mixed", "any"] | None,
    typer.Option("--policy", help="What may compute: Triton alone, library GEMM too, or anything."),
]
Rounds = Annotated[int | None, typer.Option("--rounds", help="Hypotheses to try at most.")]
TimeLimit = Annotated[
    str | None, typer.Option("--time", help="Wall time to spend: 90s, 10m, 1h, or seconds.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder, or path ending in .py, for the results.")
]
Runs = Annotated[
    Path | None, typer.Option("--runs", help="Folder of run folders; ./agentkernel-runs.")
]
CoderName = Annotated[
    str | None,
    typer.Option(
        "--coder",
        help="compiler, chat:PROVIDER:MODEL[@URL], local:NAME_OR_PATH[+ADAPTER], team, or "
        "file:PATH for a file as it stands.",
    ),
]
ApproveWhat = Annotated[
    Literal["never", "plan", "candidate"] | None,
    typer.Option("--approve", help="Ask before a plan is drafted, or a candidate judged."),
]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="An endpoint that chat: models are asked at."),
]
PlannerName = Annotated[
    str | None,
    typer.Option(
        "--planner", metavar="MODEL", help="chat: or local: model that plans; else rules."
    ),
]
DebuggerName = Annotated[
    str | None,
    typer.Option("--debugger", metavar="MODEL", help="Model that diagnoses; else rules do."),
]
ReviewerName = Annotated[
    str | None,
    typer.Option("--reviewer", metavar="MODEL", help="Model that reviews the best candidate."),
]
AnswerSamples = Annotated[
    int | None, typer.Option("--samples", min=1, help="Answers of a model to one question.")
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", min=0.0, help="Of the models; 0 takes the likeliest words."),
]
FromScratch = Annotated[
    bool,
    typer.Option("--from-scratch", help="A team's models start from the module, not the best."),
]
TokenLimit = Annotated[
    int | None,
    typer.Option(
        "--tokens", "--max-tokens-total", min=1, help="Stop once all models took so many tokens."
    ),
]


def _money(usd: float | None) -> float | None:
    if usd is not None and not 0 < usd < math.inf:
        from agentkernel.domain.errors import SettingError

        raise SettingError(
            f"--usd {usd:g} is no amount of money (budget.usd). Expected a finite number above 0. "
            "Next: --usd 1."
        )
    return usd


UsdLimit = Annotated[
    float | None,
    typer.Option(
        "--usd",
        callback=_money,
        help="Stop once the models with a known price took so much money.",
    ),
]
Replay = Annotated[
    str | None,
    typer.Option("--replay", metavar="RUN", help="Give that run's answers again; ask no model."),
]
Overrides = Annotated[
    list[str] | None, typer.Option("-c", help="A setting: judge.seeds=3. May be repeated.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings file; ~/.config/agentkernel/config.yaml.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")]
Unpickle = Annotated[
    bool,
    typer.Option(
        "--unpickle",
        help="Load the pickle of a live module that your own key does not vouch for: this runs "
        "whatever its author put there.",
    ),
]
AllowUnsandboxed = Annotated[
    bool,
    typer.Option("--allow-unsandboxed", help="Run candidates even where nothing isolates them."),
]
MaxAutotune = Annotated[
    bool | None,
    typer.Option(
        "--max-autotune/--no-max-autotune",
        help="Time torch.compile's max-autotune as a third baseline where a GPU measures.",
    ),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's name; 'last' is the newest.")]


def model_flags(
    *,
    base_url: str | None,
    planner: str | None,
    debugger: str | None,
    reviewer: str | None,
    temperature: float | None,
    tokens: int | None,
    usd: float | None,
    samples: int | None = None,
    replay: str | None = None,
) -> dict[str, object]:
    """The settings that the models' flags stand for."""
    return {
        "models.base_url": base_url,
        "models.planner": planner,
        "models.debugger": debugger,
        "models.reviewer": reviewer,
        "models.samples": samples,
        "models.temperature": temperature,
        "models.replay": replay,
        "budget.tokens": tokens,
        "budget.usd": usd,
    }


@dataclass(frozen=True)
class Drafting:
    """Where runs lie, who drafts, and what the models may take."""

    runs: Runs = None
    coder: CoderName = None
    base_url: BaseUrl = None
    planner: PlannerName = None
    debugger: DebuggerName = None
    reviewer: ReviewerName = None
    samples: AnswerSamples = None
    temperature: Temperature = None
    tokens: TokenLimit = None
    usd: UsdLimit = None

    def settings(self, replay: str | None = None) -> dict[str, object]:
        """The settings that the flags stand for."""
        return {
            "runs": None if self.runs is None else str(self.runs),
            "coder": self.coder,
            **model_flags(
                base_url=self.base_url,
                planner=self.planner,
                debugger=self.debugger,
                reviewer=self.reviewer,
                samples=self.samples,
                temperature=self.temperature,
                tokens=self.tokens,
                usd=self.usd,
                replay=replay,
            ),
        }


@dataclass(frozen=True)
class Configured:
    """Where settings come from besides the flags of their own."""

    overrides: Overrides = None
    config: ConfigFile = None
    allow_unsandboxed: AllowUnsandboxed = False

    def settings(self) -> dict[str, object]:
        """The settings that the flags stand for."""
        return {"judge.allow_unsandboxed": self.allow_unsandboxed or None}


NO_DRAFTING, NO_CONFIGURED = Drafting(), Configured()
"""None of their flags given."""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one flag for each field of its parameters that are dataclasses, in their
    place; all fields have defaults. typer itself knows no groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type] = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            flat.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        kinds = get_type_hints(group, include_extras=True)
        flat += [
            parameter.replace(name=field.name, default=field.default, annotation=kinds[field.name])
            for field in fields(group)
        ]

    @functools.wraps(command)
    def flattened(**given: object) -> None:
        for name, group in groups.items():
            own = {field.name: given.pop(field.name) for field in fields(group)}
            given[name] = group(**own)
        command(**given)

    flattened.__annotations__ = {item.name: item.annotation for item in flat}
    flattened.__dict__["__signature__"] = inspect.Signature(flat)
    del flattened.__dict__["__wrapped__"]  # or its hints would be read in place of these
    return flattened


def runs_path(runs: Path | None, config: Path | None, overrides: Sequence[str] | None) -> Path:
    """`--runs`, else what the settings say."""
    from agentkernel.storage.configuration import load_settings

    flags = {"runs": None if runs is None else str(runs)}
    return Path(load_settings(config, overrides or (), flags).runs)


class NamedModel(NamedTuple):
    """A model of the settings: who asks it, and what the user wrote."""

    agent: AgentName
    spec: str


def named_models(settings: Settings) -> Iterator[NamedModel]:
    """The models that `settings` name, each member of `team:MODEL,MODEL` by itself."""
    from agentkernel.agents.coder_factory import coder_models

    chosen = settings.models
    yield from (NamedModel("coder", item) for item in coder_models(settings.coder, settings.team))
    every: tuple[tuple[AgentName, str | None], ...] = (
        ("planner", chosen.planner),
        ("debugger", chosen.debugger),
        ("reviewer", chosen.reviewer),
    )
    for agent, spec in every:
        if spec is not None:
            yield NamedModel(agent, spec)


def with_checked_models(settings: Settings) -> Settings:
    """The same settings, with the run to replay by a name that stays true.

    Raises SettingError or RunNotFound for what cannot be tried.
    """
    from agentkernel.agents.coder_factory import check_coder

    check_endpoint("models.base_url", settings.models.base_url)
    for agent, spec in named_models(settings):
        check_model(agent, spec, settings.models.base_url)
    check_coder(settings.coder, settings.team)
    replay = settings.models.replay
    if replay is None:
        return settings
    folder = run_to_replay(Path(settings.runs), replay)
    models = settings.models.evolve(replay=str(folder))
    return settings.evolve(models=models)


def check_model(agent: str, spec: str, base_url: str | None) -> None:
    """Raises SettingError, with the agent's name, where `spec` names no model."""
    from agentkernel.agents.models.provider import record_name

    try:
        found = record_name(spec, base_url)
    except SettingError as error:
        raise SettingError(f"{agent}: {str(error).removeprefix('Coder ')}") from error
    check_endpoint(agent, found.base_url)


def check_endpoint(where: str, url: str | None) -> None:
    """Raises SettingError for what is no http URL, or holds a password: run.json keeps it."""
    if url is None:
        return
    shown = url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise SettingError(
            f"{where}: endpoint {shown!r} is no URL. Expected e.g. http://127.0.0.1:8000/v1."
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        bare = shown.partition("?")[0].partition("#")[0]
        raise SettingError(
            f"{where}: the URL of {bare!r} holds a user, a password or a query. Expected none, as "
            "a run's folder keeps it. Next: put the key into the environment, see 'agentkernel "
            "doctor'."
        )


def run_to_replay(runs: Path, run: str) -> Path:
    """The folder of a run that holds answers. Raises RunNotFound.

    A folder, not a name such as "last": the run that is about to begin would be the last one.
    """
    from agentkernel.tools.run_store import find_run

    folder = find_run(runs, run).resolve()
    if not recorded(folder):
        raise RunNotFound(
            f"Run {folder.name!r} holds no answer of a model. Expected a run with a coder, planner "
            "or debugger that is a model. Next: leave --replay out, or see 'agentkernel runs'."
        )
    return folder


def recorded(folder: Path) -> tuple[Exchange, ...]:
    """What the models of a run answered, as far as it can be read."""
    from agentkernel.storage.records import read_records

    with closing(read_records(folder / "run.sqlite")) as records:
        return records.exchanges()


def model_usage(settings: Settings, before: tuple[Exchange, ...] = ()) -> ModelUsage:
    """What a screen shows of the models: who may be asked, and what they took `before`."""
    from agentkernel.agents.models.provider import record_name
    from agentkernel.cli.rendering.live import ModelUsage, usage_of

    base_url = settings.models.base_url
    from agentkernel.domain.settings import MODEL_PREFIXES

    alone = settings.coder.startswith(MODEL_PREFIXES)
    names = {
        agent: record_name(spec, base_url).name
        for agent, spec in named_models(settings)
        if agent != "coder" or alone  # of a team, nobody says beforehand whose turn it is
    }
    return ModelUsage(
        names,
        usage_of(before),
        tokens_limit=settings.budget.tokens,
        usd_limit=settings.budget.usd,
        replay=settings.models.replay is not None,
    )


def usage_before(folder: Path) -> ModelUsage:
    """The same for a run that goes on. Raises RunNotFound."""
    from agentkernel.tools.run_store import read_manifest

    return model_usage(read_manifest(folder).settings, recorded(folder))
