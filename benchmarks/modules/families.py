"""Which kinds of small modules are there, and which choices does each kind leave open?

A family yields a `Spec` for each of its members: no two of them compute the same thing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Spec(NamedTuple):
    """One module: what it computes in words, the body of forward (it ends with its result), what
    goes in as `name` -> expression, and the lines of its constructor."""

    title: str
    forward: str
    inputs: dict[str, str]
    init: tuple[str, ...] = ()


def randn(*shape: int, dtype: str = "float32") -> str:
    """The expression of a normal tensor; the dtype is named where it is not torch's default."""
    sizes = ", ".join(map(str, shape))
    return (
        f"torch.randn({sizes})" if dtype == "float32" else f"torch.randn({sizes}).to(torch.{dtype})"
    )


def whole(high: int, *shape: int) -> str:
    """The expression of whole numbers from 0 to `high` - 1."""
    return f"torch.randint(0, {high}, ({', '.join(map(str, shape))},))"


ACTIVATIONS = {
    "relu": "torch.relu({})",
    "sigmoid": "torch.sigmoid({})",
    "tanh": "torch.tanh({})",
    "gelu": "F.gelu({})",
    "tanh gelu": 'F.gelu({}, approximate="tanh")',
    "silu": "F.silu({})",
    "softplus": "F.softplus({})",
    "elu": "F.elu({})",
    "mish": "F.mish({})",
    "leaky relu": "F.leaky_relu({}, 0.1)",
    "hardswish": "F.hardswish({})",
    "softsign": "F.softsign({})",
    "selu": "F.selu({})",
    "relu6": "F.relu6({})",
    "log-sigmoid": "F.logsigmoid({})",
}
"""Name -> the call."""
SHAPES = ((16, 48), (4, 12, 20), (2, 3, 8, 10), (130,), (7, 33), (2, 5, 3, 4, 6))


def act(name: str, value: str) -> str:
    """The activation called `name` of the expression `value`."""
    return ACTIVATIONS[name].format(value)


def activation_chains() -> Iterator[Spec]:
    """Activation chains."""
    names = list(ACTIVATIONS)
    for step in (1, 4):
        for place, first in enumerate(names):
            second = names[(place + step) % len(names)]
            dtype = ("float32", "float16", "bfloat16")[place % 3] if step == 4 else "float32"
            shape = SHAPES[(place + step) % len(SHAPES)]
            yield Spec(
                f"{first}, shifted, then {second}, rank {len(shape)}, {dtype}",
                f"y = {act(first, 'x')}\nreturn {act(second, f'y * 1.{step} - 0.{place % 9 + 1}')}",
                {"x": randn(*shape, dtype=dtype)},
            )


def gated_units() -> Iterator[Spec]:
    """Gated units."""
    for place, name in enumerate(ACTIVATIONS):
        if place % 2:
            body = f"value, gate = x.chunk(2, dim=-1)\nreturn value * {act(name, 'gate')}"
            yield Spec(f"halves of a row, one gated by {name}", body, {"x": randn(12, 64)})
        else:
            body = f"return {act(name, 'x + self.bias')} * gate"
            yield Spec(
                f"{name} of a biased row times a gate",
                body,
                {"x": randn(12, 40), "gate": randn(12, 40)},
                ("self.bias = nn.Parameter(torch.randn(40))",),
            )


def blends() -> Iterator[Spec]:
    """Blends."""
    forms = {
        "lerp": "torch.lerp(a, b, 0.3)",
        "hypotenuse": "torch.sqrt(a * a + b * b)",
        "larger, scaled": "torch.maximum(a, b) * 0.5",
        "smaller, squared": "torch.minimum(a, b).square()",
        "squared difference": "(a - b).square()",
        "absolute difference": "(a - b).abs()",
        "harmonic": "a * b / (a.abs() + b.abs() + 1.0)",
        "log of summed exponents": "torch.logaddexp(a, b)",
        "angle": "torch.atan2(a, b.abs() + 0.5)",
        "sigmoid blend": "torch.sigmoid(a) * b + (1 - torch.sigmoid(a)) * a",
        "sign-matched": "torch.where(a * b > 0, a, -b)",
        "addcmul": "torch.addcmul(a, a, b, value=0.7)",
    }
    broadcast = (("same shapes", (6, 40), (6, 40)), ("a column broadcast", (6, 40), (6, 1)))
    for (name, form), (how, one, other) in itertools.product(forms.items(), broadcast):
        yield Spec(
            f"{name} of two tensors, {how}",
            f"return {form}",
            {"a": randn(*one), "b": randn(*other)},
        )


