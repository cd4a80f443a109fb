"""Outcomes of regions: known from the library, decided in this run, and placed in models.

A known kernel counts only where its text is the one that its run signed. A cut of an earlier
run is used again where nothing has changed since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pydantic import ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.nightly import RegionRow, RegionStatus
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.nightly.library.rows import (
    OTHER_CERTIFICATE,
    OTHER_FIGURES,
    OTHER_SIGNATURE,
    OTHER_SOURCE,
)
from agentkernel.nightly.page.figures import CUT_SHORT, SINCE, kernel_ratio
from agentkernel.nightly.scheduler.jobs import (
    CutDone,
    CutJob,
    KernelDone,
    KernelJob,
    KernelStore,
    NightRequest,
    read_answer,
    relevant_settings,
)
from agentkernel.tools.certificate.record import hash_errors
from agentkernel.tools.certificate.signing import signature_state
from agentkernel.version import __version__


@dataclass(frozen=True, slots=True)
class RegionOutcome:
    """What became of a region. Of its kernel only what a table shows: the whole of it, with its
    certificate, is in the answer to `job`. A night has too many to hold them all."""

    status: RegionStatus
    reason: str = ""
    sha256: str | None = None
    time_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    job: str = ""
    parent: str | None = None
    run: str | None = None
    seconds: float = 0.0
    cut_short: bool = False
    """The time was over before it was known whether there is a kernel."""


class Placement(NamedTuple):
    """A submodule, and the region whose kernel it may get."""

    use: RegionUse
    signature: str


@dataclass
class FailedKernels:
    """The known kernels that did not hold this night, by signature. `parents` are their hashes."""

    parents: dict[str, str] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)
    _causes: dict[str, str] = field(default_factory=dict)

    def turn(self, signature: str) -> int:
        """Number of the region's next job, from 1."""
        return self._turns.get(signature, 1)

    def note(self, job: KernelJob, cause: str, sha256: str | None) -> None:
        """The kernel `sha256` was withdrawn, and its region has another turn."""
        signature = job.region.signature
        if sha256 is not None:
            self.parents[signature] = sha256
        self._causes[signature] = cause
        self._turns[signature] = job.turn + 1

    def told(self, signature: str, what: RegionOutcome) -> RegionOutcome:
        """What the morning must hear, whatever came after."""
        cause = self._causes.get(signature)
        if cause is None:
            return what
        after = f"{SINCE}{what.status}" + (f" ({what.reason})" if what.reason else "")
        parent = self.parents.get(signature)
        return replace(
            what, status="withdrawn", reason=f"{cause}{after}", parent=parent, cut_short=False
        )


def outcome_of(job: KernelJob, answer: KernelDone) -> RegionOutcome:
    """What an answer makes of its region."""
    kernel = answer.kernel
    ratio = kernel_ratio(kernel) if kernel is not None and kernel.speedup is not None else None
    return RegionOutcome(
        status=answer.status,
        reason=answer.reason,
        sha256=kernel.sha256 if kernel else None,
        time_us=kernel.time_us if kernel else None,
        speedup=kernel.speedup if kernel else None,
        speedup_low=kernel.speedup_low if kernel else None,
        speedup_high=ratio.high if ratio else None,
        job=job.key,
        parent=None if answer.status == "reused" else job.parent,
        run=answer.run,
        seconds=answer.seconds,
        cut_short=answer.resumable,
    )


def uses_by_model(regions: Sequence[Region | RegionRow]) -> dict[str, list[Placement]]:
    """All uses of each model, in the order of `regions`."""
    found: dict[str, list[Placement]] = {}
    for region in regions:
        for use in region.uses:
            found.setdefault(use.model, []).append(Placement(use, region.signature))
    return found


def placements(able: Sequence[Placement]) -> tuple[Placement, ...]:
    """Which submodules of one model, for all of which there is a kernel, get it: none within
    another. The model itself ("") comes beside them: one or the other is handed over."""
    chosen: list[Placement] = []
    for item in sorted(able, key=lambda one: (one.use.path.count("."), one.use.path)):
        if not any(are_nested(item.use.path, other.use.path) for other in chosen):
            chosen.append(item)
    return tuple(chosen)


