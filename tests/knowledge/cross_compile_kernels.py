"""Does every kernel example compile for a GPU that is not here? Prints one JSON object.

Each launch is caught and cross-compiled in place of being run. Usage:
`cross_compile_kernels.py cuda 90 32` or `cross_compile_kernels.py hip gfx942 64`.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import JITFunction

FOLDER = Path(__file__).parents[2] / "src" / "agentkernel" / "knowledge" / "kernels"
OPTIONS = ("num_warps", "num_stages")
SHORT = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int8: "i8",
}


def main() -> None:
    backend, arch, warp = sys.argv[1:4]
    target = GPUTarget(backend, int(arch) if backend == "cuda" else arch, int(warp))
    report: dict[str, str] = {}
    current = ""

    def compile_launch(self: JITFunction, *args: object, **kwargs: object) -> None:
        names = [item.name for item in self.params]
        bound = dict(zip(names, args, strict=False))
        bound |= {key: value for key, value in kwargs.items() if key in names}
        constants = {item.name: bound[item.name] for item in self.params if item.is_constexpr}
        signature = {
            name: "constexpr" if name in constants else _type(bound[name]) for name in names
        }
        options = {key: kwargs[key] for key in OPTIONS if key in kwargs}
        try:
            triton.compile(ASTSource(self, signature, constants), target=target, options=options)
        except Exception as error:  # noqa: BLE001 - reported, and the test fails on it
            report[current] = f"{self.fn.__name__}: {type(error).__name__}: {error}"[:800]

    JITFunction.run = compile_launch
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem == "__init__":
            continue
        current = path.stem
        report[current] = ""
        example = importlib.import_module(f"agentkernel.knowledge.kernels.{path.stem}")
        model = example.ModelNew(*getattr(example, "get_init_inputs", list)())
        with torch.no_grad():
            model(*example.get_inputs())
    print(json.dumps(report))


def _type(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{SHORT[value.dtype]}"
    return "fp32" if isinstance(value, float) else "i32"


if __name__ == "__main__":
    main()