NORMS = {
    "layer norm": ("F.layer_norm(x, (48,))", (16, 48)),
    "affine layer norm": ("self.norm(x)", (16, 48)),
    "rms norm": ("x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)", (16, 48)),
    "group norm": ("F.group_norm(x, 3)", (2, 6, 5, 7)),
    "instance norm": ("F.instance_norm(x)", (2, 4, 6, 5)),
    "l2 normalisation": ("F.normalize(x, dim=-1)", (16, 48)),
    "l1 normalisation": ("F.normalize(x, p=1.0, dim=1)", (3, 10, 8)),
    "standardisation": (
        "(x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)",
        (9, 37),
    ),
    "min-max scaling": (
        "(x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True)"
        " - x.amin(-1, keepdim=True) + 1e-4)",
        (9, 37),
    ),
    "batch norm with fixed moments": (
        "(x - self.mean[:, None]) * torch.rsqrt(self.var[:, None] + 1e-5)",
        (4, 6, 15),
    ),
}
NORM_INIT = {
    "affine layer norm": ("self.norm = nn.LayerNorm(48)",),
    "batch norm with fixed moments": (
        'self.register_buffer("mean", torch.zeros(6))',
        'self.register_buffer("var", torch.ones(6))',
    ),
}


def norms_then_activation() -> Iterator[Spec]:
    """Norms then activation."""
    for name, (form, shape) in NORMS.items():
        for second in ("relu", "gelu", "tanh", "silu"):
            yield Spec(
                f"{name}, then {second}",
                f"y = {form}\nreturn {act(second, 'y')}",
                {"x": randn(*shape)},
                NORM_INIT.get(name, ()),
            )


def residual_norms() -> Iterator[Spec]:
    """Residual norms."""
    for name, (form, shape) in NORMS.items():
        yield Spec(
            f"{name} of a sum with a residual",
            f"x = x + residual\nreturn {form}",
            {"x": randn(*shape), "residual": randn(*shape)},
            NORM_INIT.get(name, ()),
        )
        yield Spec(
            f"{name} of a halved input, added back to it",
            f"skip = x\nx = x * 0.5\nreturn skip + {form}",
            {"x": randn(*shape)},
            NORM_INIT.get(name, ()),
        )


def softmaxes() -> Iterator[Spec]:
    """Softmaxes."""
    before = {
        "scaled scores": "x * 0.125",
        "capped scores": "10 * torch.tanh(x / 10)",
        "absolute scores": "x.abs()",
        "negated scores": "-x",
        "sharpened scores": "x / 0.2",
    }
    forms = {
        "softmax": "torch.softmax({}, dim={})",
        "log-softmax": "F.log_softmax({}, dim={})",
        "softmin": "F.softmin({}, dim={})",
        "log of summed exponents": "torch.logsumexp({}, dim={})",
    }
    for (what, value), (name, form) in itertools.product(before.items(), forms.items()):
        for where, dim, shape in (("rows", -1, (10, 33)), ("channels", 1, (2, 9, 4, 5))):
            yield Spec(
                f"{name} of {what} over {where}",
                f"return {form.format(value, dim)}",
                {"x": randn(*shape)},
            )


