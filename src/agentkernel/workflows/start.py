"""What does a run begin with beside its problem and settings, and how does its folder keep that?"""

from __future__ import annotations

import os

from pydantic import ValidationError

from agentkernel.agents.given import file_coder_path, read_candidate_file
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import RunNotFound
from agentkernel.domain.profile import Profile
from agentkernel.domain.settings import FILE_PREFIX, Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.storage.disk import read_regular_text
from agentkernel.tools.store import RunStore
from agentkernel.workflows.context import Context, RunStart
from agentkernel.workflows.events import Noted
from agentkernel.workflows.outcome import EARLIER, OUT_OF_TIME
from agentkernel.workflows.state import OptimizeRequest

GIVEN = "given"
"""The folder that a given file is copied to, under its own name."""
START = "start.json"
"""What earlier runs leave to this one; absent where they leave nothing."""


def start_files(request: OptimizeRequest) -> dict[str, str]:
    """What the folder of a new run is to keep: path below it -> text. Raises SettingError."""
    files: dict[str, str] = {}
    if request.settings.coder.startswith(FILE_PREFIX):
        path = file_coder_path(request.settings.coder)
        files[f"{GIVEN}/{path.name}"] = read_candidate_file(path)
    if request.history or request.focus is not None:
        start = RunStart(history=request.history, focus=request.focus)
        files[START] = start.model_dump_json(indent=1) + "\n"
    return files


def settings_of(store: RunStore) -> Settings:
    """The run's settings; a given file is the folder's own copy, whatever became of the file."""
    settings = store.manifest.settings
    if not settings.coder.startswith(FILE_PREFIX):
        return settings
    copy = store.folder.absolute() / GIVEN / file_coder_path(settings.coder).name
    return settings.model_copy(update={"coder": f"{FILE_PREFIX}{copy}"})


def read_start(store: RunStore) -> RunStart:
    """What the run began with. Raises RunNotFound where the file is there but cannot be read."""
    path = store.folder / START
    if not os.path.lexists(path):
        return RunStart()
    try:
        return RunStart.model_validate_json(read_regular_text(path))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        problem = "is unreadable" if isinstance(error, OSError) else "is corrupt"
        raise RunNotFound(
            f"Run {store.id!r}: {str(path)!r} {problem}. Expected the earlier attempts that "
            "optimize wrote. Next: optimize again, or move the file away to go on without them."
        ) from error


def inherited_attempts(context: Context) -> tuple[Attempt, ...]:
    """The earlier attempts that hold in this run; each that does not is noted and left out, so that
    its text may be drafted and judged anew."""
    held = []
    for attempt in context.start.history:
        why = _disagreement(attempt, context)
        if why is not None:
            text = f"earlier candidate {attempt.candidate.id} is left out: {why}"
            context.emit(Noted(text=text))
            continue
        candidate = attempt.candidate.model_copy(update={"round": EARLIER})
        context.store.write_candidate(candidate)
        held.append(attempt.model_copy(update={"candidate": candidate}))
    return tuple(held)


def _disagreement(attempt: Attempt, context: Context) -> str | None:
    """Why what is known of an attempt does not hold here; None where it does. Its keys say all;
    without them, what its verdict and profile say themselves must agree."""
    candidate, tools = attempt.candidate, context.tools
    if attempt.verdict is None:
        return None if attempt.aside not in ("", OUT_OF_TIME) else "it was not judged"
    if attempt.judge_key not in ("", tools.judge_key(candidate)):
        return "it was judged under other settings"
    if attempt.profile_key not in ("", tools.profile_key(candidate)):
        return "it was profiled under other settings"
    found = _verdict_differs(attempt.verdict, candidate, context)
    if found is None and attempt.profile is not None:
        found = _profile_differs(attempt.profile, candidate, context)
    return found


def _verdict_differs(verdict: Verdict, candidate: Candidate, context: Context) -> str | None:
    settings = context.store.manifest.settings
    if verdict.candidate != candidate.sha256:
        return "its verdict is about another text"
    if verdict.problem not in ("", context.problem.problem.sha256):
        return "it was judged for another problem"
    if verdict.interpreted is context.measurable:
        return "it was judged on another kind of device"
    pairs = (
        ("precision", verdict.precision, settings.goals.precision),
        ("policy", verdict.policy, settings.policy),
        (
            "seed",
            verdict.seed,
            verdict.seed if settings.judge.seed is None else settings.judge.seed,
        ),
    )
    named = (f"{name} {theirs}, not {ours}" for name, theirs, ours in pairs if theirs != ours)
    differs = next(named, None)
    return None if differs is None else f"it was judged with {differs}"


def _profile_differs(profile: Profile, candidate: Candidate, context: Context) -> str | None:
    if profile.candidate != candidate.sha256:
        return "its profile is about another text"
    if profile.target != context.target.name:
        return f"it was profiled for {profile.target}, not {context.target.name}"
    return None
