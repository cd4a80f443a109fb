"""Files of a finished run: the drop-in, its certificate, the report and the result."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from agentkernel.agents.evidence import refusal_facts
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.plain_text import plain
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.verdict import Verdict
from agentkernel.storage.files import (
    explain_write_failure,
    make_folder,
    read_regular_text,
    write_atomic,
)
from agentkernel.tools.certificate.record import (
    build_certificate,
    canonical_json,
    drop_in_name,
    sign_certificate,
)
from agentkernel.tools.own_files import (
    CERTIFICATE,
    PICTURE,
    REPORT,
    RESULT_FILES,
    output_places,
    require_free_output,
)
from agentkernel.tools.roofline.chart import drawing_of, roofline_svg
from agentkernel.tools.run_store import RunStore
from agentkernel.workflows.deps import Context
from agentkernel.workflows.models import models_section
from agentkernel.workflows.outcome import (
    CUT,
    EARLIER,
    Baselines,
    Outcome,
    Result,
    decide_outcome,
    estimated_vs_eager,
    of_this_run,
    ratio_against,
)
from agentkernel.workflows.report import ReportEntry, render_report
from agentkernel.workflows.routing import why_nothing
from agentkernel.workflows.state import LoopState


def conclude(
    context: Context, state: LoopState, *, interrupted: bool = False, crash: str | None = None
) -> Result:
    """Decide the outcome of `state` and write all files; the same state gives the same files."""
    if interrupted:
        state = with_unfinished(state)
    measured = any(item.profile is not None and item.profile.measured for item in state.history)
    timed = None if measured or interrupted or crash else context.tools.baselines()
    baselines = timed if isinstance(timed, Baselines) else None
    outcome = decide_outcome(
        state.history, state.goals, nothing=why_nothing(state), baselines=baselines, crash=crash
    )
    if isinstance(timed, ProfileFailed):
        lost = f"{outcome.reason}; the baselines have no times: {timed.side}: {timed.reason}"
        outcome = outcome.evolve(reason=lost)
    certificate = _certificate(context, state, outcome)
    drawing = _drawing(certificate)
    report = partial(
        render_report,
        certificate,
        tuple(report_entry(item) for item in state.history),
        state.retrieved,
        context.store.records.drafts(),
        stop="interrupted" if interrupted else state.stop,
        models=models_section(context.store, state.history),
    )
    paths = _write(context.store, certificate, report, drawing)
    without_figures = _result(context, state, outcome, paths, interrupted=interrupted)
    result = _with_figures(without_figures, outcome.best, baselines)
    write_atomic(context.store.result_path, result.model_dump_json(indent=2) + "\n")
    return result


def with_unfinished(state: LoopState) -> LoopState:
    """`state` with the candidate that was at work in its history: it is kept, and resume goes on
    with it."""
    known = {item.candidate.sha256 for item in state.history}
    if state.candidate is None or state.candidate.sha256 in known:
        return state
    cut = Attempt(candidate=state.candidate, verdict=state.verdict, aside=CUT)
    return state.evolve(history=(*state.history, cut))


def report_entry(attempt: Attempt) -> ReportEntry:
    """What a report says of one candidate."""
    facts = refusal_facts(attempt.candidate, attempt.verdict)
    return ReportEntry(
        candidate=attempt.candidate,
        verdict=attempt.verdict,
        profile=attempt.profile,
        aside=attempt.aside,
        refused=tuple((fact.name, fact.value) for fact in facts),
    )


def saved_result(store: RunStore) -> Result | None:
    """The final result of a finished run; None where it was interrupted or is damaged."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValidationError):
        saved = Result.model_validate_json(read_regular_text(store.result_path))
        # A folder that was moved is as finished as before.
        found = relocated_result(store, saved)
        files = (found.candidate, found.certificate, found.report)
        if not found.interrupted and all(Path(item).is_file() for item in files if item):
            return found
    return None


def relocated_result(store: RunStore, result: Result) -> Result:
    """`result` with its files in the run's folder, which may have been moved since, or in `--out`
    while they are there."""
    kept = store.manifest.out is not None

    def place(path: str | None, name: str) -> str | None:
        here = store.folder / name
        if path is None or not here.is_file() or (kept and Path(path).is_file()):
            return path
        return str(here.resolve())

    return result.evolve(
        candidate=place(result.candidate, drop_in_name(store.manifest.problem)),
        certificate=place(result.certificate, CERTIFICATE),
        report=place(result.report, REPORT),
        picture=place(result.picture, PICTURE),
    )


class Report(Protocol):
    """The text of the report, which names the picture that lies beside it."""

    def __call__(self, *, picture: str | None) -> str: ...


class _Paths(NamedTuple):
    candidate: str | None
    certificate: str
    report: str
    picture: str | None


def _certificate(context: Context, state: LoopState, outcome: Outcome) -> Certificate:
    best = outcome.best
    certificate = build_certificate(
        context.store.manifest,
        status=outcome.status,
        reason=outcome.reason,
        candidate=best.candidate if best and outcome.handed_over else None,
        plan=state.plan,
        verdict=_evidence(state, best),
        profile=best.profile if best else None,
    )
    graph = context.tools.graph() if best and outcome.handed_over else None
    written = best.candidate.segments if best and outcome.handed_over else ()
    segments = tuple(item.label for item in written)
    return sign_certificate(certificate.evolve(graph=graph, segments=segments))


