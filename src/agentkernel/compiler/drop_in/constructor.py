"""The constructor of a standalone file that builds `ModelNew` exactly as the user's class."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING

from agentkernel.compiler.drop_in.given import (
    Verified,
    classes_given,
    is_literal,
    verified_arguments,
    with_classes,
)
from agentkernel.compiler.drop_in.own_modules import OwnCode, own_code
from agentkernel.compiler.drop_in.source_slice import ClassSlice, slice_class
from agentkernel.domain.candidate import NoTemplate
from agentkernel.domain.errors import ProblemError
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.structures import class_label

if TYPE_CHECKING:
    import torch
    from torch import nn

NEW_NAME = "ModelNew"
WIDTH = 100
MESSAGE_WIDTH = 68
"""Columns of a line of the file, and of a message in a constructor's guard."""
PORTABLE_ROOTS = frozenset(
    {
        "__future__",
        "collections",
        "dataclasses",
        "itertools",
        "math",
        "torch",
        "triton",
        "typing",
    }
)
"""Packages that a file may import: torch, triton, and what the judge's policy lets in of the
standard library."""
LITERAL_BUFFER_LIMIT = 1024
"""Elements up to which a buffer outside the state_dict is written into the source as a literal."""


@dataclass(frozen=True)
class ConstructorText:
    """The pieces of a file that builds `ModelNew`: put `imports`, kernels, `helpers`, then
    `header`, `body` and a `forward` indented by four spaces.

    `helpers` is top-level code ("" if none); `body` holds class attributes, `__init__` and the
    methods that construction needs, indented by four spaces ("" if a base class does it all).
    `foreign_imports` are packages beyond torch, triton and the pure standard library: with one of
    them the file does not stand alone. `names` are bound at module level and `attributes` on the
    instance: kernels and fields of the forward must be called otherwise. `copies` are the classes
    that forward returns.
    """

    imports: tuple[str, ...]
    helpers: str
    header: str
    body: str
    foreign_imports: tuple[str, ...]
    names: frozenset[str]
    attributes: frozenset[str]
    expressions: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[str, ...] = ()

    def parameter_expression(self, name: str) -> str:
        """State-dict name -> expression in `forward`: "blocks.0.bias" -> "self.blocks[0].bias".

        Parameters, buffers (persistent or not) and tied names are all known.
        """
        return self.expressions[name]

    @property
    def obstacle(self) -> str:
        """Why the file does not stand alone, and what to do; "" where it does."""
        if not self.foreign_imports:
            return ""
        roots = tuple(root.lstrip(".") for root in self.foreign_imports)
        lines = [line for line in self.imports if line.split()[1].lstrip(".").startswith(roots)]
        needs = f"'{lines[0]}'" if lines else ", ".join(self.foreign_imports)
        return (
            f"it needs {needs}, which a drop-in may not import. Next: build the module in Python "
            "and give that to agentkernel.optimize(module, inputs), or keep the import out of the "
            "constructor"
        )

    @property
    def text(self) -> str:
        """The pieces in order, as a module that can build `ModelNew` and nothing else."""
        model = f"{self.header}\n{self.body or '    pass'}"
        parts = ("\n".join(self.imports), self.helpers, model)
        return "\n\n\n".join(part for part in parts if part)


