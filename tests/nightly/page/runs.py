"""A made-up zoo of five models and thirty regions, and nights over it."""

from __future__ import annotations

import random
from collections.abc import Callable

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Certificate, Signature, Versions
from agentkernel.domain.nightly import Form, LostJob, ModelRow, NightlyRun, RegionRow, RegionStatus
from agentkernel.domain.plan import Plan
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Basis, Kernel, RegionUse
from agentkernel.tools.speedup import classify
from tests.nightly.library import library_rows
from tests.workflows.fakes import ANALYSIS, measurement, profile

GPU = library_rows.H200
VERSIONS = Versions(
    agentkernel="0.9.0",
    python="3.12.8",
    torch="2.13.0",
    triton="3.9.0",
    platform="Linux-6.8-x86_64",
    cuda="13.0",
    driver="580.95.05",
)
RUN, CREATED = "layernorm-20261122-074959-a1b1", "2026-11-22T02:41:10+00:00"
MODELS = ("bert-base", "gpt2-medium", "llama-8l", "unet-small", "whisper-tiny")
DTYPES = ("bfloat16", "bfloat16", "bfloat16", "float32", "float16")
KINDS = (
    ("mlp", ("mm", "gelu", "mm"), 400.0, 1.9e11, 3e8),
    ("attention", ("mm", "softmax", "mm"), 310.0, 1.1e11, 4e8),
    ("layernorm", ("layer_norm",), 60.0, 9e7, 1.4e8),
    ("rmsnorm", ("pow", "mean", "rsqrt", "mul"), 75.0, 8e7, 1.3e8),
    ("conv-block", ("convolution", "group_norm", "silu"), 520.0, 1.4e10, 5e8),
    ("rope", ("cos", "sin", "mul", "add"), 44.0, 3e7, 8e7),
)
STATUSES: tuple[RegionStatus, ...] = ("reused", "new", "retuned", "kept", "reused", "unreached")


def ratio(value: float, width: float = 0.01) -> Ratio:
    """A measured ratio whose 95% interval is `width` to either side."""
    low, low99 = value * (1 - width), value * (1 - 1.3 * width)
    high, high99 = value * (1 + width), value * (1 + 1.3 * width)
    return classify(Ratio(value=value, low=low, high=high, low99=low99, high99=high99))


def timing(median_us: float) -> Timing:
    """A steady clock."""
    p10_us, p90_us = median_us * 0.995, median_us * 1.006
    return Timing(median_us=median_us, p10_us=p10_us, p90_us=p90_us, samples=200)


def model(
    name: str, eager_us: float, compile_gain: float, own_gain: float, **more: object
) -> ModelRow:
    """A measured row: `own_gain` over torch.compile; 1 keeps torch.compile."""
    compiled = eager_us / compile_gain
    form: Form = "regions+torch.compile" if own_gain > 1 else "torch.compile"
    row = ModelRow(
        name=name,
        basis="measured",
        form=form,
        timings={
            "eager": timing(eager_us),
            "torch.compile": timing(compiled),
            form: timing(compiled / own_gain),
        },
        vs_eager=ratio(compile_gain * own_gain),
    )
    if own_gain > 1:
        row = row.evolve(
            vs_compile=ratio(own_gain),
            verified=True,
            worst_error=2.1e-3,
            eager_error=1.9e-3,
            swapped=24,
            time_in_regions=0.71,
        )
    return row.evolve(**more)


def estimated_model(name: str, eager_us: float, gain: float, **more: object) -> ModelRow:
    """A row that nobody measured."""
    row = ModelRow(
        name=name,
        basis="estimated",
        form="regions" if gain > 1 else "eager",
        estimated_eager_us=eager_us,
        estimated_us=eager_us / gain,
        estimated_speedup=gain,
        verified=True,
        worst_error=1.1e-7,
        eager_error=1.0e-7,
        swapped=3,
    )
    return row.evolve(**more)


