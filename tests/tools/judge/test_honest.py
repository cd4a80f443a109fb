"""Honest evaluations move as far as other orders do, and no further."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table

from agentkernel.tools.judge.cases.patterns import sparse
from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output
from agentkernel.tools.judge.comparison.errors import HONEST, Leeway, errors
from agentkernel.tools.judge.reference.oracle import call_reference
from agentkernel.tools.judge.reference.population import Population
from agentkernel.tools.judge.reference.rounding_noise import (
    LONG_CHAINS,
    RoundingNoise,
    _product_as_chain,
    in_tf32,
    library_adds_in_order,
    sequential,
)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def judged(model, given, found, rounds=frozenset()):
    answer = call_reference(model, given)
    known = Population(model, given, False, rounds)
    leeway = Leeway(
        perturb=lambda seed: answer.perturbed.output(0, seed, 0.0),
        honest=known.honest(0),
        permitted=known.permitted(0),
        permits="TF32",
        further=known.honest(0, HONEST),
        permitted_further=known.permitted(0, HONEST),
        pointed=lambda value: known.points_as_well(0, value, answer.leaves[0]),
    )
    eager, oracle, exact = answer.leaves[0], answer.oracle[0], answer.exact[0]
    return compare_output("case", 0, OutputValues(found, eager, oracle, exact), "strict", leeway)


def chained(a, b):
    """A product whose terms are added one after the other."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[None, k]
    return total


def split(x):
    """fp32 as two bf16 parts."""
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


def test_a_chain_of_products_passes_and_three_bf16_products_do_not():
    torch.manual_seed(0)
    a, b = torch.randn(16, 2000), torch.randn(2000, 16)
    model = Function(torch.matmul)
    passed = judged(model, [a, b], chained(a, b))
    assert passed.mismatch is None
    assert 0.2 < passed.margin < 1
    (ah, al), (bh, bl) = split(a), split(b)
    lossy = judged(model, [a, b], ah @ bh + (ah @ bl + al @ bh))
    assert lossy.mismatch is not None
    assert lossy.margin > 1.3


def test_a_scalar_is_judged_by_its_condition():
    torch.manual_seed(1)
    x, y = torch.randn(40, 1000), torch.randn(40, 1000)
    model = Function(nn.functional.mse_loss)
    found = call_reference(model, [x, y]).leaves[0] * (1 + 6e-7)
    assert judged(model, [x, y], found).mismatch is None
    halved = (x.half() - y.half()).float().square().mean()
    assert judged(model, [x, y], halved).mismatch is not None


def test_a_norm_in_fp32_passes_where_eager_sums_in_fp64_and_one_pass_does_not():
    torch.manual_seed(2)
    x = torch.randn(20, 300) + 1e3
    model = Function(lambda x: nn.functional.layer_norm(x, (300,)))
    mean = (sequential(x) / 300)[:, None]
    spread = sequential((x - mean).square()) / 300
    assert judged(model, [x], (x - mean) / torch.sqrt(spread + 1e-5)[:, None]).mismatch is None
    square = sequential(x * x) / 300
    once = torch.sqrt(square - mean[:, 0] ** 2 + 1e-5)[:, None]
    assert judged(model, [x], (x - mean) / once).mismatch is not None


@pytest.mark.parametrize("approximate", ["tanh", "none"])
@pytest.mark.parametrize("place", [-31.0, -8.6, -8.2, -7.0, -5.3])
def test_the_tail_of_gelu_may_be_nearer_than_fp64_has_it(approximate, place):
    """1 + tanh cancels there, in fp64 too: a kernel by way of a sigmoid was refused in rows that
    hold nothing else."""
    x = torch.zeros(4, 1000)
    x[2, 5] = place
    model = Function(lambda x: nn.functional.gelu(x, approximate=approximate))
    wide = x.double()
    if approximate == "tanh":
        inner = (2 / torch.pi) ** 0.5 * (wide + 0.044715 * wide**3)
        found = wide * torch.sigmoid(2 * inner)
    else:
        found = wide * 0.5 * torch.special.erfc(-wide * 0.5**0.5)
    assert judged(model, [x], found.float()).mismatch is None
    for wrong in (1e-3 * x, x.clamp_max(0.0) * 1e-4):
        assert judged(model, [x], found.float() + wrong).mismatch is not None


