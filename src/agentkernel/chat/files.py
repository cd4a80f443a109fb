"""Files written for the user: drop-in, certificate and the exported session.

A certificate can be verified by replay: its signature, its hashes and the judgement again.
"""

from __future__ import annotations

from pathlib import Path

from agentkernel.chat import figures
from agentkernel.chat.queries import not_possible
from agentkernel.chat.replies import JSON_LINES, PAGE, PAGE_BEGINS, SCRIPT, Reply, TextReply
from agentkernel.chat.requests import OnCandidate
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.store import attempt_of
from agentkernel.chat.tree import Node, is_accepted, label
from agentkernel.domain.certificate import Certificate, Status
from agentkernel.domain.errors import AgentKernelError, OutputError, RunNotFound
from agentkernel.domain.plain_text import plain
from agentkernel.storage.files import explain_write_failure, make_folder, write_atomic
from agentkernel.tools.certificate.record import (
    build_certificate,
    canonical_json,
    drop_in_name,
    read_certificate,
    sign_certificate,
)
from agentkernel.tools.certificate.replay import UNSIGNED, Replay, replay
from agentkernel.tools.run_store import find_run, read_manifest
from agentkernel.workflows.outcome import decide_outcome

TOLD = frozenset({PAGE, JSON_LINES, SCRIPT})


def certificate_of(work: SessionState, node: Node) -> Certificate:
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
    certificate = build_certificate(
        read_manifest(folder),
        status=status,
        reason=reason,
        candidate=node.candidate,
        plan=work.plan_of(node),
        verdict=node.verdict,
        profile=node.profile,
    )
    graph = made.graph if made is not None else None
    return sign_certificate(certificate.evolve(graph=graph))


def write_certificate(work: SessionState, node: Node) -> Path:
    """The certificate as a file of its own in the run's folder, where a replay finds all it needs.
    Written once: another time it is the same file."""
    folder = run_folder(work, node)
    path = folder / f"certificate-{node.candidate.id}.json"
    if not path.is_file():
        write_atomic(path, canonical_json(certificate_of(work, node)))
    return path


def run_folder(work: SessionState, node: Node) -> Path:
    """The folder of the run that made a candidate. Raises RunNotFound."""
    step = work.tree.step(node.step)
    if step is None or step.run is None:
        raise RunNotFound(f"{label(node.number)} has no run. Expected one. Next: 'run'.")
    return find_run(work.runs, step.run)


def drop_in_path(work: SessionState, path: str | None) -> Path:
    """Where a drop-in goes: beside the module, or as typed. Raises OutputError for a path that
    would destroy something."""
    name = drop_in_name(work.module)
    module = Path(work.module.path) if work.module.path else None
    if path is None:
        usual = module.parent / name if module is not None else work.folder / name
        _spare(work, usual, str(usual))
        return usual
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
    _spare(work, target, path)
    return target


def _spare(work: SessionState, target: Path, shown: str) -> None:
    """Raises OutputError where a file is there that is no drop-in as it was written: somebody's
    own work, or a drop-in that was changed by hand."""
    if target.exists() and not _as_written(work, target):
        raise OutputError(
            f"{shown!r} is there and is no drop-in as it was written. Expected a new file, or a "
            "drop-in that nobody changed. Next: 'save it to' another name."
        )


def _as_written(work: SessionState, target: Path) -> bool:
    """True for the text of a candidate of this session, or of the certificate beside it."""
    text = _text(target)
    if any(text == node.candidate.source for node in work.tree.nodes):
        return True
    try:
        return read_certificate(_certificate_beside(target)).candidate_source == text
    except AgentKernelError:
        return False


def _certificate_beside(drop_in: Path) -> Path:
    return drop_in.with_name(f"{drop_in.stem}.certificate.json")


def typed_path(path: str) -> Path:
    """A path as somebody typed it. Raises OutputError for one that no system has."""
    if not path.isprintable():
        raise OutputError(f"{path[:80]!r} is no path: it has control characters in it.")
    try:
        found = Path(path).expanduser()
        found.exists()
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise OutputError(f"{path[:80]!r} is no path: {why}. Expected e.g. 'fast.py'.") from error
    return found


