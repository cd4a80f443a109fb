"""Small real stand-ins for the agents and tools that the loop works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentkernel.agents.debugger import RulesDebugger
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.planner import RulesPlanner
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.domain.certificate import Versions
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, Retrieved
from agentkernel.domain.profile import (
    CompileReport,
    Estimate,
    GpuState,
    KernelResources,
    Measurement,
    Profile,
    ProfileFailed,
    Ratio,
    Timing,
)
from agentkernel.domain.settings import Settings
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import CaseResult, Failure, Mismatch, Verdict
from agentkernel.storage.configuration import load_settings
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.run_store import RunStore
from agentkernel.tools.targets import ResolvedTarget, load_targets
from agentkernel.workflows.deps import Agents, Deps, Tools
from agentkernel.workflows.outcome import Baselines
from agentkernel.workflows.run import open_saver
from agentkernel.workflows.run_factory import JudgeScope, ProfileScope, draft_key, work_key
from agentkernel.workflows.state import LoopState

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(4, 8)]
"""
EAGER = Ratio(value=2.0, low=1.95, high=2.05)
COMPILED = Ratio(value=1.5, low=1.45, high=1.55)
VERSIONS = Versions(
    agentkernel="0.1.0", python="3.11", torch="2.13.0", triton="3.9.0", platform="test"
)
ANALYSIS = Analysis(
    bytes_min=256, flops=32, op_counts={"aten.add": 1}, roofline="memory", memory_time_us=2.0,
    compute_time_us=0.1, bound_us=2.0, patterns=("pointwise",),
)  # fmt: skip
NOTE = Retrieved(
    id="hopper/memory", title="Hopper: rows", kind="hardware", source="own", licence="Apache-2.0",
    score=0.9, text="Use eight warps.", hints={"row.num_warps": "8", "focus": "rows"},
)  # fmt: skip


def small_problem(folder: Path) -> LoadedProblem:
    """`x + 1` on 4 × 8, as a file of the convention."""
    path = folder / "plus.py"
    path.write_text(PROBLEM)
    return load_problem(str(path))


def settings(runs: Path, *overrides: str) -> Settings:
    """Packaged settings with the run folders below `runs`."""
    return load_settings(_empty(runs), (f"runs={runs}", *overrides))


def _empty(runs: Path) -> Path:
    runs.parent.mkdir(parents=True, exist_ok=True)
    path = runs.parent / "empty.yaml"
    path.write_text("")
    return path


@dataclass(frozen=True)
class Script:
    """What becomes of the candidate of one hypothesis: drafted at all, right or not, how fast."""

    strategy: str
    failure: Failure | None = None
    repaired: bool = True
    """False: also the repair is wrong."""
    speedup: float | None = None
    """Against eager, where a GPU is there."""
    compiled: float = 1.5
    """torch.compile's own speedup over eager."""
    drafted: bool = True
    unprofiled: ProfileFailed | None = None
    source: str | None = None
    searched_us: float | None = None


def verdict(candidate: Candidate, failure: Failure | None = None, *, problem: str = "") -> Verdict:
    """A judgement with one case."""
    case = CaseResult(
        label="primary", seed=0, distribution="normal", shapes="x float32[4, 8]",
        norm_error=1e-7 if failure is None else 1.0, eager_norm_error=2e-7, element_error=1e-7,
        eager_element_error=2e-7, passed=failure is None,
    )  # fmt: skip
    return Verdict(
        candidate=candidate.sha256, problem=problem, accepted=failure is None, interpreted=True,
        device="cpu", gate="accepted" if failure is None else "correctness", failure=failure,
        cases=(case,), launches=("k",), seconds=0.5,
    )  # fmt: skip


def mismatch(pattern: str = "all", norm_error: float = 1.0) -> Mismatch:
    """An output that is wrong everywhere."""
    return Mismatch(
        case="primary", output=0, norm_error=norm_error, norm_allowed=1e-6, element_error=1.0,
        element_allowed=1e-6, first_index=(0, 0), expected=1.0, found=0.0, wrong_share=1.0,
        pattern=pattern,
    )  # fmt: skip


def timing(median_us: float) -> Timing:
    """A steady clock."""
    return Timing(
        median_us=median_us, p10_us=median_us * 0.99, p90_us=median_us * 1.01, samples=100
    )