@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_gelu_is_judged_as_closely_elsewhere(approximate):
    torch.manual_seed(4)
    x = torch.randn(50, 300)
    model = Function(lambda x: nn.functional.gelu(x, approximate=approximate))
    right = model(x.double()).float()
    assert judged(model, [x], right).mismatch is None
    other = nn.functional.gelu(x, approximate="none" if approximate == "tanh" else "tanh")
    assert judged(model, [x], other).mismatch is not None
    assert judged(model, [x], right * (1 + 1e-5)).mismatch is not None
    assert judged(model, [x], torch.where(x < -3, 0.0, right)).mismatch is not None


def test_tf32_passes_in_a_convolution_where_it_is_permitted_and_is_named():
    torch.manual_seed(3)
    x, w = torch.randn(2, 8, 9, 9), torch.randn(6, 8, 3, 3)
    model = Function(nn.functional.conv2d)
    found = nn.functional.conv2d(in_tf32(x, False), in_tf32(w, False))
    assert judged(model, [x, w], found).mismatch is not None
    passed = judged(model, [x, w], found, frozenset({"conv"}))
    assert (passed.mismatch, passed.permitted) == (None, "TF32")
    assert judged(model, [x, w], nn.functional.conv2d(x, w), frozenset({"conv"})).permitted == ""


def test_what_tf32_permits_is_no_coarser_than_tf32():
    """Operands of one bit less; drawn roundings, which are further off, bound no whole output."""

    def coarse(value):
        return ((value.contiguous().view(torch.int32) + (1 << 13)) & ~0x3FFF).view(torch.float32)

    torch.manual_seed(0)
    x, w = torch.randn(4, 16, 12, 12), torch.randn(16, 16, 3, 3)
    model = Function(lambda x, w: nn.functional.group_norm(nn.functional.conv2d(x, w), 4))
    found = model(coarse(x), coarse(w))
    assert judged(model, [x, w], found, frozenset({"conv"})).mismatch is not None
    nearest = model(in_tf32(x, True), in_tf32(w, True))
    assert judged(model, [x, w], nearest, frozenset({"conv"})).mismatch is None


def test_a_saturated_sum_may_have_the_sign_that_an_honest_evaluation_gives_it():
    """tanh of large numbers is 1 or -1, also where a sum cancels: 2.5 times the rms error of a
    chain away from 0 an order of the sum may end on either side, 60 times away none does."""
    torch.manual_seed(4)
    x, w = torch.randn(64, 500), torch.randn(500, 400)
    w[0, 0] = 1.0
    deviation = 2.0**-24 * 3**-0.5 * 500 / 6**0.5
    aim = torch.zeros(14, 1, dtype=torch.float64)
    aim[12:, 0] = torch.tensor([2.5 * deviation, 60 * deviation])
    x[:14, :1] -= (x[:14].double() @ w[:, :1].double() - aim).float()
    model = Function(lambda x, w: torch.tanh(1e15 * (x @ w)))
    eager = call_reference(model, [x, w]).leaves[0]
    near, far = eager.clone(), eager.clone()
    near[12, 0] *= -1
    far[13, 0] *= -1
    assert judged(model, [x, w], near).mismatch is None
    assert judged(model, [x, w], far).mismatch.first_index == (13, 0)