def losses() -> Iterator[Spec]:
    """Losses."""
    forms = {
        "mean squared error": "(prediction - target).square()",
        "mean absolute error": "(prediction - target).abs()",
        "log-cosh loss": "F.softplus(-2 * (prediction - target)) + prediction - target",
        "hinge loss": "torch.relu(1 - prediction * torch.sign(target))",
        "squared hinge loss": "torch.relu(1 - prediction * torch.sign(target)).square()",
        "logistic loss": "F.softplus(-prediction * torch.sign(target))",
        "binary cross entropy of logits": (
            "F.softplus(prediction) - prediction * torch.sigmoid(target)"
        ),
        "Poisson loss": "torch.exp(prediction) - target * prediction",
        "Charbonnier loss": "torch.sqrt((prediction - target).square() + 1e-3)",
        "exponential loss": "torch.exp(-0.5 * prediction * torch.sign(target))",
        "Cauchy loss": "torch.log1p((prediction - target).square())",
        "quantile loss": "torch.maximum(0.9 * (target - prediction), -0.1 * (target - prediction))",
        "smooth l1 loss": 'F.smooth_l1_loss(prediction, target, reduction="none")',
        "Huber loss": 'F.huber_loss(prediction, target, reduction="none", delta=0.7)',
    }
    ends = {
        "its mean": "loss.mean()",
        "a sum a row": "loss.sum(dim=-1)",
        "a weighted mean": "(loss * weight).sum() / (weight.abs().sum() + 1)",
    }
    for (name, form), (what, end) in itertools.product(forms.items(), ends.items()):
        inputs = {"prediction": randn(8, 30), "target": randn(8, 30)}
        if "weight" in end:
            inputs["weight"] = randn(8, 1)
        yield Spec(f"{name}, {what}", f"loss = {form}\nreturn {end}", inputs)


def class_losses() -> Iterator[Spec]:
    """Class losses."""
    for reduction, smoothing in itertools.product(("mean", "sum", "none"), (0.0, 0.1)):
        call = (
            f'F.cross_entropy(logits, label, reduction="{reduction}", label_smoothing={smoothing})'
        )
        yield Spec(
            f"cross entropy, {reduction}, label smoothing {smoothing}",
            f"return {call}",
            {"logits": randn(12, 10), "label": whole(10, 12)},
        )
    for temperature in (1.0, 2.0, 4.0):
        body = (
            f"teacher = F.softmax(theirs / {temperature}, dim=-1)\n"
            f"student = F.log_softmax(ours / {temperature}, dim=-1)\n"
            'return F.kl_div(student, teacher, reduction="batchmean")'
        )
        yield Spec(
            f"distillation at temperature {temperature}",
            body,
            {"ours": randn(6, 20), "theirs": randn(6, 20)},
        )
    for gamma in (1, 2, 3):
        body = (
            "chosen = F.log_softmax(logits, dim=-1).gather(1, label[:, None]).squeeze(1)\n"
            f"return (-(1 - chosen.exp()) ** {gamma} * chosen).mean()"
        )
        yield Spec(
            f"focal loss with focus {gamma}",
            body,
            {"logits": randn(12, 10), "label": whole(10, 12)},
        )


def reductions() -> Iterator[Spec]:
    """Reductions."""
    first = {
        "squares": "x * x",
        "exponentials": "torch.exp(x * 0.5)",
        "magnitudes": "x.abs()",
        "positive parts": "torch.relu(x)",
    }
    forms = {
        "sum": "y.sum(dim={})",
        "mean": "y.mean(dim={})",
        "largest": "y.amax(dim={})",
        "smallest": "y.amin(dim={})",
        "variance": "y.var(dim={})",
    }
    dims = (
        ("each row", "-1", (10, 50)),
        ("each column", "0", (40, 12)),
        ("each channel's pixels", "(2, 3)", (2, 5, 6, 7)),
    )
    for (what, value), (name, form), (where, dim, shape) in itertools.product(
        first.items(), forms.items(), dims
    ):
        yield Spec(
            f"{name} of {what} over {where}",
            f"y = {value}\nreturn {form.format(dim)}",
            {"x": randn(*shape)},
        )


