"""Mistakes of a command line that show before torch is imported, which takes seconds."""

from __future__ import annotations

from pathlib import Path

from agentkernel.cli.configuration import settings_from, with_checked_models
from agentkernel.cli.options import (
    JudgeFlags,
    OptimizeFlags,
    PlanFlags,
    ProfileFlags,
    settings_of,
)
from agentkernel.cli.rendering.text import parse_bytes, parse_seconds
from agentkernel.domain.errors import ProblemError
from agentkernel.storage import source_text
from agentkernel.storage.files import require_writable
from agentkernel.tools.own_files import require_free_output
from agentkernel.tools.problem.loading import check_reference
from agentkernel.tools.targets import target_by_name

LOCAL = "local"
"""The target that is this machine's GPU: to look for one may take torch."""


def check_early(flags: object) -> None:
    """Raise for a setting, a coder, a target or a path of `flags` that is no such."""
    target = flags.target if isinstance(flags, PlanFlags) else None
    if isinstance(flags, OptimizeFlags):
        settings = with_checked_models(settings_from(flags.configured, optimize_values(flags)))
        target = None if settings.remote else settings.target
        check_output(flags.out)
    if isinstance(flags, JudgeFlags | ProfileFlags):
        settings = settings_from(flags.settings, settings_of(flags))
        target = None if flags.remote or settings.remote else settings.target
        read_source(flags.candidate)
    if isinstance(flags, JudgeFlags | OptimizeFlags | PlanFlags | ProfileFlags):
        check_reference(flags.subject.reference)
    if target is not None and target.strip().lower() != LOCAL:
        target_by_name(target)


def check_output(out: Path | None) -> None:
    """Raise OutputError for an `--out` that cannot be written to, or has somebody's file there."""
    if out is not None:
        require_writable(out.parent if out.suffix == ".py" else out)
        require_free_output(out)


def optimize_values(flags: OptimizeFlags) -> dict[str, object]:
    """The settings that the flags of `optimize` stand for."""
    return {
        **settings_of(flags),
        "goals.max_memory_bytes": parse_bytes(flags.goals.max_memory),
        "budget.time_s": parse_seconds(flags.time),
        "remote": flags.remote,
    }


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
