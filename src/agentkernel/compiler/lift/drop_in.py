"""Drop-ins lifted from TorchInductor's code: the file, its variants, and the tuning of the best."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.compiler.drop_in.envelope import (
    Envelope,
    Limits,
    envelope,
    eval_only_once,
    import_block,
    module_docstring,
    verified_text,
)
from agentkernel.compiler.drop_in.gradients import GradientText, gradient_text
from agentkernel.compiler.drop_in.interface import (
    Signature,
    layout_text,
    output_layouts,
    returned_classes,
    returned_text,
    signature_of,
)
from agentkernel.compiler.drop_in.module_state import state_text
from agentkernel.compiler.drop_in.wrapper import (
    DropInSource,
    constant_text,
    return_text,
    written_back,
)
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import forward_lines, symbols_of
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.kernel_helpers import library_imports, lifted_helper_sources
from agentkernel.compiler.lift.forward import Forward, ForwardTensor, with_strides
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted
from agentkernel.compiler.lift.layouts import same_layout
from agentkernel.compiler.lift.wrapper_steps import (
    Return,
    Unliftable,
    Wrapper,
    chosen_options,
    options_of,
    read_wrapper,
)
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import OF_CONSTRUCTOR, NoTemplate, TrialResult
from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import Policy
from agentkernel.tools.judge.execution.graph_operators import graph_operators
from agentkernel.tools.judge.policy.check import check_policy, own_names
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.specialise import UnknownSize, specialise

ALL_LIBRARY = "nothing is left to Triton: the library does it all"


class LibraryAlone(Unliftable):
    """Kernels compute nothing beside the library's calls, and attention is one of those."""


def lift(
    code: InductorCode,
    loaded: LoadedProblem,
    captured: Captured,
    choices: Mapping[str, int] | None = None,
    *,
    differs_in_training: bool | None = None,
) -> DropInSource | NotLifted:
    """The drop-in that does what `code` does; NotLifted, with the reason, where no file can.

    `captured` is the graph that `code` was generated for, its sizes free or not. `choices` picks,
    for a name that the wrapper launches, one of `options_of(code)`; the first where it says
    nothing. `differs_in_training` is what `limits.eval_only` says of the module, None where nobody
    asked: then it is traced twice more, once a graph.
    """
    try:
        returned_text(captured.output_tree, itertools.repeat("_"))
    except UnsupportedOp as error:
        return NotLifted(reason=error.reason)
    constructor = emit_constructor(loaded, returned_classes(captured.output_tree))
    if isinstance(constructor, NoTemplate):
        return NotLifted(reason=constructor.reason)
    if constructor.obstacle:
        return NotLifted(reason=f"{OF_CONSTRUCTOR}{constructor.obstacle}")
    if len(loaded.problem.shape_sets) > 1:
        return NotLifted(reason="the code holds for one set of shapes, and the problem has several")
    try:
        if differs_in_training is None:
            differs_in_training = eval_only_once(loaded, captured)
        limits = Limits({}, (), differs_in_training)
        given = (code, loaded, captured, constructor, choices or {}, limits)
        try:
            return _write(*given)
        except LibraryAlone:
            return _write(*given, own_attention=True)
    except (Unliftable, UnknownSize) as error:
        return NotLifted(reason=str(error))