def searches() -> Iterator[Spec]:
    """Searches."""
    first = {
        "plain values": "x",
        "magnitudes": "x.abs()",
        "distances to a half": "(x - 0.5).square()",
    }
    forms = {
        "where the largest is": "y.argmax(dim={})",
        "where the smallest is": "y.argmin(dim={})",
        "how many are above 0.3": "(y > 0.3).sum(dim={})",
        "whether any is above 2": "(y > 2).any(dim={})",
        "whether all are below 3": "(y < 3).all(dim={})",
    }
    for (what, value), (name, form), dim in itertools.product(first.items(), forms.items(), (0, 1)):
        yield Spec(
            f"{name} among {what}, dimension {dim}",
            f"y = {value}\nreturn {form.format(dim)}",
            {"x": randn(18, 22)},
        )


def scans() -> Iterator[Spec]:
    """Scans."""
    first = {
        "": "x",
        " of squares": "x * x",
        " of sigmoids": "torch.sigmoid(x)",
        " of halves": "x * 0.5",
    }
    forms = {
        "running sum": "torch.cumsum({}, dim={})",
        "running product": "torch.cumprod({}, dim={})",
        "running log of summed exponents": "torch.logcumsumexp({}, dim={})",
    }
    for (what, value), (name, form), (where, dim, shape) in itertools.product(
        first.items(), forms.items(), (("rows", 1, (6, 32)), ("columns", 0, (24, 5)))
    ):
        yield Spec(
            f"{name}{what} along {where}", f"return {form.format(value, dim)}", {"x": randn(*shape)}
        )


def lookups() -> Iterator[Spec]:
    """Lookups."""
    after = {
        "": "rows",
        ", scaled": "rows * 8.0",
        ", normalised": "F.normalize(rows, dim=-1)",
        ", through tanh": "torch.tanh(rows)",
        ", averaged": "rows.mean(dim=-2)",
    }
    forms = {
        "embedding": (
            "self.table[index]",
            {"index": whole(30, 5, 7)},
            ("self.table = nn.Parameter(torch.randn(30, 16))",),
        ),
        "selected rows": (
            "torch.index_select(x, 0, index)",
            {"x": randn(20, 16), "index": whole(20, 9)},
            (),
        ),
        "gathered elements": (
            "torch.gather(x, 1, index)",
            {"x": randn(8, 20), "index": whole(20, 8, 6)},
            (),
        ),
        "elements along rows": (
            "torch.take_along_dim(x, index, dim=0)",
            {"x": randn(8, 20), "index": whole(8, 3, 20)},
            (),
        ),
    }
    for (name, (form, inputs, init)), (what, end) in itertools.product(
        forms.items(), after.items()
    ):
        yield Spec(f"{name}{what}", f"rows = {form}\nreturn {end}", inputs, init)


def masks() -> Iterator[Spec]:
    """Masks."""
    conditions = {
        "where above the row's mean": "x > x.mean(dim=-1, keepdim=True)",
        "where positive": "x > 0",
        "within one of zero": "x.abs() < 1",
        "below the diagonal": "torch.ones_like(x).tril() > 0",
        "above the diagonal": "torch.ones_like(x).triu(1) > 0",
    }
    ends = {
        "kept, else zero": "torch.where(keep, x, 0.0)",
        "kept, else -5": "x.masked_fill(~keep, -5.0)",
        "doubled, else halved": "torch.where(keep, 2 * x, 0.5 * x)",
        "summed a row": "(x * keep).sum(dim=-1)",
        "in a softmax": "torch.softmax(x.masked_fill(~keep, -1e4), dim=-1)",
    }
    for (where, condition), (what, end) in itertools.product(conditions.items(), ends.items()):
        yield Spec(f"{where}: {what}", f"keep = {condition}\nreturn {end}", {"x": randn(20, 24)})


