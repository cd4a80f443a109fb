"""The direct form of a source: what makes it, what takes it off, and what its launches keep."""

import ast
import inspect
import textwrap
from pathlib import Path

import pytest
import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from agentkernel.tools.judge.launch_form import NOT_RUN
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.policy.direct_form import BLOCK, plain_form, with_direct_launches
from agentkernel.tools.judge.policy.launch_form import AS_GRAPH, DIRECTLY, form_name
from agentkernel.tools.judge.policy.launch_form import plain_form as any_plain_form

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("[kl]*/*.py"))


def formed(plain):
    text = with_direct_launches(plain)
    assert text is not None
    return text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_drop_in_has_it_and_gives_its_text_back(path):
    plain = path.read_text(encoding="utf-8")
    text = with_direct_launches(plain)
    assert text is not None
    found = plain_form(text)
    assert found is not None
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(plain))
    assert len(found.split("\n")) == len(text.split("\n"))
    assert form_name(text) == DIRECTLY
    assert any_plain_form(text) == found


def test_only_kernels_that_python_launches_are_decorated(sources):
    helped = sources.ADD.replace(
        "@triton.jit\n",
        "@triton.jit\ndef twice(x):\n    return 2 * x\n\n\n@triton.jit\n",
        1,
    ).replace("x + 2 * y", "x + twice(y)")
    text = formed(helped)
    assert text.count("@DirectLaunch") == 1
    assert text.index("class DirectLaunch") < text.index("@triton.jit")
    assert "@DirectLaunch\n@triton.jit\ndef add_kernel" in text


