from pathlib import Path
from textwrap import dedent

import pytest

from agentkernel.domain.knowledge import Structure
from agentkernel.knowledge.code_structure import MOST_OPS, module_class, parsed, structure_of_code
from agentkernel.knowledge.code_values import inputs_of

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
"""


def read(body: str, entry_point: str | None = None) -> Structure:
    found = structure_of_code(HEAD + dedent(body), entry_point)
    assert found is not None
    return found


def forward(*lines: str) -> tuple[str, ...]:
    """The ops of a module without parts that runs `lines`."""
    body = "\n        ".join(lines)
    return read(f"class Model(nn.Module):\n    def forward(self, x, y):\n        {body}\n").ops


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("return F.softmax(x @ y, dim=-1)",), ("matmul", "softmax")),
        (("x = x + y", "x *= 2", "return -x"), ("add", "mul", "neg")),
        (("return x.view(x.size(0) * 2, -1).permute(1, 0)",), ("transpose",)),
        (("return torch.max(x, y) + torch.max(x, 1)[0]",), ("maximum", "max", "add")),
        (("n = x.shape[-1] ** 0.5", "return x / n"), ("div",)),
        (("return (x > 0) & (y != 1)",), ("compare", "compare", "logical")),
        (("if y is None:", "    return x.exp()", "return x.log()"), ("log",)),
        (("if x.dim() > 4:", "    raise ValueError", "return x.exp()"), ("exp",)),
        (("for _ in range(9):", "    x = x.sin()", "return x"), ("sin",)),
        (("for part in (x, y):", "    x = part.sin()", "return x"), ("sin", "sin")),
        (("a, b = x.chunk(2, dim=-1)", "return F.silu(a) * b"), ("silu", "mul")),
        (("return sum([x, y])",), ("add",)),
        (("return torch.cat([x, y], 1) if self.training else x.abs()",), ("abs",)),
        (("with torch.no_grad():", "    y = x.T", "return y"), ("transpose",)),
        (("f = lambda t: t.tanh()", "return f(x)"), ("tanh",)),
        (("return [t.exp() for t in (x, y)]",), ("exp", "exp")),
        (("return F.normalize(x)",), ("norm", "clamp", "div")),
        (("return x[y.argmax(dim=1)]",), ("argmax", "gather")),
        (("return torch.einsum('bqhd,bkhd->bhqk', x, y) * 2",), ("matmul", "mul")),
        (("return torch.diag(x) @ y",), ("diag", "mul")),
        (("return torch.mm(x, torch.diag(y))",), ("diag", "mul")),
        (("return torch.mm(x, y)",), ("matmul",)),
    ],
)
def test_ops_of_a_forward(lines: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert forward(*lines) == expected


@pytest.mark.parametrize(
    ("made", "called", "ops"),
    [
        ("nn.Linear(4, 4).half()", "F.gelu(self.part(x))", ("linear", "gelu")),
        ("nn.BatchNorm2d(4).eval()", "self.part(x)", ("batch_norm",)),
        ("nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda()", "self.part(x)", ("linear", "relu")),
        ("Inner().to(torch.half)", "self.part(x)", ("exp",)),
    ],
)
def test_a_part_that_is_moved_where_it_is_made_stays(
    made: str, called: str, ops: tuple[str, ...]
) -> None:
    inner = "class Inner(nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
    body = f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = {made}

    def forward(self, x):
        return {called}
"""
    assert read(inner + body).ops == ops


@pytest.mark.parametrize(
    ("line", "reduction"),
    [
        ("return torch.sum(x, dim=self.dim, keepdim=True)", "column"),
        ("return x.sum(self.dim)", "column"),
        ("return x.mean(self.both)", "spatial"),
        ("return x.sum(dim=self.unknown)", "whole"),
        ("return F.layer_norm(x, (4,))", "row"),
        ("return nn.Softmax2d()(x)", "column"),
        ("return torch.outer(x, x)", "none"),
    ],
)
def test_what_is_reduced_may_stand_in_an_attribute(line: str, reduction: str) -> None:
    found = read(f"""
        class Model(nn.Module):
            def __init__(self, dim, unknown):
                super().__init__()
                self.dim = dim
                self.both = (-2, -1)
                self.unknown = unknown

            def forward(self, x):
                {line}

        def get_inputs():
            return [torch.rand(2, 3, 4, 5)]

        def get_init_inputs():
            return [1]
    """)
    assert found.reduction == reduction


def test_parts_of_the_file_are_read_in_place() -> None:
    found = read(
        """
        def conv(width):
            return nn.Conv2d(width, width, 3)

        class Block(nn.Module):
            def __init__(self, width, act=nn.ReLU, skip=True):
                super().__init__()
                self.body = nn.Sequential(conv(width), nn.BatchNorm2d(width))
                self.act = act()
                self.skip = skip
            def forward(self, x):
                out = self.body(x)
                if self.skip:
                    out = out + x
                return self.act(out)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = Block(4)
                self.second = Block(4, act=nn.GELU, skip=False)
                layers = [nn.Linear(4, 4)]
                layers.append(nn.Tanh())
                layers += [nn.Dropout(0.1), nn.LayerNorm(4)]
                self.head = nn.Sequential(*layers)
            def forward(self, x):
                return self.head(self._between(self.first(x)))
            def _between(self, x):
                return self.second(x).mean(dim=(2, 3))
        """
    )
    block = ("conv2d", "batch_norm", "add", "relu", "conv2d", "batch_norm", "gelu")
    assert found.ops == (*block, "mean", "linear", "tanh", "layer_norm")
    assert found.reduction == "contraction"


