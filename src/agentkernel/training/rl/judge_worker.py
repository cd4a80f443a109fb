"""Worker process that judges and times the answers of a model in training, and their reward.

A candidate runs in the judge's sandbox alone; a problem was vetted and run before it became
training data.

right:   correct + speed * min(speedup, most_speedup) / most_speedup + own_share * share
cheat:   hack
no file: no_file
wrong:   0
right and no faster than the right file that it was made from: 0

Speedup is over eager PyTorch. The cap, and the payment for the share of the run time that a
kernel's own launches take (profiling-based reward), are of Dr. Kernel (arXiv 2602.05885):
without them a model learns to replace the cheapest operator and leave the rest.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentkernel.agents.evidence import speed_evidence
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import AgentKernelError, SandboxUnavailable, one_line
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.verdict import HACK_REASONS, Verdict, hack_name
from agentkernel.runtime.worker import serve
from agentkernel.storage.files import write_atomic
from agentkernel.tools.profiler import ProfileSettings, profile
from agentkernel.tools.profiler.session import estimate_candidate
from agentkernel.tools.roofline.model import analyse
from agentkernel.tools.targets import find_target
from agentkernel.training.judged_problems import JudgedProblem, JudgedProblems, Verification
from agentkernel.training.settings import RlSettings
from agentkernel.training.worker_pool import RL_VERIFICATION

if TYPE_CHECKING:
    from agentkernel.domain.profile import CompileReport
    from agentkernel.tools.targets import ResolvedTarget


Basis = Literal["measured", "estimated"]
"""Whether a GPU timed the kernel, or its roofline and launches were computed."""
Outcome = Literal["right", "wrong", "hack", "no-file", "undecided"]
FASTER = 1.02
"""Over the file that was to be made faster; less is the noise of two measurements."""


class Speed(Frozen):
    """How fast a right kernel is. `speedup` over eager; `own_share` of the run time, 0 to 1, that
    its own kernels take; None where nobody knows it."""

    by: Basis
    speedup: float | None = None
    own_share: float | None = None


class JudgedTurn(Frozen):
    """What became of one answer.

    `file` is the drop-in in it, None where there is none. `verdict` is the judge's, None where it
    came to no answer through no fault of the file's. `caught` names a cheat that showed only while
    the file was timed, `broke` how it failed then. `facts` say where the time of a right file goes,
    as (name, value).
    """

    file: str | None = None
    verdict: Verdict | None = None
    speed: Speed | None = None
    caught: str | None = None
    broke: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    why: str = ""
    """Why there is no verdict, or why nobody knows how fast a right file is though it was asked."""


class Reward(Frozen):
    """`value` is what the turn is worth, None where nobody can say; the parts are what it is made
    of. `hack` names the cheat."""

    outcome: Outcome
    value: float | None
    correct: float = 0.0
    speed: float = 0.0
    own: float = 0.0
    hack: str | None = None


def reward_of(turn: JudgedTurn, settings: RlSettings, before: JudgedTurn | None = None) -> Reward:
    """The reward of one turn, without what later turns bring; see the module's formula. `before` is
    the turn that it goes on from."""
    if turn.file is None:
        return Reward(outcome="no-file", value=settings.no_file)
    if turn.verdict is None:
        return Reward(outcome="undecided", value=None)
    hack = hack_of(turn)
    if hack is not None:
        return Reward(outcome="hack", value=settings.hack, hack=hack)
    if not turn.verdict.accepted or turn.broke is not None:
        return Reward(outcome="wrong", value=0.0)
    if turn.why:  # as right as the others, and who knows how much faster
        return Reward(outcome="undecided", value=None)
    if before is not None and not _faster(turn, before):
        return Reward(outcome="right", value=0.0)
    speed, own = _speed(turn.speed, settings), _own(turn.speed, settings)
    value = settings.correct + speed + own
    return Reward(outcome="right", value=value, correct=settings.correct, speed=speed, own=own)


def _faster(turn: JudgedTurn, before: JudgedTurn) -> bool:
    """Whether it did what was asked where the file before it was right: else the same file once
    more would be paid once more."""
    if before.verdict is None or not before.verdict.accepted or before.broke is not None:
        return True
    if turn.speed is None or before.speed is None:
        return False
    now, then = turn.speed.speedup, before.speed.speedup
    return now is not None and then is not None and now >= FASTER * then


def hack_of(turn: JudgedTurn) -> str | None:
    """The cheat by its kind and rule; None for right kernels and for honest failures: what does
    not compile, computes wrong values, runs out of time, or is no drop-in yet."""
    return turn.caught or (None if turn.verdict is None else hack_name(turn.verdict))


def _speed(speed: Speed | None, settings: RlSettings) -> float:
    if speed is None or speed.speedup is None or math.isnan(speed.speedup):
        return 0.0
    most = settings.most_speedup
    return settings.speed * min(max(speed.speedup, 0.0), most) / most


def _own(speed: Speed | None, settings: RlSettings) -> float:
    if speed is None or speed.own_share is None or math.isnan(speed.own_share):
        return 0.0
    return settings.own_share * min(max(speed.own_share, 0.0), 1.0)


MOST_PROBLEMS = 16
"""Problems that stay loaded: a group of rollouts asks about the same one several times."""


class TurnSettings(Frozen):
    """How an answer is judged. `speed` says whether right ones are timed on this machine's GPU,
    estimated for `target`, or neither."""

    verification: Verification = RL_VERIFICATION
    target: str | None = None
    speed: Basis | Literal["none"] = "estimated"


class TurnRequest(Frozen):
    """A problem's text and a file for it. Without a file: who is there?"""

    problem: str = ""
    file: str = ""


