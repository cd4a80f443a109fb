"""Operators of generated modules.

A step looks at the value so far, writes one operator after it and says what it is called; nothing
where it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from agentkernel.training.data.module_writer import ModuleDraft
from agentkernel.training.data.spellings import (
    BIAS_NAMES,
    CHANNEL_NAMES,
    CLASS_LOSSES,
    GATES,
    GROWING,
    LAYER_NAMES,
    LOSSES,
    PAIRS,
    REDUCTIONS,
    RESIDUALS,
    SCALARS,
    SCALE_NAMES,
    SCALES,
    SEARCHES,
    SOFTMAXES,
    UNARY,
    WHOLE,
    WIDTH_NAMES,
)

Step = Callable[[ModuleDraft], str]
MOST_ELEMENTS = 16_384
"""Elements of a value or weight: the interpreter takes milliseconds for a thousand."""


def unary(w: ModuleDraft) -> str:
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
    return name


def scalar(w: ModuleDraft) -> str:
    """Arithmetic with a number: written out, or an argument of the constructor."""
    form, name = w.rng.choice(SCALARS)
    value = w.rng.choice(SCALES)
    if w.rng.random() < 0.3 and w.init is not None:
        argument = w.argument(("scale", "alpha", "factor", "temperature", "c"), float(value))
        value = w.attribute(("scale", "alpha", "factor", "temperature", "c"), argument)
    w.become(form.replace("{s}", value), plain=form.endswith(")"))
    return name


def parameter(w: ModuleDraft) -> str:
    """A learned bias, scale or both over the last dimension, or over channels."""
    if not w.shape:
        return ""
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
    return {"bias": "bias", "scale": "scale", "affine": "affine"}[kind] + f" {place}"


def pair(w: ModuleDraft) -> str:
    """Arithmetic with another input, of the same shape or broadcast."""
    if len(w.inputs) > 2 or not w.shape:
        return ""
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
    return form_name + how


def residual(w: ModuleDraft) -> str:
    """The first input once more, where its shape has not changed."""
    if w.value.isidentifier() or not w.ops:
        return ""
    first = next(iter(w.inputs))
    if w.style.reassigns and any(line.startswith(f"{first} = ") for line in w.lines):
        return ""
    if w.shape != w.first_shape:
        return ""
    form, name = w.rng.choice(RESIDUALS)
    w.become(form.replace("{y}", first), plain=False)
    return name


def gate(w: ModuleDraft) -> str:
    """Halves of the last dimension, one gating the other."""
    if not w.shape or w.shape[-1] % 2 or w.shape[-1] < 8:
        return ""
    x = w.name_value()
    activation = w.rng.choice(GATES)
    if w.rng.random() < 0.7:
        names = w.rng.choice((("value", "gate"), ("a", "b"), ("left", "right"), ("u", "v")))
        one, two = (w.fresh_name((name,)) for name in names)
        split = f"{x}.chunk(2, {w.dim(-1)})"
        split = split if w.rng.random() < 0.6 else f"torch.chunk({x}, 2, {w.dim(-1)})"
        w.store(f"{one}, {two} = {split}")
    else:
        half = w.shape[-1] // 2
        one, two = f"{x}[..., :{half}]", f"{x}[..., {half}:]"
    w.value, w.plain = f"{one} * {activation.replace('{g}', two)}", False
    w.shape[-1] //= 2
    return "gated halves"


def layer_norm(w: ModuleDraft) -> str:
    """Layer norm over the last dimension."""
    if len(w.shape) < 2 or w.shape[-1] < 4:
        return ""
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
        mean, var = w.fresh_name(("mean", "mu")), w.fresh_name(("var", "variance"))
        w.store(f"{mean} = {x}.mean({w.dim(-1)}, keepdim=True)")
        w.store(f"{var} = {x}.var({w.dim(-1)}, keepdim=True, unbiased=False)")
        w.value, w.plain = f"({x} - {mean}) / torch.sqrt({var} + 1e-5)", False
    return "layer norm"


def rms_norm(w: ModuleDraft) -> str:
    """RMS norm over the last dimension, with a weight or without."""
    if len(w.shape) < 2 or w.shape[-1] < 4:
        return ""
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
    return "RMS norm"


def group_norm(w: ModuleDraft) -> str:
    """Group, instance or batch norm (with fixed moments) over channels."""
    if len(w.shape) not in (3, 4):
        return ""
    kind = w.rng.choice(("group", "batch", "instance"))
    channels, rank = w.shape[1], len(w.shape)
    if kind == "instance" and math.prod(w.shape[2:]) < 2:
        return ""
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
    return f"{kind} norm"


def batch_norm_rows(w: ModuleDraft) -> str:
    """Batch norm of rows, with fixed moments."""
    if len(w.shape) != 2:
        return ""
    layer = f"nn.BatchNorm1d({w.argument(WIDTH_NAMES, w.shape[1])}{w.factory()})"
    w.become(f"{w.attribute(('bn', 'norm', 'batch_norm'), layer)}({{x}})", plain=True)
    return "batch norm"


def normalise(w: ModuleDraft) -> str:
    """Rows brought to a length, a range or a spread."""
    if len(w.shape) < 2 or w.shape[-1] < 3:
        return ""
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
    return name


def _named(dim: str) -> str:
    return dim if "=" in dim else f"dim={dim}"


def softmax(w: ModuleDraft) -> str:
    """Softmax or its logarithm over rows, or over another dimension."""
    if not w.shape:
        return ""
    dim = -1 if len(w.shape) < 3 or w.rng.random() < 0.8 else 1
    name, forms = w.rng.choice(SOFTMAXES)
    form = w.rng.choice(forms).replace("{d}", w.dim(dim)).replace("{k}", f"dim={dim}")
    if form.startswith("nn."):
        form = f"{w.attribute(('softmax', 'probs'), form)}({{x}})"
    w.become(form, plain=True)
    return name


def reduction(w: ModuleDraft) -> str:
    """A reduction over rows, another dimension, or the pixels of each channel."""
    if not w.shape or math.prod(w.shape) < 4:
        return ""
    name = w.rng.choice(list(REDUCTIONS))
    rank = len(w.shape)
    dims: list[int | tuple[int, ...]] = [-1, -1, -1]
    dims += [0] if rank == 2 else []
    dims += [1] if rank > 2 else []
    pixels = rank == 4 and "value" not in name and w.rng.random() < 0.6
    dim = (2, 3) if pixels else w.rng.choice(dims)
    places = {item % rank for item in (dim if isinstance(dim, tuple) else (dim,))}
    if any(w.shape[place] < 3 for place in places):
        return ""
    keep = rank > 1 and w.rng.random() < 0.35
    form = REDUCTIONS[name].replace("{d}", w.dim(dim)).replace("{n}", str(dim))
    form = form.replace("{k}", ", keepdim=True" if keep else "")
    w.become(form, plain=True)
    if name == "share above zero":
        w.dtype = "float32"
    w.shape = [1 if i in places else s for i, s in enumerate(w.shape) if keep or i not in places]
    return f"{name} over {'the pixels' if pixels else f'dimension {dim}'}"


def whole_reduction(w: ModuleDraft) -> str:
    """A reduction over everything; it ends the module."""
    form, name = w.rng.choice(WHOLE)
    w.become(form, plain=True)
    w.shape, w.ended = [], True
    return name


def search(w: ModuleDraft) -> str:
    """Where the largest is, how many are above; it ends the module."""
    if len(w.shape) < 2 or w.shape[-1] < 3:
        return ""
    form, name = w.rng.choice(SEARCHES)
    w.become(form.replace("{d}", w.dim(-1)), plain=True)
    w.ended = True
    return name


def loss(w: ModuleDraft) -> str:
    """A loss against another input; it ends the module."""
    if len(w.shape) < 2 or len(w.inputs) > 2:
        return ""
    name = w.rng.choice(list(LOSSES))
    other = w.add_input(w.shape, len(w.inputs))
    w.become(w.rng.choice(LOSSES[name]).replace("{y}", other), plain=True)
    w.ended = True
    return name


def class_loss(w: ModuleDraft) -> str:
    """Cross entropy against class numbers; it ends the module."""
    if len(w.shape) != 2 or w.shape[-1] < 4 or len(w.inputs) > 2:
        return ""
    made = f"torch.randint(0, {w.size(w.shape[-1])}, ({w.size(w.shape[0])},))"
    name = w.fresh_name(("target", "labels", "label"))
    w.inputs[name] = made
    form = w.rng.choice(CLASS_LOSSES)
    w.become(form.replace("{y}", name), plain=True)
    w.ended = True
    return "cross entropy"


def view(w: ModuleDraft) -> str:
    """Another order or form of the same elements, or a part of them."""
    rank = len(w.shape)
    if rank < 2:
        return ""
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
        return ""
    return kind


def joined(w: ModuleDraft) -> str:
    """Concatenated with another input, or a lookup by number: what is read is not what is held."""
    if len(w.shape) < 2 or len(w.inputs) > 2 or math.prod(w.shape) > MOST_ELEMENTS // 2:
        return ""
    kind = w.rng.choice(("cat", "gather", "stack"))
    if kind == "gather":
        count = w.rng.choice((4, 7, 16))
        if len(w.shape) != 2:
            return ""
        name = w.fresh_name(("index", "indices", "idx"))
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
    return {"cat": "concatenation", "stack": "stack", "gather": "gather"}[kind]


def embedding(w: ModuleDraft) -> str:
    """Rows of a table by number; only where nothing has been done yet."""
    if w.ops or len(w.shape) != 2:
        return ""
    count, width = w.rng.choice((20, 50, 100)), w.rng.choice((16, 24, 32, 64))
    first = next(iter(w.inputs))
    sizes = ", ".join(w.size(item) for item in w.shape)
    table = f"nn.Embedding({w.argument(('num_embeddings', 'vocab_size'), count)}, {width}"
    w.inputs[first] = f"torch.randint(0, {count}, ({sizes}))"
    name = w.attribute(("embedding", "table", "emb"), f"{table}{w.factory()})")
    w.become(f"{name}({{x}})", plain=True)
    w.shape.append(width)
    return "embedding"


def mask(w: ModuleDraft) -> str:
    """Elements replaced by a condition, a mask input or a triangle."""
    if len(w.shape) < 2 or len(w.inputs) > 2:
        return ""
    form = w.rng.random()
    fill = w.rng.choice(("0.0", "-1e4", "-1.0"))
    if form < 0.35:
        name = w.fresh_name(("mask", "keep", "valid"))
        sizes = ", ".join(w.size(item) for item in w.shape)
        w.inputs[name] = f"torch.rand({sizes}) > 0.3"
        w.become(
            w.rng.choice(
                (f"{{x}}.masked_fill(~{name}, {fill})", f"torch.where({name}, {{x}}, {fill})")
            ),
            plain=True,
        )
        return "masked by an input"
    if form < 0.6:
        w.become(w.rng.choice(("torch.tril({x})", "torch.triu({x})", "{x}.tril()")), plain=True)
        return "a triangle"
    condition = w.rng.choice(("{x} > 0", "{x} < 0.5", "{x}.abs() < 1.0", "{x} >= -0.2"))
    kept = w.rng.choice(("{x}", "{x} * 2.0", "{x} * {x}"))
    w.become(f"torch.where({condition}, {kept}, 0.1 * {{x}})", plain=True)
    return "chosen by a condition"


def pool(w: ModuleDraft) -> str:
    """Average or largest of each window."""
    if len(w.shape) not in (3, 4) or min(w.shape[2:]) < 4:
        return ""
    rank = len(w.shape) - 2
    kernel = w.rng.choice((2, 2, 4))
    if min(w.shape[2:]) < kernel:
        return ""
    largest = w.rng.random() < 0.3
    name = f"{'Max' if largest else 'Avg'}Pool{rank}d"
    if w.style.layers:
        w.become(f"{w.attribute(('pool', 'down'), f'nn.{name}({kernel})')}({{x}})", plain=True)
    else:
        w.become(f"F.{'max' if largest else 'avg'}_pool{rank}d({{x}}, {kernel})", plain=True)
    w.shape[2:] = [size // kernel for size in w.shape[2:]]
    return "max pool" if largest else "average pool"


def linear(w: ModuleDraft) -> str:
    """A matrix product with weights of its own, or with another input."""
    if len(w.shape) < 2 or w.shape[-1] > 128 or w.shape[-1] < 8 or len(w.shape) > 3:
        return ""
    rows, inner = math.prod(w.shape[:-1]), w.shape[-1]
    sizes = [n for n in (8, 16, 24, 32, 48, 64, 96) if n * rows <= MOST_ELEMENTS]
    if not sizes:
        return ""
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
    return "linear"


def nothing(w: ModuleDraft) -> str:
    """Dropout in eval mode: nothing at all."""
    rate = w.rng.choice(("0.1", "0.2", "0.5"))
    w.become(f"{w.attribute(('dropout', 'drop'), f'nn.Dropout({rate})')}({{x}})", plain=True)
    return "dropout"


def scan(w: ModuleDraft) -> str:
    """A running sum along rows."""
    if len(w.shape) < 2:
        return ""
    w.become(f"torch.cumsum({{x}}, {w.dim(-1)})", plain=True)
    return "running sum"


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
