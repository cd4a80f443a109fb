"""Is what the compiler coder writes right, by the judge's own rule, in every form?"""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import partitions
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import families
from tests.compiler.forms import FORMS, small
from tests.compiler.sandboxed_drop_in import Sandboxed, assert_close, sandboxed

FAMILIES = families()


def _accepted(name: str, form: str) -> None:
    module, inputs = FAMILIES[name]
    loaded = problem_from_module(module.eval(), inputs)
    captured = capture(loaded)
    compiled = partitions(loaded, captured, "mixed")[0]
    source = compiled.write(small(compiled, form))
    settings = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=2.0)
    verdict = judge(loaded, captured, source.text, settings)
    assert verdict.accepted, f"{verdict.failure}\n{source.text}"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandboxed]:
    with sandboxed() as found:
        yield found


def _close(box: Sandboxed, name: str, form: str) -> None:
    module, inputs = FAMILIES[name]
    loaded = problem_from_module(module.eval(), inputs)
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    text = compiled.write(small(compiled, form)).text
    assert_close(box.call(text, module, inputs), module, inputs, text)


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
    loaded = problem_from_module(module.eval(), [x])
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    far = torch.randn(x.shape) + 1e4
    (found,) = box.call(compiled.write(small(compiled, form)).text, module, [far])
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
    captured = capture(loaded)
    assert len(captured.free_dims) == 2
    compiled = partitions(loaded, captured, "mixed")[0]
    text = compiled.write(small(compiled, "looped")).text
    settings = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=2.0)
    verdict = judge(loaded, captured, text, settings)
    assert verdict.accepted, f"{verdict.failure}\n{text}"


@pytest.mark.quick(1)
@pytest.mark.parametrize(("rows", "columns"), [(1, 24), (3, 1), (1, 1)])
def test_the_epilogue_of_a_thin_product_stays_inside_its_bias(rows: int, columns: int) -> None:
    module = nn.Sequential(nn.Linear(16, columns), nn.SiLU()).eval()
    loaded = problem_from_module(module, (torch.randn(rows, 16),))
    captured = capture(loaded)
    compiled = partitions(loaded, captured, "mixed")[0]
    text = compiled.write(small(compiled, "looped")).text
    settings = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=1.0)
    verdict = judge(loaded, captured, text, settings)
    assert verdict.accepted, f"{verdict.failure}\n{text}"


class NormedConvolution(nn.Module):
    """A convolution whose input lies channels-last in memory, and so does what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(6), nn.Conv2d(6, 5, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(self.norm(x).permute(0, 3, 1, 2)).relu()
        return result


def test_a_kernel_reads_what_a_convolution_gives_in_whatever_layout(box: Sandboxed) -> None:
    module, inputs = NormedConvolution().eval(), (torch.randn(2, 7, 9, 6),)
    loaded = problem_from_module(module, inputs)
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    text = compiled.write(small(compiled, "looped")).text
    assert_close(box.call(text, module, inputs), module, inputs, text)
    module.conv.weight.data = module.conv.weight.data.contiguous(memory_format=torch.channels_last)
    assert_close(box.call(text, module, inputs), module, inputs, text)


class Channelled(nn.Module):
    """A product over channels that come first: its rows run over images and places."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.body((2.0 * x).transpose(1, 2))
        return result


@pytest.mark.quick(1)
@pytest.mark.parametrize("images", [1, 3])
def test_rows_over_several_transposed_matrices_are_the_right_ones(
    box: Sandboxed, images: int
) -> None:
    module, inputs = Channelled().eval(), (torch.randn(images, 8, 21),)
    loaded = problem_from_module(module, inputs)
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    text = compiled.write(small(compiled, "looped")).text
    assert "linear_kernel" in text
    assert_close(box.call(text, module, inputs), module, inputs, text)
