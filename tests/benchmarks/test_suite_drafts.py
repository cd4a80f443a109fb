"""Is every problem of the suite captured, drafted and compiled for a GPU, where there is none?"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest

from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted
from agentkernel.tools.judge.execution.graph_operators import graph_operators
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.settings import JudgeSettings
from tests.benchmarks.suite_drafts import (
    FILES,
    Drafted,
    compile_failures,
    lifted_draft,
    lifting_job,
    problem,
    template_drafts,
)
from tests.benchmarks.suite_kinds import LIFTED, SAMPLE, UNDRAFTED, group_of
from tests.compiler.inductor_codes import shared_codes

JUDGED = (
    "addcmul_broadcast", "amax_spatial", "argmin_columns", "attention_causal",
    "baddbmm_scaled", "batch_norm_3d", "bmm_half", "conv_bias_residual_relu",
    "dead_clamp_chain", "decode_step", "depthwise_separable", "gelu_tanh", "hardswish",
    "linear_clamp_residual", "linear_relu_squared", "linear_tanh_sum", "low_rank_adapter",
    "lstm_cell_gates",
    "matmul_transposed_a", "matmul_transposed_b", "mean_middle", "mish", "normalise_l2",
    "residual_dropout_norm", "resnet_basic_block", "resnet_bottleneck",
    "rms_norm_qkv", "sigmoid_attention", "softplus_odd", "standardise_image", "sum_rows",
    "transpose_conv_norm_relu", "transpose_copy", "triangular_product", "vae_sample_kl",
    "var_channels", "where_mask",
)  # fmt: skip
"""Their template drafts are judged in the interpreter within a few seconds."""
JUDGED_FIRST = frozenset({"gelu_tanh", "lstm_cell_gates", "standardise_image", "where_mask"})
"""Of these the ones that `make test` judges; causal attention and a residual block are judged there
as the compiler's and the lifted own."""
JUDGED_SLOWLY = (
    "argmax_vocabulary", "attention_biased", "bce_logits_weighted", "causal_scores_written_out",
    "contrastive_loss",
    "conv3d_norm_relu_mean", "decoder_cross_attention", "deep_inner", "gated_mlp",
    "huber_sum", "kl_divergence", "layer_norm_volume", "linear_cross_entropy", "linear_geglu",
    "linear_mean_scale", "linear_odd", "logsumexp", "mse_loss", "pairwise_difference", "prod_short",
    "sum_of_squares_gradient_clip", "variational_autoencoder",
)  # fmt: skip
"""These take longer; the others have rows or windows that the interpreter does not get through."""
TEMPLATED = tuple(name for name in FILES if name not in {*LIFTED, *UNDRAFTED})
JUDGING = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=1.0)


def by_problem(names: Iterable[str], quick: frozenset[str] = SAMPLE) -> list[object]:
    """A test a problem, in the process that has it captured; slow for all but the `quick` ones."""
    return [
        pytest.param(
            name,
            marks=[
                pytest.mark.xdist_group(group_of(name)),
                *([] if name in quick else [pytest.mark.slow]),
            ],
        )
        for name in names
    ]


@functools.cache
def codes(of_sample: bool) -> dict[str, InductorCode | NotLifted]:
    """What TorchInductor writes for every problem without a template, of the sample or the others;
    one process writes it all."""
    names = [name for name in (*LIFTED, *UNDRAFTED) if (name in SAMPLE) == of_sample]
    shared = "suite_sample" if of_sample else "suite"
    return dict(
        zip(names, shared_codes(shared, [lifting_job(name) for name in names]), strict=True)
    )


def lifted(name: str) -> Drafted:
    return lifted_draft(name, codes(name in SAMPLE)[name])


@functools.cache
def template(name: str) -> Drafted | None:
    """The draft of the first strategy that has one."""
    drafts = template_drafts(name)
    return next((item for item in drafts if isinstance(item.draft, DropInSource)), None)


def refusal(drafted: Drafted) -> str:
    """What the policy says against a draft, "" where nothing; why there is none."""
    if isinstance(drafted.draft, NotLifted):
        return drafted.draft.reason
    operators = graph_operators(drafted.captured)
    refused = check_policy(drafted.draft.text, "mixed", None, operators)
    return refused.text if refused is not None else ""


def assert_compiles(name: str, drafted: Drafted) -> None:
    assert isinstance(drafted.draft, DropInSource), f"{name}: {drafted.draft}"
    assert refusal(drafted) == ""
    assert compile_failures(name, [drafted]) == [""], drafted.draft.text


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", by_problem(TEMPLATED))
def test_a_template_draft_compiles_for_the_target(name: str) -> None:
    found = template(name)
    assert found is not None, template_drafts(name)
    assert_compiles(name, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_problem(LIFTED))
def test_a_lifted_draft_compiles_for_the_target(name: str) -> None:
    assert_compiles(name, lifted(name))


@pytest.mark.parametrize("name", by_problem(UNDRAFTED))
def test_what_has_no_draft_says_why(name: str) -> None:
    found = refusal(lifted(name))
    assert found, "it has a draft now: take it off the list"
    assert UNDRAFTED[name] in found
    assert template(name) is None, "it has a draft now: take it off the list"


def accepted(name: str) -> None:
    found = template(name)
    assert found is not None
    assert isinstance(found.draft, DropInSource)
    verdict = judge(*problem(name), found.draft.text, JUDGING)
    assert verdict.accepted, f"{verdict.failure}\n{found.draft.text}"


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", by_problem(JUDGED, JUDGED_FIRST))
def test_a_template_draft_passes_the_judge(name: str) -> None:
    accepted(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_problem(JUDGED_SLOWLY))
def test_a_larger_template_draft_passes_the_judge_too(name: str) -> None:
    accepted(name)