def emit_constructor(
    loaded: LoadedProblem, returned: Sequence[type] = ()
) -> ConstructorText | NoTemplate:
    """Slice the user's class down to its construction, under the name `ModelNew`.

    The same seed gives the same weights: constructor code is copied, never restated. A live module,
    whose constructor arguments nobody knows, gets empty tensors of the same names, to be filled by
    `load_state_dict`. The classes `returned`, which forward makes, come along whole. NoTemplate
    where a slice cannot be right: the constructor calls its own `forward`, a live module has state
    that no state_dict carries, or the file does not define a class that is returned.
    """
    types = _returned(loaded, returned) if returned else None
    if isinstance(types, NoTemplate):
        return types
    name = loaded.problem.class_name
    if loaded.live is not None:
        made = _live_constructor(loaded.live, types)
        if isinstance(made, NoTemplate):
            return made
        return replace(made, copies=tuple(item.__name__ for item in returned))
    code = own_code(loaded.problem)
    module, executed = _build_and_watch(loaded, code)
    if _calls_itself(loaded, code, executed):
        return NoTemplate(reason=f"the constructor of {name} calls its own forward")
    cut = slice_class(
        with_classes(code.source, executed),
        code.name_of(code.root, name),
        NEW_NAME,
        _module_classes(loaded, code),
        frozenset(executed),
        frozenset(code.name_of(code.root, item.__name__) for item in returned),
    )
    return ConstructorText(
        imports=cut.imports,
        helpers=cut.helpers,
        header=cut.header,
        body=_guarded(cut, loaded, code),
        foreign_imports=tuple(root for root in cut.import_roots if root not in PORTABLE_ROOTS),
        names=cut.names,
        attributes=frozenset(dir(module)) | frozenset(vars(module)),
        expressions=dict(_expressions(module)),
        copies=tuple(item.__name__ for item in returned),
    )


def _returned(loaded: LoadedProblem, classes: Sequence[type]) -> ClassSlice | NoTemplate:
    """The text of classes that the problem's own file defines; NoTemplate for others."""
    names = [item.__name__ for item in classes]
    own = loaded.namespace or sys.modules.get(loaded.module_class.__module__)
    body = parse_source(loaded.problem.source).body
    defined = {node.name for node in body if isinstance(node, ast.ClassDef)}
    for item in classes:
        if getattr(own, item.__name__, None) is not item or item.__name__ not in defined:
            return NoTemplate(
                reason=f"it returns an object of {class_label(item)}, and no class statement of "
                "the problem's own file makes that, so that a drop-in cannot have it"
            )
    cut = slice_class(
        loaded.problem.source, names[0], names[0], frozenset(), frozenset(), frozenset(names)
    )
    foreign = [root for root in cut.import_roots if root not in PORTABLE_ROOTS]
    if foreign:
        return NoTemplate(
            reason=f"it returns an object of {class_label(classes[0])}, a class that needs "
            f"{', '.join(foreign)}"
        )
    return cut


def _guarded(cut: ClassSlice, loaded: LoadedProblem, code: OwnCode) -> str:
    """The body of `cut`, whose constructor takes nothing else than what the kernels are for; one
    that it inherits is called by one of its own."""
    found = verified_arguments(loaded, lambda kind: _written(loaded, code, kind))
    if not found:
        return cut.body
    tree = parse_source(f"class Model:\n{cut.body or '    pass'}")
    makers = [item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef)]
    maker = next((item for item in makers if item.name == "__init__"), None)
    signature = inspect.signature(loaded.module_class.__init__)
    names = {item.id for item in ast.walk(maker or tree) if isinstance(item, ast.Name)}
    guard = _comparisons(found, names | set(signature.parameters) | cut.names)
    lines = cut.body.splitlines()
    if maker is None:
        own = _calling_constructor(loaded, cut, guard)
        return "\n".join([*own, "", *lines] if lines else own) if own else cut.body
    first = maker.body[1 if ast.get_docstring(maker) is not None and maker.body[1:] else 0]
    place = first.lineno - 2
    if first.lineno > maker.lineno:
        return "\n".join([*lines[:place], *guard, *lines[place:]])
    rest = textwrap.indent(ast.unparse(maker), "    ").splitlines()
    whole = [*lines[: maker.lineno - 2], rest[0], *guard, *rest[1:], *lines[first.lineno - 1 :]]
    return "\n".join(whole)


def _written(loaded: LoadedProblem, code: OwnCode, kind: type) -> str:
    own = kind.__module__ in _own_modules(loaded, code)
    return _name_in(loaded, code, kind).rpartition(".")[2] if own else kind.__name__


