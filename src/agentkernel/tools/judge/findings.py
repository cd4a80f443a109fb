"""What a judgement has gathered, and the verdict that it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkernel.domain.base import sha256_text
from agentkernel.domain.verdict import CaseResult, Failure, Gate, Mismatch, Verdict
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.known_kernels import Kernels
from agentkernel.tools.judge.pace import Pace
from agentkernel.tools.judge.settings import JudgeSettings, rule_of
from agentkernel.tools.problem.loading import LoadedProblem

GATES: dict[str, Gate] = {
    "policy": "policy",
    "load": "load",
    "compile": "compile",
    "run": "run",
    "meta": "meta",
    "mismatch": "correctness",
    "inputs": "inputs",
    "execution": "execution",
    "races": "races",
    "timing": "timing",
}


@dataclass
class Findings:
    """What a judgement has gathered so far."""

    sandbox: str = ""
    cases: list[CaseResult] = field(default_factory=list)
    launches: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    repeatable: bool | None = None
    eval_only: bool = False
    gradients: bool | None = None
    kernelbench: bool | None = False
    left_out: set[str] = field(default_factory=set)
    """Shapes at which a call would take minutes in the interpreter, by the `pace` of others."""
    pace: Pace = field(default_factory=Pace)
    kernels: Kernels = ()
    """What the candidate's first worker compiled on a GPU."""

    def leave_out(self, shape: CaseShape, seconds: float) -> None:
        """Ask nothing at `shape`, where a call would take so many seconds, and say so."""
        if shape.label not in self.left_out:
            self.left_out.add(shape.label)
            self.notes.append(
                f"not asked here: {shape.label}: a call would take about {seconds:.0f} s in the "
                "interpreter"
            )


def verdict_of(
    loaded: LoadedProblem,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
    failure: Failure | None,
    seconds: float,
) -> Verdict:
    """The verdict on `source`, refused where there is a `failure`."""
    return Verdict(
        candidate=sha256_text(source),
        problem=loaded.problem.sha256,
        accepted=failure is None,
        interpreted=settings.device == "cpu",
        device=_device_name(settings),
        gate="accepted" if failure is None else GATES[failure.kind],
        failure=failure,
        cases=tuple(findings.cases),
        launches=findings.launches,
        precision=settings.precision,
        rule=rule_of(settings.rule).version,
        policy=settings.policy,
        sandbox=findings.sandbox,
        seconds=round(seconds, 3),
        seed=settings.seed,
        notes=tuple(dict.fromkeys(findings.notes)),
        repeatable=findings.repeatable,
        eval_only=findings.eval_only,
        gradients=findings.gradients,
        declared_sizes=settings.declared_sizes,
        kernelbench=_kernelbench(settings, findings, failure),
    )


def _kernelbench(
    settings: JudgeSettings, findings: Findings, failure: Failure | None
) -> bool | None:
    """What was found; False for a candidate refused for anything but its numbers."""
    if not settings.kernelbench:
        return None
    numbers = failure is None or isinstance(failure, Mismatch)
    return findings.kernelbench if numbers else False


def _device_name(settings: JudgeSettings) -> str:
    if settings.device == "cpu":
        return "triton interpreter"
    import torch

    return torch.cuda.get_device_name()
