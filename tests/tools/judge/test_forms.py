"""Which launches count as one form, and which arguments have none."""

import pytest
import torch
import triton.language as tl

from agentkernel.tools.judge.execution.launches import (
    MOST,
    LaunchForms,
    UnknownForm,
    describe_argument,
)


class Kernel:
    arg_names = ("x_ptr", "n", "BLOCK")

    @staticmethod
    def fn(x_ptr, n, BLOCK: tl.constexpr):
        pass


X = torch.ones(3)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [(17, 33, True), (16, 48, True), (16, 17, False), (1, 17, False), (17, 1 << 40, False)],
)
def test_numbers_are_one_form_where_triton_takes_them_for_one(one, other, alike):
    forms = LaunchForms()
    for n in (one, other):
        forms.add(Kernel, (X, n), {"BLOCK": 64, "grid": (n,), "warmup": False, "num_warps": 4})
    assert len(forms.all()) == 2 - alike


def test_constants_are_what_they_are():
    forms = LaunchForms()
    for block in (32, 64, 64):
        forms.add(Kernel, (X, 5), {"BLOCK": block})
    assert len(forms.all()) == 2
    assert ["BLOCK", ["constant", 64]] in forms.all()[1][1]


def test_what_has_no_form_is_counted():
    forms = LaunchForms()
    forms.add(Kernel, (X, object()), {"BLOCK": 64})
    for block in range(MOST + 1):
        forms.add(Kernel, (X, 5), {"BLOCK": block})
    assert forms.left_out == 2
    with pytest.raises(UnknownForm):
        describe_argument([1, 2], False)


def test_types_are_named():
    assert describe_argument(torch.ones(2, dtype=torch.bfloat16), False) == ["tensor", "bfloat16"]
    assert describe_argument(tl.float32, True) == ["dtype", "fp32"]
    assert describe_argument(tl.constexpr(3), False) == ["constant", 3]
