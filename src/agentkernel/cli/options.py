"""The flags of the commands: a frozen dataclass for each, its fields the flags, its docstring the
help.

A field that is a dataclass is a group: its fields are flags in its place. `command_of` makes the
function that typer reads, as typer itself knows no groups. Imports of this module stay light: every
`--help` loads it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar, get_type_hints

import typer

from agentkernel.cli.completion import (
    complete_file,
    complete_reference,
    complete_run,
    complete_target,
)
from agentkernel.cli.remote_options import CheckedUrl, RemoteUrl
from agentkernel.domain.errors import SettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

LAST = "last"
"""The name of what was used last."""


class Setting(NamedTuple):
    """The setting that a flag stands for. `switch`: only where it is on."""

    key: str
    switch: bool = False


Reference = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:CLASS]",
        autocompletion=complete_reference,
        help="A file with Model, get_inputs and get_init_inputs, or FILE:CLASS with --input; "
        "FILE may be a module, package.module.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="With FILE:CLASS, one each: 'x=f32[4096,8192]'; integers below 512: "
        "'ids=i64[8,16]<512'; nested: 'state=(f32[8], f32[8])'.",
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
    typer.Option(
        "--target",
        autocompletion=complete_target,
        help="GPU the kernel is for; the local one, else h100.",
    ),
    Setting("target"),
]
Speedup = Annotated[
    float | None,
    typer.Option("--speedup", help="Stop at this speedup over the baseline."),
    Setting("goals.speedup"),
]
BaselineName = Annotated[
    Literal["best", "eager", "compile"] | None,
    typer.Option("--baseline", help="What to beat; best is the faster of the two."),
    Setting("goals.baseline"),
]
ObjectiveName = Annotated[
    Literal["latency", "memory", "energy"] | None,
    typer.Option("--objective", help="What to make small."),
    Setting("goals.objective"),
]
MaxMemory = Annotated[
    str | None, typer.Option("--max-memory", help="Peak memory allowed: 512M, 4G, or bytes.")
]
PrecisionName = Annotated[
    Literal["strict", "tf32", "bf16"] | None,
    typer.Option("--precision", help="Rounding allowed; strict is that of an honest evaluation."),
    Setting("goals.precision"),
]
PolicyName = Annotated[
    Literal["triton", "mixed", "any"] | None,
    typer.Option("--policy", help="What may compute: Triton alone, library GEMM too, or anything."),
    Setting("goals.policy"),
]
Rounds = Annotated[
    int | None,
    typer.Option("--rounds", help="Hypotheses to try at most."),
    Setting("budget.rounds"),
]
TimeLimit = Annotated[
    str | None, typer.Option("--time", help="Wall time to spend: 90s, 10m, 1h, or seconds.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder, or path ending in .py, for the results.")
]
Runs = Annotated[
    Path | None,
    typer.Option("--runs", help="Folder of run folders; ./agentkernel-runs."),
    Setting("runs"),
]
CoderName = Annotated[
    str | None,
    typer.Option(
        "--coder",
        help="compiler, chat:PROVIDER:MODEL[@URL], local:NAME_OR_PATH[+ADAPTER], team, or "
        "file:PATH for a file as it stands.",
    ),
    Setting("coder"),
]
ApproveWhat = Annotated[
    Literal["never", "plan", "candidate"] | None,
    typer.Option("--approve", help="Ask before a plan is drafted, or a candidate judged."),
    Setting("approve"),
]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="An endpoint that chat: models are asked at."),
    Setting("models.base_url"),
]
PlannerName = Annotated[
    str | None,
    typer.Option(
        "--planner", metavar="MODEL", help="chat: or local: model that plans; else rules."
    ),
    Setting("models.planner"),
]
DebuggerName = Annotated[
    str | None,
    typer.Option("--debugger", metavar="MODEL", help="Model that diagnoses; else rules do."),
    Setting("models.debugger"),
]
ReviewerName = Annotated[
    str | None,
    typer.Option("--reviewer", metavar="MODEL", help="Model that reviews the best candidate."),
    Setting("models.reviewer"),
]
AnswerSamples = Annotated[
    int | None,
    typer.Option("--samples", min=1, help="Answers of a model to one question."),
    Setting("models.samples"),
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", min=0.0, help="Of the models; 0 takes the likeliest words."),
    Setting("models.temperature"),
]
FromScratch = Annotated[
    bool,
    typer.Option("--from-scratch", help="A team's models start from the module, not the best."),
    Setting("team.from_scratch", switch=True),
]
TokenLimit = Annotated[
    int | None,
    typer.Option(
        "--tokens", "--max-tokens-total", min=1, help="Stop once all models took so many tokens."
    ),
    Setting("budget.tokens"),
]


def _money(usd: float | None) -> float | None:
    if usd is not None and not 0 < usd < math.inf:
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
    Setting("budget.usd"),
]
Replay = Annotated[
    str | None,
    typer.Option("--replay", metavar="RUN", help="Give that run's answers again; ask no model."),
    Setting("models.replay"),
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
    Setting("judge.allow_unsandboxed", switch=True),
]
MaxAutotune = Annotated[
    bool | None,
    typer.Option(
        "--max-autotune/--no-max-autotune",
        help="Time torch.compile's max-autotune as a third baseline where a GPU measures.",
    ),
    Setting("profile.max_autotune"),
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", autocompletion=complete_run, help="A run's name; 'last' is the newest."
    ),
]


@dataclass(frozen=True)
class Subject:
    """The module that is worked on."""

    reference: Reference
    inputs: Inputs = None
    init: Init = ""
    kwargs: Kwargs = ""


@dataclass(frozen=True)
class Models:
    """Who plans, diagnoses and reviews."""

    base_url: BaseUrl = None
    planner: PlannerName = None
    debugger: DebuggerName = None
    reviewer: ReviewerName = None


@dataclass(frozen=True)
class ModelLimits:
    """How the models answer, and what they may take."""

    temperature: Temperature = None
    tokens: TokenLimit = None
    usd: UsdLimit = None


@dataclass(frozen=True)
class ModelFlags:
    """The models beside the coder, their answers and what they may take."""

    models: Models = Models()
    samples: AnswerSamples = None
    limits: ModelLimits = ModelLimits()


@dataclass(frozen=True)
class Drafting:
    """Where runs lie, who drafts, and what the models may take."""

    runs: Runs = None
    coder: CoderName = None
    models: ModelFlags = ModelFlags()


@dataclass(frozen=True)
class Allowed:
    """What a candidate may do."""

    precision: PrecisionName = None
    policy: PolicyName = None


@dataclass(frozen=True)
class GoalFlags:
    """What a run is to reach, and within which limits."""

    speedup: Speedup = None
    baseline: BaselineName = None
    objective: ObjectiveName = None
    max_memory: MaxMemory = None
    max_autotune: MaxAutotune = None
    allowed: Allowed = Allowed()


@dataclass(frozen=True)
class SettingsFlags:
    """Where settings come from besides the flags of their own."""

    overrides: Overrides = None
    config: ConfigFile = None


@dataclass(frozen=True)
class Configured(SettingsFlags):
    """The same, and whether candidates run where nothing isolates them."""

    allow_unsandboxed: AllowUnsandboxed = False


class Flag(NamedTuple):
    """A field of a command's flags, also one of a group: its name, what it is and its default."""

    name: str
    annotation: object
    default: object


