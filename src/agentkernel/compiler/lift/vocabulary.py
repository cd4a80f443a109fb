"""How do calls of TorchInductor's run-time library become Triton that stands alone?"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from agentkernel.compiler.lift.steps import Unliftable, number
from agentkernel.compiler.lifted_helpers import BUILT_IN, FAST_MATH_LAST, RENAMED

INDUCTOR_NAMESPACES = ("triton_helpers", "libdevice", "tl_math", "inductor_runtime")
SINGLE = frozenset(
    f"{space}.{name}"
    for space in ("libdevice", "tl_math")
    for name in ("exp", "expm1", "tanh", "rint", "nearbyint", "sqrt")
)
"""Functions whose stand-ins hold for fp32 alone."""
LIBDEVICE_IMPORT = "from triton.language.extra import libdevice"


@dataclass
class InductorCallRewriter(ast.NodeTransformer):
    """Rewrites one kernel in place. `helpers` gets the helpers that it needs; `libdevice` is true
    where a function of CUDA's own library is left, which Triton's interpreter does not know."""

    helpers: set[str] = field(default_factory=set)
    libdevice: bool = False
    double: bool = False
    """Whether the kernel computes in fp64, for which the helpers in SINGLE are not made."""
    asserts: bool = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, its arguments first."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in FAST_MATH_LAST:
            node.args.pop()
        if isinstance(node.func, ast.Name) and node.func.id == "bucket_of":
            node.args = _search_arguments(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A dotted name."""
        path = ast.unparse(node)
        if self.double and path in SINGLE:
            return ast.copy_location(self._double(node), node)
        if path in RENAMED:
            self.helpers.add(RENAMED[path])
            return ast.copy_location(ast.Name(RENAMED[path], ast.Load()), node)
        if path in BUILT_IN:
            return ast.copy_location(ast.parse(BUILT_IN[path], mode="eval").body, node)
        if path == f"triton.language.{node.attr}":
            return ast.copy_location(ast.parse(f"tl.{node.attr}", mode="eval").body, node)
        if not isinstance(node.value, ast.Name):
            self.generic_visit(node)
            return node
        space = node.value.id
        if space == "libdevice":
            self.libdevice = True
            return node
        if space == "tl_math":
            return ast.copy_location(ast.parse(f"tl.{node.attr}", mode="eval").body, node)
        if space in INDUCTOR_NAMESPACES:
            raise Unliftable(f"a kernel calls {path}")
        return node

    def _double(self, node: ast.Attribute) -> ast.AST:
        """The same function of Triton's own or of CUDA's library."""
        if node.attr in ("exp", "sqrt"):
            return ast.parse(f"tl.{node.attr}", mode="eval").body
        self.libdevice = True
        return ast.parse(f"libdevice.{node.attr}", mode="eval").body

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`(libdevice.signbit(x) != 0) if x.dtype is tl.float32 else x < 0`."""
        signs = [n for n in ast.walk(node.body) if isinstance(n, ast.Call)]
        if len(signs) == 1 and ast.unparse(signs[0].func) == "libdevice.signbit":
            self.helpers.add("is_negative")
            call = ast.Call(ast.Name("is_negative", ast.Load()), signs[0].args, [])
            return ast.copy_location(call, node)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """A statement: of the compiler's assertions those about indices stay."""
        text = ast.unparse(node)
        if text.startswith("tl.static_assert("):
            return None
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and text.startswith("tl.device_assert("):
            call.args[1:] = [ast.Constant("index out of bounds")]
            self.asserts = True
        return node


def _search_arguments(call: ast.Call) -> list[ast.expr]:
    """Of `bucketize_binary_search`'s arguments those of `bucket_of`."""
    x, pointer, count, _, stride, first, kind, right, *sorter = call.args
    if any(ast.unparse(item) != "None" for item in sorter):
        raise Unliftable("a kernel searches boundaries through a sorter")
    steps = ast.Constant(number(count).bit_length())
    return [x, pointer, first, count, stride, steps, right, kind]
