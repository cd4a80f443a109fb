"""Nested plain data is the same once it was taken apart and put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import register_dataclass, tree_leaves, tree_structure

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import DataStructure
from agentkernel.tools.problem.structures import (
    FlatData,
    UnsupportedData,
    flatten_data,
    tensors_of,
    unflatten_data,
    values_of,
)

TENSOR = torch.ones(2)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text("ab'\"\n", max_size=3)
)
LEAVES = st.one_of(SCALARS, st.builds(lambda: torch.ones(2)))
KEYS = st.one_of(st.text("ab' ", max_size=2), st.integers(0, 3))


def nested(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(KEYS, inner, max_size=3),
        ),
        max_leaves=8,
    )


class Held(Frozen):
    structure: DataStructure | None = None


def apart(value: object, *, nodes: bool = False) -> FlatData:
    found = flatten_data(value, "x", nodes=nodes)
    assert isinstance(found, FlatData)
    return found


@given(nested(LEAVES))
def test_what_was_taken_apart_is_put_together(value: object) -> None:
    found = apart(value)
    again = unflatten_data(found.structure, found.tensors)
    assert tree_structure(again) == tree_structure(value)
    for now, then in zip(tree_leaves(again), tree_leaves(value), strict=True):
        assert now is then if isinstance(then, torch.Tensor) else repr(now) == repr(then)
    tensors: list[object] = []
    assert tensors_of(found.structure, value, tensors)
    assert [id(item) for item in tensors] == [id(item) for item in found.tensors]
    assert found.structure.tensors == len(tensors)


@given(nested(LEAVES), nested(LEAVES))
def test_another_structure_has_another_text_and_does_not_fit(one: object, two: object) -> None:
    first, second = apart(one).structure, apart(two).structure
    assert (first.text == second.text) is (first == second)
    if first != second:
        # A tensor's place takes anything: what lies there is asked of each item that was found.
        found: list[object] = []
        fits = tensors_of(first, two, found)
        assert not (fits and all(isinstance(item, torch.Tensor) for item in found))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([TENSOR], (TENSOR,)),
        ((TENSOR,), (TENSOR, None)),
        ({"a": TENSOR}, {"b": TENSOR}),
        ({"a": TENSOR, "b": TENSOR}, {"b": TENSOR, "a": TENSOR}),
        ((TENSOR, 1), (TENSOR, True)),
        ((TENSOR, None), (TENSOR, TENSOR)),
        ({1: TENSOR}, {"1": TENSOR}),
    ],
)
def test_what_is_nearly_the_same_does_not_fit(one: object, two: object) -> None:
    assert apart(one).structure != apart(two).structure
    assert not tensors_of(apart(one).structure, two, [])
    assert not tensors_of(apart((one, None)).structure, (two, None), [])


@given(nested(LEAVES))
def test_a_structure_comes_back_from_json(value: object) -> None:
    held = Held(structure=apart(value).structure)
    assert Held.model_validate_json(held.model_dump_json()) == held


def test_places_say_where_a_tensor_was() -> None:
    found = apart({"full": [None, (TENSOR,)], 2: TENSOR})
    assert [place.path for place in found.places] == ["x['full'][1][0]", "x[2]"]
    assert found.structure.text == "{'full': [None, (*,)], 2: *}"


class Pair(NamedTuple):
    one: torch.Tensor
    two: torch.Tensor


@dataclass
class Output:
    last: torch.Tensor
    states: tuple[torch.Tensor, ...] | None = None


def endless() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ((TENSOR, [slice(2)]), "a slice"),
        (Pair(TENSOR, TENSOR), "a Pair"),
        (torch.Size([2]), "a Size"),
        (Output(TENSOR), "an Output"),
        ({TENSOR.dtype: TENSOR}, "a dict with a key of class dtype"),
        (endless(), "a list nested over 20 deep"),
    ],
)
def test_what_is_not_plain_is_named(value: object, what: str) -> None:
    found = flatten_data(value, "x")
    assert isinstance(found, UnsupportedData)
    assert found.what.replace("a Output", "an Output") == what


def test_a_class_that_pytree_can_write_down_is_put_together() -> None:
    with_name = "agentkernel_tests.Output"
    register_dataclass(Output, serialized_type_name=with_name)
    found = apart(Output(TENSOR, (TENSOR, TENSOR)), nodes=True)
    assert [place.path for place in found.places] == ["x[0]", "x[1][0]", "x[1][1]"]
    again = unflatten_data(found.structure, (1, 2, 3))
    assert again == Output(1, (2, 3))  # type: ignore[arg-type]
    unknown = DataStructure("node", found.structure.literal.replace("Output", "Missing"))
    with pytest.raises(ProblemError, match="pytree does not know the class"):
        values_of(DataStructure("tuple", items=(unknown,)))


def test_a_named_tuple_that_pytree_cannot_write_down_is_not_plain() -> None:
    assert isinstance(flatten_data(Pair(TENSOR, TENSOR), "x", nodes=True), UnsupportedData)
