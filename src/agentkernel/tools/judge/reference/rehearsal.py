"""What might end a GPU's process, by an index out of range or an assertion, is tried beforehand.

Indices are looked at on the GPU itself, each before the operator that takes it. An operator that
asserts something else is run on the CPU, where it raises.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch._ops import OpOverload
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.domain.errors import ProblemError
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.timed_cpus import lane_cpus
from agentkernel.tools.judge.cases.edge_inputs import LOOKUPS, index_inputs
from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.reference.rounding_noise import named_arguments
from agentkernel.tools.judge.settings import threads
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    from torch import nn
    from torch.fx import Node

MOST_THREADS = 8


def indexes_elements(captured: Captured) -> bool:
    """True where the graph takes elements by their number, which a buffer may hold: at another size
    there may be none of that number."""
    names = (str(node.target) for node in captured.graph.graph.nodes if node.op == "call_function")
    return any(word in name for name in names for word in LOOKUPS)


def counts_places(captured: Captured) -> bool:
    """True where the graph looks up by an index that it makes of comparisons or of rounded numbers:
    values other than usual ones (none above a threshold) may make one that is out of range. What
    sorts or picks the largest makes none."""
    made: set[Node] = set()
    for node in captured.graph.graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        name = str(node.target)
        read = node.all_input_nodes
        if any(word in name for word in LOOKUPS) and made.intersection(read):
            return True
        computed = made.intersection(read) or any(map(_holds_numbers, read))
        if not _numeric(value) and computed and not _gives_places(name):
            made.add(node)
    return False


IN_RANGE = ("argmax", "argmin", "argsort", "kthvalue", "median", "mode", "sort", "topk")
"""Operators whose integers are places of their operand."""
USUAL = ("normal", "own")
"""Distributions with which a module is used."""


def _gives_places(name: str) -> bool:
    """Whether the operator of this name, `aten.argmax.default`, is one of those."""
    return name.partition(".")[2].partition(".")[0] in IN_RANGE


def _holds_numbers(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and _numeric(value)


def _numeric(value: torch.Tensor) -> bool:
    """Whether it has other values than integers: numbers, or what a comparison gives."""
    return value.is_floating_point() or value.is_complex() or value.dtype == torch.bool


CHECKING = ("assert", "bernoulli", "binary_cross_entropy", "binomial", "dirichlet", "multinomial",
            "normal", "poisson")  # fmt: skip
"""Words in the names of operators that look at values in their kernels on a GPU and stop there."""


def checks_values(captured: Captured) -> bool:
    """True where the graph has an operator that NaN may stop on a GPU, or one that is not torch's
    own, of which nobody knows."""
    names = (str(node.target) for node in captured.graph.graph.nodes if node.op == "call_function")
    return any(
        not name.startswith(("aten.", "<built-in", "prims.")) or stops(name) for name in names
    )


def stops(operator: str) -> bool:
    """Whether a GPU's kernel of the operator of this name looks at values and may stop there."""
    if operator.startswith("aten._assert_tensor_metadata"):
        return False
    return any(word in operator for word in CHECKING)


class Unchecked(Exception):
    """An operator that may stop a GPU by what `CheckedIndices` does not look at."""


class Places(NamedTuple):
    """Indices of `size` elements; from `-size` on where they count from the end too."""

    indices: torch.Tensor
    size: int
    from_end: bool = False
    ignored: int | None = None

    def check(self) -> None:
        """Raises IndexError, as a CPU's kernel does."""
        found = self.indices
        if self.ignored is not None:
            found = found[found != self.ignored]
        if not found.numel():
            return
        least, most = (int(x) for x in torch.aminmax(found))
        if least < (-self.size if self.from_end else 0) or most >= self.size:
            wrong = most if most >= self.size else least
            raise IndexError(f"index {wrong} is out of bounds for {self.size} elements")


ALONG = ("gather", "index_add", "index_copy", "index_reduce", "index_select", "scatter",
         "scatter_add", "scatter_reduce")  # fmt: skip