def _comparisons(found: Sequence[Verified], taken: Collection[str]) -> list[str]:
    """The guard: one condition where all are plain arguments, else the fields one after the other,
    those of an object after its class. The constructor has the names `taken`."""
    if all(item.expression.isidentifier() and _is_short(item.literal) for item in found):
        told = ", ".join(f"{item.name}={item.literal}" for item in found)
        exact = ("None", "True", "False")
        wrong = " or ".join(
            f"{item.name} {'is not' if item.literal in exact else '!='} {item.literal}"
            for item in found
        )
        return guard_lines(wrong, f"this drop-in was verified for {told} alone")
    what, given, verified = (_free(word, taken) for word in ("field", "given", "verified"))
    lines: list[str] = []
    for depth in sorted({item.depth for item in found}):
        lines.append(f"        for {what}, {given}, {verified} in (")
        for item in (one for one in found if one.depth == depth):
            parts = (json.dumps(item.name), item.expression, item.literal)
            row = f"            ({', '.join(parts)}),"
            long = [
                "            (",
                *(f"                {part}," for part in parts),
                "            ),",
            ]
            lines += [row] if len(row) <= WIDTH else long
        lines += [
            "        ):",
            f"            if {given} != {verified}:",
            "                raise ValueError(",
            f'                    f"{{{what}}} is {{{given}!r}}; "',
            f'                    f"this drop-in was verified for {{{verified}!r}} alone"',
            "                )",
        ]
    return lines


def _is_short(literal: str) -> bool:
    """Whether it may stand in one condition with others."""
    return literal[0] not in "[({" and len(literal) < MESSAGE_WIDTH and " or " not in literal


def _free(word: str, taken: Collection[str]) -> str:
    return word if word not in taken else _free(f"{word}_", taken)


def _calling_constructor(
    loaded: LoadedProblem, cut: ClassSlice, guard: Sequence[str]
) -> list[str] | None:
    """`__init__` with the signature of the inherited one, which it calls; None where a default
    cannot be written down."""
    parameters = list(inspect.signature(loaded.module_class.__init__).parameters.values())
    plain = []
    for item in parameters:
        default = item.default
        if default is not item.empty and not is_literal(default):
            text = _default_text(loaded, item.name)
            if text is None or text.partition(".")[0] not in cut.names:
                return None
            default = _Text(text)
        plain.append(item.replace(annotation=item.empty, default=default))
    calls = []
    for item in plain[1:]:
        several = item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        stars = "*" * (1 + (item.kind is item.VAR_KEYWORD)) if several else ""
        named = f"{item.name}=" if item.kind is item.KEYWORD_ONLY else ""
        calls.append(f"{stars or named}{item.name}")
    return [
        f"    def __init__{inspect.Signature(plain)}:",
        *guard,
        f"        super().__init__({', '.join(calls)})",
    ]