def pools() -> Iterator[Spec]:
    """Pools."""
    forms = {
        "average pool over pairs": ("F.avg_pool1d(x, 2)", (2, 3, 20)),
        "overlapping max pool in a line": ("F.max_pool1d(x, 3, stride=2, padding=1)", (2, 3, 21)),
        "average pool of squares": ("F.avg_pool2d(x, 3, stride=2)", (2, 3, 11, 11)),
        "max pool of squares": ("F.max_pool2d(x, 2)", (2, 3, 10, 12)),
        "padded max pool": ("F.max_pool2d(x, 3, stride=1, padding=1)", (1, 2, 9, 8)),
        "average pool of cubes": ("F.avg_pool3d(x, 2)", (1, 2, 4, 6, 8)),
        "adaptive average pool": ("F.adaptive_avg_pool2d(x, 3)", (2, 3, 9, 12)),
        "power-average pool": ("F.lp_pool2d(x.abs() + 0.1, 2.0, 2)", (2, 3, 8, 6)),
    }
    for (name, (form, shape)), second in itertools.product(
        forms.items(), ("sigmoid", "relu6", "elu")
    ):
        yield Spec(f"{name}, then {second}", f"return {act(second, form)}", {"x": randn(*shape)})


def linear_epilogues() -> Iterator[Spec]:
    """Linear epilogues."""
    ends = {
        **{name: act(name, "y") for name in list(ACTIVATIONS)[:11]},
        "a residual": "y + skip",
        "a gate": "y * torch.sigmoid(skip)",
        "row softmax": "torch.softmax(y, dim=-1)",
        "clamping": "y.clamp(-0.5, 0.5)",
        "row sums": "y.sum(dim=-1)",
        "layer norm": "F.layer_norm(y, (24,))",
    }
    for name, end in ends.items():
        inputs = {"x": randn(16, 32)} | ({"skip": randn(16, 24)} if "skip" in end else {})
        yield Spec(
            f"linear layer with {name}",
            f"y = self.linear(x)\nreturn {end}",
            inputs,
            ("self.linear = nn.Linear(32, 24)",),
        )


def attention_scores() -> Iterator[Spec]:
    """Attention scores."""
    ends = {
        "softmax": "torch.softmax(scores, dim=-1)",
        "sigmoid": "torch.sigmoid(scores)",
        "squared relu": "torch.relu(scores).square()",
        "capped": "5 * torch.tanh(scores / 5)",
        "causal softmax": (
            "torch.softmax(scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -1e4), dim=-1)"
        ),
        "largest a query": "scores.amax(dim=-1)",
        "log-softmax": "F.log_softmax(scores, dim=-1)",
        "kernel features": "F.elu(scores) + 1",
    }
    for name, end in ends.items():
        yield Spec(
            f"scores of queries and keys, {name}",
            f"scores = torch.bmm(q, k.transpose(1, 2)) * 0.25\nreturn {end}",
            {"q": randn(3, 12, 16), "k": randn(3, 12, 16)},
        )


def distances() -> Iterator[Spec]:
    """Distances."""
    forms = {
        "squared Euclidean": "(a[:, None, :] - b[None, :, :]).square().sum(-1)",
        "Manhattan": "(a[:, None, :] - b[None, :, :]).abs().sum(-1)",
        "Chebyshev": "(a[:, None, :] - b[None, :, :]).abs().amax(-1)",
        "mean-squared": "(a[:, None, :] - b[None, :, :]).square().mean(-1)",
        "Canberra": "((a[:, None] - b).abs() / (a[:, None].abs() + b.abs() + 1e-2)).sum(-1)",
    }
    ends = {
        "": "d",
        ", as a Gaussian kernel": "torch.exp(-0.1 * d)",
        ", nearest": "d.argmin(dim=-1)",
        ", as an inverse kernel": "1 / (1 + d)",
    }
    for (name, form), (what, end) in itertools.product(forms.items(), ends.items()):
        yield Spec(
            f"{name} distances{what}",
            f"d = {form}\nreturn {end}",
            {"a": randn(9, 12), "b": randn(7, 12)},
        )


