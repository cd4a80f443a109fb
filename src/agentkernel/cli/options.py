"""Which flags do several commands share, and how are they described?"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import typer

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
