"""The Markdown report of a run, with the cost, calibration and diagnoses of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeGuard

import jinja2

from agentkernel.agents.models.costs import Account
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate, Draft, TrialResult
from agentkernel.domain.certificate import Certificate, Status
from agentkernel.domain.formatting import (
    counted,
    error_text,
    microseconds,
    times,
    usd_text,
    with_interval,
)
from agentkernel.domain.plain_text import plain_line, sentence
from agentkernel.domain.plan import Calibration, Hypothesis, Plan, Retrieved
from agentkernel.domain.problem import TensorSpec
from agentkernel.domain.profile import Measurement, Profile, Ratio, unmeasured_words
from agentkernel.domain.verdict import WHERE_COMPARED, Verdict

RULES = "the rules"
MARKUP = {"|": "/", "`": "'", "<": "‹", "](": "] ("}
"""What would end a cell, or be a tag, a link or a picture; models write some of the texts."""


class DiagnosisEntry(Frozen):
    """What was made of a refused candidate, and by whom: a model's name, "" for the rules."""

    candidate: str
    round: int
    failure_class: str
    action: str
    advice: str
    by: str = ""


class ModelsSection(Frozen):
    """All that the report tells of the models that were asked."""

    by_agent: tuple[Account, ...]
    by_round: tuple[Account, ...]
    by_model: tuple[Account, ...]
    total: Account
    unpriced: tuple[str, ...] = ()
    """A line for each model whose cost is not known."""
    calibration: tuple[Calibration, ...] = ()
    diagnoses: tuple[DiagnosisEntry, ...] = ()
    replayed: str | None = None
    """The run whose answers were given again."""
    passed_over: tuple[str, ...] = ()
    """Where rules stood in for a model, and why."""


class UsageRow(NamedTuple):
    """A line of the tables."""

    label: str
    questions: str
    requests: str
    prompt: str
    completion: str
    cached: str
    cost: str
    seconds: str
    gpu_seconds: str


def usage_rows(accounts: Sequence[Account], total: Account) -> list[UsageRow]:
    """The lines of one table, the total as the last."""
    return [usage_row(item) for item in (*accounts, total)]


def usage_row(account: Account) -> UsageRow:
    """One line. Tokens that nobody counted are a dash, not 0."""
    counted = account.prompt + account.completion > 0
    return UsageRow(
        label=cell(account.label),
        questions=str(account.questions),
        requests=str(account.requests),
        prompt=f"{account.prompt:,}" if counted else "–",
        completion=f"{account.completion:,}" if counted else "–",
        cached=f"{account.cached:,}" if counted else "–",
        cost=usd_text(account.cost_usd, account.unpriced),
        seconds=f"{account.seconds:.1f}",
        gpu_seconds=f"{account.gpu_seconds:.1f}" if account.gpu_seconds else "–",
    )


def calibration_line(found: Calibration) -> str:
    """How often the expectations of one who predicts held."""
    who = found.predicted_by or RULES
    held = f"{found.within} of {found.predictions} expectations held"
    ratio = "" if found.ratio is None else f"; measured / predicted time {found.ratio:.2f}×"
    return f"{who}: {held} (measured no slower than predicted, but for a tenth){ratio}"


def diagnosis_cells(found: DiagnosisEntry) -> tuple[str, ...]:
    """The cells of one diagnosis."""
    action = found.action.replace("_", " ")
    who = found.by or RULES
    return tuple(
        cell(text)
        for text in (
            found.candidate, str(found.round), who, found.failure_class, action, found.advice
        )
    )  # fmt: skip


