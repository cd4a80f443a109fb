"""Does a kernel of the library still hold, here and now? One that does not is withdrawn."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentkernel.errors import ProblemError, RunNotFound
from agentkernel.tools.atomic import write_atomic
from agentkernel.tools.library.library import Library, now
from agentkernel.tools.library.rows import UNREADABLE_ROW, KernelLine

if TYPE_CHECKING:
    from agentkernel.domain.certificate import Versions
    from agentkernel.tools.replay import Replay

State = Literal["holds", "withdrawn", "skipped", "undecided"]
LIVE = "live.pkl"


@dataclass(frozen=True)
class Checked:
    """What became of one kernel. `skipped`: signature and hashes fit, and it is for another torch
    or Triton than this one; `undecided`: this machine cannot judge it."""

    kernel: KernelLine
    state: State
    reason: str = ""


def verify_kernel(
    library: Library,
    line: KernelLine,
    versions: Versions,
    *,
    runs: Path | None = None,
    allow_unsandboxed: bool = False,
) -> Checked:
    """Check hashes and signature, replay the judgement where `versions` are the kernel's own, and
    write into the library what came out.

    A live module comes from the pickle that was put with the kernel, else from its run's folder
    below `runs`. Raises SandboxUnavailable where nothing isolates the candidate.
    """
    if line.withdrawn is not None:
        return Checked(line, "withdrawn", line.withdrawn)
    found = _check(library, line, versions, runs, allow_unsandboxed=allow_unsandboxed)
    if found.state == "withdrawn":
        library.withdraw(line.sha256, found.reason, key=line.key)
    elif found.state == "holds":
        library.verified(line.sha256, now(), key=line.key)
    return found


def write_evidence(library: Library, line: KernelLine, text: str, folder: Path) -> Path:
    """`certificate.json` as it was put, with the live module's pickle beside it if there is one."""
    path = folder / "certificate.json"
    write_atomic(path, text)
    live = library.live_pickle(line)
    if live is not None:
        (folder / LIVE).symlink_to(live.absolute())
    return path


def _check(
    library: Library,
    line: KernelLine,
    versions: Versions,
    runs: Path | None,
    *,
    allow_unsandboxed: bool,
) -> Checked:
    from agentkernel.tools.replay import inspect_certificate, replay

    stored = library.stored(line)
    if stored is None:
        return Checked(line, "withdrawn", UNREADABLE_ROW)
    if stored.kernel.withdrawn is not None:
        return Checked(line, "withdrawn", stored.kernel.withdrawn)
    with tempfile.TemporaryDirectory(prefix="agentkernel-verify-") as name:
        path = write_evidence(library, line, stored.certificate_text, Path(name))
        _, inspected = inspect_certificate(path)
        if inspected.edited:
            return _finding(line, inspected)
        key = line.key
        if (key.torch, key.triton) != (versions.torch, versions.triton):
            return Checked(line, "skipped", f"for torch {key.torch} and triton {key.triton}")
        _link_run(path.with_name(LIVE), line, runs)
        try:
            return _finding(line, replay(path, allow_unsandboxed=allow_unsandboxed))
        except (ProblemError, RunNotFound) as error:
            return Checked(line, "undecided", _without(str(error), path))


def _finding(line: KernelLine, found: Replay) -> Checked:
    if found.edited:
        return Checked(line, "withdrawn", f"edited: {', '.join(found.edited)} does not fit")
    decisive = [f"{d.what}: {d.then} then, {d.now} now" for d in found.differences if d.decisive]
    if decisive:
        return Checked(line, "withdrawn", "; ".join(decisive))
    if found.undecided or found.verdict is None:
        return Checked(line, "undecided", found.undecided or found.nothing)
    if not found.verdict.accepted:
        return Checked(line, "withdrawn", f"rejected at {found.verdict.gate}")
    return Checked(line, "holds")


def _link_run(live: Path, line: KernelLine, runs: Path | None) -> None:
    kept = (runs or Path()) / line.run / LIVE
    if line.run and not live.exists() and kept.is_file():
        live.symlink_to(kept.absolute())


def _without(text: str, path: Path) -> str:
    """The file of the replay is gone by the time that this is read."""
    return text.replace(f"The certificate {str(path)!r}", "It")