class _Text(str):
    """An expression, written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _default_text(loaded: LoadedProblem, name: str) -> str | None:
    """The dotted name that the default of a parameter is in the source."""
    for kind in loaded.module_class.__mro__:
        maker = vars(kind).get("__init__")
        if maker is None:
            continue
        for node in ast.walk(parse_source(loaded.problem.source)):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                return _dotted_default(node, name)
        return None
    return None


def _dotted_default(owner: ast.ClassDef, name: str) -> str | None:
    for item in owner.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            placed = [*item.args.posonlyargs, *item.args.args]
            pairs = [
                *zip(reversed(placed), reversed(item.args.defaults), strict=False),
                *zip(item.args.kwonlyargs, item.args.kw_defaults, strict=True),
            ]
            for argument, default in pairs:
                if argument.arg == name and isinstance(default, ast.Name | ast.Attribute):
                    return ast.unparse(default)
    return None


def guard_lines(wrong: str, words: str) -> list[str]:
    """`if wrong: raise ValueError(words)`, indented as in a method."""
    condition = f"        if {wrong}:"
    if len(condition) > WIDTH:
        parts = wrong.split(" or ")
        joined = [f"            {parts[0]}", *(f"            or {part}" for part in parts[1:])]
        condition = "\n".join(["        if (", *joined, "        ):"])
    head = condition.splitlines()
    if len(words) <= MESSAGE_WIDTH:
        return [*head, f"            raise ValueError({json.dumps(words)})"]
    *whole, last = textwrap.wrap(words, MESSAGE_WIDTH, break_long_words=False)
    texts = [json.dumps(text) for text in (*(f"{line} " for line in whole), last)]
    inner = [f"                {text}" for text in texts]
    return [*head, "            raise ValueError(", *inner, "            )"]


def _build_and_watch(
    loaded: LoadedProblem, code: OwnCode
) -> tuple[nn.Module, dict[str, dict[str, str]]]:
    """Build the reference once and note which functions of the user's files ran meanwhile, by their
    names in `code`; with each, the expressions for classes of the objects that the constructor is
    given, where its own arguments hold such."""
    import torch

    beginning = f"<{loaded.namespace.__name__}>" if loaded.namespace else "<>"
    executed: dict[str, dict[str, str]] = {}
    kinds = {kind for _, kind in classes_given("", [*loaded.init_args, loaded.init_kwargs])}
    kinds = {kind for kind in kinds if kind.__module__ in _own_modules(loaded, code)}

    def watch(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        own = code.root if file.startswith(beginning) else code.files.get(file)
        if event == "call" and own is not None:
            found = executed.setdefault(code.name_of(own, frame.f_code.co_qualname), {})
            if kinds and not found:
                found.update(_classes_in(frame, kinds, loaded, code))

    before = sys.getprofile()
    with torch.random.fork_rng(devices=[]):
        sys.setprofile(watch)
        try:
            try:
                module = loaded.build(seed=0, device="meta")
            except ProblemError:  # e.g. the constructor reads a value, which meta tensors lack
                module = loaded.build(seed=0, device="cpu")
        finally:
            sys.setprofile(before)
    return module, executed


def _own_modules(loaded: LoadedProblem, code: OwnCode) -> set[str]:
    return {*code.files.values(), loaded.namespace.__name__ if loaded.namespace else ""}


def _classes_in(
    frame: FrameType, kinds: Collection[type], loaded: LoadedProblem, code: OwnCode
) -> dict[str, str]:
    """The expressions for those of `kinds`, and for their bases, that a call's arguments hold."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    items = [(name, frame.f_locals[name]) for name in names if name in frame.f_locals]
    held = [pair for item in items for pair in classes_given(*item) if pair[1] in kinds]
    own = _own_modules(loaded, code)
    found: dict[str, str] = {}
    for place, kind in held:
        found.setdefault(_name_in(loaded, code, kind), f"type({place})")
    for place, kind in held:
        for base in kind.__mro__:
            if base.__module__ in own:
                found.setdefault(_name_in(loaded, code, base), f"type({place})")
    return found


def _calls_itself(loaded: LoadedProblem, code: OwnCode, executed: Collection[str]) -> bool:
    """Did the forward that ran belong to the module itself, not to a child of a shared base?"""
    owners = [item for item in loaded.module_class.__mro__ if "forward" in vars(item)]
    return bool(owners) and _name_in(loaded, code, owners[0]) + ".forward" in executed


def _name_in(loaded: LoadedProblem, code: OwnCode, kind: type) -> str:
    """What a class of the user's files is called in `code`."""
    own = loaded.namespace is not None and kind.__module__ == loaded.namespace.__name__
    return code.name_of(code.root if own else kind.__module__, kind.__qualname__)


def _module_classes(loaded: LoadedProblem, code: OwnCode) -> frozenset[str]:
    """The torch modules among the classes at the top of the user's files, by name in `code`."""
    from torch import nn

    spaces = [(code.root, loaded.namespace)]
    spaces += [(name, sys.modules.get(name)) for name in set(code.files.values())]
    return frozenset(
        code.name_of(own, name)
        for own, space in spaces
        for name, value in (vars(space).items() if space else ())
        if isinstance(value, type) and issubclass(value, nn.Module)
    )


