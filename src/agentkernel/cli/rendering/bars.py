"""Whose bar is shorter? Times of candidates, measured and estimated ones never on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.domain_session import Node
from agentkernel.cli.rendering.page import View
from agentkernel.cli.rendering.plain import truncate
from agentkernel.cli.rendering.quantities import show_us

LEAST_BAR = 8
"""Columns below which there is no bar, only figures."""
MOST_BAR = 60


@dataclass(frozen=True)
class Bar:
    """One candidate's time; `low_us` and `high_us` are its 10% and 90% quantiles."""

    label: str
    time_us: float
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True)
class Scale:
    """Bars that may be compared: all measured on one GPU, or all estimated for one target."""

    title: str
    measured: bool
    bars: tuple[Bar, ...]
    lines: tuple[tuple[str, str, float], ...]
    """Reference lines: (mark, name, time in microseconds)."""


def bars(nodes: Sequence[Node], view: View) -> RenderableType:
    """One bar a candidate, eager and torch.compile as lines across; nothing without a time."""
    return Group(*(_drawn(scale, view) for scale in scales(nodes)))


def scales(nodes: Sequence[Node]) -> list[Scale]:
    """The candidates with a time, by what they can be compared with."""
    groups: dict[tuple[bool, str], list[Node]] = {}
    for node in nodes:
        if node.profile is not None:
            measured = node.profile.measured
            where = (
                node.profile.measured_on or node.profile.measurements[0].gpu.name
                if measured
                else node.profile.estimate.target
            )
            groups.setdefault((measured, where), []).append(node)
    return [_scale(measured, where, group) for (measured, where), group in groups.items()]


def _scale(measured: bool, where: str, nodes: Sequence[Node]) -> Scale:
    title = f"measured on {where}" if measured else f"estimated for {where}"
    found = tuple(_bar(node) for node in nodes)
    references: dict[str, list[float]] = {}
    for node in nodes:
        for name, time_us in _references(node):
            references.setdefault(name, []).append(time_us)
    middle = [
        (name[0].upper(), name, sorted(times)[len(times) // 2])
        for name, times in references.items()
    ]
    return Scale(title, measured, found, tuple(middle))


def _bar(node: Node) -> Bar:
    profile = node.profile
    assert profile is not None
    if not profile.measured:
        return Bar(f"c{node.number}", profile.estimate.time_us)
    timing = profile.measurements[0].candidate
    return Bar(f"c{node.number}", timing.median_us, timing.p10_us, timing.p90_us)


def _references(node: Node) -> list[tuple[str, float]]:
    profile = node.profile
    if profile is None:
        return []
    if not profile.measured:
        eager = profile.baseline_estimate
        return [] if eager is None else [("eager", eager.time_us)]
    first = profile.measurements[0]
    found = [("eager", first.eager.median_us)]
    if first.compiled is not None:
        found.append(("torch.compile", first.compiled.median_us))
    return found


def _drawn(scale: Scale, view: View) -> RenderableType:
    texts = [_figures(bar, scale.measured) for bar in scale.bars]
    label = max(cell_len(bar.label) for bar in scale.bars)
    figures = max(cell_len(text) for text in texts)
    room = min(MOST_BAR, view.width - label - figures - 3)
    told = [f"{mark} {name} {show_us(time_us)}" for mark, name, time_us in scale.lines]
    title = Text(truncate(scale.title, view.width, view.unicode), style="bold")
    foot = Text(", ".join(told), overflow="fold")
    if room < LEAST_BAR:
        plain = [
            Text(truncate(f"{bar.label} {text}", view.width, view.unicode))
            for bar, text in zip(scale.bars, texts, strict=True)
        ]
        return Group(title, *plain, *([foot] if told else []))
    longest = max([bar.time_us for bar in scale.bars] + [time for _, _, time in scale.lines])
    marks = {_column(time, longest, room): mark for mark, _, time in reversed(scale.lines)}
    rows = [
        Text.assemble(
            f"{bar.label:<{label}} ",
            (_strip(bar, longest, room, marks, scale.measured, view), _style(scale)),
            f"  {text}",
        )
        for bar, text in zip(scale.bars, texts, strict=True)
    ]
    head = "".join(marks.get(column, " ") for column in range(room + 1)).rstrip()
    heads = [Text(" " * (label + 1) + head)] if marks else []
    return Group(title, *heads, *rows, *([foot] if told else []))


def _style(scale: Scale) -> str:
    return "green" if scale.measured else "yellow"


def _figures(bar: Bar, measured: bool) -> str:
    text = show_us(bar.time_us)
    if not measured:
        return f"{text} estimated"
    if bar.low_us is None or bar.high_us is None:
        return text
    return f"{text} [{show_us(bar.low_us)}, {show_us(bar.high_us)}]"


def _column(time_us: float, longest: float, room: int) -> int:
    return min(room - 1, max(0, round(time_us / longest * room) - 1)) if longest > 0 else 0


def _strip(
    bar: Bar, longest: float, room: int, marks: dict[int, str], measured: bool, view: View
) -> str:
    """A full bar where it was measured, a hatched one where not, the lines in front of it."""
    last = _column(bar.time_us, longest, room)
    full = view.sign("█", "#") if measured else view.sign("░", ":")
    line = view.sign("│", "|")
    signs = [line if column in marks else full if column <= last else " " for column in range(room)]
    return "".join(signs)


__all__ = ["bars", "scales"]
