"""Are the candidate and the kernels of a wish about a launch read from its sentence?"""

from __future__ import annotations

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.requests import (
    Ambiguous,
    CandidateRef,
    IntentContext,
    NotUnderstood,
    SetKnob,
    Sweep,
    Understood,
)
from agentkernel.chat.user_input import sentence

CONTEXT = IntentContext(
    kernels=("mul_kernel", "silu_kernel", "add_kernel", "gelu"), candidates=(1, 2), current=1
)


@pytest.mark.parametrize(
    ("text", "kernels", "candidate"),
    [
        ("use 2 warps for the add kernel only", ("add",), "current"),
        ("set BLOCK_N in silu_kernel to 32", ("silu_kernel",), "current"),
        ("use a BLOCK_M of 16 for mul_kernel", ("mul_kernel",), "current"),
        ("use 2 warps for add", ("add",), "current"),
        ("use 2 warps and 3 stages for add_kernel", ("add_kernel",), "current"),
        ("fewer registers in mul_kernel", ("mul_kernel",), "current"),
        ("use 2 warps for the add and mul kernels", ("add", "mul"), "current"),
        ("change the number of warps of the add kernel to 4", ("add",), "current"),
        ("could you use 2 warps for add_kernel?", ("add_kernel",), "current"),
        ("sweep warps 2,4,8 for add_kernel", ("add_kernel",), "current"),
        ("use 2 warps for all kernels", (), "current"),
        ("use 2 warps for the triton kernel", (), "current"),
        ("use 4 warps", (), "current"),
        ("use 4 warps on c1", (), 1),
        ("use 4 warps on c2 and run", (), 2),
        ("sweep warps 2,4,8 on c2", (), 2),
        ("more warps for the silu kernel on c2", ("silu",), 2),
        ("use 8 warps like c2", (), "current"),
        ("use 4 warps on the fastest", (), "fastest"),
    ],
)
def test_what_a_wish_is_for(text: str, kernels: tuple[str, ...], candidate: CandidateRef) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood | Ambiguous), found
    intents = found.intents if isinstance(found, Understood) else found.options[0]
    wishes = [item for item in intents if isinstance(item, SetKnob | Sweep)]
    assert wishes
    for wish in wishes:
        assert (wish.kernels, wish.candidate) == (kernels, candidate)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("use 2 warps for all kernels except add_kernel", "Name the kernels that are to change"),
        ("use 2 warps for add_kernel and 8 warps for mul_kernel", "one kernel at a time"),
        ("use 4 warps on c1 and c2", "Which candidate is to be changed?"),
    ],
)
def test_what_is_not_clear_is_not_done(text: str, said: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, NotUnderstood)
    assert said in found.reason


def test_a_wish_in_words_says_what_it_is_for() -> None:
    wish = SetKnob(knob="warps", value=2, kernels=("add_kernel", "silu"), candidate=2)
    assert sentence(wish) == "use 2 warps for add_kernel and the silu kernel on c2"
    found = understand(sentence(wish), CONTEXT)
    options = found.options if isinstance(found, Ambiguous) else ()
    assert (wish,) in options or (isinstance(found, Understood) and found.intents == (wish,))
