"""Export of the library's kernels, and their verification in this environment.

An export is read without this package. A kernel that no longer holds is withdrawn.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import OutputError, ProblemError, RunNotFound
from agentkernel.nightly.library.library import Library, now
from agentkernel.nightly.library.rows import UNREADABLE_ROW, KernelSummary, StoredKernel
from agentkernel.storage.files import (
    explain_write_failure,
    make_folder,
    make_own_folder,
    read_regular,
    read_regular_text,
    write_atomic,
)
from agentkernel.storage.source_text import check_one_reading
from agentkernel.tools.certificate.replay import inspect_certificate, replay
from agentkernel.tools.own_files import LIVE, sha256_of

if TYPE_CHECKING:
    from agentkernel.domain.certificate import Versions
    from agentkernel.tools.certificate.replay import Replay


INDEX = "index.json"
FORMAT = 1


@dataclass(frozen=True)
class Exported:
    """How many kernels were written, how many were left out because they may not be used."""

    folder: Path
    kernels: int
    left_out: int


def export_library(
    library: Library, folder: Path, *, withdrawn: bool = False, modules: bool = False
) -> Exported:
    """Write `kernels/NAME/kernel.py` and `certificate.json` of each kernel, then `index.json`.

    `withdrawn` takes those too that may not be used any more; `modules` copies the pickles of live
    modules, which `agentkernel verify` needs for a replay. Raises OutputError for a folder that
    holds something else than an export, or cannot be written.
    """
    _make_room(folder)
    entries: list[dict[str, object]] = []
    left_out = 0
    for line in library.lines():
        stored = library.stored(line)
        usable = stored is not None and _has_one_reading(stored.kernel.source)
        if stored is None or not usable or (stored.kernel.withdrawn is not None and not withdrawn):
            left_out += 1
            continue
        entries.append(_write(library, line, stored, folder, modules=modules))
    index = {"format": FORMAT, "exported": now(), "kernels": entries}
    write_atomic(folder / INDEX, json.dumps(index, indent=2, sort_keys=True) + "\n")
    return Exported(folder, len(entries), left_out)


def _has_one_reading(source: str) -> bool:
    """Whether an import of the exported file runs the text that was judged."""
    try:
        check_one_reading(source)
    except SyntaxError:
        return False
    return True


def _write(
    library: Library, line: KernelSummary, stored: StoredKernel, folder: Path, *, modules: bool
) -> dict[str, object]:
    kernel = stored.kernel
    key = sha256_text(kernel.key.model_dump_json())[:8]
    place = Path("kernels") / f"{kernel.sha256[:16]}-{key}"
    with explain_write_failure(folder / place):
        make_own_folder(folder / place)
    write_atomic(folder / place / "kernel.py", kernel.source)
    write_atomic(folder / place / "certificate.json", stored.certificate_text)
    live = library.live_pickle(line) if modules else None
    if live is not None:
        with explain_write_failure(folder / place):
            data = read_regular(live)
        write_atomic(folder / place / LIVE, data)
    facts = kernel.model_dump(mode="json", exclude={"source", "certificate"})
    return {
        **facts,
        "problem": line.problem,
        "source": f"{place.as_posix()}/kernel.py",
        "certificate": f"{place.as_posix()}/certificate.json",
        "live": None if live is None else f"{place.as_posix()}/{LIVE}",
    }


def _make_room(folder: Path) -> None:
    with explain_write_failure(folder):
        empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        earlier = _is_export(folder / INDEX)
        if not empty and not earlier and folder.is_dir():
            raise OutputError(
                f"{str(folder)!r} holds other files. Expected a new or empty folder, or an earlier "
                "export. Next: name another folder."
            )
        if earlier:
            # What was withdrawn since is to be gone from it.
            (folder / INDEX).unlink()
            if (folder / "kernels").is_dir():  # of a pipe rmtree would wait for a writer
                shutil.rmtree(folder / "kernels", ignore_errors=True)
    make_folder(folder)
    with explain_write_failure(folder / "kernels"):
        make_own_folder(folder / "kernels")


def _is_export(index: Path) -> bool:
    try:
        found = json.loads(read_regular_text(index))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() == {"format", "exported", "kernels"}


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
