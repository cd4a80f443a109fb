import pytest

from agentkernel.knowledge.index import KnowledgeIndex, pattern_overlap

QUERIES = (
    ("normalise each row to zero mean and unit variance, layer norm", "layernorm"),
    ("root mean square norm with a weight", "rmsnorm"),
    ("add the residual and then apply RMS norm", "residual_rmsnorm"),
    ("softmax over the vocabulary, the row is too long for one tile", "softmax_online"),
    ("softmax along the channel dimension of a strided tensor", "softmax_strided"),
    ("few very long rows, split each softmax over several programs", "softmax_split"),
    ("cross entropy loss of logits with class labels", "cross_entropy"),
    ("binary cross entropy with logits", "bce_logits_loss"),
    ("smooth l1 or huber loss", "huber_loss"),
    ("KL divergence between two distributions", "kl_div_loss"),
    ("fp32 matrix multiplication on tensor cores with tf32x3", "gemm_fp32"),
    ("batched matrix multiply bmm", "gemm_batched"),
    ("small output, long inner dimension, split K", "gemm_split_k"),
    ("matrix vector product", "gemv"),
    ("causal attention with masked future keys", "attention_causal"),
    ("gated linear unit with silu", "swiglu"),
    ("rotary position embedding of queries and keys", "rope"),
    ("2d max pooling of images", "max_pool2d"),
    ("prefix sum along the last dimension", "row_cumsum"),
    ("group norm over channel groups of an image", "group_norm"),
    ("sum the rows of a matrix for each column", "column_sum"),
    ("quantise activations to int8 with a scale per row", "quantise_rows"),
    ("look up token embeddings in a table", "embedding"),
    ("transpose a matrix", "transpose"),
)


@pytest.mark.parametrize(("query", "expected"), QUERIES)
def test_a_natural_query_finds_its_kernel(index: KnowledgeIndex, query: str, expected: str) -> None:
    found = index.search(query, architecture="90", patterns=(), dtype="", limit=8)
    kernels = [item.id for item in found if item.kind == "kernel"]
    assert f"kernels/{expected}" in kernels[:3], kernels


@pytest.mark.parametrize(
    ("query", "family"),
    [
        ("how many warps and registers does an A100 SM have", "ampere"),
        ("L2 cache of the RTX 4090 and L40S", "ada"),
        ("wgmma operand layouts on H100", "hopper"),
        ("tcgen05 tensor memory of the B200", "blackwell"),
        ("LDS and MFMA of the MI300X", "cdna3"),
    ],
)
def test_a_question_about_hardware_finds_its_note_without_being_told(
    index: KnowledgeIndex, query: str, family: str
) -> None:
    found = index.search(query, architecture="", patterns=(), dtype="", limit=3)
    assert f"notes/{family}" in [item.id for item in found]


@pytest.mark.parametrize(
    ("architecture", "note"),
    [
        ("80", "notes/ampere"),
        ("89", "notes/ada"),
        ("90", "notes/hopper"),
        ("100", "notes/blackwell"),
        ("120", "notes/blackwell"),
        ("gfx942", "notes/cdna3"),
    ],
)
def test_the_architectures_note_is_always_among_the_results(
    index: KnowledgeIndex, architecture: str, note: str
) -> None:
    for limit in (1, 4):
        found = index.search(
            "cosine similarity",
            architecture=architecture,
            patterns=("loss",),
            dtype="",
            limit=limit,
        )
        assert len(found) == limit
        assert [item.id for item in found if item.kind == "hardware"] == [note]


def test_patterns_count(index: KnowledgeIndex) -> None:
    query = "make this module faster"
    found = index.search(query, architecture="90", patterns=("softmax",), dtype="float32")
    assert all("softmax" in item.text for item in found if item.kind == "kernel")


def test_a_kernel_for_other_architectures_is_not_offered(index: KnowledgeIndex) -> None:
    def first(architecture: str) -> str:
        return index.search(
            "fp32 linear layer", architecture=architecture, patterns=("gemm",), dtype="float32"
        )[0].id

    assert first("90") == "kernels/gemm_fp32"
    assert first("gfx942") != "kernels/gemm_fp32"


def test_hints_are_those_of_the_dtype(index: KnowledgeIndex) -> None:
    def hints(dtype: str) -> dict[str, str]:
        found = index.search("gemm", architecture="90", patterns=("gemm",), dtype=dtype)
        return next(item for item in found if item.id == "notes/hopper").hints

    assert hints("float32")["gemm.fp32.tile"] == "128x128x64"
    assert "gemm.fp32.tile" not in hints("bfloat16")
    assert hints("bfloat16")["gemm.bf16.num_warps"] == "4"
    assert hints("float32")["row.invariant_first"] == "1"
    assert hints("bfloat16")["row.invariant_first"] == "0"


def test_results_come_best_first_and_none_for_limit_zero(index: KnowledgeIndex) -> None:
    found = index.search("softmax", architecture="90", patterns=("softmax",), dtype="")
    note_last = [item.score for item in found if item.kind == "kernel"]
    assert note_last == sorted(note_last, reverse=True)
    assert index.search("softmax", architecture="90", patterns=(), dtype="", limit=0) == ()


@pytest.mark.parametrize(
    ("wanted", "offered", "share"),
    [
        (("softmax",), ("softmax", "norm"), 1.0),
        (("softmax", "gemm"), ("softmax",), 0.5),
        (("row_softmax",), ("softmax",), 0.5),
        ((), ("softmax",), 0.0),
        (("gemm",), ("norm",), 0.0),
    ],
)
def test_pattern_overlap(wanted: tuple[str, ...], offered: tuple[str, ...], share: float) -> None:
    assert pattern_overlap(wanted, offered) == pytest.approx(share)
