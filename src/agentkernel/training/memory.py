"""How much memory does each GPU need while a model of a given shape is trained?

Computed, not measured, from the shape and from what a training here holds: AdamW; all weights in
fp32 with products in bf16 (full), or bf16 weights under an fp32 adapter (lora), or 4-bit weights
under a bf16 adapter (qlora).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from agentkernel.domain.base import Frozen
from agentkernel.training.shapes import ModelShape
from agentkernel.training.training import RlSettings, SftSettings

Method = Literal["full", "lora", "qlora"]
PARTS = (
    "weights",
    "adapter",
    "gradients",
    "optimizer states",
    "copies in 16 bits",
    "activations",
    "loss",
    "keys and values",
    "logits",
    "judge",
    "margin",
)
"""What memory goes to, in the order in which it is shown."""
Working = tuple[tuple[str, float], ...]
"""Names and bytes of what comes and goes within a step."""
METHODS: tuple[Method, ...] = ("full", "lora", "qlora")
GIB = 2**30
MANY_WEIGHTS = 1_000_000_000
"""From here on activations are computed twice rather than kept; as the trainer has it."""
FOUR_BIT_BYTES = (4 + 0.127) / 8
"""A weight in NF4 with the scales quantised too: QLoRA, arXiv 2305.14314, section 3."""
CONTEXT_GIB = 2.0
"""Of a GPU's memory for driver and CUDA context: one of 80 GB leaves torch about 78 GiB."""
MARGIN = 0.1
"""Of all else, for what an allocator cannot use and what libraries keep; our assumption."""
JUDGE_GIB = 8.0
"""What judge and profiler are left beside a model: `judge_gb` of a local preset."""
LOSS_TOKENS, LOSS_VOCABULARY = 4096, 32_768
"""Logits exist by tiles of so many tokens and entries: TRL 1.16, kernels/chunked_logprob.py."""
DRAWN_BYTES = 12
"""A logit while a token is drawn: as it comes, in fp32, and its probability in fp32."""
SAMPLED_ROWS = 512
"""Answers that are written at once at most; as the sampler has it."""


class Part(Frozen):
    """What takes memory, in GiB a GPU."""

    name: str
    gib: float


class Memory(Frozen):
    """All of one GPU, in GiB, the margin being one of the parts; `room_gib` is what it has."""

    parts: tuple[Part, ...]
    total_gib: float
    room_gib: float
    fits: bool


class _State(NamedTuple):
    """What is there at every moment of a training, in bytes a GPU."""

    weights: float
    adapter: float
    gradients: float
    optimizer: float
    copies: float


def is_checkpointed(shape: ModelShape) -> bool:
    """True where activations are computed again in the backward pass."""
    return shape.parameters >= MANY_WEIGHTS


def is_sharded(shape: ModelShape, sft: SftSettings, gpus: int) -> bool:
    """True where weights, gradients and optimizer states are spread over the GPUs (FSDP), all
    weights being trained: of large models, or as `sft.shard` says. What stands still below an
    adapter lies on each."""
    if gpus == 1 or sft.method != "full" or sft.shard == "none":
        return False
    return sft.shard == "full" or shape.parameters >= MANY_WEIGHTS


def sft_memory(shape: ModelShape, sft: SftSettings, gpus: int, gpu_gib: float) -> Memory:
    """While it is fine-tuned: micro-batches of `sft.batch` rows of a whole window."""
    state = _state(shape, sft, gpus)
    tokens = sft.batch * min(sft.window, shape.window)
    return _memory(state, _learning(shape, sft, tokens), gpu_gib)


def rl_memory(
    shape: ModelShape, sft: SftSettings, rl: RlSettings, prompt: int, gpu_gib: float
) -> Memory:
    """While it practises, on one GPU: the one that writes, learns and judges. Writing and learning
    take turns, so that the larger of the two counts. `prompt`: tokens of a question."""
    length = min(prompt + rl.most_tokens, shape.window)
    rows = min(rl.tried * rl.rollouts, SAMPLED_ROWS)
    learning = _learning(shape, sft, rl.batch * length)
    writing = (
        ("keys and values", float(rows * length * key_value_bytes(shape))),
        ("logits", float(rows * shape.vocabulary * DRAWN_BYTES)),
    )
    larger = max(learning, writing, key=lambda parts: sum(part[1] for part in parts))
    state = _state(shape, sft, gpus=1)
    return _memory(state, (*larger, ("judge", JUDGE_GIB * GIB)), gpu_gib)


def weight_bytes(shape: ModelShape, method: Method) -> float:
    """The model itself, without an adapter. In 4 bits are the layers' matrices alone."""
    if method == "full":
        return 4.0 * shape.parameters
    if method == "lora":
        return 2.0 * shape.parameters
    packed = shape.layers * shape.layer_matrix_weights
    return FOUR_BIT_BYTES * packed + 2.0 * (shape.parameters - packed)