def are_nested(one: str, other: str) -> bool:
    """True where one of two submodules lies in the other, or they are the same."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def missing_whole(
    cut: ModelCut, uses: Sequence[Placement], decided: Mapping[str, RegionOutcome]
) -> str:
    """Why there is no kernel for a whole model, whose `uses` these are; "" where there is one."""
    whole = next((item.signature for item in uses if not item.use.path), None)
    found = decided.get(whole or "")
    if found is not None:
        return "" if found.sha256 is not None else _why_none(found)
    if whole is not None:
        return "it takes too little of the time, or has no headroom"
    refused = (item.reason for item in cut.refused if not item.path)
    return next(refused, "one of its submodules computes the same")


def time_over(uses: Sequence[Placement], decided: Mapping[str, RegionOutcome]) -> str:
    """Why a model without kernels may have some with more time: of its `uses` the first that was
    cut short; "" where none was."""
    found = (decided.get(item.signature) for item in uses)
    return next((_why_none(item) for item in found if item is not None and item.cut_short), "")


def _why_none(found: RegionOutcome) -> str:
    return f"{CUT_SHORT if found.cut_short else f'{found.status}: '}{found.reason}"


def is_as_signed(kernel: Kernel, answer_json: str) -> bool:
    """True where source, hash and certificate of `kernel` are of one text, and a signature stands
    under the certificate as `answer_json` has it: fields that a version adds are not under the
    signatures of before. A few milliseconds.

    Whoever may write the library and holds a key could sign too: this is about what was edited.
    Raises MissingDependency without the package `cryptography`.
    """
    # The signing's imports are not needed where nothing is read back.

    certificate = kernel.certificate
    same = has_source_hash(kernel, certificate.candidate_sha256) and not hash_errors(certificate)
    if not same or certificate.candidate_source != kernel.source:
        return False
    return signature_state(json.loads(answer_json)["kernel"]["certificate"]) == "valid"


def has_source_hash(kernel: Kernel, sha256: str | None) -> bool:
    """True where the kernel's own text has that hash, and so says the kernel."""
    return sha256_text(kernel.source) == kernel.sha256 == sha256


BROKEN = (OTHER_SOURCE, OTHER_CERTIFICATE, OTHER_SIGNATURE, OTHER_FIGURES)
"""How the library's own reasons end for refusing a kernel that nobody has withdrawn yet."""
NOTHING = "nothing"
"""Kind of the record that says that a region's search found nothing."""
CUT_OFF = 2.0
MORE = 1.5
"""A search with so many times the budget might find what an earlier one did not."""


class NothingFound(Frozen):
    """A search that found nothing: not worth doing again with the same versions and less time."""

    when: str
    reason: str
    budget_s: float | None
    limited: bool


@dataclass(frozen=True)
class KnownKernels:
    """What the library knows."""

    kernel_store: KernelStore

    def is_known(self, key: KernelKey) -> bool:
        """True where the library has a kernel that nobody withdrew, whatever it is worth."""
        return self.kernel_store.has(key)

    def kernel(self, key: KernelKey) -> Kernel | None:
        """The known kernel; one that was changed in the library comes too, to be withdrawn."""
        found = self.kernel_store.find(key)
        if found is not None:
            return found
        same = [item for item in self._relatives(key) if _same(item.key, key)]
        return next((item for item in reversed(same) if _is_broken(item)), None)

    def earlier(self, key: KernelKey) -> str | None:
        """The newest kernel's that held with other versions, or on another GPU."""
        others = [item for item in self._relatives(key) if not _same(item.key, key)]
        valid = [item.sha256 for item in others if item.withdrawn is None]
        return valid[-1] if valid else None

    def answered(self, job: str, signature: str, sha256: str | None) -> Kernel | None:
        """The kernel with that hash in the answer to `job`; the library's own where that was pruned
        meanwhile. None where the text of either is another one by now."""
        text = self.kernel_store.job(job)
        answer = read_answer(text) if text is not None else None
        if isinstance(answer, KernelDone) and answer.kernel is not None:
            return answer.kernel if has_source_hash(answer.kernel, sha256) else None
        same = self.kernel_store.kernels(signature=signature)
        return next((item for item in same if has_source_hash(item, sha256)), None)

    def nothing(self, job: KernelJob) -> NothingFound | None:
        """An earlier search that found nothing, where another one is not worth it."""
        text = self.kernel_store.job(_nothing_key(job)) if job.turn == 1 else None
        if text is None:
            return None
        try:
            known = NothingFound.model_validate_json(text)
        except ValidationError:
            return None
        more = job.budget_s is None or (
            known.budget_s is not None and job.budget_s > MORE * known.budget_s
        )
        return None if known.limited and more else known

    def remember(self, job: KernelJob, answer: KernelDone, when: str) -> None:
        """That a search found nothing."""
        found = NothingFound(
            when=when, reason=answer.reason, budget_s=job.budget_s, limited=answer.limited
        )
        self.kernel_store.save_job(_nothing_key(job), NOTHING, found.model_dump_json())

    def _relatives(self, key: KernelKey) -> tuple[Kernel, ...]:
        return self.kernel_store.kernels(signature=key.signature)


