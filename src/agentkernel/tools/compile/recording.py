"""Recording of a forward without a GPU: its kernel launches and its torch operators.

Code that expects a GPU runs its host side on tensors without storage. Launches are recorded and
nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, create_function_from_signature

from agentkernel.domain.profile import OpCost
from agentkernel.domain.target import Target
from agentkernel.tools.roofline.op_cost import is_free, op_cost


class OnMeta(TorchFunctionMode):
    """Sends tensors that are asked for on "cuda" to "meta"."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if getattr(func, "__name__", "") == "cuda" and args and isinstance(args[0], torch.Tensor):
            return args[0].to("meta")
        moved = {key: _on_meta(value) for key, value in (kwargs or {}).items()}
        return func(*[_on_meta(value) for value in args], **moved)


def _on_meta(value: object) -> object:
    if isinstance(value, torch.device):
        return torch.device("meta") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "meta"
    return value


class PretendDriver:
    """Answers as Triton's driver would on `target`; launches nothing."""

    def __init__(self, target: Target, gpu: GPUTarget) -> None:
        self._gpu = gpu
        properties = {
            "multiprocessor_count": int(target.sm_count.value),
            "max_shared_mem": int(target.shared_kb_per_block.value * 1024),
            "max_num_regs": int(target.registers_per_sm.value),
            "warpSize": target.warp_size,
            "sm_clock_rate": int(target.clock_mhz.value * 1000),
        }
        self.utils = SimpleNamespace(get_device_properties=lambda device: properties)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int | None = None) -> int:
        """The default stream."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """The target that kernels are compiled for."""
        return self._gpu

    def get_active_torch_device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("meta")


def gpu_target(target: Target) -> GPUTarget:
    """Triton's name for `target`."""
    if target.vendor == "amd":
        return GPUTarget("hip", target.arch, target.warp_size)
    return GPUTarget("cuda", int(target.arch), target.warp_size)


@contextmanager
def pretend_gpu(target: Target) -> Iterator[None]:
    """In the block torch and Triton speak of `target`, and new tensors have no storage."""
    gpu = gpu_target(target)
    with ExitStack() as stack:
        for name, value in cuda_answers(target).items():
            stack.enter_context(_replaced(torch.cuda, name, value))
        stack.enter_context(_replaced(driver, "_active", PretendDriver(target, gpu)))
        stack.enter_context(_replaced(torch.Tensor, "is_cuda", property(lambda self: True)))
        stack.enter_context(torch.device("meta"))
        stack.enter_context(OnMeta())
        yield


def cuda_answers(target: Target) -> dict[str, object]:
    """What `torch.cuda` would say of `target`."""
    capability = target.capability or (9, 4)
    properties = SimpleNamespace(
        name=target.title,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=int(target.sm_count.value),
        total_memory=int(target.dram_gb.value * 1e9),
        warp_size=target.warp_size,
        L2_cache_size=int(target.l2_mb.value * 2**20),
        shared_memory_per_block_optin=int(target.shared_kb_per_block.value * 1024),
        shared_memory_per_multiprocessor=int(target.shared_kb_per_sm.value * 1024),
        regs_per_multiprocessor=int(target.registers_per_sm.value),
        max_threads_per_multi_processor=int(target.threads_per_sm.value),
        gcnArchName=target.arch,
    )
    return {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "synchronize": lambda device=None: None,
        "device": nullcontext,
        "get_device_name": lambda device=None: target.title,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: properties,
    }


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    own = vars(owner).get(name)
    had = name in vars(owner)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, own)
        else:
            delattr(owner, name)


if TYPE_CHECKING:
    Grid = Sequence[int] | Callable[[Mapping[str, object]], Sequence[int]]


@dataclass(frozen=True)
class Launch:
    """One launch as the JIT would compile it: signature, constants and alignment included."""

    name: str
    source: ASTSource
    options: Mapping[str, object]
    grid: tuple[int, int, int]
    constants: dict[str, int | float | bool | str]
    num_warps: int
    num_stages: int
    bytes_touched: int
    key: str
    """Launches with one key are the same binary."""
    function_source: str


@contextmanager
def record_launches(target: GPUTarget) -> Iterator[list[Launch]]:
    """Note every Triton launch in the block, specialised for `target`, instead of doing it.

    `@triton.autotune` takes its first configuration, since there is nothing to time.
    """
    launches: list[Launch] = []
    backend = make_backend(target)
    binders: dict[int, Callable[..., object]] = {}

    def run(self: JITFunction, *args: object, grid: Grid, warmup: bool, **kwargs: object) -> None:
        kwargs["debug"] = False
        if id(self) not in binders:
            binders[id(self)] = create_function_from_signature(self.signature, self.params, backend)
        launch = _bind(self, backend, binders[id(self)], args, kwargs, () if warmup else grid)
        if not warmup:
            launches.append(launch)

    previous_run, previous_tune = JITFunction.run, Autotuner.run
    JITFunction.run, Autotuner.run = run, _first_configuration
    try:
        yield launches
    finally:
        JITFunction.run, Autotuner.run = previous_run, previous_tune


def _first_configuration(self: Autotuner, *args: object, **kwargs: object) -> None:
    config = self.configs[0]
    settings = config.all_kwargs()
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **settings})
    self.fn.run(*args, **kwargs, **settings)


def _bind(
    function: JITFunction,
    backend: object,
    binder: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    grid: Grid,
) -> Launch:
    """Arguments to signature, by the JIT's own binder: 16-divisibility, ones as constants."""
    bound, specialization, options = cast(
        "tuple[dict[str, object], list[object], object]", binder(*args, **kwargs)
    )
    parsed, signature, constexprs, attrs = function._pack_args(
        backend, kwargs, bound, specialization, options
    )
    names = [parameter.name for parameter in function.params]
    constants = {
        names[path[0]]: _plain(value) for path, value in constexprs.items() if len(path) == 1
    }
    blocks = [int(size) for size in (grid(bound) if callable(grid) else grid)]
    key = f"{function.cache_key} {signature} {constexprs} {attrs} {parsed}"
    return Launch(
        name=function.__name__,
        source=ASTSource(function, signature, constexprs, attrs),
        options=parsed.__dict__,
        grid=cast("tuple[int, int, int]", tuple([*blocks, 1, 1, 1][:3])),
        constants=constants,
        num_warps=parsed.num_warps,
        num_stages=parsed.num_stages,
        bytes_touched=bytes_touched(bound.values()),
        key=key,
        function_source=function.src,
    )


def _plain(value: object) -> int | float | bool | str:
    return value if isinstance(value, int | float | bool | str) else str(value)


def bytes_touched(values: object) -> int:
    """Bytes behind the distinct tensors in `values`: for each storage what its views cover."""
    views: dict[int, dict[tuple[object, ...], int]] = {}
    whole: dict[int, int] = {}
    for tensor in _tensors(values):
        storage = tensor.untyped_storage()
        whole[storage._cdata] = storage.nbytes()
        view = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
        covered = views.setdefault(storage._cdata, {})
        covered[view] = tensor.numel() * tensor.element_size()
    return sum(min(whole[key], sum(covered.values())) for key, covered in views.items())


def _tensors(values: object) -> Iterator[torch.Tensor]:
    for value in cast("Sequence[object]", values):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            yield cast("torch.Tensor", getattr(value, "base"))  # noqa: B009 - a TMA descriptor


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
