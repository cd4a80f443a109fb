"""Spellings of the operators of generated modules: {x} is the value so far, {y} another one."""

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
SCALARS = (
    ("{x} * {s}", "scale"), ("{x} + {s}", "shift"), ("{x} - {s}", "shift down"),
    ("{x} / {s}", "divide by a number"), ("{s} - {x}", "subtract from a number"),
    ("{x}.clamp(min=-{s}, max={s})", "clamp"), ("torch.clamp({x}, -{s}, {s})", "clamp"),
    ("{x}.clamp(min=-{s})", "lower bound"), ("torch.clamp({x}, max={s})", "upper bound"),
    ("F.hardtanh({x}, -{s}, {s})", "hardtanh"), ("{x} * {s} + 1.0", "affine by numbers"),
)  # fmt: skip
"""With a number {s} -> what it is called."""
SOFTMAXES = (
    ("softmax", ("torch.softmax({x}, {d})", "F.softmax({x}, {k})", "{x}.softmax({d})")),
    ("softmax", ("torch.softmax({x}, {d})", "F.softmax({x}, {k})", "nn.Softmax({k})")),
    ("log-softmax", ("F.log_softmax({x}, {k})", "torch.log_softmax({x}, {d})")),
    ("softmin", ("F.softmin({x}, {k})", "torch.softmax(-{x}, {d})")),
)
"""What it is called -> spellings; {k} is a dimension by name."""
WHOLE = (
    ("{x}.mean()", "mean of all"), ("{x}.sum()", "sum of all"),
    ("{x}.abs().mean()", "mean magnitude"), ("({x} ** 2).mean()", "mean square of all"),
    ("{x}.amax()", "largest of all"), ("{x}.square().sum()", "energy"),
    ("torch.mean({x})", "mean of all"),
)  # fmt: skip
"""Over everything."""
SEARCHES = (
    ("torch.argmax({x}, {d})", "place of the largest"),
    ("{x}.argmax({d})", "place of the largest"),
    ("{x}.argmin({d})", "place of the smallest"),
    ("({x} > 0.3).sum({d})", "how many are above a threshold"),
    ("({x} > 2.0).any({d})", "whether any is above a threshold"),
    ("({x} < 3.0).all({d})", "whether all are below a threshold"),
)
"""Places and counts."""
CLASS_LOSSES = (
    "F.cross_entropy({x}, {y})",
    'F.cross_entropy({x}, {y}, reduction="none")',
    'F.cross_entropy({x}, {y}, reduction="sum")',
    "F.cross_entropy({x}, {y}, label_smoothing=0.1)",
    "F.nll_loss(F.log_softmax({x}, dim=-1), {y})",
)
"""Of class numbers {y}."""
GATES = ("torch.sigmoid({g})", "F.silu({g})", "F.gelu({g})", "torch.relu({g})", "torch.tanh({g})")
"""Of the half {g}."""
RESIDUALS = (
    ("{x} + {y}", "added back"),
    ("{x} * {y}", "times the input"),
    ("{y} - {x}", "taken off"),
)
"""With the first input {y}."""
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
