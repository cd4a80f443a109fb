"""What does the process do that judges the answers of a model in training, and times the right
ones?

It reads a line of JSON a question and writes one for what it found. A candidate runs in the judge's
sandbox alone; a problem was read and run before it became training data.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import AgentKernelError, SandboxUnavailable, one_line
from agentkernel.domain.verdict import HACK_REASONS, hack_name
from agentkernel.runtime.processes import end_with_parent
from agentkernel.storage.atomic import write_atomic
from agentkernel.training.judged_problems import JudgedProblem, JudgedProblems, Verification
from agentkernel.training.judging import RL_VERIFICATION
from agentkernel.training.pair_process import READY
from agentkernel.training.rl.reward import Basis, JudgedTurn, Speed

if TYPE_CHECKING:
    from agentkernel.domain.profile import CompileReport, Profile, ProfileFailed
    from agentkernel.domain.verdict import Verdict
    from agentkernel.tools.targets import ResolvedTarget

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
    """What was found. `unable` says why nothing can be judged there at all; `versions` answer a
    question without a file."""

    turn: JudgedTurn
    unable: str = ""
    versions: Versions | None = None


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
        from agentkernel.runtime.versions import installed_versions

        if not question.file:
            return TurnAnswer(turn=JudgedTurn(), versions=installed_versions())
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
        from agentkernel.agents.speed import speed_evidence
        from agentkernel.domain.profile import ProfileFailed
        from agentkernel.tools.roofline.roofline import analyse

        assert turn.file is not None
        assert problem.captured is not None
        assert hack_name(verdict) is None
        found = self._profile(turn.file, problem)
        if isinstance(found, ProfileFailed):
            if found.side != "candidate":  # says nothing about it
                return turn.model_copy(update={"why": f"not timed: {found.side} {found.reason}"})
            name = f"profile:{found.reason}" if found.reason in HACK_REASONS else None
            broke = one_line(f"{found.reason} {found.log}", 200)
            return turn.model_copy(update={"caught": name, "broke": broke})
        speed = speed_of(found)
        if speed.by != self.settings.speed:  # what is estimated never stands in for what is timed
            return turn.model_copy(update={"why": f"not timed: {speed.by} alone"})
        target = self._target().target
        facts = speed_evidence(found, analyse(problem.captured, target), target).facts
        return turn.model_copy(
            update={
                "speed": speed,
                "facts": tuple((item.name, item.value) for item in facts),
            }
        )

    def _profile(self, file: str, problem: JudgedProblem) -> Profile | ProfileFailed:
        from agentkernel.domain.profile import Profile
        from agentkernel.tools.profiler import ProfileSettings, profile
        from agentkernel.tools.profiler.estimates import estimate_candidate

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
        from agentkernel.tools.targets import find_target

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


def serve(settings: TurnSettings, questions: int, answers: int) -> None:
    """Answer question after question until the pipe `questions` ends."""
    with (
        os.fdopen(questions, encoding="utf-8") as asked,
        os.fdopen(answers, "w", encoding="utf-8") as told,
        tempfile.TemporaryDirectory(prefix="agentkernel-turns-") as folder,
    ):
        judge = TurnJudge(settings, Path(folder))
        print(READY, file=told, flush=True)
        for line in asked:
            question = TurnRequest.model_validate_json(line)
            print(judge.answer(question).model_dump_json(), file=told, flush=True)


def main(settings: str, questions: str, answers: str) -> None:
    """Serve under `settings`, a TurnSettings in JSON, on the pipes of these numbers."""
    end_with_parent(int(questions))
    warnings.simplefilter("ignore")
    serve(TurnSettings.model_validate_json(settings), int(questions), int(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
