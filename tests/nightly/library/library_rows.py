"""Kernels and nights for tests of the library: small, signed, and each of its own text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.nightly import ModelRow, NightlyRun, RegionRow, RegionStatus
from agentkernel.domain.problem import Problem, ShapeSet, TensorSpec
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Kernel, KernelKey, RegionUse
from agentkernel.tools.certificate.record import sign_certificate
from tests.workflows.fakes import PROBLEM, VERSIONS, measurement, profile, verdict

H200 = "NVIDIA H200"
PLUS = Problem(
    name="plus",
    origin="file",
    path="plus.py",
    source=PROBLEM,
    class_name="Model",
    shape_sets=(ShapeSet(inputs=(TensorSpec(name="x", dtype="float32", shape=(4, 8)),)),),
)


def days_ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")


def signature(number: int) -> str:
    return sha256_text(str(number))[:16]


def key(number: int = 0, *, gpu: str = H200, torch: str = "2.13.0") -> KernelKey:
    return KernelKey(
        signature=signature(number), gpu=gpu, torch=torch, triton="3.9.0", dtype="float32"
    )


def certificate(
    source: str,
    created: str,
    *,
    signed: bool = False,
    at: KernelKey | None = None,
    speedup: float | None = None,
) -> Certificate:
    """Of a kernel for `at`, measured there where it has a `speedup`."""
    candidate = Candidate(source=source, coder="scripted", round=1)
    found = None
    if at is not None and speedup is not None:
        ratio = Ratio(value=speedup, low=speedup - 0.1, high=speedup + 0.1)
        measured = profile(candidate, measurement(ratio, None, candidate_us=10.0))
        found = measured.evolve(measured_on=at.gpu)
    versions = {"torch": at.torch, "triton": at.triton} if at is not None else {}
    bare = Certificate(
        run="plus-1",
        created=created,
        status="verified",
        reason="",
        basis="estimated" if found is None else "measured",
        problem=PLUS,
        problem_sha256=PLUS.sha256,
        candidate_source=source,
        candidate_sha256=candidate.sha256,
        target="h200",
        plan=None,
        verdict=verdict(candidate, problem=PLUS.sha256),
        profile=found,
        versions=VERSIONS.evolve(**versions),
        judge_sha256="f" * 64,
        seeds=1,
    )
    return sign_certificate(bare) if signed else bare


def kernel(
    number: int = 0,
    *,
    source: str | None = None,
    created: str | None = None,
    at: KernelKey | None = None,
    speedup: float | None = 2.0,
    signed: bool = False,
) -> Kernel:
    text = f"class ModelNew: ...  # {number}\n" if source is None else source
    made, where = created or days_ago(1), at or key(number)
    return Kernel(
        key=where,
        sha256=sha256_text(text),
        source=text,
        parameters=("weight", "bias"),
        input_strides=((8, 1), None),
        parameter_strides=((1, 8), (1,)),
        certificate=certificate(text, made, signed=signed, at=where, speedup=speedup),
        run="plus-1",
        created=made,
        basis="estimated" if speedup is None else "measured",
        speedup=speedup,
        speedup_low=speedup and speedup - 0.1,
        time_us=10.0,
        baseline_us=10.0 * (speedup or 2.0),
    )


def region(number: int = 0, status: RegionStatus = "new") -> RegionRow:
    return RegionRow(
        signature=signature(number),
        name="mlp",
        ops=("aten.addmm", "aten.gelu"),
        shapes="x float32[4, 8]",
        uses=(RegionUse(model="bert", path=f"layers.{number}.mlp"),),
        basis="measured",
        share=0.1,
        headroom=0.5,
        eager_us=20.0,
        bound_us=10.0,
        status=status,
    )


def model(name: str = "bert", speedup: float | None = 2.0, error: str | None = None) -> ModelRow:
    ratio = None if speedup is None else Ratio(value=speedup, low=speedup, high=speedup)
    return ModelRow(name=name, basis="measured", vs_eager=ratio, vs_compile=ratio, error=error)


def night(
    name: str = "n1",
    *,
    zoo: str = "tiny",
    started: str = "2026-11-20T02:00:00+00:00",
    finished: str | None = "2026-11-20T02:10:00+00:00",
    models: tuple[ModelRow, ...] = (),
    regions: tuple[RegionRow, ...] = (),
) -> NightlyRun:
    return NightlyRun(
        id=name,
        zoo=zoo,
        zoo_sha256="0" * 64,
        target="h200",
        gpu=H200,
        workers=1,
        started=started,
        finished=finished,
        versions=VERSIONS,
        models=models,
        regions=regions,
    )
