"""Cat, pad, roll, flip, scatter and upsample are read in place, as eager makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import sympy
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from agentkernel.compiler.axes import quotient
from agentkernel.compiler.fusion import LibraryStep
from agentkernel.compiler.lowering.registry import rounded_up
from tests.compiler.families import OfOne, functional
from tests.compiler.forms import compiled_graph, written
from tests.compiler.sandboxed_drop_in import Sandboxed

FORMS = ("looped", "single", "persistent")
Call = Callable[..., object]


class Rolled(nn.Module):
    """Its sizes are free."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().roll(self.by, 1) + x.roll((0, self.by), (0, 1))


class Cut(nn.Module):
    """Its sizes are free."""

    def __init__(self, cut: slice) -> None:
        super().__init__()
        self.cut = cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.cut] * 2.0


def check(box: Sandboxed, call: Call, inputs: Sequence[torch.Tensor], form: str) -> str:
    module = functional(call)
    text = written(module, tuple(inputs), form)
    box.check(text, module, inputs)
    return text


USES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alone": lambda x: x,
    "pointwise": lambda x: x * 2.0 + 1.0,
    "summed": lambda x: x.exp().sum(0),
    "normed": lambda x: x.softmax(-1),
    "flipped": lambda x: x.flip(-1) + x,
}
KINDS = ("cat", "stack", "padded", "mirrored", "rolled", "turned", "sliced", "chosen", "repeated",
         "grown")  # fmt: skip


@st.composite
def moves(draw: st.DrawFn) -> tuple[str, Call, list[torch.Tensor]]:
    """A move of random rank, sizes and dimension, and inputs for it."""
    kind = draw(st.sampled_from(KINDS))
    rank = draw(st.integers(3, 4) if kind in ("mirrored", "grown") else st.integers(1, 4))
    shape = draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank))
    dim = draw(st.integers(-rank, rank - 1))
    at = dim % rank
    torch.manual_seed(draw(st.integers(0, 1 << 20)))
    x = torch.randn(shape)
    if kind == "cat":
        pieces = []
        for _ in range(draw(st.integers(1, 4))):
            size = draw(st.integers(1, 5))
            piece = torch.randn(*shape[:at], size, *shape[at + 1 :])
            whole = bool(pieces) and draw(st.booleans())
            pieces.append((piece * 9).int() if whole else piece)
        inner = draw(st.sampled_from((torch.neg, torch.abs, lambda value: value)))
        return kind, lambda *given: torch.cat([*map(inner, given), given[0]], dim), pieces
    if kind == "stack":
        others = [torch.randn(shape) for _ in range(draw(st.integers(0, 3)))]
        return kind, lambda *given: torch.stack([*given, -given[0]], dim), [x, *others]
    if kind == "padded":
        pad = draw(st.lists(st.integers(0, 3), min_size=2, max_size=2 * rank))
        pad = pad[: len(pad) // 2 * 2]
        value = draw(st.sampled_from((0.0, -1.5, float("inf"))))
        return kind, lambda given: nn.functional.pad(given.cos(), pad, value=value), [x]
    if kind == "mirrored":
        mode = draw(st.sampled_from(("reflect", "replicate", "circular")))
        most = [min(3, size - (mode == "reflect")) for size in reversed(shape[2:])]
        pad = [draw(st.integers(0, size)) for size in most for _ in range(2)]
        return kind, lambda given: nn.functional.pad(given, pad, mode=mode), [x]
    if kind == "rolled":
        by = draw(st.integers(-9, 9))
        flat = draw(st.booleans())
        return kind, lambda given: given.sin().roll(by, None if flat else dim), [x]
    if kind == "turned":
        dims = draw(st.lists(st.integers(0, rank - 1), unique=True))
        return kind, lambda given: given.flip(dims), [x]
    if kind == "sliced":
        start, step = draw(st.integers(0, shape[at] - 1)), draw(st.integers(1, 3))
        stop = draw(st.integers(start + 1, shape[at]))
        count = len(range(start, stop, step))
        source = torch.randn(*shape[:at], count, *shape[at + 1 :])
        return kind, lambda given, new: given.slice_scatter(new.exp(), dim, start, stop, step), [
            x, source,
        ]  # fmt: skip
    if kind == "chosen":
        index = draw(st.integers(-shape[at], shape[at] - 1))
        source = torch.randn([*shape[:at], *shape[at + 1 :]])
        return kind, lambda given, new: given.select_scatter(new, dim, index), [x, source]
    if kind == "repeated":
        times = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=4))
        return kind, lambda given: given.repeat(times), [x]
    factor = draw(st.integers(1, 4))
    size = [size * factor for size in shape[2:]] if draw(st.booleans()) else [
        draw(st.integers(1, 9)) for _ in shape[2:]
    ]  # fmt: skip
    return kind, lambda given: nn.functional.interpolate(given.exp(), size), [x]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(move=moves(), use=st.sampled_from(sorted(USES)), form=st.sampled_from(FORMS))