def region(number: int, *, basis: Basis = "measured", **more: object) -> RegionRow:
    """The region with this number, 0 to 29."""
    name, ops, eager_us, flops, size = KINDS[number % len(KINDS)]
    scale = 1 / (1 + number // len(KINDS))
    flops, size = flops * scale, size * scale**0.7
    peak = 67e6 if DTYPES[number % 5] == "float32" else 989.5e6
    bound = max(flops / peak, size / 4.2e6)
    eager_us = max(eager_us * scale, 1.6 * bound)
    status = STATUSES[(number * 7 // 3) % len(STATUSES)]
    has = status in ("reused", "new", "retuned")
    time_us = max(bound * 1.15, eager_us * 0.55) if has else None
    speedup = eager_us * 0.93 / time_us if time_us else None
    rows = 4096 >> (number // len(KINDS))
    row = RegionRow(
        signature=sha256_text(f"region {number}")[:16],
        name=name,
        ops=ops,
        shapes=f"x {DTYPES[number % 5]}[8, {rows}, 1024]",
        uses=tuple(
            RegionUse(model=MODELS[(number + step) % 5], path=f"layers.0.{name}", calls=6)
            for step in range(1 + number % 2)
        ),
        basis=basis,
        share=0.16 * scale / (1 + number % 6),
        headroom=1 - bound / eager_us,
        eager_us=eager_us,
        bound_us=bound,
        status=status,
        reason="no candidate was faster than torch.compile" if status == "kept" else "",
        sha256=kernel_sha(number) if has else None,
        parent=kernel_sha(number, 1) if status == "retuned" else None,
        run=f"{name}-20261122-0{number % 10}1502-a1b{number % 10}" if has else None,
        time_us=time_us,
        speedup=speedup if basis == "measured" else None,
        speedup_low=speedup * 0.985 if speedup and basis == "measured" else None,
        speedup_high=speedup * 1.015 if speedup and basis == "measured" else None,
        spent_s=0.0 if status == "unreached" else 22.0 + 61.0 * scale * (1 + number % 4),
        flops=int(flops),
        bytes_min=int(size),
    )
    return row.evolve(**more)


def source(number: int, generation: int = 0) -> str:
    """The text of a kernel; an older generation has another tile."""
    block = 128 >> generation
    return (
        "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        f"def kernel_{number}(x, y, n, BLOCK: tl.constexpr):\n"
        "    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    value = tl.load(x + place, mask=place < n)\n"
        "    tl.store(y + place, value * 2, mask=place < n)\n\n\n"
        f"class ModelNew(torch.nn.Module):\n    BLOCK = {block}\n"
    )


def kernel_sha(number: int, generation: int = 0) -> str:
    """SHA-256 of `source`."""
    return sha256_text(source(number, generation))


def certificate(number: int, generation: int = 0, text: str | None = None) -> Certificate:
    """A measured certificate of a kernel."""
    drafted = Candidate(source=text or source(number, generation), coder="compiler", round=1)
    analysis = ANALYSIS.evolve(bytes_min=10**8, flops=10**9)
    return library_rows.certificate(drafted.source, CREATED).evolve(
        run=RUN,
        status="improved",
        reason="1.4x over the faster baseline; 81% of the roofline",
        basis="measured",
        plan=Plan(analysis=analysis, hypotheses=()),
        profile=profile(drafted, measurement()),
        versions=VERSIONS,
        signature=Signature(key="a" * 64, fingerprint="b" * 64, value="c" * 128),
    )


def kernel(number: int, generation: int = 0) -> Kernel:
    """A verified kernel of region `number`."""
    key = library_rows.key().evolve(signature=region(number).signature, dtype="bfloat16")
    made = library_rows.kernel(source=source(number, generation), created=CREATED, at=key)
    return made.evolve(
        certificate=certificate(number, generation),
        run=RUN,
        speedup=1.4,
        speedup_low=1.37,
        time_us=32.1,
        baseline_us=44.9,
        verified="2026-11-23T02:10:00+00:00",
    )


def kernels() -> dict[str, Kernel]:
    """Both generations of all thirty."""
    found = [kernel(number, generation) for number in range(30) for generation in (0, 1)]
    return {item.sha256: item for item in found}


def night(day: int = 23, **more: object) -> NightlyRun:
    """The measured night that ends on this day of November."""
    rows = (
        model("bert-base", 2140.0, 1.42, 1.31, dtype="bfloat16"),
        model("gpt2-medium", 5210.0, 1.38, 1.22, dtype="bfloat16", weight=2.0),
        model("llama-8l", 8450.0, 1.21, 1.0, dtype="bfloat16", dropped=("0" * 16, "1" * 16)),
        model("unet-small", 12900.0, 1.55, 1.09, dtype="float32"),
        model("whisper-tiny", 930.0, 1.9, 1.64, dtype="float16"),
    )
    found = NightlyRun(
        id=f"zoo-202611{day:02d}-020000-c0de",
        zoo="transformers",
        zoo_sha256="5" * 64,
        target="h200",
        gpu=GPU,
        workers=4,
        started=f"2026-11-{day:02d}T02:00:00+00:00",
        finished=f"2026-11-{day:02d}T02:15:12+00:00",
        versions=VERSIONS,
        budget_s=960.0,
        wall_s=912.0,
        gpu_s=3402.0,
        models=rows,
        regions=tuple(region(number) for number in range(30)),
        lost=(LostJob(job="kernel conv-block", why="its worker was killed (signal 9)"),),
    )
    return found.evolve(**more)


def with_model(found: NightlyRun, name: str, change: Callable[[ModelRow], ModelRow]) -> NightlyRun:
    """The night with one model changed."""
    rows = tuple(change(row) if row.name == name else row for row in found.models)
    return found.evolve(models=rows)


def with_region(found: NightlyRun, number: int, **more: object) -> NightlyRun:
    """The night with one region changed."""
    signature = region(number).signature
    rows = tuple(row.evolve(**more) if row.signature == signature else row for row in found.regions)
    return found.evolve(regions=rows)


def history() -> tuple[NightlyRun, ...]:
    """Three nights before the 23rd: slower, with an older torch at first, two models fewer."""
    nights = []
    for index, day in enumerate((20, 21, 22)):
        draw = random.Random(day)
        factor = 0.86 + 0.05 * index
        rows = [
            model(
                row.name,
                row.timings["eager"].median_us,
                1.3,
                max(1.0, factor * draw.uniform(1.1, 1.5)),
                dtype=row.dtype,
                weight=row.weight,
            )
            for row in night().models[: 3 + index]
        ]
        found = night(day, models=tuple(rows))
        if index == 0:
            older = VERSIONS.evolve(torch="2.12.1")
            found = found.evolve(versions=older)
        regions = [
            region(number, sha256=kernel_sha(number, 1), parent=None)
            if region(number).status == "retuned"
            else region(number)
            for number in range(28)
        ]
        nights.append(found.evolve(regions=tuple(regions)))
    return tuple(nights)


def tonight() -> NightlyRun:
    """The 23rd, with something of everything: slower, withdrawn, failed, an estimate, an error."""
    found = with_model(
        night(),
        "gpt2-medium",
        lambda row: model(row.name, 5600.0, 1.38, 1.05, dtype="bfloat16", weight=2.0),
    )
    found = with_region(
        found,
        1,
        status="withdrawn",
        reason="the replay finds another output: error 3.1e-2, allowed 4.0e-3",
        parent=kernel_sha(1),
        sha256=None,
        time_us=None,
        speedup=None,
        speedup_low=None,
    )
    found = with_region(found, 9, status="failed", reason="the worker was killed twice")
    broken = ModelRow(
        name="mamba",
        basis="measured",
        error="RuntimeError: <script>alert('mamba')</script> no kernel image | @ $x$ `y`",
    )
    return found.evolve(models=(*found.models, estimated_model("clip-text", 760.0, 1.18), broken))
