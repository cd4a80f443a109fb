from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.domain.errors import KernelRefused, ProblemError
from agentkernel.domain.region import Kernel
from agentkernel.swap.swap import apply, counts
from tests.swap.applied_kernels import (
    HEAD,
    NORM,
    VERSIONS,
    Block,
    block,
    make_kernel,
    mlp_kernel,
    norm_kernel,
)

STOPS = "raise SystemExit('must not run')\n"


def certificate_with(kernel: Kernel, **verdict: object) -> Kernel:
    old = kernel.certificate
    new = old.evolve(verdict=old.verdict.evolve(**verdict))
    return kernel.evolve(certificate=new)


def without_verdict(kernel: Kernel) -> Kernel:
    bare = kernel.certificate.evolve(verdict=None)
    return kernel.evolve(certificate=bare)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (norm_kernel(withdrawn="does not verify"), "is withdrawn: does not verify"),
        (norm_kernel(source=STOPS).evolve(source=STOPS + NORM), "has changed"),
        (
            norm_kernel().evolve(certificate=mlp_kernel().certificate),
            "certificate of another text",
        ),
        (certificate_with(norm_kernel(), accepted=False), "was not accepted"),
        (certificate_with(norm_kernel(), candidate="0" * 64), "of another text"),
        (without_verdict(norm_kernel()), "was not accepted"),
        (norm_kernel(source="import nowhere_at_all\n"), "raised ModuleNotFoundError when imported"),
        (norm_kernel(source="x = 1\n"), "raised AttributeError when imported"),
        (
            norm_kernel(source=NORM.replace("__init__(self)", "__init__(self, size)")),
            "cannot be built: ",
        ),
        (norm_kernel(parameters=("weight",)), "parameters and this use names 2"),
        (norm_kernel(input_strides=((8, 1), None)), "has 1 inputs and strides for 2"),
    ],
)
def test_an_unproven_kernel_is_refused_in_one_line(kernel: Kernel, words: str) -> None:
    model = block()
    with pytest.raises(KernelRefused) as caught:
        apply(model, {"mlp": mlp_kernel(), "norm": kernel}, {"norm": ("weight", "bias")})
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert "Next: " in text
    assert counts(model) == {}, "all of them or none"
    assert type(model.mlp).__name__ == "Mlp"


def test_a_text_with_two_readings_is_refused() -> None:
    kernel = norm_kernel(source="# coding: latin-1\n" + STOPS)
    with pytest.raises(KernelRefused, match="coding line"):
        apply(Block(), {"norm": kernel})


def test_names_that_are_not_there() -> None:
    with pytest.raises(KernelRefused, match=r"reads 'scale', which LayerNorm does not have"):
        apply(block(), {"norm": norm_kernel()}, {"norm": ("scale", "bias")})
    with pytest.raises(KernelRefused, match=r"reads 'up.scale', which Mlp"):
        apply(block(), {"mlp": norm_kernel()}, {"mlp": ("up.scale", "bias")})


def test_tensors_that_do_not_fit() -> None:
    model = block().half()
    with pytest.raises(KernelRefused, match=r"is float16\[8\]. Expected float32\[8\]"):
        apply(model, {"norm": norm_kernel()})
    turned = nn.Linear(8, 8, bias=False).eval().requires_grad_(False)
    source = (
        HEAD
        + """        self.weight = nn.Parameter(torch.empty(8, 8))

    def forward(self, x):
        return x @ self.weight.t()
"""
    )
    kernel = make_kernel(source, turned)
    apply(turned, {"": kernel})
    turned.weight = nn.Parameter(turned.weight.t(), requires_grad=False)
    with pytest.raises(KernelRefused, match=r"with strides \[1, 8\]. Expected float32\[8, 8\]"):
        apply(turned, {"": kernel})
    apply(turned, {"": kernel.evolve(parameter_strides=((1, 8),))})


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(ProblemError, match=r"no submodule 'nrm'.*the nearest is 'norm'"):
        apply(block(), {"nrm": norm_kernel()})
    with pytest.raises(ProblemError, match=r"no submodule 'norm.weight'"):
        apply(block(), {"norm.weight": norm_kernel()})


def test_one_module_under_two_names() -> None:
    model: Block = block()
    model.last = model.norm
    with pytest.raises(ProblemError, match="'last' is the same module as 'norm'"):
        apply(model, {"norm": norm_kernel(), "last": norm_kernel()})


def test_an_instance_with_its_own_forward() -> None:
    model = block()
    model.norm.forward = torch.sin  # type: ignore[method-assign]
    with pytest.raises(KernelRefused, match="a forward of its own"):
        apply(model, {"norm": norm_kernel()})
    assert VERSIONS.torch