def _expressions(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Every parameter and buffer name below `module`, with the expression that reaches it."""
    for prefix, owner, expression in _walk(module, "", "self"):
        for name in [*owner._parameters, *owner._buffers]:
            yield prefix + name, _member(owner, expression, name)


def _walk(module: nn.Module, prefix: str, expression: str) -> Iterator[tuple[str, nn.Module, str]]:
    yield prefix, module, expression
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, f"{prefix}{name}.", _member(module, expression, name))


def _member(owner: nn.Module, expression: str, name: str) -> str:
    """The expression for one member; plain attribute access wherever Python allows it."""
    from torch import nn

    if name.isidentifier():
        if isinstance(owner, nn.ModuleDict | nn.ParameterDict):
            return f'{expression}["{name}"]'
        return f"{expression}.{name}"
    if isinstance(owner, nn.ModuleList | nn.Sequential | nn.ParameterList) and name.isdigit():
        names = list(owner._modules) or list(owner._parameters)
        return f"{expression}[{names.index(name)}]"
    if isinstance(owner, nn.ModuleDict | nn.ParameterDict):
        return f'{expression}["{name}"]'
    getter = "get_submodule" if name in owner._modules else "get_parameter"
    getter = "get_buffer" if name in owner._buffers else getter
    return f'{expression}.{getter}("{name}")'


def _live_constructor(
    module: nn.Module, returned: ClassSlice | None = None
) -> ConstructorText | NoTemplate:
    """Containers with empty tensors of the same names, shapes and dtypes."""
    emitter = _LiveEmitter(module)
    lines = emitter.lines()
    if emitter.problem is not None:
        return NoTemplate(reason=emitter.problem)
    body = "\n".join(["    def __init__(self):", *(f"        {line}" for line in lines)])
    imports = ["import torch", "from torch import nn"]
    helpers, names = "", frozenset({"torch", "nn", NEW_NAME})
    if returned is not None:
        own = f"{returned.header}\n{returned.body or '    pass'}"
        imports += [line for line in returned.imports if line not in imports]
        helpers = "\n\n\n".join(item for item in (returned.helpers, own) if item)
        names |= returned.names
    return ConstructorText(
        imports=tuple(imports),
        helpers=helpers,
        header=f"class {NEW_NAME}({_root(module)}):",
        body=body,
        foreign_imports=(),
        names=names,
        attributes=frozenset(dir(module)) | frozenset(vars(module)),
        expressions=emitter.expressions,
    )


class _LiveEmitter:
    """Writes a live module's state as constructor lines; `expressions` names each tensor."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.expressions: dict[str, str] = {}
        self.problem: str | None = None
        self._seen: dict[int, str] = {}

    def lines(self) -> list[str]:
        """The body of `__init__`."""
        children = ""
        if _root(self.module) == "nn.ModuleList":
            children = f"[nn.Module() for _ in range({len(self.module._modules)})]"
        return [f"super().__init__({children})", *self._module("", self.module, "self")]

    def _module(self, prefix: str, module: nn.Module, target: str) -> Iterator[str]:
        for name, parameter in module._parameters.items():
            if parameter is None:
                yield _register(target, "register_parameter", name, "None")
            else:
                yield self._parameter(prefix + name, module, target, name, parameter)
        for name, buffer in module._buffers.items():
            if buffer is None:
                yield _register(target, "register_buffer", name, "None")
            else:
                persistent = name not in module._non_persistent_buffers_set
                yield self._buffer(prefix + name, target, name, buffer, persistent)
        yield from self._children(prefix, module, target)

    def _children(self, prefix: str, module: nn.Module, target: str) -> Iterator[str]:
        for name, child in module._modules.items():
            if child is None or not _holds_state(child):
                continue
            path = _live_member(module, target, name)
            if id(child) in self._seen:
                yield _assign(module, target, name, self._seen[id(child)])
                self.expressions.update(_live_expressions(child, f"{prefix}{name}.", path))
                continue
            self._seen[id(child)] = path
            yield _assign(module, target, name, _container(child))
            yield from self._module(f"{prefix}{name}.", child, path)

    def _parameter(
        self, full: str, owner: nn.Module, target: str, name: str, value: torch.Tensor
    ) -> str:
        from torch import nn

        expression = _live_member(owner, target, name)
        self.expressions[full] = expression
        if id(value) in self._seen:
            text = self._seen[id(value)]
        else:
            self._seen[id(value)] = expression
            flag = "" if value.requires_grad else ", requires_grad=False"
            text = f"nn.Parameter({_empty(value)}{flag})"
        if isinstance(value, nn.UninitializedParameter):
            self.problem = f"parameter {full} is uninitialised (a lazy module that never ran)"
        if _is_list(owner):
            return f"{target}.append({text})"
        if name.isidentifier():
            return f"{expression} = {text}"
        return _register(target, "register_parameter", name, text)

    def _buffer(
        self, full: str, target: str, name: str, value: torch.Tensor, persistent: bool
    ) -> str:
        plain = name.isidentifier()
        self.expressions[full] = f"{target}.{name}" if plain else f'{target}.get_buffer("{name}")'
        if persistent:
            return _register(target, "register_buffer", name, _empty(value))
        if value.numel() > LITERAL_BUFFER_LIMIT or value.is_meta:
            self.problem = (
                f"buffer {full} is not in the state_dict and too large to be written out "
                f"({value.numel()} elements)"
            )
            return ""
        literal = f"torch.tensor({value.tolist()!r}, dtype={value.dtype})"
        literal = literal.replace("inf", 'float("inf")').replace("nan", 'float("nan")')
        return _register(target, "register_buffer", name, f"{literal}, persistent=False")


def _is_list(module: nn.Module) -> bool:
    """May an emitted ModuleList or ParameterList stand for this module? (Members 0 to n - 1.)"""
    names = [*module._parameters, *module._buffers, *module._modules]
    mixed = bool(module._modules) and bool(module._parameters or module._buffers)
    return bool(names) and not mixed and names == [str(index) for index in range(len(names))]


def _root(module: nn.Module) -> str:
    """The base class of the whole: one that can be indexed where children have only numbers."""
    return "nn.ModuleList" if module._modules and _is_list(module) else "nn.Module"


def _container(module: nn.Module) -> str:
    """The constructor call of the plain container that stands for a module."""
    if not _is_list(module):
        return "nn.Module()"
    if module._modules:
        return f"nn.ModuleList([nn.Module() for _ in range({len(module._modules)})])"
    return "nn.ParameterList()" if module._parameters else "nn.Module()"


def _live_member(owner: nn.Module, target: str, name: str) -> str:
    if name.isidentifier():
        return f"{target}.{name}"
    if _is_list(owner):
        return f"{target}[{name}]"
    getter = "get_submodule" if name in owner._modules else "get_parameter"
    return f'{target}.{getter}("{name}")'


def _live_expressions(module: nn.Module, prefix: str, target: str) -> dict[str, str]:
    """Expressions of everything below a module that is registered a second time."""
    found = {
        prefix + name: _live_member(module, target, name)
        for name in [*module._parameters, *module._buffers]
    }
    for name, child in module._modules.items():
        if child is not None:
            path = _live_member(module, target, name)
            found.update(_live_expressions(child, f"{prefix}{name}.", path))
    return found


def _holds_state(module: nn.Module) -> bool:
    return any(item._parameters or item._buffers for item in module.modules())


def _assign(owner: nn.Module, target: str, name: str, value: str) -> str:
    if name.isidentifier() or _is_list(owner):
        return f"{_live_member(owner, target, name)} = {value}"
    return _register(target, "register_module", name, value)


def _register(target: str, method: str, name: str, value: str) -> str:
    return f'{target}.{method}("{name}", {value})'


def _empty(value: torch.Tensor) -> str:
    return f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"


__all__ = ["ConstructorText", "emit_constructor"]
