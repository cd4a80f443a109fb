import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.domain.knowledge import Structure
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.graph_structure import op_vector, similarity, structure_of_graph
from agentkernel.knowledge.op_names import FAMILIES
from tests.benchmarks.suite_drafts import problem
from tests.benchmarks.suite_kinds import group_of

SUITE = Path(__file__).parents[2] / "benchmarks" / "suite"
AGREEING = (
    *("level1/softmax_odd_rows", "level1/normalise_l2", "level1/local_response_norm"),
    *("level1/batch_norm_3d", "level1/mean_middle", "level1/argmin_columns", "level1/deep_inner"),
    *("level1/cross_entropy_smoothed", "level1/where_mask", "level1/topk_values"),
    *("level1/quantise_int8", "level1/cumsum_rows", "level1/upsample_nearest"),
    *("level2/adam_step", "level2/focal_loss", "level2/swiglu_mlp", "level2/rotary_embedding"),
    *("level2/structural_similarity", "level2/sparsemax", "level2/squeeze_excite_gate"),
    *("level2/depthwise_separable", "level2/masked_softmax_scores", "level2/rms_norm_qkv"),
    *("level3/resnet_basic_block", "level3/llama_block", "level3/mlp_mixer", "level3/dense_block"),
    *("level3/post_norm_encoder", "level3/linear_attention", "level3/inception_block"),
)
OPS = sorted(op for ops in FAMILIES.values() for op in ops)
structures = st.builds(
    Structure,
    ops=st.lists(st.sampled_from(OPS), min_size=1, max_size=20).map(tuple),
    reduction=st.sampled_from(["row", "whole", "contraction"]),
    dtypes=st.sampled_from([("float32",), ("float16", "int64")]),
    rank=st.integers(1, 4),
    roofline=st.sampled_from(["memory", "compute"]),
)


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xdist_group(group_of(Path(name).stem)))
        for name in AGREEING
    ],
)
def test_syntax_and_graph_agree(name: str) -> None:
    path = SUITE / f"{name}.py"
    code = structure_of_code(path.read_text())
    graph = structure_of_graph(problem(path.stem)[1])
    assert code is not None
    assert similarity(code, graph) >= 0.8
    assert code.reduction == graph.reduction
    assert code.rank in (None, graph.rank)


@pytest.mark.xdist_group(group_of("masked_softmax_scores"))
def test_the_structure_of_a_graph() -> None:
    found = structure_of_graph(problem("masked_softmax_scores")[1], "memory")
    assert found.ops == ("mul", "logical", "where", "softmax")
    assert found.reduction == "row"
    assert found.dtypes[0].startswith("float")
    assert found.roofline == "memory"


@given(structures, structures)
def test_similarity_is_symmetric_and_bounded(a: Structure, b: Structure) -> None:
    value = similarity(a, b)
    assert 0 <= value <= 1
    assert value == pytest.approx(similarity(b, a))
    assert similarity(a, a) == pytest.approx(1)


@given(structures, structures)
def test_vectors_come_near_the_similarity(a: Structure, b: Structure) -> None:
    left, right = op_vector(a), op_vector(b)
    assert float(np.linalg.norm(left)) == pytest.approx(1, abs=1e-5)
    assert abs(float(left @ right) - similarity(a, b)) < 0.35


def test_vectors_rank_as_similarity_does() -> None:
    rng = np.random.default_rng(0)
    pool = [
        Structure(ops=tuple(rng.choice(OPS[:40], size=rng.integers(2, 12))), rank=2)
        for _ in range(200)
    ]
    exact = np.array([similarity(pool[0], item) for item in pool])
    near = np.array([float(op_vector(pool[0]) @ op_vector(item)) for item in pool])
    assert float(np.abs(exact - near).mean()) < 0.08
    assert set(np.argsort(-exact)[:5]) <= set(np.argsort(-near)[:30])


def test_what_differs_lowers_the_similarity() -> None:
    base = Structure(ops=("matmul", "softmax", "matmul"), reduction="contraction", rank=3)
    reordered = base.evolve(ops=("softmax", "matmul", "matmul"))
    other = base.evolve(ops=("conv2d", "relu"))
    rank = base.evolve(rank=2)
    assert 1 > similarity(base, rank) > similarity(base, reordered) > similarity(base, other)
    assert similarity(base, other) < 0.2
    unknown = Structure(ops=base.ops)
    assert similarity(base, unknown) == pytest.approx(1)


def test_without_ops_nothing_is_alike() -> None:
    empty, some = Structure(ops=()), Structure(ops=("relu",))
    assert similarity(empty, empty) == similarity(empty, some) == 0
    assert not op_vector(empty).any()


def test_vectors_are_the_same_in_another_process() -> None:
    code = (
        "from agentkernel.knowledge.graph_structure import op_vector;"
        "from agentkernel.domain.knowledge import Structure;"
        "import sys;print(op_vector(Structure(ops=('relu', 'sum'), rank=2)).tobytes().hex())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
