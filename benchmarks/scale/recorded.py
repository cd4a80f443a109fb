"""What would workers answer in a night over thousands of models, by the rows of a measured one?

The regions' names, graphs, times, speedups and seconds are those of
benchmarks/results/zoo-h200/regions.csv, measured on an NVIDIA H200; which model has which of them
is drawn. Only the work is a stand-in: nothing is cut, drafted, judged or timed here.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from agentkernel.domain.base import sha256_text
from agentkernel.domain.certificate import Certificate, Versions
from agentkernel.domain.nightly import Form, ModelRow, Zoo, ZooModel
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.nightly.scheduler.jobs import (
    Answer,
    CutDone,
    CutJob,
    EndToEndDone,
    EndToEndJob,
    Job,
    KernelDone,
    KernelJob,
    ZooPart,
)

FOLDER = Path(__file__).parent
RECORDED = FOLDER.parent / "results" / "zoo-h200"
GPU = "NVIDIA H200"
VERSIONS = Versions(
    agentkernel="0.1.0",
    python="3.11",
    torch="2.11.0",
    triton="3.6.0",
    platform="Linux",
    driver="580.159.04",
)
PARTS = 4
"""Regions that lie in each composite one: a block has five."""
POOL = 200
"""Blocks that models have in common."""
IN_BLOCKS = 0.9
"""Share of a forward that the blocks take."""
IN_PARTS = 0.9
"""Share of a block that its parts take."""
COMPOSITE = 2
"""A recorded region with so many ops may hold others."""


@dataclass(frozen=True)
class Recorded:
    """One measured region; times in microseconds, `time_us` None where no kernel was kept."""

    name: str
    ops: tuple[str, ...]
    shapes: str
    uses: int
    status: str
    eager_us: float
    bound_us: float
    time_us: float | None
    speedup: float
    seconds: float


@cache
def regions() -> tuple[Recorded, ...]:
    """The measured regions, in the file's order."""
    with (RECORDED / "regions.csv").open(encoding="utf-8") as file:
        return tuple(
            Recorded(
                name=row["region"],
                ops=tuple(row["ops"].split()),
                shapes=row["shapes"],
                uses=int(row["uses"]),
                status=row["status"],
                eager_us=float(row["eager_us"]),
                bound_us=float(row["estimated_bound_us"]),
                time_us=float(row["time_us"]) if row["time_us"] else None,
                speedup=float(row["speedup"] or 1.0),
                seconds=float(row["spent_s"]),
            )
            for row in csv.DictReader(file)
        )


