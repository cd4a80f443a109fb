"""Recurrent layers as kernels that step through time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.drop_in.launch import LOOPED, launch_count, launches_in_a_loop
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.isolated_step import isolated
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.recurrence import RecurrenceStep
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import STEP, accepted_text, compiled_graph, written
from tests.compiler.sandboxed_drop_in import Sandboxed

BATCH, STEPS, FEATURES = 3, 4, 5


class Whole(nn.Module):
    """All results of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> object:
        if not states:
            return self.layer(x)
        return self.layer(x, states if len(states) == 2 else states[0])


class Head(nn.Module):
    """What a linear layer makes of the outputs, and the outputs."""

    def __init__(self, layer: nn.RNNBase, *, whole: bool) -> None:
        super().__init__()
        self.layer, self.whole = layer, whole
        self.head = nn.Linear(layer.hidden_size, 4)

    def forward(self, x: torch.Tensor) -> object:
        found = self.layer(x)[0]
        last = self.head(torch.tanh(found[:, -1]))
        return (last, found) if self.whole else last


LAYERS: dict[str, Callable[[], nn.RNNBase]] = {
    "lstm": lambda: nn.LSTM(FEATURES, 18),
    "lstm_of_three_layers": lambda: nn.LSTM(FEATURES, 32, 3, batch_first=True),
    "lstm_in_both_directions": lambda: nn.LSTM(FEATURES, 17, 2, bidirectional=True),
    "gru": lambda: nn.GRU(FEATURES, 32, batch_first=True),
    "gru_of_two_layers_without_biases": lambda: nn.GRU(FEATURES, 20, 2, bias=False),
    "gru_in_both_directions": lambda: nn.GRU(FEATURES, 16, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(FEATURES, 33, 2),
    "rnn_with_relu": lambda: nn.RNN(FEATURES, 16, nonlinearity="relu", bidirectional=True),
}


def inputs_of(layer: nn.RNNBase, batch: int, steps: int) -> torch.Tensor:
    """A batch of sequences for a layer."""
    shape = (batch, steps) if layer.batch_first else (steps, batch)
    return torch.randn(*shape, layer.input_size)


def check(box: Sandboxed, module: nn.Module, inputs: Sequence[torch.Tensor]) -> str:
    """The drop-in of `module` gives what it does; its text."""
    text = written(module, inputs, "looped")
    assert "for turn in range" in text
    box.check(text, module, inputs)
    return text


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_stepped_through(box: Sandboxed, name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]()
    check(box, Whole(layer).eval(), [inputs_of(layer, BATCH, STEPS)])


@settings(max_examples=12)
@given(
    cell=st.sampled_from(["LSTM", "GRU", "RNN"]), layers=st.integers(1, 3), both=st.booleans(),
    biased=st.booleans(), batch_first=st.booleans(), units=st.integers(1, 40),
    features=st.integers(3, 20), batch=st.integers(1, 18), steps=st.integers(1, 5),
    given_states=st.booleans(),
)  # fmt: skip
def test_any_form(
    box: Sandboxed, cell: str, layers: int, both: bool, biased: bool, batch_first: bool,
    units: int, features: int, batch: int, steps: int, given_states: bool,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    layer = getattr(nn, cell)(
        features, units, layers, bias=biased, batch_first=batch_first, bidirectional=both
    )
    states = torch.randn(2, layers * (1 + both), batch, units)
    more = list(states[: 2 if cell == "LSTM" else 1]) if given_states else []
    check(box, Whole(layer).eval(), [inputs_of(layer, batch, steps), *more])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["gru", "lstm_of_three_layers"])
def test_who_reads_the_outputs_may_return_them_too(box: Sandboxed, name: str, whole: bool) -> None:
    """Eager's outputs of sequences lie step after step, and a kernel reads them as it stores."""
    torch.manual_seed(0)
    layer = LAYERS[name]()
    check(box, Head(layer, whole=whole).eval(), [inputs_of(layer, BATCH, STEPS)])


def test_narrow_floats_keep_their_cells_in_fp32(box: Sandboxed) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(16, 16, 2)
    text = check(box, Whole(layer).bfloat16().eval(), [torch.randn(5, 3, 16).bfloat16()])
    assert "cells = torch.empty((2, x_dim1, 16), device=x.device, dtype=torch.float32)" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gru_in_both_directions"])
def test_the_judge_accepts_it(name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]()
    module = Whole(layer).eval()
    accepted_text(problem_from_module(module, [inputs_of(layer, BATCH, STEPS)]))


def steps_of(compiled: Compiled) -> list[RecurrenceStep]:
    return [step for step in compiled.partition.steps if isinstance(step, RecurrenceStep)]


def test_layers_of_one_direction_share_their_launches() -> None:
    compiled = compiled_graph(Whole(nn.LSTM(5, 16, 4)), [torch.randn(STEPS, BATCH, 5)])
    (step,) = steps_of(compiled)
    assert step.launches(compiled.symbols) == STEPS + 3


def test_layers_of_two_directions_follow_each_other() -> None:
    layer = nn.LSTM(5, 16, 4, bidirectional=True)
    assert len(steps_of(compiled_graph(Whole(layer), [torch.randn(STEPS, BATCH, 5)]))) == 4


def test_the_librarys_layer_stays_a_rival() -> None:
    loaded = problem_from_module(Head(nn.GRU(5, 16), whole=False).eval(), [torch.randn(4, 3, 5)])
    every = partitions(loaded, capture(loaded), "mixed")
    assert steps_of(every[0])
    assert not steps_of(every[-1])


def test_projected_states_are_left_to_the_library() -> None:
    layer = nn.LSTM(5, 16, proj_size=8)
    compiled = compiled_graph(Whole(layer), [torch.randn(STEPS, BATCH, 5)])
    assert not steps_of(compiled)


def test_alone_it_is_timed_as_a_graph() -> None:
    """Forty-eight launches by Python take a millisecond under any schedule."""
    compiled = compiled_graph(Whole(nn.LSTM(5, 16)), [torch.randn(STEPS, BATCH, 5)])
    (step,) = steps_of(compiled)
    alone = isolated(compiled, step)
    assert alone is not None
    assert "class CallGraph" in alone.write(STEP).text


def test_a_loop_over_launches_counts_as_many() -> None:
    text = written(Whole(nn.LSTM(5, 16)), [torch.randn(STEPS, BATCH, 5)], "looped")
    source = DropInSource(text, (), {})
    assert launches_in_a_loop(source)
    assert launch_count(text) >= LOOPED


def test_a_layer_without_dropout_is_the_same_while_training() -> None:
    text = written(Whole(nn.LSTM(5, 16, 2)), [torch.randn(STEPS, BATCH, 5)], "looped")
    assert "training mode" not in text
    assert "True, 2, 0.0, True, False, False" in text, "cuDNN has no gradients of it otherwise"


def test_dropout_between_layers_is_for_eval_mode_alone() -> None:
    layer = nn.LSTM(5, 16, 2, dropout=0.5)
    text = written(Whole(layer), [torch.randn(STEPS, BATCH, 5)], "looped")
    assert "for turn in range" in text
    assert "training mode computes something else" in text
