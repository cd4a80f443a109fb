"""State that no state dict shows: buffers that are not persistent, attributes that forward sets.

Such an attribute counts where a later call reads it: a candidate that keeps it must keep it
under the same name, as it must a buffer. Before every call it is set to what the original starts
from, and after it compared with what the original leaves behind.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.domain.verdict import Failure, Mismatch, Precision, WrongMeta
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output
from agentkernel.tools.problem.attributes import attributes
from agentkernel.tools.problem.structures import tree_text
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.judge.reference.oracle_inputs import OracleInputs, ReferenceCase

NUMBERS = (bool, int, float)
PLAIN = (*NUMBERS, str, type(None))
SAME_NUMBER = 1e-6
ABSENT = {"absent": True}
"""What a child says of, and is told for, an attribute that is not there."""


def hidden_buffers(model: nn.Module) -> Iterator[str]:
    """Names of the buffers that are not persistent."""
    persistent = set(model.state_dict())
    return (name for name, _ in model.named_buffers() if name not in persistent)


def plain_attributes(model: nn.Module) -> dict[str, object]:
    """Plain values and tensors, alone or in lists and dicts, set on a module or one below it."""
    return {
        f"{path}.{name}" if path else name: value
        for path, item in model.named_modules()
        for name, value in attributes(item)
        if all(is_plain(leaf) for leaf in flat(value)[0])
    }


def flat(value: object) -> tuple[list[object], str]:
    """The leaves of a value and, as text, how they are held."""
    from torch.utils._pytree import tree_flatten

    leaves, spec = tree_flatten(value)
    return leaves, tree_text(spec)


def is_plain(leaf: object) -> bool:
    """True for a tensor and for what a literal says."""
    return isinstance(leaf, torch.Tensor) or type(leaf) in PLAIN


def alike(one: object, other: object) -> bool:
    """The same leaves in the same form, bit for bit."""
    (left, tree), (right, other_tree) = flat(one), flat(other)
    if tree != other_tree:
        return False
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if a.shape != b.shape or a.dtype != b.dtype:
                return False
            if not bool(((a == b) | (a.isnan() & b.isnan())).all()):
                return False
        elif type(a) is not type(b) or a != b:
            return False
    return True


def keeps_state(before: nn.Module, after: nn.Module) -> bool:
    """Whether a call has moved a buffer that is not persistent, or an attribute."""
    names = [*hidden_buffers(before), *hidden_buffers(after)]
    if not all(alike(read_state(before, name), read_state(after, name)) for name in names):
        return True
    held, left = plain_attributes(before), plain_attributes(after)
    return held.keys() != left.keys() or not all(alike(held[name], left[name]) for name in held)


def read_state(model: nn.Module, name: str) -> object:
    """The buffer or attribute `name`, a path; ABSENT where there is none."""
    path, _, last = name.rpartition(".")
    try:
        return getattr(model.get_submodule(path), last, ABSENT)
    except AttributeError:
        return ABSENT


def find_hidden(oracle_inputs: OracleInputs, case: Case, names: Sequence[str]) -> tuple[str, ...]:
    """Of the state that `case` shows to change, what is part of the module: each buffer (`names`
    are those that the graph writes to) and each attribute that the next call reads."""
    reference_case = oracle_inputs.ask(case)
    if isinstance(reference_case, NotApplicable) or reference_case.answer.after is None:
        return tuple(names)
    after = reference_case.answer.after
    buffers = [
        name
        for name in hidden_buffers(reference_case.model)
        if not alike(read_state(reference_case.model, name), read_state(after, name))
    ]
    before, left = plain_attributes(reference_case.model), plain_attributes(after)
    moved = [n for n in {**before, **left} if not alike(before.get(n, ABSENT), left.get(n, ABSENT))]
    read = [name for name in moved if _is_read(oracle_inputs, case, reference_case, name)]
    return tuple(dict.fromkeys((*names, *buffers, *read)))


def _is_read(
    oracle_inputs: OracleInputs, case: Case, reference_case: ReferenceCase, name: str
) -> bool:
    """Whether a call with only `name` as the call before left it ends otherwise."""
    after = reference_case.answer.after
    assert after is not None
    model = copy.deepcopy(reference_case.model)
    set_state(model, name, copy.deepcopy(read_state(after, name)))
    again = oracle_inputs.answer(case, model, reference_case.inputs)
    if isinstance(again, NotApplicable) or again.after is None:
        return True
    same = all(map(alike, again.leaves, reference_case.answer.leaves))
    left = plain_attributes(after)
    ends = plain_attributes(again.after)
    return not (same and all(alike(value, left.get(n)) for n, value in ends.items()))


def set_state(model: nn.Module, name: str, value: object) -> None:
    """Set a buffer or attribute; ABSENT takes it away. A buffer of the same form stays where it
    is."""
    path, _, last = name.rpartition(".")
    owner = model.get_submodule(path)
    if isinstance(value, dict) and value == ABSENT:
        if hasattr(owner, last):
            delattr(owner, last)
        return
    now = owner._buffers.get(last)
    given = value if isinstance(value, torch.Tensor) else None
    if now is None or given is None or (now.shape, now.dtype) != (given.shape, given.dtype):
        setattr(owner, last, value)
        return
    with torch.no_grad():
        now.copy_(given)


class HiddenState:
    """The hidden state `names` of one candidate in `worker`."""

    def __init__(self, worker: Worker, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._worker = worker
        self._given: list[TensorRef] = []
        self._found: dict[str, list[TensorRef | None]] = {}

    def payload(self, reference_case: ReferenceCase) -> dict[str, object]:
        """What the worker is told before a call: values to start from, room for those it leaves."""
        from torch.utils._pytree import tree_map

        room = self.room_for(reference_case.answer.after or reference_case.model)

        def shared(leaf: object) -> object:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            self._given.append(self._worker.share(leaf.detach().clone().contiguous()))
            return self._given[-1]

        values = {n: tree_map(shared, read_state(reference_case.model, n)) for n in self.names}
        return {"hidden": values, **room}

    def room_for(self, model: nn.Module) -> dict[str, object]:
        """Room for the state of `model`, which is to be compared."""
        self.release()
        for name in self.names:
            leaves, _ = flat(read_state(model, name))
            self._found[name] = [self._room(leaf) for leaf in leaves]
        return {"hidden_after": self._found}

    def _room(self, leaf: object) -> TensorRef | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        room = torch.empty_like(leaf, memory_format=torch.contiguous_format)
        empty = float("nan") if leaf.dtype.is_floating_point else 1
        return self._worker.share(room.fill_(empty))

    def check(
        self,
        label: str,
        after: nn.Module,
        exact: nn.Module | None,
        reply: Mapping[str, JSON],
        precision: Precision,
    ) -> Failure | None:
        """What the candidate left behind that is not as in `after` (`exact`: its like in fp64)."""
        told = reply.get("hidden")
        for name in self.names:
            theirs = told.get(name) if isinstance(told, dict) else None
            found = [None if x is None else self._worker.shared(x) for x in self._found[name]]
            what = "buffer" if name in dict(after.named_buffers()) else "attribute"
            wanted = read_state(after, name)
            wide = None if exact is None else read_state(exact, name)
            where = f"{label}, {what} {name}"
            failure = _compare(where, wanted, wide, theirs, found, precision)
            if failure is not None:
                return failure
        return None

    def release(self) -> None:
        """Let go of the memory of the call before."""
        rooms = [ref for refs in self._found.values() for ref in refs if ref is not None]
        self._worker.release([*self._given, *rooms])
        self._given, self._found = [], {}


def _compare(
    label: str,
    wanted: object,
    exact: object,
    theirs: JSON,
    found: Sequence[torch.Tensor | None],
    precision: Precision,
) -> Failure | None:
    leaves, tree = flat(wanted)
    described = theirs.get("leaves") if isinstance(theirs, dict) else None
    held = theirs.get("tree") if isinstance(theirs, dict) else "nothing of that name"
    if held != tree or not isinstance(described, list) or len(described) != len(leaves):
        return WrongMeta(case=label, output=0, expected=tree, found=str(held)[:200])
    wide = flat(exact)[0] if exact is not None and flat(exact)[1] == tree else list(leaves)
    for index, (leaf, other) in enumerate(zip(leaves, described, strict=True)):
        if not isinstance(leaf, torch.Tensor):
            failure = _compare_plain(label, leaf, other)
        else:
            failure = _compare_form(label, leaf, other)
            if failure is None:
                failure = _compare_values(label, index, found[index], leaf, wide[index], precision)
        if failure is not None:
            return failure
    return None


def _compare_values(
    label: str,
    index: int,
    found: torch.Tensor | None,
    leaf: torch.Tensor,
    exact: object,
    precision: Precision,
) -> Failure | None:
    """As outputs are; without an fp64 value of the same form eager's own stands in."""
    assert found is not None
    known = isinstance(exact, torch.Tensor) and exact.shape == leaf.shape
    wide = cast("torch.Tensor", exact) if known else leaf
    oracle = wide.detach().double() if leaf.is_floating_point() else None
    values = OutputValues(found, leaf.detach(), oracle, no_oracle=not known)
    return compare_output(label, index, values, precision).mismatch


