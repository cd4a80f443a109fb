"""A run on the terminal: its events, its approval prompts and the panel with its result.

A terminal shows a live table, a pipe one plain line for each event, `--json` one of JSON. Measured
and estimated figures never share a line. A prompt for approval that meets the end of the input
counts as a no.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Self

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentkernel.cli.console import console
from agentkernel.cli.rendering.answer import answer, use_table
from agentkernel.cli.rendering.events import event_line, session_event
from agentkernel.cli.rendering.live import LiveTable, ModelUsage, node_words, progress_words
from agentkernel.cli.rendering.text import (
    show_bytes,
    show_count,
    show_error,
    show_ratio,
    show_share,
    show_span,
    show_us,
    show_usd,
)
from agentkernel.cli.terminal import COLUMNS, SILENCE_S, ElapsedTime, print_json, print_plain
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.formatting import counted
from agentkernel.domain.profile import CompileReport, Profile, unmeasured_words
from agentkernel.domain.verdict import in_case
from agentkernel.runtime.stages import StageClock, current
from agentkernel.workflows.answer import certificate_of, relative_path
from agentkernel.workflows.approval import Approve, PendingApproval
from agentkernel.workflows.events import (
    ApprovalAsked,
    Event,
    Finished,
    NodeStarted,
    OnEvent,
    ignore,
)
from agentkernel.workflows.outcome import DISTINGUISHABLE, Result


def follow(
    job: Callable[[OnEvent], Result],
    *,
    as_json: bool,
    lines: bool = True,
    panel: bool = True,
    models: ModelUsage | None = None,
) -> Result:
    """Run `job`, showing its events: a live table on a terminal, plain `lines` elsewhere.

    With `as_json` every event is a JSON line and the last line is the result itself, otherwise a
    `panel` with the result follows.
    `models`: who may be asked, and what they took before.
    """
    if not as_json and sys.stdout.isatty():
        with LiveTable(console(), models) as table:
            result = job(table.show)
    else:
        with nullcontext(print_event) if as_json else EventLines() as told:
            result = job(told if lines else ignore)
    if not panel:
        return result
    if as_json:
        print_json(result)
    else:
        console().print(result_panel(result))
    return result


class EventLines:
    """One plain line an event, and where none comes for half a minute one on what is being done,
    for how long and how far. The result is not repeated, it has its own panel.

    Told the run's events while it is held.
    """

    def __init__(self, show: Callable[[str], None] = print_plain) -> None:
        self._show = show
        self._doing, self._since = "starting", time.monotonic()
        self._stages: StageClock | None = None
        self._clock = ElapsedTime(
            sys.stdout, COLUMNS, self._words, first_s=SILENCE_S, every_s=SILENCE_S, lines=True
        )

    def __call__(self, event: Event) -> None:
        self._stages = current()
        match event:
            case NodeStarted():
                self._doing, self._since = node_words(event), time.monotonic()
            case ApprovalAsked():
                self._clock.stop()
            case _:
                pass
        told = None if isinstance(event, Finished) else session_event(event)
        line = "" if told is None else event_line(told)
        if line:
            self._clock.stop()
            self._show(line)
            if not isinstance(event, ApprovalAsked):
                self._clock.start()

    def _words(self, seconds: float) -> str:
        del seconds  # of the silence: how long the node takes says more
        at = self._stages.doing if self._stages is not None else ""
        return progress_words(self._doing, time.monotonic() - self._since, at)

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.stop()


def print_event(event: Event) -> None:
    """One JSON line; the result is not repeated, it has its own line or panel."""
    if not isinstance(event, Finished):
        print_json(event)


def approver(*, as_json: bool) -> Approve | None:
    """Who asks on this terminal; None where nobody reads the question or could answer it."""
    there = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    return ask_approval if there else None


def ask_approval(asked: PendingApproval) -> bool:
    """Show what is asked about, and wait for y or n; the end of the input is a no."""
    for line in approval_lines(asked):
        print_plain(line)
    question = "Draft this?" if asked.kind == "plan" else "Judge this?"
    while True:
        try:
            answer = input(f"{question} [y/N] ").strip().lower()
        except EOFError:
            print_plain()
            return False
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False


def approval_lines(asked: PendingApproval) -> Iterator[str]:
    """The plan's hypotheses, or the candidate's text below who drafted it and why."""
    if asked.candidate is None:
        tried = asked.plan.hypotheses if asked.plan is not None else (asked.hypothesis,)
        for item in tried:
            predicted = item.predicted_us
            time = "" if predicted is None else f" ({predicted:.1f} us predicted)"
            yield f"{item.strategy}{time}: {item.reason}"
        return
    made = asked.candidate
    yield f"# {made.id} by {made.coder}: {asked.hypothesis.strategy}, {asked.hypothesis.reason}"
    yield from made.source.splitlines()


def result_panel(result: Result) -> RenderableType:
    """The answer and how it is used, the figures behind it, the kernels' resources, what the plan
    drew on, and where the files lie."""
    certificate = certificate_of(result)
    profile = certificate.profile if certificate is not None else None
    parts: list[RenderableType] = [answer(result, certificate)]
    use = use_table(result, certificate)
    parts += [use] if use is not None else []
    parts += [Text(), facts(result, why_no_autotune(profile) if profile else None)]
    if profile is not None:
        parts += resources(profile)
    if certificate is not None and certificate.plan is not None:
        parts.append(plan_lines(certificate))
    parts.append(files(result))
    return Group(*parts)


def facts(result: Result, no_autotune: str | None = None) -> Table:
    """Reason, speed and errors; measured and estimated never share a line. `no_autotune`: why
    max-autotune has no time."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    reason = [("why", result.reason), ("target", result.target)]
    for name, text in [*reason, *figure_rows(result, no_autotune)]:
        table.add_row(name, Text(text))
    return table


