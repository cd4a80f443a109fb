"""What is certified about a candidate of a session, and does it hold?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.chat import figures
from agentkernel.chat.domain_session import Node
from agentkernel.chat.intent import OnCandidate
from agentkernel.chat.looks import not_possible
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.tree import NoSuchCandidate, is_accepted, label
from agentkernel.chat.work import SessionState
from agentkernel.domain.errors import RunNotFound

if TYPE_CHECKING:
    from agentkernel.tools.certificate.replay import Replay


def verify(work: SessionState, intent: OnCandidate) -> Reply:
    """Replay a candidate's certificate: its signature, its hashes and the judgement again."""
    from agentkernel.chat.files import write_certificate
    from agentkernel.tools.certificate.replay import replay

    node = _right(work, intent)
    if isinstance(node, TextReply):
        return node
    path = write_certificate(work, node)
    found = replay(path, allow_unsandboxed=work.settings.judge.allow_unsandboxed)
    name = label(node.number)
    lines = [f"signature {found.signature}" + (f": {found.unsigned}" if found.unsigned else "")]
    lines += [f"edited: {item}" for item in found.edited]
    if found.verdict is not None:
        accepted = "accepted" if found.verdict.accepted else f"refused at {found.verdict.gate}"
        lines.append(f"judged again on {found.verdict.device}: {accepted}")
    lines += [
        f"{item.what}: {item.then} then, {item.now} now" + (", which decides" * item.decisive)
        for item in found.differences
    ]
    return TextReply(text="\n".join([f"{name} {_ending(found)}.", *lines]), ok=found.holds)


def _ending(found: Replay) -> str:
    from agentkernel.tools.certificate.replay import UNSIGNED

    if found.fits and not found.holds:
        return f"is {UNSIGNED}"
    return "not decided here" if found.undecided else "holds" if found.holds else "does not hold"


def certificate(work: SessionState, intent: OnCandidate) -> Reply:
    """What is certified about a candidate, and in which file."""
    from agentkernel.chat.files import write_certificate
    from agentkernel.tools.certificate.certificate import read_certificate

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
    if isinstance(node, NoSuchCandidate):
        return not_possible(node.text)
    if not is_accepted(node):
        words = figures.verdict_words(node)
        return not_possible(
            f"{label(node.number)} cannot be handed over: {words}. 'why was it rejected?'"
        )
    try:
        from agentkernel.chat.files import run_folder

        run_folder(work, node)
    except RunNotFound as error:
        return not_possible(str(error))
    return node
