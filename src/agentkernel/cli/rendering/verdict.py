"""A verdict and a profile as lines for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from agentkernel.agents.diagnosis import error_form, explain_error, location_text
from agentkernel.cli.rendering.run import resources
from agentkernel.cli.rendering.text import (
    show_bytes,
    show_error,
    show_share,
    show_span,
    show_us,
)
from agentkernel.domain.formatting import count, counted, told_apart
from agentkernel.domain.plain_text import plain
from agentkernel.domain.profile import Measurement, Profile, unmeasured_words
from agentkernel.domain.verdict import EVAL_ONLY, WHERE_COMPARED, allowed_text, in_case

if TYPE_CHECKING:
    from agentkernel.domain.verdict import Failure, Mismatch, Verdict


MOST_LOG_LINES = 6
MOST_LEFT_OUT = 3
"""Cases of one reason that are named."""


def verdict_lines(verdict: Verdict) -> list[str]:
    """The verdict for people: what was found, in how many cases, how far from fp64."""
    lines = [_answer(verdict), *([verdict.uncompared] if verdict.uncompared else [])]
    lines += [f"policy {verdict.policy}, precision {verdict.precision}"]
    if verdict.failure is not None:
        lines += _failure_lines(verdict, verdict.failure)
    if verdict.cases:
        passed, asked = sum(case.passed for case in verdict.cases), len(verdict.cases)
        # What failed may be none of the cases that are counted: another build of the module, say.
        before = verdict.failure is not None and passed == asked
        which = f"{count(asked, 'case')} before it" if before else f"{passed} of {asked} cases"
        eager = f"eager {show_error(verdict.worst_eager_error)}{in_case(verdict.worst_eager_case)}"
        lines.append(
            f"{which} passed; error against fp64 {show_error(verdict.worst_error)} ({eager})"
        )
        if verdict.margin_text:
            lines.append(f"{verdict.margin_text}, by version {verdict.rule} of the precision rule")
    if verdict.launches:
        lines.append(f"launched: {', '.join(counted(verdict.launches))}")
    if verdict.repeatable is not None:
        lines.append(f"the same call twice: {'the same' if verdict.repeatable else 'other'} bits")
    if verdict.declared_sizes:
        lines.append(
            "for the declared sizes only: at others that were asked it raised or was right"
        )
    told = {verdict.why_eval_only} if verdict.eval_only else set()
    if verdict.eval_only:
        lines.append(f"for {verdict.why_eval_only or f'{EVAL_ONLY} an error'}")
    if verdict.accepted and not verdict.gradients:
        why = verdict.why_forward_only or "it was not seen to give gradients"
        lines.append(f"forward only: {why}")
        told.add(why)
    lost = verdict.not_finite
    if len(lost) > MOST_LEFT_OUT:
        told.update(lost)
        lines.append(
            f"{count(len(lost), 'case')} left out, as the original gives NaN or infinities there; "
            "--json names them"
        )
    lines += [note for note in verdict.notes if note not in told]
    sandbox = verdict.sandbox or "none needed"
    lines.append(f"sandbox {sandbox}, seed {verdict.seed}, {show_span(verdict.seconds)}")
    # What a candidate words itself begins no line that could be the judge's.
    return [plain(line).replace("\n", "\n    ") for line in lines]


def _failure_lines(verdict: Verdict, failure: Failure) -> list[str]:
    """What was found: of wrong values in sentences, of anything else by the names of its parts."""
    if failure.kind == "mismatch":
        return [
            *(f"  {line}" for line in _wrong_values(failure)),
            f"  case {failure.case}",
            f"  Next: fix that; --seed {verdict.seed} asks the same cases again, --json says all",
        ]
    values = failure.model_dump(exclude={"kind"})
    if verdict.undecided:
        values["log"] = values["log"].partition("\n")[2] or None
    if values.get("log"):
        values["log"] = _end_of(values["log"])
    told = [f"  {key}: {value}" for key, value in values.items() if value is not None]
    if failure.kind in ("policy", "execution") and failure.rule in LIBRARY_RULES:
        told.append(f"  why: {_whose_work(verdict)}")
    return [*told, f"  Next: {_next_after(verdict, failure)}"]


NEXT = {
    "policy": "take that out: a candidate computes by its kernels, and reaches nothing else",
    "load": "have it define ModelNew, with the arguments and weights of the original",
    "compile": "correct the kernel there",
    "run": "correct what it does at the sizes of that case",
    "meta": "give that output the dtype, shape and strides of the original's",
    "inputs": "write to memory of your own: the original leaves that one as it is",
    "execution": "have kernels of your own do that work, in each call anew",
    "races": "let no two programs of a launch touch the same element, or make it atomic",
    "timing": "do the whole work in every call",
}
"""By the kind of a failure. None sends a file, which may be anybody's, out of the sandbox."""
BY_RULE = {
    "syntax": "fix the syntax at that line",
    "import": "take that import out, and what needs it",
    "no-model": "define ModelNew, a class with the original's arguments and weights",
    "no-kernel": "write the work as a @triton.jit function, and launch it in forward",
    "no-launch": "launch a kernel in forward, kernel[grid](...)",
    "torch-compute": "write that part as a kernel of your own",
    "torch-namespace": "write that part as a kernel of your own",
    "library-alone": "compute a part of it by kernels: the library's calls are the original",
    "dead-kernel": "let each kernel compute a part of the outputs, or leave it out",
    "side-work": "end in a call what it begins: no stream, thread or process outlives it",
    "deferred": "return tensors that are computed when forward returns",
    "global-state": "leave the state of torch, Triton and Python as it is",
    "lossy-product": "multiply and add in the precision in force",
    "graph": "let the CUDA graph hold the launches of forward and nothing else",
}
"""By the rule of the policy or of the execution."""
LIBRARY_RULES = frozenset({"no-kernel", "no-launch", "torch-compute", "torch-namespace"})