def figure_rows(result: Result, no_autotune: str | None = None) -> list[tuple[str, str]]:
    """Names and values: speed, error, what the models took; none for what nobody knows."""
    rows: list[tuple[str, str]] = []
    if result.measured:
        rows.append((f"measured ({result.measured_on})", show_us(result.time_us)))
        rows += baseline_rows(result, no_autotune)
        rows.append(("roofline", show_share(result.roofline_fraction)))
    elif result.eager_us is not None:
        rows.append(("measured", baseline_times(result)))
    if result.estimated_time_us is not None:
        eager = f", eager {show_us(result.estimated_eager_us)}"
        ratio = f", {show_ratio(result.estimated_speedup_vs_eager)}"
        text = f"{show_us(result.estimated_time_us)}{eager}{ratio}"
        near = result.estimated_speedup_vs_eager
        if near is not None and 1 / DISTINGUISHABLE < near < DISTINGUISHABLE:
            text += ": an estimate cannot tell which is faster"
        rows.append((f"estimated ({result.target})", text))
    if result.error_vs_oracle is not None:
        how = ", judged in the interpreter" if result.interpreted else ""
        own = f"{show_error(result.eager_error_vs_oracle)}{in_case(result.eager_error_case)}"
        text = f"{show_error(result.error_vs_oracle)} (eager {own}){how}"
        rows.append(("error against fp64", text))
    if result.asked_models:
        rows.append(("models", model_text(result)))
    return rows


def model_text(result: Result) -> str:
    """What the models took: tokens, and money where a price is known."""
    tokens = f"{show_count(result.tokens)} tokens" if result.tokens else "tokens not counted"
    cost = show_usd(result.cost_usd, result.unpriced)
    taken = f"{tokens}, {cost}" if result.cost_usd is None else f"{tokens}, {cost} USD"
    return f"{taken}, in the run that was replayed" if result.replayed else taken


