"""Kernels at other sizes than the declared ones: where the certificate and the module say so."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import agentkernel.swap.swap as swaps
from agentkernel.domain.certificate import ModuleGraph
from agentkernel.domain.region import Kernel
from agentkernel.swap.kernel import match_module
from agentkernel.swap.swap import apply, apply_all, apply_equal, apply_whole, counts
from tests.swap.applied_kernels import HEAD, NORM, WRONG, block, example, make_kernel, norm_kernel

JUDGED = ("float32[4, 8]", "float32[7, 8]")
GUARD = "        if x.shape[0] != 4:\n            raise ValueError('sizes')\n"
RAISES_ELSEWHERE = NORM.replace("        centred", f"{GUARD}        centred", 1)


class Of(nn.Module):
    """`function` of its tensors, whose sizes stay free."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def source(body: str, arguments: str = "x") -> str:
    """A drop-in that returns `body`, and something that tells it from the original."""
    return f"{HEAD}\n    def forward(self, {arguments}):\n        return {body}\n"


def judged_norm(text: str = WRONG, **more: object) -> Kernel:
    return norm_kernel(text, judged=JUDGED, **more)


def ran(model: nn.Module, path: str, *inputs: torch.Tensor) -> bool:
    """Whether the kernel at `path` answers, by its count."""
    before = counts(model)[path].kernel
    model.get_submodule(path)(*inputs)
    return counts(model)[path].kernel == before + 1


def test_a_kernel_runs_at_every_size_that_its_certificate_covers() -> None:
    model = block()
    apply_equal(model, {"norm": judged_norm(NORM)})
    for batch in (4, 2, 9, 1, 4, 1000):
        x = example(batch=batch)
        want = nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias)
        assert torch.allclose(model.norm(x), want, atol=1e-5)
    assert counts(model)["norm"].kernel == 6
    assert not ran(model, "norm", example(batch=0)), "no rows are the original's"
    assert not ran(model, "norm", example().double().float()[None])
    assert counts(model)["norm"].reasons == {"shape": 2}


@pytest.mark.parametrize(
    "kernel",
    [
        norm_kernel(WRONG),
        norm_kernel(WRONG, judged=JUDGED[:1]),
    ],
    ids=["nobody says which sizes were judged", "one size was judged"],
)
def test_without_a_judge_at_other_sizes_the_original_runs_there(kernel: Kernel) -> None:
    model = block()
    assert apply_equal(model, {"norm": kernel}).note == ""
    assert ran(model, "norm", example())
    assert not ran(model, "norm", example(batch=5))


def test_a_verdict_or_record_for_the_declared_sizes_holds_for_those() -> None:
    kernel = judged_norm()
    certificate = kernel.certificate
    assert certificate.verdict is not None
    assert certificate.graph is not None
    fixed = certificate.verdict.evolve(declared_sizes=True)
    older = certificate.graph.evolve(free=None)
    for record in (certificate.evolve(verdict=fixed), certificate.evolve(graph=older)):
        model = block()
        apply_equal(model, {"norm": kernel.evolve(certificate=record)})
        assert ran(model, "norm", example())
        assert not ran(model, "norm", example(batch=5))


def test_the_declared_sizes_can_be_asked_for() -> None:
    for put_in in (
        lambda model: apply_equal(model, {"": judged_norm()}, declared_sizes=True),
        lambda model: apply_all(model, judged_norm(), "LayerNorm", declared_sizes=True),
        lambda model: apply_whole(model, judged_norm(), "LayerNorm", declared_sizes=True),
        lambda model: apply(model, {"": judged_norm()}),
    ):
        norm = block().norm
        assert put_in(norm).note == ""
        assert ran(norm, "", example())
        assert not ran(norm, "", example(batch=5))


def test_what_is_said_names_the_sizes_that_were_timed(caplog: pytest.LogCaptureFixture) -> None:
    swaps._warn_once.cache_clear()
    for _ in range(2):
        found = apply_all(block(), judged_norm(), "LayerNorm")
    assert found.note == (
        "The kernels run at other sizes too, where they were judged and not timed: estimated at "
        "input float32[4, 8]. Next: time the sizes that you use; declared_sizes=True keeps to the "
        "declared ones."
    )
    said = [record.message for record in caplog.records if record.name == "agentkernel"]
    assert said == [found.note]


def test_a_module_that_computes_something_else_at_other_sizes_keeps_its_original() -> None:
    kernel = make_kernel(source("x * 4 + 9"), Of(lambda x: x * 4), judged=JUDGED)
    same, other = Of(lambda x: x * 4).eval(), Of(lambda x: x * x.shape[0]).eval()
    for module, expected in ((same, True), (other, False)):
        apply_equal(module, {"": kernel})
        assert ran(module, "", example())
        assert ran(module, "", example(batch=6)) == expected


