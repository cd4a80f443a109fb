"""Drop-ins of the compiler coder are right, by the judge's own rule, in every form."""

import pytest
import torch
from torch import nn

from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import families
from tests.compiler.forms import FORMS, accepted_text, written
from tests.compiler.sandboxed_drop_in import Sandboxed

FAMILIES = families()


def _accepted(name: str, form: str) -> None:
    module, inputs = FAMILIES[name]
    accepted_text(problem_from_module(module.eval(), inputs), form)


def _close(box: Sandboxed, name: str, form: str) -> None:
    module, inputs = FAMILIES[name]
    box.check(written(module, inputs, form), module, inputs)


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("layer_norm", "looped"), ("layer_norm", "split"), ("residual_norm", "persistent"),
        ("strided_softmax", "split"), ("softmax", "looped"), ("cross_entropy", "split"),
        ("label_smoothing", "looped"), ("class_weights", "persistent"), ("group_norm", "looped"),
        ("linear_gelu", "persistent"), ("power", "persistent"), ("maximum", "looped"),
        ("positions", "looped"), ("layer_norm", "single"), ("group_norm", "single"),
        ("residual_norm", "single"), ("cross_entropy", "single"), ("batch_norm", "single"),
    ],
)  # fmt: skip
def test_a_family_is_close_to_fp64(box: Sandboxed, name: str, form: str) -> None:
    _close(box, name, form)


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", ["looped", "split"])
def test_a_spread_far_from_zero_keeps_its_digits(box: Sandboxed, form: str) -> None:
    module, (x,) = FAMILIES["spread"]
    far = torch.randn(x.shape) + 1e4
    (found,) = box.call(written(module, [x], form), module, [far])
    torch.testing.assert_close(found, far.double().std(0).float(), rtol=2e-6, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_is_close_to_fp64_in_every_form(box: Sandboxed, name: str, form: str) -> None:
    _close(box, name, form)


@pytest.mark.parametrize(("name", "form"), [("positions", "looped")])
def test_families_pass_the_judge(name: str, form: str) -> None:
    _accepted(name, form)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_passes_the_judge_in_every_form(name: str, form: str) -> None:
    _accepted(name, form)


class WithSizes(nn.Module):
    """Returns numbers that follow from the sizes beside its tensors, as patch embeddings do."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, int], torch.Tensor]:
        return x.exp(), (x.shape[0], x.shape[1] // 2), x.sum(1)


@pytest.mark.slow
def test_numbers_that_follow_from_the_sizes_are_returned() -> None:
    loaded = problem_from_module(WithSizes().eval(), (torch.randn(6, 9),))
    assert len(capture(loaded).free_dims) == 2
    accepted_text(loaded)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("rows", "columns"), [(1, 24), (3, 1), (1, 1)])
def test_the_epilogue_of_a_thin_product_stays_inside_its_bias(rows: int, columns: int) -> None:
    module = nn.Sequential(nn.Linear(16, columns), nn.SiLU()).eval()
    accepted_text(problem_from_module(module, (torch.randn(rows, 16),)), budget_s=1.0)


class NormedConvolution(nn.Module):
    """A convolution whose input lies channels-last in memory, and so does what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(6), nn.Conv2d(6, 5, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.norm(x).permute(0, 3, 1, 2)).relu()


def test_a_kernel_reads_what_a_convolution_gives_in_whatever_layout(box: Sandboxed) -> None:
    module, inputs = NormedConvolution().eval(), (torch.randn(2, 7, 9, 6),)
    text = written(module, inputs, "looped")
    box.check(text, module, inputs)
    module.conv.weight.data = module.conv.weight.data.contiguous(memory_format=torch.channels_last)
    box.check(text, module, inputs)


class Channelled(nn.Module):
    """A product over channels that come first: its rows run over images and places."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body((2.0 * x).transpose(1, 2))


@pytest.mark.quick(1)
@pytest.mark.parametrize("images", [1, 3])
def test_rows_over_several_transposed_matrices_are_the_right_ones(
    box: Sandboxed, images: int
) -> None:
    module, inputs = Channelled().eval(), (torch.randn(images, 8, 21),)
    text = written(module, inputs, "looped")
    assert "linear_kernel" in text
    box.check(text, module, inputs)
