"""The error of fp32 products as products of fp16 planes, against fp64 and against their bound.

python benchmarks/precision/planes.py [--depths 64 1000 ...] [--kernel 64] [--svg docs/planes.svg]

The arithmetic is emulated in torch on the CPU (`plane_arithmetic.py`); up to a depth of `--kernel`
the emitted kernel runs as well, in Triton's interpreter in the sandbox. docs/planes.md quotes the
tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from plane_arithmetic import STEP, U, bound, planes_of, product

from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.schedules import BLOCK
from agentkernel.compiler.products.spec import GemmSpec
from agentkernel.tools.charts.chart import Axis, Chart, Limit, Tick, joined
from agentkernel.tools.charts.svg import Frame, svg_file
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import open_worker

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DEPTHS = (64, 1000, 4096, 16384)
WORST = 1 + 2.0**-11 - 3 * 2.0**-23
"""Of the largest residuals one whose low plane rounds towards 0: what the split loses and what is
dropped have one sign."""
KINDS = (
    "normal", "uniform", "lognormal 2", "lognormal 4", "wide", "adversarial", "small rows",
    "small both",
)  # fmt: skip
LAUNCH = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK, "BLOCK_K": STEP, "GROUP_M": 8, "SPLIT_K": 1}
LAUNCH |= {"PLANES": 1, "num_warps": 8, "num_stages": 3}


def rows(kind: str, depth: int, seed: int) -> torch.Tensor:
    """fp32 [128, depth] of one of KINDS."""
    torch.manual_seed(seed)
    shape = (BLOCK, depth)
    if kind.startswith("lognormal"):
        return torch.exp(float(kind.split()[1]) * torch.randn(shape))
    if kind == "wide":
        return torch.exp2(40 * torch.rand(shape) - 20) * torch.randn(shape).sign()
    if kind == "adversarial":
        return WORST * torch.exp2(torch.randint(4, shape).float())
    if kind.startswith("small") and (kind == "small both" or seed % 2 == 0):
        x = 2.0**-34 * (1 + 2.0**-5 + 2.0**-6 * torch.rand(shape))
        x[0] = 1.0
        return x
    return torch.rand(shape) if kind == "uniform" else torch.randn(shape)


class Row(NamedTuple):
    """Errors at one depth: the largest of an element over its sum |a b|, and norm-wise."""

    kind: str
    depth: int
    marked: float
    """The part of the blocks that are."""
    fp32: float
    planes: float
    bound: float
    fp32_norm: float
    planes_norm: float


def measure(kind: str, depth: int, multiply: Multiply = product) -> Row:
    """One row of the table, of the emulation or of the kernel."""
    a, b = rows(kind, depth, 0), rows(kind, depth, 1)
    exact, terms = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    errors = [(item - exact).abs() for item in (a @ b.T, multiply(a, b))]
    marked = torch.cat([planes_of(a).marked, planes_of(b).marked]).double().mean()
    of_element = [(item / terms).max() for item in (*errors, bound(a, b))]
    figures = (marked, *of_element, *(item.norm() / exact.norm() for item in errors))
    return Row(kind, depth, *(float(item) for item in figures))


@contextmanager
def kernel() -> Iterator[Multiply]:
    """a @ b.T by the emitted kernel, in the interpreter in the sandbox."""
    spec = GemmSpec(name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float32")
    text = emit_gemm(spec, LAUNCH)
    head = "import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn"
    sizes = ["(m, k), n = a.shape, b.shape[0]", "out = torch.empty((m, n))"]
    body = "\n        ".join([*sizes, *text.launch, "return out"])
    module = f"class ModelNew(nn.Module):\n    def forward(self, a, b):\n        {body}"
    source = "\n\n\n".join([head, *helper_sources(text.helpers), text.source, module])
    build = {"source": source, "init_args": (), "init_kwargs": {}, "seed": 0, "initial": {}}
    with open_worker(device="cpu", interpret=True) as worker:

        def ask(operation: str, **payload: object) -> None:
            reply = worker.call(f"agentkernel.tools.judge.worker:{operation}", payload, 300.0)
            if isinstance(reply, WorkerFailed):
                raise RuntimeError(reply.log)

        def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            shared = [worker.share(item) for item in (a, b, torch.empty(len(a), len(b)))]
            ask("run", inputs=shared[:2], outputs=shared[2:], order="shuffled")
            found = worker.shared(shared[2]).clone()
            worker.release(shared)
            return found

        ask("build", **build, unnamed_dot_allowed=False)
        ask("adopt", state={})
        yield multiply


def table(measured: list[Row]) -> Iterator[str]:
    """The rows as Markdown."""
    yield "| rows | K | marked | fp32 | planes | bound | fp32, norm | planes, norm |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind, depth, marked, *figures in measured:
        words = " | ".join(f"{figure:.1e}" for figure in figures)
        yield f"| {kind} | {depth:,} | {marked:.0%} | {words} |"


def picture(measured: list[Row]) -> str:
    """Errors over K as SVG."""
    normal = [row for row in measured if row.kind == "normal"]
    worst = [row for row in measured if row.kind == "adversarial"]
    lines = (
        joined("planes, adversarial rows", "c1", [(row.depth, row.planes) for row in worst]),
        joined("planes, normal rows", "kernel", [(row.depth, row.planes) for row in normal]),
        joined("fp32, normal rows", "eager", [(row.depth, row.fp32) for row in normal]),
    )
    limits = (
        Limit("K u, of fp32 in any order", tuple((row.depth, row.depth * U) for row in normal)),
        Limit("bound of planes", tuple((row.depth, row.bound) for row in normal)),
    )
    title = "Largest error of an element over its sum |a b|, emulated on the CPU"
    ticks = tuple(Tick(float(row.depth), f"{row.depth:,}") for row in normal)
    across = Axis(normal[0].depth, max(normal[-1].depth, 2 * normal[0].depth), "K", marked=ticks)
    chart = Chart(title, across, Axis(1e-8, 1e-3), lines, limits)
    return svg_file(title, [chart], Frame(640, 300, left=64, right=30, top=18))


def main() -> None:
    """Measure, print, and draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="values of K")
    parser.add_argument("--kernel", type=int, default=0, help="run the kernel up to this K")
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    asked = parser.parse_args()
    cases = [(kind, depth) for kind in KINDS for depth in asked.depths]
    measured = [measure(*case) for case in cases]
    print(f"Emulated on the CPU, torch {torch.__version__}:", *table(measured), sep="\n")
    small = [case for case in cases if case[1] <= asked.kernel]
    if small:
        with kernel() as multiply:
            run = [measure(*case, multiply) for case in small]
        print("\nThe kernel in Triton's interpreter:", *table(run), sep="\n")
    if asked.svg:
        asked.svg.write_text(picture(measured))


if __name__ == "__main__":
    main()