SECONDS = "seconds"
"""Kind of the record that says how long a region's draft took."""


class DraftSeconds(Frozen):
    """Seconds of a draft with its judgements; `cut_off`: it needs more than that."""

    seconds: float
    cut_off: bool = False


@dataclass(frozen=True)
class KnownSeconds:
    """How long the drafts of regions took in earlier nights, on the same GPU or none."""

    kernel_store: KernelStore

    def of(self, key: KernelKey) -> float | None:
        """Seconds; twice what was not enough; None where nobody drafted it."""
        text = self.kernel_store.job(self._key(key))
        try:
            found = DraftSeconds.model_validate_json(text) if text is not None else None
        except ValidationError:
            return None
        return None if found is None else found.seconds * (CUT_OFF if found.cut_off else 1.0)

    def keep(self, job: KernelJob, answer: KernelDone) -> None:
        """What an answer says of it; the turns of one draft add up."""
        before = self.kernel_store.job(self._key(job.key_of_kernel)) if job.again else None
        spent = DraftSeconds.model_validate_json(before).seconds if before is not None else 0.0
        cut_off = answer.limited and answer.status == "kept"
        found = DraftSeconds(seconds=spent + answer.seconds, cut_off=cut_off)
        self.kernel_store.save_job(self._key(job.key_of_kernel), SECONDS, found.model_dump_json())

    def _key(self, key: KernelKey) -> str:
        return f"{SECONDS}:{key.signature}:{key.gpu}"


def _nothing_key(job: KernelJob) -> str:
    words = job.key_of_kernel.model_dump_json() + relevant_settings(job.settings)
    return f"{NOTHING}:{sha256_text(words)[:32]}"


def _is_broken(kernel: Kernel) -> bool:
    return kernel.withdrawn is not None and kernel.withdrawn.endswith(BROKEN)


def _same(one: KernelKey, other: KernelKey) -> bool:
    return one.model_dump() == other.model_dump()


KIND = "cut-kept"


@dataclass(frozen=True)
class KnownCuts:
    """The cuts of earlier nights. They say where a model's time goes and thereby the order of work;
    how long the models take is measured anew every night.

    An estimated cut is the figure that a night reports, and takes seconds: it is made anew.
    """

    question: NightRequest
    kernel_store: KernelStore

    def keep(self, job: CutJob, answer: CutDone) -> None:
        """Another night may need it."""
        if answer.cut.basis == "measured":
            self.kernel_store.save_job(self._key(job, answer.gpu), KIND, answer.model_dump_json())

    def known(self, job: CutJob) -> CutDone | None:
        """The cut of the same model on the same GPU with the same versions, for no time of ours."""
        if self.question.gpu is None:
            return None
        text = self.kernel_store.job(self._key(job, self.question.gpu))
        try:
            found = CutDone.model_validate_json(text) if text is not None else None
        except ValidationError:
            return None
        return found.evolve(seconds=0.0) if found is not None else None

    def _key(self, job: CutJob, gpu: str | None) -> str:
        asked = self.question
        words = (job.part.sha256, asked.target, str(gpu), asked.torch, asked.triton, __version__)
        return f"{KIND}:{sha256_text(chr(10).join(words))[:32]}"
