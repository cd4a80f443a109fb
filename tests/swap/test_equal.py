from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import agentkernel
from agentkernel.domain.errors import KernelRefused
from agentkernel.swap import swap
from agentkernel.swap.kernel import graph_of, match_module
from agentkernel.swap.swap import apply, apply_all, apply_equal, counts
from agentkernel.tools.problem.loading import load_problem
from tests.swap.applied_kernels import HEAD, block, example, make_kernel, norm_kernel

SCALED = (
    HEAD
    + """        self.weight = nn.Parameter(torch.empty(8))

    def forward(self, x):
        return x * self.weight * 2.0
"""
)


class Scaled(nn.Module):
    """Twice a weight, with a table that no state_dict has."""

    def __init__(self, table: float = 1.0, kind: str = "gelu", name: str = "weight") -> None:
        super().__init__()
        self.kind, self.name = kind, name
        setattr(self, name, nn.Parameter(torch.randn(8)))
        self.register_buffer("table", torch.full((8,), table), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = x * getattr(self, self.name) * self.table
        return scaled if self.kind == "none" else getattr(nn.functional, self.kind)(scaled)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (nn.LayerNorm(8, eps=1.0), "eps is 1.0, verified for 1e-05"),
        (nn.LayerNorm(8, elementwise_affine=False), "weight is None, verified for operand p0"),
        (nn.LayerNorm(8).half(), r"weight is float16\[8\], verified for float32\[8\]"),
        (nn.RMSNorm(8), "it computes rms_norm where layer_norm was verified"),
        (nn.Linear(4, 4), "it has no graph on the verified inputs"),
        (nn.Bilinear(4, 4, 4), r"its forward\(input1.* does not take the verified inputs: missing"),
    ],
)
def test_another_module_is_refused_with_the_difference(other: nn.Module, words: str) -> None:
    model = nn.ModuleDict({"norm": nn.LayerNorm(8), "other": other.train()})
    with pytest.raises(KernelRefused, match=words) as caught:
        apply_equal(model, {"norm": norm_kernel(), "other": norm_kernel()})
    assert "\n" not in str(caught.value)
    assert counts(model) == {}
    assert other.training


def test_constants_and_operators_are_compared() -> None:
    kernel = make_kernel(SCALED, Scaled())
    for other, words in (
        (Scaled(2.0), r"other is a constant float32\[8\]"),
        (Scaled(kind="relu"), "it computes relu where gelu was verified"),
        (Scaled(kind="none"), "it computes 2 operations, verified for 3"),
    ):
        with pytest.raises(KernelRefused, match=words):
            apply_equal(other.eval(), {"": kernel})
    renamed = Scaled(name="gain").eval().requires_grad_(False)
    apply_equal(renamed, {"": kernel})
    x = example()
    assert torch.equal(renamed(x), x * renamed.gain * 2.0)


def test_every_equal_module_gets_the_kernel() -> None:
    model = block()
    model.last.eps = 1e-3
    model.mlp.inner = nn.LayerNorm(8).eval()
    found = apply_all(model, norm_kernel(), "LayerNorm")
    assert (set(found.paths), list(found.refused)) == ({"norm", "mlp.inner"}, ["last"])
    assert "eps is 0.001, verified for 1e-05" in found.refused["last"]
    model(example())
    assert counts(model)["norm"].kernel == 1


def test_nothing_goes_into_what_has_the_kernel() -> None:
    inner = nn.Sequential(nn.LayerNorm(8)).eval()
    assert apply_all(inner, norm_kernel(), "LayerNorm").paths == ("",)


def test_a_copy_of_a_changed_module_has_no_kernel() -> None:
    model = block()
    apply(model, {"norm": norm_kernel()})
    assert list(counts(copy.deepcopy(model))) == ["norm"]
    model.norm.eps = 1.0
    copied = copy.deepcopy(model)
    assert counts(copied) == {}
    assert torch.equal(copied(example()), model(example()))


def test_an_older_record_is_read_from_its_problem(tmp_path: Path) -> None:
    file = tmp_path / "norm.py"
    file.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self, size):\n        super().__init__()\n"
        "        self.ln = nn.LayerNorm(size)\n\n"
        "    def forward(self, x):\n        return self.ln(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 8)]\n\n\n"
        "def get_init_inputs():\n    return [8]\n"
    )
    old = norm_kernel().certificate.evolve(graph=None)
    assert graph_of(old) is None
    problem = load_problem(str(file)).problem
    graph = graph_of(old.evolve(problem=problem))
    assert graph.parameters == ("ln.weight", "ln.bias")
    with pytest.raises(KernelRefused, match="verified for '0123456789abcdef'"):
        apply_equal(block().norm, {"": norm_kernel().evolve(certificate=old)})


def test_all_of_a_model_from_python() -> None:
    assert agentkernel.apply_all is agentkernel.api.apply_all


def test_a_kernel_that_runs_already_is_no_part_of_what_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cell of a notebook that is run again; the captured forward would call the kernel's own
    stand-in, without end where the module takes keywords."""
    model, seen = block(), []

    def match(module: nn.Module, *args: object, **kwargs: object) -> object:
        seen.append([type(item).__name__ for item in module.modules() if swap.swap_of(item)])
        return match_module(module, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(swap, "match_module", match)
    for _ in range(2):
        apply_equal(model, {"norm": norm_kernel()})
    assert seen == [[], []]
    model(example(0))
    assert counts(model)["norm"].kernel == 1
