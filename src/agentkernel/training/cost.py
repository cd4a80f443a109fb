"""Cost model of a training: memory by one formula, hours by measured shares of a GPU's peak.

Computed, not measured: of each time both ends of what was measured are given. Memory is that of
AdamW with all weights in fp32 and products in bf16 (full), of bf16 weights under an fp32 adapter
(lora), or of 4-bit weights under a bf16 adapter (qlora).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import TrainingError
from agentkernel.domain.target import Target
from agentkernel.training.model_shape import MANY_WEIGHTS, ModelShape
from agentkernel.training.settings import RlSettings, SftSettings

Method = Literal["full", "lora", "qlora"]
METHODS: tuple[Method, ...] = ("full", "lora", "qlora")
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
GIB = 2**30
HOUR_S = 3600.0
FOUR_BIT_BYTES = (4 + 0.127) / 8
"""A weight in NF4 with the scales quantised too: QLoRA, arXiv 2305.14314, section 3."""
TRAINED_BYTES = {"full": 4, "lora": 4, "qlora": 2}
"""A trained weight, its gradient, and each of AdamW's two numbers; TRL has qlora's in bf16."""
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
PEAK_SHARES = {"large": (0.30, 0.50), "small": (0.10, 0.22)}
"""Of the dense bf16 peak, measured. Large, from MANY_WEIGHTS on: 3 and 7 B on H100s, rows of 2,048
to 8,192 tokens: 40 to 54% with what is computed twice (mosaicml/llm-foundry,
scripts/train/benchmarking, H100 80GB BF16, HFU); Llama 3 405B: 38 to 43% without (arXiv 2407.21783,
table 4); below those goes the lower end, our assumption. Small: 24 M weights on an H200, 0.57 M
tokens/s, and 1.23 M compiled (docs/training.md, "Speed"), at 800 tokens a row."""
BANDWIDTH_SHARE = 0.9
"""Of a GPU's memory bandwidth: a copy on an H200 reaches 4,300 of 4,800 GB/s, measured."""
HOST_S_A_LAYER = {"full": 0.4e-3, "lora": 0.8e-3, "qlora": 0.8e-3}
"""Of the processor for a token and a layer in transformers' `generate`: 0.34 to 0.46 ms, under an
adapter 0.68 to 0.81, measured (transformers 5.23, peft 0.21, one core, width 16)."""
JUDGE_S, PROFILE_S = 12.4, 5.5
"""A verdict on a kernel, and timing a right one, which has the GPU alone: measured on an H200,
docs/sessions/linear-h200.txt."""
ANSWER_SHARE = 0.5
"""Of a row's tokens, those that are the answer; our assumption."""


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


class Range(Frozen):
    """The least and the most that it may be, of what was measured or assumed."""

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
    dram, bandwidth = target.dram_gb.value, target.dram_gb_per_s.value
    return Machine(target.name, gpus, dram, peak.value, bandwidth, judges)


def is_large(shape: ModelShape) -> bool:
    """True where activations are computed again in the backward pass."""
    return shape.parameters >= MANY_WEIGHTS


def is_sharded(shape: ModelShape, sft: SftSettings, gpus: int) -> bool:
    """True where the GPUs share weights, gradients and optimizer states (FSDP), all weights being
    trained: of large models, or as `sft.shard` says."""
    shares = sft.shard == "full" or (sft.shard == "auto" and is_large(shape))
    return gpus > 1 and sft.method == "full" and shares


def trained_weights(shape: ModelShape, sft: SftSettings) -> int:
    """All of them, or the adapter's."""
    return shape.parameters if sft.method == "full" else shape.adapter_parameters(sft.lora)


def frozen_bytes(shape: ModelShape, method: Method) -> float:
    """The model below an adapter. In 4 bits are the layers' matrices alone."""
    packed = shape.matrix_weights if method == "qlora" else 0
    return FOUR_BIT_BYTES * packed + 2.0 * (shape.parameters - packed)