def _state(shape: ModelShape, sft: SftSettings, gpus: int) -> _State:
    """AdamW keeps two numbers a weight, in the weight's own type: 16 bytes a weight in fp32 with
    its gradient. Sharded, each GPU has one part in `gpus` of them (ZeRO-3, arXiv 1910.02054,
    section 5.3), and two layers, the first and the last matrix gathered in bf16, with gradients.

    Otherwise autocast keeps a bf16 copy of each fp32 matrix for the length of a forward pass.
    """
    matrices = shape.layers * shape.layer_matrix_weights
    if sft.method == "full":
        owned = 4.0 * shape.parameters
        if is_sharded(shape, sft, gpus):
            gathered = 2.0 * 2 * (2 * shape.layer_weights + shape.embedding_weights)
            return _State(owned / gpus, 0.0, owned / gpus, 2 * owned / gpus, gathered)
        return _State(owned, 0.0, owned, 2 * owned, 2.0 * matrices)
    adapter = shape.adapter_parameters(sft.lora)
    weights = weight_bytes(shape, sft.method)
    if sft.method == "lora":
        owned = 4.0 * adapter
        return _State(weights, owned, owned, 2 * owned, 2.0 * adapter)
    # A matrix in 4 bits is unpacked to bf16 for each product; TRL has the adapter in bf16.
    owned, widest = 2.0 * adapter, max(item.weights for item in shape.matrices)
    return _State(weights, owned, owned, 2 * owned, 2.0 * widest)


def layer_bytes(shape: ModelShape, sft: SftSettings) -> int:
    """What one layer keeps of a token for its backward pass, counted tensor by tensor as arXiv
    2205.05198 (section 4.1) does for GPT, with attention that keeps no scores (arXiv 2205.14135).

    All weights trained: the stream between layers is fp32; each norm keeps its input and its
    quotient, each linear layer a bf16 input of its own (those of attention and MLP's last one are
    there anyhow). Adapters: each norm keeps its input in fp32, each adapter its input in bf16, and
    a byte a number where `lora.dropout` masks it. In bf16 besides: query, key, value and result of
    attention; the MLP's gate, its SiLU, up, and their product where all weights are trained.
    """
    hidden, attention = shape.hidden, 2 * (2 * shape.query_width + 2 * shape.key_width)
    if sft.method == "full":
        norms, inputs = 2 * (4 + 4) * hidden, (3 + 2) * 2 * hidden
        return norms + inputs + attention + 4 * 2 * shape.intermediate
    adapted = sum(item.columns for item in shape.adapted(sft.lora))
    inputs = (3 if sft.lora.dropout else 2) * adapted
    return 2 * 4 * hidden + inputs + attention + 3 * 2 * shape.intermediate


def activation_bytes(shape: ModelShape, sft: SftSettings, tokens: int) -> float:
    """Of `tokens` at once. Checkpointed: each layer's input, and the whole of the one layer that is
    being computed again (arXiv 2205.05198, section 5), else the whole of all layers."""
    layer = layer_bytes(shape, sft)
    if not is_checkpointed(shape):
        return float(tokens * shape.layers * layer)
    stream = (4 if sft.method == "full" else 2) * shape.hidden
    return float(tokens * (shape.layers * stream + layer))


def loss_bytes(shape: ModelShape, tokens: int, *, full: bool) -> float:
    """A tile of logits in bf16, the gradient of all last hidden states in fp32, and that of the
    last matrix where it is trained (TRL's loss over tiles; whole logits would be 4 x tokens x
    vocabulary, and more)."""
    tile = 2 * min(tokens, LOSS_TOKENS) * min(shape.vocabulary, LOSS_VOCABULARY)
    hidden = 4 * tokens * shape.hidden
    head = 4 * shape.vocabulary * shape.hidden if full else 0
    return float(tile + hidden + head)


def key_value_bytes(shape: ModelShape) -> int:
    """Keys and values of one token in all layers, in bf16."""
    return 2 * 2 * shape.layers * shape.key_width


def _learning(shape: ModelShape, sft: SftSettings, tokens: int) -> Working:
    full = sft.method == "full"
    return (
        ("activations", activation_bytes(shape, sft, tokens)),
        ("loss", loss_bytes(shape, tokens, full=full)),
    )


def _memory(state: _State, working: Working, gpu_gib: float) -> Memory:
    named = (
        ("weights", state.weights),
        ("adapter", state.adapter),
        ("gradients", state.gradients),
        ("optimizer states", state.optimizer),
        ("copies in 16 bits", state.copies),
        *working,
    )
    total = sum(part for _, part in named)
    parts = (*named, ("margin", MARGIN * total))
    needed, room = (1 + MARGIN) * total / GIB, gpu_gib - CONTEXT_GIB
    return Memory(
        parts=tuple(Part(name=name, gib=part / GIB) for name, part in parts if part),
        total_gib=needed,
        room_gib=room,
        fits=needed <= room,
    )


__all__ = [
    "GIB",
    "MANY_WEIGHTS",
    "METHODS",
    "PARTS",
    "SAMPLED_ROWS",
    "Memory",
    "Method",
    "Part",
    "activation_bytes",
    "is_checkpointed",
    "is_sharded",
    "key_value_bytes",
    "layer_bytes",
    "loss_bytes",
    "rl_memory",
    "sft_memory",
    "weight_bytes",
]
