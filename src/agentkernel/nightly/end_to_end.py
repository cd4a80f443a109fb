"""End-to-end jobs: outputs and speed of a whole model with its kernels.

Measured where the target's GPU is here, else estimated. Without a GPU the outputs are checked
in Triton's interpreter, in a process of its own that has had it from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from agentkernel.domain.nightly import Form, ModelRow
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Kernel
from agentkernel.nightly.scheduler.engine import described, gpu_of
from agentkernel.nightly.scheduler.jobs import EndToEndDone, EndToEndJob
from agentkernel.nightly.zoo.loader import flat_outputs, load_model
from agentkernel.runtime.worker import Worker, WorkerFailed, serve
from agentkernel.swap.end_to_end import EndToEndVerdict, Oracle, check_end_to_end
from agentkernel.swap.selection import best_form, select_correct, select_faster, time_forms
from agentkernel.tools.targets import ResolvedTarget, find_target

if TYPE_CHECKING:
    from agentkernel.swap.end_to_end import EndToEndVerdict, Oracle
    from agentkernel.swap.selection import FormTimes, Timed


SEEDS = (0, 1)
"""The interpreter is slow, and every kernel has been judged by itself."""


def compare(line: Connection) -> None:
    """Serve verdicts on EndToEndJobs, in a process with Triton's interpreter."""

    def answer(job: EndToEndJob) -> EndToEndVerdict:
        loaded = load_model(job.part.zoo, job.part.model)
        names = operand_names(job.kernels, job)
        return check_end_to_end(Oracle(loaded, flat=flat_outputs), job.kernels, names, seeds=SEEDS)

    serve(line, EndToEndJob, answer)


ENTRY = "agentkernel.nightly.end_to_end:compare"
INTERPRETER = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
INTERPRETED_S = 300.0
"""A model's outputs are compared in Triton's interpreter for so long."""
SAME = Ratio(value=1.0, low=1.0, high=1.0, low99=1.0, high99=1.0, call="same")
Kernels = Mapping[str, Kernel]


def end_to_end(job: EndToEndJob) -> EndToEndDone:
    """The model's row: measured where a GPU measures for the target, else estimated."""
    resolved = find_target(job.target)
    row = estimated_row(job) if gpu_of(resolved) is None else measured_row(job, resolved)
    return EndToEndDone(row=row)


def measured_row(job: EndToEndJob, resolved: ResolvedTarget) -> ModelRow:
    """Outputs first, then the time of every form."""
    loaded = load_model(job.part.zoo, job.part.model)
    l2_mb = described(resolved).l2_mb.value

    def timed(some: Kernels) -> FormTimes:
        return time_forms(loaded, some, operand_names(some, job), "cuda", l2_mb=l2_mb)

    return checked_row(job, Oracle(loaded, "cuda", flat=flat_outputs), timed)


def checked_row(job: EndToEndJob, oracle: Oracle, timed: Timed) -> ModelRow:
    """The row: kernels with which the outputs are wrong are left out, and then those that do not
    help; `timed` times the model with some of them in."""

    def judged(some: Kernels) -> EndToEndVerdict:
        return check_outputs(oracle, some, job)

    chosen = select_correct(job.kernels, judged) if job.kernels else None
    fit = {} if chosen is None else chosen.kernels
    verdict = None if chosen is None else chosen.verdict
    left_out = {} if chosen is None else dict(chosen.left_out)
    found = select_faster(fit, timed)
    times, form = found.times, found.form
    compared = ("regions", len(fit))
    while form.startswith("regions") and (form, len(found.kernels)) != compared:
        # What is handed over is what was compared: these kernels, in this form.
        again = check_outputs(oracle, found.kernels, job, form)
        if again.accepted:
            verdict = again
            break
        times = without_form(times, form, again.reason)
        form = best_form(times)
    swapped = found.kernels if form.startswith("regions") else {}
    return ModelRow(
        name=job.part.model.name,
        weight=job.part.model.weight,
        dtype=job.part.model.dtype or "",
        basis="measured",
        form=form,
        timings=times.timings,
        failed=form_failures(times.failed, verdict),
        vs_eager=SAME if form == "eager" else times.ratio(form, "eager"),
        vs_compile=SAME if form == "torch.compile" else times.ratio(form, "torch.compile"),
        verified=verdict.accepted if verdict is not None else None,
        worst_error=verdict.worst_error if verdict is not None else None,
        eager_error=verdict.eager_error if verdict is not None else None,
        swapped=len(swapped),
        dropped=tuple(sorted({*found.dropped, *left_out})),
        left_out=left_out,
        time_in_regions=time_share(job, swapped),
    )


