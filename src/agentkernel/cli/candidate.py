"""A candidate file with its problem and target, loaded for `judge` and `profile`.

Imports torch. The candidate's source is read here and never executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentkernel.cli.configuration import settings_from
from agentkernel.cli.options import SettingsFlags, Subject
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.storage import source_text
from agentkernel.tools.judge.judge import judge as run_judge
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler import profile as run_profile
from agentkernel.tools.targets import ResolvedTarget, find_target
from agentkernel.workflows.run_factory import judge_settings, profile_settings


@dataclass(frozen=True)
class LoadedCandidate:
    """A problem, a candidate's source and the machine it is tried on."""

    settings: Settings
    resolved: ResolvedTarget
    loaded: LoadedProblem
    captured: Captured
    source: str

    def judge(self) -> Verdict:
        """The judge's finding, on the GPU where there is a fitting one, else interpreted."""
        settings = judge_settings(self.settings, self.resolved)
        return run_judge(self.loaded, self.captured, self.source, settings)

    def profile(self) -> Profile | ProfileFailed:
        """Measured against eager and torch.compile where a GPU fits, else estimated."""
        return run_profile(
            self.loaded,
            self.captured,
            self.source,
            self.resolved,
            profile_settings(self.settings),
        )


def load_subject(subject: Subject) -> LoadedProblem:
    """The module that a command works on."""
    return load_problem(subject.reference, subject.inputs or (), subject.init, subject.kwargs)


def load_candidate(
    subject: Subject, candidate: Path, flags: SettingsFlags, values: Mapping[str, object]
) -> LoadedCandidate:
    """Read the problem and the candidate; the candidate is not executed here."""
    settings = settings_from(flags, values)
    resolved = find_target(settings.target)
    source = read_source(candidate)
    loaded = load_subject(subject)
    return LoadedCandidate(settings, resolved, loaded, capture(loaded), source)


def read_source(path: Path) -> str:
    """The candidate's text. Raises ProblemError."""
    try:
        return source_text.read_source(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProblemError(
            f"Cannot read the candidate {str(path)!r}: {reason}. "
            "Expected a Python file that defines ModelNew."
        ) from error