"""Their `index` counts along `dim` of `self`, from 0 on."""
BY_LISTS = ("index", "_unsafe_index", "index_put", "_index_put_impl", "_unsafe_index_put")
"""Their `indices` are one tensor for each dimension, or a mask for several."""
OF_NOTHING = ("index", "index_put", "index_add", "index_copy", "index_fill")
"""Of a tensor without elements these read nothing, whatever the indices."""
OF_NOTHING = ("index", "index_put", "index_add", "index_copy", "index_fill")
"""Of a tensor without elements these read nothing, whatever the indices."""
FLAT = ("take", "put")
LOSSES = ("nll_loss_forward", "nll_loss2d_forward")


class CheckedIndices(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at the indices of every operator before it runs. Raises IndexError for one out of
    range, Unchecked for an operator that may assert anything else, which `unchecked` keeps: a
    module may hide it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unchecked = False

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, if all of its indices are in range."""
        try:
            for places in places_of(func, named_arguments(func, args, kwargs or {})):
                places.check()
        except Unchecked:
            self.unchecked = True
            raise
        return func(*args, **(kwargs or {}))


def places_of(func: OpOverload, given: Mapping[str, object]) -> Iterator[Places]:
    """The indices that `func` takes with these arguments, by name.

    Raises Unchecked where there may be others, or where it asserts something else.
    """
    operator = str(func)
    space, _, rest = operator.partition(".")
    word = rest.partition(".")[0].rstrip("_")
    if word == "embedding":
        yield Places(_tensor(given["indices"]), _tensor(given["weight"]).shape[0])
    elif (
        word.startswith(("index", "_index", "_unsafe_index")) and 0 in _tensor(given["self"]).shape
    ):
        return  # of nothing nothing is read
    elif word in BY_LISTS:
        yield from _by_lists(_tensor(given["self"]).shape, given["indices"])
    elif word in ALONG:
        yield Places(_tensor(given["index"]), _along(given))
    elif word == "index_fill":
        yield Places(_tensor(given["index"]), _along(given), from_end=True)
    elif word in FLAT:
        yield Places(_tensor(given["index"]), _tensor(given["self"]).numel(), from_end=True)
    elif word in LOSSES:
        classes = _tensor(given["self"]).shape[-1 if word == LOSSES[0] else 1]
        ignored = cast("int", given["ignore_index"])
        yield Places(_tensor(given["target"]), classes, ignored=ignored)
    elif (
        space != "aten"
        or stops(operator)
        or any(part in word for part in LOOKUPS)
        or (_holds_integers(given.values()) and not _computes(func, word))
    ):
        raise Unchecked(operator)


# fmt: off
COMPUTING = {
    "_local_scalar_dense", "_to_copy", "_unsafe_view", "all", "amax", "amin", "aminmax", "any",
    "arange", "argmax", "argmin", "argsort", "bucketize", "cat", "clone", "constant_pad_nd", "copy",
    "count_nonzero", "cummax", "cummin", "cumsum", "detach", "empty_like", "eq", "equal", "fill",
    "flip", "full_like", "item", "lift_fresh", "lift_fresh_copy", "masked_fill", "masked_select",
    "max", "mean", "min", "new_empty", "new_full", "new_ones", "new_zeros", "nonzero", "ones_like",
    "prod", "repeat", "roll", "searchsorted", "sort", "stack", "sum", "topk", "tril", "triu",
    "unique_dim", "where", "zero", "zeros_like",
}
# fmt: on
"""Operators that take integers for numbers and no place of anything, beside pointwise ones."""


def _computes(func: OpOverload, word: str) -> bool:
    return word in COMPUTING or func.is_view or torch.Tag.pointwise in func.tags


def _holds_integers(values: Iterable[object]) -> bool:
    """Whether there is a tensor of integers among them, or in a list of theirs."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
                return True
        elif isinstance(value, list | tuple) and _holds_integers(value):
            return True
    return False


def _tensor(value: object) -> torch.Tensor:
    return cast("torch.Tensor", value)


def _along(given: Mapping[str, object]) -> int:
    """The size of the dimension that `dim` names."""
    shape = _tensor(given["self"]).shape
    return shape[cast("int", given["dim"])] if shape else 1


def _by_lists(shape: Sequence[int], indices: object) -> Iterator[Places]:
    dim = 0
    for index in cast("Sequence[torch.Tensor | None]", indices):
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            dim += index.dim()
            continue
        if index is not None:
            yield Places(index, shape[dim], from_end=True)
        dim += 1


def capture_checked(loaded: LoadedProblem) -> Captured:
    """The module's graph, of one that has an element for each index of its own inputs. Raises
    ProblemError."""
    found = capture(loaded)
    check_given_indices(loaded, found)
    return found


def check_given_indices(loaded: LoadedProblem, captured: Captured) -> None:
    """Raises ProblemError where the module's own inputs hold an index that it has no element for:
    its graph does not depend on values, and would be taken for one that runs."""
    if not index_inputs(captured):
        return
    given = dict(zip(captured.user_inputs, loaded.make_inputs(seed=0), strict=False))
    values: dict[Node, object] = {}
    for node in captured.graph.graph.nodes:
        if node.op == "placeholder" and node.name in given:
            values[node] = given[node.name]
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        args, kwargs = (_known(part, values) for part in (node.args, node.kwargs))
        try:
            for places in places_of(node.target, named_arguments(node.target, args, kwargs)):
                if type(places.indices) is torch.Tensor and type(places.size) is int:
                    places.check()
        except IndexError as error:
            raise ProblemError(
                f"{loaded.problem.class_name} has no element for one of its own inputs: "
                f"{error} ({node.target}). Expected indices that its tables have. Next: correct "
                "the inputs, or the sizes that the module is built with."
            ) from error
        except (Unchecked, AttributeError, KeyError, TypeError, ValueError):
            pass  # another form of call
        shown = node.meta.get("val")
        whole = isinstance(shown, torch.Tensor) and not shown.is_floating_point()
        view = any(item.alias_info for item in node.target._schema.returns)
        if (whole or view) and all(item in values for item in node.all_input_nodes):
            with contextlib.suppress(Exception):  # then its values are not known
                values[node] = node.target(*args, **kwargs)


def _known(part: Any, values: Mapping[Node, object]) -> Any:
    """Arguments of a node: tensors where they are known, else their form."""
    return map_arg(part, lambda node: cast("Any", values.get(node, node.meta.get("val"))))


def rehearse(
    model: nn.Module, inputs: Sequence[object], training: bool = False, *, here: bool = False
) -> None:
    """Run a copy of `model`. Raises what it raises, an index out of range among it. `here`: on the
    device of the inputs if every operator can be looked at there, else on the CPU."""
    if not (here and _rehearsed_here(model, inputs, training)):
        _rehearse_on_cpu(model, inputs, training)


def _rehearsed_here(model: nn.Module, inputs: Sequence[object], training: bool) -> bool:
    given = [copied(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    used = {item.device.index for item in given if isinstance(item, torch.Tensor) and item.is_cuda}
    # What it draws is drawn again by the call that counts.
    with torch.random.fork_rng(sorted(used)), torch.no_grad():
        looked, own = CheckedIndices(), copy.deepcopy(model).train(training)
        try:
            with looked:
                own(*given)
        except Exception:
            if not looked.unchecked:
                raise
    return not looked.unchecked


def _rehearse_on_cpu(model: nn.Module, inputs: Sequence[object], training: bool) -> None:
    """Meanwhile others may time on the GPU."""
    given = [item.cpu() if isinstance(item, torch.Tensor) else item for item in inputs]
    here = copy.deepcopy(model).cpu().train(training)
    # Nothing of it is kept, so that it may take other threads than what is compared.
    with gpu_lock.without_gpu(), torch.no_grad(), threads(rehearsing_threads()), WideProducts():  # type: ignore[no-untyped-call]
        here(*given)


def rehearsing_threads() -> int:
    """A block of 2048 channels takes 4 s for 2048 tokens in one thread, 2.8 in two. Half of the
    lane's CPUs are left to those who compile and interpret beside it."""
    return min(MOST_THREADS, max(1, lane_cpus() // 2))


class WideProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Products and convolutions of 16-bit floats in fp32, rounded: in their own type a CPU without
    instructions for them takes twenty times as long (36 s for 25 G multiplications)."""

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`."""
        first = args[0] if args else None
        if func not in PRODUCTS or not isinstance(first, torch.Tensor) or first.itemsize != 2:
            return func(*args, **(kwargs or {}))
        wide = [item.float() if isinstance(item, torch.Tensor) else item for item in args]
        return func(*wide, **(kwargs or {})).to(first.dtype)


PRODUCTS = {
    getattr(torch.ops.aten, name).default
    for name in ("addmm", "addmv", "baddbmm", "bmm", "convolution", "dot", "mm", "mv")
}