def rotations() -> Iterator[Spec]:
    """Rotations."""
    split = {
        "halves": ("a, b = x.chunk(2, dim=-1)", "torch.cat([{}, {}], dim=-1)"),
        "pairs": ("a, b = x[..., 0::2], x[..., 1::2]", "torch.stack([{}, {}], dim=-1).flatten(-2)"),
    }
    for (name, (take, join)), scaled in itertools.product(split.items(), (False, True)):
        turned = join.format("a * c - b * s", "a * s + b * c")
        body = (
            f"{take}\nc, s = torch.cos(angle), torch.sin(angle)\nreturn {'0.5 * ' * scaled}{turned}"
        )
        yield Spec(
            f"rotary embedding by {name}{', scaled' * scaled}",
            body,
            {"x": randn(2, 6, 16), "angle": randn(6, 8)},
        )


def quantisations() -> Iterator[Spec]:
    """Quantisations."""
    for bits, dim in itertools.product((4, 6, 8), (-1, 0)):
        top = 2 ** (bits - 1) - 1
        scale = f"scale = x.abs().amax(dim={dim}, keepdim=True) / {top} + 1e-6"
        yield Spec(
            f"rounded to {bits} bits along dimension {dim} and back",
            f"{scale}\nreturn torch.round(x / scale).clamp(-{top}, {top}) * scale",
            {"x": randn(12, 40)},
        )
    for dtype in ("float32", "float16", "bfloat16"):
        yield Spec(
            f"bytes scaled to {dtype}",
            f"return (q.to(torch.{dtype}) - zero.to(torch.{dtype})) * 0.02",
            {"q": f"{whole(127, 10, 32)}.to(torch.int8)", "zero": whole(9, 10, 1)},
        )


def paddings() -> Iterator[Spec]:
    """Paddings."""
    for mode, second in itertools.product(
        ("constant", "reflect", "replicate", "circular"), ("relu", "tanh", "softsign")
    ):
        yield Spec(
            f"{mode} padding, then {second}",
            f'y = F.pad(x, (2, 1, 1, 2), mode="{mode}")\nreturn {act(second, "y")}',
            {"x": randn(2, 3, 8, 9)},
        )


def resamplings() -> Iterator[Spec]:
    """Resamplings."""
    forms = {
        "nearest upsampling": 'F.interpolate(x, scale_factor=2.0, mode="nearest")',
        "bilinear upsampling": 'F.interpolate(x, size=(9, 11), mode="bilinear")',
        "corner-aligned upsampling": (
            'F.interpolate(x, size=(9, 11), mode="bilinear", align_corners=True)'
        ),
        "pixel shuffle": "F.pixel_shuffle(x, 2)",
        "pixel unshuffle": "F.pixel_unshuffle(x, 2)",
        "channel shuffle": "x.view(2, 2, 2, 6, 6).transpose(1, 2).reshape(2, 4, 6, 6)",
    }
    for (name, form), second in itertools.product(forms.items(), ("silu", "hardswish", "softplus")):
        yield Spec(
            f"{name}, then {second}", f"return {act(second, form)}", {"x": randn(2, 4, 6, 6)}
        )


def rearrangements() -> Iterator[Spec]:
    """Rearrangements."""
    forms = {
        "columns of both": "torch.cat([x, y], dim=1)",
        "rows of both": "torch.cat([x, y], dim=0)",
        "stacked": "torch.stack([x, y], dim=1)",
        "rolled sum": "torch.roll(x, 3, dims=1) + y",
        "mirrored sum": "torch.flip(x, dims=(1,)) + y",
        "transposed sum": "(x + y).t().contiguous()",
        "alternating": "torch.stack([x, y], dim=-1).flatten(1)",
        "neighbouring differences": "x[:, 1:] - y[:, :-1]",
        "every other column": "x[:, ::2] * y[:, 1::2]",
    }
    for (name, form), second in itertools.product(forms.items(), ("relu", "mish")):
        yield Spec(
            f"{name}, then {second}",
            f"z = {form}\nreturn {act(second, 'z')}",
            {"x": randn(10, 14), "y": randn(10, 14)},
        )


