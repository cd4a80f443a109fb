"""The certificate file of a result, with hashes that show an edit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import (
    HANDED_OVER,
    Certificate,
    Signature,
    Status,
)
from agentkernel.domain.errors import AgentKernelError, RunNotFound
from agentkernel.domain.plan import Plan
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict
from agentkernel.storage.files import fit_file_name, read_regular_text
from agentkernel.tools.certificate.signing import (
    SignatureState,
    canonical_text,
    read_tree,
    sign,
    signature_of,
    signature_state,
    signed_text,
)
from agentkernel.tools.own_files import CERTIFICATE
from agentkernel.tools.run_store import Manifest


@dataclass(frozen=True)
class CertificateFile:
    """A certificate's file as it was found. `certificate` is None where an edit left values that
    no certificate has; `problem` says which."""

    certificate: Certificate | None
    signature: Signature | None
    state: SignatureState
    problem: str = ""


def build_certificate(
    manifest: Manifest,
    *,
    status: Status,
    reason: str,
    candidate: Candidate | None,
    plan: Plan | None,
    verdict: Verdict | None,
    profile: Profile | None,
) -> Certificate:
    """Tie a run's result together, not signed yet. `candidate` is None where a baseline is kept;
    `verdict` and `profile` are then those of the best candidate tried, the evidence for the
    reason."""
    measured = profile is not None and profile.measured
    return Certificate(
        run=manifest.id,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status=status,
        reason=reason,
        basis="measured" if measured else "estimated",
        problem=manifest.problem,
        problem_sha256=manifest.problem.sha256,
        candidate_source=candidate.source if candidate else None,
        candidate_sha256=candidate.sha256 if candidate else None,
        target=manifest.target,
        plan=plan,
        verdict=verdict,
        profile=profile,
        versions=manifest.versions,
        judge_sha256=manifest.judge_sha256,
        seeds=manifest.settings.judge.seeds,
        live_sha256=manifest.live_sha256,
        host=manifest.host,
    )


def sign_certificate(certificate: Certificate) -> Certificate:
    """The same with this user's signature. Where no key can be had the result is not lost for it:
    `unsigned` then says why."""
    bare = certificate.evolve(signature=None, unsigned="")
    try:
        signature = sign(signed_text(_tree(bare)).encode())
    except AgentKernelError as error:
        return bare.evolve(unsigned=str(error))
    return bare.evolve(signature=signature)


def canonical_json(certificate: Certificate) -> str:
    """Sorted keys, two spaces, one final newline: equal certificates have equal bytes."""
    return canonical_text(_tree(certificate))


def read_certificate(path: Path) -> Certificate:
    """Read one back. Raises RunNotFound where it is missing, damaged or was edited."""
    sealed = read_certificate_file(path)
    if sealed.certificate is None:
        raise _unreadable(path, sealed.problem)
    wrong = hash_errors(sealed.certificate)
    wrong += ("signature",) if sealed.state == "invalid" else ()
    if wrong:
        raise RunNotFound(
            f"The certificate {str(path)!r} was changed: {', '.join(wrong)} does not fit. "
            "Next: optimize the module again."
        )
    return sealed.certificate


def read_certificate_file(path: Path) -> CertificateFile:
    """Read a certificate that may have been edited. Raises RunNotFound where there is none."""
    try:
        tree = read_tree(read_regular_text(path, typed=True))
        # Writing them again takes a deeper stack than reading them.
        signature, state, text = signature_of(tree), signature_state(tree), json.dumps(tree)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunNotFound(
            f"No such certificate: {str(path)!r}. Expected the {CERTIFICATE} of a finished run. "
            "Next: check the path; 'agentkernel runs' lists the runs."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, _first_line(error)) from error
    try:
        certificate = Certificate.model_validate_json(text)
    except ValidationError as error:
        if state != "invalid":
            raise _unreadable(path, _first_line(error)) from error
        return CertificateFile(None, signature, state, _first_line(error))
    return CertificateFile(certificate, signature, state)


def drop_in_name(problem: Problem) -> str:
    """`layernorm_optimized.py`."""
    return f"{fit_file_name(Path(problem.path).stem or problem.name)}_optimized.py"


def drop_in_beside(path: Path, problem: Problem) -> Path:
    """Where the run that wrote the certificate at `path` put its drop-in: under its own name, or
    `out.py` beside `out.certificate.json`."""
    stem = path.name.removesuffix(f".{CERTIFICATE}")
    name = drop_in_name(problem) if stem == path.name else f"{stem}.py"
    return path.with_name(name)


def hash_errors(certificate: Certificate) -> tuple[str, ...]:
    """Names of the entries that do not fit what they stand for: hashes, and a status without the
    candidate and the verdict that give it."""
    wrong = []
    verdict, source = certificate.verdict, certificate.candidate_source
    if (certificate.status in HANDED_OVER) is not (source is not None):
        wrong.append("status")
    if source is not None and (verdict is None or not verdict.accepted):
        wrong.append("verdict")
    if verdict is not None and verdict.accepted is not (
        verdict.failure is None and verdict.gate == "accepted"
    ):
        wrong.append("verdict.accepted")
    graph = certificate.graph
    if graph is not None and graph.signature != sha256_text(graph.text)[:16]:
        wrong.append("graph.signature")
    if certificate.problem.sha256 != certificate.problem_sha256:
        wrong.append("problem_sha256")
    if verdict is not None and verdict.problem not in ("", certificate.problem_sha256):
        wrong.append("verdict.problem")
    if source is not None:
        candidate = Candidate(source=source, coder="", round=0)
        if candidate.sha256 != certificate.candidate_sha256:
            wrong.append("candidate_sha256")
        if verdict is not None and verdict.candidate != candidate.sha256:
            wrong.append("verdict.candidate")
        if certificate.profile is not None and certificate.profile.candidate != candidate.sha256:
            wrong.append("profile.candidate")
    measured = certificate.profile is not None and certificate.profile.measured
    if (certificate.basis == "measured") is not measured:
        wrong.append("basis")
    return tuple(wrong)


def _tree(certificate: Certificate) -> dict[str, object]:
    tree: dict[str, object] = json.loads(certificate.model_dump_json())
    return tree


def _unreadable(path: Path, reason: str) -> RunNotFound:
    return RunNotFound(
        f"Cannot read the certificate {str(path)!r}: {reason}. "
        "Expected the JSON that optimize wrote. Next: optimize the module again."
    )


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error).splitlines()[0]