@pytest.mark.parametrize("seed", range(6))
def test_a_saturated_sum_may_have_the_sign_that_a_folded_norm_in_tf32_gives_it(seed):
    """A scale that is folded into the weights before they are rounded rounds other numbers than the
    original's: neither to the nearest nor truncated is its error that of the original."""
    torch.manual_seed(seed)
    x, w, scale = torch.randn(32, 16, 32, 32), torch.randn(16, 16, 3, 3), torch.rand(16) + 0.5
    last = torch.randn(3, 16, 3, 3)

    def function(x, w, last):
        inner = torch.relu(nn.functional.conv2d(x, w) * scale[:, None, None].to(x))
        return torch.tanh(1e8 * nn.functional.conv2d(inner, last))

    def folded(cut):
        weights = w * scale[:, None, None, None]
        inner = torch.relu(nn.functional.conv2d(cut(x), cut(weights)))
        return torch.tanh(1e8 * nn.functional.conv2d(cut(inner), cut(last)))

    allowed = frozenset({"conv"})
    nearest = folded(lambda value: in_tf32(value, True))
    assert judged(Function(function), [x, w, last], nearest, allowed).mismatch is None
    narrow = folded(lambda value: value.bfloat16().float())
    assert judged(Function(function), [x, w, last], narrow, allowed).mismatch is not None


def test_evaluations_move_as_many_times_further_as_they_are_asked_to():
    torch.manual_seed(5)
    x, w = torch.randn(9, 70), torch.randn(70, 8)
    model = Function(lambda x, w: (x @ w + 1).mean(-1).exp())
    for rounds in (frozenset(), frozenset({"mm"})):
        known = Population(model, [x / 30, w], False, rounds)
        kind = known.permitted if rounds else known.honest
        oracle = call_reference(model, [x / 30, w]).oracle[0]
        for draw in (0, 1, 2):
            less, more = (kind(0, times)(draw).double() / oracle - 1 for times in (16.0, 128.0))
            assert float(more.norm() / less.norm()) == pytest.approx(8, rel=0.15)


def test_what_is_copied_compared_or_selected_does_not_move():
    x = torch.randn(8, 40)
    with RoundingNoise(1):
        found = [torch.relu(x), x.sort().values, x.amax(-1), torch.cat([x, x]), x.t(), x[2]]
    plain = [torch.relu(x), x.sort().values, x.amax(-1), torch.cat([x, x]), x.t(), x[2]]
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    with RoundingNoise(1):
        assert not torch.equal(x.exp(), plain[0])


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (nn.LSTM(6, 5), [torch.randn(4, 2, 6)]),
        (nn.BatchNorm2d(3), [torch.randn(2, 3, 5, 5)]),
        (nn.GroupNorm(2, 4), [torch.randn(2, 4, 5)]),
        (nn.MultiheadAttention(8, 2), [torch.randn(5, 2, 8)] * 3),
        (nn.ConvTranspose2d(3, 4, 3, stride=2), [torch.randn(2, 3, 5, 5)]),
        (Function(lambda x: x.add_(1).cumsum(-1)), [torch.randn(3, 9)]),
        (nn.CrossEntropyLoss(), [torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])]),
    ],
)
def test_modules_run_and_stay_near(model, given):
    oracle = call_reference(model, given).oracle[0]
    before = [item.clone() for item in given]
    known = Population(model, given, False)
    for draw in (0, 1):
        value = known.honest(0)(draw)
        assert errors(value, oracle, value).norm < 3e-6
    assert all(torch.equal(one, other) for one, other in zip(given, before, strict=True))


def test_indices_are_judged_by_what_they_point_at():
    logits = torch.tensor([[90.0, 0.0, 0.0, -1.0], [0.0, 1.0, 1.0, 0.5]])
    model = Function(lambda x: torch.softmax(3 * x, -1).topk(2).indices)
    eager = call_reference(model, [logits]).leaves[0]
    swapped = eager.clone()
    swapped[1] = eager[1].flip(0)
    assert judged(model, [logits], swapped).mismatch is None
    other = eager.clone()
    other[0, 1] = 2 if int(eager[0, 1]) == 1 else 1
    assert judged(model, [logits], other).mismatch is None
    for row, column, place in ((1, 0, 3), (0, 0, 1), (1, 0, 7), (1, 0, -1)):
        wrong = eager.clone()
        wrong[row, column] = place
        assert judged(model, [logits], wrong).mismatch is not None
    twice = eager.clone()
    twice[1, 1] = twice[1, 0]
    assert judged(model, [logits], twice).mismatch is not None


