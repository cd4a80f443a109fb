"""Where do several hundred small and different modules come from, to make pairs of?

python benchmarks/modules/make_modules.py FOLDER

Each is a problem in the KernelBench convention, small enough for Triton's interpreter. The same
files come out every time.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from families import FAMILIES, Spec


def modules() -> Iterator[tuple[str, str]]:
    """File name and text of each module, family by family."""
    for family, specs in FAMILIES.items():
        for place, spec in enumerate(specs()):
            yield f"{family}_{place:03}.py", written(spec, place)


def make_modules(folder: Path) -> int:
    """Write them all into `folder`; how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, text in modules():
        (folder / name).write_text(text, encoding="utf-8")
        count += 1
    return count


def written(spec: Spec, style: int) -> str:
    """The file of one module. `style` picks among the ways in which such files are written: with
    types or without, shapes by name, the title above all or at the class."""
    title = f"{spec.title[0].upper()}{spec.title[1:]}."
    typed, above = style % 2 == 0, style % 3 != 0
    parts = [f'"""{title}"""\n' if above else "", _imports(spec, style)]
    return "\n".join(
        [*filter(None, parts), "", _model(spec, title, typed, above), _feeding(spec, typed)]
    )


def _imports(spec: Spec, style: int) -> str:
    lines = ["import torch", "from torch import nn" if style % 2 == 0 else "import torch.nn as nn"]
    if "F." in spec.forward:
        lines.append(
            "from torch.nn import functional as F"
            if style % 2 == 0
            else "import torch.nn.functional as F"
        )
    return "\n".join(lines) + "\n"


def _model(spec: Spec, title: str, typed: bool, above: bool) -> str:
    lines = ["class Model(nn.Module):"]
    if not above:
        lines += [f'    """{title}"""', ""]
    if spec.init:
        lines += [f"    def __init__(self){' -> None' * typed}:", "        super().__init__()"]
        lines += [*(f"        {line}" for line in spec.init), ""]
    names = [f"{name}: torch.Tensor" if typed else name for name in spec.inputs]
    result = " -> torch.Tensor" if typed and not _returns_two(spec) else ""
    lines.append(f"    def forward(self, {', '.join(names)}){result}:")
    return "\n".join(lines) + "\n" + textwrap.indent(spec.forward, " " * 8) + "\n\n"


def _returns_two(spec: Spec) -> bool:
    last = spec.forward.splitlines()[-1]
    return last.endswith((", step", ", second", ", c"))


def _feeding(spec: Spec, typed: bool) -> str:
    values = ", ".join(spec.inputs.values())
    if typed:
        inputs = f"def get_inputs() -> list[torch.Tensor]:\n    return [{values}]\n"
        return f"{inputs}\n\ndef get_init_inputs() -> list[object]:\n    return []\n"
    made = "".join(f"    {name} = {value}\n" for name, value in spec.inputs.items())
    inputs = f"def get_inputs():\n{made}    return [{', '.join(spec.inputs)}]\n"
    return f"{inputs}\n\ndef get_init_inputs():\n    return []\n"


if __name__ == "__main__":
    print(f"{make_modules(Path(sys.argv[1]))} modules in {sys.argv[1]}")