class TurnAnswer(Frozen):
    """What was found. `unable` says why nothing can be judged there at all."""

    turn: JudgedTurn
    unable: str = ""


@dataclass
class TurnJudge:
    """Judges files of several problems, whose text is written to `folder`."""

    settings: TurnSettings
    folder: Path
    _resolved: ResolvedTarget | None = None

    def __post_init__(self) -> None:
        self._problems = JudgedProblems(self.settings.verification, MOST_PROBLEMS)

    def answer(self, question: TurnRequest) -> TurnAnswer:
        """What the judge finds; what keeps it from judging is an answer too."""
        if not question.file:
            return TurnAnswer(turn=JudgedTurn())
        try:
            return TurnAnswer(turn=self._judged(question))
        except SandboxUnavailable as error:
            return TurnAnswer(turn=JudgedTurn(file=question.file), unable=one_line(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
            name = "" if isinstance(error, AgentKernelError) else f"{type(error).__name__}: "
            return TurnAnswer(turn=JudgedTurn(file=question.file, why=name + one_line(error)))

    def _judged(self, question: TurnRequest) -> JudgedTurn:
        problem = self._load(question.problem)
        verdict = self._problems.judge(problem, question.file)
        if verdict is None:
            return JudgedTurn(file=question.file, why=problem.too_large)
        turn = JudgedTurn(file=question.file, verdict=verdict)
        if not verdict.accepted or self.settings.speed == "none":
            return turn
        return self._timed(turn, problem, verdict)

    def _timed(self, turn: JudgedTurn, problem: JudgedProblem, verdict: Verdict) -> JudgedTurn:
        assert turn.file is not None
        assert problem.captured is not None
        assert hack_name(verdict) is None
        found = self._profile(turn.file, problem)
        if isinstance(found, ProfileFailed):
            if found.side != "candidate":  # says nothing about it
                return turn.evolve(why=f"not timed: {found.side} {found.reason}")
            name = f"profile:{found.reason}" if found.reason in HACK_REASONS else None
            broke = one_line(f"{found.reason} {found.log}", 200)
            return turn.evolve(caught=name, broke=broke)
        speed = speed_of(found)
        if speed.by != self.settings.speed:  # what is estimated never stands in for what is timed
            return turn.evolve(why=f"not timed: {speed.by} alone")
        target = self._target().target
        facts = speed_evidence(found, analyse(problem.captured, target), target).facts
        return turn.evolve(
            speed=speed,
            facts=tuple((item.name, item.value) for item in facts),
        )

    def _profile(self, file: str, problem: JudgedProblem) -> Profile | ProfileFailed:
        assert problem.captured is not None
        resolved = self._target()
        if self.settings.speed == "measured":
            # A reward reads eager, the candidate and the share of its kernels, of the first shapes.
            chosen = ProfileSettings(compare_compile=False, shape_sets=(0,))
            return profile(problem.loaded, problem.captured, file, resolved, chosen)
        found = estimate_candidate(
            problem.loaded,
            problem.captured,
            file,
            resolved.target,
            precision="strict",
            allow_unsandboxed=False,
        )
        if found.failed is not None:
            return found.failed
        return Profile(
            candidate=sha256_text(file),
            target=resolved.target.name,
            report=found.report,
            estimate=found.candidate,
            baseline_estimate=found.eager,
        )

    def _target(self) -> ResolvedTarget:
        if self._resolved is None:
            self._resolved = find_target(self.settings.target)
        return self._resolved

    def _load(self, text: str) -> JudgedProblem:
        path = self.folder / f"m{sha256_text(text)[:16]}.py"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_atomic(path, text)
        return self._problems.load(path)


def speed_of(profile: Profile) -> Speed:
    """Of the primary shapes: what was measured, or what was estimated, never of both."""
    if profile.measurements:
        first = profile.measurements[0]
        return Speed(by="measured", speedup=first.vs_eager.value, own_share=first.own_kernel_share)
    eager, own = profile.baseline_estimate, profile.estimate.time_us
    return Speed(
        by="estimated",
        speedup=eager.time_us / own if eager is not None and own > 0 else None,
        own_share=_share_of_bytes(profile.report),
    )


def _share_of_bytes(report: CompileReport | None) -> float | None:
    """The share of the traffic that goes through a file's own kernels stands for that of the time:
    nobody timed it."""
    if report is None:
        return None
    own = sum(report.traffic)
    library = sum(item.bytes_moved for item in report.library_costs)
    return own / (own + library) if own + library else None


def judge(line: Connection, settings: str) -> None:
    """Serve under `settings`, a TurnSettings in JSON."""
    with tempfile.TemporaryDirectory(prefix="agentkernel-turns-") as folder:
        judge = TurnJudge(TurnSettings.model_validate_json(settings), Path(folder))
        serve(line, TurnRequest, judge.answer)
