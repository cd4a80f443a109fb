"""The answer of a run in one sentence, how its drop-in is used, and what it holds for."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import one_line
from agentkernel.domain.formatting import count, error_text, microseconds
from agentkernel.domain.verdict import WHERE_COMPARED, Verdict, allowed_text, in_case
from agentkernel.storage.files import RUNS_FOLDER, read_regular_text
from agentkernel.tools.command_lines import resume
from agentkernel.workflows.outcome import (
    DISTINGUISHABLE,
    LIMIT,
    NONE_ACCEPTED,
    NONE_DRAFTED,
    Result,
)

CERTIFICATE = "certificate.json"
MOST_WHY = 120
COLOURS = {True: "#1a7f37", False: "#9a6700"}


class FastestBaseline(NamedTuple):
    """The baseline with the least measured time, and the speedup over it."""

    name: str
    speedup: float | None


def answer_sentence(result: Result, certificate: Certificate | None) -> str:
    """`1.82x faster than torch.compile [1.81, 1.83], 91% of the roofline, error 0.4 of allowed at
    worst`, of all cases."""
    margin = _margin(certificate)
    parts = [_answer_words(result)]
    if result.candidate and result.measured and result.roofline_fraction is not None:
        parts.append(f"{result.roofline_fraction:.0%} of the roofline")
    if result.candidate and result.measured and result.uncompared:
        parts.append(f"correct {WHERE_COMPARED}")
    if result.candidate and margin is not None:
        parts.append(allowed_text(margin))
    text = ", ".join(parts)
    if result.ended_by_time and not result.interrupted:
        return f"{text}. Out of time. Go on with: {extension_command(result)}"
    if not result.interrupted:
        return text
    kept = count(result.drafts, "draft")
    best = f" Best so far: {text}." if result.candidate else ""
    return f"Interrupted. Kept: {kept}.{best} Go on with: {_resumed_as(result)}"


def surely_faster(result: Result) -> bool:
    """True where the 95% interval of a handed-over drop-in lies above 1."""
    low = result.speedup_ci95[0] if result.speedup_ci95 is not None else 0.0
    return bool(result.candidate) and result.measured and low > 1.0


MORE_TIME = "10m"


def extension_command(result: Result) -> str:
    """What goes on with a run that its time limit ended."""
    return f"{_resumed_as(result)} --time {MORE_TIME}"


def _resumed_as(result: Result) -> str:
    """The command that goes on with the run, from where its certificate lies."""
    folder = Path(result.certificate or "").parent
    return resume(folder if folder.name == result.run else Path(RUNS_FOLDER) / result.run)


def relative_path(path: str) -> str:
    """A path as it is typed from the working folder; one that lies elsewhere stays as it is."""
    try:
        return str(Path(path).relative_to(Path.cwd())) if path else path
    except (ValueError, OSError):
        return path


def _answer_words(result: Result) -> str:
    if result.status == "failed":
        return "The run failed: nothing is handed over"
    if result.candidate is None:
        return _kept_words(result)
    if result.measured:
        return _measured_words(result)
    correct = f"Correct {WHERE_COMPARED}" if result.uncompared else "Correct"
    if result.estimated_time_us is None:
        return f"{correct}, not measured"
    return f"{correct}, not measured: no GPU. {_estimated_words(result)}"


def _kept_words(result: Result) -> str:
    kept = result.baseline or ("eager" if result.status == "kept_original" else "torch.compile")
    words = f"{_found_words(result, kept)}: {kept} is kept"
    if not result.measured:
        return words
    return f"{words}. The best candidate: {_measured_words(result)}"


def _found_words(result: Result, kept: str) -> str:
    """What was found: nothing was compared for speed where no candidate is right."""
    if LIMIT in result.reason:
        return "No kernel was judged in time"
    if NONE_ACCEPTED in result.reason:
        return "No candidate was accepted by the judge"
    if result.reason.startswith(NONE_DRAFTED):
        return "No candidate was drafted"
    return f"Nothing faster than {kept} was found"


def _measured_words(result: Result) -> str:
    """`1.82x faster than torch.compile [1.81, 1.83]`, of the fastest baseline."""
    found = fastest_baseline(result)
    if found.speedup is None:
        return "Its speed is not known"
    interval = result.speedup_ci95
    if interval is None:
        return f"{found.speedup:.2f}x the speed of {found.name}"
    low, high = interval
    span = f"[{low:.2f}, {high:.2f}]"
    if low > 1.0:
        return f"{found.speedup:.2f}x faster than {found.name} {span}"
    if high < 1.0:
        return f"{found.speedup:.2f}x the speed of {found.name} {span}"
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


def certificate_of(result: Result) -> Certificate | None:
    """The run's certificate, None where it has none or it cannot be read."""
    if result.certificate is None:
        return None
    try:
        text = read_regular_text(Path(result.certificate), typed=True)
        return Certificate.model_validate_json(text)
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def use_lines(result: Result, certificate: Certificate | None) -> list[tuple[str, str]]:
    """The line that imports the drop-in, the call that applies it, and what it holds for; none
    where nothing is handed over."""
    if result.candidate is None:
        return []
    rows = [("warning", result.uncompared)] if result.uncompared else []
    rows.append(("use it", _import_of(Path(result.candidate), result.run)))
    if result.certificate is not None and Path(result.certificate).name == CERTIFICATE:
        folder = str(Path(result.certificate).parent.absolute())
        rows.append(("or", f"agentkernel.apply_all(model, {folder!r})"))
    held = holds_for(result, None)
    if certificate is not None:
        declared = [item.label for item in certificate.problem.shape_sets]
        held = holds_for(result, certificate.verdict, declared)
    rows += [("holds for", held)] if held else []
    if result.interpreted:
        rows.append(("runs on", "a GPU; slowly on the CPU too, after agentkernel.interpret()"))
    return rows