def check_outputs(
    oracle: Oracle, kernels: Kernels, job: EndToEndJob, form: Form = "regions"
) -> EndToEndVerdict:
    """The outputs of the model with `kernels` in, under the strict rule."""
    return check_end_to_end(oracle, kernels, operand_names(kernels, job), form=form)


def without_form(times: FormTimes, form: Form, why: str) -> FormTimes:
    """The times of the other forms; `form` failed."""
    timings = {name: timing for name, timing in times.timings.items() if name != form}
    failed = {**times.failed, form: f"the outputs are not right: {why}"}
    return times.evolve(timings=timings, failed=failed)


def estimated_row(job: EndToEndJob) -> ModelRow:
    """Arithmetic: eager's estimate less what each kernel is estimated to save. The outputs are
    compared in Triton's interpreter."""
    saved = savings(job)
    kept = {path: kernel for path, kernel in job.kernels.items() if saved[kernel.key.signature] > 0}
    dropped = tuple(sorted(name for name, value in saved.items() if value <= 0))
    verdict = interpreted_outputs(job.evolve(kernels=kept)) if kept else None
    told = None if isinstance(verdict, str) else verdict
    failed: dict[Form, str] = form_failures({}, told)
    if isinstance(verdict, str):
        failed["regions"] = verdict
    used = kept if told is None or told.accepted else {}
    eager_us = job.cut.time_us
    gained = sum(value for name, value in saved.items() if value > 0) if used else 0.0
    time_us = max(eager_us - gained, 0.0)
    return ModelRow(
        name=job.part.model.name,
        weight=job.part.model.weight,
        dtype=job.part.model.dtype or "",
        basis="estimated",
        form="regions" if used else "eager",
        failed=failed,
        estimated_eager_us=eager_us,
        estimated_us=time_us,
        estimated_speedup=eager_us / time_us if time_us > 0 else None,
        verified=told.accepted if told is not None else None,
        worst_error=told.worst_error if told is not None else None,
        eager_error=told.eager_error if told is not None else None,
        swapped=len(used),
        dropped=dropped,
        time_in_regions=time_share(job, used),
    )


def savings(job: EndToEndJob) -> dict[str, float]:
    """Microseconds of one forward that each signature's kernel is estimated to save."""
    regions = {use.path: (item, use) for item in job.cut.regions for use in item.uses}
    saved: dict[str, float] = {}
    for path, kernel in job.kernels.items():
        name = kernel.key.signature
        saved.setdefault(name, 0.0)
        if path in regions and kernel.time_us is not None:
            region, use = regions[path]
            saved[name] += use.calls * (region.eager_us - kernel.time_us)
    return saved


def time_share(job: EndToEndJob, kernels: Kernels) -> float:
    """Share of the eager forward that the submodules of `kernels` take, 0 to 1."""
    spent = sum(
        use.calls * region.eager_us
        for region in job.cut.regions
        for use in region.uses
        if use.path in kernels
    )
    return min(1.0, spent / job.cut.time_us) if job.cut.time_us > 0 else 0.0


def operand_names(kernels: Kernels, job: EndToEndJob) -> dict[str, tuple[str, ...]]:
    """The operands' names at the paths of `kernels`."""
    return {path: job.parameters[path] for path in kernels}


def form_failures(failed: Mapping[Form, str], verdict: EndToEndVerdict | None) -> dict[Form, str]:
    """Why a form has no time: what refused it, or that the outputs were wrong."""
    if verdict is None or verdict.accepted:
        return dict(failed)
    return {**failed, "regions": f"the outputs are not right: {verdict.reason}"}


def interpreted_outputs(job: EndToEndJob) -> EndToEndVerdict | str:
    """The outputs with the kernels in Triton's interpreter, which wants a process that has had it
    from its beginning; why there is no answer, where it takes too long or breaks."""
    verdicts = TypeAdapter(EndToEndVerdict)
    with Worker[EndToEndJob, EndToEndVerdict](ENTRY, (), verdicts, {}, INTERPRETER) as worker:
        answer = worker.ask(job, INTERPRETED_S)
    if isinstance(answer, WorkerFailed):
        return f"outputs not compared: {answer.reason[:200]}"
    return answer
