"""The answer of a run in one sentence, how its drop-in is used, and what it holds for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from agentkernel.cli.rendering.text import relative_path, show_ratio, show_share
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.formatting import count
from agentkernel.domain.verdict import Verdict
from agentkernel.storage.files import RUNS_FOLDER
from agentkernel.workflows.outcome import Result

CERTIFICATE = "certificate.json"
DISTINGUISHABLE = 1.1
"""Estimated times that are within this factor of each other may as well be the other way round."""


class FastestBaseline(NamedTuple):
    """The baseline with the least measured time, and the speedup over it."""

    name: str
    speedup: float | None


def answer(result: Result, certificate: Certificate | None) -> Text:
    """The first line of a result; green only where the 95% interval of a handed-over drop-in lies
    above 1."""
    margin = _margin(certificate)
    parts = [_answer_words(result)]
    if result.candidate and result.measured and result.roofline_fraction is not None:
        parts.append(f"{show_share(result.roofline_fraction)} of the roofline")
    if result.candidate and margin is not None:
        parts.append(f"error {margin:.2g} of allowed")
    text = ", ".join(parts)
    if result.interrupted:
        kept = count(result.drafts, "draft")
        best = f" Best so far: {text}." if result.candidate else ""
        text = (
            f"Interrupted. Kept: {kept}.{best} Go on with: agentkernel resume {_resumed_as(result)}"
        )
    return Text(text, style=_style(result))


def _resumed_as(result: Result) -> str:
    """The run's name, or its folder where that lies in none that is looked into by default."""
    folder = relative_path(str(Path(result.certificate or "").parent))
    below = Path(folder).parent
    named = Path(folder).name != result.run or below == Path(RUNS_FOLDER)
    return result.run if named else folder


def _style(result: Result) -> str:
    if result.status == "failed":
        return "bold red"
    low = result.speedup_ci95[0] if result.speedup_ci95 is not None else 0.0
    return "bold green" if result.candidate and result.measured and low > 1.0 else "bold yellow"


def _answer_words(result: Result) -> str:
    if result.status == "failed":
        return "The run failed: nothing is handed over"
    if result.candidate is None:
        return _kept_words(result)
    if result.measured:
        return _measured_words(result)
    if result.estimated_time_us is None:
        return "Correct, not measured"
    return f"Correct, not measured: no GPU. {_estimated_words(result)}"


def _kept_words(result: Result) -> str:
    kept = result.baseline or ("eager" if result.status == "kept_original" else "torch.compile")
    words = f"Nothing faster than {kept} was found: {kept} is kept"
    if not result.measured:
        return words
    return f"{words}. The best candidate: {_measured_words(result)}"


def _measured_words(result: Result) -> str:
    """`1.82x faster than torch.compile [1.81, 1.83]`, of the fastest baseline."""
    found = fastest_baseline(result)
    if found.speedup is None:
        return "Its speed is not known"
    interval = result.speedup_ci95
    if interval is None:
        return f"{show_ratio(found.speedup)} the speed of {found.name}"
    low, high = interval
    span = f"[{low:.2f}, {high:.2f}]"
    if low > 1.0:
        return f"{show_ratio(found.speedup)} faster than {found.name} {span}"
    if high < 1.0:
        return f"{show_ratio(found.speedup)} the speed of {found.name} {span}"
    return f"cannot tell whether it is faster than {found.name} {span}"


def _estimated_words(result: Result) -> str:
    """A range around the estimated speedup, as wide as estimates are uncertain."""
    ratio = result.estimated_speedup_vs_eager
    if ratio is None or 1 / DISTINGUISHABLE < ratio < DISTINGUISHABLE:
        return f"An estimate for {result.target} cannot tell whether it is faster than eager"
    low, high = ratio / DISTINGUISHABLE, ratio * DISTINGUISHABLE
    return f"Estimated {low:.2f}x to {high:.2f}x the speed of eager on {result.target}"


def fastest_baseline(result: Result) -> FastestBaseline:
    """The measured baseline that was the fastest: the interval of the result belongs to it."""
    every = (
        ("eager", result.speedup_vs_eager, result.eager_us),
        ("torch.compile", result.speedup_vs_compile, result.compiled_us),
        ("max-autotune", result.speedup_vs_autotune, result.autotuned_us),
    )
    timed = [(us, FastestBaseline(name, ratio)) for name, ratio, us in every if us is not None]
    return min(timed, key=lambda item: item[0])[1] if timed else FastestBaseline("eager", None)


def _margin(certificate: Certificate | None) -> float | None:
    verdict = certificate.verdict if certificate is not None else None
    return verdict.margin if verdict is not None and verdict.accepted else None


def use_table(result: Result, certificate: Certificate | None) -> Table | None:
    """The line that imports the drop-in, the call that applies it, and what it holds for; None
    where nothing is handed over."""
    if result.candidate is None:
        return None
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("use it", Text(f"from {Path(result.candidate).stem} import ModelNew"))
    if result.certificate is not None and Path(result.certificate).name == CERTIFICATE:
        folder = relative_path(str(Path(result.certificate).parent))
        table.add_row("or", Text(f"agentkernel.apply(model, {folder!r})"))
    verdict = certificate.verdict if certificate is not None else None
    held = holds_for(result, verdict)
    if held:
        table.add_row("holds for", Text(held))
    return table


def holds_for(result: Result, verdict: Verdict | None) -> str:
    """`eval mode only, forward only, free sizes (5 judged)`; "" for what nobody knows."""
    if verdict is None:
        return "the declared sizes only: at others it raises" if result.declared_sizes else ""
    parts = ["eval mode only"] if verdict.eval_only else []
    parts.append("forward and gradients" if verdict.gradients else "forward only")
    sizes = len({case.shapes for case in verdict.cases})
    if verdict.declared_sizes:
        parts.append("the declared sizes only: at others it raises")
    elif sizes > 1:
        parts.append(f"free sizes ({sizes} judged)")
    return ", ".join(parts)
