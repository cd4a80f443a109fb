"""Rows of a bench, made up for the tests."""

from __future__ import annotations

from agentkernel.bench.suite import Row, Sample, Times
from agentkernel.domain.certificate import Versions
from agentkernel.domain.profile import Ratio

GPU = "NVIDIA H200"
VERSIONS = Versions(
    agentkernel="0.1.0", python="3.12.3", torch="2.11.0", triton="3.6.0", platform="Linux"
)


def ratio(value: float, width: float = 0.01) -> Ratio:
    return Ratio(value=value, low=value * (1 - width), high=value * (1 + width))


def sample(
    speedup: float | None = None, *, correct: bool = True, compiled: float = 1.25, **changes: object
) -> Sample:
    """`speedup` over eager, measured; `compiled` is torch.compile's over eager."""
    base = Sample(
        seed=0,
        status="improved" if correct else "kept_compiled",
        reason="made up",
        correct=correct,
        interpreted=speedup is None,
        kept=None if correct else "torch.compile",
        time_us=None if speedup is None else 100.0 / speedup,
        vs_eager=None if speedup is None else ratio(speedup),
        vs_compile=None if speedup is None else ratio(speedup / compiled),
        roofline_fraction=None if speedup is None else 0.5,
        candidates=2,
        seconds=10.0,
    )
    return base.evolve(**changes)


def row(name: str, *samples: Sample, gpu: str | None = GPU, **changes: object) -> Row:
    base = Row(
        key=f"key-{name}",
        name=name,
        level=name.split("/")[0],
        coder="compiler",
        target="h200",
        planned=max(1, len(samples)),
        gpu=gpu,
        versions=VERSIONS,
        samples=samples,
        times=Times(eager_us=100.0, compiled_us=80.0, eager_drift=1.02) if gpu else Times(),
        seconds=sum(item.seconds for item in samples),
    )
    return base.evolve(**changes)


def broken(name: str, *, gpu: str | None = GPU) -> Row:
    return row(name, gpu=gpu, times=Times(), error="it has no Model")


def suite() -> tuple[Row, ...]:
    """Two levels: fast, slower than torch.compile, kept, broken; one with a caught candidate."""
    return (
        row("level1/a", sample(2.0, energy_mj=10.0, eager_energy_mj=20.0)),
        row("level1/b", sample(1.1, hacks=("execution:no-kernel",))),
        row("level1/c", sample(correct=False)),
        row("level2/d", sample(5.0, kernelbench_correct=True)),
        broken("level2/e"),
    )


def unmeasured() -> tuple[Row, ...]:
    verified = sample(status="verified", estimated_time_us=50.0, estimated_eager_us=100.0)
    return (row("level1/a", verified, gpu=None), broken("level1/b", gpu=None))