def test_elements_lie_where_eager_puts_them(
    box: Sandboxed, move: tuple[str, Call, list[torch.Tensor]], use: str, form: str
) -> None:
    _, call, inputs = move
    check(box, lambda *given: USES[use](call(*given)), inputs, form)  # type: ignore[arg-type]


@pytest.mark.quick(1)
@pytest.mark.parametrize("by", [-7, 12])
def test_a_roll_wraps_around_a_free_size(box: Sandboxed, by: int) -> None:
    """How often 12 places go around is known where the size is: after the file was written."""
    module = Rolled(by)
    text = written(module, (torch.randn(3, 5),), "single")
    for size in (2, 3, 5, 16):
        box.check(text, module, [torch.randn(4, size)])


def numbered(x: torch.Tensor) -> torch.Tensor:
    """Windows told apart by numbers that are written into parts of a mask."""
    mask = x.new_zeros(x.shape[-2:])
    parts = (slice(0, -4), slice(-4, -2), slice(-2, None))
    for row, rows in enumerate(parts):
        for col, cols in enumerate(parts):
            mask[rows, cols] = 3 * row + col
    windows = mask.view(mask.shape[0] // 4, 4, mask.shape[1] // 4, 4).permute(0, 2, 1, 3)
    flat = windows.reshape(-1, 16)
    return x.flatten(1).sum(1)[:, None, None, None] + (flat[:, None] - flat[:, :, None])


def steps(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(9, device=x.device)[2:7:2] * x.new_ones(6)[::2]


@pytest.mark.quick(1)
def test_parts_of_what_is_stored_nowhere_are_worked_out_where_they_are_read(box: Sandboxed) -> None:
    check(box, numbered, [torch.randn(2, 8, 12)], "single")
    check(box, steps, [torch.randn(4, 3)], "single")


@pytest.mark.quick(1)
@pytest.mark.parametrize("cut", [slice(-70, None, 2), slice(-70, -1), slice(-2, None)])
def test_a_slice_from_before_the_start_begins_at_the_start_of_a_free_size(
    box: Sandboxed, cut: slice
) -> None:
    module = Cut(cut)
    text = written(module, (torch.randn(3, 5),), "single")
    for size in (4, 5, 16):
        box.check(text, module, [torch.randn(4, size)])


def test_a_gate_in_16_bits_is_one_kernel(box: Sandboxed) -> None:
    """What is cut would be stored; a cast of it need not be."""
    gated = functional(lambda x: torch.nn.functional.glu(x, 1))
    x = torch.randn(3, 8, 5).half()
    assert len(compiled_graph(gated, (x,)).partition.steps) == 1
    check(box, lambda x: torch.nn.functional.glu(x, 1), [x], "single")


def test_a_sum_over_no_rows_of_a_free_width_stays_with_the_library() -> None:
    compiled = compiled_graph(
        functional(lambda x, none: (x.exp(), none.sum(0))),
        (torch.randn(4, 8), torch.randn(0, 8)),
    )
    calls = [step.node.op for step in compiled.partition.steps if isinstance(step, LibraryStep)]
    assert calls == ["aten.sum.dim_IntList"]


def shuffled(*pieces: torch.Tensor) -> torch.Tensor:
    whole = torch.cat(pieces, 1)
    batch, channels, *rest = whole.shape
    return whole.view(batch, 2, channels // 2, *rest).transpose(1, 2).reshape(whole.shape)


@pytest.mark.parametrize("form", FORMS)
def test_channels_are_shuffled_as_eager_shuffles_them(box: Sandboxed, form: str) -> None:
    """The kernel walks the index along the joined dimension in two parts, the inner one first."""
    inputs = [torch.randn(2, 5, 3, 4), torch.randn(2, 5, 3, 4)]
    check(box, lambda x, y: shuffled(x.relu(), y.exp()), inputs, form)


def test_a_row_that_is_padded_is_masked_by_comparisons_of_its_own_index(box: Sandboxed) -> None:
    """One row a program: its index is a lone number, and what it is compared with masks a tile."""
    padded = lambda x: nn.functional.pad(x, (0, 2, 1, 0)).exp().sum(0)  # noqa: E731
    assert "& col_mask" in check(box, padded, [torch.randn(3, 4, 5)], "single")


def test_what_stays_in_its_place_is_computed_once(box: Sandboxed) -> None:
    """The scale varies along what is not joined: both pieces read one, which no kernel stores."""
    scaled = lambda x, y, scale: torch.cat([x * scale.sigmoid(), y / scale.sigmoid()], -1)  # noqa: E731
    inputs = [torch.randn(3, 4, 5), torch.randn(3, 4, 6), torch.randn(4, 1)]
    text = check(box, scaled, inputs, "single")
    assert (text.count("_kernel["), text.count("tl.load(")) == (1, 3)


@pytest.mark.parametrize("mod", [Mod, PythonMod])
@pytest.mark.parametrize("step", [2, 4, 7])
def test_what_is_padded_to_a_multiple_is_known_to_be_one(mod: type[sympy.Expr], step: int) -> None:
    size = sympy.Symbol("s0", integer=True, positive=True)
    padded = size + mod(step - mod(size, step), step)
    found = rounded_up(padded)
    assert rounded_up(FloorDiv(padded, FloorDiv(padded, step))) == step
    assert quotient(found, sympy.Integer(step)) is not None
    for value in range(1, 3 * step):
        assert found.subs(size, value) == padded.subs(size, value)


def check_sizes(box: Sandboxed, call: Call, traced: Sequence[int], other: Sequence[int]) -> None:
    """One drop-in, at the sizes that it was traced for and at others."""
    module = OfOne(call).eval()
    text = written(module, (torch.randn(*traced),), "looped")
    for shape in (traced, other):
        box.check(text, module, [torch.randn(*shape)])


def windows(x: torch.Tensor) -> torch.Tensor:
    """Swin's partition."""
    batch, height, width, channels = x.shape
    parts = x.view(batch, height // 4, 4, width // 4, 4, channels)
    return parts.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, channels)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Transformer-XL's relative shift."""
    batch, heads, queries, keys = x.shape
    padded = nn.functional.pad(x, (1, 0)).view(batch, heads, keys + 1, queries)
    return padded[:, :, 1:].view(batch, heads, queries, keys) * 0.5


def relative_to_absolute(x: torch.Tensor) -> torch.Tensor:
    """The same for sizes that differ by one, as Music Transformer has it."""
    batch, heads, size, _ = x.shape
    flat = nn.functional.pad(x, (0, 1)).reshape(batch, heads, -1)
    wide = nn.functional.pad(flat, (0, size - 1)).view(batch, heads, size + 1, 2 * size - 1)
    return wide[:, :, :size, size - 1 :].exp()


RESHAPED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...], tuple[int, ...]]]
RESHAPED = {
    "shifted": (shifted, (2, 3, 6, 6), (1, 2, 5, 5)),
    "windows": (windows, (2, 8, 12, 5), (3, 12, 8, 7)),
    "relative": (relative_to_absolute, (2, 3, 4, 7), (1, 2, 6, 11)),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", RESHAPED)
def test_a_reshape_that_the_sizes_do_not_show_is_read_in_place(box: Sandboxed, name: str) -> None:
    call, traced, other = RESHAPED[name]
    check_sizes(box, call, traced, other)


def shifted_in_time(x: torch.Tensor) -> torch.Tensor:
    """As TSM does: parts of the channels come from the frame before and the one after."""
    out, part = torch.zeros_like(x), x.shape[2] // 4
    out[:, :-1, :part] = x[:, 1:, :part]
    out[:, 1:, part : 2 * part] = x[:, :-1, part : 2 * part]
    out[:, :, 2 * part :] = x[:, :, 2 * part :]
    return out


def first_dropped(x: torch.Tensor) -> torch.Tensor:
    y = torch.roll(x, 1, 1)
    y[:, 0] = 0
    return x + y


@pytest.mark.quick(1)
@pytest.mark.parametrize("call", [first_dropped, shifted_in_time])
def test_a_shift_holds_for_one_row(box: Sandboxed, call: Call) -> None:
    """Tracing leaves whole slices out where a size is 1."""
    check_sizes(box, call, (3, 4, 9), (1, 5, 11))
