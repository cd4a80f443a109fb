"""What does a session write for the user: drop-in, certificate, and the whole of it to hand on?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from agentkernel.domain.certificate import Certificate, Status
from agentkernel.domain.session import Node
from agentkernel.errors import OutputError, RunNotFound
from agentkernel.tools.atomic import make_folder, write_atomic
from agentkernel.tools.certificate import build_certificate, canonical_json, read_certificate
from agentkernel.tools.store import find_run, read_manifest
from agentkernel.workflows.outcome import decide_outcome
from agentkernel.workflows.session.gather import attempt_of
from agentkernel.workflows.session.tree import label
from agentkernel.workflows.session.work import Work


def certificate_of(work: Work, node: Node) -> Certificate:
    """The record of one right candidate; that of its run where the run handed it over.

    Raises RunNotFound where the run's folder is gone.
    """
    folder = run_folder(work, node)
    try:
        made = read_certificate(folder / "certificate.json")
    except RunNotFound:
        made = None
    if made is not None and made.candidate_sha256 == node.candidate.sha256:
        return made
    attempt = attempt_of(node)
    outcome = decide_outcome((attempt,), work.goals, nothing="")
    status: Status = outcome.status if outcome.handed_over else "verified"
    reason = outcome.reason if outcome.handed_over else f"kept on request; {outcome.reason}"
    return build_certificate(
        read_manifest(folder),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status=status,
        reason=reason,
        candidate=node.candidate,
        plan=work.plan_of(node),
        verdict=node.verdict,
        profile=node.profile,
    )


def write_certificate(work: Work, node: Node) -> Path:
    """The certificate as a file of its own in the run's folder, where a replay finds all it needs.
    Written once: another time it is the same file."""
    folder = run_folder(work, node)
    path = folder / f"certificate-{node.candidate.id}.json"
    if not path.is_file():
        write_atomic(path, canonical_json(certificate_of(work, node)))
    return path


def run_folder(work: Work, node: Node) -> Path:
    """The folder of the run that made a candidate. Raises RunNotFound."""
    step = work.tree.step(node.step)
    if step is None or step.run is None:
        raise RunNotFound(f"{label(node.number)} has no run. Expected one. Next: 'run'.")
    return find_run(work.runs, step.run)


def drop_in_path(work: Work, path: str | None) -> Path:
    """Where a drop-in goes: beside the module, or as typed. Raises OutputError for a path that
    would destroy something."""
    name = drop_in_name(work)
    module = Path(work.module.path) if work.module.path else None
    if path is None:
        return module.parent / name if module is not None else work.folder / name
    target = typed_path(path)
    if target.is_dir():
        target = target / name
    if target.suffix != ".py":
        raise OutputError(
            f"{path!r} is no Python file. Expected a path that ends in .py, or a folder. "
            f"Next: 'save it to {target.name}.py'."
        )
    if module is not None and module.exists() and target.exists() and target.samefile(module):
        raise OutputError(f"{path!r} is the module itself. Expected another file to write to.")
    if target.is_file() and "class ModelNew" not in target.read_text("utf-8", "replace"):
        raise OutputError(
            f"{path!r} is there and is no drop-in. Expected a new file, or an earlier drop-in. "
            "Next: choose another name."
        )
    return target


def typed_path(path: str) -> Path:
    """A path as somebody typed it. Raises OutputError for one that no system has."""
    if not path.isprintable():
        raise OutputError(f"{path[:80]!r} is no path: it has control characters in it.")
    try:
        found = Path(path).expanduser()
        found.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputError(f"{path[:80]!r} is no path: {error}. Expected e.g. 'fast.py'.") from error
    return found


def drop_in_name(work: Work) -> str:
    """`layernorm_optimized.py`."""
    return f"{Path(work.module.path).stem or work.module.name}_optimized.py"


def write_drop_in(work: Work, node: Node, path: Path) -> tuple[str, ...]:
    """The candidate at `path` and its certificate beside it. Raises OutputError, RunNotFound."""
    certificate = canonical_json(certificate_of(work, node))
    beside = path.with_name(f"{path.stem}.certificate.json")
    make_folder(path.parent)
    write_atomic(path, node.candidate.source)
    write_atomic(beside, certificate)
    return str(path), str(beside)


def write_session(
    work: Work, path: str | None, node: Node | None, texts: dict[str, str]
) -> tuple[str, ...]:
    """`texts` (file name -> content) with the module and the drop-in of `node`, in one folder."""
    folder = work.folder / "export" if path is None else typed_path(path)
    if folder.exists() and not folder.is_dir():
        raise OutputError(
            f"{path!r} is a file. Expected a folder for the session. Next: another name."
        )
    make_folder(folder)
    written = []
    for name, text in {**texts, work.file_name(None): work.module.source}.items():
        write_atomic(folder / name, text)
        written.append(str(folder / name))
    if node is not None:
        written += write_drop_in(work, node, folder / drop_in_name(work))
    return tuple(written)
