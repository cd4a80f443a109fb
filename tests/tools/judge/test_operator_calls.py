"""Operators that a source may call under the policy "mixed": in one form, and as often as seen."""

import pytest

from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.policy.families import GraphOperators, Work

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn

HEAD


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.bare = nn.Linear(4, 4, bias=False)

    def forward(self, x, w, b):
        BODY
        return x
"""
ORIGINAL = GraphOperators(
    library=frozenset({"product"}),
    calls={"sort": Work(2), "layer_norm": Work(1), "relu": Work(1)},
    computes={"product": 1, "add": 1, "sort": 2, "relu": 1},
)
OF = "torch.ops.aten"
SORT = f"{OF}.sort.stable(x, stable=True, dim=-1)"


def check(body, head="", original=ORIGINAL, policy="mixed"):
    body = body.replace("\n", "\n        ")
    return check_policy(SOURCE.replace("HEAD", head).replace("BODY", body), policy, None, original)


HELPER = f"def sorted_rows(x):\n    return {SORT}[0]\n"


@pytest.mark.parametrize(
    ("body", "head"),
    [
        (f"x, places = {SORT}", ""),
        (f"x = {SORT}[0]\nx = {SORT}[0]", ""),
        (f"x = {OF}.native_layer_norm.default(x, [4], w, b, 1e-5)[0]", ""),
        (f"for _ in range(2):\n    x = {SORT}[0]", ""),
        ("x = sorted_rows(sorted_rows(x))", HELPER),
        (f"x = {OF}.addmm.default(b, x, w)\nx = {OF}._addmm_activation.default(b, x, w)", ""),
        ("x = F.scaled_dot_product_attention(x, w, b)", ""),
        (f"for _ in range(x.shape[0]):\n    x = {OF}.mm.default(x, w)", ""),
    ],
    ids=["unpacked", "twice", "below", "counted", "helper", "fused", "attention", "products"],
)
def test_what_the_original_calls_may_be_called(body, head):
    assert check(body, head) is None
    assert check(body, head, None) is not None or OF not in body
    assert check(body, head, policy="triton") is not None


AGAIN = f"def again(x, n):\n    return again({SORT}[0], n - 1) if n else x\n"
TWICE = f"{HELPER}\n\ndef twice(work, x):\n    return work(work(x))\n"


@pytest.mark.parametrize(
    ("body", "rule", "words"),
    [
        (f"x = {OF}.cumsum.default(x, 0)", "operator", "does not call"),
        (f"x = {SORT}[0]\n" * 3, "operator", "called 3 times"),
        (f"for _ in range(3):\n    x = {SORT}[0]", "operator", "called 3 times"),
        (
            f"for _ in range(2):\n    for _ in range(2):\n        x = {SORT}[0]",
            "operator",
            "4 times",
        ),
        (f"for _ in range(x.shape[0]):\n    x = {SORT}[0]", "operator", "how often"),
        (f"for _ in range(10**40):\n    x = {SORT}[0]", "operator", "how often"),
        (f"for _ in range(9{'9' * 40}):\n    x = {SORT}[0]", "operator", "how often"),
        (f"while x.shape[0]:\n    x = {SORT}[0]", "operator", "how often"),
        (f"x = [{SORT} for _ in range(2)]", "operator", "how often"),
        (f"work = lambda x: {SORT}\nx = work(x)", "operator", "how often"),
        ("x = again(x, 5)", "operator", "how often"),
        ("x = twice(sorted_rows, x)", "operator", "how often"),
        (f"x = {OF}.relu_.default(x)", "operator", "writes"),
        (f"x = {OF}.relu.out(x, out=w)", "operator", "writes"),
        (f"x = {OF}.relu.nothing(x)", "operator", "no operator"),
        (f"x = {OF}.relu.default(*[x])", "operator", "one by one"),
        (f"x = {OF}.relu.default(**{{'self': x}})", "operator", "one by one"),
        (f"x = {OF}.relu(x)", "torch-namespace", "relu"),
        (f"aten = {OF}\nx = aten.relu.default(x)", "torch-namespace", "aten"),
        (f"relu = {OF}.relu.default\nx = relu(x)", "torch-namespace", "relu"),
        (f"x = {OF}.relu.default.decompose(x)", "torch-namespace", "decompose"),
        ("x = torch.ops.mine.relu.default(x)", "torch-namespace", "mine"),
        ("x = torch.ops.higher_order.cond(x, x, x, [])", "torch-namespace", "higher_order"),
        ("x = torch._C._nn.gelu(x)", "torch-namespace", "_C"),
        ("x = torch.relu(x)", "torch-compute", "relu"),
    ],
)
def test_what_is_more_or_otherwise_is_refused(body, rule, words):
    head = AGAIN if "again" in body else TWICE if "twice" in body else ""
    found = check(body.rstrip("\n"), head)
    assert found is not None
    assert found.rule == rule
    assert words in found.text


REST = f"x = {SORT}[0]\nx = {SORT}[0]\nx = {OF}.relu.default(x)"


@pytest.mark.parametrize(
    ("product", "refused"),
    [
        ("x = torch.addmm(b, x, w)", True),
        (f"x = {OF}.addmm.default(b, x, w)", True),
        ("x = F.linear(x, w, b)", True),
        ("x = F.linear(x, w, bias=b)", True),
        ("x = self.linear(x)", True),
        ("x = F.linear(x, w, None)", False),
        ("x = self.bare(x)", False),
        ("x = x @ w", False),
        ("x = x.matmul(w)", False),
        (f"x = {OF}.mm.default(x, w)", False),
    ],
)
def test_calls_that_compute_all_of_it_are_the_original_in_disguise(product, refused):
    found = check(f"{product}\n{REST}")
    assert (found.rule if found else None) == ("library-alone" if refused else None)