@cache
def compile_ratios() -> tuple[float, ...]:
    """torch.compile's speedups over eager of the measured models."""
    with (RECORDED / "models.csv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple(float(row["eager_us"]) / float(row["compile_us"]) for row in rows)


def zoo_of(models: int, blocks: int, sharing: float, folder: Path, *, spread: bool = False) -> Zoo:
    """`models` of `blocks` composite regions with four parts each; a block is one of the common
    ones with the probability `sharing`. `spread`: a region has one use for each call that was
    recorded, else one use that is called so often."""
    init: dict[str, int | float | bool] = {"blocks": blocks, "sharing": sharing, "spread": spread}
    found = tuple(
        ZooModel(name=f"model-{number:05}", model="stand_in.py:Model", init={**init})
        for number in range(models)
    )
    return Zoo(name=f"scale-{models}x{blocks * (1 + PARTS)}", models=found, folder=str(folder))


def parts_of(zoo: Zoo) -> tuple[ZooPart, ...]:
    """Each model by itself."""
    return tuple(
        ZooPart(
            zoo=zoo.evolve(models=(model,)),
            sha256=sha256_text(model.model_dump_json()),
        )
        for model in zoo.models
    )


def work(job: Job) -> Answer:
    """What the recorded night says of it, at once."""
    match job:
        case CutJob():
            return CutDone(cut=cut_of(job.part.model), gpu=GPU, seconds=5.0)
        case KernelJob():
            return kernel_done(job)
        case EndToEndJob():
            return EndToEndDone(row=model_row(job), seconds=20.0)


def cut_of(model: ZooModel) -> ModelCut:
    """The same for the same name."""
    draw = random.Random(model.name)
    sharing, spread = float(str(model.init["sharing"])), bool(model.init["spread"])
    made: list[list[Region]] = []
    for place in range(int(str(model.init["blocks"]))):
        common = draw.random() < sharing
        block = f"common {draw.randrange(POOL)}" if common else f"{model.name} {place}"
        made.append(block_of(model.name, f"layers.{place}", block, spread=spread))
    outer = [block[0] for block in made]
    total = sum(item.eager_us * sum(use.calls for use in item.uses) for item in outer) / IN_BLOCKS
    shared = tuple(in_all(item, total) for block in made for item in block)
    return ModelCut(model=model.name, basis="measured", time_us=total, regions=shared)


def block_of(model: str, path: str, block: str, *, spread: bool) -> list[Region]:
    """A composite region and its parts, which `block` alone decides."""
    draw = random.Random(block)
    composites = [row for row in regions() if len(row.ops) >= COMPOSITE]
    whole = draw.choice(composites)
    inner = [draw.choice(regions()) for _ in range(PARTS)]
    scale = min(1.0, IN_PARTS * whole.eager_us / sum(row.eager_us for row in inner))
    signatures = [sha256_text(f"{block} {index}")[:16] for index in range(1 + PARTS)]
    paths = [f"{path}.{index}" for index in range(whole.uses)] if spread else [path]
    calls = 1 if spread else whole.uses
    found = [region_of(model, whole, signatures[0], paths, calls, 1.0, tuple(signatures[1:]))]
    for index, row in enumerate(inner, 1):
        below = [f"{item}.part{index}" for item in paths]
        found.append(region_of(model, row, signatures[index], below, calls, scale, ()))
    return found


def region_of(
    model: str,
    row: Recorded,
    signature: str,
    paths: Sequence[str],
    calls: int,
    scale: float,
    parts: tuple[str, ...],
) -> Region:
    """A recorded region at `paths`, with times that are `scale` of the recorded ones."""
    uses = [
        RegionUse(model=model, path=path, calls=calls, parameters=("weight",)) for path in paths
    ]
    return Region(
        signature=signature,
        name=row.name,
        ops=row.ops,
        shapes=row.shapes,
        uses=tuple(uses),
        basis="measured",
        eager_us=row.eager_us * scale,
        bound_us=row.bound_us * scale,
        share=0.0,
        headroom=max(0.0, 1.0 - row.bound_us / row.eager_us),
        score=0.0,
        parts=parts,
    )


def in_all(region: Region, time_us: float) -> Region:
    """With its shares of the model's `time_us`."""
    each = [use.calls * region.eager_us / time_us for use in region.uses]
    uses = [use.evolve(share=part) for use, part in zip(region.uses, each, strict=True)]
    share = sum(each)
    changed = {"uses": tuple(uses), "share": share, "score": share * region.headroom}
    return region.evolve(**changed)


def recorded_of(region: Region) -> Recorded:
    """The row that it was made from; what was not reached then is decided as its like was."""
    same = next(
        row
        for row in regions()
        if (row.name, row.ops, row.shapes) == (region.name, region.ops, region.shapes)
    )
    if same.status != "unreached":
        return same
    reached = [row for row in regions() if row.status != "unreached"]
    return random.Random(region.signature).choice(reached)


def kernel_done(job: KernelJob) -> KernelDone:
    """A known kernel holds; a new one is found where one was found then."""
    if job.known is not None:
        return KernelDone(status="reused", reason="judged again", kernel=job.known, seconds=8.0)
    row = recorded_of(job.region)
    if row.status != "new" or row.time_us is None:
        why = "the best candidate is slower than the faster baseline"
        return KernelDone(status="kept", reason=why, run="recorded", seconds=row.seconds)
    time_us = job.region.eager_us * row.time_us / row.eager_us
    made = kernel(job.key_of_kernel, time_us, job.region.eager_us, row.speedup)
    return KernelDone(status="new", kernel=made, run="recorded", seconds=row.seconds)


def kernel(key: KernelKey, time_us: float, eager_us: float, speedup: float) -> Kernel:
    """As large as a real one, with a text of its own."""
    proof = certificate()
    source = f"{proof.candidate_source}\n# {key.signature}\n"
    sha256 = sha256_text(source)
    verdict = proof.verdict and proof.verdict.evolve(candidate=sha256)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    own = proof.evolve(
        candidate_source=source,
        candidate_sha256=sha256,
        verdict=verdict,
        created=created,
    )
    return Kernel(
        key=key,
        sha256=sha256,
        source=source,
        parameters=("weight",),
        certificate=own,
        run="recorded",
        created=created,
        basis="measured",
        speedup=speedup,
        speedup_low=speedup * 0.99,
        time_us=time_us,
        baseline_us=eager_us,
    )


@cache
def certificate() -> Certificate:
    """Of a small region, as a night kept it: 25 cases, 21 KB of JSON."""
    text = (FOLDER / "certificate.json").read_text(encoding="utf-8")
    return Certificate.model_validate_json(text)


def model_row(job: EndToEndJob) -> ModelRow:
    """What the kernels save of the cut's time, beside a recorded model's torch.compile."""
    eager_us = job.cut.time_us
    at = {use.path: (item, use) for item in job.cut.regions for use in item.uses}
    saved = sum(
        at[path][1].calls * (at[path][0].eager_us - (kernel.time_us or 0.0))
        for path, kernel in job.kernels.items()
    )
    draw = random.Random(job.part.model.name)
    times: dict[Form, float] = {
        "eager": eager_us,
        "torch.compile": eager_us / draw.choice(compile_ratios()),
        "regions": eager_us - saved,
    }
    form = min(times, key=lambda name: times[name])
    return ModelRow(
        name=job.part.model.name,
        basis="measured",
        form=form,
        timings={name: timing(value) for name, value in times.items()},
        vs_eager=ratio(times["eager"] / times[form]),
        vs_compile=ratio(times["torch.compile"] / times[form]),
        verified=True if job.kernels else None,
        swapped=len(job.kernels) if form == "regions" else 0,
    )


def timing(median_us: float) -> Timing:
    """A steady clock."""
    return Timing(median_us=median_us, p10_us=median_us, p90_us=median_us * 1.01, samples=100)


def ratio(value: float) -> Ratio:
    """Known to 1%."""
    return Ratio(value=value, low=value * 0.99, high=value * 1.01)