def _evidence(state: LoopState, best: Attempt | None) -> Verdict | None:
    if best is not None:
        return best.verdict
    own = of_this_run(state.history)
    return next((item.verdict for item in reversed(own) if item.verdict), None)


def _drawing(certificate: Certificate) -> str | None:
    """The roofline as SVG, where there is a plan and bytes to draw."""
    if certificate.plan is None or certificate.profile is None:
        return None
    if not certificate.plan.analysis.memory_time_us:
        return None
    return roofline_svg(drawing_of(certificate.profile, certificate.plan.analysis))


def _write(
    store: RunStore, certificate: Certificate, report: Report, drawing: str | None
) -> _Paths:
    """Into the run folder always, and to `--out` where it was given."""
    name = drop_in_name(store.manifest.problem)
    files = {CERTIFICATE: canonical_json(certificate)}
    if drawing is not None:
        files[PICTURE] = plain(drawing)
    source = certificate.candidate_source
    if source is not None:
        files[name] = source
    else:
        with explain_write_failure(store.folder):
            (store.folder / name).unlink(missing_ok=True)
    places = {key: store.folder / key for key in (*RESULT_FILES, name)}
    _write_to(places, files, report)
    if store.manifest.out is not None:
        require_free_output(Path(store.manifest.out), name)
        places = output_places(Path(store.manifest.out), name)
        _write_to(places, files, report)
    return _Paths(
        str(places[name].resolve()) if source is not None else None,
        str(places[CERTIFICATE].resolve()),
        str(places[REPORT].resolve()),
        str(places[PICTURE].resolve()) if drawing is not None else None,
    )


def _write_to(places: dict[str, Path], files: dict[str, str], report: Report) -> None:
    picture = places[PICTURE].name if PICTURE in files else None
    for key, text in (files | {REPORT: plain(report(picture=picture))}).items():
        make_folder(places[key].parent)
        write_atomic(places[key], text)


def _result(
    context: Context,
    state: LoopState,
    outcome: Outcome,
    paths: _Paths,
    *,
    interrupted: bool,
) -> Result:
    best = outcome.best
    verdict = _evidence(state, best)
    handed = best.candidate if best and outcome.handed_over else None
    manifest = context.store.manifest
    models = context.models()
    return Result(
        status=outcome.status,
        reason=outcome.reason,
        run=manifest.id,
        measured=bool(best and best.profile and best.profile.measured),
        candidate=paths.candidate,
        candidate_sha256=handed.sha256 if handed else None,
        certificate=paths.certificate,
        report=paths.report,
        picture=paths.picture,
        problem=manifest.problem.name,
        target=manifest.target,
        baseline=outcome.baseline,
        interpreted=verdict.interpreted if verdict else not context.measurable,
        declared_sizes=bool(handed and verdict and verdict.declared_sizes),
        error_vs_oracle=verdict.worst_error if verdict else None,
        eager_error_vs_oracle=verdict.worst_eager_error if verdict else None,
        eager_error_case=verdict.worst_eager_case if verdict else "",
        uncompared=verdict.uncompared if verdict else "",
        drafts=sum(item.candidate.round != EARLIER for item in state.history),
        spent_s=round(context.session.spent(), 3),
        interrupted=interrupted,
        out_of_time=state.stop == "time" and not interrupted,
        tokens=models.prompt + models.completion or None,
        cost_usd=models.cost_usd,
        unpriced=models.unpriced,
        replayed=manifest.settings.models.replay is not None and models.questions > 0,
    )


def _with_figures(result: Result, best: Attempt | None, baselines: Baselines | None) -> Result:
    """With measured figures of the primary shape set, and the estimates under their own names;
    those of the `baselines` alone where no candidate was measured."""
    alone = result
    if baselines is not None:
        alone = result.evolve(
            eager_us=baselines.eager_us,
            compiled_us=baselines.compiled_us,
            autotuned_us=baselines.autotuned_us,
            autotune_error=baselines.autotune_error,
            baselines_matmul=baselines.baselines_matmul,
        )
    if best is None or best.profile is None:
        return alone
    profile = best.profile
    eager = profile.baseline_estimate
    estimated = alone.evolve(
        estimated_time_us=profile.estimate.time_us,
        estimated_eager_us=eager.time_us if eager else None,
        estimated_speedup_vs_eager=estimated_vs_eager(profile),
    )
    if not profile.measured:
        return estimated
    primary = profile.measurements[0]
    nearest = ratio_against(primary, "best")
    return estimated.evolve(
        measured_on=profile.measured_on,
        speedup_vs_eager=primary.vs_eager.value,
        speedup_vs_compile=primary.vs_compile.value if primary.vs_compile else None,
        speedup_vs_autotune=primary.vs_autotune.value if primary.vs_autotune else None,
        speedup_ci95=(nearest.low, nearest.high),
        roofline_fraction=primary.roofline_fraction,
        time_us=primary.candidate.median_us,
        eager_us=primary.eager.median_us,
        compiled_us=primary.compiled.median_us if primary.compiled else None,
        autotuned_us=primary.autotuned.median_us if primary.autotuned else None,
        baselines_matmul=primary.baselines_matmul,
    )
