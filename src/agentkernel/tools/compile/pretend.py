"""How can code that expects a GPU run its host side where there is none?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from agentkernel.domain.target import Target


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