def test_the_place_of_the_maximum_of_a_row_of_nan_is_any():
    x = torch.randn(3, 5)
    x[1] = float("nan")
    model = Function(lambda x: x.argmax(-1))
    eager = call_reference(model, [x]).leaves[0]
    moved = eager.clone()
    moved[1] = 3
    assert judged(model, [x], moved).mismatch is None
    moved[0] = (moved[0] + 1) % 5
    assert judged(model, [x], moved).mismatch is not None


def attention_in_blocks(given, keys, forgotten):
    """As a fused kernel of fp16 has it: weights rounded against the largest score so far, `keys` at
    a time, the last `forgotten` left out."""
    query, key, value, bias = (item.float() for item in given)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + bias
    top = torch.full_like(scores[..., :1], -1e30)
    total, found = torch.zeros_like(top), torch.zeros_like(query)
    end = scores.shape[-1] - forgotten
    for start in range(0, end, keys):
        part = slice(start, min(start + keys, end))
        highest = torch.maximum(top, scores[..., part].amax(-1, keepdim=True))
        weights, less = (scores[..., part] - highest).exp(), (top - highest).exp()
        total = total * less + weights.sum(-1, keepdim=True)
        found = found * less + weights.half().float() @ value[..., part, :]
        top = highest
    return (found / total).half()


def test_attention_may_round_its_weights_and_may_not_forget_a_key():
    """Where nearly all weight lies on a key without a value, the rounding of the other weights is
    all that there is."""
    generator = torch.Generator().manual_seed(15)

    def drawn(*shape):
        return sparse(torch.randn(*shape, generator=generator), generator, 16.0).half()

    given = [*(drawn(1, 2, 577, 64) for _ in range(3)), drawn(1, 2, 577, 577)]

    def attend(query, key, value, bias):
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)

    model = Function(attend)
    assert judged(model, given, attention_in_blocks(given, 32, 0)).mismatch is None
    assert judged(model, given, attention_in_blocks(given, 32, 1)).mismatch is not None


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_a_sample_of_the_wrong_pixel_is_refused(mode, padding, aligned):
    torch.manual_seed(3)
    image, grid = torch.randn(2, 3, 16, 16), torch.rand(2, 12, 12, 2) * 2.4 - 1.2

    def sample(image, grid):
        return nn.functional.grid_sample(image, grid, mode, padding, aligned)

    model = Function(sample)
    known = Population(model, [image, grid], False)
    oracle = sample(image.double(), grid.double())
    for draw in range(4):
        assert (known.honest(0)(draw) - oracle).norm() < 1e-5 * oracle.norm()
    right = sample(image, grid)
    assert judged(model, [image, grid], right).mismatch is None
    for wrong in (0 * right, sample(image, grid + 1e-2), right.flip(-1)):
        assert judged(model, [image, grid], wrong).mismatch is not None


