"""Operators of generated modules, in the spellings that people use for them.

A step looks at the value so far, writes one operator after it and says whether it could.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from agentkernel.training.data.module_writer import ModuleDraft

Step = Callable[[ModuleDraft], bool]
MOST_ELEMENTS = 16_384
"""Elements of a value or weight: the interpreter takes milliseconds for a thousand."""

UNARY = {
    "relu": ("torch.relu({x})", "F.relu({x})", "{x}.relu()", "nn.ReLU()"),
    "sigmoid": ("torch.sigmoid({x})", "{x}.sigmoid()", "F.sigmoid({x})", "nn.Sigmoid()"),
    "tanh": ("torch.tanh({x})", "{x}.tanh()", "nn.Tanh()"),
    "GELU": ("F.gelu({x})", "nn.GELU()"),
    "tanh GELU": ('F.gelu({x}, approximate="tanh")', 'nn.GELU(approximate="tanh")'),
    "SiLU": ("F.silu({x})", "nn.SiLU()"),
    "swish": ("{x} * torch.sigmoid({x})",),
    "softplus": ("F.softplus({x})", "nn.Softplus()"),
    "ELU": ("F.elu({x})", "nn.ELU()", "F.elu({x}, alpha=0.5)"),
    "mish": ("F.mish({x})", "nn.Mish()"),
    "leaky ReLU": ("F.leaky_relu({x}, 0.1)", "nn.LeakyReLU(0.2)", "F.leaky_relu({x})"),
    "hardswish": ("F.hardswish({x})", "nn.Hardswish()"),
    "hardsigmoid": ("F.hardsigmoid({x})", "nn.Hardsigmoid()"),
    "softsign": ("F.softsign({x})", "nn.Softsign()", "{x} / (1 + {x}.abs())"),
    "SELU": ("F.selu({x})", "torch.selu({x})", "nn.SELU()"),
    "CELU": ("F.celu({x})", "nn.CELU()"),
    "ReLU6": ("F.relu6({x})", "nn.ReLU6()"),
    "log-sigmoid": ("F.logsigmoid({x})", "nn.LogSigmoid()"),
    "quick GELU": ("{x} * torch.sigmoid(1.702 * {x})",),
    "squared ReLU": ("torch.relu({x}).square()", "F.relu({x}) ** 2"),
    "absolute value": ("{x}.abs()", "torch.abs({x})"),
    "square": ("{x}.square()", "{x} * {x}", "{x} ** 2", "torch.square({x})", "{x}.pow(2)"),
    "cube": ("{x} ** 3", "torch.pow({x}, 3)"),
    "negation": ("-{x}", "torch.neg({x})"),
    "exponential": ("torch.exp({x})", "{x}.exp()"),
    "expm1": ("torch.expm1({x})",),
    "root of the magnitude": ("torch.sqrt({x}.abs())", "{x}.abs().sqrt()"),
    "log of one plus the magnitude": ("torch.log1p({x}.abs())", "torch.log({x}.abs() + 1.0)"),
    "reciprocal root": ("torch.rsqrt({x} * {x} + 1.0)", "({x}.square() + 1e-3).rsqrt()"),
    "reciprocal": ("1.0 / (1.0 + {x}.abs())", "torch.reciprocal({x}.abs() + 0.5)"),
    "sine": ("torch.sin({x})", "{x}.sin()"),
    "cosine": ("torch.cos({x})", "{x}.cos()"),
    "erf": ("torch.erf({x})",),
    "tanh shrink": ("F.tanhshrink({x})", "{x} - torch.tanh({x})"),
    "soft shrink": ("F.softshrink({x}, 0.3)",),
    "hard shrink": ("F.hardshrink({x}, 0.5)",),
    "threshold": ("F.threshold({x}, 0.1, 0.0)", "torch.where({x} > 0.1, {x}, 0.0)"),
    "sign": ("torch.sign({x})",),
    "soft cap": ("30.0 * torch.tanh({x} / 30.0)", "torch.tanh({x} / 5.0) * 5.0"),
    "sinc-like ratio": ("torch.sin({x}) / ({x}.abs() + 1.0)",),
}
"""What it is called -> spellings; one that begins with "nn." is a layer."""
GROWING = ("exponential", "expm1", "cube")
"""What makes infinities of sums, in half precision first."""
SCALES = ("0.5", "2.0", "0.125", "1.5", "0.1", "3.0", "0.25", "1.702", "0.7")
LAYER_NAMES = ("act", "activation", "nonlinearity", "fn")
BIAS_NAMES = ("bias", "shift", "b", "beta", "offset")
SCALE_NAMES = ("weight", "scale", "gamma", "gain", "g")
WIDTH_NAMES = ("dim", "width", "hidden_size", "num_features", "features", "d_model", "channels")
CHANNEL_NAMES = ("channels", "num_channels", "num_features", "planes")


def unary(w: ModuleDraft) -> bool:
    """An activation or another function of each element."""
    summed = {"reduction", "linear"} & set(w.ops)
    name = w.rng.choice([item for item in UNARY if not summed or item not in GROWING])
    spellings = UNARY[name]
    layers = [item for item in spellings if item.startswith("nn.")]
    calls = [item for item in spellings if not item.startswith("nn.")]
    if layers and (not calls or (w.style.layers and w.rng.random() < 0.8)):
        w.become(f"{w.attribute(LAYER_NAMES, w.rng.choice(layers))}({{x}})", plain=True)
    else:
        form = w.rng.choice(calls)
        w.become(form, plain=form.endswith(")") and form.startswith(("torch.", "F.", "{x}.")))
        if " * " in form or " - " in form or " / " in form:
            w.plain = False
    w.words.append(name)
    return True


def scalar(w: ModuleDraft) -> bool:
    """Arithmetic with a number: written out, or an argument of the constructor."""
    form, name = w.rng.choice(
        (
            ("{x} * {s}", "scale"), ("{x} + {s}", "shift"), ("{x} - {s}", "shift down"),
            ("{x} / {s}", "divide by a number"), ("{s} - {x}", "subtract from a number"),
            ("{x}.clamp(min=-{s}, max={s})", "clamp"), ("torch.clamp({x}, -{s}, {s})", "clamp"),
            ("{x}.clamp(min=-{s})", "lower bound"), ("torch.clamp({x}, max={s})", "upper bound"),
            ("F.hardtanh({x}, -{s}, {s})", "hardtanh"), ("{x} * {s} + 1.0", "affine by numbers"),
        )
    )  # fmt: skip
    value = w.rng.choice(SCALES)
    if w.rng.random() < 0.3 and w.init is not None:
        argument = w.argument(("scale", "alpha", "factor", "temperature", "c"), float(value))
        value = w.attribute(("scale", "alpha", "factor", "temperature", "c"), argument)
    w.become(form.replace("{s}", value), plain=form.endswith(")"))
    w.words.append(name)
    return True


def parameter(w: ModuleDraft) -> bool:
    """A learned bias, scale or both over the last dimension, or over channels."""
    if not w.shape:
        return False
    kind = w.rng.choice(("bias", "scale", "affine"))
    if len(w.shape) == 4 or (len(w.shape) == 3 and w.rng.random() < 0.25):
        size = w.argument(CHANNEL_NAMES, w.shape[1])
        dims = [size, *["1"] * (len(w.shape) - 2)]
    else:
        dims = [w.argument(WIDTH_NAMES, w.shape[-1])]
    form, plain = "{x}", True
    if kind != "bias":
        form, plain = f"{form} * {w.parameter(SCALE_NAMES, dims)}", False
    if kind != "scale":
        form, plain = f"{form} + {w.parameter(BIAS_NAMES, dims)}", False
    w.become(form, plain=plain)
    place = "a channel" if len(dims) > 1 else "a column"
    w.words.append({"bias": "bias", "scale": "scale", "affine": "affine"}[kind] + f" {place}")
    return True


PAIRS = {
    "add another": ("{x} + {y}", "torch.add({x}, {y})"),
    "subtract another": ("{x} - {y}", "torch.sub({x}, {y})"),
    "times another": ("{x} * {y}", "torch.mul({x}, {y})"),
    "over another": ("{x} / ({y}.abs() + 1.0)", "{x} / (1e-3 + {y} * {y})"),
    "larger of two": ("torch.maximum({x}, {y})",),
    "smaller of two": ("torch.minimum({x}, {y})",),
    "scaled sum": ("torch.add({x}, {y}, alpha=0.5)", "{x} + 0.5 * {y}"),
    "squared difference": ("({x} - {y}).square()", "({x} - {y}) ** 2"),
    "absolute difference": ("({x} - {y}).abs()", "torch.abs({x} - {y})"),
    "blend": ("torch.lerp({x}, {y}, 0.3)", "0.7 * {x} + 0.3 * {y}"),
    "gated by the sigmoid of another": ("{x} * torch.sigmoid({y})",),
    "gated by SiLU of another": ("F.silu({y}) * {x}", "{x} * F.silu({y})"),
    "gated by GELU of another": ("{x} * F.gelu({y})",),
    "where another is positive": ("torch.where({y} > 0, {x}, 0.0)", "{x} * ({y} > 0)"),
    "the larger kept, else negated": ("torch.where({x} > {y}, {x}, -{y})",),
    "hypotenuse": ("torch.sqrt({x} * {x} + {y} * {y})", "torch.sqrt({x}.square() + {y}.square())"),
    "log of summed exponents of two": ("torch.logaddexp({x}, {y})",),
    "sigmoid blend": ("torch.sigmoid({y}) * {x} + (1 - torch.sigmoid({y})) * {y}",),
}


def pair(w: ModuleDraft) -> bool:
    """Arithmetic with another input, of the same shape or broadcast."""
    if len(w.inputs) > 2 or not w.shape:
        return False
    form_name = w.rng.choice(list(PAIRS))
    spread = w.rng.random()
    shape, how = list(w.shape), ""
    if spread < 0.14:
        shape, how = [w.shape[-1]], ", a row"
    elif spread < 0.26 and len(w.shape) > 1:
        shape, how = [*w.shape[:-1], 1], ", a column"
    elif spread < 0.3 and len(w.shape) > 2:
        shape, how = [w.shape[0], *[1] * (len(w.shape) - 1)], ", a number each"
    other = w.add_input(shape, len(w.inputs))
    form = w.rng.choice(PAIRS[form_name]).replace("{y}", other)
    w.become(form, plain=form.startswith(("torch.max", "torch.min", "torch.lerp", "torch.log")))
    w.words.append(form_name + how)
    return True


def residual(w: ModuleDraft) -> bool:
    """The first input once more, where its shape has not changed."""
    if w.value.isidentifier() or not w.ops:
        return False
    first = next(iter(w.inputs))
    if w.style.reassigns and any(line.startswith(f"{first} = ") for line in w.lines):
        return False
    if w.shape != w.first_shape:
        return False
    form, name = w.rng.choice(
        (("{x} + {y}", "added back"), ("{x} * {y}", "times the input"), ("{y} - {x}", "taken off"))
    )
    w.become(form.replace("{y}", first), plain=False)
    w.words.append(name)
    return True


def gate(w: ModuleDraft) -> bool:
    """Halves of the last dimension, one gating the other."""
    if not w.shape or w.shape[-1] % 2 or w.shape[-1] < 8:
        return False
    x = w.name_value()
    activation = w.rng.choice(
        ("torch.sigmoid({g})", "F.silu({g})", "F.gelu({g})", "torch.relu({g})", "torch.tanh({g})")
    )
    if w.rng.random() < 0.7:
        names = w.rng.choice((("value", "gate"), ("a", "b"), ("left", "right"), ("u", "v")))
        one, two = (w.fresh_value((name,)) for name in names)
        split = f"{x}.chunk(2, {w.dim(-1)})"
        split = split if w.rng.random() < 0.6 else f"torch.chunk({x}, 2, {w.dim(-1)})"
        w.store(f"{one}, {two} = {split}")
    else:
        half = w.shape[-1] // 2
        one, two = f"{x}[..., :{half}]", f"{x}[..., {half}:]"
    w.value, w.plain = f"{one} * {activation.replace('{g}', two)}", False
    w.shape[-1] //= 2
    w.words.append("gated halves")
    return True


def layer_norm(w: ModuleDraft) -> bool:
    """Layer norm over the last dimension."""
    if len(w.shape) < 2 or w.shape[-1] < 4:
        return False
    size = w.shape[-1]
    form = w.rng.random()
    if form < 0.55:
        width = w.argument(WIDTH_NAMES, size)
        eps = w.rng.choice(("", "", ", eps=1e-6", ", eps=1e-3"))
        plain = w.rng.choice(("", "", "", ", elementwise_affine=False"))
        layer = f"nn.LayerNorm({width}{eps}{plain}{w.factory()})"
        w.become(f"{w.attribute(('norm', 'ln', 'layer_norm'), layer)}({{x}})", plain=True)
    elif form < 0.8:
        shape = f"({size},)" if w.rng.random() < 0.5 else "{x}.shape[-1:]"
        w.become(f"F.layer_norm({{x}}, {shape})", plain=True)
    else:
        x = w.name_value()
        mean, var = w.fresh_value(("mean", "mu")), w.fresh_value(("var", "variance"))
        w.store(f"{mean} = {x}.mean({w.dim(-1)}, keepdim=True)")
        w.store(f"{var} = {x}.var({w.dim(-1)}, keepdim=True, unbiased=False)")
        w.value, w.plain = f"({x} - {mean}) / torch.sqrt({var} + 1e-5)", False
    w.words.append("layer norm")
    return True


def rms_norm(w: ModuleDraft) -> bool:
    """RMS norm over the last dimension, with a weight or without."""
    if len(w.shape) < 2 or w.shape[-1] < 4:
        return False
    form = w.rng.random()
    if form < 0.3:
        width = w.argument(WIDTH_NAMES, w.shape[-1])
        layer = f"nn.RMSNorm({width}, eps=1e-6{w.factory()})"
        w.become(f"{w.attribute(('norm', 'rms', 'rms_norm'), layer)}({{x}})", plain=True)
    else:
        eps = w.rng.choice(("1e-6", "1e-5", "1e-8"))
        mean = w.rng.choice(("{x}.pow(2)", "{x}.square()", "({x} * {x})"))
        scale = f"torch.rsqrt({mean}.mean({w.dim(-1)}, keepdim=True) + {eps})"
        weight = ""
        if w.rng.random() < 0.6:
            width = w.argument(WIDTH_NAMES, w.shape[-1])
            weight = f" * {w.parameter(('weight', 'scale', 'g'), [width], 'ones')}"
        w.become(f"{{x}} * {scale}{weight}", plain=False)
    w.words.append("RMS norm")
    return True


def group_norm(w: ModuleDraft) -> bool:
    """Group, instance or batch norm (with fixed moments) over channels."""
    if len(w.shape) not in (3, 4):
        return False
    kind = w.rng.choice(("group", "batch", "instance"))
    channels, rank = w.shape[1], len(w.shape)
    if kind == "instance" and math.prod(w.shape[2:]) < 2:
        return False
    width = w.argument(CHANNEL_NAMES, channels)
    if kind == "group":
        groups = w.rng.choice([n for n in (1, 2, 3, 4, 8) if channels % n == 0])
        layer = f"nn.GroupNorm({groups}, {width}{w.factory()})"
        names: tuple[str, ...] = ("norm", "gn", "group_norm")
    elif kind == "batch":
        layer = f"nn.BatchNorm{rank - 2}d({width}{w.factory()})"
        names = ("bn", "norm", "batch_norm")
    else:
        affine = w.rng.choice(("", ", affine=True"))
        layer = f"nn.InstanceNorm{rank - 2}d({width}{affine}{w.factory() if affine else ''})"
        names = ("norm", "instance_norm")
    w.become(f"{w.attribute(names, layer)}({{x}})", plain=True)
    w.words.append(f"{kind} norm")
    return True


def batch_norm_rows(w: ModuleDraft) -> bool:
    """Batch norm of rows, with fixed moments."""
    if len(w.shape) != 2:
        return False
    layer = f"nn.BatchNorm1d({w.argument(WIDTH_NAMES, w.shape[1])}{w.factory()})"
    w.become(f"{w.attribute(('bn', 'norm', 'batch_norm'), layer)}({{x}})", plain=True)
    w.words.append("batch norm")
    return True


def normalise(w: ModuleDraft) -> bool:
    """Rows brought to a length, a range or a spread."""
    if len(w.shape) < 2 or w.shape[-1] < 3:
        return False
    dim = w.dim(-1)
    form, name = w.rng.choice(
        (
            (f"F.normalize({{x}}, {dim if '=' in dim else 'dim=-1'})", "L2 normalisation"),
            (f"{{x}} / ({{x}}.norm({_named(dim)}, keepdim=True) + 1e-6)", "L2 normalisation"),
            (f"{{x}} / ({{x}}.abs().sum({dim}, keepdim=True) + 1e-6)", "L1 normalisation"),
            (f"{{x}} / ({{x}}.abs().amax({dim}, keepdim=True) + 1e-6)", "scale by the largest"),
            (f"{{x}} - {{x}}.mean({dim}, keepdim=True)", "centring"),
            (f"{{x}} - {{x}}.amax({dim}, keepdim=True)", "shift by the largest"),
            (
                f"({{x}} - {{x}}.mean({dim}, keepdim=True)) / "
                f"({{x}}.std({dim}, keepdim=True) + 1e-5)",
                "standardisation",
            ),
        )
    )
    w.become(form, plain=form.startswith("F."))
    w.words.append(name)
    return True


def _named(dim: str) -> str:
    return dim if "=" in dim else f"dim={dim}"


def softmax(w: ModuleDraft) -> bool:
    """Softmax or its logarithm over rows, or over another dimension."""
    if not w.shape:
        return False
    dim = -1 if len(w.shape) < 3 or w.rng.random() < 0.8 else 1
    name, forms = w.rng.choice(
        (
            ("softmax", ("torch.softmax({x}, {d})", "F.softmax({x}, {k})", "{x}.softmax({d})")),
            ("softmax", ("torch.softmax({x}, {d})", "F.softmax({x}, {k})", "nn.Softmax({k})")),
            ("log-softmax", ("F.log_softmax({x}, {k})", "torch.log_softmax({x}, {d})")),
            ("softmin", ("F.softmin({x}, {k})", "torch.softmax(-{x}, {d})")),
        )
    )
    form = w.rng.choice(forms).replace("{d}", w.dim(dim)).replace("{k}", f"dim={dim}")
    if form.startswith("nn."):
        form = f"{w.attribute(('softmax', 'probs'), form)}({{x}})"
    w.become(form, plain=True)
    w.words.append(name)
    return True


REDUCTIONS = {
    "sum": "{x}.sum({d}{k})",
    "mean": "{x}.mean({d}{k})",
    "largest": "{x}.amax({d}{k})",
    "smallest": "{x}.amin({d}{k})",
    "variance": "{x}.var({d}{k})",
    "standard deviation": "{x}.std({d}{k})",
    "length": "torch.linalg.vector_norm({x}, dim={n}{k})",
    "log of summed exponents": "torch.logsumexp({x}, {d}{k})",
    "mean square": "({x} * {x}).mean({d}{k})",
    "sum of magnitudes": "{x}.abs().sum({d}{k})",
    "largest magnitude": "torch.amax({x}.abs(), {d}{k})",
    "largest value": "torch.max({x}, dim={n}{k}).values",
    "share above zero": "({x} > 0).float().mean({d}{k})",
}


def reduction(w: ModuleDraft) -> bool:
    """A reduction over rows, another dimension, or the pixels of each channel."""
    if not w.shape or math.prod(w.shape) < 4:
        return False
    name = w.rng.choice(list(REDUCTIONS))
    rank = len(w.shape)
    dims: list[int | tuple[int, ...]] = [-1, -1, -1]
    dims += [0] if rank == 2 else []
    dims += [1] if rank > 2 else []
    pixels = rank == 4 and "value" not in name and w.rng.random() < 0.6
    dim = (2, 3) if pixels else w.rng.choice(dims)
    places = {item % rank for item in (dim if isinstance(dim, tuple) else (dim,))}
    if any(w.shape[place] < 3 for place in places):
        return False
    keep = rank > 1 and w.rng.random() < 0.35
    form = REDUCTIONS[name].replace("{d}", w.dim(dim)).replace("{n}", str(dim))
    form = form.replace("{k}", ", keepdim=True" if keep else "")
    w.become(form, plain=True)
    if name == "share above zero":
        w.dtype = "float32"
    w.shape = [1 if i in places else s for i, s in enumerate(w.shape) if keep or i not in places]
    w.words.append(f"{name} over {'the pixels' if pixels else f'dimension {dim}'}")
    return True


def whole_reduction(w: ModuleDraft) -> bool:
    """A reduction over everything; it ends the module."""
    form, name = w.rng.choice(
        (("{x}.mean()", "mean of all"), ("{x}.sum()", "sum of all"), ("{x}.abs().mean()", "mean"
          " magnitude"), ("({x} ** 2).mean()", "mean square of all"), ("{x}.amax()", "largest of"
          " all"), ("{x}.square().sum()", "energy"), ("torch.mean({x})", "mean of all"))
    )  # fmt: skip
    w.become(form, plain=True)
    w.shape, w.ended = [], True
    w.words.append(name)
    return True


def search(w: ModuleDraft) -> bool:
    """Where the largest is, how many are above; it ends the module."""
    if len(w.shape) < 2 or w.shape[-1] < 3:
        return False
    form, name = w.rng.choice(
        (
            ("torch.argmax({x}, {d})", "place of the largest"),
            ("{x}.argmax({d})", "place of the largest"),
            ("{x}.argmin({d})", "place of the smallest"),
            ("({x} > 0.3).sum({d})", "how many are above a threshold"),
            ("({x} > 2.0).any({d})", "whether any is above a threshold"),
            ("({x} < 3.0).all({d})", "whether all are below a threshold"),
        )
    )
    w.become(form.replace("{d}", w.dim(-1)), plain=True)
    w.ended = True
    w.words.append(name)
    return True


LOSSES = {
    "mean squared error": ("F.mse_loss({x}, {y})", "((({x} - {y}) ** 2)).mean()"),
    "mean absolute error": ("F.l1_loss({x}, {y})", "({x} - {y}).abs().mean()"),
    "smooth L1 loss": ("F.smooth_l1_loss({x}, {y})", "F.smooth_l1_loss({x}, {y}, beta=0.5)"),
    "Huber loss": ("F.huber_loss({x}, {y})", "F.huber_loss({x}, {y}, delta=0.7)"),
    "a row's squared error": ("({x} - {y}).square().sum(dim=-1)",),
    "squared error": ('F.mse_loss({x}, {y}, reduction="none")',),
    "summed squared error": ('F.mse_loss({x}, {y}, reduction="sum")',),
    "log-cosh loss": ("torch.log(torch.cosh({x} - {y})).mean()",),
    "binary cross entropy of logits": (
        "F.binary_cross_entropy_with_logits({x}, torch.sigmoid({y}))",
        "(F.softplus({x}) - {x} * torch.sigmoid({y})).mean()",
    ),
    "hinge loss": ("torch.relu(1 - {x} * torch.sign({y})).mean()",),
    "divergence of softmaxes": (
        'F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction="batchmean")',
    ),
    "soft cross entropy": (
        "-(F.softmax({y}, dim=-1) * F.log_softmax({x}, dim=-1)).sum(-1).mean()",
    ),
    "cosine similarity": ("F.cosine_similarity({x}, {y}, dim=-1)",),
    "inner product": ("({x} * {y}).sum(dim=-1)",),
    "distance": ("torch.sqrt((({x} - {y}) ** 2).sum(dim=-1) + 1e-8)",),
    "Charbonnier loss": ("torch.sqrt(({x} - {y}).square() + 1e-3).mean()",),
}


def loss(w: ModuleDraft) -> bool:
    """A loss against another input; it ends the module."""
    if len(w.shape) < 2 or len(w.inputs) > 2:
        return False
    name = w.rng.choice(list(LOSSES))
    other = w.add_input(w.shape, len(w.inputs))
    w.become(w.rng.choice(LOSSES[name]).replace("{y}", other), plain=True)
    w.ended = True
    w.words.append(name)
    return True


def class_loss(w: ModuleDraft) -> bool:
    """Cross entropy against class numbers; it ends the module."""
    if len(w.shape) != 2 or w.shape[-1] < 4 or len(w.inputs) > 2:
        return False
    made = f"torch.randint(0, {w.size(w.shape[-1])}, ({w.size(w.shape[0])},))"
    name = w.fresh_value(("target", "labels", "label"))
    w.inputs[name] = made
    form = w.rng.choice(
        (
            "F.cross_entropy({x}, {y})",
            'F.cross_entropy({x}, {y}, reduction="none")',
            'F.cross_entropy({x}, {y}, reduction="sum")',
            "F.cross_entropy({x}, {y}, label_smoothing=0.1)",
            "F.nll_loss(F.log_softmax({x}, dim=-1), {y})",
        )
    )
    w.become(form.replace("{y}", name), plain=True)
    w.ended = True
    w.words.append("cross entropy")
    return True


def view(w: ModuleDraft) -> bool:
    """Another order or form of the same elements, or a part of them."""
    rank = len(w.shape)
    if rank < 2:
        return False
    kind = w.rng.choice(("transpose", "flatten", "split", "slice", "select", "permute"))
    if kind == "transpose":
        if rank == 2 and w.rng.random() < 0.5:
            w.become(w.rng.choice(("{x}.t()", "{x}.T", "torch.t({x})")), plain=True)
            w.shape.reverse()
        else:
            form = w.rng.choice(("{x}.transpose(-2, -1)", "torch.transpose({x}, -2, -1)"))
            w.become(form, plain=True)
            w.shape[-2:] = w.shape[:-3:-1]
    elif kind == "flatten" and rank > 2:
        w.become(w.rng.choice(("{x}.flatten(1)", "torch.flatten({x}, 1)")), plain=True)
        w.shape = [w.shape[0], math.prod(w.shape[1:])]
    elif kind == "split" and w.shape[-1] % 4 == 0 and rank < 4:
        heads = w.rng.choice((2, 4))
        sizes = ", ".join(f"{{x}}.shape[{i}]" for i in range(rank - 1))
        w.become(f"{{x}}.reshape({sizes}, {heads}, {w.shape[-1] // heads})", plain=True)
        w.shape[-1:] = [heads, w.shape[-1] // heads]
    elif kind == "slice" and w.shape[-1] >= 8:
        part = w.shape[-1] // 2
        w.become(w.rng.choice((f"{{x}}[..., :{part}]", f"{{x}}[..., {part}:]")), plain=True)
        w.shape[-1] = part if f":{part}]" in w.value else w.shape[-1] - part
    elif kind == "select" and rank > 2:
        w.become(w.rng.choice(("{x}[:, 0]", "{x}[:, -1]", "{x}.select(1, 0)")), plain=True)
        w.shape.pop(1)
    elif kind == "permute" and rank > 2:
        order = [0, *range(2, rank), 1]
        w.become(f"{{x}}.permute({', '.join(map(str, order))})", plain=True)
        w.shape = [w.shape[i] for i in order]
    else:
        return False
    w.words.append(kind)
    return True


def joined(w: ModuleDraft) -> bool:
    """Concatenated with another input, or a lookup by number: what is read is not what is held."""
    if len(w.shape) < 2 or len(w.inputs) > 2 or math.prod(w.shape) > MOST_ELEMENTS // 2:
        return False
    kind = w.rng.choice(("cat", "gather", "stack"))
    if kind == "gather":
        count = w.rng.choice((4, 7, 16))
        if len(w.shape) != 2:
            return False
        name = w.fresh_value(("index", "indices", "idx"))
        sizes = f"{w.size(w.shape[0])}, {count}"
        w.inputs[name] = f"torch.randint(0, {w.size(w.shape[1])}, ({sizes}))"
        w.become(f"torch.gather({{x}}, 1, {name})", plain=True)
        w.shape[1] = count
    else:
        other = w.add_input(w.shape, len(w.inputs))
        if kind == "cat":
            w.become(f"torch.cat([{{x}}, {other}], {w.dim(-1)})", plain=True)
            w.shape[-1] *= 2
        else:
            w.become(f"torch.stack([{{x}}, {other}], {w.dim(1)})", plain=True)
            w.shape.insert(1, 2)
    w.words.append({"cat": "concatenation", "stack": "stack", "gather": "gather"}[kind])
    return True


def embedding(w: ModuleDraft) -> bool:
    """Rows of a table by number; only where nothing has been done yet."""
    if w.ops or len(w.shape) != 2:
        return False
    count, width = w.rng.choice((20, 50, 100)), w.rng.choice((16, 24, 32, 64))
    first = next(iter(w.inputs))
    sizes = ", ".join(w.size(item) for item in w.shape)
    table = f"nn.Embedding({w.argument(('num_embeddings', 'vocab_size'), count)}, {width}"
    w.inputs[first] = f"torch.randint(0, {count}, ({sizes}))"
    name = w.attribute(("embedding", "table", "emb"), f"{table}{w.factory()})")
    w.become(f"{name}({{x}})", plain=True)
    w.shape.append(width)
    w.words.append("embedding")
    return True


def mask(w: ModuleDraft) -> bool:
    """Elements replaced by a condition, a mask input or a triangle."""
    if len(w.shape) < 2 or len(w.inputs) > 2:
        return False
    form = w.rng.random()
    fill = w.rng.choice(("0.0", "-1e4", "-1.0"))
    if form < 0.35:
        name = w.fresh_value(("mask", "keep", "valid"))
        sizes = ", ".join(w.size(item) for item in w.shape)
        w.inputs[name] = f"torch.rand({sizes}) > 0.3"
        w.become(
            w.rng.choice(
                (f"{{x}}.masked_fill(~{name}, {fill})", f"torch.where({name}, {{x}}, {fill})")
            ),
            plain=True,
        )
        w.words.append("masked by an input")
    elif form < 0.6:
        w.become(w.rng.choice(("torch.tril({x})", "torch.triu({x})", "{x}.tril()")), plain=True)
        w.words.append("a triangle")
    else:
        condition = w.rng.choice(("{x} > 0", "{x} < 0.5", "{x}.abs() < 1.0", "{x} >= -0.2"))
        kept = w.rng.choice(("{x}", "{x} * 2.0", "{x} * {x}"))
        w.become(f"torch.where({condition}, {kept}, 0.1 * {{x}})", plain=True)
        w.words.append("chosen by a condition")
    return True


def pool(w: ModuleDraft) -> bool:
    """Average or largest of each window."""
    if len(w.shape) not in (3, 4) or min(w.shape[2:]) < 4:
        return False
    rank = len(w.shape) - 2
    kernel = w.rng.choice((2, 2, 4))
    if min(w.shape[2:]) < kernel:
        return False
    largest = w.rng.random() < 0.3
    name = f"{'Max' if largest else 'Avg'}Pool{rank}d"
    if w.style.layers:
        w.become(f"{w.attribute(('pool', 'down'), f'nn.{name}({kernel})')}({{x}})", plain=True)
    else:
        w.become(f"F.{'max' if largest else 'avg'}_pool{rank}d({{x}}, {kernel})", plain=True)
    w.shape[2:] = [size // kernel for size in w.shape[2:]]
    w.words.append("max pool" if largest else "average pool")
    return True


def linear(w: ModuleDraft) -> bool:
    """A matrix product with weights of its own, or with another input."""
    if len(w.shape) < 2 or w.shape[-1] > 128 or w.shape[-1] < 8 or len(w.shape) > 3:
        return False
    rows, inner = math.prod(w.shape[:-1]), w.shape[-1]
    sizes = [n for n in (8, 16, 24, 32, 48, 64, 96) if n * rows <= MOST_ELEMENTS]
    if not sizes:
        return False
    out = w.rng.choice(sizes)
    form = w.rng.random()
    if form < 0.65:
        first = w.argument(("in_features", "in_dim", "d_in"), inner)
        second = w.argument(("out_features", "out_dim", "d_out"), out)
        bias = w.rng.choice(("", "", "", ", bias=False"))
        layer = f"nn.Linear({first}, {second}{bias}{w.factory()})"
        w.become(f"{w.attribute(('linear', 'fc', 'proj', 'dense'), layer)}({{x}})", plain=True)
    elif form < 0.85 or len(w.inputs) > 2:
        dims = [w.argument(("in_features", "k"), inner), w.argument(("out_features", "n"), out)]
        weight = w.parameter(("weight", "w", "kernel"), dims, "randn")
        w.become(w.rng.choice((f"{{x}} @ {weight}", f"torch.matmul({{x}}, {weight})")), plain=False)
    else:
        lead = w.shape[:1] if len(w.shape) == 3 else []
        other = w.add_input([*lead, inner, out], len(w.inputs))
        product = "torch.bmm" if lead else "torch.mm"
        w.become(w.rng.choice((f"{product}({{x}}, {other})", f"{{x}} @ {other}")), plain=False)
    w.shape[-1] = out
    w.words.append("linear")
    return True


def nothing(w: ModuleDraft) -> bool:
    """Dropout in eval mode: nothing at all."""
    rate = w.rng.choice(("0.1", "0.2", "0.5"))
    w.become(f"{w.attribute(('dropout', 'drop'), f'nn.Dropout({rate})')}({{x}})", plain=True)
    w.words.append("dropout")
    return True


def scan(w: ModuleDraft) -> bool:
    """A running sum along rows."""
    if len(w.shape) < 2:
        return False
    w.become(f"torch.cumsum({{x}}, {w.dim(-1)})", plain=True)
    w.words.append("running sum")
    return True


@dataclass(frozen=True)
class Operator:
    """A kind of step, and how often it is chosen."""

    name: str
    weight: float
    step: Step


OPERATORS = (
    Operator("unary", 20, unary),
    Operator("scalar", 9, scalar),
    Operator("parameter", 8, parameter),
    Operator("pair", 10, pair),
    Operator("residual", 6, residual),
    Operator("gate", 5, gate),
    Operator("layer norm", 6, layer_norm),
    Operator("rms norm", 5, rms_norm),
    Operator("channel norm", 6, group_norm),
    Operator("batch norm", 2, batch_norm_rows),
    Operator("normalise", 6, normalise),
    Operator("softmax", 6, softmax),
    Operator("reduction", 9, reduction),
    Operator("whole reduction", 1.5, whole_reduction),
    Operator("search", 1.5, search),
    Operator("loss", 4, loss),
    Operator("class loss", 1, class_loss),
    Operator("view", 5, view),
    Operator("joined", 0.8, joined),
    Operator("embedding", 0.8, embedding),
    Operator("mask", 5, mask),
    Operator("pool", 2, pool),
    Operator("linear", 4, linear),
    Operator("nothing", 1.5, nothing),
    Operator("scan", 0.3, scan),
)
