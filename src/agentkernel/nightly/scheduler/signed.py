"""Is the kernel in an answer that was read back the one that its run signed?"""

from __future__ import annotations

import json

from agentkernel.domain.base import sha256_text
from agentkernel.domain.region import Kernel


def is_as_signed(kernel: Kernel, answer_json: str) -> bool:
    """True where source, hash and certificate of `kernel` are of one text, and a signature stands
    under the certificate as `answer_json` has it: fields that a version adds are not under the
    signatures of before. A few milliseconds.

    Whoever may write the library and holds a key could sign too: this is about what was edited.
    Raises MissingDependency without the package `cryptography`.
    """
    # The signing's imports are not needed where nothing is read back.
    from agentkernel.tools.certificate.certificate import hash_errors
    from agentkernel.tools.certificate.signing import signature_state

    certificate = kernel.certificate
    same = has_source_hash(kernel, certificate.candidate_sha256) and not hash_errors(certificate)
    if not same or certificate.candidate_source != kernel.source:
        return False
    return signature_state(json.loads(answer_json)["kernel"]["certificate"]) == "valid"


def has_source_hash(kernel: Kernel, sha256: str | None) -> bool:
    """True where the kernel's own text has that hash, and so says the kernel."""
    return sha256_text(kernel.source) == kernel.sha256 == sha256
