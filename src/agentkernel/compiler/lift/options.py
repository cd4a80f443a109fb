"""In which ways may each launch of TorchInductor's wrapper be done?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentkernel.compiler.lift.code import InductorCode, InductorKernel, LaunchConfig
from agentkernel.compiler.lift.steps import Launch, Unliftable, Wrapper


@dataclass(frozen=True)
class LaunchOption:
    """A kernel with one of its configurations."""

    kernel: InductorKernel
    config: LaunchConfig


def options_of(code: InductorCode, wrapper: Wrapper) -> dict[str, tuple[LaunchOption, ...]]:
    """Launched name -> its options, the one that TorchInductor would try first at the front.

    Where the wrapper chooses among several kernels at run time, their options follow each other.
    """
    kernels = {kernel.variable: kernel for kernel in code.kernels}
    found: dict[str, tuple[LaunchOption, ...]] = {}
    for step in wrapper.steps:
        if isinstance(step, Launch) and step.kernel not in found:
            names = wrapper.choices.get(step.kernel, (step.kernel,))
            known = [kernels[name] for name in names if name in kernels]
            found[step.kernel] = tuple(
                LaunchOption(kernel, config) for kernel in known for config in kernel.configs
            )
            if not found[step.kernel]:
                raise Unliftable(f"no way to launch {step.kernel} is known")
    return found


def chosen_options(
    options: Mapping[str, tuple[LaunchOption, ...]], choices: Mapping[str, int]
) -> dict[str, LaunchOption]:
    """One option a launched name: number `choices[name]`, else the first."""
    return {name: items[choices.get(name, 0)] for name, items in options.items()}
