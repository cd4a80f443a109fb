"""Cost model of a training: hours, and memory per GPU, computed from the model's shape.

Computed, not measured. Each time has two ends, from the two ends of what is assumed. Memory is
that of AdamW with all weights in fp32 and products in bf16 (full), of bf16 weights under an
fp32 adapter (lora), or of 4-bit weights under a bf16 adapter (qlora).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import TrainingError
from agentkernel.domain.target import Target
from agentkernel.training.model_shape import ModelShape
from agentkernel.training.settings import RlSettings, SftSettings

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


PEAK_SHARE = (0.30, 0.50)
"""Of the dense bf16 peak, with what is computed twice counted twice. Measured on H100s of 80 GB:
models of 3 and 7 B, rows of 2,048 to 8,192 tokens, 8 GPUs: 40 to 54% (mosaicml/llm-foundry,
scripts/train/benchmarking/README.md, H100 80GB BF16, HFU); Llama 3 405B: 38 to 43% without what is
computed twice (arXiv 2407.21783, table 4). Below those goes the lower end, since the layers here
are not fused: our assumption."""
BANDWIDTH_SHARE = 0.9
"""Of a GPU's memory bandwidth: a copy on an H200 reaches 4,300 of 4,800 GB/s, measured."""
HOST_S_A_LAYER = {"full": 0.4e-3, "lora": 0.8e-3, "qlora": 0.8e-3}
"""What transformers' `generate` takes on the processor for a token and a layer, launches left out:
0.34 to 0.46 ms, and 0.68 to 0.81 ms under an adapter (transformers 5.23, peft 0.21, one core,
layers of width 16, 12 and 36 of them)."""
CACHE_PASSES = (1, 3)
"""How often keys and values go through memory for a token: read; or copied as well as they grow."""
JUDGE_S = 12.4
"""A verdict on a kernel, measured on an H200: docs/sessions/linear-h200.txt."""
PROFILE_S = 5.5
"""Timing a right one, which has the GPU alone; measured there too."""
ANSWER_SHARE = 0.5
"""Of a row's tokens, those that are the answer; our assumption."""
HOUR_S = 3600.0


class Range(Frozen):
    """The least and the most that it may be, of what is assumed."""

    low: float
    high: float


class Machine(NamedTuple):
    """GPUs of one kind. Memory in GiB a GPU (what vendors call GB is about that), the dense bf16
    peak in TFLOP/s and the bandwidth in GB/s a GPU; `judges` processes judge at a time."""

    name: str
    gpus: int
    memory_gib: float
    peak_tflops: float
    dram_gb_per_s: float
    judges: int = 16


class SftCost(Frozen):
    """Fine-tuning. `eflop`: 1e18 operations, in all."""

    method: Method
    trained: int
    sharded: bool
    memory: Memory
    tokens: int
    eflop: float
    hours: Range


class RlCost(Frozen):
    """Practice on the judge, all steps of it, on one GPU; hours of each part. `tokens_per_s` are
    those of all answers that are written at once."""

    method: Method
    memory: Memory
    answers: int
    tokens_per_s: Range
    write_hours: Range
    learn_hours: Range
    judge_hours: Range
    hours: Range


def machine_of(target: Target, gpus: int, judges: int = 16) -> Machine:
    """`gpus` of a packaged target. Raises TrainingError for one without bf16."""
    peak = target.peak_tflops.get("bf16")
    if peak is None:
        raise TrainingError(
            f"{target.title} has no bf16 peak. Expected a GPU that computes in bf16. Next: another "
            "--target; see 'agentkernel targets'."
        )
    return Machine(
        target.name, gpus, target.dram_gb.value, peak.value, target.dram_gb_per_s.value, judges
    )


def flops_a_token(shape: ModelShape, sft: SftSettings, length: int) -> float:
    """Operations of learning from one token of a row of `length` tokens.

    2 a weight forward, 4 backward (arXiv 2001.08361, section 2.1), of them 2 for the weight's own
    gradient, which is not taken where it stands still below an adapter. Checkpointed layers are
    computed forward twice (arXiv 2205.05198, section 5), and so is the last matrix, whose logits
    nobody keeps. Attention: 2 x width x length for what lies before a token on the average, two
    and a half times as much backward (arXiv 2307.08691, section 4.1).
    """
    matrices = shape.layers * shape.layer_matrix_weights
    head = shape.vocabulary * shape.hidden
    again = 2 if is_checkpointed(shape) else 0
    attention = 2.0 * shape.layers * shape.query_width * length
    attended = attention * (1 + 2.5 + (1 if again else 0))
    if sft.method == "full":
        return (6 + again) * matrices + (6 + 2) * head + attended
    adapter = (6 + again) * shape.adapter_parameters(sft.lora)
    return (4 + again) * matrices + (4 + 2) * head + adapter + attended


def sft_cost(
    shape: ModelShape, sft: SftSettings, machine: Machine, rows: int, tokens_a_row: int
) -> SftCost:
    """`sft.epochs` passes over `rows`, or `sft.most_steps` where it is said.

    Packed rows see themselves alone; what GPUs wait for each other is in the share of the peak.
    Raises TrainingError for rows longer than the window, or where no matrix gets an adapter.
    """
    _check(tokens_a_row, min(sft.window, shape.window))
    tokens = _learned(shape, sft, machine.gpus, rows, tokens_a_row)
    flop = tokens * flops_a_token(shape, sft, tokens_a_row)
    full = sft.method == "full"
    return SftCost(
        method=sft.method,
        trained=shape.parameters if full else shape.adapter_parameters(sft.lora),
        sharded=is_sharded(shape, sft, machine.gpus),
        memory=sft_memory(shape, sft, machine.gpus, machine.memory_gib),
        tokens=tokens,
        eflop=flop / 1e18,
        hours=_computing(flop, machine, machine.gpus),
    )


