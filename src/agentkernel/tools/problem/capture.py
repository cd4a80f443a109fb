"""Capture of the forward of a module as a functional ATen graph, without allocating memory."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import HERE, ProblemError, one_line, whole_words
from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.problem.composite_operators import (
    kept_tables,
    losses_of_samples,
    recurrences_by_shape,
    same_in_both_modes,
)
from agentkernel.tools.problem.cumulative_norm import traceable_averages
from agentkernel.tools.problem.example_call import Example, example_call, real_example
from agentkernel.tools.problem.loading import LoadedProblem, step_after
from agentkernel.tools.problem.operand_dtypes import mixes_dtypes
from agentkernel.tools.problem.structures import PLAIN, class_label, register_dataclasses

if TYPE_CHECKING:
    import sympy
    import torch
    from torch import nn
    from torch.export import ExportedProgram
    from torch.fx import GraphModule
    from torch.utils._pytree import TreeSpec

LIFTED = "lifted_tensor"
"""What export calls a tensor that forward makes of plain numbers."""
MOST_LITERALS = 256
"""Numbers in such a tensor that a drop-in may write out."""
TWO_DEVICES = ("is not on the expected device meta", "two different devices", "two devices, ")
"""What torch says of an operator that is given tensors of two devices."""
DATA_DEPENDENT = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "data-dependent")


@dataclass(frozen=True)
class FreeDim:
    """A size that may change from call to call. Dimensions with one `symbol` change together."""

    symbol: str
    input_index: int
    dim: int
    size: int


@dataclass(frozen=True)
class Captured:
    """One forward as functional ATen calls; composite ops (softmax, layer_norm) stay whole.

    `graph` carries a fake or meta tensor in `node.meta["val"]`; `parameters` maps placeholders to
    state_dict names (parameters and buffers), `constants` placeholders to attribute paths of plain
    tensors. `outputs` names the nodes that forward returns, in order, None for a non-tensor.
    `mutated_buffers` and `mutated_inputs` are what forward changes in place; the graph returns
    their new values, in this order, before the outputs. `returned_inputs` has, for an output that
    is an input itself, that input's placeholder. `side_effect` is the path of a plain attribute
    that forward sets, which no drop-in does.
    """

    graph: GraphModule
    user_inputs: tuple[str, ...]
    parameters: dict[str, str]
    constants: dict[str, str]
    outputs: tuple[str | None, ...]
    output_tree: TreeSpec
    mutated_buffers: tuple[str, ...]
    mutated_inputs: tuple[str, ...]
    free_dims: tuple[FreeDim, ...]
    static_reason: str | None
    guards: tuple[sympy.Basic, ...] = ()
    side_effect: str | None = None
    returned_inputs: tuple[str | None, ...] = ()
    literals: dict[str, str] = field(default_factory=dict)
    """Attribute path of a constant -> the text that makes it, where forward's own text does."""
    plain_outputs: dict[int, object] = field(default_factory=dict)
    """Place of an output -> the number or string that it is in every call."""
    views: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Place of an output that a drop-in makes as a view -> the input or the node of an output or of
    `view_bases` in whose memory it lies, and the text that follows that: `.t()`, with a size that
    the graph computes as that node's name in braces."""
    view_bases: tuple[str, ...] = ()
    """The nodes that a drop-in computes and does not return, but views of them."""
    asks_mode: bool = True
    """False where forward never asked for its mode: in the other one it computes the same."""

    @property
    def computed(self) -> tuple[str, ...]:
        """The nodes of the outputs that are tensors of their own, then `view_bases`."""
        own = (name for at, name in enumerate(self.outputs) if at not in self.views)
        return (*(name for name in own if name is not None), *self.view_bases)

    @property
    def written(self) -> tuple[str, ...]:
        """The nodes with the new values of `mutated_buffers`, then of `mutated_inputs`."""
        count = len(self.mutated_buffers) + len(self.mutated_inputs)
        (values,) = self.graph.graph.output_node().args
        assert isinstance(values, tuple | list)
        return tuple(str(item) for item in values[:count])

    def result_elements(self, sizes: Mapping[str, int]) -> int:
        """Elements of all outputs for these values of the free symbols (symbol -> size). Raises
        ZeroDivisionError or AssertionError where one has no size with these."""
        import torch

        values = {node.name: node.meta.get("val") for node in self.graph.graph.nodes}
        total = 0
        for name in filter(None, self.outputs):
            value = values.get(name)
            size = value.numel() if isinstance(value, torch.Tensor) else 0
            if isinstance(size, torch.SymInt):
                found = _at_sizes(size.node.expr, sizes)
                size = int(found) if found.is_Integer else 0
            total += size
        return total

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the graph holds for these values of the free symbols (symbol -> size).

        Tracing decided on the way that, say, a size is even; a size that breaks such a decision
        belongs to another graph, and so does one with which it cannot be asked: it divides by zero,
        or takes the rest of a negative number, which torch asserts away.
        """
        for guard in self.guards:
            try:
                if _at_sizes(guard, sizes) == False:  # noqa: E712 - sympy's own False
                    return False
            except (ZeroDivisionError, AssertionError):
                return False
        return True


def _at_sizes(expression: sympy.Basic, sizes: Mapping[str, int]) -> sympy.Basic:
    """An expression with values for those of its symbols that `sizes` names."""
    free = expression.free_symbols
    return expression.subs({item: sizes[str(item)] for item in free if str(item) in sizes})


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's warnings, logs and dumps of half-made graphs off the terminal."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sink = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def capture(
    loaded: LoadedProblem, shape_set: int = 0, *, training: bool = False, symbolic: bool = True
) -> Captured:
    """Trace `loaded`'s forward on the given shape set with symbolic sizes wherever they stay free;
    without `symbolic` as numbers, in a sixth to a half of the time.

    Eval mode unless `training`, no gradients, no memory for the inputs. Raises ProblemError where
    the constructor or forward raises, the inputs do not fit, or control flow depends on data.
    """
    import torch

    with torch.no_grad(), quiet():
        if not symbolic:
            return _capture(loaded, shape_set, training, static="only")
        if (varied := _varied(loaded.problem.shape_sets, shape_set)) is not None:
            try:
                found = _capture(_resized(loaded, varied), shape_set, training, static="never")
                return _declared(found, loaded, shape_set)
            except (Exception, SystemExit):  # noqa: BLE001, S110 - no such sizes: the declared ones
                pass
        return _capture(loaded, shape_set, training, static="else")


def check_call(loaded: LoadedProblem) -> None:
    """Call the module without memory, in a few milliseconds. Where that raises, it is captured, so
    that what cannot be built or called raises the ProblemError of `capture`."""
    import torch

    try:
        with torch.no_grad(), quiet():
            example = example_call(loaded)
            example.module(*example.inputs)
    except (Exception, SystemExit):  # noqa: BLE001 - some that run have no call without memory
        capture(loaded)


Static = Literal["never", "else", "only"]
"""Whether sizes are traced as numbers: never, where they cannot be symbols, or all of them."""


def _capture(loaded: LoadedProblem, shape_set: int, training: bool, *, static: Static) -> Captured:
    """The trace with these very sizes."""
    captured = _trace(loaded, example_call(loaded, shape_set), shape_set, training, static)
    unknown = [path for path in captured.constants.values() if path.startswith(LIFTED)]
    if set(unknown) - set(captured.literals):
        # On meta a tensor that forward makes of numbers has none.
        with contextlib.suppress(Exception):
            return _trace(loaded, real_example(loaded, shape_set), shape_set, training, static)
    return captured


def _trace(
    loaded: LoadedProblem, example: Example, shape_set: int, training: bool, static: Static
) -> Captured:
    import torch

    example.module.train(training)
    found, asked = _traced(loaded, example, shape_set, "cuda", static=static)
    if mixes_dtypes(found.graph):
        _require_run(loaded, shape_set)
    if asked and not torch.cuda.is_available():
        other = _same_on_cpu(loaded, example, shape_set, found, static=static)
        return replace(found, asks_mode=found.asks_mode or other.asks_mode)
    return found


def _same_on_cpu(
    loaded: LoadedProblem, example: Example, shape_set: int, found: Captured, *, static: Static
) -> Captured:
    """The trace for the CPU. Raises ProblemError where forward computes something else there, where
    it would be judged here, than on the GPU that `found` was traced for."""
    try:
        other, _ = _traced(loaded, example, shape_set, "cpu", static=static)
        if _values_of(other) == _values_of(found):
            return other
    except (Exception, SystemExit):  # noqa: BLE001, S110 - it does not run there
        pass
    raise ProblemError(
        f"The forward of {loaded.problem.class_name} asks for the device of its tensors, and "
        "computes something else on a GPU than on the CPU. Expected the same on both where no "
        "GPU is at hand to judge it on. Next: run this on a machine with the GPU, or take the "
        "branch out."
    )


def _values_of(captured: Captured) -> list[str]:
    """A name for each output that tells by which operators it comes from the inputs, however it and
    what it is made of lie in memory."""
    import torch

    aten = torch.ops.aten
    copies = (aten.clone.default, aten.contiguous.default, aten.alias.default)
    names: dict[object, str] = {}
    turned: dict[str, str] = {}

    def text(item: object) -> str:
        return names.get(item, repr(item)) if isinstance(item, torch.fx.Node) else repr(item)

    for node in captured.graph.graph.nodes:
        if node.op == "placeholder":
            names[node] = node.name
        elif node.target in copies:
            names[node] = text(node.args[0])
        elif node.target is aten.t.default:
            given = text(node.args[0])
            names[node] = turned.get(given) or sha256_text(f"t {given}")
            turned[names[node]] = given
        elif node.op != "output":
            flat, tree = torch.utils._pytree.tree_flatten((node.args, node.kwargs))
            said = f"{node.target} {tree} {[text(item) for item in flat]}"
            names[node] = sha256_text(said)
    returned = captured.graph.graph.output_node().args
    return [text(item) for item in torch.utils._pytree.tree_leaves(returned)]


def _traced(
    loaded: LoadedProblem, example: Example, shape_set: int, device: str, *, static: Static
) -> tuple[Captured, bool]:
    """The trace of a forward that is told that its tensors lie on `device`; whether it asked."""
    from agentkernel.tools.problem.trace_modes import report_target_device, watch_mode_reads

    module = example.module
    with (
        _watched(module) as seen,
        report_target_device(module, device) as told,
        watch_mode_reads(module) as mode,
    ):
        reason = None
        try:
            program = None if static == "only" else _export(example, dynamic=True)
        except (Exception, SystemExit) as error:  # any refusal of symbolic sizes: the actual ones
            if static == "never":
                raise
            program, reason = None, one_line(error, 200)
        if program is None:
            program = _export_static(loaded, example, shape_set, seen)
    found = _captured(program, reason)
    same = tuple(None if at is None else found.user_inputs[at] for at in seen.same)
    effect = next(iter(seen.effects), None)
    # In a function that Dynamo traced it may ask unseen.
    asks = mode.asked or _has_subgraphs(found.graph)
    found = replace(found, side_effect=effect, returned_inputs=same, asks_mode=asks)
    return found, told.asked


def _has_subgraphs(graph: GraphModule) -> bool:
    import torch

    return any(
        isinstance(item.target, torch._ops.HigherOrderOperator) for item in graph.graph.nodes
    )


def _varied(sets: Sequence[ShapeSet], shape_set: int) -> ShapeSet | None:
    """The largest size of each dimension among the sets, where one of `shape_set` is 0 or 1, which
    torch makes constants, and another set has it larger; None where no such size varies."""
    declared = sets[shape_set]
    alike = [[(item.dtype, len(item.shape)) for item in one.tensors] for one in sets]
    if any(item != alike[shape_set] for item in alike):
        return None
    largest = [
        tuple(map(max, zip(*(item.shape for item in same), strict=True)))
        for same in zip(*(one.tensors for one in sets), strict=True)
    ]
    pairs = zip(declared.tensors, largest, strict=True)
    if not any(a < 2 <= b for spec, top in pairs for a, b in zip(spec.shape, top, strict=True)):
        return None
    tops = iter(largest)
    return ShapeSet(
        inputs=tuple(
            spec.evolve(shape=next(tops)) if isinstance(spec, TensorSpec) else spec
            for spec in declared.inputs
        )
    )


def _resized(loaded: LoadedProblem, shapes: ShapeSet) -> LoadedProblem:
    """The same module with `shapes` in place of every set."""
    sets = (shapes,) * len(loaded.problem.shape_sets)
    problem = loaded.problem.evolve(shape_sets=sets)
    return replace(loaded, problem=problem, live_inputs=())


def _declared(captured: Captured, loaded: LoadedProblem, shape_set: int) -> Captured:
    """`captured`, traced with other sizes, with those of `shape_set`. Raises ProblemError where it
    does not hold for them: a size of 1 may broadcast."""
    specs = loaded.problem.shape_sets[shape_set].inputs
    dims = [
        replace(item, size=spec.shape[item.dim])
        for item in captured.free_dims
        if isinstance(spec := specs[item.input_index], TensorSpec)
    ]
    sizes = {item.symbol: item.size for item in dims}
    if any(sizes[item.symbol] != item.size for item in dims) or not captured.admits(sizes):
        raise ProblemError("The graph of the largest sizes does not hold for these.")
    return replace(captured, free_dims=tuple(dims))


@dataclass
class _Seen:
    """What a graph does not show of a forward: plain attributes that it sets, and for each output
    the number of the input that it is."""

    effects: list[str] = field(default_factory=list)
    same: list[int | None] = field(default_factory=list)
    odd: str = ""
    """The class of an output that is neither tensor nor plain data."""


@contextmanager
def _watched(module: nn.Module) -> Iterator[_Seen]:
    """What forward does beside its graph. Export takes attributes back once it has returned."""
    import torch
    from torch.utils._pytree import tree_leaves

    from agentkernel.tools.problem.attributes import (
        AttributeSnapshot,
        changed_attribute,
        snapshot_attributes,
    )

    before: list[AttributeSnapshot] = []
    seen = _Seen()

    def enter(module: nn.Module, args: object) -> None:
        before.append(snapshot_attributes(module))

    def leave(module: nn.Module, args: tuple[object, ...], output: object) -> None:
        effect = changed_attribute(module, before.pop())
        seen.effects.extend([] if effect is None else [effect])
        register_dataclasses(output)
        places = {id(item): at for at, item in enumerate(args) if hasattr(item, "shape")}
        leaves = tree_leaves(output)
        seen.same = [places.get(id(leaf)) for leaf in leaves]
        plain = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, *PLAIN)
        odd = [type(leaf) for leaf in leaves if not isinstance(leaf, plain)]
        seen.odd = class_label(odd[0]) if odd else ""

    hooks = (module.register_forward_pre_hook(enter), module.register_forward_hook(leave))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _export(example: Example, *, dynamic: bool) -> ExportedProgram:
    import torch

    from agentkernel.tools.problem.attributes import preserve_attributes

    shapes = tuple(
        dict.fromkeys(range(value.ndim), torch.export.Dim.AUTO)
        if isinstance(value, torch.Tensor)
        else None
        for value in example.inputs
    )
    module = example.module
    with preserve_attributes(module), traceable_averages(module), _by_shape():
        program: ExportedProgram = torch.export.export(
            module, example.inputs, dynamic_shapes=shapes if dynamic else None, strict=False
        )
    with kept_tables(), _by_shape():
        functional: ExportedProgram = program.run_decompositions({})
    return functional


@contextmanager
def _by_shape() -> Iterator[None]:
    with losses_of_samples(), recurrences_by_shape():
        yield


def _export_static(
    loaded: LoadedProblem, example: Example, shape_set: int, seen: _Seen
) -> ExportedProgram:
    try:
        return _export(_unmarked(example), dynamic=False)
    except (Exception, SystemExit) as error:
        name = loaded.problem.class_name
        text = f"{type(error).__name__}: {one_line(error, 200)}"
        if any(word in text for word in DATA_DEPENDENT):
            raise ProblemError(
                f"The forward of {name} branches on tensor values, so it has no fixed graph. "
                "Expected control flow that depends on shapes and Python values alone. "
                "Next: use torch.where, or optimise the part without the branch."
            ) from error
        if seen.odd:
            raise ProblemError(
                f"The forward of {name} returns an object of {seen.odd}. Expected tensors, numbers "
                "and None, or tuples, lists, dicts, named tuples and dataclasses of them, with no "
                "more than their fields. Next: wrap it in a module that returns those."
            ) from error
        if _left_on_cpu(example, text):
            raise ProblemError(
                f"The forward of {name} makes a tensor on the CPU and mixes it with its inputs, "
                "which a GPU refuses. Expected tensors on the device of the inputs. "
                "Next: make it with device=x.device, or in the constructor as a buffer."
            ) from error
        own = _raised_by_call(example) or error
        raise _does_not_run(loaded, shape_set, own) from error


def _unmarked(example: Example) -> Example:
    """The same call with tensors of its own: an export that failed leaves marks on those that it
    was given, by which the next one takes their sizes for free as well."""
    import torch

    inputs = (item.detach() if isinstance(item, torch.Tensor) else item for item in example.inputs)
    return example._replace(inputs=tuple(inputs))


def _does_not_run(loaded: LoadedProblem, shape_set: int, error: BaseException) -> ProblemError:
    shapes = loaded.problem.shape_sets[shape_set].label
    place = _own_place(loaded, error)
    at = f" at {place}" if place else ""
    slip = isinstance(_innermost(error), AttributeError | NameError | ImportError | LookupError)
    usual = "check shapes and dtypes against the constructor"
    step = step_after(error, f"fix {place or 'that line'}" if slip else usual)
    return ProblemError(
        f"The forward of {loaded.problem.class_name} raised {_reason(error)}{at} on inputs "
        f"{shapes}. Expected: it runs on them. Next: {step}."
    )


def _own_place(loaded: LoadedProblem, error: BaseException) -> str:
    """The line of the user's code that raised, as `file.py:12`; "" where it is not known."""
    own = f"<{loaded.namespace.__name__}>" if loaded.namespace is not None else ""
    for frame in reversed(traceback.extract_tb(_innermost(error).__traceback__)):
        if own and frame.filename.startswith(own):
            return f"{Path(loaded.problem.path).name}:{frame.lineno}"
        path = Path(frame.filename)
        library = "site-packages" in path.parts or path.is_relative_to(HERE)
        if path.is_absolute() and not library:
            return f"{path.name}:{frame.lineno}"
    return ""


