"""Was this model cut and timed on an earlier night, where nothing has changed since?"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from agentkernel.domain.base import sha256_text
from agentkernel.nightly.scheduler.jobs import CutDone, CutJob
from agentkernel.nightly.scheduler.question import KernelStore, NightRequest
from agentkernel.version import __version__

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
        return found.model_copy(update={"seconds": 0.0}) if found is not None else None

    def _key(self, job: CutJob, gpu: str | None) -> str:
        asked = self.question
        words = (job.part.sha256, asked.target, str(gpu), asked.torch, asked.triton, __version__)
        return f"{KIND}:{sha256_text(chr(10).join(words))[:32]}"


__all__ = ["KnownCuts"]
