"""Layers of one kind launch the same kernels, and what differs stays apart."""

from __future__ import annotations

import ast

import torch
from torch import nn

from agentkernel.compiler.drop_in.shared_kernels import renamed, same_but_for_names
from agentkernel.compiler.kernel import KernelCode
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.first_drafts import drafted

TEXT = """@triton.jit
def {name}(x_ptr, {out}_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {value} = tl.load(x_ptr + at, mask=at < n)
    tl.store({out}_ptr + at, {value} * {factor}, mask=at < n)
"""


def code(name: str, out: str, value: str, factor: str) -> KernelCode:
    text = TEXT.format(name=name, out=out, value=value, factor=factor)
    return KernelCode(text, (name,), (f"{name}[(1,)](x, {out}, 4, BLOCK=4)",), frozenset())


def test_names_do_not_tell_kernels_apart_and_numbers_do() -> None:
    first = code("a_kernel", "a", "x_1", "2.0")
    assert same_but_for_names(first, code("b_kernel", "b", "row", "2.0"))
    assert not same_but_for_names(first, code("a_kernel", "a", "x_1", "3.0"))


def test_constants_keep_their_names() -> None:
    """A launch gives them by name."""
    one = code("a_kernel", "a", "x_1", "2.0")
    other = KernelCode(one.source.replace("BLOCK", "WIDTH"), one.kernels, one.launch, one.helpers)
    assert not same_but_for_names(one, other)


def test_a_launch_gets_the_other_name_and_no_text() -> None:
    found = renamed(code("b_kernel", "b", "x", "2.0"), {"b_kernel": "a_kernel"})
    assert (found.source, found.kernels) == ("", ())
    assert found.launch == ("a_kernel[(1,)](x, b, 4, BLOCK=4)",)


class Layers(nn.Module):
    """Three alike, and one with another epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(96, eps=e) for e in (1e-5, 1e-5, 1e-5, 1e-3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm in self.norms:
            x = torch.sort(norm(x), -1).values
        return x


def test_layers_of_one_kind_have_one_kernel() -> None:
    source = drafted(problem_from_module(Layers(), (torch.randn(8, 96),)), "row")
    tree = ast.parse(source)
    kernels = [x.name for x in tree.body if isinstance(x, ast.FunctionDef) and x.decorator_list]
    launches = [
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name)
    ]
    assert len(launches) == 4
    assert len(set(launches)) == 2
    assert set(launches) <= set(kernels)