def _require_run(loaded: LoadedProblem, shape_set: int) -> None:
    """Call the module for real. Raises ProblemError where it raises, as eager would anywhere."""
    module = loaded.build(seed=0, device="cpu").eval()
    inputs = loaded.make_inputs(shape_set, seed=0, device="cpu")
    example = Example(module, inputs)
    if isinstance(error := _raised_by_call(example), RuntimeError):
        raise _does_not_run(loaded, shape_set, error)


def _raised_by_call(example: Example) -> BaseException | None:
    """What forward raises where it is called: exporters name sizes by symbols of their own."""
    try:
        example.module(*example.inputs)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's forward raises
        return error
    return None


def _left_on_cpu(example: Example, text: str) -> bool:
    """Whether forward failed with `text` since a tensor that it makes meets inputs on meta."""
    import torch

    given = (item for item in example.inputs if isinstance(item, torch.Tensor))
    on_meta = any(item.device.type == "meta" for item in given)
    return on_meta and any(words in text for words in TWO_DEVICES)


def _captured(program: ExportedProgram, static_reason: str | None) -> Captured:
    from torch.export.graph_signature import InputKind, OutputKind

    signature = program.graph_signature
    named: Callable[[InputKind], dict[str, str]] = lambda kind: {  # noqa: E731
        spec.arg.name: str(spec.target) for spec in signature.input_specs if spec.kind == kind
    }
    users = tuple(
        spec.arg.name for spec in signature.input_specs if spec.kind == InputKind.USER_INPUT
    )
    outputs = tuple(
        getattr(spec.arg, "name", None) if not hasattr(spec.arg, "value") else None
        for spec in signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT
    )
    returned = [s.arg for s in signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    plain = {at: getattr(arg, "value", None) for at, arg in enumerate(returned)}
    tree = program.call_spec.out_spec
    if tree is None:
        raise ProblemError("The module returns nothing. Expected a tensor or several.")
    same_in_both_modes(program.graph_module.graph)
    constants, literals = _literals(program, named(InputKind.CONSTANT_TENSOR))
    return Captured(
        graph=program.graph_module,
        user_inputs=users,
        parameters={**named(InputKind.PARAMETER), **named(InputKind.BUFFER)},
        constants=constants,
        outputs=outputs,
        output_tree=tree,
        mutated_buffers=tuple(signature.buffers_to_mutate.values()),
        mutated_inputs=tuple(signature.user_inputs_to_mutate.values()),
        free_dims=_free_dims(program.graph_module, users),
        static_reason=static_reason,
        guards=_guards(program.graph_module),
        literals=literals,
        plain_outputs={at: value for at, value in plain.items() if value is not None},
    )


def _literals(
    program: ExportedProgram, constants: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The constants that are left, and the text of those that forward makes of numbers.

    A tensor of one number and no dimension, `torch.tensor(0.5)`, becomes a call in the graph.
    """
    import torch

    graph = program.graph_module.graph
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    last = list(nodes.values())[-1]
    left, texts = dict(constants), {}
    for name, path in constants.items():
        value = program.constants.get(path)
        known = isinstance(value, torch.Tensor) and value.device.type != "meta"
        if not path.startswith(LIFTED) or not known or value.numel() > MOST_LITERALS:
            continue
        if value.ndim:
            texts[path] = f"torch.tensor({_listed(value.tolist())}, dtype={value.dtype})"
            continue
        node = nodes[name]
        device = node.meta["val"].device
        with graph.inserting_after(last):
            made = graph.call_function(
                torch.ops.aten.full.default,
                ([], value.item()),
                {"dtype": value.dtype, "device": device, "pin_memory": False},
            )
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        if node is not last:
            graph.erase_node(node)
            del left[name]
    program.graph_module.recompile()
    return left, texts


def _listed(value: object) -> str:
    """Nested numbers as Python."""
    if isinstance(value, list):
        return f"[{', '.join(map(_listed, value))}]"
    finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if finite else f'float("{value}")'


def _guards(graph: GraphModule) -> tuple[sympy.Basic, ...]:
    """What tracing took for granted about the symbolic sizes."""
    import torch

    for node in graph.graph.nodes:
        value = node.meta.get("val")
        sizes: list[object] = list(value.shape) if isinstance(value, torch.Tensor) else []
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return tuple(guard.expr for guard in size.node.shape_env.guards)
    return ()


def _free_dims(graph: GraphModule, users: tuple[str, ...]) -> tuple[FreeDim, ...]:
    import torch

    nodes = {node.name: node for node in graph.graph.nodes if node.op == "placeholder"}
    found: list[FreeDim] = []
    for index, name in enumerate(users):
        value = nodes[name].meta.get("val") if name in nodes else None
        if not isinstance(value, torch.Tensor):
            continue
        sizes: list[int | torch.SymInt] = list(value.shape)
        found += [
            FreeDim(str(size.node.expr), index, dim, int(size.node.hint))
            for dim, size in enumerate(sizes)
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol
        ]
    return tuple(found)


def _reason(error: BaseException) -> str:
    """The innermost message: exporters wrap the user's exception."""
    inner = _innermost(error)
    said = whole_words(one_line(inner, 600), 300).rstrip(".")
    return f"{type(inner).__name__}: {said}"


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
