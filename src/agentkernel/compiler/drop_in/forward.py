"""The forward of a drop-in in the making: its lines, its kernels, and where each value lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentkernel.compiler.axes import Store, contiguous_strides
from agentkernel.compiler.drop_in.constructor import ConstructorText
from agentkernel.compiler.drop_in.shared_kernels import renamed, same_but_for_names
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.ir import Node, Shape, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem


@dataclass
class Forward:
    """The forward in the making: lines, and the wrapper's variable for every stored value."""

    loaded: LoadedProblem
    captured: Captured
    constructor: ConstructorText
    names: Names
    arguments: list[str] = field(default_factory=list)
    placeholders: dict[str, str] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    """Placeholder -> the variable of a parameter, buffer or constant."""
    given: dict[str, str] = field(default_factory=dict)
    """Placeholder -> the variable of an input that forward changes, as it was given."""
    buffers: dict[Node, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    codes: list[KernelCode] = field(default_factory=list)
    """Those of the pieces that may be launched again under other names."""
    helpers: set[str] = field(default_factory=set)
    schedule: dict[str, dict[str, int]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    """Lines that the pieces need beside those of every drop-in."""
    written: dict[str, str] = field(default_factory=dict)
    """Source of a part that a model wrote -> the function that it became."""
    splits: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict)
    """Operands that a product has split into planes already -> the variables of those."""
    columns: dict[str, str] = field(default_factory=dict)
    """Columns of a weight -> their variable."""
    symbols: Symbols = field(default_factory=lambda: Symbols({}, {}))
    device: str = ""
    precision: Precision = "strict"

    def shape_text(self, shape: Shape) -> str:
        """A tuple of sizes in the wrapper."""
        sizes = [self.symbols.wrapper(size) for size in shape]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def empty_text(self, node: Node, strides: Shape) -> str:
        """A new buffer for `node` with eager's dtype and these strides."""
        shape = self.shape_text(node.shape)
        tail = f"device={self.device}, dtype={node.dtype}"
        if all(map(same, strides, contiguous_strides(node.shape))):
            return f"torch.empty({shape}, {tail})"
        return f"torch.empty_strided({shape}, {self.shape_text(strides)}, {tail})"

    def allocate(self, store: Store, wanted: str) -> str:
        """Write the line that makes the buffer of `store`, called `wanted` or like it; a scatter's
        holds what it begins with."""
        name, node = self.names.unique(wanted), store.node
        self.buffers[node] = name
        made = self.empty_text(node, store.strides)
        if node.kind == "scatter" and len(node.args) == 2:
            made = made.replace("torch.empty(", "torch.zeros(", 1)
        self.lines.append(f"{name} = {made}")
        if node.kind == "scatter":
            self.lines += [f"{name}.copy_({self.buffers[base]})" for base in node.args[2:]]
        return name

    def write_kernel(
        self, store: Store, schedule: dict[str, int], outputs: Sequence[Output],
        emit: Callable[[str, str], KernelCode],
    ) -> None:  # fmt: skip
        """Make the buffer of the only thing that a step stores, and place the kernel that `emit`
        writes, given the kernel's name and the buffer's."""
        name = self.allocate(store, self.result_name(store.node, outputs))
        kernel = self.names.unique(f"{store.node.name}_kernel")
        self.place(emit(kernel, name))
        self.schedule[kernel] = dict(schedule)

    def result_name(self, node: Node, outputs: Sequence[Output]) -> str:
        """What the result of a step is called: `output` where forward returns nothing else."""
        return "output" if len(outputs) == 1 and outputs[0].node is node else node.name

    def place(self, code: KernelCode) -> None:
        """Write a kernel's text, unless it stands there under another name already, and its
        workspace and launch into forward."""
        known = next((item for item in self.codes if same_but_for_names(item, code)), None)
        if known is None:
            self.codes.append(code)
            self.pieces.append(code.source)
        else:
            code = renamed(code, dict(zip(code.kernels, known.kernels, strict=True)))
        self.kernels += code.kernels
        self.helpers |= code.helpers
        self.lines += code.allocations
        self.lines += [line for text in code.launch for line in text.splitlines()]
