"""The steps of TorchInductor's wrapper as the lines of a forward.

Tensors, views and library calls are written in plain torch; kernels and buffers are named after
the operators that they hold.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.compiler.drop_in.interface import in_order_text
from agentkernel.compiler.emit import Names, identifier
from agentkernel.compiler.expressions import forward_lines
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.lift.attention_calls import (
    OPERANDS,
    OPERATOR,
    SMALL_TILES,
    AttentionForm,
    own_attention,
    sdpa_call,
)
from agentkernel.compiler.lift.kernel_names import (
    buffer_title,
    is_copy,
    kernel_comment,
    kernel_title,
)
from agentkernel.compiler.lift.kernel_text import KernelForm, kernel_form, kernel_text
from agentkernel.compiler.lift.layouts import (
    channels_last,
    is_contiguous,
    same_layout,
    stride_order,
    strides_in_order,
)
from agentkernel.compiler.lift.library_calls import library_call
from agentkernel.compiler.lift.wrapper_steps import (
    Allocate,
    Free,
    Launch,
    LaunchOption,
    LibraryCallStep,
    Rename,
    RequireLayout,
    Step,
    Unliftable,
    Wrapper,
    launch_grid,
    literal,
    number,
    numbers,
)


@dataclass(frozen=True)
class ForwardTensor:
    """A tensor: its expression in the forward, its layout, and whether it starts its memory."""

    text: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    own: bool

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other in order."""
        return is_contiguous(self.shape, self.strides)


def allocation(shape: Sequence[int], strides: Sequence[int], dtype: str, device: str) -> str:
    """Fresh memory of this form."""
    tail = f"device={device}, dtype={dtype}"
    if is_contiguous(shape, strides):
        return f"torch.empty({tuple(shape)}, {tail})"
    memory = channels_last(shape, strides)
    if memory:
        return f"torch.empty({tuple(shape)}, {tail}, memory_format={memory})"
    return f"torch.empty_strided({tuple(shape)}, {tuple(strides)}, {tail})"


def view_of(base: ForwardTensor, call: ast.Call) -> ForwardTensor:
    """`reinterpret_tensor(base, shape, strides, offset)`, as plainly as torch can say it."""
    shape, strides = numbers(call.args[1]), numbers(call.args[2])
    offset = number(call.args[3]) if len(call.args) > 3 else 0
    text = _view_text(base, shape, strides, offset)
    return ForwardTensor(text, shape, strides, base.own and offset == 0)


