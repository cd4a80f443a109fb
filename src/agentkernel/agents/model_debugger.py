"""What does a model make of a refused candidate, within the limits that the rules set?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from agentkernel.agents.evidence import Evidence, evidence_of
from agentkernel.agents.history import tried
from agentkernel.agents.known_fixes import KnownFixes, no_known_fixes
from agentkernel.agents.model_planner import Tell, ignore_line
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.prompts import inline, render, shortened
from agentkernel.agents.protocols import Attempt, Debugger, Diagnosis
from agentkernel.agents.structured import NotStructured, ask_structured
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable, NotRecorded, one_line
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.verdict import Verdict

Action = Literal["repair", "next_hypothesis", "give_up"]
STRICTER: tuple[Action, ...] = ("repair", "next_hypothesis", "give_up")
WORDS_MOST = 800
EDIT_MOST = 4_000


class Finding(Frozen):
    """A model's diagnosis."""

    cause: str = Field(description="what is wrong, in one or two sentences", min_length=1)
    line: int | None = Field(default=None, description="line of the file at fault", ge=1)
    action: Action = Field(description="repair, or whether another approach is the better way")
    advice: str = Field(description="what to do, in one or two sentences", min_length=1)
    edit: str = Field(
        default="", description="the smallest edit, as SEARCH/REPLACE blocks; may be empty"
    )


@dataclass
class ModelDebugger:
    """Diagnoses by asking; the rules' diagnosis is in the question, and stands where there is no
    answer. The failure class stays theirs, and the action can only become stricter."""

    model: Model
    rules: Debugger
    sampling: Sampling
    tell: Tell = field(default=ignore_line)
    fixes: KnownFixes = no_known_fixes

    def diagnose(
        self, candidate: Candidate, verdict: Verdict, history: Sequence[Attempt]
    ) -> Diagnosis:
        """What to do about a refused candidate; `history` may hold this attempt already."""
        ruled = self.rules.diagnose(candidate, verdict, history)
        evidence = evidence_of(candidate, verdict)
        ruled = ruled.model_copy(update={"line": ruled.line or evidence.line})
        if ruled.action == "give_up":
            return ruled
        found = self._ask(candidate, verdict, evidence, ruled, history)
        if found is None:
            return ruled
        line = found.line if found.line and found.line <= candidate.source.count("\n") + 1 else None
        return Diagnosis(
            failure_class=ruled.failure_class,
            evidence=ruled.evidence,
            action=max(ruled.action, found.action, key=STRICTER.index),
            advice=inline(f"{found.cause.rstrip('. ')}. {found.advice}", WORDS_MOST),
            line=evidence.line or line,
            edit=shortened(found.edit, EDIT_MOST),
            by=self.model.name,
            fixes=ruled.fixes,
        )

    def _ask(
        self,
        candidate: Candidate,
        verdict: Verdict,
        evidence: Evidence,
        ruled: Diagnosis,
        history: Sequence[Attempt],
    ) -> Finding | None:
        earlier = [item for item in history if item.candidate.sha256 != candidate.sha256]
        text = render(
            "diagnosis",
            candidate=candidate,
            verdict=verdict,
            evidence=evidence,
            ruled=ruled,
            fixes=self.fixes(verdict.failure) if verdict.failure is not None else (),
            history=tried(earlier),
        )
        question = ModelRequest(
            agent="debugger",
            round=candidate.round,
            messages=(Message(role="user", text=text),),
            sampling=self.sampling,
        )
        try:
            found = ask_structured(self.model, question, Finding)
        except NotRecorded:
            raise
        except ModelUnavailable as error:
            self.tell(f"the rules diagnose: {one_line(error)}")
            return None
        if isinstance(found, NotStructured):
            self.tell(f"{self.model.name} gave no diagnosis that can be read; the rules diagnose")
            return None
        return found