def layer_bytes(shape: ModelShape, sft: SftSettings) -> int:
    """What one layer keeps of a token for its backward pass, counted tensor by tensor as arXiv
    2205.05198 (section 4.1) does for GPT, with attention that keeps no scores (arXiv 2205.14135).

    All weights trained: the stream between layers is fp32; each norm keeps its input and its
    quotient, each linear layer a bf16 input of its own (those of attention and MLP's last one are
    there anyhow). Adapters: each norm keeps its input in fp32, each adapter its input in bf16, and
    a byte a number where `lora.dropout` masks it. In bf16 besides: query, key, value and result of
    attention; the MLP's gate, its SiLU, up, and their product where all weights are trained.
    """
    attention = 2 * (2 * shape.query_width + 2 * shape.key_width)
    if sft.method == "full":
        return (2 * 8 + 5 * 2) * shape.hidden + attention + 4 * 2 * shape.intermediate
    adapted = sum(columns for _, columns in shape.adapted(sft.lora))
    inputs = (3 if sft.lora.dropout else 2) * adapted
    return 2 * 4 * shape.hidden + inputs + attention + 3 * 2 * shape.intermediate


def key_value_bytes(shape: ModelShape) -> int:
    """Keys and values of one token in all layers, in bf16."""
    return 2 * 2 * shape.layers * shape.key_width


def sft_memory(shape: ModelShape, sft: SftSettings, gpus: int, gpu_gib: float) -> Memory:
    """While it is fine-tuned: micro-batches of `sft.batch` rows of a whole window."""
    learning = _learning(shape, sft, sft.batch * min(sft.window, shape.window))
    return _memory(_state(shape, sft, gpus) | learning, gpu_gib)


def rl_memory(
    shape: ModelShape, sft: SftSettings, rl: RlSettings, prompt: int, gpu_gib: float
) -> Memory:
    """While it practises, on one GPU: the one that writes, learns and judges. Writing and learning
    take turns, so that the larger of the two counts. `prompt`: tokens of a question."""
    length = min(prompt + rl.most_tokens, shape.window)
    rows = min(rl.tried * rl.rollouts, SAMPLED_ROWS)
    writing = {
        "keys and values": float(rows * length * key_value_bytes(shape)),
        "logits": float(rows * shape.vocabulary * DRAWN_BYTES),
    }
    learning = _learning(shape, sft, rl.batch * length)
    larger = max(learning, writing, key=lambda parts: sum(parts.values()))
    return _memory(_state(shape, sft, 1) | larger | {"judge": JUDGE_GIB * GIB}, gpu_gib)


def _state(shape: ModelShape, sft: SftSettings, gpus: int) -> dict[str, float]:
    """Bytes that are there at every moment. Shared, each GPU has one part in `gpus` of them (arXiv
    1910.02054, section 5.3, ZeRO-3), and two layers and both ends gathered in bf16, with gradients;
    otherwise autocast has a bf16 copy of each fp32 matrix."""
    full, sharded = sft.method == "full", is_sharded(shape, sft, gpus)
    trained = trained_weights(shape, sft)
    owned = float(TRAINED_BYTES[sft.method] * trained / (gpus if sharded else 1))
    copies = 2.0 * (shape.matrix_weights if full else trained)
    if sharded:
        copies = 4.0 * (2 * shape.matrix_weights / shape.layers + shape.embedding_weights)
    return {
        "weights": owned if full else frozen_bytes(shape, sft.method),
        "adapter": 0.0 if full else owned,
        "gradients": owned,
        "optimizer states": 2 * owned,
        "copies in 16 bits": copies,
    }


def _learning(shape: ModelShape, sft: SftSettings, tokens: int) -> dict[str, float]:
    """Bytes of a step of `tokens` at once: all that all layers keep, or, computed twice, each
    layer's input and all that one keeps (arXiv 2205.05198, section 5); a tile of logits in bf16,
    the last hidden states' gradient in fp32, and that of the last matrix where it is trained."""
    full, kept = sft.method == "full", layer_bytes(shape, sft)
    stream = (4 if full else 2) * shape.hidden
    layers = shape.layers * stream + kept if is_large(shape) else shape.layers * kept
    tile = 2 * min(tokens, LOSS_TOKENS) * min(shape.vocabulary, LOSS_VOCABULARY)
    loss = tile + 4 * tokens * shape.hidden + (4 * shape.head_weights if full else 0)
    return {"activations": float(tokens * layers), "loss": float(loss)}


def _memory(parts: dict[str, float], gpu_gib: float) -> Memory:
    named = parts | {"margin": MARGIN * sum(parts.values())}
    needed, room = sum(named.values()) / GIB, gpu_gib - CONTEXT_GIB
    return Memory(
        parts=tuple(Part(name=name, gib=named[name] / GIB) for name in PARTS if named.get(name)),
        total_gib=needed,
        room_gib=room,
        fits=needed <= room,
    )