def _whose_work(verdict: Verdict) -> str:
    """What a candidate has to do itself, and what it may leave to torch."""
    library = ", and call the library's products, convolutions and attention that the original has"
    return (
        "the work has to be done in Triton kernels of the candidate's own; torch may allocate, "
        f"view and copy{library if verdict.policy == 'mixed' else ''}"
    )


def _next_after(verdict: Verdict, failure: Failure) -> str:
    if verdict.undecided:
        return "judge it where a GPU is, or at smaller sizes: nothing is known against it"
    how = NEXT.get(failure.kind, "correct that")
    if failure.kind in ("policy", "execution"):
        how = BY_RULE.get(failure.rule, how)
        if failure.rule in LIBRARY_RULES and verdict.policy == "triton":
            how += "; --policy mixed allows library calls that the original makes as well"
    log = "; --json has the whole log" if hasattr(failure, "log") else ""
    return f"{how}; then judge it again, with --seed {verdict.seed} on the same cases{log}"


def _end_of(log: str) -> str:
    """The last lines, where what happened stands."""
    lines = log.rstrip().splitlines()
    if len(lines) <= MOST_LOG_LINES:
        return log
    return "\n".join([f"... ({len(lines)} lines, --json has all)", *lines[-MOST_LOG_LINES:]])


def _wrong_values(failure: Mismatch) -> list[str]:
    expected, found = told_apart(failure.expected, failure.found)
    pair = f"{found} where {expected} is right"
    if not failure.first_index:
        lines = [f"output {failure.output} is wrong: {pair}"]
    else:
        place = location_text(failure)
        if failure.pattern not in ("all", "scattered"):
            place += f", {show_share(failure.wrong_share)} of the elements"
        lines = [
            f"output {failure.output} is wrong: {place}",
            f"at {list(failure.first_index)}: {pair}",
        ]
    lines.append(explain_error(failure, error_form(failure)))
    if failure.norm_allowed == 0:
        return [*lines, "integers and truth values must be equal"]
    if math.isinf(failure.norm_error) and math.isfinite(failure.found + failure.expected):
        lines.append("NaN or infinities lie where the original has none, or none where it has some")
    return [*lines, f"error {failure.decisive}"]


def _answer(verdict: Verdict) -> str:
    how = " (interpreted: no GPU ran it)" if verdict.interpreted else ""
    if verdict.undecided:
        return f"It {verdict.undecided}{how}"
    if not verdict.accepted:
        return f"Rejected at the gate {verdict.gate!r}{how}"
    margin = f", {allowed_text(verdict.margin)}" if verdict.margin is not None else ""
    where = f" {WHERE_COMPARED}" if verdict.uncompared else ""
    return f"Accepted: correct{where}{margin}{how}"


def print_verdict(verdict: Verdict, screen: Console) -> None:
    """The verdict on a screen, its first line bold: green, red where it is refused, yellow where it
    could not be judged here."""
    head, *rest = verdict_lines(verdict)
    colour = "green" if verdict.accepted else "yellow" if verdict.undecided else "red"
    screen.print(Text(head, style=f"bold {colour}"))
    for line in rest:
        screen.print(line, markup=False)


def profile_parts(profile: Profile) -> list[RenderableType]:
    """The kernels' resources, then what was measured or else estimated."""
    parts = resources(profile)
    estimate = profile.estimate
    lines = ["", *(line for item in profile.measurements for line in measured_lines(item))]
    lines.append(
        f"{show_us(estimate.time_us)} (estimated, {estimate.target}): "
        f"{show_bytes(estimate.bytes_moved)}, {estimate.flops / 1e9:.3g} GFLOP, {estimate.bound}"
    )
    lines += [f"  {item}" for item in estimate.assumptions]
    return [*parts, Text("\n".join(lines))]


def measured_lines(item: Measurement) -> list[str]:
    """One shape set on a GPU."""
    ratio = item.vs_eager
    lines = [
        f"{item.shapes} on {item.gpu.name} (measured)",
        f"  candidate {show_us(item.candidate.median_us)}, eager {show_us(item.eager.median_us)}: "
        f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]",
        *([f"  {item.library_plan}"] if item.library_plan else []),
    ]
    if item.compiled is not None and item.vs_compile is not None:
        ratio = item.vs_compile
        lines.append(
            f"  torch.compile {show_us(item.compiled.median_us)}: "
            f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"
        )
    if item.autotuned is not None and item.vs_autotune is not None:
        ratio = item.vs_autotune
        lines.append(
            f"  max-autotune {show_us(item.autotuned.median_us)}: "
            f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"
        )
    elif item.autotune_error is not None:
        lines.append(f"  max-autotune {unmeasured_words(item.autotune_error)}")
    if item.baselines_matmul != "highest":
        lines.append(f"  the baselines with float32_matmul_precision {item.baselines_matmul!r}")
    lines.append(
        f"  {item.achieved_gb_per_s:.0f} GB/s of {item.copy_gb_per_s:.0f} (copy), "
        f"{item.achieved_tflops:.1f} TFLOP/s, {show_share(item.roofline_fraction)} of the roofline"
    )
    lines.append(
        f"  {item.launches} launches, peak {show_bytes(item.peak_memory_bytes)} "
        f"(eager {show_bytes(item.eager_peak_memory_bytes)})"
    )
    return lines