def write_drop_in(work: SessionState, node: Node, path: Path) -> tuple[str, ...]:
    """The candidate at `path` and its certificate beside it. Raises OutputError, RunNotFound."""
    certificate = canonical_json(certificate_of(work, node))
    beside = _certificate_beside(path)
    make_folder(path.parent)
    write_atomic(path, node.candidate.source)
    write_atomic(beside, certificate)
    return str(path), str(beside)


def write_session(
    work: SessionState, path: str | None, node: Node | None, texts: dict[str, str]
) -> tuple[str, ...]:
    """`texts` (file name -> content) with the module and the drop-in of `node`, in one folder."""
    folder = work.folder / "export" if path is None else typed_path(path)
    if folder.exists() and not folder.is_dir():
        raise OutputError(
            f"{path!r} is a file. Expected a folder for the session. Next: another name."
        )
    # A script is run as it stands; the others are read.
    texts = {name: text if name == SCRIPT else plain(text) for name, text in texts.items()}
    files = {**texts, work.file_name(None): work.module.source}
    _spare_all(files, folder)
    drop_in = folder / drop_in_name(work.module)
    if node is not None:
        _spare(work, drop_in, str(drop_in))
    make_folder(folder)
    written = []
    for name, text in files.items():
        if _text(folder / name) != text:
            write_atomic(folder / name, text)
        written.append(str(folder / name))
    if node is not None:
        written += write_drop_in(work, node, drop_in)
    return tuple(written)


def _spare_all(files: dict[str, str], folder: Path) -> None:
    """Raises OutputError where `folder` has other files of these names. What an earlier export told
    of a session is told anew; a module is never written over."""
    again = _text(folder / PAGE).startswith(PAGE_BEGINS)
    for name, text in files.items():
        path = folder / name
        told_anew = again and name in TOLD
        if path.exists() and not told_anew and _text(path) != text:
            raise OutputError(
                f"{str(path)!r} is there and is not this session's. Expected a new folder, or that "
                "of an earlier export. Next: 'export to' another folder."
            )


def _text(path: Path) -> str:
    """What a file holds; "" where there is none."""
    with explain_write_failure(path):
        return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


def verify(work: SessionState, intent: OnCandidate) -> Reply:
    """Replay a candidate's certificate: its signature, its hashes and the judgement again."""
    node = _right(work, intent)
    if isinstance(node, TextReply):
        return node
    path = write_certificate(work, node)
    found = replay(path, allow_unsandboxed=work.settings.judge.allow_unsandboxed)
    name = label(node.number)
    lines = [f"signature {found.signature}" + (f": {found.unsigned}" if found.unsigned else "")]
    lines += [f"edited: {item}" for item in found.edited]
    if found.verdict is not None:
        lines.append(f"judged again on {found.verdict.device}: {found.verdict.answer}")
    lines += [
        f"{item.what}: {item.then} then, {item.now} now" + (", which decides" * item.decisive)
        for item in found.differences
    ]
    return TextReply(text="\n".join([f"{name} {_ending(found)}.", *lines]), ok=found.holds)


def _ending(found: Replay) -> str:
    if found.fits and not found.holds:
        return f"is {UNSIGNED}"
    return "not decided here" if found.undecided else "holds" if found.holds else "does not hold"


def certificate(work: SessionState, intent: OnCandidate) -> Reply:
    """What is certified about a candidate, and in which file."""
    node = _right(work, intent)
    if isinstance(node, TextReply):
        return node
    path = write_certificate(work, node)
    found = read_certificate(path)
    signer = found.signature.fingerprint[:16] if found.signature else f"nobody: {found.unsigned}"
    lines = (
        f"{label(node.number)}: {found.status}, {found.basis}; {found.reason}",
        f"candidate {found.candidate_sha256}",
        f"problem {found.problem_sha256}",
        f"made {found.created} for {found.target}, signed by {signer}",
        f"in {path}",
    )
    return TextReply(text="\n".join(lines))


def _right(work: SessionState, intent: OnCandidate) -> Node | TextReply:
    """A candidate that may be handed over, else why not."""
    node = work.node(intent.candidate)
    if not is_accepted(node):
        words = figures.verdict_words(node)
        return not_possible(
            f"{label(node.number)} cannot be handed over: {words}. 'why was it rejected?'"
        )
    try:
        run_folder(work, node)
    except RunNotFound as error:
        return not_possible(str(error))
    return node
