"""Work that a lane's process can do in the tests of a night, by the model's and region's name.

A zoo's folder is where it notes what it began.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import MissingDependency
from agentkernel.domain.nightly import ModelRow, RegionStatus, Zoo, ZooModel
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.nightly.regions import WaitingRegions
from agentkernel.nightly.scheduler.engine import GpuLost
from agentkernel.nightly.scheduler.jobs import (
    Answer,
    CutDone,
    CutJob,
    EndToEndDone,
    Job,
    KernelDone,
    KernelJob,
    ZooPart,
)
from tests.nightly.library import library_rows

PAUSE_S = float(os.environ.get("NIGHT_PAUSE_S", "0"))
SHARED = "shared"


def work(job: Job) -> Answer:
    """Notes that it began; then crashes, raises, or answers as the names say."""
    folder = Path(job.part.zoo.folder)
    note(folder, job)
    time.sleep(PAUSE_S)
    name = job.region.name if isinstance(job, KernelJob) else job.part.model.name
    begun_before = begun(folder)[job.name] - 1
    if name.startswith("dies_once") and begun_before == 0 and isinstance(job, KernelJob):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("dies") and "once" not in name and isinstance(job, KernelJob):
        os._exit(9)
    if name.startswith("hangs") and isinstance(job, KernelJob):
        time.sleep(600)
    if name.startswith("loses") and begun_before == 0:
        raise GpuLost("CUDA error: an illegal memory access was encountered")
    if name.startswith("lacks"):
        raise MissingDependency("no driver here")
    if name.startswith("bug") and isinstance(job, KernelJob):
        raise ZeroDivisionError("oops")
    return answered(job)


def answered(job: Job) -> Answer:
    """What a worker finds that meets no trouble."""
    match job:
        case CutJob():
            return CutDone(cut=cut_of(job.part.model), seconds=0.5)
        case KernelJob():
            return kernel_done(job)
        case _:
            saved = sum(1.0 for _ in job.kernels)
            row = ModelRow(
                name=job.part.model.name,
                weight=job.part.model.weight,
                basis="estimated",
                form="regions" if job.kernels else "eager",
                why=job.no_whole,
                estimated_eager_us=job.cut.time_us,
                estimated_us=job.cut.time_us - saved,
                estimated_speedup=job.cut.time_us / (job.cut.time_us - saved),
                swapped=len(job.kernels),
            )
            return EndToEndDone(row=row, seconds=0.25)


def kernel_done(job: KernelJob) -> KernelDone:
    """Kept for a region called `nothing`; a known kernel whose source says WRONG is withdrawn."""
    if job.known is not None:
        broken = job.known.withdrawn or ("WRONG" in job.known.source and "mismatch")
        if broken:
            return KernelDone(status="withdrawn", reason=broken, kernel=job.known)
        return KernelDone(status="reused", kernel=job.known, seconds=0.1)
    if job.region.name.startswith("nothing"):
        return KernelDone(status="kept", reason="nothing is faster", seconds=2.0)
    if job.region.name == "live":
        run = Path(job.runs) / "r"
        run.mkdir(parents=True)
        (run / "live.pkl").write_text("live")
    made = kernel(job.key_of_kernel, f"# a kernel for {job.region.name}\n")
    status: RegionStatus = "new" if job.parent is None else "retuned"
    return KernelDone(status=status, kernel=made, run="r", seconds=1.0)


def kernel(key: KernelKey, source: str) -> Kernel:
    now = datetime.now(UTC).isoformat()
    made = library_rows.kernel(source=source, created=now, at=key, speedup=None, signed=True)
    return made.evolve(parameters=("weight",), run="r", time_us=9.0, baseline_us=10.0)


def cut_of(model: ZooModel) -> ModelCut:
    """Its regions are named by `init["regions"]`, one word each; `outer(inner)` has a part, and
    `@name` is the model as a whole."""
    words = str(model.init.get("regions", "")).split()
    regions: list[Region] = []
    for index, word in enumerate(words):
        outer, _, inner = word.rstrip(")").partition("(")
        path = "" if outer.startswith("@") else f"layer{index}"
        outer = outer.removeprefix("@")
        parts: tuple[str, ...] = ()
        if inner:
            part = region_of(model.name, inner, f"{path}.inner", index + 10)
            regions.append(part)
            parts = (part.signature,)
        regions.append(region_of(model.name, outer, path, index, parts))
    return ModelCut(model=model.name, basis="estimated", time_us=100.0, regions=tuple(regions))


def region_of(model: str, name: str, path: str, rank: int, parts: tuple[str, ...] = ()) -> Region:
    share = 0.3 / (rank + 1)
    return Region(
        signature=sha256_text(name)[:16],
        name=name,
        ops=("aten.add",),
        shapes="x float32[8, 8]",
        uses=(RegionUse(model=model, path=path, parameters=("weight",)),),
        basis="estimated",
        eager_us=10.0,
        bound_us=5.0,
        share=share,
        headroom=0.5,
        score=share / 2,
        parts=parts,
    )


def merge(cuts: Sequence[ModelCut], weights: Mapping[str, float]) -> tuple[Region, ...]:
    """The same signature is the same region."""
    found: dict[str, Region] = {}
    for region in (item for cut in cuts for item in cut.regions):
        other = found.get(region.signature)
        if other is not None:
            region = other.evolve(uses=(*other.uses, *region.uses))
        found[region.signature] = region
    return tuple(found.values())


def order(regions: Sequence[Region], done: Mapping[str, bool]) -> tuple[Region, ...]:
    """Parents first; the parts of one that found nothing come in."""
    parts = {
        part for item in regions for part in item.parts if done.get(item.signature) is not False
    }
    chosen = [item for item in regions if item.signature not in parts]
    return tuple(sorted(chosen, key=lambda item: (-item.score, item.signature)))


class Order:
    """`order`, asked anew after each answer."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.all, self.done = tuple(regions), dict[str, bool]()

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(item for item in order(self.all, self.done) if item.signature not in self.done)

    def answered(self, signature: str, found: bool) -> tuple[Region, ...]:
        before = {item.signature for item in self.regions}
        self.done[signature] = found
        return tuple(item for item in self.regions if item.signature not in before)


def budget(region: Region, rest: WaitingRegions, seconds: float) -> float:
    return seconds / (1 + rest.others)


def note(folder: Path, job: Job) -> None:
    with (folder / "begun.txt").open("a") as file:
        file.write(f"{job.name}\t{os.getpid()}\n")


def begun(folder: Path) -> Counter[str]:
    """How often each job began."""
    path = folder / "begun.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    return Counter(line.split("\t")[0] for line in lines)


def zoo_of(folder: Path, **regions: str) -> Zoo:
    """Models by name, with their regions."""
    models = tuple(
        ZooModel(name=name, model="models.py:Model", init={"regions": words})
        for name, words in regions.items()
    )
    return Zoo(name="made-up", models=models, folder=str(folder))


def parts_of(zoo: Zoo) -> tuple[ZooPart, ...]:
    return tuple(
        ZooPart(
            zoo=zoo.evolve(models=(model,)),
            sha256=sha256_text(model.model_dump_json()),
        )
        for model in zoo.models
    )