def measurement(
    eager: Ratio = EAGER,
    compiled: Ratio | None = COMPILED,
    *,
    candidate_us: float = 10.0,
    peak: int = 1024,
    energy_mj: float | None = 3.0,
    roofline: float = 0.8,
    shapes: str = "x float32[4, 8]",
) -> Measurement:
    """A GPU's word on one shape set."""
    return Measurement(
        shapes=shapes,
        candidate=timing(candidate_us),
        eager=timing(candidate_us * eager.value),
        compiled=timing(candidate_us * compiled.value) if compiled else None,
        compile_error=None if compiled else "the backend raised",
        vs_eager=eager,
        vs_compile=compiled,
        achieved_gb_per_s=3000.0,
        achieved_tflops=0.5,
        copy_gb_per_s=4300.0,
        roofline_us=candidate_us * roofline,
        roofline_fraction=roofline,
        launches=1,
        own_kernel_share=1.0,
        peak_memory_bytes=peak,
        eager_peak_memory_bytes=2048,
        energy_mj=energy_mj,
        eager_energy_mj=5.0,
        gpu=GpuState(
            name="NVIDIA H200", driver="580.1", sm_clock_mhz=1980, memory_clock_mhz=3201,
            temperature_c=41, power_w=310.0,
        ),
    )  # fmt: skip


def resources(*, fits: bool = True) -> KernelResources:
    """One small kernel."""
    return KernelResources(
        name="k", grid=(4, 1, 1), num_warps=4, num_stages=1, registers=24, spill_bytes=0,
        shared_bytes=0, occupancy=1.0, tensor_core=None, constants={"BLOCK": 8}, compile_s=0.3,
        fits=fits, error=None if fits else "300000 bytes of shared memory",
    )  # fmt: skip


def profile(
    candidate: Candidate, *measurements: Measurement, fits: bool = True, estimate_us: float = 2.5
) -> Profile:
    """Estimates, and what was measured if anything was."""
    return Profile(
        candidate=candidate.sha256,
        target="h100-sxm",
        report=CompileReport(target="90", kernels=(resources(fits=fits),)),
        estimate=Estimate(
            target="h100-sxm", time_us=estimate_us, bytes_moved=256, flops=32, bound="memory"
        ),
        baseline_estimate=Estimate(
            target="h100-sxm", time_us=5.0, bytes_moved=512, flops=32, bound="memory"
        ),
        measurements=measurements,
        measured_on="h200" if measurements else None,
    )


class ScriptedCoder:
    """Drafts one candidate a hypothesis, and a repair where it is asked for one."""

    name = "scripted"

    def __init__(self, scripts: Sequence[Script], delay_s: float = 0.0) -> None:
        self.scripts = {item.strategy: item for item in scripts}
        self.delay_s = delay_s
        self.requests: list[DraftRequest] = []
        self.predicted_us: float | None = None
        """The same prediction for all; None: each is a microsecond slower than the one before."""

    def hypotheses(self, problem: LoadedProblem, target: Target) -> tuple[Hypothesis, ...]:
        return tuple(
            Hypothesis(
                strategy=name, reason=f"try {name}", predicted_us=self.predicted_us or 1.0 + index
            )
            for index, name in enumerate(self.scripts)
        )

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        self.requests.append(request)
        time.sleep(self.delay_s)
        strategy = request.hypothesis.strategy
        if not self.scripts[strategy].drafted:
            return Draft(candidate=None, none=NoTemplate(reason=f"no template for {strategy}"))
        repair = "repaired" if request.diagnosis else "first"
        return Draft(
            candidate=Candidate(
                source=self.scripts[strategy].source
                or f"class ModelNew:\n    '''{strategy} {repair}'''\n",
                coder=self.name,
                round=request.round,
                strategy=strategy,
                note=repair,
                searched_us=self.scripts[strategy].searched_us,
                origin=request.hypothesis.because,
            )
        )


@dataclass
class FakeRetriever:
    """Finds always the same documents."""

    documents: tuple[Retrieved, ...] = (NOTE,)

    def retrieve(
        self, problem: LoadedProblem, analysis: Analysis, target: Target
    ) -> tuple[Retrieved, ...]:
        return self.documents


def apply_hints(plan: Plan, found: tuple[Retrieved, ...]) -> Plan:
    """The first document that advises on a decision has the word."""
    decisions = []
    for item in plan.decisions:
        document = next((doc for doc in found if item.key in doc.hints), None)
        if document is not None:
            item = Decision(
                key=item.key,
                value=document.hints[item.key],
                default=item.default,
                because=document.id,
            )
        decisions.append(item)
    return plan.evolve(decisions=tuple(decisions), retrieved=tuple(doc.id for doc in found))


