"""Does a kernel of the library still hold, here and now? One that does not is withdrawn."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkernel.domain.errors import ProblemError, RunNotFound
from agentkernel.nightly.library.library import Library, now
from agentkernel.nightly.library.rows import UNREADABLE_ROW, KernelSummary
from agentkernel.storage.atomic import write_atomic
from agentkernel.tools.live_module import LIVE, sha256_of

if TYPE_CHECKING:
    from agentkernel.domain.certificate import Versions
    from agentkernel.tools.certificate.replay import Replay

State = Literal["holds", "withdrawn", "skipped", "undecided"]
NIGHT_RUNS = ".nights/*/*"
"""Where the runs of nights lie below the folder of all runs."""


class ReplayOptions(NamedTuple):
    """How a judgement is replayed."""

    allow_unsandboxed: bool
    unpickle: bool


@dataclass(frozen=True)
class VerifiedKernel:
    """What became of one kernel. `skipped`: signature and hashes fit, and it is for another torch
    or Triton than this one; `undecided`: this machine cannot judge it."""

    kernel: KernelSummary
    state: State
    reason: str = ""


def verify_kernel(
    library: Library,
    line: KernelSummary,
    versions: Versions,
    *,
    runs: Path | None = None,
    allow_unsandboxed: bool = False,
    unpickle: bool = False,
) -> VerifiedKernel:
    """Check hashes and signature, replay the judgement where `versions` are the kernel's own, and
    write into the library what came out.

    A live module comes from the pickle that was put with the kernel, else from its run's folder
    below `runs`, or from that of the night below there; `unpickle` reads it whoever made it. Raises
    SandboxUnavailable where nothing isolates the candidate.
    """
    if line.withdrawn is not None:
        return VerifiedKernel(line, "withdrawn", line.withdrawn)
    found = _check(library, line, versions, runs, ReplayOptions(allow_unsandboxed, unpickle))
    if found.state == "withdrawn":
        library.withdraw(line.sha256, found.reason, key=line.key)
    elif found.state == "holds":
        library.verified(line.sha256, now(), key=line.key)
    return found


def _check(
    library: Library,
    line: KernelSummary,
    versions: Versions,
    runs: Path | None,
    asked: ReplayOptions,
) -> VerifiedKernel:
    from agentkernel.tools.certificate.replay import inspect_certificate, replay

    stored = library.stored(line)
    if stored is None:
        return VerifiedKernel(line, "withdrawn", UNREADABLE_ROW)
    if stored.kernel.withdrawn is not None:
        return VerifiedKernel(line, "withdrawn", stored.kernel.withdrawn)
    with tempfile.TemporaryDirectory(prefix="agentkernel-verify-") as name:
        path = Path(name) / "certificate.json"
        write_atomic(path, stored.certificate_text)
        _, inspected = inspect_certificate(path)
        if inspected.edited:
            return _finding(line, inspected)
        key = line.key
        if (key.torch, key.triton) != (versions.torch, versions.triton):
            return VerifiedKernel(line, "skipped", f"for torch {key.torch} and triton {key.triton}")
        live = library.live_pickle(line) or _of_its_run(line, runs)
        certificate = stored.kernel.certificate
        if certificate.problem.origin == "live" and live is None:
            return VerifiedKernel(line, "undecided", _no_live(library, line, runs))
        if live is not None and certificate.live_sha256 not in (None, sha256_of(live)):
            return VerifiedKernel(
                line, "undecided", f"{str(live)!r} is not the pickle it was made with"
            )
        try:
            return _finding(line, replay(path, live=live, **asked._asdict()))
        except RunNotFound as error:
            return VerifiedKernel(line, "undecided", str(error))
        except ProblemError as error:
            return VerifiedKernel(line, "undecided", str(error))


def _finding(line: KernelSummary, found: Replay) -> VerifiedKernel:
    if found.edited:
        return VerifiedKernel(line, "withdrawn", f"edited: {', '.join(found.edited)} does not fit")
    decisive = [f"{d.what}: {d.then} then, {d.now} now" for d in found.differences if d.decisive]
    if decisive:
        return VerifiedKernel(line, "withdrawn", "; ".join(decisive))
    if found.undecided or found.verdict is None:
        return VerifiedKernel(line, "undecided", found.undecided or found.nothing)
    if not found.verdict.accepted:
        return VerifiedKernel(line, "withdrawn", f"rejected at {found.verdict.gate}")
    return VerifiedKernel(line, "holds")


def _of_its_run(line: KernelSummary, runs: Path | None) -> Path | None:
    # A run's name that was edited into a path must not choose what is unpickled.
    if Path(line.run).name != line.run or line.run in ("", ".."):
        return None
    folder = runs or Path()
    nights = folder.glob(f"{NIGHT_RUNS}/{escape(line.run)}/{LIVE}")
    return next((p for p in (folder / line.run / LIVE, *sorted(nights)) if p.is_file()), None)


def _no_live(library: Library, line: KernelSummary, runs: Path | None) -> str:
    return (
        f"its live module is neither beside {str(library.path)!r} nor in the folder of run "
        f"{line.run!r} below {str(runs or Path())!r}. Next: --runs FOLDER names where that run lies"
    )