def _write(
    code: InductorCode,
    loaded: LoadedProblem,
    captured: Captured,
    constructor: ConstructorText,
    choices: Mapping[str, int],
    limits: Limits,
    own_attention: bool = False,
) -> DropInSource:
    fixed = specialise(captured)
    wrapper = read_wrapper(code.source)
    options = chosen_options(options_of(code, wrapper), choices)
    names = Names(set(constructor.names))
    expected = names.unique("VERIFIED")
    signature = signature_of(loaded, names, len(fixed.user_inputs), expected)
    arguments = dict(zip(fixed.user_inputs, signature.inputs, strict=True))
    symbols = symbols_of(fixed, arguments)
    checked = envelope(loaded, fixed, limits, symbols, arguments, expected)
    forward = Forward(wrapper, options, names, "", own_attention=own_attention)
    state = state_text(fixed, names, arguments, constructor.expressions, expected)
    known = {**arguments, **state.names}
    gradients = gradient_text(
        loaded,
        captured,
        names,
        lambda item: _read(item, fixed, constructor, known),
        partial(return_text, fixed),
    )
    lines = [*signature.lines, *checked.arguments, *state.lines, *gradients.lines]
    given = {item: names.unique(f"{arguments[item]}_given") for item in fixed.mutated_inputs}
    lines += [f"{name} = {arguments[item]}" for item, name in given.items()]
    start = len(lines)
    lines += _begin(forward, fixed, code, constructor, known)
    results = _results(wrapper, fixed)
    _name_outputs(forward, results, fixed)
    forward.run()
    own = set(state.names.values())
    new, returned = _returned(forward, results, fixed, given, own)
    layouts = layout_text(output_layouts(loaded, captured), fixed, names, arguments, returned)
    lines[start:start] = layouts.first
    lines += [*forward.lines, *layouts.last, *written_back(fixed, constructor, given, new)]
    lines += forward_lines(return_text(fixed, returned, given))
    file = _File(checked, expected, lines, gradients)
    return _assemble(loaded, signature, constructor, forward, file)


@dataclass(frozen=True)
class _File:
    """What stands around the kernels."""

    checked: Envelope
    expected: str
    lines: list[str]
    gradients: GradientText


def _read(
    placeholder: str, fixed: Captured, constructor: ConstructorText, known: Mapping[str, str]
) -> str:
    """The Python that reads an input as it came, or a parameter, buffer or constant."""
    if placeholder in known:
        return known[placeholder]
    path = {**fixed.constants, **fixed.parameters}[placeholder]
    return constructor.expressions.get(path, f"self.{path}")


