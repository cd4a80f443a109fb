"""Canonical names, families, weights and reductions of ops under all of torch's spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from agentkernel.domain.knowledge import ReductionClass

FAMILIES: Mapping[str, Mapping[str, str]] = {
    "contraction": {
        "linear": "addmm addmv NonDynamicallyQuantizableLinear",
        "matmul": "@ mm bmm mv dot inner vdot addbmm baddbmm imatmul linalg_matmul multi_dot "
        "chain_matmul",
        "einsum": "tensordot",
        "outer": "ger addr",
        "bilinear": "",
        "conv1d": "",
        "conv2d": "convolution",
        "conv3d": "",
        "conv_transpose1d": "",
        "conv_transpose2d": "",
        "conv_transpose3d": "",
        "scaled_dot_product_attention": "scaled_dot_product_flash_attention "
        "scaled_dot_product_efficient_attention scaled_dot_product_attention_math "
        "scaled_dot_product_flash_attention_for_cpu scaled_dot_product_cudnn_attention",
        "cdist": "pdist",
        "lstm": "",
        "gru": "",
        "rnn": "rnn_tanh rnn_relu",
        "lstm_cell": "",
        "gru_cell": "",
        "rnn_cell": "rnn_tanh_cell rnn_relu_cell",
    },
    "normalisation": {
        "layer_norm": "",
        "rms_norm": "",
        "group_norm": "",
        "instance_norm": "",
        "batch_norm": "batch_norm_legit_no_training batch_norm_legit batch_norm_with_update "
        "batch_norm_legit_functional cudnn_batch_norm SyncBatchNorm",
        "softmax": "safe_softmax Softmax2d",
        "log_softmax": "",
        "softmin": "",
        "gumbel_softmax": "",
    },
    "reduction": {
        "sum": "nansum sum_to_size",
        "mean": "nanmean",
        "prod": "",
        "max": "amax",
        "min": "amin",
        "aminmax": "",
        "argmax": "",
        "argmin": "",
        "var": "",
        "std": "",
        "var_mean": "std_mean",
        "norm": "linalg_vector_norm vector_norm linalg_norm frobenius_norm linalg_matrix_norm "
        "matrix_norm",
        "logsumexp": "",
        "any": "",
        "all": "",
        "count_nonzero": "",
        "median": "nanmedian kthvalue quantile",
        "cosine_similarity": "",
        "pairwise_distance": "dist",
        "trace": "",
        "sort": "argsort msort",
        "topk": "",
        "histc": "bincount",
    },
    "scan": {
        "cumsum": "",
        "cumprod": "",
        "cummax": "",
        "cummin": "",
        "logcumsumexp": "",
    },
    "loss": {
        "cross_entropy": "cross_entropy_loss",
        "nll_loss": "nll_loss_forward nll_loss2d nll_loss2d_forward nll_loss_nd",
        "mse_loss": "",
        "l1_loss": "",
        "huber_loss": "smooth_l1_loss",
        "kl_div": "",
        "binary_cross_entropy": "BCELoss",
        "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
        "hinge_embedding_loss": "",
        "margin_ranking_loss": "",
        "triplet_margin_loss": "triplet_margin_with_distance_loss",
        "cosine_embedding_loss": "",
        "multi_margin_loss": "multilabel_margin_loss multi_label_margin_loss",
        "multilabel_soft_margin_loss": "multi_label_soft_margin_loss",
        "soft_margin_loss": "",
        "poisson_nll_loss": "",
        "gaussian_nll_loss": "",
        "ctc_loss": "",
    },
    "pool": {
        "max_pool1d": "max_pool1d_with_indices",
        "max_pool2d": "max_pool2d_with_indices",
        "max_pool3d": "max_pool3d_with_indices",
        "avg_pool1d": "",
        "avg_pool2d": "",
        "avg_pool3d": "",
        "lp_pool": "lp_pool1d lp_pool2d lp_pool3d",
        "fractional_max_pool2d": "fractional_max_pool3d",
        "max_unpool2d": "max_unpool1d max_unpool3d",
        "adaptive_avg_pool1d": "",
        "adaptive_avg_pool2d": "",
        "adaptive_avg_pool3d": "",
        "adaptive_max_pool1d": "",
        "adaptive_max_pool2d": "",
        "adaptive_max_pool3d": "",
    },
    "activation": {
        "relu": "threshold",
        "relu6": "",
        "leaky_relu": "rrelu rrelu_with_noise",
        "prelu": "",
        "elu": "",
        "selu": "",
        "celu": "",
        "gelu": "",
        "silu": "swish",
        "mish": "",
        "sigmoid": "expit special_expit",
        "log_sigmoid": "log_sigmoid_forward logsigmoid",
        "tanh": "",
        "softplus": "",
        "softsign": "",
        "hardswish": "",
        "hardsigmoid": "",
        "hardshrink": "softshrink tanhshrink",
        "glu": "",
    },
    "arithmetic": {
        "add": "+ iadd radd",
        "sub": "- subtract rsub isub",
        "mul": "* multiply imul rmul",
        "div": "/ divide true_divide reciprocal itruediv rdiv",
    },
    "pointwise": {
        "floor_divide": "// floordiv",
        "remainder": "% fmod mod",
        "pow": "** square float_power",
        "addcmul": "addcdiv",
        "lerp": "",
        "neg": "negative",
        "abs": "absolute",
        "sign": "sgn signbit copysign",
        "exp": "exp2 expm1",
        "log": "log2 log10 log1p",
        "sqrt": "",
        "rsqrt": "",
        "sin": "",
        "cos": "",
        "tan": "",
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "atan2": "arctan2",
        "sinh": "asinh arcsinh",
        "cosh": "acosh arccosh",
        "atanh": "arctanh",
        "erf": "erfc erfinv special_erf special_erfc",
        "lgamma": "digamma special_gammaln",
        "logit": "special_logit",
        "logaddexp": "",
        "xlogy": "special_xlogy",
        "floor": "ceil round trunc frac fix",
        "clamp": "clamp_min clamp_max clip hardtanh",
        "maximum": "fmax",
        "minimum": "fmin",
        "where": "masked_fill",
        "compare": "> < >= <= == != gt lt ge le eq ne greater less greater_equal less_equal "
        "not_equal isclose isnan isinf isfinite",
        "logical": "& | ^ ~ bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or "
        "logical_xor logical_not bitwise_left_shift bitwise_right_shift << >>",
        "nan_to_num": "",
        "bucketize": "searchsorted",
        "rand": "rand_like randn randn_like randint randint_like bernoulli normal uniform "
        "multinomial randperm",
    },
    "lookup": {
        "embedding": "",
        "embedding_bag": "",
        "gather": "index index_select take take_along_dim",
        "masked_select": "nonzero",
        "scatter": "scatter_add scatter_reduce index_add index_put index_copy index_fill "
        "masked_scatter",
        "one_hot": "",
        "grid_sample": "grid_sampler grid_sampler_2d affine_grid",
        "interpolate": "upsample upsample_nearest upsample_bilinear upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
        "upsample_bicubic2d upsample_trilinear3d UpsamplingNearest2d UpsamplingBilinear2d",
    },
    "layout": {
        "transpose": "t T mT H mH permute swapaxes swapdims movedim moveaxis adjoint numpy_T",
        "cat": "concat concatenate stack hstack vstack dstack column_stack",
        "pad": "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d ZeroPad1d ZeroPad2d ZeroPad3d "
        "ConstantPad1d ConstantPad2d ConstantPad3d circular_pad1d circular_pad2d",
        "roll": "",
        "flip": "fliplr flipud rot90",
        "repeat": "repeat_interleave tile",
        "triu": "tril",
        "diag": "diagonal diag_embed diagflat",
        "unfold": "im2col",
        "fold": "col2im",
        "pixel_shuffle": "pixel_unshuffle",
        "channel_shuffle": "",
        "meshgrid": "",
    },
    "transform": {
        "fft": "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 "
        "fft_fftn ifft rfft irfft fft2 ifft2 rfft2 irfft2 fft_r2c fft_c2c fft_c2r stft istft",
        "inverse": "linalg_inv inv pinverse linalg_pinv",
        "det": "linalg_det slogdet logdet",
        "svd": "linalg_svd eig eigh linalg_eigh linalg_eig qr linalg_qr cholesky linalg_cholesky",
        "solve": "linalg_solve triangular_solve",
        "cross": "linalg_cross",
        "matrix_exp": "matrix_power linalg_matrix_power",
    },
}
"""Family -> canonical name -> its other spellings, in snake case or as nn names the module."""
NOTHING = frozenset(
    (
        *("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze"),
        *("unsqueeze", "expand", "expand_as", "broadcast_to", "broadcast_tensors", "contiguous"),
        *("clone", "detach", "alias", "to", "type", "type_as", "float", "half", "double"),
        *("bfloat16", "int", "long", "bool", "cpu", "cuda", "requires_grad", "requires_grad_"),
        *("data", "slice", "select", "split", "chunk", "split_with_sizes", "unbind", "narrow"),
        *("getitem", "as_strided", "unsafe_view", "reshape_alias", "to_copy", "lift_fresh"),
        *("lift_fresh_copy", "copy", "item", "tolist", "numpy", "size", "dim", "numel"),
        *("stride", "shape", "sym_size", "sym_numel", "assert_tensor_metadata", "assert_async"),
        *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"),
        *("feature_alpha_dropout", "Identity", "empty", "empty_like", "zeros", "zeros_like"),
        *("ones", "ones_like", "full", "full_like", "new_zeros", "new_ones", "new_full"),
        *("new_empty", "new_tensor", "arange", "linspace", "eye", "tensor", "as_tensor"),
        *("from_numpy", "fill", "zero", "scalar_tensor", "device", "dtype", "no_grad"),
        *("enable_grad", "is_tensor", "atleast_1d", "atleast_2d", "manual_seed", "view_as_real"),
        *("view_as_complex", "real", "imag"),
    )
)
"""Moves and computes nothing of its own: views, casts, allocations, dropout in eval mode."""
EXPANSIONS: Mapping[str, tuple[str, ...]] = {
    "normalize": ("norm", "clamp", "div"),
    "linear_cross_entropy": ("linear", "cross_entropy"),
    "LinearCrossEntropyLoss": ("linear", "cross_entropy"),
    "MultiheadAttention": ("linear", "scaled_dot_product_attention", "linear"),
    "multi_head_attention_forward": ("linear", "scaled_dot_product_attention", "linear"),
    "TransformerEncoderLayer": (
        *("linear", "scaled_dot_product_attention", "linear", "add", "layer_norm"),
        *("linear", "relu", "linear", "add", "layer_norm"),
    ),
    "TransformerDecoderLayer": (
        *("linear", "scaled_dot_product_attention", "linear", "add", "layer_norm") * 2,
        *("linear", "relu", "linear", "add", "layer_norm"),
    ),
    "local_response_norm": ("mul", "pad", "avg_pool3d", "mul", "add", "pow", "div"),
    "LocalResponseNorm": ("mul", "pad", "avg_pool3d", "mul", "add", "pow", "div"),
}
"""What torch itself writes as several ops -> those ops."""
HEAVY: Mapping[str, float] = {
    "contraction": 3.0,
    "normalisation": 3.0,
    "scan": 3.0,
    "reduction": 2.0,
    "loss": 3.0,
    "pool": 2.0,
    "lookup": 2.0,
    "transform": 3.0,
    "activation": 1.5,
    "pointwise": 1.0,
    "arithmetic": 0.5,
    "layout": 0.5,
}
"""Family -> how much an op of it says about the kernel."""
NAMESPACES = ("aten", "prims", "torch", "nn", "F", "functional", "Tensor", "operator", "modules")
SUBSPACES = ("linalg", "fft", "special")
STRONGEST: tuple[ReductionClass, ...] = (
    *("contraction", "scan", "row", "column", "spatial", "whole", "none"),
)
"""Of several reductions in a program, the first here names the program."""
BY_DIMS = frozenset(FAMILIES["reduction"]) | {"softmax", "log_softmax", "softmin", "gumbel_softmax"}
FIXED: Mapping[str, ReductionClass] = {
    "layer_norm": "row",
    "rms_norm": "row",
    "group_norm": "spatial",
    "instance_norm": "spatial",
    "cosine_similarity": "row",
    "pairwise_distance": "row",
}
LAST_BY_DEFAULT = ("softmax", "log_softmax", "softmin", "sort", "topk")
"""Ops that take the last dimension where none is named."""

_MODULE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FAMILY_OF = {op: family for family, ops in FAMILIES.items() for op in ops}
_CANONICAL = {
    spelling: op
    for ops in FAMILIES.values()
    for op, others in ops.items()
    for spelling in (op, *others.split())
}


@lru_cache(maxsize=4096)
def canonical_op(name: str) -> str | None:
    """`aten._softmax.default`, `F.softmax`, `nn.Softmax`, `softmax_` -> `softmax`; `@` -> `matmul`.

    None for what computes nothing (views, casts, allocations, dropout) and for a bare name that is
    no op; a name under `aten` or `torch` that the table lacks stands for itself.
    """
    if name in _CANONICAL:
        return _CANONICAL[name]
    words = name.replace("::", ".").split(".")
    spaced = len(words) > 1
    if words[0] in ("aten", "prims"):
        words = words[:2]
    bare = words[-1]
    if len(words) > 1 and words[-2] in SUBSPACES:
        bare = f"{words[-2]}_{bare}"
    for candidate in _spellings(bare):
        if candidate in _CANONICAL:
            return _CANONICAL[candidate]
        if candidate in NOTHING:
            return None
    if spaced and words[0] in NAMESPACES and words[0] not in ("Tensor", "operator"):
        own = bare.strip("_")
        return own if own.isidentifier() and own.islower() and own[:3] != "is_" else None
    return None


def expansion(name: str) -> tuple[str, ...]:
    """The canonical ops that a call of `name` runs, in order; () for none."""
    bare = name.rsplit(".", 1)[-1]
    if bare in EXPANSIONS:
        return EXPANSIONS[bare]
    op = canonical_op(name)
    return () if op is None else (op,)


def einsum_ops(equation: str) -> tuple[str, ...]:
    """What an einsum of that equation computes: `ij,jk->ik` -> matmul; `bi,bi->b` -> mul, sum.

    A product that sums over an index and keeps one of either side alone is a contraction; one that
    keeps all is a broadcast product. `("einsum",)` for what is no equation.
    """
    inputs, arrow, output = equation.replace(" ", "").replace("...", "").partition("->")
    sides = inputs.split(",")
    letters = "".join(sides)
    if not letters.isalpha() or (output and not output.isalpha()):
        return ("einsum",)
    kept = set(output) if arrow else {item for item in letters if letters.count(item) == 1}
    if len(sides) == 1:
        moved = ("transpose",) if arrow and sides[0] != output else ()
        return ("sum",) if set(letters) - kept else moved
    summed = set(letters) - kept
    if not any(sum(item in side for side in sides) > 1 for item in summed):
        return ("mul",) * (len(sides) - 1) + (("sum",) if summed else ())
    shared = set.intersection(*map(set, sides))
    if not any((set(side) & kept) - shared for side in sides):
        return ("mul",) * (len(sides) - 1) + ("sum",)
    return ("matmul",) * (len(sides) - 1)


def names_of_ops() -> tuple[str, ...]:
    """Every canonical name of the table."""
    return tuple(_FAMILY_OF)


def family(op: str) -> str:
    """The family of a canonical name; "pointwise" for one that the table lacks."""
    return _FAMILY_OF.get(op, "pointwise")


def weight(op: str) -> float:
    """How much `op` says about the kernel: 3 for a contraction, 1 for pointwise."""
    return HEAVY[family(op)]


def reduction_of(op: str, dims: Sequence[int] | None, rank: int | None) -> ReductionClass:
    """What one op reduces.

    `dims` are the dimensions that it names (negative ones count from the end), None where it names
    none; `rank` is its input's number of dimensions, None where it is not known.
    """
    kind = family(op)
    if kind in ("contraction", "scan"):
        if op == "outer":
            return "none"
        return "contraction" if kind == "contraction" else "scan"
    if kind == "pool":
        return "spatial"
    if kind == "loss":
        return "whole"
    if op in FIXED and (dims is None or op not in BY_DIMS):
        return FIXED[op]
    if op not in BY_DIMS:
        return "none"
    if dims is None and op in LAST_BY_DEFAULT:
        return "row"
    return _of_dims(dims, rank)


def strongest(found: Iterable[ReductionClass]) -> ReductionClass:
    """The reduction that names a program with these."""
    seen = set(found)
    return next((item for item in STRONGEST if item in seen), "none")


def _of_dims(dims: Sequence[int] | None, rank: int | None) -> ReductionClass:
    if not dims:
        return "whole"
    if rank:
        chosen = sorted({dim % rank for dim in dims})
        if len(chosen) == rank and rank > 1:
            return "whole"
        from_end = [dim - rank for dim in chosen]
    else:
        from_end = [dim if dim < 0 else dim - 4 for dim in sorted(set(dims))]
    if from_end == [-1]:
        return "row"
    return "spatial" if len(from_end) > 1 and from_end[-1] == -1 else "column"


def _spellings(bare: str) -> list[str]:
    """From what is written to what the table may hold: the underscores, the prefixes, the case."""
    found = [bare]
    plain = bare.strip("_")
    for prefix in ("native_", "fused_", "foreach_"):
        plain = plain.removeprefix(prefix)
    found.append(plain)
    if plain[:1].isupper():
        plain = plain.removeprefix("Lazy")
        snake = _MODULE.sub("_", plain).lower()
        found.append(snake)
        found.append(re.sub(r"_(?=[123]d$)", "", snake))
        found.append(snake.replace("_", ""))
        found.append(re.sub(r"_?[123]d$", "", snake))
        found.append(snake.removesuffix("_loss"))
        found.append(re.sub(r"^re_lu", "relu", snake))
        found.append(_joined(snake))
    return list(dict.fromkeys(found))


def _joined(snake: str) -> str:
    """`leaky_re_lu` -> `leaky_relu`, `conv_transpose_2d` -> `conv_transpose2d`."""
    for broken, whole in (
        ("re_lu", "relu"),
        ("si_lu", "silu"),
        ("p_re_lu", "prelu"),
        ("_lu", "lu"),
    ):
        snake = snake.replace(broken, whole)
    return re.sub(r"_(?=[123]d$)", "", snake)
