"""What is on record about a candidate's kernels, each fact in the words of its source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from agentkernel.chat.figures import verdict_words
from agentkernel.chat.queries import not_possible
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.requests import AskFact
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.tree import Node, is_accepted, label
from agentkernel.domain.formatting import error_text, microseconds
from agentkernel.domain.profile import KernelResources, Ratio
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.targets import find_target

NO_CANDIDATE = "There is no candidate yet: the module runs PyTorch's own kernels. 'run' drafts one."
ASSEMBLY = (
    "PTX and SASS are not kept; what was read of them stands above. To see them, run the drop-in "
    "with TRITON_KERNEL_DUMP=1 on a GPU: Triton writes both to ~/.triton/dump."
)


def fact(work: SessionState, intent: AskFact) -> Reply:
    """The answer to a question about one candidate."""
    if not work.tree.nodes or intent.candidate == "original":
        return not_possible(NO_CANDIDATE)
    node = work.node(intent.candidate)
    name = label(node.number)
    match intent.about:
        case "launch":
            return _of_kernels(node, partial(_launch, _warp_size(node)))
        case "resources":
            return _of_kernels(node, _resources)
        case "assembly":
            found = _of_kernels(node, _resources)
            return TextReply(text=f"{found.text}\n{ASSEMBLY}") if found.ok else found
        case "speed":
            return _speed(node)
        case "use":
            return _use(work, node)
        case "accuracy" | "holds" | "repeatable":
            verdict = node.verdict
            if verdict is None or not verdict.accepted:
                return not_possible(f"{name}: {verdict_words(node)}. Its figures do not count.")
            words = {"accuracy": _accuracy, "holds": _holds, "repeatable": _repeatable}
            return TextReply(text=f"{name}: {words[intent.about](verdict)}")
        case _:
            assert_never(intent.about)


def kernels_of(node: Node) -> tuple[KernelResources, ...]:
    """A candidate's launches as they were compiled; none where they were not."""
    report = node.profile.report if node.profile is not None else None
    return report.kernels if report is not None else ()


def _of_kernels(node: Node, told: Callable[[KernelResources], str]) -> TextReply:
    found = kernels_of(node)
    name = label(node.number)
    if not found:
        return not_possible(f"{name} has no kernels that were compiled: {verdict_words(node)}.")
    assert node.profile is not None
    lines = list(dict.fromkeys(f"{kernel.name}: {told(kernel)}" for kernel in found))
    return TextReply(text="\n".join([f"{name}, compiled for {node.profile.target}:", *lines]))


def _warp_size(node: Node) -> int:
    """Threads of a warp on the target that a candidate was compiled for."""
    return find_target(node.profile.target).target.warp_size if node.profile is not None else 0


def _launch(warp_size: int, kernel: KernelResources) -> str:
    grid = " x ".join(map(str, kernel.grid))
    threads = warp_size * kernel.num_warps
    words = f"grid {grid}, {kernel.num_warps} warps ({threads} threads), {kernel.num_stages} stages"
    blocks = [f"{key} {value}" for key, value in kernel.constants.items() if key.isupper()]
    return ", ".join([words, *blocks])


def _resources(kernel: KernelResources) -> str:
    if kernel.error is not None:
        return kernel.error
    known = kernel.registers is not None
    parts = [f"{kernel.registers} registers a thread" if known else "registers not known"]
    if kernel.spill_bytes is not None:
        spilled = f"{kernel.spill_bytes} B a thread spilled" if kernel.spill_bytes else "no spills"
        parts.append(spilled)
    parts.append(f"{kernel.shared_bytes} B of shared memory")
    if kernel.occupancy is not None:
        parts.append(f"occupancy {kernel.occupancy:.0%}")
    core = kernel.tensor_core
    parts.append(f"tensor cores ({core})" if core is not None else "no tensor cores")
    return ", ".join(parts)


def _accuracy(verdict: Verdict) -> str:
    margin = f", {verdict.margin_text}" if verdict.margin_text else ""
    return (
        f"error against fp64 {error_text(verdict.worst_error)}, eager's "
        f"{error_text(verdict.worst_eager_error)}{margin} (precision {verdict.precision}; the "
        f"worst of {len(verdict.cases)} calls, on {verdict.device})."
    )


def _holds(verdict: Verdict) -> str:
    sizes = sorted({case.shapes for case in verdict.cases})
    if verdict.declared_sizes:
        about = "the declared sizes only: at others it raises"
    else:
        about = f"free sizes; judged at {'; '.join(sizes)}"
    mode = "eval mode only: in training mode it raises" if verdict.eval_only else "train and eval"
    gradients = "gradients as the original's" if verdict.gradients else "forward only"
    return f"{mode}; {gradients}; {about}."


def _repeatable(verdict: Verdict) -> str:
    if verdict.repeatable is None:
        return "nobody called it twice on the same inputs: not known whether its bits repeat."
    if verdict.repeatable:
        return f"the same inputs twice gave the same bits (on {verdict.device})."
    return "the same inputs twice gave other bits: sums are added in an order that changes."


def _speed(node: Node) -> Reply:
    name = label(node.number)
    if not is_accepted(node):
        return not_possible(f"{name}: {verdict_words(node)}. Its speed does not count.")
    profile = node.profile
    if profile is None:
        return not_possible(f"{name} has no time. 'run' takes one.")
    if not profile.measurements:
        eager = profile.baseline_estimate
        said = f"{name} {microseconds(profile.estimate.time_us)} us"
        said += f", eager {microseconds(eager.time_us)} us" if eager is not None else ""
        return TextReply(
            text=f"Cannot tell: nothing was measured. Estimated for {profile.target}: {said}; of "
            "torch.compile there is no estimate."
        )
    found = profile.measurements[0]
    rows = (
        ("torch.compile", found.vs_compile),
        ("max-autotune", found.vs_autotune),
        ("eager", found.vs_eager),
    )
    lines = [f"{name} {_against(ratio)} {other}" for other, ratio in rows if ratio is not None]
    if found.vs_compile is None:
        lines.insert(0, f"torch.compile was not timed: {found.compile_error or 'left out'}")
    return TextReply(text="\n".join([*lines, f"measured on {profile.measured_on}"]))


def _against(ratio: Ratio) -> str:
    span = f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
    if ratio.low > 1:
        return f"is faster, {span}, than"
    return f"is slower, {span}, than" if ratio.high < 1 else f"is about as fast, {span}, as"


def _use(work: SessionState, node: Node) -> Reply:
    name = label(node.number)
    if not is_accepted(node):
        return not_possible(f"{name} cannot be handed over: {verdict_words(node)}.")
    step = work.tree.step(node.step)
    lines = [
        f"'save {name} to fast.py' writes {name}; then, in place of the module:",
        "    from fast import ModelNew",
        "The constructor's arguments and the weights' names are the original's.",
    ]
    if step is not None and step.run is not None:
        lines += [
            "To put what its run handed over into a model of your own, behind a guard:",
            f"    agentkernel.apply_all(model, {str(work.runs / step.run)!r})",
        ]
    return TextReply(text="\n".join(lines))
