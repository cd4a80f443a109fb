"""Axes and labels of a chart come out right where the data are odd."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.tools.charts.chart import (
    LETTER,
    TICK_GAP,
    Axis,
    Chart,
    Series,
    Tick,
    tick_label,
)
from agentkernel.tools.charts.labels import Box, Mark, place_labels, spread_apart, square_around
from agentkernel.tools.charts.svg import TITLE_X, Frame, chart_svg


@given(st.floats(1e-6, 1e6), st.floats(1.05, 1e9), st.floats(100, 900))
def test_ticks_lie_inside_and_apart(low: float, wide: float, length: float) -> None:
    axis = Axis(low, low * wide)
    places = [axis.place(tick.value) * length for tick in axis.ticks(length)]
    assert all(0 <= place <= length for place in places)
    assert all(b - a >= TICK_GAP for a, b in itertools.pairwise(places))


@given(st.lists(st.floats(0, 300), min_size=1, max_size=9))
def test_labels_are_spread_in_their_order(places: list[float]) -> None:
    moved = spread_apart(places, 15, 0, 300)
    order = sorted(range(len(places)), key=lambda index: places[index])
    ordered = [moved[index] for index in order]
    assert all(b - a >= 15 - 1e-6 for a, b in itertools.pairwise(ordered))
    assert min(moved) >= -1e-6
    assert max(moved) <= 300 + 1e-6


@given(st.floats(1e-6, 1e6), st.floats(1.05, 1e9), st.floats(100, 900))
def test_the_words_of_ticks_lie_apart(low: float, wide: float, length: float) -> None:
    axis = Axis(low, low * wide)
    for one, two in itertools.pairwise(axis.ticks(length, LETTER)):
        half = LETTER * (len(one.text) + len(two.text)) / 2
        assert (axis.place(two.value) - axis.place(one.value)) * length > half


PLACE = st.tuples(st.floats(0, 300), st.floats(0, 200))


@given(st.lists(PLACE, max_size=40))
def test_no_label_covers_another_or_a_point(places: list[tuple[float, float]]) -> None:
    inside = Box(0, 0, 300, 200)
    dots = [square_around(x, y, 6) for x, y in places]
    marks = [Mark(x, y, str(number)) for number, (x, y) in enumerate(places[:9], 1)]
    found = place_labels(marks, dots, inside)
    assert found == place_labels(marks, dots, inside)
    for one, two in itertools.combinations([label.box for label in found], 2):
        assert not one.meets(two)
    for label in found:
        assert inside.holds(label.box)
        assert not any(label.box.meets(dot) for dot in dots)


def test_labels_stand_beside_their_points_where_there_is_room() -> None:
    inside = Box(0, 0, 300, 200)
    (right,) = place_labels([Mark(50, 50, "1")], [square_around(50, 50, 6)], inside)
    assert not right.led
    assert right.box.left > 50
    pile = [Mark(50, 50, str(number)) for number in range(9)]
    found = place_labels(pile, [square_around(50, 50, 6)], inside)
    assert [label.mark for label in found] == pile, "each has a place"
    assert not found[0].led
    assert found[-1].led
    assert place_labels([Mark(50, 50, "1")], [inside], inside) == []


def test_given_labels_are_thinned_and_the_last_one_stays() -> None:
    dates = tuple(Tick(place, f"11-{place:02}") for place in range(60))
    axis = Axis(0, 59, log=False, marked=dates)
    assert [tick.text for tick in axis.ticks(200, LETTER)] == [
        "11-59",
        "11-45",
        "11-31",
        "11-17",
        "11-03",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.05, "0.05"), (2000.0, "2,000"), (1e7, "1e7"), (1e-4, "1e-4")]
)
def test_tick_labels(value: float, text: str) -> None:
    assert tick_label(value) == text


def test_long_tick_labels_leave_room_for_the_title_beside_them() -> None:
    axis = Axis(1.0, 200_000.0, "calls per ms")
    chart = Chart("", axis, axis, (Series("a", "kernel", ((10.0, 10.0),)),), ())
    drawn = chart_svg(chart, Frame(600, 400), "c")
    anchors = [float(x) for x in re.findall(r'x="([\d.]+)"[^>]*text-anchor="end"', drawn)]
    longest = max(len(text) for _, text in axis.ticks(Frame(600, 400).up))
    assert longest * LETTER + TITLE_X + 4 <= max(anchors)
    assert max(anchors) > Frame(600, 400).left - 6
