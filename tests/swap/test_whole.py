from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from agentkernel.swap.end_to_end import Oracle, check_end_to_end
from tests.swap.applied_kernels import RAISES, WRONG, Block, block, example, mlp_kernel, norm_kernel


@dataclass
class Call:
    args: tuple[object, ...]
    kwargs: dict[str, object] = field(default_factory=dict)


@dataclass
class Source:
    """A model of this test's, in place of a zoo's."""

    kind: type[Block] = Block

    def build(self, device: str = "cpu") -> nn.Module:
        model = block()
        model.__class__ = self.kind
        return model.to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> Call:
        return Call((), {"x": example(seed).to(device)})


class Nested(Block):
    def forward(self, x: torch.Tensor) -> dict[str, object]:  # type: ignore[override]
        out = super().forward(x)
        return {"last": out, "all": [out + 1, None], "best": out.argmax(-1)}


class OnlySingle(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            raise RuntimeError("no fp64 here")
        return super().forward(x)


class NoNumbers(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * float("nan")


KERNELS = {"norm": norm_kernel(), "mlp": mlp_kernel(), "last": norm_kernel()}


def test_right_kernels_are_accepted_with_their_errors() -> None:
    found = check_end_to_end(Oracle(Source()), KERNELS)
    assert found.accepted, found.reason
    assert found.worst_error is not None
    assert found.eager_error is not None
    assert 0 < found.worst_error < 1e-6
    assert 0 < found.eager_error < 1e-6
    assert (found.kernel_calls, found.fallbacks) == (9, 0)


def test_nested_outputs_and_integers_count() -> None:
    assert check_end_to_end(Oracle(Source(Nested)), KERNELS, seeds=(3,)).accepted
    wrong = check_end_to_end(Oracle(Source(Nested)), {"last": norm_kernel(WRONG)}, seeds=(3,))
    assert not wrong.accepted


def test_a_wrong_kernel_is_named_with_what_it_may() -> None:
    found = check_end_to_end(Oracle(Source()), {"last": norm_kernel(WRONG)})
    assert not found.accepted
    assert found.reason.startswith("seed 0: output 0: 2.09e-01 norm-wise, ")
    assert "wrong: all" in found.reason
    assert found.worst_error is not None
    assert found.worst_error > 0.05


def test_a_model_that_does_not_run_in_fp64_is_not_accepted() -> None:
    found = check_end_to_end(Oracle(Source(OnlySingle)), KERNELS)
    assert not found.accepted
    assert "does not run in fp64" in found.reason
    assert "no fp64 here" in found.reason
    assert found.worst_error is None


def test_a_model_without_a_finite_output_proves_nothing() -> None:
    found = check_end_to_end(Oracle(Source(NoNumbers)), {"last": norm_kernel(WRONG)})
    assert not found.accepted
    assert not found.provable
    assert found.reason == "the model returns no finite number: nothing was compared"
    assert (found.worst_error, found.eager_error) == (None, None)


def test_kernels_that_never_run_prove_nothing() -> None:
    found = check_end_to_end(Oracle(Source()), {"norm": norm_kernel(RAISES)})
    assert not found.accepted
    assert found.reason == "no kernel ran: raised 3x"


def test_an_oracle_is_asked_once_and_says_the_same() -> None:
    class Counted(Source):
        built = 0

        def build(self, device: str = "cpu") -> nn.Module:
            Counted.built += 1
            return super().build(device)

    source = Counted()
    oracle = Oracle(source)
    wrong = {"last": norm_kernel(WRONG)}
    for kernels in (KERNELS, wrong, KERNELS):
        alone = check_end_to_end(Oracle(Source()), kernels)
        assert check_end_to_end(oracle, kernels) == alone
    assert Counted.built == 1 + 3, "its own and one with each choice of kernels"
    first, second = oracle.asked(0), oracle.asked(0)
    assert not isinstance(first, str)
    assert not isinstance(second, str)
    assert first.answer.oracle is second.answer.oracle
    bad = check_end_to_end(Oracle(Source(OnlySingle)), KERNELS)
    assert not bad.provable
    assert check_end_to_end(oracle, wrong).provable
