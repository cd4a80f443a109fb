"""Dataclasses and named tuples that a forward returns: captured, compared, written down."""

import dataclasses
import sys
import types
from itertools import repeat
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_flatten

from agentkernel.api import _return_own
from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.compiler.drop_in.interface import returned_classes, returned_paths, returned_text
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, problem_from_module
from agentkernel.tools.problem.structures import leaves_of, register_dataclasses, tree_text
from tests.compiler.forms import accepted_text

HEAD = """import collections
import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

SCALE = 2
Called = collections.namedtuple("Called", "a b")


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True)
class Out:
    hidden: torch.Tensor
    score: torch.Tensor | None = None
    scale: int = SCALE

    def last(self):
        return self.hidden[-1]


@dataclass
class Derived:
    hidden: torch.Tensor
    twice: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.twice = 2 * self.hidden


def local(y):
    @dataclass
    class Local:
        y: torch.Tensor

    return Local(y)
"""
MODEL = """

class Model(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return {returned}


def get_inputs():
    return [torch.randn(6, 5)]


def get_init_inputs():
    return []
"""


def problem(tmp_path: Path, returned: str) -> tuple[LoadedProblem, Captured]:
    path = tmp_path / "problem.py"
    path.write_text(HEAD + MODEL.format(returned=returned))
    loaded = load_problem(str(path))
    return loaded, capture(loaded)


@pytest.mark.parametrize(
    ("returned", "text", "paths", "names"),
    [
        ("Out(y)", "Out(hidden=_, scale=_, score=None)", [".hidden", ".scale"], ["Out"]),
        ("Pair(y, x + 1)", "Pair(_, _)", ["[0]", "[1]"], ["Pair"]),
        ("{'r': [Out(y, x * 2), (y + 1,)]}", "{'r': [Out(hidden=_, score=_, scale=_), (_,)]}",
            ["['r'][0].hidden", "['r'][0].score", "['r'][0].scale", "['r'][1][0]"], ["Out"]),
        ("y, torch.Size((3, x.shape[1]))", "(_, torch.Size([_, _]))", ["[0]", "[1][0]", "[1][1]"],
            []),
        ("y.max(1)", "torch.return_types.max((_, _))", ["[0]", "[1]"], []),
    ],
)  # fmt: skip
def test_outputs_are_written_in_the_classes_that_they_lie_in(
    tmp_path: Path, returned: str, text: str, paths: list[str], names: list[str]
) -> None:
    _, captured = problem(tmp_path, returned)
    tree = captured.output_tree
    assert returned_text(tree, repeat("_")) == text
    assert list(returned_paths(tree)) == paths
    assert [item.__name__ for item in returned_classes(tree)] == names


@pytest.mark.slow
def test_the_named_results_of_torch_are_made_again(tmp_path: Path) -> None:
    loaded, _ = problem(tmp_path, "y.max(1), (y + 1).min(1, keepdim=True)")
    accepted_text(loaded)


def test_a_returned_class_comes_along_whole(tmp_path: Path) -> None:
    loaded, captured = problem(tmp_path, "Out(y)")
    made = emit_constructor(loaded, returned_classes(captured.output_tree))
    assert isinstance(made, ConstructorText)
    assert made.copies == ("Out",)
    namespace: dict[str, object] = {}
    exec(made.text, namespace)
    copied = namespace["Out"]
    assert [item.name for item in dataclasses.fields(copied)] == ["hidden", "score", "scale"]  # type: ignore[arg-type]
    assert copied(torch.arange(3)).last() == 2  # type: ignore[operator]


def test_a_live_module_takes_its_returned_class_along(tmp_path: Path) -> None:
    loaded, _ = problem(tmp_path, "Out(y)")
    live = problem_from_module(loaded.build(seed=0), (torch.randn(6, 5),))
    live = dataclasses.replace(live, problem=live.problem.evolve(source=loaded.problem.source))
    made = emit_constructor(live, returned_classes(capture(live).output_tree))
    assert isinstance(made, ConstructorText)
    namespace = types.ModuleType("drop_in")
    exec(made.text, namespace.__dict__)
    own = sys.modules[loaded.module_class.__module__]
    assert namespace.Out is not own.Out
    _return_own(namespace, loaded.build(seed=0))
    assert namespace.Out is own.Out, "what optimize() gives returns the user's own class"


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("local(y)", r"an object of local\.<locals>\.Local, and no class statement"),
        ("Called(y, y)", "an object of Called, and no class statement"),
        ("collections.OrderedDict(a=y)", r"an object of collections\.OrderedDict, which a drop-in"),
    ],
)
def test_a_class_that_a_drop_in_cannot_make_is_named(
    tmp_path: Path, returned: str, said: str
) -> None:
    with pytest.raises(UnsupportedOp, match=said):
        partitions(*problem(tmp_path, returned), "mixed")


@pytest.mark.parametrize("returned", ["Derived(y)", "slice(y)"])
def test_an_output_that_holds_more_than_fields_is_refused(tmp_path: Path, returned: str) -> None:
    kind = returned.partition("(")[0]
    with pytest.raises(ProblemError, match=rf"returns an object of .*{kind}\. Expected .*Next: "):
        problem(tmp_path, returned)


def test_a_copied_class_reads_as_the_original() -> None:
    def made(module: str) -> tuple[object, object]:
        space: dict[str, object] = {"__name__": module}
        exec(HEAD, space)
        sys.modules.pop(module, None)
        return space["Pair"](1, 2), space["Out"](1)  # type: ignore[operator]

    texts = []
    for module in ("one_file", "other.file"):
        for value in made(module):
            register_dataclasses(value)
            texts.append(tree_text(tree_flatten(value)[1]))
    assert texts[:2] == texts[2:]
    assert leaves_of([made("third_file")[1]]) == [1, 2]