def folder_of(result: Result) -> str:
    """The folder of the result's files as it is typed; the run's name where there are none."""
    return relative_path(str(Path(result.report).parent)) if result.report else result.run


def _import_of(path: Path, run: str) -> str:
    """The line that imports the drop-in from any working folder, but for one that lies in this one.
    In its run's folder it is named by both: files of two runs of one module have the same name, and
    Python would give the first one for the second."""
    if path.parent.name == run and "." not in run + path.stem:
        runs = str(path.parent.parent.absolute())
        name = f"{run}.{path.stem}"
        return (
            f"import importlib, sys; sys.path.append({runs!r}); "
            f"ModelNew = importlib.import_module({name!r}).ModelNew"
        )
    line = f"from {path.stem} import ModelNew"
    if not path.stem.isidentifier() or keyword.iskeyword(path.stem):
        line = f"ModelNew = __import__({path.stem!r}).ModelNew"
    folder = path.parent.absolute()
    return line if folder == Path.cwd() else f"import sys; sys.path.append({str(folder)!r}); {line}"


def holds_for(result: Result, verdict: Verdict | None, declared: Sequence[str] = ()) -> str:
    """`forward only, free sizes (5 judged), eval mode only (...)`; "" for what nobody knows.
    `declared`: the labels of the problem's own sizes."""
    if verdict is None:
        return "the declared sizes only: at others it raises" if result.declared_sizes else ""
    reason = (
        f" ({one_line(verdict.why_forward_only, MOST_WHY)})" if verdict.why_forward_only else ""
    )
    parts = ["forward and gradients" if verdict.gradients else f"forward only{reason}"]
    judged = {case.shapes for case in verdict.cases}
    sizes = len(judged)
    smaller = verdict.interpreted and judged.isdisjoint(declared) and bool(declared)
    if verdict.declared_sizes:
        parts.append("the declared sizes only: at others it raises")
    elif sizes > 1:
        why = "nothing finite to compare" if verdict.uncompared else "too large without a GPU"
        which = f", not the declared ones: {why}" if smaller else ""
        parts.append(f"free sizes ({sizes} judged{which})")
    elif sizes == 1:
        parts.append("judged at one set of sizes alone")
    if verdict.eval_only:
        parts.append("eval mode only (an applied model that trains runs its own modules)")
    elif verdict.gradients:
        parts.append("training too where ModelNew itself is called")
    return ", ".join(parts)


def answer_html(result: Result) -> str:
    """The answer for a notebook: the sentence, a table of the figures, how it is used and the
    drop-in's text. Whatever somebody else wrote is escaped."""
    certificate = certificate_of(result)
    colour = COLOURS[surely_faster(result)]
    rows = [*_figures(result), *use_lines(result, certificate), ("run", result.run)]
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in rows
    )
    sentence = escape(answer_sentence(result, certificate))
    return (
        f"<p style='font-size:1.2em;font-weight:bold;color:{colour}'>{sentence}</p>"
        f"{_roofline_bar(result)}<table>{cells}</table>{_source(result)}"
    )


def _figures(result: Result) -> list[tuple[str, str]]:
    """Times by name; those that nobody measured say so."""
    rows = [("why", result.reason), ("target", result.target)]
    times = (
        ("drop-in" if result.candidate else "best candidate", result.time_us),
        ("eager", result.eager_us),
        ("torch.compile", result.compiled_us),
        ("max-autotune", result.autotuned_us),
        ("drop-in, estimated", result.estimated_time_us),
        ("eager, estimated", result.estimated_eager_us),
    )
    rows += [(name, f"{microseconds(value)} us") for name, value in times if value is not None]
    if result.error_vs_oracle is not None:
        eager = (
            f"eager {error_text(result.eager_error_vs_oracle)}{in_case(result.eager_error_case)}"
        )
        rows.append(("error against fp64", f"{error_text(result.error_vs_oracle)} ({eager})"))
    return rows


def _roofline_bar(result: Result) -> str:
    """The share of the roofline that was measured, as a bar."""
    share = result.roofline_fraction
    if not result.measured or share is None:
        return ""
    width = round(100 * min(max(share, 0.0), 1.0))
    return (
        "<div style='width:20em;border:1px solid #888'>"
        f"<div style='width:{width}%;background:#0969da;color:white'>&nbsp;{share:.0%}</div></div>"
    )


def _source(result: Result) -> str:
    if result.candidate is None:
        return ""
    try:
        text = read_regular_text(Path(result.candidate), typed=True)
    except (OSError, UnicodeDecodeError):
        return ""
    name = escape(Path(result.candidate).name)
    return f"<details><summary>{name}</summary><pre>{escape(text)}</pre></details>"
