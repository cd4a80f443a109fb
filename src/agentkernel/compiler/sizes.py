"""How are symbolic sizes written in the wrapper, and in kernels?"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy
from torch.utils._sympy.printers import PythonPrinter

from agentkernel.compiler.ir import Expr, same
from agentkernel.tools.problem.capture import Captured

PRINTER = PythonPrinter()


@dataclass(frozen=True)
class Symbols:
    """Free symbols of a graph: how each is read from the inputs, and its usual value."""

    readings: dict[str, str]
    values: dict[str, int]

    def hint(self, expr: Expr) -> int:
        """The value of a size at the captured shapes."""
        if expr == sympy.oo:
            return 1 << 62
        known = {symbol: self.values[str(symbol)] for symbol in expr.free_symbols}
        return int(expr.subs(known))

    def name(self, symbol: sympy.Symbol) -> str:
        """The wrapper's variable for a symbol, e.g. `x_dim0`."""
        return self.readings[str(symbol)].replace(".shape[", "_dim").rstrip("]")

    def wrapper(self, expr: Expr) -> str:
        """`expr` as Python over the wrapper's size variables."""
        named = expr.subs({
            symbol: sympy.Symbol(self.name(symbol), positive=True, integer=True)
            for symbol in expr.free_symbols
        })  # fmt: skip
        return str(PRINTER.doprint(sympy.expand(named) if named.is_polynomial() else named))


def symbols_of(captured: Captured, input_names: dict[str, str]) -> Symbols:
    """Symbols of the free dimensions; `input_names`: placeholder -> the wrapper's variable."""
    readings: dict[str, str] = {}
    values: dict[str, int] = {}
    for free in captured.free_dims:
        placeholder = captured.user_inputs[free.input_index]
        readings.setdefault(free.symbol, f"{input_names[placeholder]}.shape[{free.dim}]")
        values[free.symbol] = free.size
    return Symbols(readings, values)


@dataclass
class KernelSizes:
    """Size parameters of one kernel: `n_rows` and `n_cols` first, then the symbols left."""

    symbols: Symbols
    rows: Expr
    cols: Expr
    cols_name: str = "n_cols"
    rows_name: str = "n_rows"
    extra: dict[str, Expr] = field(default_factory=dict)
    rows_read: bool = False
    """Whether the kernel reads the number of rows, be it as a stride."""

    def text(self, expr: Expr) -> str:
        """`expr` over the kernel's parameters."""
        if expr.is_number:
            if same(expr, self.cols) and expr != 1:
                return self.cols_name
            if expr != 0 and same(expr, self.cols - 1):
                return f"({self.cols_name} - 1)"
            return str(int(expr))
        if same(expr, self.cols):
            return self.cols_name
        if same(expr, self.rows):
            self.rows_read = True
            return self.rows_name
        ratio = sympy.cancel(expr / self.cols)
        if ratio.is_number and ratio.is_integer:
            return f"({ratio} * {self.cols_name})"
        for symbol in sorted(expr.free_symbols, key=str):
            self.extra.setdefault(self.symbols.name(symbol), symbol)
        code = self.symbols.wrapper(expr)
        return code if code.isidentifier() else f"({code})"