class Identity(nn.Module):
    """Attention of one head between its inputs, as `nn.MultiheadAttention` calls it."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 1, bias=False, batch_first=True)
        with torch.no_grad():
            self.inner.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
            self.inner.out_proj.weight.copy_(torch.eye(width))

    def forward(self, query, key, value):
        return self.inner(query, key, value, need_weights=False)[0]


@pytest.mark.parametrize("inside", [False, True])
def test_weights_are_rounded_in_multi_head_attention_too(inside):
    """Each evaluation has weights of its own, in training mode and in eval mode."""
    torch.manual_seed(0)
    given = [torch.randn(1, 9, 64).half() for _ in range(3)]
    bare = Function(nn.functional.scaled_dot_product_attention)
    for model in (Identity(64).half().eval(), Identity(64).half()) if inside else (bare,):
        known = Population(model, given, model.training)
        draws = torch.stack([known.honest(0)(draw) for draw in range(6)])
        assert len(draws.unique(dim=0)) == 6


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: nn.functional.scaled_dot_product_attention(x, y, y, scale=0.0),
        lambda x, y: x + nn.functional.scaled_dot_product_attention(x, y[:, :0], y[:, :0]),
        lambda x, y: nn.functional.scaled_dot_product_attention(x[:0], y[:0], y[:0]).sum() + x,
    ],
)
def test_attention_without_a_scale_or_without_keys(call):
    torch.manual_seed(0)
    given = [torch.randn(2, 30, 8).half() for _ in range(2)]
    model = Function(call)
    right = call(*given)
    assert judged(model, given, right).mismatch is None
    assert judged(model, given, 1.1 * right).mismatch is not None


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_coordinates_of_an_interpolation_may_be_rounded_otherwise(mode):
    """Near the middle of an image a coordinate keeps few digits of a tiny place on the grid, which
    is all that there is of it where the pixels around it cancel."""
    generator = torch.Generator().manual_seed(5)
    image = torch.randn(1, 3, 1024, 1024, generator=generator)
    image[:, 1, :, 512:] = 1e-3 * image[:, 1, :, 512:] - image[:, 1, :, :512].flip(-1)
    grid = 1e-6 * torch.randn(1, 64, 64, 2, generator=generator)

    def sample(image, grid):
        return nn.functional.grid_sample(image, grid, mode, align_corners=False)

    def by_centres(image, grid):
        sampled = decomposition_table[torch.ops.aten.grid_sampler_2d.default]
        return sampled(image, grid, 0 if mode == "bilinear" else 2, 0, False)

    known = Population(Function(sample), [image, grid], False)
    leeway = Leeway(honest=known.honest(0), further=known.honest(0, HONEST))
    oracle = sample(image.double(), grid.double())
    one, other = (known.honest(0)(draw)[:, 1] for draw in (1, 2))
    # The kernel of a CPU is as far off as they are: that of a GPU, which multiplies and adds in one
    # step, is not.
    assert 1e-3 < (one - other).norm() / oracle[:, 1].norm() < 0.5

    def mismatch(found):
        values = OutputValues(found, oracle.float(), oracle)
        return compare_output("tiny", 0, values, "strict", leeway).mismatch

    assert mismatch(by_centres(image, grid)) is None
    assert mismatch(by_centres(image, grid + 2e-6)) is not None


def in_parts(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product whose terms are added as two chains."""
    half = left.shape[-1] // 2
    first = _product_as_chain(left[..., :half], right[..., :half, :])
    return first + _product_as_chain(left[..., half:], right[..., half:, :])


def last_first(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return _product_as_chain(left.flip(-1), right.flip(-2))


@pytest.mark.parametrize(
    ("product", "expected"), [(_product_as_chain, True), (in_parts, False), (last_first, False)]
)
def test_a_probe_tells_whether_a_product_is_one_chain(
    product: Callable[..., torch.Tensor], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "matmul", product)
    shapes = ((3, 40), (40, 1), (40, 5), (1, 40))
    library_adds_in_order.cache_clear()
    assert library_adds_in_order(*shapes, torch.device("cpu")) is expected
    library_adds_in_order.cache_clear()


@pytest.mark.gpu
@pytest.mark.parametrize("turned", [False, True])
def test_the_librarys_chain_is_the_one_of_a_loop(turned: bool) -> None:
    """Products of bf16 numbers are exact in fp32: fused or not, both chains are one bit for bit."""
    generator = torch.Generator(device="cuda").manual_seed(3)
    left = torch.randn(2048, 2112, generator=generator, device="cuda").bfloat16().float()
    right = torch.randn(2112, 2048, generator=generator, device="cuda").bfloat16().float()
    right = right.t().contiguous().t() if turned else right
    assert left.numel() * 2048 >= LONG_CHAINS
    shapes = (tuple(left.shape), left.stride(), tuple(right.shape), right.stride())
    assert library_adds_in_order(*shapes, left.device)
    chain = left.new_zeros(2048, 2048)
    for k in range(left.shape[1]):
        chain += left[:, k, None] * right[k, None, :]
    assert torch.equal(torch.matmul(left, right), chain)
