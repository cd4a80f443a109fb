"""How does one of TorchInductor's kernels read as plain Triton?"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentkernel.compiler.layout_text import function_text
from agentkernel.compiler.lift.branches import resolve_branches
from agentkernel.compiler.lift.code import InductorKernel
from agentkernel.compiler.lift.names import rename_values
from agentkernel.compiler.lift.steps import Unliftable
from agentkernel.compiler.lift.tidy import tidy
from agentkernel.compiler.lift.uses import assigned
from agentkernel.compiler.lift.vocabulary import InductorCallRewriter


@dataclass(frozen=True)
class KernelForm:
    """A kernel's parameters: `pointers` in order, `numbers` that its body fixes, constants."""

    parameters: tuple[str, ...]
    fixed: tuple[tuple[str, int], ...]
    constants: tuple[str, ...]

    @property
    def pointers(self) -> tuple[str, ...]:
        """Parameters that each launch still has to give."""
        fixed = {name for name, _ in self.fixed}
        return tuple(p for p in self.parameters if p not in fixed and p not in self.constants)


@dataclass(frozen=True)
class LiftedKernel:
    """The finished source, with the helpers that it calls, and whether it needs CUDA's library.
    `asserts`: it raises for an index out of bounds."""

    source: str
    helpers: frozenset[str]
    libdevice: bool
    asserts: bool = False


def kernel_form(code: InductorKernel) -> KernelForm:
    """What a launch of `code` gives it."""
    function = _functions(code)[-1]
    parameters = tuple(argument.arg for argument in function.args.args)
    constants = tuple(
        argument.arg
        for argument in function.args.args
        if argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
    )
    fixed = []
    for statement in function.body:
        pair = assigned(statement)
        if pair is not None and pair[0] in parameters and isinstance(pair[1], ast.Constant):
            fixed.append((pair[0], int(str(pair[1].value))))
    return KernelForm(parameters, tuple(fixed), constants)


def kernel_text(
    code: InductorKernel,
    name: str,
    pointers: Mapping[str, str],
    taken: set[str],
    docstring: Sequence[str],
) -> LiftedKernel:
    """`code` under `name`, its pointer parameters called as `pointers` says.

    Raises Unliftable where it needs something of TorchInductor's run time that has no form here.
    """
    form = kernel_form(code)
    functions = _functions(code)
    vocabulary = InductorCallRewriter(double="fp64" in code.source)
    pieces: list[str] = []
    for number, function in enumerate(functions[:-1]):
        helper = f"{name.removesuffix('_kernel')}_combine" + (str(number + 1) if number else "")
        _rename(functions, function.name, helper)
        vocabulary.visit(function)
        _name_sides(function)
        tidy(function)
        rename_values(function, set())
        pieces.append(function_text(function, "How two values become one."))
    main = functions[-1]
    vocabulary.visit(main)
    main.name = name
    decorator = "triton.jit(debug=True)" if vocabulary.asserts else "triton.jit"
    main.decorator_list = [ast.parse(decorator, mode="eval").body]
    _drop_parameters(main, {key for key, _ in form.fixed})
    for old, new in pointers.items():
        _rename([main], old, new)
    resolve_branches(main)
    tidy(main)
    rename_values(main, taken)
    ast.fix_missing_locations(main)
    text = "\n".join(textwrap.wrap(" ".join(docstring), 92, subsequent_indent="    "))
    pieces.append(function_text(main, text))
    return LiftedKernel(
        "\n\n\n".join(pieces),
        frozenset(vocabulary.helpers),
        vocabulary.libdevice,
        vocabulary.asserts,
    )


def _functions(code: InductorKernel) -> list[ast.FunctionDef]:
    """Functions of the kernel's module, the kernel last."""
    tree = ast.parse(code.source)
    found = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    if not found:
        raise Unliftable(f"{code.variable} has no function")
    return found


def _rename(functions: Sequence[ast.FunctionDef], old: str, new: str) -> None:
    for function in functions:
        if function.name == old:
            function.name = new
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id == old:
                node.id = new
            if isinstance(node, ast.arg) and node.arg == old:
                node.arg = new


def _name_sides(function: ast.FunctionDef) -> None:
    """`arg0_1`, the second part of the first value, becomes `left_2`."""
    for argument in list(function.args.args):
        side, _, part = argument.arg.removeprefix("arg").partition("_")
        word = "left" if side == "0" else "right"
        new = word if part == "0" else f"{word}_{int(part) + 1}"
        _rename([function], argument.arg, new)


def _drop_parameters(function: ast.FunctionDef, names: set[str]) -> None:
    kept = [argument for argument in function.args.args if argument.arg not in names]
    function.args.args = kept
    for argument in kept:
        argument.annotation = argument.annotation and ast.parse("tl.constexpr", mode="eval").body
