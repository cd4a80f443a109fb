"""What does the library know of a region: a kernel, an earlier one, or that nothing was found?"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.region import Kernel, KernelKey
from agentkernel.nightly.library.evidence import (
    OTHER_CERTIFICATE,
    OTHER_FIGURES,
    OTHER_SIGNATURE,
    OTHER_SOURCE,
)
from agentkernel.nightly.scheduler.jobs import KernelDone, KernelJob, read_answer, relevant_settings
from agentkernel.nightly.scheduler.question import KernelStore
from agentkernel.nightly.scheduler.signed import has_source_hash

BROKEN = (OTHER_SOURCE, OTHER_CERTIFICATE, OTHER_SIGNATURE, OTHER_FIGURES)
"""How the library's own reasons end for refusing a kernel that nobody has withdrawn yet."""
NOTHING = "nothing"
"""Kind of the record that says that a region's search found nothing."""
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


def _nothing_key(job: KernelJob) -> str:
    words = job.key_of_kernel.model_dump_json() + relevant_settings(job.settings)
    return f"{NOTHING}:{sha256_text(words)[:32]}"


def _is_broken(kernel: Kernel) -> bool:
    return kernel.withdrawn is not None and kernel.withdrawn.endswith(BROKEN)


def _same(one: KernelKey, other: KernelKey) -> bool:
    return one.model_dump() == other.model_dump()
