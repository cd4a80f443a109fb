"""What forward reads beside its inputs: tensors of the module, read once and checked, and autocast.

Parameters and buffers are the user's: they are cast, tied, loaded and laid out anew after the
drop-in was made. Another layout is copied, another dtype or shape is refused. A tensor's attributes
take 50 to 100 ns each, reading it of its module 500 ns and more: forward does that once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from agentkernel.compiler.drop_in.envelope import refusal
from agentkernel.compiler.emit import Names
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.specialise import UnknownSize, specialise

OWN_WORDS = {"math", "outputs", "self", "tensor", "tensors", "tl", "torch", "triton"}
"""What forward's other lines say."""
AUTOCAST = (
    "under torch.autocast the original has other dtypes than this drop-in: call it outside of "
    "autocast, or use the original module"
)
LOW_PRECISION = (torch.float16, torch.bfloat16)
"""What autocast computes in."""


@dataclass(frozen=True)
class StateText:
    """`names`: placeholder of a parameter, buffer or constant -> its variable in forward. `lines`
    come after those that check the inputs."""

    names: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


def state_text(
    captured: Captured,
    names: Names,
    arguments: Mapping[str, str],
    expressions: Mapping[str, str],
    constant: str,
) -> StateText:
    """The lines that read the module's tensors and refuse what was not verified.

    `arguments` and `expressions` name inputs by their placeholders, the module's tensors by their
    paths; `constant` is what the file calls the text that ends every refusal.
    """
    names.taken |= OWN_WORDS
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    paths = _paths(captured)
    last = [path.rpartition(".")[2] for path in paths.values()]
    found: dict[str, str] = {}
    reads: list[str] = []
    checks: list[str] = []
    for placeholder, path in paths.items():
        short = path.rpartition(".")[2]
        wanted = short if last.count(short) == 1 else path.replace(".", "_")
        name = found[placeholder] = names.unique(wanted)
        reads.append(f"{name} = {expressions.get(path, f'self.{path}')}")
        checks += _checks(name, path, values[placeholder], constant)
    given = [arguments[x] for x in arguments if isinstance(values[x], torch.Tensor)]
    asked = [*given, *found.values()][:1]
    if asked and autocast_changes(captured):
        checks += [
            f'if torch.is_autocast_enabled("cuda" if {asked[0]}.is_cuda else "cpu"):',
            "    raise ValueError(",
            *(f'        "{line}"' for line in _halves(AUTOCAST)),
            "    )",
        ]
    return StateText(found, (*reads, *checks))


def _paths(captured: Captured) -> dict[str, str]:
    """Placeholder -> path of what of the module the graph reads."""
    paths = {**captured.constants, **captured.parameters}
    return {
        node.name: paths[node.name]
        for node in captured.graph.graph.nodes
        if node.name in paths
        and node.users
        and paths[node.name] not in captured.literals
        and isinstance(node.meta.get("val"), torch.Tensor)
    }


def _checks(name: str, path: str, value: torch.Tensor, constant: str) -> list[str]:
    shape = tuple(value.shape)
    form = f"{str(value.dtype).removeprefix('torch.')}{list(shape)}"
    told = f"{path} is no longer {form}"
    return refusal([f"{name}.dtype != {value.dtype}", f"{name}.shape != {shape}"], told, constant)


def _halves(text: str) -> tuple[str, str]:
    first, colon, rest = text.partition(": ")
    return f"{first}{colon}", rest


_AUTOCAST: WeakKeyDictionary[torch.fx.GraphModule, bool] = WeakKeyDictionary()


def autocast_changes(captured: Captured) -> bool:
    """Whether a result of the graph has another dtype where `torch.autocast("cuda")` is on."""
    if captured.graph not in _AUTOCAST:
        _AUTOCAST[captured.graph] = _autocast_changes(captured)
    return _AUTOCAST[captured.graph]


def _autocast_changes(captured: Captured) -> bool:
    parts = [item for item in captured.graph.modules() if isinstance(item, torch.fx.GraphModule)]
    if not any(map(_is_cast, (node for part in parts for node in part.graph.nodes))):
        return False
    try:
        fixed = specialise(captured)
    except UnknownSize:
        return True
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    try:
        torch.set_autocast_enabled("cuda", True)
        return len(parts) > 1 or any(
            _changes(node, dtype) for node in fixed.graph.graph.nodes if _is_cast(node)
            for dtype in LOW_PRECISION
        )  # fmt: skip
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def _is_cast(node: torch.fx.Node) -> bool:
    """Whether autocast has a rule for what this node calls."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name: str = node.target.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")


def _changes(node: torch.fx.Node, dtype: torch.dtype) -> bool:
    """Call the node's operator on tensors of a GPU without storage."""
    torch.set_autocast_dtype("cuda", dtype)
    with FakeTensorMode():
        args, kwargs = tree_map(_on_gpu, (node.args, node.kwargs))
        try:
            found = node.target(*args, **kwargs)  # type: ignore[operator]
        except (RuntimeError, TypeError, NotImplementedError):
            return True
    pairs = zip(tree_leaves(found), tree_leaves(node.meta["val"]), strict=True)
    return any(new.dtype != old.dtype for new, old in pairs if isinstance(new, torch.Tensor))


def _on_gpu(item: object) -> object:
    value = item.meta.get("val") if isinstance(item, torch.fx.Node) else item
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
    return torch.device("cuda") if isinstance(value, torch.device) else value
