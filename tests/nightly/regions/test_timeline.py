"""Does each submodule get the device time of what was launched within its calls?"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.nightly.regions.recording import Launch, Span, measure, time_in_spans
from tests.nightly.regions.region_models import Tower, loaded

RECORDED_SPANS = [
    Span("model", 0.0, 100.0),
    Span("layer", 10.0, 40.0),
    Span("norm", 12.0, 20.0),
    Span("layer", 50.0, 80.0),
    Span("norm", 52.0, 60.0),
    Span("other thread", 0.0, 100.0, thread=1),
]
RECORDED_LAUNCHES = [
    Launch(5.0, 1.0),
    Launch(15.0, 4.0),
    Launch(30.0, 10.0),
    Launch(55.0, 5.0),
    Launch(90.0, 2.0),
    Launch(55.0, 100.0, thread=1),
]


def test_recorded_launches_count_in_every_span_around_them():
    assert time_in_spans(RECORDED_SPANS, RECORDED_LAUNCHES) == {
        "model": 22.0,
        "layer": 19.0,
        "norm": 9.0,
        "other thread": 100.0,
    }


def test_the_order_of_the_records_does_not_count():
    assert time_in_spans(RECORDED_SPANS[::-1], RECORDED_LAUNCHES[::-1]) == time_in_spans(
        RECORDED_SPANS, RECORDED_LAUNCHES
    )


def test_a_span_within_one_of_its_own_name_counts_once():
    spans = [Span("a", 0.0, 10.0), Span("a", 0.0, 5.0)]
    assert time_in_spans(spans, [Launch(2.0, 3.0)]) == {"a": 3.0}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=20))
def test_equal_to_asking_each_span(launches):
    spans = [item for item in RECORDED_SPANS if item.thread == 0]
    asked = [Launch(start, length) for start, length in launches]
    found = time_in_spans(spans, asked)
    for name in {item.name for item in spans}:
        inside = [
            launch.device_us
            for launch in asked
            if any(
                item.name == name and item.start_us <= launch.start_us <= item.end_us
                for item in spans
            )
        ]
        assert found[name] == pytest.approx(sum(inside))


def test_the_profiler_sees_each_submodule_on_the_cpu():
    source = loaded(lambda: Tower(2), 8, 64, 16)
    module = source.build()
    found = measure(module, source.make_call(), "cpu", forwards=3)
    calls = {path: time for (path, _), time in found.calls.items()}
    assert set(calls) == {name for name, _ in module.named_modules()} - {"layers"}
    assert found.wall_us > 0
    assert calls["layers.0.mlp"] >= calls["layers.0.mlp.up"] > 0
    assert found.device_us >= calls[""] * 0.5 > 0
    assert not any(item._forward_hooks for item in module.modules())
    assert torch.is_grad_enabled()