@dataclass
class FakeWorkshop:
    """A run factory without Triton, GPU or sandbox: judge and profiler follow the scripts."""

    scripts: tuple[Script, ...]
    delay_s: float = 0.0
    on_judge: Callable[[Candidate], None] | None = None
    on_profile: Callable[[Candidate], None] | None = None
    baselines: Baselines | ProfileFailed | None = None
    quick_us: float | None = None
    ready_after: int = 0
    """So many candidates are judged before the baselines are compiled."""
    judged: list[str] = field(default_factory=list)
    retriever: FakeRetriever = field(default_factory=FakeRetriever)
    coder: ScriptedCoder = field(init=False)

    def __post_init__(self) -> None:
        self.coder = ScriptedCoder(self.scripts, self.delay_s)

    def resolve(self, settings: Settings) -> ResolvedTarget:
        target = load_targets()["h100-sxm"]
        return ResolvedTarget(target, None, "no local GPU: a test", measurable=False)

    def judge_sha256(self) -> str:
        return "f" * 64

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        crew = Agents(
            RulesPlanner(self.coder.hypotheses), self.retriever, self.coder, RulesDebugger()
        )
        judge_scope = JudgeScope(
            problem=loaded.problem.sha256, precision="strict", policy="mixed", device="cpu",
            seed=settings.judge.seed, seeds=1, budget_s=0.0, judge_sha256=self.judge_sha256(),
            versions=VERSIONS,
        )  # fmt: skip
        profile_scope = ProfileScope(
            problem=loaded.problem.sha256,
            target="h100-sxm",
            device="cpu",
            seed=settings.seed,
            versions=VERSIONS,
        )
        tools = Tools(
            quick_baseline_us=lambda: self.quick_us, analyse=lambda: ANALYSIS, judge=self._judge,
            profile=self._profile, baselines=lambda: self.baselines, apply_hints=apply_hints,
            baselines_ready=lambda: len(self.judged) >= self.ready_after,
            judge_key=lambda candidate: work_key(judge_scope, candidate),
            profile_key=lambda candidate: work_key(profile_scope, candidate),
            draft_key=lambda request: draft_key(loaded.problem.sha256, request),
        )  # fmt: skip
        yield Deps(crew, tools)

    def _judge(self, candidate: Candidate) -> Verdict:
        self.judged.append(candidate.sha256)
        time.sleep(self.delay_s)
        if self.on_judge is not None:
            self.on_judge(candidate)
        script = self.coder.scripts[candidate.strategy]
        first = candidate.note == "first"
        return verdict(candidate, script.failure if first or not script.repaired else None)

    def _profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        time.sleep(self.delay_s)
        if self.on_profile is not None:
            self.on_profile(candidate)
        script = self.coder.scripts[candidate.strategy]
        if script.unprofiled is not None:
            return script.unprofiled
        index = list(self.coder.scripts).index(candidate.strategy)
        if script.speedup is None:
            return profile(candidate, estimate_us=2.5 + index)
        own = 20.0 / script.speedup
        eager = Ratio(value=script.speedup, low=script.speedup - 0.01, high=script.speedup + 0.01)
        ratio = script.speedup / script.compiled
        compiled = Ratio(value=ratio, low=ratio - 0.01, high=ratio + 0.01)
        return profile(candidate, measurement(eager, compiled, candidate_us=own))


def attempt(
    *measurements: Measurement,
    name: str = "a",
    failure: Failure | None = None,
    judged: bool = True,
    profiled: bool = True,
    fits: bool = True,
) -> Attempt:
    """A candidate with its verdict and profile."""
    candidate = Candidate(source=name, coder="scripted", round=1, strategy=name)
    return Attempt(
        candidate=candidate,
        verdict=verdict(candidate, failure) if judged else None,
        profile=profile(candidate, *measurements, fits=fits) if profiled else None,
    )


def attempts_of(store: RunStore) -> tuple[Attempt, ...]:
    """What the last checkpoint of a run says of each candidate, the earlier runs' included."""
    with open_saver(store.checkpoint_path) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": store.id}})
    assert found is not None
    values = found.checkpoint["channel_values"]
    return LoopState.model_validate({"history": values["history"]}).history
