"""How does the loop wait for somebody's word?

`interrupt` ends the step with a question in the checkpoint: a run that is killed while it waits
asks again. What comes before it in a node is done once more after the answer, so nothing does.
"""

from __future__ import annotations

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from agentkernel.agents.protocols import Attempt
from agentkernel.workflows import events
from agentkernel.workflows.approval import PendingApproval
from agentkernel.workflows.context import Context
from agentkernel.workflows.state import DECLINED, LoopState, Update


def approve_plan(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Go on with the plan, or end the run with what it has."""
    first = state.queue[0]
    if interrupt(
        PendingApproval(kind="plan", round=state.round, hypothesis=first, plan=state.plan)
    ):
        return Update(stop=None)
    runtime.context.emit(events.Noted(text="the plan was declined"))
    return Update(stop=DECLINED, queue=(), nothing="the plan was declined")


def approve_candidate(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Judge the candidate, or leave it out for good."""
    candidate, hypothesis = state.candidate, state.hypothesis
    if candidate is None or hypothesis is None:
        raise ValueError("there is no candidate to approve")
    asked = PendingApproval(
        kind="candidate", round=state.round, hypothesis=hypothesis, candidate=candidate
    )
    if interrupt(asked):
        return Update(stop=None)
    runtime.context.emit(
        events.CandidateSetAside(round=state.round, candidate=candidate.id, reason=DECLINED)
    )
    left = Attempt(
        candidate=candidate,
        aside=DECLINED,
        predicted_us=hypothesis.predicted_us,
        predicted_by=hypothesis.predicted_by,
    )
    return Update(candidate=None, history=(left,), nothing="what was drafted was declined")
