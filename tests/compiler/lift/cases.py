"""Small modules of all kinds, with TorchInductor's code for them and the files lifted from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.drop_in.envelope import eval_only
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.lift.drop_in import lift
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted, find_variant
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, problem_from_module
from agentkernel.tools.problem.specialise import specialise
from tests.compiler.inductor_codes import shared_codes

PROBLEMS = Path(__file__).parent / "problems"
BLOCKS = ("resnet_block", "transformer_block", "selective_scan")
QUICK = ("gelu", "softmax", "conv_norm_relu", "linear_chain", "concatenate", "embedding",
         "max_pool", "rolled", "messages", "resnet_block")  # fmt: skip
"""What `make test` lifts; TorchInductor's code for the others is asked for where it is used."""
Function = Callable[..., object]


class Wrapped(nn.Module):
    """`function` with what it is given as parts."""

    def __init__(self, function: Function, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(self, *inputs)


class Counting(nn.Module):
    """Counts its calls in a buffer, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1.0)
        return x * self.calls


def _modules() -> dict[str, tuple[nn.Module, Sequence[torch.Tensor]]]:
    torch.manual_seed(0)
    draw = torch.randn
    indices = torch.randint(0, 9, (4, 6))
    w = Wrapped
    return {
        "gelu": (w(lambda m, x: F.gelu(x + 1.0)), [draw(33, 65)]),
        "swiglu_bf16": (w(lambda m, x, y: F.silu(x) * y), [draw(8, 40).bfloat16()] * 2),
        "softmax": (w(lambda m, x: x.softmax(-1)), [draw(16, 100)]),
        "softmax_long": (w(lambda m, x: x.softmax(-1)), [draw(3, 3000)]),
        "norm_half": (w(lambda m, x: m.norm(x), norm=nn.LayerNorm(64).half()),
                      [draw(8, 64).half()]),
        "group_norm": (w(lambda m, x: F.silu(m.norm(x)), norm=nn.GroupNorm(2, 8)),
                       [draw(2, 8, 5, 5)]),
        "sum_all": (w(lambda m, x: (x * x).sum()), [draw(300, 301)]),
        "conv_norm_relu": (w(lambda m, x: F.relu(m.norm(m.conv(x))),
                             conv=nn.Conv2d(8, 16, 3, padding=1), norm=nn.BatchNorm2d(16)),
                           [draw(2, 8, 10, 10)]),
        "conv_transposed": (w(lambda m, x: F.leaky_relu(m.conv(x)),
                              conv=nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1)),
                            [draw(2, 8, 5, 5)]),
        "linear_chain": (w(lambda m, x: m.b(F.gelu(m.a(x))),
                           a=nn.Linear(64, 128), b=nn.Linear(128, 64, bias=False)),
                         [draw(32, 64)]),
        "bmm_tanh": (w(lambda m, x, y: torch.tanh(torch.bmm(x, y))),
                     [draw(3, 8, 16), draw(3, 16, 8)]),
        "concatenate": (w(lambda m, x, y: torch.cat([x, y * 2], 1)), [draw(4, 7), draw(4, 9)]),
        "embedding": (w(lambda m, i: m.table(i).relu(), table=nn.Embedding(10, 16)), [indices]),
        "gather": (w(lambda m, x, i: x.gather(1, i)), [draw(4, 9), indices]),
        "messages": (w(lambda m, x, i, j: torch.zeros_like(x).index_add(0, j, x[:, :6]
                       .index_select(0, i).tanh())), [draw(9, 6), *indices.view(2, 12)]),
        "max_pool": (w(lambda m, x: F.max_pool2d(x, 3, 2, 1)), [draw(2, 4, 9, 9)]),
        "nearest": (w(lambda m, x: F.interpolate(x, scale_factor=2.0)), [draw(2, 3, 5, 5)]),
        "running_product": (w(lambda m, x: x.cumprod(-1)), [draw(4, 20)]),
        "argmax": (w(lambda m, x: x.argmax(-1)), [draw(4, 100)]),
        "whole_numbers": (w(lambda m, x: ((x > 3).any(-1), (x // 2).sum(-1), x % 3)),
                          [torch.randint(-9, 9, (4, 50))]),
        "counting": (Counting(), [draw(4, 3)]),
        "argmax_long": (w(lambda m, x: x.argmax(-1)), [draw(4, 3000)]),
        "softmax_split": (w(lambda m, x: x.softmax(-1)), [draw(1, 70000)]),
        "running_long": (w(lambda m, x: x.cumsum(-1)), [torch.randint(-9, 9, (3, 5000))]),
        "bucketize": (w(lambda m, x, y: torch.bucketize(x.contiguous(), y.contiguous())),
                      [draw(8, 40), torch.linspace(-2, 2, 21)]),
        "bilinear": (w(lambda m, x, y: m.a(x, y), a=nn.Bilinear(8, 12, 10)),
                     [draw(16, 8), draw(16, 12)]),
        "rolled": (w(lambda m, x: x.roll((1, 2), (0, 1)) * 2.0), [draw(6, 9)]),
        "label_smoothing": (w(lambda m, x, i: F.cross_entropy(x, i, label_smoothing=0.1)),
                            [draw(24, 9), indices.flatten()]),
    }  # fmt: skip


@dataclass(frozen=True)
class LiftedCase:
    """One module on its way: `code` from TorchInductor, `lifted` from that."""

    loaded: LoadedProblem
    captured: Captured
    code: InductorCode | NotLifted
    lifted: DropInSource | NotLifted

    @property
    def text(self) -> str:
        """The lifted file."""
        assert isinstance(self.lifted, DropInSource), self.lifted
        return self.lifted.text

    @property
    def fixed(self) -> Captured:
        """What a judge of the lifted file varies no size of."""
        return specialise(self.captured)


@functools.cache
def loaded_problems() -> dict[str, LoadedProblem]:
    """Every module as a problem; BLOCKS come from files."""
    found = {name: problem_from_module(module.eval(), inputs)
             for name, (module, inputs) in _modules().items()}  # fmt: skip
    return found | {name: load_problem(str(PROBLEMS / f"{name}.py")) for name in BLOCKS}


@functools.cache
def _lifted_cases(quick: bool) -> dict[str, LiftedCase]:
    """All of QUICK, or all others; one process writes the code of each."""
    names = [name for name in NAMES if (name in QUICK) == quick]
    problems = loaded_problems()
    graphs = {name: capture(problems[name]) for name in names}
    jobs = [(graph, find_variant("default")) for graph in graphs.values()]
    codes = shared_codes("cases_quick" if quick else "cases", jobs)
    return {
        name: _case(problems[name], graphs[name], code)
        for name, code in zip(graphs, codes, strict=True)
    }


def lifted_case(name: str) -> LiftedCase:
    return _lifted_cases(name in QUICK)[name]


def _case(loaded: LoadedProblem, captured: Captured, code: InductorCode | NotLifted) -> LiftedCase:
    if isinstance(code, NotLifted):
        return LiftedCase(loaded, captured, code, code)
    differs = eval_only(loaded, captured)
    lifted = lift(code, loaded, captured, differs_in_training=differs)
    return LiftedCase(loaded, captured, code, lifted)


NAMES = (*_modules(), *BLOCKS)
CASES = tuple(
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NAMES
)
"""NAMES as parameters of a test."""
