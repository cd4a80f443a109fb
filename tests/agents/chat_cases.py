"""Requests as the loop makes them, for the tests of the chat coder and of its prompts."""

from __future__ import annotations

from pathlib import Path

from agentkernel.agents.protocols import Attempt, Diagnosis, DraftRequest, Goals
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, Retrieved
from agentkernel.domain.verdict import CompileFailed, Verdict
from agentkernel.tools.targets import load_targets

EXAMPLE = Path(__file__).parents[2] / "examples" / "layernorm.py"
GOOD = "import torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n    pass\n"


def draft_request(**changes: object) -> DraftRequest:
    analysis = Analysis(
        bytes_min=536936448, flops=536870912, op_counts={"aten.native_layer_norm": 1},
        roofline="memory", memory_time_us=160.0, compute_time_us=8.0, bound_us=160.0,
        patterns=("layer_norm",),
    )  # fmt: skip
    hypothesis = Hypothesis(strategy="one row a program", reason="A row fits in registers.")
    plan = Plan(
        analysis=analysis,
        hypotheses=(hypothesis,),
        decisions=(Decision(key="num_warps", value="8", default="4", because="hopper-rows"),),
        retrieved=("hopper-rows",),
    )
    note = Retrieved(
        id="hopper-rows", title="Row kernels on Hopper", kind="hardware", source="measured",
        licence="Apache-2.0", score=0.9, text="Eight warps a row of 8192.",
    )  # fmt: skip
    base = DraftRequest(
        target=load_targets()["h100-sxm"], goals=Goals(policy="triton"), plan=plan,
        hypothesis=hypothesis, retrieved=(note,), history=(), diagnosis=None, round=1,
    )  # fmt: skip
    return base.evolve(**changes)


def refused_request() -> DraftRequest:
    candidate = Candidate(source=GOOD, coder="chat:openai:scripted", round=1)
    verdict = Verdict(
        candidate=candidate.sha256, problem="0" * 64, accepted=False, interpreted=True,
        device="cpu", gate="compile",
        failure=CompileFailed(log="name 'tl' is not defined", line=7),
    )  # fmt: skip
    diagnosis = Diagnosis(
        failure_class="compile", evidence="line 7", action="repair", advice="Import tl."
    )
    history = (Attempt(candidate=candidate, verdict=verdict),)
    return draft_request(history=history, diagnosis=diagnosis, round=2)