def baseline_rows(result: Result, no_autotune: str | None) -> list[tuple[str, str]]:
    """The speedup over each baseline, the interval beside the fastest one."""
    interval = result.speedup_ci95
    span = f", 95% [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
    every = [
        ("x eager", result.speedup_vs_eager, result.eager_us),
        ("x torch.compile", result.speedup_vs_compile, result.compiled_us),
    ]
    if result.autotuned_us is not None:
        every.append(("x max-autotune", result.speedup_vs_autotune, result.autotuned_us))
    fastest = min((us for _, _, us in every if us is not None), default=None)
    rows = [
        (name, f"{show_ratio(ratio)} ({show_us(us)}){span if us == fastest else ''}")
        for name, ratio, us in every
    ]
    if result.autotuned_us is None and no_autotune is not None:
        rows.append(("x max-autotune", unmeasured_words(no_autotune)))
    return rows


def baseline_times(result: Result) -> str:
    """The baselines' times, where there is no candidate to compare them with."""
    every = (
        ("eager", result.eager_us),
        ("torch.compile", result.compiled_us),
        ("max-autotune", result.autotuned_us),
    )
    return ", ".join(f"{name} {show_us(us)}" for name, us in every if us is not None)


def why_no_autotune(profile: Profile) -> str | None:
    """What the profile says of a max-autotune without a time, on the primary shapes."""
    return profile.measurements[0].autotune_error if profile.measurements else None


def resources(profile: Profile) -> list[RenderableType]:
    """The compiler's figures for each kernel."""
    return [] if profile.report is None else [Text(), kernel_table(profile.report)]


def kernel_table(report: CompileReport) -> Table:
    """One line for launches that compiled to the same: registers, spills, shared memory,
    occupancy."""
    table = Table(box=None, pad_edge=False)
    table.add_column(f"kernel, compiled for {report.target}", overflow="fold")
    for heading in ("grid", "warps", "registers", "spills", "shared memory", "occupancy"):
        table.add_column(heading, justify="right")
    for kernel, launches in report.launches:
        name = kernel.name if launches == 1 else f"{kernel.name} x {launches}"
        table.add_row(
            name if kernel.error is None else f"{name}: {kernel.error[:60]}",
            " x ".join(str(size) for size in kernel.grid),
            str(kernel.num_warps),
            "-" if kernel.registers is None else str(kernel.registers),
            show_bytes(kernel.spill_bytes),
            show_bytes(kernel.shared_bytes),
            show_share(kernel.occupancy),
        )
    for name in counted(report.library_ops):
        table.add_row(f"{name} (library)", "", "", "", "", "", "")
    return table


def plan_lines(certificate: Certificate) -> Text:
    """What was planned, what was retrieved, and which decisions came of it."""
    plan = certificate.plan
    if plan is None:
        return Text()
    lines = [
        "",
        f"plan       bound by {plan.analysis.roofline}; roofline "
        f"{show_us(plan.analysis.bound_us)} (estimated)",
    ]
    lines += [f"           try {item.strategy}: {item.reason}" for item in plan.hypotheses]
    lines.append(f"retrieved  {', '.join(plan.retrieved) or 'nothing'}")
    lines += [
        f"           {item.key} = {item.value} instead of {item.default}, from {item.because}"
        for item in plan.decisions
        if item.value != item.default
    ]
    return Text("\n".join(lines))


def files(result: Result) -> Text:
    """Where everything lies."""
    drafts = "1 draft" if result.drafts == 1 else f"{result.drafts} drafts"
    lines = ["", f"run          {result.run} ({drafts}, {show_span(result.spent_s)})"]
    for name, path in (
        ("drop-in", result.candidate),
        ("certificate", result.certificate),
        ("report", result.report),
        ("roofline", result.picture),
    ):
        if path is not None:
            lines.append(f"{name:<12} {relative_path(path)}")
    return Text("\n".join(lines))
