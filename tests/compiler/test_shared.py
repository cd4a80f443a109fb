"""Outputs that lie in the memory of an input or of another output."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.drop_in.views import with_output_views
from agentkernel.compiler.drop_in.wrapper import return_text
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.judge.reference.oracle import together_in
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import assert_accepted, small

Returned = Callable[[torch.Tensor, torch.Tensor], object]
RETURNED: dict[str, Returned] = {
    "input": lambda x, y: (x, y),
    "views": lambda x, y: (x.t(), y, y[:, ::2], y[2], x.transpose(0, 1)[-1]),
    "twice": lambda x, y: (y, y),
    "chain": lambda x, y: (y, y.permute(1, 0)[1:4, 1]),
    "packed": lambda x, y: (x.contiguous(), y),
    "flat": lambda x, y: (y, y.view(-1)),
    "shaped": lambda x, y: (y, y.reshape(-1)),
    "late": lambda x, y: (y[1:], y, y[..., None].expand(-1, -1, 2)),
    "parts": lambda x, y: (y[:2].t(), y[2:]),
    "split": lambda x, y: (*y.split([2, 4]), *y.unbind(1)),
    "heads": lambda x, y: [z.view(z.shape[0], 1, z.shape[1]).mT for z in (y, y[1:])],
    "turned": lambda x, y: y.t(),
    "spread": lambda x, y: y[:, None].expand(6, 3, 5),
    "cut": lambda x, y: y[:, 1:3],
    "copied": lambda x, y: (y[:3].clone(), y[3:]),
    "alone": lambda x, y: x.t(),
    "changed": lambda x, y: (x.add_(1), y),
    "own": lambda x, y: (y, y + 1),
}


class Returns(nn.Module):
    """Returns what a function makes of x and of its tanh."""

    def __init__(self, returned: str) -> None:
        super().__init__()
        self.returned = returned

    def forward(self, x: torch.Tensor) -> object:
        return RETURNED[self.returned](x, torch.tanh(x))


def shared(returned: str) -> Captured:
    loaded = problem_from_module(Returns(returned), (torch.randn(6, 5),))
    return with_output_views(loaded, capture(loaded))


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("input", "(x_given, out)"),
        ("views", "(x_given.t(), out, out[:, ::2], out[2], x_given.transpose(0, 1)[-1])"),
        ("twice", "(out, out)"),
        ("chain", "(out, out.permute(1, 0)[1:4][:, 1])"),
        ("flat", "(out, out.view(-1))"),
        ("late", "(out[1:], out, out.unsqueeze(2).expand(-1, -1, 2))"),
        ("parts", "(out[:2].t(), out[2:])"),
        ("split", "(out[:2], out[2:6], out[:, 0], out[:, 1], out[:, 2], out[:, 3], out[:, 4])"),
        (
            "heads",
            "[out.view(6, 1, 5).transpose(-2, -1), out[1:].view(5, 1, 5).transpose(-2, -1)]",
        ),
    ],
)
def test_an_output_that_is_a_view_is_written_as_one(returned: str, text: str) -> None:
    captured = shared(returned)
    assert len(captured.computed) == 1
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    sizes = {name: str(x.node.hint) for name, x in values.items() if isinstance(x, torch.SymInt)}
    written = return_text(captured, ["out"], {"x": "x_given"}, sizes)
    assert written == f"return {text}"
    x = torch.randn(6, 5)
    found = eval(text, {"x_given": x, "out": torch.tanh(x)})
    wanted = RETURNED[returned](x, torch.tanh(x))
    torch.testing.assert_close(found, wanted)
    assert isinstance(wanted, list | tuple)
    assert [item.stride() for item in found] == [item.stride() for item in wanted]
    assert together_in(found) == together_in(wanted)


class Projected(nn.Module):
    """Returns what a function makes of x W^T."""

    def __init__(self, returned: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.project = nn.Linear(16, 24, dtype=dtype)
        self.returned = returned

    def forward(self, x: torch.Tensor) -> object:
        return PROJECTED[self.returned](self.project(x))


PROJECTED: dict[str, Callable[[torch.Tensor], object]] = {
    "chunks": lambda y: y.chunk(3, -1),
    "heads": lambda y: [
        z.view(z.shape[0], z.shape[1], 2, 4).transpose(1, 2) for z in y.chunk(3, -1)
    ],
    "head": lambda y: torch.relu(y).view(y.shape[0], y.shape[1], 3, 8).transpose(1, 2),
    "last": lambda y: y[:, -1],
    "expanded": lambda y: y[:, :1].expand(-1, 5, -1),
    "stages": lambda y: dict(zip("abc", y.unflatten(-1, (3, 8)).unbind(-2), strict=True)),
}
TEXTS = {
    "chunks": "(output[:, :, :8], output[:, :, 8:16], output[:, :, 16:24])",
    "heads": "[output[:, :, :8].view(x_dim0, x_dim1, 2, 4).transpose(1, 2), ",
    "head": "output.view(x_dim0, x_dim1, 3, 8).transpose(1, 2)",
    "last": "output[:, -1]",
    "expanded": "output[:, :1].expand(-1, 5, -1)",
    "stages": "{'a': output.view(x_dim0, x_dim1, 3, 8)[:, :, 0], ",
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("returned", PROJECTED)
def test_views_of_one_product_cost_one_launch(returned: str) -> None:
    loaded = problem_from_module(Projected(returned).eval(), (torch.randn(3, 6, 16),))
    captured = capture(loaded)
    compiled = partitions(loaded, captured, "triton")[0]
    assert len(compiled.partition.steps) == 1
    text = compiled.write(small(compiled, "looped")).text
    assert f"return {TEXTS[returned]}" in text
    assert_accepted(loaded, captured, text)


@pytest.mark.quick(3)
@pytest.mark.parametrize("returned", PROJECTED)
def test_the_only_view_of_a_value_may_be_changed_in_place(returned: str) -> None:
    """As eager's may: it leaves the function with gradients as no view. Parts of one stay such, as
    eager's do."""
    loaded = problem_from_module(Projected(returned).eval(), (torch.randn(3, 6, 16),))
    compiled = partitions(loaded, capture(loaded), "triton")[0]
    text = compiled.write(small(compiled, "looped")).text
    parts = returned in ("chunks", "heads", "stages")
    assert ("return module.forward(x).data\n" in text) == (not parts)
    assert ("outputs = module.forward(x)\n" in text) == parts