def test_a_list_of_modules_is_walked() -> None:
    body = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleList([nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)])
                self.many = nn.ModuleList([nn.LayerNorm(2) for _ in range(12)])
            def forward(self, x):
                for part in self.parts:
                    x = part(x)
                for index, part in enumerate(self.many):
                    x = part(x)
                return x
        """
    assert read(body).ops == ("linear", "relu", "linear", "layer_norm")


def test_the_constructors_arguments_come_from_the_file() -> None:
    body = """
        class Loss(nn.Module):
            def __init__(self, reduction, squared=False):
                super().__init__()
                self.reduction = reduction
                self.squared = squared
            def forward(self, x):
                if self.squared:
                    x = x * x
                if self.reduction == 'mean':
                    return x.mean()
                return x.sum()

        def get_init_inputs():
            return {}
        """
    assert read(body.format("[[], {'reduction': 'sum', 'squared': True}]")).ops == ("mul", "sum")
    assert read(body.format("['mean']")).ops == ("mean",)


def test_which_class_is_read() -> None:
    body = """
        class Part(nn.Module):
            def forward(self, x):
                return x.exp()
        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Part()
            def forward(self, x):
                return self.part(x).sin()
        class Config:
            pass
        """
    assert read(body).ops == ("exp", "sin")
    assert read(body, "Part").ops == ("exp",)
    assert read(body, "Absent").ops == ("exp", "sin")
    node = module_class(HEAD + dedent(body))
    assert node is not None
    assert node.name == "Whole"


@pytest.mark.parametrize(
    ("inputs", "rank", "dtypes"),
    [
        ("[torch.rand([4, 4, 4, 4])]", 4, ("float32",)),
        ("[torch.randn(8, 16).half().cuda()]", 2, ("float16",)),
        ("[torch.randint(0, 9, (4, 2)), torch.rand(4)]", 2, ("float32", "int64")),
        ("[torch.zeros(4, 2, dtype=torch.bool), torch.rand(4)]", 2, ("float32", "bool")),
        ("[torch.zeros((2, 3, 4), dtype=torch.bfloat16)]", 3, ("bfloat16",)),
        ("[2 * torch.rand(5, 5) - 1]", 2, ("float32",)),
        ("[BATCH]", None, ()),
        ("[torch.randn(BATCH, 4)]", 2, ("float32",)),
        ("[X]", 3, ("float32",)),
        ("open('/etc/passwd')", None, ()),
    ],
)
def test_inputs(inputs: str, rank: int | None, dtypes: tuple[str, ...]) -> None:
    tree = parsed(
        "import torch\nBATCH = 4\nX = torch.rand(1, 2, 3)\n"
        f"def get_inputs():\n    return {inputs}\n"
    )
    assert tree is not None
    found = inputs_of(tree)
    assert (found.rank, found.dtypes) == (rank, dtypes)


NO_FORWARD = "import torch\nclass Model(torch.nn.Module):\n    def build(self): ...\n"


@pytest.mark.parametrize(
    "source", ["def f(:", "", "x = 1", "class A:\n    pass\n", "\0", "(" * 5000, NO_FORWARD]
)
def test_what_is_no_module_has_no_structure(source: str) -> None:
    assert structure_of_code(source) is None


@pytest.mark.parametrize(
    "body",
    [
        "class Model(Model):\n    def forward(self, x):\n        return super().forward(x)\n",
        "class A(B):\n    pass\nclass B(A):\n    def forward(self, x):\n"
        "        return self.forward(x).exp()\n",
        "def f(x):\n    return f(f(x)) + f(x)\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return f(x)\n",
        "class Model(nn.Module):\n    def __init__(self):\n        self.part = Model()\n"
        "    def forward(self, x):\n        return self.part(x)\n",
        "class Model(nn.Module):\n    def forward(self, x):\n        return "
        + "+".join(["x"] * 900),
        "class Model(nn.Module):\n    def forward(self, x):\n        a = [x]\n"
        + "        a += a\n" * 40
        + "        return a\n",
    ],
)
def test_a_source_that_turns_in_circles_ends(body: str) -> None:
    found = structure_of_code(HEAD + body)
    assert found is not None
    assert len(found.ops) <= MOST_OPS


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = f"open({str(mark)!r}, 'w')\n"
    model = "class Model(nn.Module):\n    def forward(self, x):\n"
    found = structure_of_code(f"{trap}{HEAD}{model}        {trap}        return x.exp()\n")
    assert found is not None
    assert found.ops == ("exp",)
    assert not mark.exists()
