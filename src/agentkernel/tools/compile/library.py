"""Which torch ops does a forward call beside its own kernels, and what do they cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.domain.profile import OpCost
from agentkernel.tools.roofline.op_cost import is_free, op_cost

ATTENTION_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class OpRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the cost of every torch op that does device work; views and allocations do none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.costs: list[OpCost] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if not is_free(func):
            self.costs.append(op_cost(func, args, out, _whole))
        return out


class WholeAttention(TorchFunctionMode):
    """Notes attention as the one library kernel that it is on a GPU, not as its parts on meta."""

    def __init__(self, costs: list[OpCost]) -> None:
        super().__init__()
        self._costs = costs

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        before = len(self._costs)
        out = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            named = dict(zip(ATTENTION_PARAMETERS, args, strict=False)) | dict(kwargs or {})
            values = [named.get(name) for name in ATTENTION_PARAMETERS]
            attention = torch.ops.aten.scaled_dot_product_attention.default
            self._costs[before:] = [op_cost(attention, values, out, _whole)]
        return out


@contextmanager
def record_library() -> Iterator[list[OpCost]]:
    """Note the torch ops of the block in the order of the calls."""
    recorder = OpRecorder()
    with recorder, WholeAttention(recorder.costs):
        yield recorder.costs


def _whole(size: object) -> int:
    return int(size)  # type: ignore[call-overload, no-any-return]
