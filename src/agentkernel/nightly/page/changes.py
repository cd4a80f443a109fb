"""How do the changes of a night read, most urgent first?"""

from __future__ import annotations

from agentkernel.domain.night import Change, ChangeKind, Comparison, NightlyRun
from agentkernel.nightly.page.content import ChangeGroup, ChangeLine, Tone
from agentkernel.nightly.page.wording import count, interval, region_label, times

TITLES: dict[ChangeKind, str] = {
    "withdrawn": "Withdrawn: known kernels that do not verify any more",
    "failed_to_verify": "Failed to verify",
    "model_failed": "Models with an error",
    "regression": "Regressions",
    "gain": "Gains",
    "version": "Versions that changed",
    "new_model": "New models",
    "vanished_model": "Vanished models",
    "new_region": "New regions",
    "vanished_region": "Vanished regions",
}
TONES: dict[ChangeKind, Tone] = {
    "withdrawn": "bad",
    "failed_to_verify": "bad",
    "model_failed": "bad",
    "regression": "bad",
    "gain": "good",
    "version": "warn",
    "new_model": "",
    "vanished_model": "warn",
    "new_region": "",
    "vanished_region": "",
}
MOST = 12
"""Changes of one kind that are listed on the page."""


def change_groups(
    night: NightlyRun, comparison: Comparison, most: int = MOST
) -> tuple[ChangeGroup, ...]:
    """The changes by kind, in the order of `TITLES`."""
    places = {region_label(row): f"#region-{row.signature}" for row in night.regions}
    places |= {row.name: f"#model-{row.name}" for row in night.models}
    groups = []
    for kind, title in TITLES.items():
        found = [item for item in comparison.changes if item.kind == kind]
        if found:
            lines = tuple(
                ChangeLine(item.what, change_text(item), TONES[kind], places.get(item.what, ""))
                for item in found[:most]
            )
            groups.append(ChangeGroup(title, TONES[kind], lines, max(len(found) - most, 0)))
    return tuple(groups)


def change_text(change: Change) -> str:
    """`2.10 ms in regions → 2.40 ms in eager: 0.88× (0.87 to 0.89)`."""
    text = " → ".join(item for item in (change.before, change.after) if item)
    if change.ratio is None:
        return text
    around = interval(change.ratio)
    return f"{text}: {times(change.ratio.value)}{f' ({around})' if around else ''}"


def headline(comparison: Comparison) -> str:
    """The first thing to read: what failed, what is slower, or that all is well.
    Without an earlier night nothing is said of regressions."""
    kinds = [item.kind for item in comparison.changes]
    parts = []
    broken = kinds.count("withdrawn") + kinds.count("failed_to_verify")
    if broken:
        parts.append(f"{count(broken, 'thing')} did not verify")
    if failed := kinds.count("model_failed"):
        parts.append(f"{count(failed, 'model')} failed")
    if slower := kinds.count("regression"):
        parts.append(count(slower, "regression"))
    gains = kinds.count("gain")
    if not parts:
        compared = comparison.against is not None
        parts.append("No regression, everything verified" if compared else "Everything verified")
    if gains:
        parts.append(count(gains, "gain"))
    return ", ".join(parts)


def headline_tone(comparison: Comparison) -> Tone:
    """Green where the exit code is 0."""
    return "bad" if comparison.exit_code else "good"