def flops_a_token(shape: ModelShape, sft: SftSettings, length: int) -> float:
    """Operations of learning from one token of a row of `length` tokens: 6 for each weight that it
    is multiplied with and 12 x layers x width x length of attention (arXiv 2204.02311, appendix B),
    less 2 for the gradients of weights that stand still, and 2 more where layers are computed
    forward twice (arXiv 2205.05198, section 5)."""
    each = (6 if sft.method == "full" else 4) + (2 if is_large(shape) else 0)
    products = each * (shape.matrix_weights + shape.head_weights)
    return products + 12.0 * shape.layers * shape.query_width * length


def sft_cost(
    shape: ModelShape, sft: SftSettings, machine: Machine, rows: int, tokens_a_row: int
) -> SftCost:
    """`sft.epochs` passes over `rows`, or `sft.most_steps` where it is said: the trainer goes on to
    the last of these, and a packed row is a full window.

    Raises TrainingError for rows longer than the window, or where no matrix gets an adapter.
    """
    window = min(sft.window, shape.window)
    _check(tokens_a_row, window)
    tokens = round(rows * tokens_a_row * sft.epochs)
    if sft.most_steps is not None:
        length = window if sft.packing else tokens_a_row
        tokens = sft.most_steps * sft.batch * sft.accumulate * machine.gpus * length
    flop = tokens * flops_a_token(shape, sft, tokens_a_row)
    return SftCost(
        method=sft.method,
        trained=trained_weights(shape, sft),
        sharded=is_sharded(shape, sft, machine.gpus),
        memory=sft_memory(shape, sft, machine.gpus, machine.memory_gib),
        tokens=tokens,
        eflop=flop / 1e18,
        hours=_computing(shape, flop / machine.gpus, machine),
    )


def rl_cost(
    shape: ModelShape, sft: SftSettings, rl: RlSettings, machine: Machine, tokens_a_row: int
) -> RlCost:
    """`rl.steps` steps, every try going through all its turns; modules past `rl.problems` are
    written about at the first turn alone. One GPU writes, learns and judges, however many there
    are: `machine.judges` at a time, and at most every answer is right and timed.

    Raises TrainingError for rows longer than the window.
    """
    _check(tokens_a_row, shape.window)
    answer = min(round(tokens_a_row * ANSWER_SHARE), rl.most_tokens)
    prompt = tokens_a_row - answer
    tries = rl.steps * rl.problems * rl.rollouts
    answers, drawn = tries * rl.turns, tries * (rl.oversample + rl.turns - 1)
    speed = tokens_per_s(shape, sft, rl, machine, prompt, answer)
    read = 2.0 * drawn * prompt * (shape.matrix_weights + shape.head_weights)
    reading, written = _computing(shape, read, machine), drawn * answer / HOUR_S
    write = Range(low=reading.low + written / speed.high, high=reading.high + written / speed.low)
    flop = answers * tokens_a_row * flops_a_token(shape, sft, tokens_a_row)
    learn = _computing(shape, flop, machine)
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
        hours=Range(
            low=write.low + learn.low + judge.low, high=write.high + learn.high + judge.high
        ),
    )


def tokens_per_s(
    shape: ModelShape, sft: SftSettings, rl: RlSettings, machine: Machine, prompt: int, answer: int
) -> Range:
    """Useful tokens a second of all answers that are written at once.

    At best what goes through memory takes the time, for each token of all of them the weights in
    bf16 and the keys and values of what came before (arXiv 2211.05102, section 2), and an answer
    that ends makes room for the next; at worst the processor is slower, and all wait for one of
    `rl.most_tokens`.
    """
    rows = min(rl.tried * rl.rollouts, SAMPLED_ROWS)
    cached = rows * (prompt + answer / 2) * key_value_bytes(shape)
    read = 2.0 * (shape.matrix_weights + shape.head_weights) + cached
    best_s = read / (machine.dram_gb_per_s * 1e9 * BANDWIDTH_SHARE)
    worst_s = max(best_s, shape.layers * HOST_S_A_LAYER[sft.method])
    return Range(low=rows / worst_s * answer / rl.most_tokens, high=rows / best_s)


def _computing(shape: ModelShape, flop: float, machine: Machine) -> Range:
    least, most = PEAK_SHARES["large" if is_large(shape) else "small"]
    rate = machine.peak_tflops * 1e12 * HOUR_S
    return Range(low=flop / (rate * most), high=flop / (rate * least))


def _check(tokens: int, window: int) -> None:
    if tokens > window:
        raise TrainingError(
            f"Rows of {tokens} tokens do not fit a window of {window}. Expected at most that. "
            "Next: fewer --tokens-a-row, or a larger sft.window."
        )
