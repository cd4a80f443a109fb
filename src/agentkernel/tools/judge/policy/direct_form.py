"""The direct form of a source: a fixed block keeps what Triton compiled and launches it itself.

`JITFunction.run` looks at every argument and at several settings: 10 to 60 us of processor time a
launch with 12 to 25 arguments (Triton 3.6, H200 hosts), which a call of short kernels waits for.
What it decides depends on the types of the arguments, the alignment of addresses and the values of
whole numbers. Of equal ones a launch takes what was compiled before.

`with_direct_launches` adds the block to a plain source, `plain_form` takes it off again: it alone
decides what the policy says. The block reads of Triton: `JITFunction`, what a launch returns, and
of that `run`, `function` and `packed_metadata`, in the order in which `JITFunction.run` gives them.
Triton's hooks before and after a launch are not called.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.fixed_block import (
    FixedBlock,
    blanked,
    identifiers,
    leaves_alone,
    taken_off,
)
from agentkernel.tools.judge.policy.kernel_source import kernel_functions

DECORATOR = "DirectLaunch"
BLOCK = '''\
MOST_FORMS = 64
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
DIRECT = torch.version.cuda is not None and (3, 6) <= TRITON <= (3, 9)


def kind_of(argument):
    """All that Triton asks of an argument that is no whole number; of others nothing is kept."""
    if type(argument) in (torch.Tensor, torch.nn.Parameter) and argument.is_cuda:
        return argument.dtype, argument.get_device(), argument.data_ptr() % 16 == 0
    if type(argument) is float:
        return float
    return (bool, argument) if argument is None or type(argument) is bool else object()


class DirectLaunch:
    """A kernel that keeps what Triton compiled for a form of launch, and then launches that."""

    def __init__(self, kernel):
        self.kernel, self.forms = kernel, {}
        self.direct = DIRECT and isinstance(kernel, triton.JITFunction)

    def __getitem__(self, grid):
        return functools.partial(self.launch, grid)

    def launch(self, grid, *arguments, **named):
        """kernel[grid](*arguments, **named), where `named` are its constants and options."""
        if torch.compiler.is_compiling() or type(grid) is not tuple:
            self.kernel[grid](*arguments, **named)
            return
        kinds = [item if type(item) is int else kind_of(item) for item in arguments]
        form = (*named.items(), *kinds)
        device, compiled, constants = self.forms.get(form, (None, None, None))
        if compiled is None or torch.cuda.current_device() != device:
            self.launch_by_triton(form, grid, arguments, named)
            return
        x, y, z = grid if len(grid) == 3 else (*grid, 1, 1)[:3]
        stream = torch._C._cuda_getCurrentRawStream(device)
        function, metadata = compiled.function, compiled.packed_metadata
        compiled.run(x, y, z, stream, function, metadata, None, None, None, *arguments, *constants)

    def launch_by_triton(self, form, grid, arguments, named):
        """Launch, and keep what was compiled where `form` has all that it depends on."""
        compiled = self.kernel[grid](*arguments, **named)
        if not self.direct or compiled is None:
            return
        constant = [item.is_constexpr for item in self.kernel.params]
        known = not any(type(kind) is object for kind in form)
        if not known or any(constant[: len(arguments)]) or not all(constant[len(arguments) :]):
            return
        if len(self.forms) >= MOST_FORMS:
            self.forms.clear()
        rest = [named.get(item.name) for item in self.kernel.params[len(arguments) :]]
        self.forms[form] = torch.cuda.current_device(), compiled, rest
'''
DIRECT_BLOCK = FixedBlock(BLOCK, ("functools",))


def with_direct_launches(plain: str) -> str | None:
    """`plain` with the block, its kernels that Python launches decorated with it.

    None where it launches none, or names or binds what the block does. Raises SyntaxError for what
    is no Python.
    """
    tree = parse_source(plain)
    kernels = [kernel for _, kernel in kernel_functions(tree) if kernel in tree.body]
    launched = _launched(tree, kernels)
    taken = identifiers(tree) & DIRECT_BLOCK.names
    reads = DIRECT_BLOCK.reads - {"triton"}
    if not launched or not _imports_triton(tree) or taken or not leaves_alone(plain, tree, reads):
        return None
    lines = plain.split("\n")
    for kernel in reversed(launched):
        at = kernel.decorator_list[0].lineno - 1
        lines[at:at] = [f"@{DECORATOR}"]
    first = (
        min(line for x in kernels for line in (x.lineno, *(y.lineno for y in x.decorator_list))) - 1
    )
    lines[first:first] = DIRECT_BLOCK.definitions()
    DIRECT_BLOCK.imports_into(lines, tree)
    return "\n".join(lines)


def _imports_triton(tree: ast.Module) -> bool:
    """Whether `triton` is bound by `import triton` and by nothing else."""
    bound = [
        alias.name
        for x in ast.walk(tree)
        if isinstance(x, ast.Import | ast.ImportFrom)
        for alias in x.names
        if (alias.asname or alias.name.split(".")[0]) == "triton"
    ]
    others = {
        x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and type(x.ctx) is not ast.Load
    }
    others |= {x.name for x in ast.walk(tree) if isinstance(x, ast.ClassDef | ast.FunctionDef)}
    others |= {x.arg for x in ast.walk(tree) if isinstance(x, ast.arg)}
    plain = all(name.split(".")[0] == "triton" for name in bound)
    return "triton" in bound and plain and "triton" not in others


def _launched(tree: ast.Module, kernels: Sequence[ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Those of `kernels`, in their order, that statements of their own launch by their names, and
    that nothing else names: what a launch returns may not be looked at, since Triton's gives what
    it compiled."""
    uses = [x.id for x in ast.walk(tree) if isinstance(x, ast.Name)]
    calls = [x.value for x in ast.walk(tree) if isinstance(x, ast.Expr)]
    launches = [
        x.func.value.id
        for x in calls
        if isinstance(x, ast.Call)
        and isinstance(x.func, ast.Subscript)
        and isinstance(x.func.value, ast.Name)
    ]
    return [
        kernel
        for kernel in sorted(kernels, key=lambda item: item.lineno)
        if 0 < launches.count(kernel.name) == uses.count(kernel.name)
        and len(kernel.decorator_list) == 1
    ]


@functools.lru_cache(maxsize=16)
def plain_form(source: str) -> str | None:
    """What `with_direct_launches` makes `source` of, line by line where it was; None for any other
    text."""
    marked = f"@{DECORATOR}" in source
    return taken_off(source, _without_block, with_direct_launches) if marked else None


def _without_block(source: str, tree: ast.Module) -> str:
    """`source` with empty lines for what `with_direct_launches` adds, as far as it finds that."""
    marks = [
        mark
        for x in tree.body
        if isinstance(x, ast.FunctionDef)
        for mark in x.decorator_list[:1]
        if isinstance(mark, ast.Name) and mark.id == DECORATOR
    ]
    return "\n".join(blanked(source, [*marks, *DIRECT_BLOCK.of(tree)]))
