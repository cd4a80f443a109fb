"""End-to-end jobs: outputs and speed of a whole model with its kernels.

The kernels of a model's regions and the one for the model as a single region are tried beside each
other; the faster of the two is handed over, never both. Measured where the target's GPU is here,
else estimated. Without a GPU the outputs are checked in Triton's interpreter, in a process of its
own that has had it from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from agentkernel.domain.formatting import interval, times
from agentkernel.domain.nightly import Form, ModelRow
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Kernel
from agentkernel.nightly.scheduler.engine import described, gpu_of
from agentkernel.nightly.scheduler.jobs import EndToEndDone, EndToEndJob
from agentkernel.nightly.zoo.loader import flat_outputs, load_model
from agentkernel.runtime.worker import Worker, WorkerFailed, serve
from agentkernel.swap.end_to_end import EndToEndVerdict, Oracle, check_end_to_end
from agentkernel.swap.selection import (
    AS_WHOLE,
    IN_PARTS,
    best_form,
    select_correct,
    select_faster,
    signatures_of,
    time_forms,
    with_signatures,
)
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

    parts, whole = parts_of(job.kernels), whole_of(job.kernels)
    chosen = select_correct(parts, judged) if parts else None
    verdict = None if chosen is None else chosen.verdict
    left_out = {} if chosen is None else dict(chosen.left_out)
    failed = refused_form("regions", verdict)
    as_whole = check_outputs(oracle, whole, job, "one-region") if whole else None
    if as_whole is not None and not as_whole.accepted:
        left_out |= dict.fromkeys(signatures_of(whole), as_whole.reason)
        failed |= refused_form("one-region", as_whole)
        whole = {}
    fit = {} if chosen is None else chosen.kernels
    found = select_faster(fit, lambda some: timed({**some, **whole}))
    took, form = found.times, best_form(found.times)
    compared = ("regions", len(fit))
    while form in IN_PARTS and (form, len(found.kernels)) != compared:
        # What is handed over is what was compared: these kernels, in this form.
        again = check_outputs(oracle, found.kernels, job, form)
        if again.accepted:
            verdict = again
            break
        took = without_form(took, form, again.reason)
        form = best_form(took)
    swapped = found.kernels if form in IN_PARTS else whole if form in AS_WHOLE else {}
    failed = {**took.failed, **failed}
    row = described_row(job, swapped, as_whole if form in AS_WHOLE else verdict or as_whole)
    return row.evolve(
        basis="measured",
        form=form,
        why=job.cut_short or measured_choice(took, job.no_whole or failed.get("one-region")),
        timings=took.timings,
        failed=failed,
        vs_eager=SAME if form == "eager" else took.ratio(form, "eager"),
        vs_compile=SAME if form == "torch.compile" else took.ratio(form, "torch.compile"),
        left_out=left_out,
    )


def parts_of(kernels: Kernels) -> Kernels:
    """Those for regions of the model."""
    return {path: kernel for path, kernel in kernels.items() if path}


def whole_of(kernels: Kernels) -> Kernels:
    """The one for the model as a single region, where there is one."""
    return {path: kernel for path, kernel in kernels.items() if not path}


def measured_choice(took: FormTimes, no_whole: str | None) -> str:
    """How the model as a single region compares with the best of the other forms; else why it has
    no time."""
    other = best_form(took, IN_PARTS)
    ratio = took.ratio("one-region", other)
    if ratio is not None:
        return f"as one region {times(ratio.value)} ({interval(ratio)}) as fast as {other}"
    return f"not as one region: {no_whole}" if no_whole else ""


def described_row(job: EndToEndJob, swapped: Kernels, verdict: EndToEndVerdict | None) -> ModelRow:
    """The model, the kernels that are in, and the `verdict` on its outputs with them."""
    model = job.part.model
    return ModelRow(
        name=model.name,
        weight=model.weight,
        dtype=model.dtype or "",
        shapes=job.cut.shapes,
        basis=job.cut.basis,
        verified=verdict.accepted if verdict is not None else None,
        worst_error=verdict.worst_error if verdict is not None else None,
        eager_error=verdict.eager_error if verdict is not None else None,
        swapped=len(swapped),
        dropped=tuple(sorted(signatures_of(job.kernels) - signatures_of(swapped))),
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
    """Arithmetic: eager's estimate less what the kernels are estimated to save, those of the
    regions or that of the whole, whichever saves more. The outputs are compared in Triton's
    interpreter."""
    saved, eager_us = savings(job), job.cut.time_us
    helpful = with_signatures(job.kernels, [name for name, value in saved.items() if value > 0])
    choices: dict[Form, Kernels] = {"regions": parts_of(helpful), "one-region": whole_of(helpful)}
    forms_us: dict[Form, float] = {
        form: max(eager_us - sum(saved[name] for name in signatures_of(some)), 0.0)
        for form, some in choices.items()
        if some
    }
    form: Form = "eager"
    verdict: EndToEndVerdict | None = None
    failed: dict[Form, str] = {}
    left_out: dict[str, str] = {}
    for faster in sorted(forms_us, key=lambda name: forms_us[name]):
        found = interpreted_outputs(job.evolve(kernels=dict(choices[faster])))
        verdict = None if isinstance(found, str) else found
        failed |= {faster: found} if isinstance(found, str) else refused_form(faster, found)
        if verdict is None or verdict.accepted:
            form = faster
            break
        left_out |= dict.fromkeys(signatures_of(choices[faster]), verdict.reason)
    time_us = forms_us.get(form, eager_us)
    return described_row(job, choices.get(form, {}), verdict).evolve(
        basis="estimated",
        form=form,
        why=job.cut_short or estimated_choice(forms_us, job.no_whole),
        failed=failed,
        estimated_eager_us=eager_us,
        estimated_us=time_us,
        estimated_forms_us=forms_us,
        estimated_speedup=eager_us / time_us if time_us > 0 else None,
        left_out=left_out,
    )


def estimated_choice(forms_us: Mapping[Form, float], no_whole: str) -> str:
    """Whether the model is estimated to run faster as a single region; else why it does not."""
    if not forms_us:
        whole = f"not as one region: {no_whole}; " if no_whole else ""
        return f"{whole}no kernel is estimated to save anything"
    if "one-region" not in forms_us:
        return f"not as one region: {no_whole or 'its kernel is estimated to save nothing'}"
    if "regions" not in forms_us:
        return "estimated as one region: no kernel of its regions saves anything"
    faster = forms_us["one-region"] < forms_us["regions"]
    return f"estimated to be {'faster' if faster else 'no faster'} as one region than in regions"


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


def refused_form(form: Form, verdict: EndToEndVerdict | None) -> dict[Form, str]:
    """Why `form` has no time, where the outputs were wrong."""
    if verdict is None or verdict.accepted:
        return {}
    return {form: f"the outputs are not right: {verdict.reason}"}


def interpreted_outputs(job: EndToEndJob) -> EndToEndVerdict | str:
    """The outputs with the kernels in Triton's interpreter, which wants a process that has had it
    from its beginning; why there is no answer, where it takes too long or breaks."""
    verdicts = TypeAdapter(EndToEndVerdict)
    with Worker[EndToEndJob, EndToEndVerdict](ENTRY, (), verdicts, {}, INTERPRETER) as worker:
        answer = worker.ask(job, INTERPRETED_S)
    if isinstance(answer, WorkerFailed):
        return f"outputs not compared: {answer.reason[:200]}"
    return answer
