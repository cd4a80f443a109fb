"""Does the evidence of a slow candidate name its bound, its distance and what is in the way?"""

from __future__ import annotations

import pytest

from agentkernel.agents.evidence import SpeedEvidence, speed_evidence
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import CompileReport, KernelResources, Measurement
from tests.agents.models.model_cases import H100, analysis, candidate
from tests.workflows.fakes import measurement, profile, resources


def evidence(
    *kernels: KernelResources,
    measured: Measurement | None = None,
    library: tuple[str, ...] = (),
    facts: Analysis | None = None,
) -> SpeedEvidence:
    report = CompileReport(target="90", kernels=kernels, library_ops=library)
    made = profile(candidate(), *([measured] if measured else []))
    return speed_evidence(made.evolve(report=report), facts, H100)


def kernel(**changes: object) -> KernelResources:
    return resources().evolve(**{"grid": (1000, 1, 1), **changes})


def test_measured() -> None:
    found = evidence(kernel(), measured=measurement(roofline=0.4), facts=analysis())
    facts = dict(found.facts)
    assert found.basis == "measured"
    assert facts["bound by"] == "memory"
    assert facts["reached"] == "40%"
    assert facts["bandwidth"] == "3000 GB/s of 4300 GB/s that a copy reaches"
    assert found.findings == ()


def test_estimated_says_so() -> None:
    found = evidence(kernel())
    assert found.basis == "estimated"
    assert dict(found.facts)["time"] == "2.5 us, estimated"
    assert "bandwidth" not in dict(found.facts)


TABLE: list[tuple[KernelResources, str]] = [
    (kernel(spill_bytes=128), "spills 128 bytes"),
    (kernel(occupancy=0.125), "keeps 12% of an SM's warps resident (24 registers"),
    (kernel(grid=(4, 1, 1)), "starts 4 programs on 132 SMs"),
    (kernel(fits=False, error="300000 bytes"), "does not fit the target: 300000 bytes"),
]


@pytest.mark.parametrize(("item", "words"), TABLE)
def test_what_is_in_the_way_of_a_kernel(item: KernelResources, words: str) -> None:
    (finding,) = evidence(item).findings
    assert words in finding


def test_a_product_without_tensor_cores() -> None:
    compute = analysis(roofline="compute")
    assert "no tensor cores" in evidence(kernel(), facts=compute).findings[0]
    assert evidence(kernel(tensor_core="wgmma"), facts=compute).findings == ()


def test_launches_and_library() -> None:
    slow = measurement().evolve(launches=5, own_kernel_share=0.4)
    found = evidence(kernel(), measured=slow, library=("aten.mm",))
    assert "5 launches" in found.findings[0]
    assert "60% of the time is not in the own kernels: aten.mm" in found.findings[1]


def test_nothing_left() -> None:
    assert "nothing much" in evidence(kernel(), measured=measurement(roofline=0.95)).findings[0]


def test_the_bytes_are_split_by_launch() -> None:
    found = evidence(kernel(name="a", bytes_touched=300), kernel(name="b", bytes_touched=100))
    assert "75% of the bytes (estimated)" in dict(found.facts)["kernel a"]
    assert "25% of the bytes (estimated)" in dict(found.facts)["kernel b"]


def test_facts_of_another_measurement_ask_the_same_question() -> None:
    """A replay knows a question by what is left of it without its figures."""
    first = measurement(roofline=0.4)
    again = measurement(roofline=0.43, candidate_us=10.125).evolve(
        achieved_gb_per_s=2987.0, copy_gb_per_s=4311.5, achieved_tflops=0.51
    )
    assert outline(first) == outline(again)
    assert first != again


def outline(measured: Measurement) -> str:
    text = "\n".join(": ".join(item) for item in evidence(kernel(), measured=measured).facts)
    sampling = Sampling(temperature=0, max_tokens=1)
    message = Message(role="user", text=text)
    return ModelRequest(agent="coder", round=2, messages=(message,), sampling=sampling).outline("m")
