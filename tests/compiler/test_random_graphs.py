"""Drop-ins of random small graphs are right, in every form of schedule."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import FORMS, small
from tests.compiler.random_graphs import RandomGraph, random_graphs
from tests.compiler.sandboxed_drop_in import Sandboxed

Case = tuple[RandomGraph, tuple[torch.Tensor, torch.Tensor]]
COMMON = settings(
    deadline=None, database=None, phases=[Phase.generate], derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip


def _right(box: Sandboxed, case: Case, forms: tuple[str, ...]) -> None:
    module, inputs = case
    loaded = problem_from_module(module, inputs)
    captured = capture(loaded)
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    if any(0 in values[name].stride() for name in captured.outputs if name is not None):
        with pytest.raises(UnsupportedOp, match="share memory"):
            partitions(loaded, captured, "mixed")
        return
    compiled = partitions(loaded, captured, "mixed")[0]
    for form in forms:
        text = compiled.write(small(compiled, form)).text
        box.check(text, module, inputs)


@pytest.mark.slow
@settings(COMMON, max_examples=8)
@given(case=random_graphs())
def test_random_graphs_are_close_to_fp64(box: Sandboxed, case: Case) -> None:
    _right(box, case, ("looped", "single"))


@pytest.mark.slow
@settings(COMMON, max_examples=200)
@given(case=random_graphs())
def test_many_random_graphs_are_close_to_fp64(box: Sandboxed, case: Case) -> None:
    _right(box, case, FORMS)
