"""The certificate that ties problem, candidate, verdict, profile, versions and hashes together."""

from __future__ import annotations

from typing import Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from agentkernel.domain.base import Frozen
from agentkernel.domain.plan import Plan
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict

Status = Literal["met", "improved", "verified", "kept_original", "kept_compiled", "failed"]
HANDED_OVER: tuple[Status, ...] = ("met", "improved", "verified")
"""What a run ends with that hands over a candidate, which its judge accepted."""


class Versions(Frozen):
    """What the result was made with."""

    agentkernel: str
    python: str
    torch: str
    triton: str
    platform: str
    cuda: str | None = None
    driver: str | None = None


class Signature(Frozen):
    """Ed25519 (RFC 8032) over the certificate's canonical JSON without this entry; all in hex."""

    algorithm: Literal["ed25519"] = "ed25519"
    key: str
    """The signer's public key, 32 bytes."""
    fingerprint: str
    """SHA-256 of the public key: the signer's short name."""
    value: str
    """The signature, 64 bytes."""


class FreeSizes(Frozen):
    """For which other sizes of the inputs the graph is the same.

    `signature`: the first 16 hex digits of the SHA-256 of its text with names, `s0` and so on, in
    place of the sizes that may change from call to call, and of what holds of them. Each is 2 or
    more; `ones` are the names of those of which one at a time may be 1.
    """

    signature: str
    ones: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """For people: `0123456789abcdef, s0 may be 1`."""
        return ", ".join([self.signature, *(f"{name} may be 1" for name in self.ones)])


class ModuleGraph(Frozen):
    """What the verified module computes, so that another one can be compared with it.

    `text` is the canonical form of the captured graph at the sizes of the first shape set:
    operators, arguments, constants and operands, one operation a line; values of parameters and
    inputs are no part of it. `signature`: the first 16 hex digits of its SHA-256. `parameters`:
    state_dict names in the order of `text`. Strides are in elements, None for a scalar.
    """

    signature: str
    text: str
    parameters: tuple[str, ...] = ()
    parameter_strides: tuple[tuple[int, ...], ...] = ()
    input_strides: tuple[tuple[int, ...] | None, ...] = ()
    free: FreeSizes | None = None
    """None where no size is free, and in records from before this was kept."""

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """One without free sizes reads, and is signed, as ever."""
        found: dict[str, object] = handler(self)
        if self.free is None:
            del found["free"]
        return found


class Certificate(Frozen):
    """One result. Hashes are SHA-256 in hex; `basis` never mixes measured with estimated.

    A certificate without `signature` is an old one, or says in `unsigned` why it has none.
    """

    format: Literal[1] = 1
    run: str
    created: str
    status: Status
    reason: str
    basis: Literal["measured", "estimated"]
    problem: Problem
    problem_sha256: str
    candidate_source: str | None
    candidate_sha256: str | None
    target: str
    plan: Plan | None
    verdict: Verdict | None
    profile: Profile | None
    versions: Versions
    judge_sha256: str
    graph: ModuleGraph | None = None
    """None in records from before it was kept, and for a module whose graph has no such form."""
    seeds: int | None = None
    """How many seeds the judge was asked for, so that a replay asks for as many."""
    live_sha256: str | None = None
    """Of the pickle of a live module, weights and all; None in records from before it was kept."""
    host: str | None = None
    """The machine that judged and measured over a remote line, as `user@host, GPU`; None: the one
    that the run was on, and in records from before it was kept."""
    segments: tuple[str, ...] = ()
    """What models wrote of a compiler's candidate, a line a segment."""
    unsigned: str = ""
    signature: Signature | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """One that names no host and no segment reads, and is signed, as ever."""
        found: dict[str, object] = handler(self)
        if self.host is None:
            del found["host"]
        if not self.segments:
            del found["segments"]
        return found