def _begin(
    forward: Forward,
    fixed: Captured,
    code: InductorCode,
    constructor: ConstructorText,
    known: Mapping[str, str],
) -> list[str]:
    """Lines that bring inputs and the module's tensors, whose variables are `known`, into the
    layout that the code was written for."""
    tensors = _tensors(fixed)
    lines = []
    late: list[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = []
    if len(forward.wrapper.arguments) != len(code.inputs):
        raise Unliftable(
            f"the wrapper takes {len(forward.wrapper.arguments)} tensors, not {len(code.inputs)}"
        )
    read = _names_read(code, forward.wrapper)
    for variable, placeholder in zip(forward.wrapper.arguments, code.inputs, strict=True):
        value = tensors[placeholder]
        shape, strides = tuple(value.shape), tuple(value.stride())
        text = _read(placeholder, fixed, constructor, known)
        if placeholder in fixed.user_inputs:
            forward.device = forward.device or f"{text}.device"
        else:
            path = {**fixed.constants, **fixed.parameters}[placeholder]
            if path in fixed.literals and variable in read:
                late.append((variable, path, shape, strides))
                continue
            if path.startswith("lifted_tensor") and variable in read:
                raise Unliftable("forward makes a tensor of numbers, too many to write out")
        if placeholder in known and shape and variable in read:
            stored = ForwardTensor(text, shape, strides, own=False)
            lines.append(f"{text} = {with_strides(stored, strides)}")
        forward.values[variable] = ForwardTensor(text, shape, strides, own=False)
    if not forward.device:
        first = next(iter(forward.values.values()), None)
        if first is None:
            raise Unliftable("nothing that goes in says on which device to work")
        forward.device = f"{first.text}.device"
    for variable, path, shape, strides in late:
        name = forward.names.unique("constant")
        lines.append(f"{name} = {constant_text(fixed.literals[path], forward.device)}")
        forward.values[variable] = ForwardTensor(name, shape, strides, own=False)
    return lines


def _tensors(fixed: Captured) -> dict[str, torch.Tensor]:
    values = {node.name: node.meta.get("val") for node in fixed.graph.graph.nodes}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _names_read(code: InductorCode, wrapper: Wrapper) -> set[str]:
    """Arguments that a step reads: the others are only taken and freed."""
    read: set[str] = set()
    for step in wrapper.steps:
        for value in vars(step).values():
            items = value if isinstance(value, tuple) else (value,)
            for item in items:
                node = item[1] if isinstance(item, tuple) and len(item) == 2 else item
                if isinstance(node, ast.AST):
                    read |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return read


def _results(wrapper: Wrapper, fixed: Captured) -> Return:
    last = wrapper.steps[-1]
    written = len(fixed.mutated_buffers) + len(fixed.mutated_inputs)
    wanted = written + sum(name is not None for name in fixed.outputs)
    if not isinstance(last, Return) or len(last.values) < wanted:
        raise Unliftable("the wrapper returns something else than the graph")
    return last


def _name_outputs(forward: Forward, results: Return, fixed: Captured) -> None:
    """What is returned is called `output`."""
    kept = results.values[len(fixed.mutated_buffers) + len(fixed.mutated_inputs) :]
    for value in kept:
        names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
        for name in names:
            forward.wanted[name] = "output"


def _returned(
    forward: Forward,
    results: Return,
    fixed: Captured,
    given: Mapping[str, str],
    own: Collection[str],
) -> tuple[list[str], list[str]]:
    """The variables of what the module writes to buffers and inputs, and of what it returns; `own`
    are those of the module's tensors."""
    values = list(results.values)
    new = [forward.text(values.pop(0)) for _ in fixed.written]
    same = fixed.returned_inputs or (None,) * len(fixed.outputs)
    texts = []
    tensors = _tensors(fixed)
    for name, item in zip(fixed.outputs, same, strict=True):
        if name is None:
            continue
        if name not in tensors:
            raise Unliftable("an output is a number")
        stored, wanted = forward.stored(values.pop(0)), tensors[name]
        if item is not None and item in given:
            texts.append(given[item])
            continue
        if not same_layout(tuple(wanted.shape), stored.strides, tuple(wanted.stride())):
            raise Unliftable(f"an output has strides {stored.strides}, not {wanted.stride()}")
        if not forward.made(stored) and stored.text.isidentifier() and stored.text not in own:
            raise Unliftable("an output is an input as it came")
        texts.append(stored.text)
    return new, texts


def _assemble(
    loaded: LoadedProblem,
    signature: Signature,
    constructor: ConstructorText,
    forward: Forward,
    file: _File,
) -> DropInSource:
    if forward.calls_attention and not forward.computes:
        raise LibraryAlone(ALL_LIBRARY)
    if not forward.pieces:
        raise Unliftable(ALL_LIBRARY)
    parameters = ", ".join(["self", *signature.parameters])
    body = textwrap.indent("\n".join(file.lines), "    ")
    method = textwrap.indent(f"def forward({parameters}):\n{body}", "    ")
    kernels = [*lifted_helper_sources(forward.helpers), *forward.pieces]
    imports = [*constructor.imports, *library_imports(kernels)]
    model = "\n".join(
        [constructor.header, *([constructor.body, ""] if constructor.body else []), method]
    )
    told = module_docstring(loaded, file.checked, file.gradients.note, constructor.copies)
    sections = [
        "\n\n".join([told, import_block(imports), verified_text(file.expected, file.checked)]),
        *kernels,
        *([constructor.helpers] if constructor.helpers else []),
        *([file.gradients.section] if file.gradients.section else []),
        model,
    ]  # fmt: skip
    text = "\n\n\n".join(sections) + "\n"
    return DropInSource(text, tuple(forward.kernels.values()), forward.schedule)


MAX_TUNED = 16
"""Launch configurations tried of the variant that won."""
OPTION = ", option "
RUNNERS_UP = 1
"""Variants tried beside the one that an experience names."""


@dataclass(frozen=True)
class LiftedDraft:
    """One lifted file: the variant's name, with the options chosen in it."""

    label: str
    source: DropInSource
    code: InductorCode


def lifted_drafts(
    problem: LoadedProblem,
    captured: Captured,
    codes: Sequence[InductorCode | NotLifted],
    policy: Policy,
) -> list[LiftedDraft] | NotLifted:
    """A file a variant, as far as the policy allows it, of equal ones that with the most launch
    configurations to try; the commonest reason where there is none."""
    found: dict[str, LiftedDraft] = {}
    reasons: Counter[str] = Counter()
    operators = graph_operators(captured)
    for code in codes:
        source = code if isinstance(code, NotLifted) else _lifted(code, problem, captured)
        if isinstance(source, NotLifted) or isinstance(code, NotLifted):
            reasons[source.reason if isinstance(source, NotLifted) else ""] += 1
            continue
        refused = check_policy(source.text, policy, own_names(problem), operators)
        if refused is not None:
            reasons[f"policy {policy!r}: {refused.text}"] += 1
            continue
        known = found.get(source.text)
        if known is None or _configurations(code) > _configurations(known.code):
            found[source.text] = LiftedDraft(code.variant, source, code)
    if found:
        return list(found.values())
    return NotLifted(reason=reasons.most_common(1)[0][0] if reasons else "no variant was asked for")


def _lifted(
    code: InductorCode, problem: LoadedProblem, captured: Captured
) -> DropInSource | NotLifted:
    """TorchInductor's code changes from version to version: what cannot be read costs a variant."""
    try:
        return lift(code, problem, captured)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        return NotLifted(reason=f"{code.variant}: {type(error).__name__}: {one_line(error)}")


def _configurations(code: InductorCode) -> int:
    return sum(len(kernel.configs) for kernel in code.kernels)


def launch_variants(
    draft: LiftedDraft, problem: LoadedProblem, captured: Captured
) -> Iterator[LiftedDraft]:
    """The same code with one launch configured otherwise, in turn over its kernels."""
    try:
        options = options_of(draft.code, read_wrapper(draft.code.source))
    except Unliftable:
        return
    changes = [
        (name, place)
        for place in range(1, max(map(len, options.values()), default=1))
        for name, items in options.items()
        if place < len(items)
    ]
    for name, place in changes[:MAX_TUNED]:
        source = lift(draft.code, problem, captured, {name: place})
        if isinstance(source, DropInSource) and source.text != draft.source.text:
            yield LiftedDraft(f"{draft.label}{OPTION}{place} of {name}", source, draft.code)


def variant_of(label: str) -> str:
    """The variant that a label names, without the option that was chosen in it."""
    return label.partition(OPTION)[0]


def with_runner_up(drafts: Sequence[LiftedDraft], label: str) -> list[LiftedDraft]:
    """The variant of `label` with the first of the others beside it; all of `drafts` where it is
    none of them."""
    same = [item for item in drafts if item.label == variant_of(label)]
    others = [item for item in drafts if item.label != variant_of(label)]
    return [*same, *others[:RUNNERS_UP]] if same else list(drafts)


def configurations(
    winner: LiftedDraft,
    problem: LoadedProblem,
    captured: Captured,
    known: Collection[str] = (),
    known_best: str = "",
) -> list[LiftedDraft]:
    """The launch configurations of the best variant that are to be ranked beside it.

    `known`: hashes of sources that were ranked or candidates before, which none gives again.
    `known_best`: what an experience names as the best of all; where its variant wins, its own
    configuration is the only one beside it.
    """
    others = launch_variants(winner, problem, captured)
    if known_best and winner.label == variant_of(known_best):
        others = (item for item in others if item.label == known_best)
    return [item for item in others if sha256_text(item.source.text) not in known]


def time_rank(result: TrialResult) -> tuple[bool, float]:
    """Sort key: measured or estimated time, pruned ones last."""
    time = result.time_us if result.time_us is not None else result.estimated_us
    return result.pruned is not None, time if time is not None else float("inf")
