"""Text of a generated module: its names, statements, sizes and file."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

DTYPES = ("float32", "float16", "bfloat16")
INPUT_NAMES = (
    ("x", "x", "x", "x", "inputs", "hidden", "features", "tokens", "a", "values", "signal", "h"),
    ("y", "other", "residual", "skip", "b", "context", "update", "reference", "z"),
    ("w", "extra", "third", "c", "side", "memory"),
)
VALUE_NAMES = ("y", "out", "h", "t", "z", "v", "result", "u", "r", "s", "q", "p", "m")
SIZE_NAMES = {
    1: (("n",), ("length",), ("size",)),
    2: (("batch", "width"), ("rows", "cols"), ("batch_size", "features"), ("n", "dim")),
    3: (("batch", "seq_len", "dim"), ("batch_size", "tokens", "width"), ("b", "t", "c")),
    4: (("batch", "channels", "height", "width"), ("n", "c", "h", "w")),
}
RESERVED = frozenset(("F", "nn", "torch", "math", "self"))


@dataclass
class AuthorStyle:
    """The ways of one author, for a whole file."""

    typed: bool
    title: str
    """Where the title stands: above all, at the class, or nowhere."""
    named_sizes: bool
    reassigns: bool
    nests: float
    """How often a call stands inside the next one."""
    keyword_dim: bool
    layers: bool
    """Layers of torch.nn rather than functions, where both exist."""
    nn_alias: bool
    positional_init: bool

    @classmethod
    def drawn(cls, rng: random.Random) -> AuthorStyle:
        """One author."""
        return cls(
            typed=rng.random() < 0.4,
            title=rng.choice(("above", "class", "class", "none")),
            named_sizes=rng.random() < 0.5,
            reassigns=rng.random() < 0.5,
            nests=rng.choice((0.0, 0.3, 0.8)),
            keyword_dim=rng.random() < 0.6,
            layers=rng.random() < 0.5,
            nn_alias=rng.random() < 0.7,
            positional_init=rng.random() < 0.6,
        )


@dataclass
class ModuleDraft:
    """A module whose statements are written one after the other.

    `shape` and `dtype` are those of the value so far; `value` is its expression, `plain` whether
    that binds tighter than any operator.
    """

    rng: random.Random
    style: AuthorStyle
    shape: list[int]
    dtype: str
    value: str = ""
    plain: bool = True
    lines: list[str] = field(default_factory=list)
    init: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    sizes: dict[int, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    ended: bool = False
    first_shape: list[int] = field(default_factory=list)
    first_dtype: str = "float32"

    def begin(self) -> None:
        """Name the sizes and the first input."""
        names = self.rng.choice(SIZE_NAMES[len(self.shape)])
        if self.style.named_sizes:
            for size, name in zip(self.shape, names, strict=True):
                self.sizes.setdefault(size, name)
        self.value = self.add_input(self.shape, 0)

    def add_input(self, shape: Sequence[int], place: int) -> str:
        """A fresh input of this shape, by name."""
        name = self.fresh_name(INPUT_NAMES[min(place, 2)])
        self.inputs[name] = self._random(shape)
        return name

    def _random(self, shape: Sequence[int]) -> str:
        sizes = ", ".join(self.size(item) for item in shape)
        maker = "rand" if self.rng.random() < 0.12 else "randn"
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        return f"torch.{maker}({sizes}{dtype})"

    def size(self, value: int) -> str:
        """How a size is written in `get_inputs`."""
        return self.sizes.get(value, str(value))

    def argument(self, names: Sequence[str], value: int | float) -> str:
        """How the constructor writes a number: by an argument's name, or as it is."""
        text = self.sizes.get(value, str(value)) if isinstance(value, int) else str(value)
        for name, given in self.arguments.items():
            if given == text and name in names:
                return name
        if len(self.arguments) >= 3 or self.rng.random() < 0.3:
            return str(value)
        name = self.fresh_name(names)
        self.arguments[name] = text
        return name

    def attribute(self, names: Sequence[str], made: str) -> str:
        """A new attribute of the module made by the expression `made`: `self.norm`."""
        taken = {line.split(" = ")[0] for line in self.init}
        options = [f"self.{name}" for name in names]
        free = [name for name in options if name not in taken]
        name = self.rng.choice(free) if free else self._numbered(options[0], taken)
        self.init.append(f"{name} = {made}")
        return name

    def parameter(self, names: Sequence[str], shape: Sequence[str], fill: str = "") -> str:
        """A new parameter of this shape, random or filled by "ones" or "zeros"."""
        maker = fill or self.rng.choice(("randn", "ones", "zeros", "rand"))
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        made = f"nn.Parameter(torch.{maker}({', '.join(shape)}{dtype}))"
        return self.attribute(names, made)

    def factory(self) -> str:
        """What a layer with weights is told of its dtype: "" or ", dtype=torch.float16"."""
        return "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"

    def dim(self, value: int | tuple[int, ...]) -> str:
        """How a dimension is passed: by keyword or by place."""
        return f"dim={value}" if self.style.keyword_dim else str(value)

    def name_value(self) -> str:
        """The value so far as a name, stored in a variable where it is an expression."""
        if not self.value.isidentifier():
            first = next(iter(self.inputs))
            name = first if self.style.reassigns else self.fresh_name(VALUE_NAMES)
            self.lines.append(f"{name} = {self.value}")
            self.value, self.plain = name, True
        return self.value

    def become(self, template: str, *, plain: bool) -> None:
        """The next value: `template` with {x} for the one so far.

        `plain`: the template binds tighter than any operator. What stands in it more than once, or
        before a dot or beside an operator, is named or put in parentheses.
        """
        if not self.value.isidentifier():
            alone = template.count("{x}") == 1
            if not alone or self.rng.random() >= self.style.nests or len(self.value) > 60:
                self.name_value()
        inside = self.value
        called = "({x})" in template or "({x}," in template
        if not self.plain and not called:
            inside = f"({inside})"
        self.value, self.plain = template.replace("{x}", inside), plain

    def store(self, line: str) -> None:
        """A statement of its own."""
        self.lines.append(line)

    def fresh_name(self, names: Sequence[str]) -> str:
        """A variable's name that is not taken."""
        taken = {*self.inputs, *self.arguments, *self.sizes.values(), *RESERVED}
        taken |= {part.strip() for line in self.lines for part in line.split(" = ")[0].split(",")}
        free = [name for name in names if name not in taken]
        return self.rng.choice(free) if free else self._numbered(names[0], taken)

    @staticmethod
    def _numbered(name: str, taken: set[str]) -> str:
        number = 2
        while f"{name}{number}" in taken:
            number += 1
        return f"{name}{number}"

    def text(self) -> str:
        """The whole file."""
        body = "\n".join([*self.lines, f"return {self.value}"])
        title = _sentence(self.words)
        parts = [f'"""{title}"""\n'] if self.style.title == "above" else []
        parts.append(self._imports(body))
        parts.append(self._model(title, body))
        if self.style.named_sizes:
            used = " ".join([*self.inputs.values(), *self.arguments.values()])
            named = {name: size for size, name in self.sizes.items()}
            kept = [f"{name} = {size}" for name, size in named.items() if _uses(used, name)]
            parts += ["\n".join(kept) + "\n"] if kept else []
        parts.append(self._feeding())
        return "\n".join(parts)

    def _imports(self, body: str) -> str:
        lines = ["import torch"]
        if self.style.nn_alias:
            lines.append("import torch.nn as nn")
            functional = "import torch.nn.functional as F"
        else:
            lines.append("from torch import nn")
            functional = "from torch.nn import functional as F"
        if "F." in body:
            lines.append(functional)
        return "\n".join(lines) + "\n\n"

    def _model(self, title: str, body: str) -> str:
        typed = self.style.typed
        lines = ["class Model(nn.Module):"]
        if self.style.title == "class":
            lines += [f'    """{title}"""', ""]
        if self.init:
            given = "".join(
                f", {name}{': ' + _kind(value) if typed else ''}"
                for name, value in self.arguments.items()
            )
            lines += [
                f"    def __init__(self{given}){' -> None' if typed else ''}:",
                "        super().__init__()",
                *(f"        {line}" for line in self.init),
                "",
            ]
        names = ", ".join(f"{name}: torch.Tensor" if typed else name for name in self.inputs)
        result = " -> torch.Tensor" if typed else ""
        lines.append(f"    def forward(self, {names}){result}:")
        return "\n".join(lines) + "\n" + textwrap.indent(body, " " * 8) + "\n\n"

    def _feeding(self) -> str:
        values = list(self.inputs.values())
        inline = f"    return [{', '.join(values)}]"
        if len(inline) > 96:
            inner = "".join(f"        {value},\n" for value in values)
            inline = f"    return [\n{inner}    ]"
        given = ", ".join(self.arguments.values()) if self.init else ""
        return f"def get_inputs():\n{inline}\n\n\ndef get_init_inputs():\n    return [{given}]\n"


def _kind(value: str) -> str:
    return "float" if "." in value or "e-" in value else "int"


def _uses(text: str, name: str) -> bool:
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text)
    return name in words.split()


def _sentence(words: Sequence[str]) -> str:
    """A title of what is done, in its order."""
    if not words:
        return "Returns its input."
    joined = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, then {words[-1]}"
    return f"{joined[0].upper()}{joined[1:]}."