View = Callable[[torch.Tensor, int], torch.Tensor]
VIEWS: dict[str, View] = {
    "transpose": lambda y, at: y.transpose(at % y.ndim, -1),
    "permute": lambda y, at: y.permute(*range(at % y.ndim, y.ndim), *range(at % y.ndim)),
    "select": lambda y, at: y.select(at % y.ndim, 0) if y.ndim > 1 else y,
    "slice": lambda y, at: y.narrow(at % y.ndim, 0, max(1, y.shape[at % y.ndim] - 1)),
    "step": lambda y, at: y[..., ::2],
    "split": lambda y, at: y.split(2, at % y.ndim)[0],
    "unbind": lambda y, at: y.unbind(at % y.ndim)[-1] if y.ndim > 1 else y,
    "chunk": lambda y, at: y.chunk(2, at % y.ndim)[-1],
    "unsqueeze": lambda y, at: y.unsqueeze(at % y.ndim),
    "squeeze": lambda y, at: y[:1].squeeze(0),
    "expand": lambda y, at: y.unsqueeze(0).expand(2, *y.shape),
    "unflatten": lambda y, at: y.unflatten(at % y.ndim, (1, -1)),
    "flatten": lambda y, at: y.flatten(),
    "diagonal": lambda y, at: y.diagonal() if y.ndim > 1 else y,
    "copy": lambda y, at: y.clone(),
}


class Chains(nn.Module):
    """Returns views of views of tanh(x)."""

    def __init__(self, chains: Sequence[Sequence[tuple[str, int]]]) -> None:
        super().__init__()
        self.chains = chains

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return self.views(torch.tanh(x))

    def views(self, y: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for chain in self.chains:
            value = y
            for name, at in chain:
                value = VIEWS[name](value, at)
            found.append(value)
        return found


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    chains=st.lists(
        st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 3)), max_size=4),
        min_size=1, max_size=3,
    )
)  # fmt: skip
def test_any_views_of_views_are_eagers(chains: list[list[tuple[str, int]]]) -> None:
    """The same values, strides and shared memory, whatever is a view and whatever a copy."""
    module, x = Chains(chains), torch.randn(4, 6, 5)
    loaded = problem_from_module(module, (x,))
    captured = with_output_views(loaded, capture(loaded))
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    sizes = {
        name: str(node.meta["val"].node.hint)
        for name, node in nodes.items()
        if isinstance(node.meta.get("val"), torch.SymInt)
    }
    run = torch.fx.Interpreter(captured.graph)
    known: dict[str, torch.Tensor] = {}
    given = iter([x] if captured.user_inputs else [])
    for node in captured.graph.graph.nodes:
        if node.op == "output":
            continue
        run.env[node] = next(given) if node.op == "placeholder" else run.run_node(node)
        known[node.name] = run.env[node]
    outputs = [f"known[{name!r}].clone()" for name in captured.computed]
    lines = [f"made_{at} = {text}" for at, text in enumerate(outputs)]
    names = [f"made_{at}" for at in range(len(outputs))]
    space: dict[str, object] = {"known": known}
    exec("\n".join(lines), space)
    found = eval(return_text(captured, names, {"x": "x"}, sizes).removeprefix("return "), space)
    wanted = module.views(torch.tanh(x))
    torch.testing.assert_close(found, wanted)
    ours, theirs = together_in(found), together_in(wanted)
    assert all(ours[at] == at or theirs[at] == theirs[ours[at]] for at in range(len(ours)))
    if not any(name == "flatten" for chain in chains for name, _ in chain):
        assert ours == theirs  # what flattens may copy where the inputs lie otherwise
    for place in captured.views:
        assert found[place].stride() == wanted[place].stride()


def test_an_attention_of_which_another_value_is_returned_keeps_its_layout() -> None:
    """Eager's strides are those of the kernel that it picks: what follows it stays an output."""

    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return y.transpose(1, 2)

    loaded = problem_from_module(Attends(), (torch.randn(2, 3, 4, 8),))
    assert with_output_views(loaded, capture(loaded)).views == {}


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "returned", ["packed", "shaped", "alone", "changed", "own", "cut", "copied"]
)
def test_an_output_that_is_a_copy_for_some_inputs_stays_one_of_its_own(returned: str) -> None:
    captured = shared(returned)
    assert captured.views == {}
    assert captured.computed == tuple(name for name in captured.outputs if name is not None)


def test_gradients_are_of_every_output() -> None:
    captured = shared("input")
    assert return_text(captured, ["first", "second"]) == "return (first, second)"