def similarities() -> Iterator[Spec]:
    """Similarities."""
    forms = {
        "cosine similarity": "F.cosine_similarity(a, b)",
        "dot product": "(a * b).sum(-1)",
        "correlation": (
            "F.cosine_similarity(a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True))"
        ),
        "soft overlap": "2 * (a * b).sum(-1) / (a.square().sum(-1) + b.square().sum(-1) + 1)",
        "Euclidean distance": "F.pairwise_distance(a, b)",
    }
    ends = {
        "": "s",
        ", one minus it": "1 - s",
        ", its margin": "torch.relu(s - 0.2)",
        ", averaged": "s.mean()",
    }
    for (name, form), (what, end) in itertools.product(forms.items(), ends.items()):
        yield Spec(
            f"{name} of rows{what}",
            f"s = {form}\nreturn {end}",
            {"a": randn(11, 26), "b": randn(11, 26)},
        )


def convolution_epilogues() -> Iterator[Spec]:
    """Convolution epilogues."""
    ends = {
        "relu": "torch.relu(y)",
        "gelu": "F.gelu(y)",
        "scale and shift": "y * 0.5 + 0.1",
        "global average": "y.mean(dim=(2, 3))",
        "channel softmax": "torch.softmax(y, dim=1)",
        "group norm": "F.group_norm(y, 2)",
        "residual": "y + x",
        "max pool": "F.max_pool2d(y, 2)",
    }
    for name, end in ends.items():
        yield Spec(
            f"convolution with {name}",
            f"y = self.conv(x)\nreturn {end}",
            {"x": randn(2, 4, 8, 8)},
            ("self.conv = nn.Conv2d(4, 4, 3, padding=1)",),
        )


def channel_gates() -> Iterator[Spec]:
    """Channel gates."""
    pooled = {
        "average": "x.mean(dim=(2, 3), keepdim=True)",
        "largest": "x.amax(dim=(2, 3), keepdim=True)",
        "channel average": "x.mean(dim=1, keepdim=True)",
    }
    for (name, form), second in itertools.product(
        pooled.items(), ("sigmoid", "tanh", "softsign", "relu6")
    ):
        yield Spec(
            f"gate by {second} of the {name}",
            f"gate = {act(second, form)}\nreturn x * gate",
            {"x": randn(2, 5, 6, 7)},
        )


def optimiser_steps() -> Iterator[Spec]:
    """Optimiser steps."""
    forms = {
        "momentum": "step = 0.9 * first + grad\nreturn weight - 0.01 * step, step",
        "Nesterov": "step = 0.9 * first + grad\nreturn weight - 0.01 * (grad + 0.9 * step), step",
        "RMSprop": "second = 0.99 * first.abs() + 0.01 * grad.square()\n"
        "return weight - 0.01 * grad / (second.sqrt() + 1e-4), second",
        "sign descent": (
            "step = 0.9 * first + 0.1 * grad\nreturn weight - 0.001 * torch.sign(step), step"
        ),
        "weight decay": "return weight * 0.99 - 0.01 * grad - 0.001 * first",
        "moving average": "return 0.95 * first + 0.05 * (weight - grad)",
        "clipped descent": "norm = grad.square().sum().sqrt()\n"
        "return weight - 0.1 * grad * (1.0 / norm.clamp(min=1.0)) + 0.0 * first",
    }
    for name, body in forms.items():
        yield Spec(
            f"{name} step",
            body,
            {"weight": randn(15, 20), "grad": randn(15, 20), "first": randn(15, 20)},
        )


def polynomials() -> Iterator[Spec]:
    """Polynomials."""
    series = {
        "cubic": "((0.1 * x + 0.3) * x - 0.5) * x + 1.0",
        "rational": "(x + 1) / (x * x + 2)",
        "Gaussian": "torch.exp(-x * x)",
        "Lorentzian": "1 / (1 + x * x)",
        "sinc-like": "torch.sin(x) / (x.abs() + 1)",
        "wavelet": "(1 - x * x) * torch.exp(-0.5 * x * x)",
        "snake": "x + torch.sin(2 * x).square() / 2",
        "error function": "torch.erf(x)",
        "log-magnitude": "torch.sign(x) * torch.log1p(x.abs())",
        "triangle": "torch.relu(1 - x.abs())",
    }
    for place, (name, form) in enumerate(series.items()):
        for shape in (SHAPES[place % 6], SHAPES[(place + 3) % 6]):
            first = place % 6 < 3
            tail = f"y * {first + 2}.0" if shape == SHAPES[place % 6] else "y.abs().sqrt()"
            yield Spec(
                f"{name} of elements, {'scaled' if 'y *' in tail else 'rooted'}",
                f"y = {form}\nreturn {tail}",
                {"x": randn(*shape)},
            )


