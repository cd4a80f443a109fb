"""A certificate that a test has edited, on the disk and signed as it should be."""

from __future__ import annotations

from pathlib import Path

from agentkernel.domain.certificate import Certificate
from agentkernel.tools.certificate.record import canonical_json, sign_certificate


def write_certificate(path: Path, certificate: Certificate) -> None:
    """Sign `certificate` anew and write it to `path`."""
    path.write_text(canonical_json(sign_certificate(certificate)), encoding="utf-8")
