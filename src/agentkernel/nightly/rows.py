"""How does what is known about a night become its table?"""

from __future__ import annotations

from agentkernel.domain.certificate import Versions
from agentkernel.domain.night import ModelRow, NightlyRun, RegionRow
from agentkernel.domain.region import Basis, Region
from agentkernel.nightly.scheduler.agenda import Scheduler
from agentkernel.nightly.scheduler.decided import RegionOutcome


def night_of(
    scheduler: Scheduler,
    *,
    zoo: str,
    zoo_sha256: str,
    started: str,
    finished: str | None,
    versions: Versions,
) -> NightlyRun:
    """The night as it stands; `finished` None: it goes on."""
    asked = scheduler.question
    return NightlyRun(
        id=asked.night,
        zoo=zoo,
        zoo_sha256=zoo_sha256,
        target=asked.target,
        gpu=scheduler.gpu,
        workers=asked.workers,
        started=started,
        finished=finished,
        versions=versions,
        budget_s=asked.budget_s,
        wall_s=round(scheduler.wall_s, 3),
        gpu_s=round(scheduler.seconds, 3),
        models=model_rows(scheduler),
        regions=region_rows(scheduler),
        lost=tuple(scheduler.lost_jobs),
    )


def model_rows(scheduler: Scheduler) -> tuple[ModelRow, ...]:
    """One a model, in the zoo's order; a model without a row says why."""
    rows = []
    for part in scheduler.question.parts:
        name = part.model.name
        row = scheduler.rows.get(name)
        if row is None:
            basis: Basis = "measured" if scheduler.gpu is not None else "estimated"
            why = scheduler.errors.get(name, "not done yet")
            row = ModelRow(
                name=name,
                weight=part.model.weight,
                dtype=part.model.dtype or "",
                basis=basis,
                error=why,
            )
        rows.append(row)
    return tuple(rows)


def region_rows(scheduler: Scheduler) -> tuple[RegionRow, ...]:
    """Every region that was worked on or was to be, the most promising first."""
    named = {region.signature for region in scheduler.order} | set(scheduler.decided)
    regions = [scheduler.regions[signature] for signature in named]
    unreached = RegionOutcome(status="unreached", reason="the night ended before it")
    ordered = sorted(regions, key=lambda item: (-item.score, item.signature))
    return tuple(_row(item, scheduler.decided.get(item.signature, unreached)) for item in ordered)


def _row(region: Region, decided: RegionOutcome) -> RegionRow:
    return RegionRow(
        signature=region.signature,
        name=region.name,
        ops=region.ops,
        shapes=region.shapes,
        uses=region.uses,
        basis=region.basis,
        share=region.share,
        headroom=region.headroom,
        eager_us=region.eager_us,
        bound_us=region.bound_us,
        flops=region.flops,
        bytes_min=region.bytes_min,
        status=decided.status,
        reason=decided.reason,
        sha256=decided.sha256,
        parent=decided.parent,
        run=decided.run,
        time_us=decided.time_us,
        speedup=decided.speedup,
        speedup_low=decided.speedup_low,
        spent_s=round(decided.seconds, 3),
    )
