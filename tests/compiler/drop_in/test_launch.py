"""Which drop-ins are offered as a CUDA graph: many launches, few bytes, nothing written to."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.drop_in.launch import (
    DIRECT,
    GRAPH,
    direct_form,
    form_label,
    graph_form,
    launch_count,
    launches_in_a_loop,
    plain_label,
    worthwhile,
)
from agentkernel.compiler.drop_in.views import with_output_views
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.tools.judge.policy.graph_form import plain_form
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module

LAUNCH = "        kernel[(1,)](x)\n"


def drop_in(lines=LAUNCH * 8, arguments="self, x"):
    text = (
        "import torch\nimport triton\nfrom torch import nn\n\n\n@triton.jit\ndef kernel(x):\n"
        f"    pass\n\n\nclass ModelNew(nn.Module):\n    def forward({arguments}):\n{lines}"
        "        return torch.empty_like(x)\n"
    )
    return DropInSource(text, ("kernel",), {"kernel": {}})


class Scale(nn.Module):
    def forward(self, x):
        return x * 2


class Counts(Scale):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x * self.count


class InPlace(Scale):
    def forward(self, x):
        x.mul_(2)
        return x.sum()


class Returns(Scale):
    def forward(self, x):
        return x, x * 2


class Parts(Scale):
    def forward(self, x):
        return (x * 2).chunk(2)


class Makes(Scale):
    def forward(self, x):
        return x * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)


def graph_of(module, *shape):
    return capture(problem_from_module(module, (torch.randn(*shape),)))


@pytest.fixture(scope="module")
def scale():
    return graph_of(Scale(), 8, 4)


def test_many_launches_have_a_graph_form(scale):
    source = drop_in()
    found = graph_form(source, scale)
    assert found is not None
    assert (found.kernels, found.schedule) == (source.kernels, source.schedule)
    assert plain_form(found.text) is not None


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_launches_have_none(scale, count):
    assert graph_form(drop_in(LAUNCH * count), scale) is None


def test_many_bytes_have_none():
    assert graph_form(drop_in(), graph_of(Scale(), 4096, 8192)) is None


@pytest.mark.parametrize("kind", [Counts, InPlace, Returns, Makes])
def test_what_changes_or_hands_on_its_tensors_has_none(kind):
    assert graph_form(drop_in(), graph_of(kind(), 8, 4)) is None


def test_parts_of_a_computed_value_leave_the_graph_form():
    loaded = problem_from_module(Parts(), (torch.randn(8, 4),))
    captured = with_output_views(loaded, capture(loaded))
    assert captured.view_bases
    assert graph_form(drop_in(), captured) is not None
    loaded = problem_from_module(Returns(), (torch.randn(8, 4),))
    captured = with_output_views(loaded, capture(loaded))
    assert captured.views
    assert graph_form(drop_in(), captured) is None


def test_arguments_by_keyword_alone_have_none(scale):
    assert graph_form(drop_in(arguments="self, *, x"), scale) is None


def test_launches_are_kernels_and_the_librarys_calls():
    lines = (
        "        y = torch.empty((4,))\n        kernel[(1,)](x)\n"
        "        y = torch.mm(x, x).contiguous()\n"
        "        z = torch.nn.functional.conv2d(x, x)\n"
    )
    assert launch_count(drop_in(lines).text) == 3


def test_many_launches_are_no_loop_over_launches():
    assert not launches_in_a_loop(drop_in(LAUNCH * 40))
    loop = "        for turn in range(4):\n    " + LAUNCH
    assert launches_in_a_loop(drop_in(loop))


@given(st.integers(0, 300), st.integers(1, 20), st.integers(0, 1 << 34))
def test_more_launches_and_fewer_bytes_never_speak_against_it(launches, copies, moved):
    if worthwhile(launches, copies, moved):
        assert worthwhile(launches + 1, copies, moved)
        assert worthwhile(launches, copies - 1, moved)
        assert worthwhile(launches, copies, moved // 2)
        assert moved / 2e12 < launches * 14e-6


def test_a_label_is_found_again():
    assert (
        plain_label(form_label("default, option 1 of kernel", GRAPH))
        == "default, option 1 of kernel"
    )
    assert plain_label("default") == "default"


def test_short_kernels_have_a_direct_form():
    """Launches that the kernels do not hide."""
    source = drop_in()
    found = direct_form(source, 300.0)
    assert found is not None
    assert (found.kernels, found.schedule) == (source.kernels, source.schedule)
    assert found.text.count("@DirectLaunch") == 1
    assert direct_form(source, 8 * 100.0 + 1) is None
    assert plain_label(form_label("tiles of 64", DIRECT)) == "tiles of 64"