def _learned(shape: ModelShape, sft: SftSettings, gpus: int, rows: int, tokens_a_row: int) -> int:
    """Tokens in all. The trainer goes on to the last of `sft.most_steps`, whatever the epochs; a
    packed row is a full window."""
    if sft.most_steps is None:
        return round(rows * tokens_a_row * sft.epochs)
    length = min(sft.window, shape.window) if sft.packing else tokens_a_row
    return sft.most_steps * sft.batch * sft.accumulate * gpus * length


def rl_cost(
    shape: ModelShape, sft: SftSettings, rl: RlSettings, machine: Machine, tokens_a_row: int
) -> RlCost:
    """`rl.steps` steps, every try going through all its turns, half of a turn's tokens being the
    answer; modules past `rl.problems` are written about at the first turn alone. One GPU writes,
    learns and judges, however many there are.

    Judging: `machine.judges` at a time, and at most every answer right and timed. Raises
    TrainingError for rows longer than the window.
    """
    _check(tokens_a_row, shape.window)
    answer = min(round(tokens_a_row * ANSWER_SHARE), rl.most_tokens)
    prompt = tokens_a_row - answer
    tries = rl.steps * rl.problems * rl.rollouts
    answers = tries * rl.turns
    drawn = tries * (rl.oversample + rl.turns - 1)
    speed = tokens_per_s(shape, sft, rl, machine, prompt, answer)
    read = drawn * prompt * (2.0 * shape.multiplied)
    reading = _computing(read, machine, 1)
    written = drawn * answer / HOUR_S
    write = Range(
        low=reading.low + written / speed.high,
        high=reading.high + written / speed.low,
    )
    learn = _computing(answers * tokens_a_row * flops_a_token(shape, sft, tokens_a_row), machine, 1)
    verdicts = answers * JUDGE_S / machine.judges / HOUR_S
    judge = Range(low=verdicts, high=verdicts + answers * PROFILE_S / HOUR_S)
    return RlCost(
        method=sft.method,
        memory=rl_memory(shape, sft, rl, prompt, machine.memory_gib),
        answers=answers,
        tokens_per_s=speed,
        write_hours=write,
        learn_hours=learn,
        judge_hours=judge,
        hours=_sum(write, learn, judge),
    )


def tokens_per_s(
    shape: ModelShape,
    sft: SftSettings,
    rl: RlSettings,
    machine: Machine,
    prompt: int,
    answer: int,
) -> Range:
    """Useful tokens a second of all answers that are written at once.

    For each token of all of them the weights go through memory once, and each answer's keys and
    values of what came before: it is these bytes that take the time (arXiv 2211.05102, section 2).
    At best there is nothing else, and an answer that ends makes room for the next; at worst the
    processor is slower, and all wait for one of `rl.most_tokens`.
    """
    rows = min(rl.tried * rl.rollouts, SAMPLED_ROWS)
    cached = rows * (prompt + answer / 2) * key_value_bytes(shape)
    read = read_bytes(shape, sft)
    bandwidth = machine.dram_gb_per_s * 1e9 * BANDWIDTH_SHARE
    best_s, worst_s = ((read + passes * cached) / bandwidth for passes in CACHE_PASSES)
    worst_s = max(worst_s, shape.layers * HOST_S_A_LAYER[sft.method])
    waited = rl.most_tokens / answer
    return Range(low=rows / worst_s / waited, high=rows / best_s)


def read_bytes(shape: ModelShape, sft: SftSettings) -> float:
    """Bytes of weights for one token of all answers. fp32 weights are read as bf16 (autocast keeps
    copies); those in 4 bits are read, unpacked to bf16, and read again (bitsandbytes does so for
    more than one row)."""
    if sft.method == "full":
        return 2.0 * shape.multiplied
    unpacked = 0.0
    if sft.method == "qlora":
        unpacked = 2 * 2.0 * shape.layers * shape.layer_matrix_weights
    size = 4 if sft.method == "lora" else 2
    # Of the first matrix, where it is one of its own, a token reads a row.
    table = 0 if shape.tied else shape.vocabulary * shape.hidden
    whole = weight_bytes(shape, sft.method) - 2.0 * table
    return whole + unpacked + size * shape.adapter_parameters(sft.lora)


def _computing(flop: float, machine: Machine, gpus: int) -> Range:
    least, most = PEAK_SHARE
    rate = gpus * machine.peak_tflops * 1e12 * HOUR_S
    return Range(low=flop / (rate * most), high=flop / (rate * least))


def _sum(*parts: Range) -> Range:
    return Range(low=sum(item.low for item in parts), high=sum(item.high for item in parts))


def _check(tokens: int, window: int) -> None:
    if tokens > window:
        raise TrainingError(
            f"Rows of {tokens} tokens do not fit a window of {window}. Expected at most that. "
            "Next: fewer --tokens-a-row, or a larger sft.window."
        )
