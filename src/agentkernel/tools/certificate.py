"""How is the record of a result written, so that anyone can read and replay it?"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Certificate, Status
from agentkernel.domain.plan import Plan
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict
from agentkernel.errors import RunNotFound
from agentkernel.tools.atomic import write_atomic
from agentkernel.tools.store import Manifest


def build_certificate(
    manifest: Manifest,
    *,
    created: str,
    status: Status,
    reason: str,
    candidate: Candidate | None,
    plan: Plan | None,
    verdict: Verdict | None,
    profile: Profile | None,
) -> Certificate:
    """Tie a run's result together. `candidate` is None where a baseline is kept; `verdict` and
    `profile` are then those of the best candidate tried, the evidence for the reason."""
    measured = profile is not None and profile.measured
    return Certificate(
        run=manifest.id,
        created=created,
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
    )


def canonical_json(certificate: Certificate) -> str:
    """Sorted keys, two spaces, one final newline: equal certificates have equal bytes."""
    tree = json.loads(certificate.model_dump_json())
    return json.dumps(tree, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def write_certificate(path: Path, certificate: Certificate) -> None:
    """Write canonical JSON, whole or not at all. Raises OutputError."""
    write_atomic(path, canonical_json(certificate))


def read_certificate(path: Path) -> Certificate:
    """Read one back. Raises RunNotFound where it is missing, damaged, or its hashes do not fit."""
    try:
        certificate = Certificate.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise RunNotFound(
            f"Cannot read the certificate {str(path)!r}: {_first_line(error)}. "
            "Expected the JSON that optimize wrote. Next: optimize the module again."
        ) from error
    wrong = hash_errors(certificate)
    if wrong:
        raise RunNotFound(
            f"The certificate {str(path)!r} was changed: {', '.join(wrong)} does not fit. "
            "Next: optimize the module again."
        )
    return certificate


def hash_errors(certificate: Certificate) -> tuple[str, ...]:
    """Names of the hashes that do not fit what they stand for."""
    wrong = []
    if certificate.problem.sha256 != certificate.problem_sha256:
        wrong.append("problem_sha256")
    source = certificate.candidate_source
    if source is not None:
        candidate = Candidate(source=source, coder="", round=0)
        if candidate.sha256 != certificate.candidate_sha256:
            wrong.append("candidate_sha256")
        if certificate.verdict is not None and certificate.verdict.candidate != candidate.sha256:
            wrong.append("verdict.candidate")
    return tuple(wrong)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
