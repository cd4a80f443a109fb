"""How do TorchInductor's steps become the lines of a forward, and which kernels do they launch?"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkernel.compiler.emit import Names, identifier
from agentkernel.compiler.layout_text import forward_lines
from agentkernel.compiler.lift.grid import launch_grid
from agentkernel.compiler.lift.kernel_text import KernelForm, kernel_form, kernel_text
from agentkernel.compiler.lift.library_calls import library_call
from agentkernel.compiler.lift.options import LaunchOption
from agentkernel.compiler.lift.steps import (
    Allocate,
    Free,
    Launch,
    LibraryCallStep,
    Rename,
    RequireLayout,
    Step,
    Unliftable,
    Wrapper,
    number,
)
from agentkernel.compiler.lift.tensors import ForwardTensor, allocation, view_of, with_strides
from agentkernel.compiler.lift.titles import buffer_title, kernel_comment, kernel_title


@dataclass
class Forward:
    """The forward in the making: `values` maps the wrapper's names to what they are here."""

    wrapper: Wrapper
    options: Mapping[str, LaunchOption]
    names: Names
    device: str
    values: dict[str, ForwardTensor] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)
    """The wrapper's name of a result -> what it shall be called."""
    lines: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    schedule: dict[str, dict[str, int]] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    libdevice: bool = False
    asserting: set[str] = field(default_factory=set)
    """Kernels that raise for an index out of bounds."""
    results: set[str] = field(default_factory=set)
    """Names of what library calls gave."""
    parts: set[str] = field(default_factory=set)
    """Names whose first part is what they stand for."""
    written: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Write every step but the return."""
        self._name_buffers()
        steps = list(self.wrapper.steps)
        for place, step in enumerate(steps):
            self._step(step, steps[place + 1 :])

    def text(self, node: ast.expr) -> str:
        """An argument of the wrapper's as Python."""
        if isinstance(node, ast.Name):
            return self.stored(node).text
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
            return self.stored(node).text
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if names - {"torch", "float", "math"}:
            raise Unliftable(f"the wrapper passes {ast.unparse(node)[:80]}")
        return ast.unparse(node)

    def stored(self, node: ast.expr) -> ForwardTensor:
        """The tensor that an expression of the wrapper's stands for."""
        if isinstance(node, ast.Name):
            if node.id not in self.values:
                raise Unliftable(f"the wrapper reads {node.id}, which nothing wrote")
            return self.values[node.id]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
            return view_of(self.stored(node.args[0]), node)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in self.parts:
            if ast.unparse(node.slice) == "0":
                return self.stored(node.value)
            raise Unliftable("more than the first result of a library operator is used")
        raise Unliftable(f"the wrapper makes {ast.unparse(node)[:80]}")

    def _name_buffers(self) -> None:
        """Buffers are called after the first kernel or library call that fills them."""
        for step in self.wrapper.steps:
            if isinstance(step, Launch):
                option = self._option(step)
                for parameter, argument in zip(
                    kernel_form(option.kernel).pointers, step.args, strict=False
                ):
                    if parameter.startswith(("out_ptr", "in_out_ptr")):
                        word = buffer_title(option.kernel)
                        self.written.setdefault(ast.unparse(argument), word)

    def _option(self, step: Launch) -> LaunchOption:
        if step.kernel not in self.options:
            raise Unliftable(f"the wrapper launches {step.kernel}, which is no kernel of its own")
        return self.options[step.kernel]

    def _step(self, step: Step, rest: list[Step]) -> None:
        if isinstance(step, Allocate):
            self._allocate(step, rest)
        elif isinstance(step, Launch):
            self._launch(step)
        elif isinstance(step, LibraryCallStep):
            self._call(step)
        elif isinstance(step, RequireLayout):
            self._form(step)
        elif isinstance(step, Rename):
            self.values[step.name] = self.stored(step.value)
        elif isinstance(step, Free):
            self._free(step, rest)

    def _allocate(self, step: Allocate, rest: list[Step]) -> None:
        if any(_fills(other, step.name) for other in rest):
            return
        name = self.names.unique(self._title(step.name))
        self.values[step.name] = ForwardTensor(name, step.shape, step.strides, own=True)
        made = allocation(step.shape, step.strides, step.dtype, self.device)
        self.lines += forward_lines(f"{name} = {made}")

    def _title(self, name: str) -> str:
        return self.wanted.get(name) or identifier(self.written.get(name, "buffer"))

    def _call(self, step: LibraryCallStep) -> None:
        if step.function.endswith((".zero_", ".fill_")):
            owner, _, method = step.function.rpartition(".")
            args = ", ".join(self.text(item) for item in step.args)
            self.lines.append(f"{self.values[owner].text}.{method}({args})")
            return
        call = library_call(step, self.text)
        result = call.out or step.target
        if result is None:
            raise Unliftable(f"nothing takes the result of {step.function}")
        name = self.names.unique(self.wanted.get(result) or call.title)
        self.lines += forward_lines(f"{name} = {call.text}")
        form = self._form_of(result)
        self.values[result] = ForwardTensor(name, form.shape, form.strides, own=False)
        self.results.add(result)
        if call.out is not None and not self.values[result].contiguous:
            self._require(result, form.strides)
        if call.several:
            self.parts.add(result)

    def _form_of(self, name: str) -> RequireLayout:
        """How the wrapper says that a result is laid out, where it allocates it or afterwards."""
        for step in self.wrapper.steps:
            if isinstance(step, Allocate) and step.name == name:
                return RequireLayout(name, step.shape, step.strides)
            if isinstance(step, RequireLayout) and step.name == name:
                return step
        return RequireLayout(name, (), ())

    def _form(self, step: RequireLayout) -> None:
        if step.name in self.results:
            self._require(step.name, step.strides)

    def _require(self, name: str, strides: tuple[int, ...]) -> None:
        """The kernels rely on this layout; the library chooses its own."""
        stored = self.values[name]
        line = f"{stored.text} = {with_strides(stored, strides)}"
        if stored.shape:
            self.lines.append(line)

    def _free(self, step: Free, rest: list[Step]) -> None:
        """Memory is given back where something is allocated or computed after it, unless a view of
        it is still to be read."""
        stored = self.values.pop(step.name, None)
        later = any(isinstance(other, Allocate | LibraryCallStep) for other in rest)
        if not later or stored is None or not stored.text.isidentifier():
            return
        word = re.compile(rf"\b{stored.text}\b")
        read = any(word.search(other.text) for other in self.values.values())
        if not read and stored.text not in self.wanted.values() and self.made(stored):
            self.lines.append(f"del {stored.text}")

    def made(self, stored: ForwardTensor) -> bool:
        """Whether a line of the forward makes this tensor."""
        return any(line.startswith(f"{stored.text} = ") for line in self.lines)

    def _launch(self, step: Launch) -> None:
        option = self._option(step)
        form = kernel_form(option.kernel)
        taken = [name for name in form.parameters if name not in form.constants]
        given = dict(zip(taken, step.args, strict=False))
        numbers = {
            name: number(value) for name, value in given.items() if name not in form.pointers
        }
        name = self._kernel(option, form, given)
        # A template is told its grid: the numbers after its own arguments.
        grids = enumerate(step.args[len(taken) :])
        sizes = dict(form.fixed) | numbers | {
            f"_grid_{place}": number(value) for place, value in grids
        }  # fmt: skip
        grid = launch_grid(option.config, sizes)
        args = [self.text(given[p]) for p in form.pointers]
        constants = {k: v for k, v in option.config.constants if k in form.constants}
        settings = constants | {
            "num_warps": option.config.num_warps, "num_stages": option.config.num_stages,
        }  # fmt: skip
        chosen = [f"{key}={value}" for key, value in settings.items()]
        # Of what debug=True checks only the assertions in the text are wanted.
        chosen += ["sanitize_overflow=False"] if name in self.asserting else []
        self.lines += forward_lines(f"{name}[{grid}]({', '.join([*args, *chosen])})")
        self.schedule[name] = {k: v for k, v in settings.items() if isinstance(v, int)}

    def _kernel(self, option: LaunchOption, form: KernelForm, given: Mapping[str, ast.expr]) -> str:
        """The kernel's name; its text is written at its first launch."""
        variable = option.kernel.variable
        if variable not in self.kernels:
            name = self.names.unique(f"{kernel_title(option.kernel)}_kernel")
            pointers = self._pointers(form, given)
            comment = [kernel_comment(option.kernel)]
            made = kernel_text(option.kernel, name, pointers, set(pointers.values()), comment)
            self.kernels[variable] = name
            self.pieces.append(made.source)
            self.helpers |= made.helpers
            self.libdevice = self.libdevice or made.libdevice
            self.asserting |= {name} if made.asserts else set()
        return self.kernels[variable]

    def _pointers(self, form: KernelForm, given: Mapping[str, ast.expr]) -> dict[str, str]:
        """Pointer parameters are called after what they point to at the first launch."""
        names = Names()
        found = {}
        for parameter in form.pointers:
            words = re.sub(r"torch\.as_strided\((\S+),.*", r"\1", self.text(given[parameter]))
            words = re.sub(r"\.(t|view|contiguous)\(.*", "", words).removeprefix("self.")
            stem = re.sub(r"\W+", "_", words).strip("_") or "value"
            found[parameter] = names.unique(f"{stem}_ptr")
        return found


def _fills(step: Step, name: str) -> bool:
    """Whether a library call writes its result to `name`: it makes its own memory for it."""
    if not isinstance(step, LibraryCallStep):
        return False
    out = dict(step.keywords).get("out")
    return out is not None and ast.unparse(out) == name