def flags_of(kind: type[DataclassInstance], given: object = None) -> Iterator[Flag]:
    """The flags of a dataclass in the order of its fields, those of a group in its place. `given`:
    a value that has their defaults."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = field.default if given is None else getattr(given, field.name)
        hint = hints[field.name]
        if is_dataclass(hint) and isinstance(hint, type):
            yield from flags_of(hint, None if default is MISSING else default)
        else:
            yield Flag(field.name, hint, default)


def built(kind: type[T], given: Mapping[str, object]) -> T:
    """The value of `kind` with the flags that were `given`."""
    hints = get_type_hints(kind)
    values = {}
    for name in (field.name for field in fields(kind)):
        hint = hints[name]
        group = isinstance(hint, type) and is_dataclass(hint)
        values[name] = built(hint, given) if group else given[name]
    return kind(**values)


def command_of(kind: type[T], body: Callable[[T], None]) -> Callable[..., None]:
    """The function with a parameter a flag that typer reads: it calls `body` with one value."""
    parameters = [
        inspect.Parameter(
            flag.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if flag.default is MISSING else flag.default,
            annotation=flag.annotation,
        )
        for flag in flags_of(kind)
    ]

    def command(**given: object) -> None:
        body(built(kind, given))

    command.__doc__ = kind.__doc__
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    return command


def settings_of(flags: DataclassInstance) -> dict[str, object]:
    """The settings that the flags stand for, those of their groups included; None: not given."""
    found: dict[str, object] = {}
    for name, hint in get_type_hints(type(flags), include_extras=True).items():
        value = getattr(flags, name)
        if is_dataclass(value) and not isinstance(value, type):
            found |= settings_of(value)
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Setting):
                plain = str(value) if isinstance(value, Path) else value
                found[mark.key] = (plain or None) if mark.switch else plain
    return found


@dataclass(frozen=True)
class RunsFlags:
    """List the runs, oldest first."""

    runs_folder: Runs = None
    settings: SettingsFlags = SettingsFlags()
    as_json: AsJson = False


@dataclass(frozen=True)
class ShowFlags:
    """Show a run: its candidates, their verdicts and times, and its result."""

    run: RunName = "last"
    source: Annotated[bool, typer.Option("--source", help="Print the drop-in's source alone.")] = (
        False
    )
    runs: Runs = None
    settings: SettingsFlags = SettingsFlags()
    as_json: AsJson = False


@dataclass(frozen=True)
class ApplyFlags:
    """Put a run's kernel into a model and compare its outputs with fp64; exit 0 they hold, else 3.

    The model's file stays as it is; the line that applies the kernel in a program is printed.
    """

    subject: Subject
    run: Annotated[
        str,
        typer.Option(
            "--run",
            metavar="RUN",
            autocompletion=complete_run,
            help="A run's name or folder; 'last' is the newest with a kernel.",
        ),
    ] = "last"
    declared_sizes: Annotated[
        bool,
        typer.Option(
            "--declared-sizes", help="The kernel runs at the sizes that it was timed at only."
        ),
    ] = False
    runs: Runs = None
    settings: SettingsFlags = SettingsFlags()
    as_json: AsJson = False


@dataclass(frozen=True)
class ReportFlags:
    """Write the page of a run or of a night: one file of HTML that needs no network."""

    name: Annotated[
        str,
        typer.Argument(
            metavar="RUN|NIGHT",
            autocompletion=complete_run,
            help="A run's name or folder, last, or a night's id, folder or night.json.",
        ),
    ] = "last"
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The page's file; report.html in the folder, night.html for a night."
        ),
    ] = None
    runs: Runs = None
    library: Annotated[
        Path | None,
        typer.Option(
            "--library", metavar="PATH", help="Where a night's id is looked up; the user's."
        ),
    ] = None
    settings: SettingsFlags = SettingsFlags()
    as_json: AsJson = False


@dataclass(frozen=True)
class PlanFlags:
    """Analyse a problem and its headroom; draft and run nothing. Every figure is an estimate."""

    subject: Subject
    target: TargetName = None
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE.svg", help="Draw the graph cut into segments."),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class TargetsFlags:
    """List the GPUs that kernels can be made for."""

    as_json: AsJson = False


@dataclass(frozen=True)
class VerifyFlags:
    """Check a certificate and replay its judgement; exit 0 it holds, 3 it does not."""

    certificate: Annotated[
        Path,
        typer.Argument(
            metavar="CERTIFICATE",
            help="A run's certificate.json, its folder, its name or last.",
        ),
    ]
    no_replay: Annotated[
        bool, typer.Option("--no-replay", help="Check signature and hashes; execute nothing.")
    ] = False
    known_signer: Annotated[
        bool, typer.Option("--known-signer", help="Exit 3 too where the signer is not known here.")
    ] = False
    unpickle: Unpickle = False
    allow_unsandboxed: AllowUnsandboxed = False
    as_json: AsJson = False


CandidateFile = Annotated[
    Path,
    typer.Option(
        "--candidate", autocompletion=complete_file, help="The file that defines ModelNew."
    ),
]


@dataclass(frozen=True)
class JudgeFlags:
    """Judge a candidate against its module; exit 0 accepted, 3 rejected."""

    candidate: CandidateFile
    subject: Subject
    target: TargetName = None
    allowed: Allowed = Allowed()
    settings: SettingsFlags = SettingsFlags()
    static: Annotated[
        bool,
        typer.Option(
            "--static/--no-static", help="Read the source first, or only see what it does."
        ),
    ] = True
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize/--no-sanitize", help="Ask compute-sanitizer too, where installed."
        ),
    ] = False
    declared_sizes: Annotated[
        bool,
        typer.Option(
            "--declared-sizes",
            help="It need hold for the declared sizes only, and raise at others.",
        ),
    ] = False
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, help="Of what is asked: repeats a judgement; else a fresh one."
        ),
    ] = None
    allow_unsandboxed: AllowUnsandboxed = False
    remote: RemoteUrl = None
    as_json: AsJson = False


@dataclass(frozen=True)
class ProfileFlags:
    """Judge a candidate, then time it against eager and torch.compile, or estimate it."""

    candidate: CandidateFile
    subject: Subject
    target: TargetName = None
    allowed: Allowed = Allowed()
    settings: SettingsFlags = SettingsFlags()
    allow_unsandboxed: AllowUnsandboxed = False
    remote: RemoteUrl = None
    as_json: AsJson = False


@dataclass(frozen=True)
class DoctorFlags:
    """Check this machine and what a coder needs; exit 4 where what every run needs is missing."""

    coder: CoderName = None
    base_url: BaseUrl = None
    settings: SettingsFlags = SettingsFlags()
    remote: CheckedUrl = None
    as_json: AsJson = False


@dataclass(frozen=True)
class OptimizeFlags:
    """Make a module faster: plan, draft, judge, measure, decide; hand over a drop-in."""

    subject: Subject
    target: TargetName = None
    goals: GoalFlags = GoalFlags()
    rounds: Rounds = None
    time: TimeLimit = None
    out: Out = None
    drafting: Drafting = Drafting()
    replay: Replay = None
    from_scratch: FromScratch = False
    approve: ApproveWhat = None
    timing: Annotated[
        bool,
        typer.Option("--timing", help="Print the stages of the run with their seconds at the end."),
    ] = False
    configured: Configured = Configured()
    remote: RemoteUrl = None
    as_json: AsJson = False


@dataclass(frozen=True)
class ResumeFlags:
    """Go on with a run or a session after a kill or Ctrl-C; nothing finished is judged again."""

    context: typer.Context
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            autocompletion=complete_run,
            help="The name of a run or a chat; 'last' is what was used last of both.",
        ),
    ] = LAST
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            help="More wall time, also for a run that its time limit ended: 90s, 10m, 1h.",
        ),
    ] = None
    runs: Runs = None
    settings: SettingsFlags = SettingsFlags()
    unpickle: Unpickle = False
    as_json: AsJson = False


@dataclass(frozen=True)
class ChatFlags:
    """Tune one module in conversation: ask, steer, go back, compare, keep."""

    context: typer.Context
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE[:CLASS]]",
            autocompletion=complete_reference,
            help="A file with Model, get_inputs and get_init_inputs, or FILE:CLASS with --input. "
            "Without it: the last sessions.",
        ),
    ] = None
    script: Annotated[
        Path | None,
        typer.Option(
            "--script", metavar="FILE", help="Lines fed as if typed, or an exported session.jsonl."
        ),
    ] = None
    inputs: Inputs = None
    init: Init = ""
    kwargs: Kwargs = ""
    target: TargetName = None
    runs: Runs = None
    coder: CoderName = None
    models: ModelFlags = ModelFlags()
    settings: SettingsFlags = SettingsFlags()
    as_json: AsJson = False
