"""Changes between two nightly runs beyond the noise of either, most urgent first."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import one_line
from agentkernel.domain.formatting import count, ratio_text, us
from agentkernel.domain.nightly import (
    Change,
    ChangeKind,
    Comparison,
    ModelRow,
    NightlyRun,
    RegionRow,
)
from agentkernel.domain.profile import Ratio
from agentkernel.nightly.page.elements import ChangeGroup, ChangeLine, Tone
from agentkernel.nightly.page.figures import (
    BASELINES,
    form_time_us,
    is_faster,
    log_error,
    region_label,
    same_devices,
    time_ratio,
    withdrawn_text,
)
from agentkernel.tools.speedup import MARGIN, Z_95

KINDS: dict[ChangeKind, tuple[str, Tone]] = {
    "withdrawn": ("Withdrawn: known kernels that do not verify any more", "bad"),
    "failed_to_verify": ("Failed to verify", "bad"),
    "model_failed": ("Models with an error", "bad"),
    "regression": ("Regressions", "bad"),
    "gain": ("Gains", "good"),
    "version": ("Versions that changed", "warn"),
    "new_model": ("New models", ""),
    "vanished_model": ("Vanished models", "warn"),
    "new_region": ("New regions", ""),
    "vanished_region": ("Vanished regions", "warn"),
}
"""Title and tone of each kind of change; what a reader must see first comes first."""
MOST = 12
"""Changes of one kind that are listed on the page."""
STILL = "still failing: "
"""How the words of a failure begin that the night before had too."""


def change_groups(
    night: NightlyRun, comparison: Comparison, most: int = MOST
) -> tuple[ChangeGroup, ...]:
    """The changes by kind, in the order of `KINDS`."""
    places = {region_label(row): f"#region-{row.signature}" for row in night.regions}
    places |= {row.name: f"#model-{row.name}" for row in night.models}
    groups = []
    for kind, (title, tone) in KINDS.items():
        found = [item for item in comparison.changes if item.kind == kind]
        if found:
            lines = tuple(
                ChangeLine(item.what, change_text(item), places.get(item.what, ""))
                for item in found[:most]
            )
            groups.append(ChangeGroup(title, tone, lines, max(len(found) - most, 0)))
    return tuple(groups)


def change_text(change: Change) -> str:
    """`2.10 ms in regions → 2.40 ms in eager: 0.88× (0.87 to 0.89)`."""
    text = " → ".join(item for item in (change.before, change.after) if item)
    return text if change.ratio is None else f"{text}: {ratio_text(change.ratio)}"


def headline(comparison: Comparison) -> str:
    """The first thing to read: what failed, what is slower, or that all is well.
    Without an earlier night nothing is said of regressions."""
    kinds = [item.kind for item in comparison.changes]
    parts = []
    broken = kinds.count("withdrawn") + kinds.count("failed_to_verify")
    if broken:
        parts.append(f"{count(broken, 'thing')} did not verify")
    failed = [item for item in comparison.changes if item.kind == "model_failed"]
    if failed:
        still = all(item.after.startswith(STILL) for item in failed)
        parts.append(f"{count(len(failed), 'model')} {'still failing' if still else 'failed'}")
    if slower := kinds.count("regression"):
        parts.append(count(slower, "regression"))
    gains = kinds.count("gain")
    if not parts:
        compared = comparison.against is not None
        parts.append("No regression, all kernels verified" if compared else "All kernels verified")
    if gains:
        parts.append(count(gains, "gain"))
    return ", ".join(parts)


def headline_tone(comparison: Comparison) -> Tone:
    """Green where the exit code is 0."""
    return "bad" if comparison.exit_code else "good"


SLOWER = 0.98
"""Old time / new time whose whole 99% interval lies below this is a regression."""


def compare_nights(before: NightlyRun | None, after: NightlyRun) -> Comparison:
    """The night beside the one before it. What fails this night is listed whether or not it failed
    before: it stays so until it is fixed. Everything else is a difference. Times are compared on
    one model of GPU alone, estimates for one target alone."""
    changes = [*_failures(before, after)]
    if before is not None:
        changes += [*_versions(before, after), *_models(before, after), *_regions(before, after)]
    order = list(KINDS)
    changes.sort(key=lambda item: order.index(item.kind))
    return Comparison(
        night=after.id, against=before.id if before is not None else None, changes=tuple(changes)
    )


def _failures(before: NightlyRun | None, after: NightlyRun) -> Iterator[Change]:
    regions = {row.signature: row for row in before.regions} if before else {}
    models = {row.name: row for row in before.models} if before else {}
    for row in after.regions:
        was = regions[row.signature].status if row.signature in regions else ""
        if row.status == "withdrawn":
            # The words say what there was.
            yield Change(kind="withdrawn", what=region_label(row), after=withdrawn_text(row))
        elif row.status == "failed":
            why = one_line(row.reason) or "it does not verify"
            old = regions.get(row.signature)
            if old is not None and (old.status, old.reason) == (row.status, row.reason):
                was, why = "", f"{STILL}{why}"
            yield Change(kind="failed_to_verify", what=region_label(row), before=was, after=why)
    for model in after.models:
        earlier = models.get(model.name)
        was_form = _how_it_ran(earlier)
        if model.error is not None:
            why = _error_words(model)
            if earlier is not None and earlier.error == model.error:
                was_form, why = "", f"{STILL}{why}"
            yield Change(kind="model_failed", what=model.name, before=was_form, after=why)
        elif model.verified is False:
            yield Change(
                kind="failed_to_verify",
                what=model.name,
                before=was_form,
                after=f"outputs with the regions in: {_errors(model)}",
            )


def _how_it_ran(row: ModelRow | None) -> str:
    """The form in which a model ran; where it failed, its error: then it ran in none."""
    if row is None:
        return ""
    return row.form if row.error is None else _error_words(row)


def _error_words(row: ModelRow) -> str:
    return one_line(row.error or "") or "it failed"


def _errors(row: ModelRow) -> str:
    if row.worst_error is None:
        return "not within the strict rule"
    own = "" if row.eager_error is None else f", eager's own is {row.eager_error:.1e}"
    return f"error {row.worst_error:.1e}{own}"


def _versions(before: NightlyRun, after: NightlyRun) -> Iterator[Change]:
    pairs = {
        name: (getattr(before.versions, name), getattr(after.versions, name))
        for name in Versions.model_fields
    }
    pairs["gpu"] = (before.gpu, after.gpu)
    pairs["target"] = (before.target, after.target)
    pairs["zoo file"] = (before.zoo_sha256[:10], after.zoo_sha256[:10])
    for name, (old, new) in pairs.items():
        if old != new:
            yield Change(kind="version", what=name, before=old or "none", after=new or "none")


def _models(before: NightlyRun, after: NightlyRun) -> Iterator[Change]:
    old = {row.name: row for row in before.models}
    new = {row.name: row for row in after.models}
    for name, row in new.items():
        if name not in old:
            yield Change(kind="new_model", what=name, after=row.form)
    for name, row in old.items():
        if name not in new:
            yield Change(kind="vanished_model", what=name, before=row.form)
    for name, row in new.items():
        if name in old and same_devices(before, after, row.basis):
            yield from _moved_model(old[name], row)


def _moved_model(old: ModelRow, new: ModelRow) -> Iterator[Change]:
    if old.basis != new.basis or old.error is not None or new.error is not None:
        return
    before, after = form_time_us(old), form_time_us(new)
    ratio = None
    if before and after:
        measured = new.basis == "measured"
        ratio = time_ratio(before, after, *((log_error(old), log_error(new)) if measured else ()))
    kind = _kind(
        ratio,
        lost=_fell_back(old, new, ratio.value if ratio else None),
        won=_fell_back(new, old, 1 / ratio.value if ratio else None),
    )
    if kind is not None:
        forms = ("" if old.form == new.form else f" in {old.form}", f" in {new.form}")
        words = (f"{us(time)}{form}" for time, form in zip((before, after), forms, strict=True))
        yield _change(kind, new.name, words, ratio, estimated=new.basis == "estimated")


def _fell_back(old: ModelRow, new: ModelRow, ratio: float | None) -> bool:
    """From a form that was surely faster to a baseline, which is not as fast."""
    away = old.form not in BASELINES and new.form in BASELINES
    return away and is_faster(old) and (ratio is None or ratio < 1 - MARGIN)


def _regions(before: NightlyRun, after: NightlyRun) -> Iterator[Change]:
    old = {row.signature: row for row in before.regions}
    new = {row.signature: row for row in after.regions}
    for row in after.regions:
        if row.signature not in old:
            yield Change(kind="new_region", what=region_label(row), after=row.status)
    for row in before.regions:
        if row.signature not in new:
            yield Change(kind="vanished_region", what=region_label(row), before=row.status)
    for signature, row in new.items():
        if signature in old and same_devices(before, after, row.basis):
            yield from _moved_region(old[signature], row)


def _moved_region(old: RegionRow, new: RegionRow) -> Iterator[Change]:
    broken = ("failed", "withdrawn")
    if old.basis != new.basis or old.status in broken or new.status in broken:
        return
    ratio = None
    if old.time_us and new.time_us:
        errors = (_region_error(old), _region_error(new)) if new.basis == "measured" else ()
        ratio = time_ratio(old.time_us, new.time_us, *errors)
    kind = _kind(ratio, lost=_lost_kernel(old, new), won=_lost_kernel(new, old))
    if kind is not None:
        words = (us(row.time_us) if row.time_us else "no kernel" for row in (old, new))
        yield _change(kind, region_label(new), words, ratio, estimated=new.basis == "estimated")


def _region_error(row: RegionRow) -> float:
    if not row.speedup or not row.speedup_low:
        return math.inf
    return math.log(row.speedup / row.speedup_low) / Z_95


def _lost_kernel(old: RegionRow, new: RegionRow) -> bool:
    """A kernel that was surely faster is in no more; one that was not reached says nothing."""
    if old.time_us is None or new.time_us is not None or new.status != "kept":
        return False
    if old.basis == "estimated":
        return old.eager_us / old.time_us > 1 / SLOWER
    return (old.speedup_low or 0.0) > 1 + MARGIN


def _kind(ratio: Ratio | None, *, lost: bool, won: bool) -> ChangeKind | None:
    low, high = (ratio.low99 or 0.0, ratio.high99 or math.inf) if ratio else (0.0, math.inf)
    if lost or high < SLOWER:
        return "regression"
    return "gain" if won or low > 1 / SLOWER else None


def _change(
    kind: ChangeKind, what: str, words: Iterator[str], ratio: Ratio | None, *, estimated: bool
) -> Change:
    old, new = words
    mark = " (estimated)" if estimated else ""
    return Change(kind=kind, what=what, before=f"{old}{mark}", after=f"{new}{mark}", ratio=ratio)
