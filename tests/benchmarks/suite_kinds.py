"""Which problems of the suite have no template, which ones stand for all, and which process tests
which problem?"""

from __future__ import annotations

LIFTED = (
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "bucketize", "concatenate",
    "contraction_4d", "conv1d_dilated", "conv2d_depthwise", "conv2d_grouped",
    "conv2d_pointwise", "conv2d_row_kernel", "conv2d_stem", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "count_nonzero", "cummax_values",
    "cumprod_columns", "cumsum_rows", "diagonal_product", "gather_columns",
    "grid_sample", "local_response_norm", "logcumsumexp", "matvec",
    "max_pool1d", "max_pool2d_ceil", "max_pool3d", "one_hot", "pairwise_distance",
    "pixel_shuffle", "poisson_nll", "polar_angle", "quantise_int8", "reflect_pad",
    "roll_window", "scatter_sum", "unfold_patches", "upsample_bicubic", "upsample_bilinear",
    "upsample_nearest", "avg_pool_conv_transition", "causal_conv_silu", "conv1d_glu",
    "conv_mish_upsample_add", "conv_norm_relu_pool", "conv_shuffle_prelu",
    "conv_softmax_expectation", "dice_loss",
    "exclusive_cumsum_masked", "feature_interaction", "masked_softmax_scores", "nearest_code",
    "patch_embedding", "pool_after_pool", "quantise_rows", "rotary_embedding", "scan_decay",
    "spatial_gate", "upsample_conv_tanh", "conformer_convolution", "dense_block",
    "feature_pyramid", "graph_attention_dense", "graph_convolution", "gru_cell_loop",
    "hypernetwork_modulation", "inception_block", "inverted_residual", "llama_block",
    "lstm_layer", "mamba_scan", "parallel_block_alibi", "retention_chunk", "rwkv_time_mix",
    "shuffle_unit", "small_unet", "temporal_convolution", "vgg_head", "vision_transformer",
    "wavenet_layers", "window_attention", "sparsemax", "top_two_gates", "mixture_of_experts",
    "recommender",
)  # fmt: skip
"""Drafted here from TorchInductor's code, whether a template covers them or not."""
UNDRAFTED = {
    "sort_rows": "nothing is left to Triton: the library does it all",
}
"""No draft at all: what sorts or selects stays with PyTorch, and nothing is left."""

SAMPLE = frozenset({
    "addcmul_broadcast", "argmin_columns", "attention_causal", "batch_norm_3d", "bmm_half",
    "gelu_tanh", "layer_norm_volume", "matmul_transposed_b", "mse_loss", "softmax_odd_rows",
    "sum_rows", "transpose_copy", "var_channels", "where_mask",
    "adam_step", "conv_bias_residual_relu", "dead_clamp_chain", "linear_relu_squared",
    "low_rank_adapter", "lstm_cell_gates", "rms_norm_qkv", "standardise_image", "vae_sample_kl",
    "decode_step", "resnet_basic_block",
    "concatenate", "contraction_4d", "conv1d_dilated", "cumsum_rows", "gather_columns", "matvec",
    "max_pool2d_ceil", "one_hot", "quantise_int8", "roll_window", "scatter_sum",
    "conv_norm_relu_pool", "nearest_code", "rotary_embedding",
    "conformer_convolution", "graph_convolution",
    "embedding_bag", "sort_rows", "topk_values",
})  # fmt: skip
"""A few of each kind, whose drafts `make test` looks at; `make test-all` drafts the whole suite."""


def group_of(name: str) -> str:
    """The xdist group of a problem's tests: one process captures it, once. What TorchInductor is
    asked about shares a process too, which asks for all at once."""
    return "suite_lifted" if name in {*LIFTED, *UNDRAFTED} else f"suite_{name}"
