"""Which torch ops does a forward call beside its own kernels, and what do they cost?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.domain.profile import OpCost
from agentkernel.tools.op_cost import is_free, op_cost


class LibraryRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
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
            self.costs.append(op_cost(func, args, out, lambda size: int(size)))  # type: ignore[call-overload]
        return out
