"""Views that read well give the elements that TorchInductor's wrapper asks for."""

import ast

import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.compiler.lift.forward import (
    ForwardTensor,
    allocation,
    view_of,
    with_strides,
)
from agentkernel.compiler.lift.inductor_codegen import laid_out
from agentkernel.compiler.lift.layouts import (
    channels_last,
    contiguous_strides,
    same_layout,
    stride_order,
    strides_in_order,
)

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def reinterpret(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> ast.Call:
    text = f"reinterpret_tensor(base, {shape!r}, {strides!r}, {offset})"
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return call


@given(shape=shapes, own=st.booleans(), form=st.sampled_from(("same", "flat", "turned", "tail")))
def test_a_view_has_the_elements_of_as_strided(
    shape: tuple[int, ...], own: bool, form: str
) -> None:
    memory = torch.arange(2000.0)
    base = torch.as_strided(memory, shape, contiguous_strides(shape), 0 if own else 7)
    strides = contiguous_strides(shape)
    wanted, steps, offset = {
        "same": (shape, strides, 0),
        "flat": ((base.numel(),), (1,), 0),
        "turned": (shape[::-1], strides[::-1], 0),
        "tail": ((base.numel() - 1,), (1,), 1),
    }[form]
    view = view_of(ForwardTensor("base", shape, strides, own), reinterpret(wanted, steps, offset))
    found = eval(view.text, {"base": base, "torch": torch})
    truth = torch.as_strided(base, wanted, steps, base.storage_offset() + offset)
    assert torch.equal(found, truth)
    assert view.shape == wanted


@given(shape=shapes, data=st.data())
def test_memory_is_allocated_as_it_is_laid_out(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    inner = contiguous_strides([shape[i] for i in order])
    strides = [0] * len(shape)
    for place, step in zip(order, inner, strict=True):
        strides[place] = step
    made = eval(allocation(shape, strides, "torch.float16", "'cpu'"), {"torch": torch})
    assert made.shape == shape
    assert made.dtype == torch.float16
    assert all(
        size == 1 or a == b for size, a, b in zip(shape, made.stride(), strides, strict=True)
    )


def test_a_result_is_brought_into_the_layout_that_kernels_rely_on() -> None:
    x = torch.randn(2, 3, 4, 5)
    last = x.contiguous(memory_format=torch.channels_last).stride()
    assert channels_last(x.shape, last) == "torch.channels_last"
    assert channels_last(x.shape, x.stride()) == ""
    found = eval(
        with_strides(ForwardTensor("x", tuple(x.shape), (), own=False), last),
        {"x": x, "torch": torch},
    )
    assert found.stride() == last


@given(shape=shapes, data=st.data())
def test_an_output_lies_as_it_was_captured_whatever_made_it(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    orders = st.permutations(range(len(shape)))
    captured = strides_in_order(shape, data.draw(orders))
    values = torch.randn(shape)
    here = torch.empty_strided(shape, strides_in_order(shape, data.draw(orders))).copy_(values)
    found = laid_out(here, captured)
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, values)
    assert same_layout(shape, found.stride(), captured)
    assert (found is here) == same_layout(shape, here.stride(), captured)


@given(shape=st.lists(st.integers(2, 5), min_size=1, max_size=4), data=st.data())
def test_strides_tell_the_order_that_they_were_made_of(
    shape: list[int], data: st.DataObject
) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    strides = strides_in_order(shape, order)
    assert stride_order(strides) == order
    plain = torch.empty([shape[dim] for dim in order])
    back = [order.index(dim) for dim in range(len(order))]
    assert strides == plain.permute(back).stride()