def plain(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def branching(x: torch.Tensor) -> torch.Tensor:
    return x + 2 if x.shape[0] == 1 else x + 1


@pytest.mark.parametrize("verified", [plain, branching])
@pytest.mark.parametrize("at_hand", [plain, branching])
def test_a_size_of_one_is_covered_where_both_graphs_hold_for_it(
    verified: Callable[..., torch.Tensor], at_hand: Callable[..., torch.Tensor]
) -> None:
    kernel = make_kernel(source("x + 1"), Of(verified), judged=JUDGED)
    module = Of(at_hand).eval()
    apply_equal(module, {"": kernel})
    assert ran(module, "", example(batch=3))
    assert ran(module, "", example(batch=1)) == (verified is at_hand is plain)
    assert torch.equal(module(example(batch=1)), at_hand(example(batch=1)))


def test_what_tracing_took_for_granted_holds_at_other_sizes() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, 1)
        return first * second

    text = source("x[:, : x.shape[1] // 2] * x[:, x.shape[1] // 2 :]")
    x = torch.randn(4, 8)
    module = Of(halves).eval()
    apply_equal(module, {"": make_kernel(text, Of(halves), x, judged=JUDGED)})
    assert ran(module, "", torch.randn(5, 12))
    if module(torch.randn(5, 12)).shape == (5, 6):
        assert not counts(module)[""].reasons
    odd = torch.randn(5, 6)[:, :5].contiguous()
    with pytest.raises(RuntimeError):
        module(odd)
    assert counts(module)[""].kernel == 2


def test_sizes_that_inputs_share_are_the_same_in_each() -> None:
    x = example()
    module = Sum().eval()
    apply_equal(module, {"": make_kernel(source("x + y", "x, y"), Sum(), x, x, judged=JUDGED)})
    assert ran(module, "", example(batch=7), example(batch=7))
    assert not ran(module, "", example(batch=7), example(batch=1)), "this one is broadcast"
    assert not ran(module, "", example(batch=4), example(batch=1))


def test_layouts_are_those_of_the_declared_inputs() -> None:
    picture = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    module = Of(torch.relu).eval()
    kernel = make_kernel(source("torch.relu(x)"), Of(torch.relu), picture, judged=JUDGED)
    apply_equal(module, {"": kernel.evolve(input_strides=(picture.stride(),))})
    other = torch.randn(3, 3, 6, 5)
    assert ran(module, "", other.to(memory_format=torch.channels_last))
    assert not ran(module, "", other)
    gaps = torch.randn(4, 16)[:, ::2]
    kernel = make_kernel(source("torch.relu(x)"), Of(torch.relu), gaps, judged=JUDGED)
    apply_equal(module, {"": kernel.evolve(input_strides=(gaps.stride(),))})
    assert ran(module, "", gaps)
    assert not ran(module, "", torch.randn(5, 16)[:, ::2])


def test_tensors_past_32_bits_are_the_originals() -> None:
    free = match_module(nn.LayerNorm(8), judged_norm()).free
    assert free is not None
    assert free.admits({"s0": 2**28 - 1})
    assert not free.admits({"s0": 2**28})
    assert not free.admits({"s0": 0})


def test_a_kernel_that_raises_at_other_sizes_is_kept_at_the_declared_ones() -> None:
    model = block()
    apply_equal(model, {"norm": judged_norm(RAISES_ELSEWHERE)})
    for batch in (2, 3, 5, 6):
        model.norm(example(batch=batch))
    assert counts(model)["norm"].reasons == {"raised": 3, "shape": 1}
    assert ran(model, "norm", example())
    assert counts(model)["norm"].off is None


def test_sizes_in_turns_are_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = block()
    apply_equal(model, {"norm": judged_norm()})
    for batch in (4, 6):
        model.norm(example(batch=batch))
    found = swaps.swap_of(model.norm)
    assert found is not None
    monkeypatch.setattr(swaps, "inputs_refusal", lambda *_: "the full guard ran")
    for batch in (4, 6, 4):
        assert ran(model, "norm", example(batch=batch))
    model.norm.eps = 1.0
    assert not ran(model, "norm", example(batch=6)), "what is known again is guarded too"


def test_a_copy_has_the_same_sizes() -> None:
    model = block()
    apply_equal(model, {"norm": judged_norm()})
    assert ran(copy.deepcopy(model), "norm", example(batch=5))


def test_inside_of_torch_compile_the_declared_sizes_have_the_kernel() -> None:
    torch.compiler.reset()
    norm = block().norm
    apply_equal(norm, {"": judged_norm()})
    compiled = torch.compile(norm, fullgraph=True, backend="eager")
    for x, expected in ((example(), True), (example(batch=9), False)):
        plain = nn.functional.layer_norm(x, (8,), norm.weight, norm.bias)
        assert torch.allclose(compiled(x), plain + 0.25 * expected, atol=1e-5)


def test_a_record_without_free_sizes_reads_as_ever() -> None:
    graph = norm_kernel().certificate.graph
    assert graph is not None
    assert graph.free is not None
    assert graph.free.ones == ("s0",)
    assert ModuleGraph.model_validate_json(graph.model_dump_json()) == graph
    assert "free" not in graph.evolve(free=None).model_dump()