def _view_text(
    base: ForwardTensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> str:
    whole = math.prod(shape) == math.prod(base.shape) and offset == 0
    if whole and shape == base.shape and same_layout(shape, strides, base.strides):
        return base.text
    turned = base.shape[::-1] == shape and same_layout(shape, strides, base.strides[::-1])
    if whole and len(shape) == 2 and turned:
        return f"{base.text}.t()"
    if whole and base.contiguous and is_contiguous(shape, strides):
        return f"{base.text}.view({', '.join(map(str, shape))})"
    if not offset:
        return f"torch.as_strided({base.text}, {shape}, {strides})"
    start = str(offset) if base.own else f"{base.text}.storage_offset() + {offset}"
    return f"torch.as_strided({base.text}, {shape}, {strides}, {start})"


def with_strides(stored: ForwardTensor, wanted: tuple[int, ...]) -> str:
    """The expression that gives `stored` the strides `wanted`, whatever layout it really has;
    a tensor that has them is not copied."""
    if is_contiguous(stored.shape, wanted):
        return f"{stored.text}.contiguous()"
    memory = channels_last(stored.shape, wanted)
    if memory:
        return f"{stored.text}.contiguous(memory_format={memory})"
    order = stride_order(wanted)
    if same_layout(stored.shape, wanted, strides_in_order(stored.shape, order)):
        return in_order_text(stored.text, order)
    raise Unliftable(f"a library result of layout {wanted} is asked for")


def inner_dense(stored: ForwardTensor) -> str:
    """The expression of a tensor whose last dimension has stride 1."""
    known = stored.shape and (stored.strides[-1] == 1 or stored.shape[-1] == 1)
    return stored.text if known else f"{stored.text}.contiguous()"


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
    asserting: set[str] = field(default_factory=set)
    """Kernels that raise for an index out of bounds."""
    own_attention: bool = False
    """Whether attention is a kernel of our own where the library could be called too."""
    calls_attention: bool = False
    computes: bool = False
    """Whether a kernel does more than to move values."""
    results: set[str] = field(default_factory=set)
    """Names of what library calls gave."""
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
        if isinstance(node, ast.List):
            return f"[{', '.join(map(self.text, node.elts))}]"
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
        elif isinstance(step, Rename) and isinstance(step.value, ast.Subscript):
            self._part(step.name, step.value)
        elif isinstance(step, Rename):
            self._rename(step)
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
        if step.function == OPERATOR and step.target is not None:
            self._attend(step, step.target)
            return
        call = library_call(step, self.text)
        result = call.out or step.target
        if result is None:
            raise Unliftable(f"nothing takes the result of {step.function}")
        self._called(result, call.title, call.text)
        stored = self.values[result]
        if call.out is not None and not stored.contiguous:
            self._require(result, stored.strides)

    def _called(self, result: str, title: str, text: str) -> None:
        """The line that calls the library for `result`."""
        name = self.names.unique(self._wanted(result) or title)
        self.lines += forward_lines(f"{name} = {text}")
        form = self._form_of(result)
        self.values[result] = ForwardTensor(name, form.shape, form.strides, own=False)
        self.results.add(result)

    def _attend(self, step: LibraryCallStep, result: str) -> None:
        """Attention: the library's call, or a kernel of our own where there is no such call or it
        is not wanted."""
        told = AttentionForm.model_validate_json(str(literal(step.args[len(OPERANDS)])))
        given = {
            name: self.stored(item)
            for name, item in zip(OPERANDS, step.args, strict=False)
            if ast.unparse(item) != "None"
        }
        call = sdpa_call(told, {name: item.text for name, item in given.items()})
        if call is not None and not self.own_attention:
            self.calls_attention = True
            self._called(result, "attended", call)
            return
        form = self._form_of(result)
        batches = {given[name].shape[:1] for name in OPERANDS[:3]}
        fits = told.dtype in SMALL_TILES and batches == {form.shape[:1]}
        if not fits or form.strides[-1:] != (1,):
            raise Unliftable("attention of a form that only the library has")
        name = self.names.unique(self._wanted(result) or "attended")
        self.values[result] = ForwardTensor(name, form.shape, form.strides, own=True)
        made = allocation(form.shape, form.strides, f"torch.{told.dtype}", self.device)
        self.lines += forward_lines(f"{name} = {made}")
        texts = {key: inner_dense(item) for key, item in given.items()}
        kernel = self.names.unique("attention_kernel")
        code = own_attention(told, texts, name, kernel, self.names)
        self._place(code, told)

    def _place(self, code: KernelCode, told: AttentionForm) -> None:
        """A kernel of our own, and its launch."""
        (name,) = code.kernels
        self.pieces.append(code.source)
        self.kernels[name] = name
        self.schedule[name] = dict(SMALL_TILES[told.dtype])
        self.helpers |= code.helpers
        self.lines += code.allocations
        self.lines += [line for text in code.launch for line in text.splitlines()]
        self.computes = True

    def _wanted(self, result: str) -> str | None:
        """What a result is to be called, under whichever of its names."""
        found = (self.wanted.get(name) for name in self._names_of(result))
        return next(filter(None, found), None)

    def _names_of(self, result: str) -> list[str]:
        """A name of the wrapper's, and those that it is given later."""
        names = [result]
        for step in self.wrapper.steps:
            if isinstance(step, Rename) and ast.unparse(step.value) == names[-1]:
                names.append(step.name)
        return names

    def _part(self, name: str, value: ast.Subscript) -> None:
        """One of several results of a library call."""
        owner, place = ast.unparse(value.value), number(value.slice)
        if owner not in self.results:
            raise Unliftable(f"the wrapper makes {ast.unparse(value)[:80]}")
        whole = self.values[owner].text
        text = self.names.unique(self.wanted.get(name) or f"{whole}_{place}")
        self.lines.append(f"{text} = {whole}[{place}]")
        form = self._form_of(name)
        self.values[name] = ForwardTensor(text, form.shape, form.strides, own=False)
        self.results.add(name)

    def _rename(self, step: Rename) -> None:
        """What a library call gave may get another name before its layout is told."""
        self.values[step.name] = self.stored(step.value)
        if ast.unparse(step.value) in self.results:
            self.results.add(step.name)

    def _form_of(self, name: str) -> RequireLayout:
        """How the wrapper says that a result is laid out, where it allocates it or afterwards."""
        names = self._names_of(name)
        for step in self.wrapper.steps:
            if isinstance(step, Allocate) and step.name in names:
                return RequireLayout(name, step.shape, step.strides)
            if isinstance(step, RequireLayout) and step.name in names:
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
            self.computes = self.computes or not is_copy(option.kernel)
            self.pieces.append(made.source)
            self.helpers |= made.helpers
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