CHANGES = {
    "another bound": ("MOST_FORMS = 64", "MOST_FORMS = 65"),
    "no alignment": ("argument.data_ptr() % 16 == 0", "True"),
    "no names": ("*named.items()", "*named.values()"),
    "another triton": ("class ModelNew", "triton = torch\n\n\nclass ModelNew"),
    "no launch": ("        compiled.run(", "        (lambda *_: None)("),
    "a second block": (
        "class DirectLaunch:",
        "class DirectLaunch:\n    pass\n\n\nclass DirectLaunch:",
    ),
    "something beside the import": ("import functools", "import functools, os"),
    "another decorator": ("@DirectLaunch\n", "@DirectLaunch\n@torch.no_grad()\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_block_is_no_such_form_and_is_refused(change, sources):
    old, new = CHANGES[change]
    text = formed(sources.ADD)
    assert text.count(old) == 1
    text = text.replace(old, new)
    assert plain_form(text) is None
    assert check_policy(text, "triton") is not None


def test_without_a_gpu_its_launches_are_judged(judged, sources):
    text = formed(sources.NORM)
    verdict = judged(sources.NORM_PROBLEM, text)
    assert verdict.accepted, verdict.failure
    assert verdict.launches == ("norm_kernel",)
    assert NOT_RUN[DIRECTLY] in verdict.notes
    assert not any(DIRECTLY in case.label for case in verdict.cases)


def test_a_wrong_plain_text_is_refused_at_its_gate(judged, sources):
    verdict = judged(
        sources.ADD_PROBLEM, formed(sources.ADD.replace("x + 2 * y, mask", "x * 0.0, mask"))
    )
    assert verdict.gate == "correctness"
    assert not {NOT_RUN[AS_GRAPH], NOT_RUN[DIRECTLY]} & set(verdict.notes)


def test_triton_launches_what_it_compiled_by_the_arguments_that_the_block_gives():
    """What the block reads of Triton's insides."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(JITFunction.run)))
    (call,) = (
        x for x in ast.walk(tree) if isinstance(x, ast.Call) and ast.unparse(x.func) == "kernel.run"
    )
    given = [ast.unparse(x) for x in call.args]
    assert given[:6] == [
        "grid_0",
        "grid_1",
        "grid_2",
        "stream",
        "kernel.function",
        "kernel.packed_metadata",
    ]
    assert given[6] == "launch_metadata"
    assert given[-1] == "*bound_args.values()"
    assert len(given) == 10
    assert isinstance(CompiledKernel.run, property)
    assert hasattr(triton, "JITFunction")


class Compiled:
    """What a launch returns, and what it is then launched with."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, launches):
        self.run = lambda *given: launches.append(given)


class Parameter:
    def __init__(self, name, is_constexpr):
        self.name, self.is_constexpr = name, is_constexpr


class Kernel:
    """A kernel (x_ptr, size, BLOCK: constexpr) that says what it was launched with."""

    def __init__(self):
        self.params = [
            Parameter("x_ptr", False),
            Parameter("size", False),
            Parameter("BLOCK", True),
        ]
        self.asked, self.direct = [], []

    def __getitem__(self, grid):
        def launch(*arguments, **named):
            self.asked.append((grid, arguments, named))
            return Compiled(self.direct)

        return launch


class OnDevice(torch.Tensor):
    is_cuda = True


@pytest.fixture
def launched(monkeypatch):
    """A kernel, and the block's launcher of it, on a device that is none."""
    names = {"torch": torch, "triton": triton, "functools": __import__("functools")}
    exec(BLOCK, names)
    monkeypatch.setattr(torch, "Tensor", OnDevice)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(OnDevice, "get_device", lambda _: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 7, raising=False)
    kernel = Kernel()
    launcher = names["DirectLaunch"](kernel)
    launcher.direct = True
    return kernel, launcher


def placed(count, offset=0):
    return torch.empty(count + offset)[offset:].as_subclass(OnDevice)


def test_the_second_launch_of_a_form_goes_past_triton(launched):
    kernel, launcher = launched
    x = placed(64)
    for _ in range(3):
        launcher[(4,)](x, 64, BLOCK=16, num_warps=4)
    assert len(kernel.asked) == 1
    assert kernel.direct == [(4, 1, 1, 7, "function", "metadata", None, None, None, x, 64, 16)] * 2


OTHERS = {
    "a size": lambda x: ((x, 65), {"BLOCK": 16}),
    "a constant": lambda x: ((x, 64), {"BLOCK": 32}),
    "an option": lambda x: ((x, 64), {"BLOCK": 16, "num_warps": 8}),
    "an alignment": lambda x: ((placed(64, 1), 64), {"BLOCK": 16}),
    "a dtype": lambda x: ((x.half().as_subclass(OnDevice), 64), {"BLOCK": 16}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_triton_would_compile_anew_is_asked_of_it(launched, other):
    kernel, launcher = launched
    x = placed(64)
    launcher[(4,)](x, 64, BLOCK=16)
    arguments, named = OTHERS[other](x)
    launcher[(4,)](*arguments, **named)
    assert len(kernel.asked) == 2
    assert not kernel.direct


def test_nothing_is_kept_of_what_is_not_known(launched):
    kernel, launcher = launched
    for _ in range(2):
        launcher[(4,)](torch.empty(64), 64, BLOCK=16)
        launcher[(4,)](placed(64), BLOCK=16, size=64)
        launcher[lambda meta: (4,)](placed(64), 64, BLOCK=16)
    assert len(kernel.asked) == 6
    assert not kernel.direct


def test_another_device_is_launched_by_triton(launched, monkeypatch):
    kernel, launcher = launched
    x = placed(64)
    launcher[(4,)](x, 64, BLOCK=16)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    launcher[(4,)](x, 64, BLOCK=16)
    assert len(kernel.asked) == 2
    assert not kernel.direct


@pytest.mark.parametrize("constant", [0.5, 16, True])
def test_a_constant_given_by_place_is_left_to_triton(launched, constant):
    """Its value is part of what was compiled, which the form has of whole numbers alone."""
    kernel, launcher = launched
    for _ in range(2):
        launcher[(4,)](placed(64), 64, constant)
    assert len(kernel.asked) == 2
    assert not kernel.direct


WITHOUT = {
    "a value that is looked at": ("        add_kernel[", "        done = add_kernel["),
    "a kernel under a condition": (
        "@triton.jit\ndef add_kernel",
        "if True:\n  pass\n@triton.jit\n@triton.jit\ndef add_kernel",
    ),
    "another triton": ("class ModelNew", "triton = torch\n\n\nclass ModelNew"),
    "no decorator": (
        "@triton.jit\ndef add_kernel",
        "def other(x):\n    return x\n\n\ndef add_kernel",
    ),
}


@pytest.mark.parametrize("change", WITHOUT)
def test_a_text_that_may_tell_the_forms_apart_has_no_such_form(change, sources):
    old, new = WITHOUT[change]
    assert sources.ADD.count(old) == 1
    assert with_direct_launches(sources.ADD.replace(old, new)) is None


def test_a_kernel_without_a_decorator_is_none_of_its_own(sources):
    """triton.jit(helper) makes a kernel of a function that has no decorator."""
    text = sources.ADD.replace(
        "class ModelNew",
        "def helper(x):\n    return x\n\n\nother = triton.jit(helper)\n\n\nclass ModelNew",
    )
    assert with_direct_launches(text) is not None


def test_forms_do_not_pile_up(launched):
    _, launcher = launched
    x = placed(64)
    for size in range(200):
        launcher[(4,)](x, size, BLOCK=16)
    assert len(launcher.forms) <= 64


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_its_launches_are_judged(judged, sources):
    verdict = judged(sources.NORM_PROBLEM, formed(sources.NORM), device="cuda")
    assert verdict.accepted, verdict.failure
    assert verdict.launches == ("norm_kernel",)