def _compare_form(label: str, leaf: torch.Tensor, other: JSON) -> WrongMeta | None:
    dtype = str(leaf.dtype).removeprefix("torch.")
    theirs = other if isinstance(other, dict) else {}
    expected, got = (
        f"{dtype}{list(leaf.shape)}",
        f"{theirs.get('dtype')}{theirs.get('shape')}" if "dtype" in theirs else str(other)[:200],
    )
    if expected == got:
        return None
    return WrongMeta(case=label, output=0, expected=expected, found=got)


def _compare_plain(label: str, leaf: object, other: JSON) -> Failure | None:
    """Numbers by value, anything else by its literal."""
    text = str(other.get("literal")) if isinstance(other, dict) else str(other)
    if text == repr(leaf):
        return None
    try:
        number = float(text) if text not in ("True", "False") else float(text == "True")
    except ValueError:
        return WrongMeta(case=label, output=0, expected=repr(leaf)[:200], found=text[:200])
    if not isinstance(leaf, NUMBERS) or isinstance(leaf, bool) != (text in ("True", "False")):
        return WrongMeta(case=label, output=0, expected=repr(leaf)[:200], found=text[:200])
    if isinstance(leaf, float) and math.isclose(leaf, number, rel_tol=SAME_NUMBER):
        return None
    return Mismatch(
        case=label,
        output=0,
        norm_error=math.inf,
        norm_allowed=0.0,
        element_error=math.inf,
        element_allowed=0.0,
        first_index=(),
        expected=float(cast("float", leaf)),
        found=number,
        wrong_share=1.0,
        pattern="all",
    )
