"""Does the same module become a problem of other sizes, or say why it cannot?"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentkernel.agents.compiler_coder import family
from agentkernel.chat.problem_sizes import checked, fitted, reshaped, restored, retyped
from agentkernel.chat.requests import SetShapes, Size
from agentkernel.compiler.partitions import partitions
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target
from tests.compiler.sandboxed_drop_in import sandboxed

EXAMPLES = Path(__file__).parents[2] / "examples"
CONSTANTS = """import torch
from torch import nn

batch_size = 16
dim = 32


class Model(nn.Module):
    def __init__(self, dim):
        super(Model, self).__init__()
        self.fc = nn.Linear(dim, 8)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return [dim]
"""


def sized(path: Path, folder: Path, wanted: SetShapes) -> tuple[tuple[int, ...], str]:
    problem = load_problem(str(path)).problem
    derived = reshaped(problem, wanted, folder, "p1")
    found = fitted(derived.problem, problem, folder, "p1")
    assert Path(found.problem.path).read_text() == found.problem.source
    loaded = restored(found.problem)
    (x,) = loaded.make_inputs(0, seed=0)
    assert isinstance(x, torch.Tensor)
    shape = found.problem.shape_sets[0].tensors[0].shape
    assert tuple(x.shape) == shape
    loaded.build(seed=0)(x)
    return shape, f"{derived.text}; {found.text}"


def by_name(**sizes: int) -> SetShapes:
    return SetShapes(sizes=tuple(Size(name=name, value=value) for name, value in sizes.items()))


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    path = tmp_path / "linear.py"
    path.write_text(CONSTANTS)
    return path


def test_a_constant_of_the_name_is_set_anew(linear: Path, tmp_path: Path) -> None:
    shape, text = sized(linear, tmp_path, by_name(batch=4))
    assert shape == (4, 32)
    assert "batch_size 16 -> 4" in text
    assert sized(linear, tmp_path, by_name(dim=64))[0] == (16, 64)


def test_without_one_the_dimension_is_found(tmp_path: Path) -> None:
    example = tmp_path / "layernorm.py"
    example.write_text((EXAMPLES / "layernorm.py").read_text().replace("8192", "64"))
    assert sized(example, tmp_path, by_name(batch=16))[0] == (16, 64)


def test_the_constructor_follows_the_inputs(tmp_path: Path) -> None:
    example = tmp_path / "layernorm.py"
    text = (EXAMPLES / "layernorm.py").read_text()
    example.write_text(text.replace("8192, 8192", "32, 64").replace("[8192]", "[64]"))
    shape, said = sized(example, tmp_path, SetShapes(shapes=((8, 16),)))
    assert shape == (8, 16)
    assert "in the constructor" in said
    assert "64 -> 16" in said


def test_what_the_module_refuses_is_said(linear: Path, tmp_path: Path) -> None:
    problem = load_problem(str(linear)).problem
    derived = reshaped(problem, SetShapes(shapes=((4, 4, 5),)), tmp_path, "p1")
    with pytest.raises(ProblemError, match="does not take x float32") as caught:
        fitted(derived.problem, problem, tmp_path, "p1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (by_name(heads=4), "Which dimension is 'heads'"),
        (SetShapes(shapes=((2, 2), (2, 2))), "takes 1 tensors"),
    ],
)
def test_what_is_not_known_is_asked(
    wanted: SetShapes, said: str, linear: Path, tmp_path: Path
) -> None:
    with pytest.raises(ProblemError, match=said):
        reshaped(load_problem(str(linear)).problem, wanted, tmp_path, "p1")


@pytest.mark.parametrize("twice", [False, True])
def test_another_dtype_is_the_parameters_too(linear: Path, tmp_path: Path, twice: bool) -> None:
    problem = load_problem(str(linear)).problem
    if twice:
        problem = retyped(problem, "float16", tmp_path, "p1").problem
    found = checked(retyped(problem, "bfloat16", tmp_path, "p2").problem).problem
    loaded = restored(found)
    (x,) = loaded.make_inputs(0, seed=0)
    assert isinstance(x, torch.Tensor)
    assert x.dtype == torch.bfloat16
    assert loaded.build(seed=0)(x).dtype == torch.bfloat16
    with pytest.raises(ProblemError, match="are bfloat16 already"):
        retyped(found, "bfloat16", tmp_path, "p3")
    with pytest.raises(ProblemError, match="another computation"):
        retyped(found, "int8", tmp_path, "p3")


def test_a_class_with_its_inputs(linear: Path, tmp_path: Path) -> None:
    problem = load_problem(f"{linear}:Model", ("x=f32[16,32]",), "32").problem
    derived = reshaped(problem, by_name(rows=4), tmp_path, "p1")
    assert checked(derived.problem).problem.shape_sets[0].label == "x float32[4, 32]"


CONSTRUCTORS = {
    "two statements a line": (
        "def __init__(self):\n        super().__init__(); self.fc = nn.Linear(8, 8)"
    ),
    "all in a line": "def __init__(self): super().__init__(); self.fc = nn.Linear(8, 8)  # so",
    "over two lines": "def __init__(\n        self): super().__init__(); self.fc = nn.Linear(8, 8)",
    "tabs": "def __init__(self):\n\t\tsuper().__init__()\n\t\tself.fc = nn.Linear(8, 8)",
    "a last branch": (
        "def __init__(self, wide=True):\n        super().__init__()\n"
        "        self.fc = nn.Linear(8, 8)\n        if wide:\n            self.float()"
    ),
    "an attribute of the name": (
        "def __init__(self):\n        super().__init__()\n        self.half = 4\n"
        "        self.fc = nn.Linear(8, 8)"
    ),
    "another name for self": (
        "def __init__(this):\n        super().__init__()\n        this.fc = nn.Linear(8, 8)"
    ),
    "super by name, a return inside": (
        "def __init__(self):\n        super(Model, self).__init__()\n        def width():\n"
        "            return 8\n        self.fc = nn.Linear(width(), 8)"
    ),
    "an early return": (
        "def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 8)\n"
        "        if self.fc.bias is not None:\n            return\n        self.fc = None"
    ),
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("form", sorted(CONSTRUCTORS))
def test_every_form_of_a_constructor_is_cast(form: str, ends: str, tmp_path: Path) -> None:
    source = NO_CONSTRUCTOR.replace(
        "    def forward", f"    {CONSTRUCTORS[form]}\n\n    def forward"
    ).replace("torch.sigmoid(x)", "self.fc(x)")
    if form == "tabs":
        source = source.replace("        return torch", "\t\treturn torch").replace(
            "    def", "\tdef"
        )
        source = source.replace("        return self", "\t\treturn self")
    file = tmp_path / "forms.py"
    file.write_bytes(source.replace("\n", ends).encode())
    found = retyped(load_problem(str(file)).problem, "float16", tmp_path, "p1")
    loaded = restored(checked(found.problem).problem)
    (x,) = loaded.make_inputs(0, seed=0)
    assert loaded.build(seed=0)(x).dtype == torch.float16


def test_a_module_whose_base_class_has_the_constructor_is_cast(tmp_path: Path) -> None:
    source = NO_CONSTRUCTOR.replace(
        "class Model(nn.Module):",
        "class Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(8, 8)\n\n"
        "    def forward(self, x):\n        return self.fc(x)\n"
        "\n\nclass Model(Base):",
    ).replace("torch.sigmoid(x) * x", "super(Model, self).forward(x)")
    file = tmp_path / "based.py"
    file.write_text(source, encoding="utf-8")
    found = retyped(load_problem(str(file)).problem, "float16", tmp_path, "p1")
    loaded = restored(checked(found.problem).problem)
    (x,) = loaded.make_inputs(0, seed=0)
    assert loaded.build(seed=0)(x).dtype == torch.float16


NO_CONSTRUCTOR = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
PARAMETER = NO_CONSTRUCTOR.replace(
    "    def forward",
    """    def __init__(self, width=8):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward""",
)


@pytest.mark.parametrize("source", [NO_CONSTRUCTOR, PARAMETER], ids=["none", "own"])
def test_the_compilers_draft_of_another_dtype_is_one_that_the_judge_admits(
    source: str, tmp_path: Path
) -> None:
    """Its constructor is the module's own with the cast in it, and no function that it calls."""
    file = tmp_path / "gate.py"
    file.write_text(source, encoding="utf-8")
    loaded = restored(
        checked(retyped(load_problem(str(file)).problem, "float16", tmp_path, "p1").problem).problem
    )
    drafts = family(
        partitions(loaded, capture(loaded), "mixed"), "default", lambda _: None,
        find_target("h100").target,
    )  # fmt: skip
    text = drafts[0].source.text
    assert not check_policy(text, "mixed")
    with sandboxed() as sandbox:
        x = torch.randn(4, 8, dtype=torch.float16)
        sandbox.check(text, loaded.build(seed=0), [x])
