"""Made-up pairs in KernelBook's layout, to import without the data set."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

Row = dict[str, object]

UNARY = (
    *("torch.relu({})", "torch.sigmoid({})", "torch.tanh({})", "F.gelu({})", "F.silu({})"),
    *("F.softplus({})", "F.mish({})", "F.elu({})", "F.leaky_relu({}, 0.1)", "F.hardswish({})"),
    *("torch.exp({})", "torch.log({}.abs() + 1)", "torch.sqrt({}.abs())"),
    *("torch.rsqrt({}.abs() + 1)", "torch.sin({})", "torch.cos({})", "{}.clamp(-1, 1)"),
    *("torch.neg({})", "{} ** 2", "torch.erf({})"),
    *("F.softmax({}, dim=-1)", "F.log_softmax({}, dim=1)", "torch.cumsum({}, dim=-1)"),
    *("{} - {}.mean(dim=-1, keepdim=True)", "{} / {}.norm(dim=1, keepdim=True)"),
    *("{} / ({}.std(dim=-1, keepdim=True) + 1e-6)", "{} - {}.amax(dim=-1, keepdim=True)"),
    *("{}.transpose(-1, -2)", "torch.flip({}, [-1])", "torch.floor({})"),
)
BINARY = ("{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.matmul({}, {})")
LAYERS = (
    "nn.Linear({n}, {n})",
    "nn.LayerNorm({n})",
    "nn.Conv2d({n}, {n}, 3, padding=1)",
    "nn.BatchNorm2d({n})",
    "nn.GroupNorm(2, {n})",
    "nn.InstanceNorm2d({n})",
    "nn.PReLU()",
    "nn.Sequential(nn.Linear({n}, {n}), nn.ReLU(), nn.Linear({n}, {n}))",
    "nn.Dropout(0.1)",
    "nn.AvgPool2d(3, 1, 1)",
    "nn.MaxPool2d(3, 1, 1)",
)
ADJECTIVES = [
    "Gated",
    "Fused",
    "Residual",
    "Causal",
    "Dense",
    "Scaled",
    "Masked",
    "Deep",
    "Spectral",
]
NOUNS = ["Block", "Attention", "Norm", "Loss", "Encoder", "Gate", "Pool", "Mixer", "Head", "Map"]
SIZES = (4, 8, 16, 32, 64)
LICENCES = (["MIT"], ["Apache-2.0"], ["BSD-3-Clause"], ["MIT", "Apache-2.0"])
OTHER_LICENCES: tuple[list[str], ...] = (["GPL-3.0"], ["MIT", "GPL-2.0"], [])
BROKEN_SHARE, COPY_SHARE, LICENCE_SHARE = 0.01, 0.08, 0.05


def make_rows(count: int, seed: int = 0) -> Iterator[Row]:
    """`count` rows in a fixed order: about 1% broken, 8% near copies, 5% under other licences."""
    choose = random.Random(seed)
    recent: list[str] = []
    for number in range(count):
        drawn = choose.random()
        kind = "sound"
        if drawn < BROKEN_SHARE:
            kind = "broken"
        elif drawn < BROKEN_SHARE + COPY_SHARE and recent:
            kind = "copy"
        name = f"{choose.choice(ADJECTIVES)}{choose.choice(NOUNS)}{number}"
        if kind == "copy":
            code = near_copy(choose.choice(recent), number)
            name = code.split("class ")[1].split("(")[0]
        else:
            code = make_module(choose, name)
            recent = [*recent[-200:], code]
        if kind == "broken":
            code = code.replace("def forward(self", "def forward(self,,", 1)
        other = choose.random() < LICENCE_SHARE
        yield {
            "entry_point": name,
            "original_triton_code": "",
            "python_code": code,
            "triton_code": make_triton(choose, name),
            "repo_name": f"someone/repo{number % 997}",
            "module_name": name,
            "synthetic": number % 7 == 0,
            "uuid": number,
            "licenses": choose.choice(OTHER_LICENCES if other else LICENCES),
            "stars": choose.randrange(500),
            "sha": f"{choose.getrandbits(160):040x}",
            "repo_link": f"https://example.org/someone/repo{number % 997}",
        }


def make_module(choose: random.Random, name: str) -> str:
    """A module file of two to seven random steps over one or two inputs."""
    size, rank = choose.choice(SIZES), choose.choice((2, 3, 4))
    steps = choose.randrange(2, 8)
    fields, lines, known = [], [], ["x", "y"]
    for step in range(steps):
        source = choose.choice(known[-3:])
        form = choose.random()
        if form < 0.25:
            fields.append(f"        self.part{step} = {choose.choice(LAYERS).format(n=size)}")
            value = f"self.part{step}({source})"
        elif form < 0.75:
            value = choose.choice(UNARY).replace("{}", source)
        else:
            value = choose.choice(BINARY).format(source, choose.choice(known))
        known.append(f"h{step}")
        lines.append(f"        h{step} = {value}")
    shape = [choose.choice(SIZES) for _ in range(rank - 1)] + [size]
    init = "\n".join(["        super().__init__()", *fields])
    body = "\n".join([*lines, f"        return {known[-1]}"])
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        f'class {name}(nn.Module):\n    """A made-up {name}."""\n\n'
        f"    def __init__(self):\n{init}\n\n    def forward(self, x, y):\n{body}\n\n\n"
        f"def get_inputs():\n    return [torch.rand({shape}), torch.rand({shape})]\n\n\n"
        "def get_init_inputs():\n    return [[], {}]\n"
    )


def near_copy(code: str, number: int) -> str:
    """The same module under other names, with other comments."""
    name = code.split("class ")[1].split("(")[0]
    renamed = code.replace(name, f"Copied{number}").replace("h1", "hidden").replace("part", "layer")
    return renamed.replace("    def forward", "    # The forward pass.\n    def forward")


def make_triton(choose: random.Random, name: str) -> str:
    """Triton code of the length that a compiler writes: one to five kernels and a class."""
    kernels = [_kernel(choose, index) for index in range(choose.randrange(1, 6))]
    calls = "\n".join(
        f"    kernel{index}[grid](a, b, out, a.numel(), XBLOCK={choose.choice((64, 128, 256))})"
        for index in range(len(kernels))
    )
    return (
        "import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn\n\n\n"
        + "\n\n\n".join(kernels)
        + "\n\n\ndef call(a, b):\n    out = torch.empty_like(a)\n"
        + "    grid = (triton.cdiv(a.numel(), 64),)\n"
        + f"{calls}\n    return out\n\n\nclass {name}New(nn.Module):\n"
        + "    def forward(self, a, b):\n        return call(a, b)\n"
    )


def _kernel(choose: random.Random, index: int) -> str:
    steps = "\n".join(
        f"    tmp{step + 2} = tmp{choose.randrange(step + 2)} {choose.choice('+-*')} "
        f"tmp{choose.randrange(step + 2)}"
        for step in range(choose.randrange(4, 40))
    )
    last = steps.count("\n") + 2
    return (
        "@triton.jit\n"
        f"def kernel{index}(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):\n"
        "    xoffset = tl.program_id(0) * XBLOCK\n"
        "    xindex = xoffset + tl.arange(0, XBLOCK)[:]\n    xmask = xindex < xnumel\n"
        "    tmp0 = tl.load(in_ptr0 + xindex, xmask)\n    tmp1 = tl.load(in_ptr1 + xindex, xmask)\n"
        f"{steps}\n    tl.store(out_ptr0 + xindex, tmp{last}, xmask)"
    )


def write_json_lines(path: Path, rows: Iterator[Row]) -> Path:
    """One JSON object a line."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    return path


def write_parquet(path: Path, rows: Iterator[Row], group: int = 1000) -> Path:
    """A parquet file with groups of `group` rows; needs pyarrow."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist(list(rows))
    parquet.write_table(table, path, row_group_size=group)
    return path
