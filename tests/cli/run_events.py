"""Events and results of made-up runs, for the tests of the screen."""

from __future__ import annotations

from agentkernel.domain.profile import KernelResources
from agentkernel.workflows.events import (
    CandidateDrafted,
    Event,
    NodeStarted,
    ProfileTaken,
    RunStarted,
    VerdictReached,
)
from agentkernel.workflows.outcome import Result

KERNEL = KernelResources(
    name="layer_norm_rows",
    grid=(8192, 1, 1),
    num_warps=8,
    num_stages=3,
    registers=64,
    spill_bytes=0,
    shared_bytes=128,
    occupancy=0.5,
    tensor_core=None,
    constants={"BLOCK": 8192},
    compile_s=0.3,
)


def started(**changes: object) -> RunStarted:
    event = RunStarted(
        run="layernorm-1",
        folder="/tmp/layernorm-1",
        problem="layernorm",
        shapes=("x float32[8192, 8192]",),
        target="h100-sxm",
        note="no local GPU",
        measurable=False,
        rounds=3,
        time_limit_s=600.0,
        resumed=False,
    )
    return event.evolve(**changes)


def profile_taken(**changes: object) -> ProfileTaken:
    event = ProfileTaken(
        round=1,
        candidate="c" * 64,
        measured=False,
        measured_on=None,
        time_us=None,
        speedup_vs_eager=None,
        speedup_vs_compile=None,
        roofline_fraction=None,
        estimated_time_us=181.0,
        estimated_eager_us=260.0,
        kernels=(KERNEL,),
        reused=False,
    )
    return event.evolve(**changes)


def one_round(profile: ProfileTaken) -> list[Event]:
    return [
        started(),
        NodeStarted(node="draft", round=1, spent_s=1.0),
        CandidateDrafted(
            round=1, candidate="c" * 64, coder="compiler", strategy="rows", parent=None
        ),
        VerdictReached(
            round=1,
            candidate="c" * 64,
            accepted=True,
            interpreted=True,
            gate="accepted",
            failure=None,
            error_vs_oracle=1e-7,
            eager_error_vs_oracle=1.1e-7,
            seconds=3.0,
            reused=False,
        ),
        profile,
    ]


def result(**changes: object) -> Result:
    made = Result(
        status="verified",
        reason="accepted by the judge",
        run="layernorm-1",
        measured=False,
        candidate="/tmp/layernorm_optimized.py",
        candidate_sha256="c" * 64,
        certificate=None,
        report=None,
        problem="layernorm",
        target="h100-sxm",
        error_vs_oracle=1e-7,
        eager_error_vs_oracle=1.1e-7,
        estimated_time_us=181.0,
        estimated_eager_us=260.0,
        estimated_speedup_vs_eager=1.44,
        drafts=1,
        spent_s=12.0,
    )
    return made.evolve(**changes)
