"""Library calls in drop-ins: any operator of the graph, several results, fused bias."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.fusion import LibraryStep
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.providers.linear import LinearStep
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import functional
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed

CASES: dict[str, tuple[Callable[..., object], str]] = {
    "two results": (lambda x: x.softmax(-1).sort(-1), "sort, sort_1 = torch.ops.aten.sort"),
    "one of two results": (lambda x: (x * 2).sort(-1)[1] + 1, "_, sort = torch.ops.aten.sort"),
    "what follows from places": (
        lambda x: torch.index_copy(x.exp(), 0, torch.arange(4, device=x.device) * 2 // 2, x[:4]),
        "torch.ops.aten.index_copy.default",
    ),
    "attention of five dimensions": (
        lambda x: F.scaled_dot_product_attention(*(x.exp() * n for n in (1, 2, 3))).relu(),
        "scaled_dot_product_attention(",
    ),
    "a view of a result": (lambda x: x.relu().sort(-1)[0].t().exp(), "torch.ops.aten.sort"),
}


@pytest.mark.parametrize("name", [*CASES])
def test_what_no_template_covers_is_one_call(name: str, box: Sandboxed) -> None:
    function, call = CASES[name]
    sizes = (2, 1, 2, 5, 7) if "five" in name else (5, 7)
    module, x = functional(function), torch.randn(sizes)
    compiled = compiled_graph(module, (x,))
    text = compiled.write(small(compiled, "looped")).text
    assert call in text
    assert any(isinstance(step, LibraryStep) for step in compiled.partition.steps)
    box.check(text, module, (x,))


def test_random_numbers_stay_with_the_original() -> None:
    module = functional(lambda x: torch.ops.aten.bernoulli.default(x.sigmoid()) * 2)
    compiled = compiled_graph(module, (torch.randn(5, 7),))
    with pytest.raises(UnsupportedOp, match="random"):
        compiled.write(small(compiled, "looped"))


class Layers(nn.Module):
    """Linear layers, the first with a ReLU behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()) * x.sigmoid()


def _with_library_products(module: nn.Module, x: torch.Tensor) -> Compiled:
    loaded = problem_from_module(module.eval(), (x,))
    choices = partitions(loaded, capture(loaded), "mixed")
    return next(item for item in choices if not any(map(_is_own, item.partition.steps)))


def _is_own(step: object) -> bool:
    return type(step).__name__ == "ProductStep"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(9, 24), (3, 5, 24)])
def test_bias_and_relu_ride_on_the_library_product(
    dtype: torch.dtype, shape: tuple[int, ...], box: Sandboxed
) -> None:
    module, x = Layers().to(dtype).eval(), torch.randn(shape).to(dtype)
    compiled = _with_library_products(module, x)
    steps = [step for step in compiled.partition.steps if isinstance(step, LinearStep)]
    assert [step.activation for step in steps] == ["relu"]
    text = compiled.write(small(compiled, "looped")).text
    assert "torch.ops.aten._addmm_activation.default" in text
    box.check(text, module, (x,))
