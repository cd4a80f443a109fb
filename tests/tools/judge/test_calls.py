"""Modules are called by name, with what the example leaves out, and with other words."""

from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.variants import other_calls
from tests.tools.judge.sources import problem_of

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, how, bias=None, *, mask=None, scale=1.0, unused=3):
        if bias is not None:
            x = x + bias
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        return scale * (x - y if how == "minus" else x + y)


def get_inputs():
    return [torch.randn(6, 8), torch.randn(6, 8), "minus"]
"""


def _calls(prepared, text):
    loaded, _ = prepared(text)
    case = Case(CaseShape(loaded.problem.shape_sets[0], "declared", 0), "normal", 1)
    return other_calls(loaded, case, "cpu", 0)


def test_every_argument_is_asked_that_makes_a_difference(prepared):
    found = _calls(prepared, PROBLEM)
    told = [item.case.variant for item in found]
    assert told[:3] == [
        "called with names",
        "called with bias float32[6, 8]",
        "called with mask bool[6, 8]",
    ]
    assert told[3].startswith("called with scale=")
    assert (told[4], len(told)) == ("called with how='sum'", 5)
    structures = [item.loaded.problem.arguments for item in found]
    assert structures[0].text == "((), {'x': *, 'y': *, 'how': *})"
    assert (structures[1].text, structures[4]) == ("((*, *, *), {'bias': *})", None)


def test_what_is_given_as_none_is_asked_too(prepared):
    text = PROBLEM.replace('"minus"]', '"minus", None]')
    found = _calls(prepared, text)
    bias = next(item for item in found if "bias" in item.case.variant)
    assert [spec.name for spec in bias.inputs.inputs] == ["x", "y", "how", "bias"]
    assert len(bias.inputs.tensors) == 3


def test_what_takes_one_input_has_no_names_to_confuse(prepared):
    text = PROBLEM.replace("x, y, how, bias=None", "x, /").replace("x - y if", "x if")
    text = text.replace('how == "minus" else x + y', "scale else x")
    text = text.replace("if bias is not None:", "if False:")
    text = text.replace(', torch.randn(6, 8), "minus"]', "]")
    told = [item.case.variant for item in _calls(prepared, text)]
    assert [item.partition(" f")[0].partition(" b")[0] for item in told] == [
        "called with mask", told[1],
    ]  # fmt: skip
    assert told[1].startswith("called with scale=")


LISTS = problem_of(
    "sum(rest[0][1:], rest[0][0]) + pair[0]",
    "[[torch.randn(6, 8), torch.randn(6, 8)]], (torch.randn(6, 8), 2)",
    takes="rest, pair",
)


def test_a_list_of_tensors_gets_one_more(prepared):
    found = _calls(prepared, LISTS)
    longer = next(item for item in found if "list" in item.case.variant)
    assert longer.loaded.problem.arguments.text == "(([[*, *, *]], (*, *)), {})"
    assert [spec.name for spec in longer.inputs.inputs] == [
        "rest[0][0]", "rest[0][1]", "rest[0][1]", "pair[0]", "pair[1]",
    ]  # fmt: skip
