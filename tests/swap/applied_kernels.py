"""Kernels with certificates, written in plain torch, that tests put into models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import nn

from agentkernel.domain.base import sha256_text
from agentkernel.domain.certificate import Certificate, ModuleGraph, Versions
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.region import Kernel, KernelKey
from agentkernel.domain.verdict import CaseResult, Verdict
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.problem.module_graph import problem_graph

VERSIONS = Versions(agentkernel="0", python="3", torch="2", triton="3", platform="linux")

HEAD = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
"""

NORM = (
    HEAD
    + """        self.weight = nn.Parameter(torch.empty(8))
        self.bias = nn.Parameter(torch.empty(8))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-05)
        return centred * scale * self.weight + self.bias
"""
)

MLP = (
    HEAD
    + """        self.up = nn.Module()
        self.up.weight = nn.Parameter(torch.empty(16, 8))
        self.up.bias = nn.Parameter(torch.empty(16))
        self.down = nn.Module()
        self.down.weight = nn.Parameter(torch.empty(8, 16))
        self.down.bias = nn.Parameter(torch.empty(8))

    def forward(self, x):
        inner = torch.nn.functional.gelu(x @ self.up.weight.t() + self.up.bias)
        return inner @ self.down.weight.t() + self.down.bias
"""
)

RAISES = (
    HEAD
    + """        self.weight = nn.Parameter(torch.empty(8))
        self.bias = nn.Parameter(torch.empty(8))

    def forward(self, x):
        raise RuntimeError("out of registers")
"""
)

TRITON = '''import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, output_ptr, SIZE: tl.constexpr):
    """A row a program."""
    col = tl.arange(0, SIZE)
    place = tl.program_id(0) * SIZE + col
    x = tl.load(x_ptr + place)
    centred = x - tl.sum(x, axis=0) / SIZE
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / SIZE + 1e-05)
    output = centred * scale * tl.load(weight_ptr + col) + tl.load(bias_ptr + col)
    tl.store(output_ptr + place, output)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8))
        self.bias = nn.Parameter(torch.empty(8))

    def forward(self, x):
        output = torch.empty_like(x)
        layer_norm_kernel[(x.shape[0],)](x, self.weight, self.bias, output, SIZE=8)
        return output
'''

WRONG = NORM.replace("+ self.bias", "+ self.bias + 0.25")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    """A norm, an MLP and a second norm around residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = Mlp()
        self.last = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x + self.mlp(self.norm(x)))


def block(seed: int = 0) -> Block:
    torch.manual_seed(seed)
    model = Block().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter))
    return model


def example(seed: int = 0, batch: int = 4) -> torch.Tensor:
    return torch.randn(batch, 8, generator=torch.Generator().manual_seed(seed))


def _graph(loaded: LoadedProblem) -> ModuleGraph | None:
    try:
        return problem_graph(loaded, capture(loaded))
    except (ProblemError, TypeError):  # a module that no deepcopy takes has none either
        return None


@cache
def _graph_of(make: Callable[[], nn.Module]) -> ModuleGraph | None:
    """That of the module on the usual example, captured once: many tests ask for it."""
    return _graph(problem_from_module(make(), (example(),)))


def _case(shapes: str) -> CaseResult:
    return CaseResult(
        label=shapes, seed=0, distribution="normal", shapes=shapes, norm_error=0.0,
        eager_norm_error=0.0, element_error=0.0, eager_element_error=0.0, passed=True,
    )  # fmt: skip


def make_kernel(
    source: str,
    module: nn.Module,
    *inputs: object,
    graph: ModuleGraph | None = None,
    parameters: tuple[str, ...] | None = None,
    signature: str = "0123456789abcdef",
    judged: Sequence[str] = (),
    **more: object,
) -> Kernel:
    """A kernel that the judge would have accepted for `module` on `inputs`; `graph` is that of the
    module where it is known, `judged` the shapes that the judge asked it at."""
    loaded = problem_from_module(module, inputs or (example(),))
    problem = loaded.problem
    sha = sha256_text(source)
    verdict = Verdict(
        candidate=sha, problem=problem.sha256, accepted=True, interpreted=True, device="cpu",
        gate="accepted", cases=tuple(map(_case, judged)),
    )  # fmt: skip
    certificate = Certificate(
        run="run-1", created="2026-01-01T00:00:00Z", status="verified", reason="accepted",
        basis="estimated", problem=problem, problem_sha256=problem.sha256,
        candidate_source=source, candidate_sha256=sha, target="h100-sxm", plan=None,
        verdict=verdict, profile=None, versions=VERSIONS, judge_sha256="",
        graph=graph or _graph(loaded),
    )  # fmt: skip
    names = tuple(module.state_dict()) if parameters is None else parameters
    key = KernelKey(signature=signature, gpu="estimated:h100-sxm", torch="2", triton="3")
    return Kernel(
        key=key, sha256=sha, source=source, parameters=names, certificate=certificate,
        run="run-1", created="2026-01-01T00:00:00Z", basis="estimated",
    ).evolve(**more)  # fmt: skip


def _norm() -> nn.Module:
    return nn.LayerNorm(8)


def norm_kernel(source: str = NORM, **more: object) -> Kernel:
    return make_kernel(source, _norm(), graph=_graph_of(_norm), **more)  # type: ignore[arg-type]


def mlp_kernel(**more: object) -> Kernel:
    return make_kernel(MLP, Mlp(), graph=_graph_of(Mlp), **more)  # type: ignore[arg-type]


BLOCK = (
    HEAD
    + """        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Module()
        self.mlp.up = nn.Linear(8, 16)
        self.mlp.down = nn.Linear(16, 8)
        self.last = nn.LayerNorm(8)

    def forward(self, x):
        inner = torch.nn.functional.gelu(self.mlp.up(self.norm(x)))
        return self.last(x + self.mlp.down(inner))
"""
)
WRONG_BLOCK = BLOCK.replace("return self", "return 0.25 + self")


def block_kernel(source: str = BLOCK, **more: object) -> Kernel:
    """For the whole model."""
    return make_kernel(source, Block(), graph=_graph_of(Block), **more)  # type: ignore[arg-type]