def images() -> Iterator[Spec]:
    """Images."""
    forms = {
        "grey values": "0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]",
        "gamma correction": "x.abs().clamp(1e-3, 1.0) ** 0.45",
        "channel means taken off": "x - x.mean(dim=(2, 3), keepdim=True)",
        "contrast": "(x - x.mean()) * 1.5 + x.mean()",
        "total variation": (
            "(x[..., 1:] - x[..., :-1]).abs().mean()"
            " + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()"
        ),
        "Laplacian": (
            "4 * x[..., 1:-1, 1:-1] - x[..., 2:, 1:-1] - x[..., :-2, 1:-1]"
            " - x[..., 1:-1, 2:] - x[..., 1:-1, :-2]"
        ),
        "horizontal gradient": "x[..., 2:] - x[..., :-2]",
        "inverted": "x.amax(dim=(1, 2, 3), keepdim=True) - x",
        "saturation": "x.amax(dim=1) - x.amin(dim=1)",
        "thresholded": "(x > 0.2).to(x.dtype) * x",
    }
    for name, form in forms.items():
        yield Spec(f"image: {name}", f"return {form}", {"x": randn(2, 3, 9, 10)})


def labels() -> Iterator[Spec]:
    """Labels."""
    for count, second in itertools.product((5, 9), ("scaled", "smoothed", "subtracted")):
        tail = {
            "scaled": "hot * 3.0",
            "smoothed": f"0.9 * hot + {0.1 / count:.4f}",
            "subtracted": "torch.sigmoid(x) - hot",
        }[second]
        yield Spec(
            f"one-hot labels of {count} classes, {second}",
            f"classes = torch.arange({count}, device=label.device)\n"
            f"hot = (label[:, None] == classes).to(x.dtype)\nreturn {tail}",
            {"x": randn(14, count), "label": whole(count, 14)},
        )


def recurrent_cells() -> Iterator[Spec]:
    """Recurrent cells."""
    forms = {
        "LSTM gates": "i, f, g, o = x.chunk(4, dim=-1)\n"
        "c = torch.sigmoid(f) * state + torch.sigmoid(i) * torch.tanh(g)\n"
        "return torch.sigmoid(o) * torch.tanh(c), c",
        "coupled gates": "i, g, o, _ = x.chunk(4, dim=-1)\nkeep = torch.sigmoid(i)\n"
        "c = (1 - keep) * state + keep * torch.tanh(g)\nreturn torch.relu(o) * c",
        "update gate": "z, h, a, b = x.chunk(4, dim=-1)\nz = torch.sigmoid(z + a)\n"
        "return z * state + (1 - z) * torch.tanh(h * b)",
        "minimal gate": "f, h, a, b = x.chunk(4, dim=-1)\nf = F.hardsigmoid(f - a)\n"
        "return torch.lerp(state, F.silu(h + b), f)",
    }
    for name, body in forms.items():
        yield Spec(f"{name} of a recurrent cell", body, {"x": randn(5, 64), "state": randn(5, 16)})


FAMILIES: dict[str, Callable[[], Iterator[Spec]]] = {
    item.__name__: item
    for item in (
        activation_chains,
        gated_units,
        blends,
        norms_then_activation,
        residual_norms,
        softmaxes,
        losses,
        class_losses,
        reductions,
        searches,
        scans,
        lookups,
        masks,
        pools,
        linear_epilogues,
        attention_scores,
        distances,
        rotations,
        quantisations,
        paddings,
        resamplings,
        rearrangements,
        similarities,
        convolution_epilogues,
        channel_gates,
        optimiser_steps,
        polynomials,
        images,
        labels,
        recurrent_cells,
    )
}
"""By name."""