def cell(text: str) -> str:
    """`text` as plain words: it stays in its cell of a Markdown table, and is no markup there."""
    text = plain_line(" ".join(text.split()))
    for mark, instead in MARKUP.items():
        text = text.replace(mark, instead)
    return text


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for row in rows:
        cells = (" ".join(cell.replace("|", "/").split()) for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


HEADLINES: dict[Status, str] = {
    "met": "Goal met",
    "improved": "Faster, short of the goal",
    "verified": "Right; nothing could be measured",
    "kept_original": "The original is kept",
    "kept_compiled": "torch.compile is kept",
    "failed": "Failed",
}
SHOWN_TRIALS = 8


class ReportEntry(Frozen):
    """One candidate with what became of it."""

    candidate: Candidate
    verdict: Verdict | None
    profile: Profile | None
    aside: str = ""
    """Why it was not judged."""
    refused: tuple[tuple[str, str], ...] = ()
    """Why it was refused: names of facts and what they are."""


class ReportRow(NamedTuple):
    """A line of the candidates' table; `measured` and `estimated` columns stay apart."""

    id: str
    parent: str
    round: int
    coder: str
    strategy: str
    gate: str
    error: str
    eager_error: str
    margin: str
    time: str
    vs_eager: str
    vs_compile: str
    roofline: str
    estimated: str


class TrialRow(NamedTuple):
    """A line of the schedule search's table."""

    label: str
    schedule: str
    measured: str
    estimated: str
    pruned: str


def render_report(
    certificate: Certificate,
    entries: tuple[ReportEntry, ...],
    retrieved: tuple[Retrieved, ...],
    drafts: tuple[Draft, ...],
    *,
    stop: str | None = None,
    picture: str | None = None,
    models: ModelsSection | None = None,
) -> str:
    """The report as Markdown. `stop` is why the loop ended, or "interrupted"; `picture` the file
    name of a roofline drawing beside it; `models` what was asked of models, None where none was.
    """
    profile = certificate.profile
    compiled = profile.report if profile else None
    handed = handed_over(entries, certificate.candidate_sha256)
    return _template().render(
        certificate=certificate,
        headline=_headline(certificate),
        uncompared=certificate.verdict.uncompared if certificate.verdict else "",
        machine=machine(certificate),
        dtypes=", ".join(dtypes(certificate)),
        shapes=[item.label for item in certificate.problem.shape_sets],
        rows=[row(entry) for entry in entries],
        refused=refusals(entries),
        lineage=lineage(entries, certificate.candidate_sha256),
        plan=certificate.plan,
        algebraic=algebraic(certificate.plan),
        strategy=handed.strategy if handed else "",
        in_file=schedule_text(handed.schedule) if handed else "",
        retrieved=retrieved,
        changed=[item for item in certificate.plan.decisions if item.because != "default"]
        if certificate.plan
        else [],
        kernels=compiled.launches if compiled else (),
        library=", ".join(counted(compiled.library_ops)) if compiled else "",
        profile=profile,
        trials=trials(drafts),
        unmeasured=unmeasured(certificate),
        stop=stop,
        picture=picture,
        us=microseconds,
        fewer=fewer,
        ratio=ratio_text,
        missing=unmeasured_words,
        plain=cell,
        models=models,
        taken_rows=usage_rows,
        calibration_line=calibration_line,
        diagnosis_cells=diagnosis_cells,
        cell=cell,
    )


def _headline(certificate: Certificate) -> str:
    words = HEADLINES[certificate.status]
    found = certificate.verdict
    if certificate.status == "verified" and found is not None and found.uncompared:
        return words.replace("Right", f"Right {WHERE_COMPARED}")
    return words


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters["sentence"] = sentence
    text = files("agentkernel.workflows").joinpath("report.md.j2").read_text("utf-8")
    return environment.from_string(text)


def algebraic(plan: Plan | None) -> Hypothesis | None:
    """The hypothesis that starts from a rewritten graph, with its derivation."""
    hypotheses = plan.hypotheses if plan else ()
    return next((item for item in hypotheses if item.algebra is not None), None)


def handed_over(entries: tuple[ReportEntry, ...], sha256: str | None) -> Candidate | None:
    """The candidate with this hash."""
    return next((item.candidate for item in entries if item.candidate.sha256 == sha256), None)


def schedule_text(schedule: Mapping[str, Mapping[str, int]]) -> str:
    """`kernel: BLOCK_N=4096, num_warps=16; other: ...`."""
    return "; ".join(
        f"{kernel}: " + ", ".join(f"{key}={value}" for key, value in sorted(constants.items()))
        for kernel, constants in schedule.items()
    )


def fewer(before: int, after: int) -> str:
    """How many times less is left: `51.3×`; a dash where nothing is."""
    return f"{before / after:.1f}×" if after else "–"


def ratio_text(ratio: Ratio | None) -> str:
    """Value, 95% interval and what the 99% interval calls it; a dash for none."""
    if ratio is None:
        return "–"
    words = with_interval(ratio, unit="")
    return f"{words} {ratio.call.replace('_', ' ')}" if ratio.call else words


def machine(certificate: Certificate) -> str:
    """The GPU that measured, or the target with "estimated"; and the host, where it was another."""
    host = certificate.host
    return _machine(certificate) + (f"; judged and timed at {cell(host)}" if host else "")


def _machine(certificate: Certificate) -> str:
    profile = certificate.profile
    if profile is not None and profile.measured:
        gpu = profile.measurements[0].gpu
        return f"measured on {gpu.name} (driver {gpu.driver})"
    if _ran_on_gpu(certificate.verdict):
        return f"judged on {certificate.verdict.device}, where no candidate came to be timed"
    nowhere = "no candidate was measured" if certificate.versions.cuda else "measured on no GPU"
    return f"estimated for {certificate.target}, {nowhere}"


def dtypes(certificate: Certificate) -> tuple[str, ...]:
    """The dtypes of the tensor inputs, each once."""
    found = {
        item.dtype: None
        for shape_set in certificate.problem.shape_sets
        for item in shape_set.inputs
        if isinstance(item, TensorSpec)
    }
    return tuple(found)


def row(entry: ReportEntry) -> ReportRow:
    """The table line of one candidate, primary shapes."""
    candidate, verdict, profile = entry.candidate, entry.verdict, entry.profile
    primary = profile.measurements[0] if profile and profile.measurements else None
    return ReportRow(
        id=candidate.id,
        parent=candidate.parent[:10] if candidate.parent else "–",
        round=candidate.round,
        coder=candidate.coder,
        strategy=_strategy(candidate),
        gate=_gate(entry),
        error=error_text(verdict.worst_error if verdict else None),
        eager_error=error_text(verdict.worst_eager_error if verdict else None),
        margin=f"{verdict.margin:.2g}" if verdict and verdict.margin is not None else "–",
        time=microseconds(primary.candidate.median_us if primary else None),
        vs_eager=times(primary.vs_eager.value if primary else None),
        vs_compile=times(primary.vs_compile.value if primary and primary.vs_compile else None),
        roofline=f"{primary.roofline_fraction:.2f}" if primary else "–",
        estimated=microseconds(profile.estimate.time_us if profile else None),
    )


def refusals(entries: tuple[ReportEntry, ...]) -> list[str]:
    """A line for each candidate that was refused: the candidate, then why."""
    return [
        f"`{entry.candidate.id}`: " + "; ".join(f"{name} {cell(value)}" for name, value in facts)
        for entry in entries
        if (facts := entry.refused)
    ]


def lineage(entries: tuple[ReportEntry, ...], handed_over: str | None) -> list[str]:
    """Mermaid lines: the problem, then every candidate below what it was drafted from."""
    known = {entry.candidate.id for entry in entries}
    lines = []
    for entry in entries:
        candidate = entry.candidate
        parent = candidate.parent[:10] if candidate.parent else ""
        source = f"c{parent}" if parent in known else "problem"
        if source == "problem" and candidate.origin:
            source = f'{_node(candidate.origin)}["{cell(candidate.origin)}"]'
        strategy = cell(candidate.strategy).replace('"', "'") or candidate.coder
        mark = ", handed over" if candidate.sha256 == handed_over else ""
        lines.append(
            f'{source} --> c{candidate.id}["{candidate.id}: {strategy}<br/>{_gate(entry)}{mark}"]'
        )
    return lines


def _node(origin: str) -> str:
    """The name of an entry in the drawing."""
    return "".join(letter if letter.isalnum() else "_" for letter in origin)


def trials(drafts: tuple[Draft, ...]) -> list[TrialRow]:
    """The schedules that the searches looked at, best first, at most a few a search."""
    return [_trial(item) for draft in drafts for item in draft.tried[:SHOWN_TRIALS]]


def _trial(item: TrialResult) -> TrialRow:
    return TrialRow(
        label=cell(item.label),
        schedule=cell(schedule_text(item.schedule)) or "–",
        measured=microseconds(item.time_us),
        estimated=microseconds(item.estimated_us),
        pruned=cell(item.pruned or "–"),
    )


def unmeasured(certificate: Certificate) -> list[str]:
    """What a reader might expect to be measured, and is not."""
    lines = []
    verdict, profile = certificate.verdict, certificate.profile
    if verdict is not None and verdict.interpreted:
        lines.append("Correctness was checked in Triton's interpreter, not on a GPU.")
    if profile is None or not profile.measured:
        lines.append(
            "No time, memory or energy of a candidate was measured."
            if certificate.versions.cuda or _ran_on_gpu(verdict)
            else "No time, memory or energy was measured: no GPU that fits the target is here."
        )
        return lines
    for item in profile.measurements:
        lines += _gaps(item)
    if profile.measured_on not in (None, certificate.target):
        lines.append(f"Times for {certificate.target} itself: measured on {profile.measured_on}.")
    return lines


def _gaps(item: Measurement) -> list[str]:
    lines = []
    if item.compiled is None:
        lines.append(f"torch.compile at {item.shapes}: {item.compile_error or 'it failed'}")
    if item.autotuned is None and item.autotune_error is not None:
        why = unmeasured_words(item.autotune_error)
        lines.append(f"torch.compile's max-autotune at {item.shapes}: {why}")
    if item.energy_mj is None:
        lines.append(f"Energy a call at {item.shapes}.")
    if item.own_kernel_share is None:
        lines.append(f"The own kernels' share of the time at {item.shapes}.")
    return lines


def _strategy(candidate: Candidate) -> str:
    """What was tried, and the entry that it began from."""
    name = cell(candidate.strategy) or "–"
    return f"{name} (from {cell(candidate.origin)})" if candidate.origin else name


def _gate(entry: ReportEntry) -> str:
    verdict = entry.verdict
    if verdict is None:
        return f"set aside: {entry.aside}" if entry.aside else "not judged"
    if not verdict.accepted:
        return verdict.undecided or f"stopped at {verdict.gate}"
    return "accepted (interpreted)" if verdict.interpreted else "accepted"


def _ran_on_gpu(verdict: Verdict | None) -> TypeGuard[Verdict]:
    return verdict is not None and not verdict.interpreted
