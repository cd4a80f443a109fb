"""Does every line of a kernel get words, and the right ones?"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from agentkernel.chat.explain.listing import MOST_READ, explain

ROOT = Path(__file__).parents[2]
PACKAGED = sorted((ROOT / "src/agentkernel/knowledge/kernels").glob("[a-z]*.py"))
GENERATED = sorted((ROOT / "tests/golden/kernels").glob("*.py"))
LIFTED = sorted((ROOT / "tests/golden/lifted").glob("*.py"))
HAND_WRITTEN = """import torch
import triton as T
from triton import language as L

@T.autotune(configs=[T.Config({"BLOCK": 64}, num_warps=2), T.Config({"BLOCK": 128})], key=["n"])
@T.jit
def scale(x, y, n, k, BLOCK: L.constexpr):
    pid = L.program_id(axis=0)
    offs = pid * BLOCK + L.arange(0, BLOCK)
    inside = (offs < n) & (offs >= 0)
    v = L.load(x + offs, mask=inside)
    if BLOCK > 64: v = v * 2; v += 1.0
    while k > 0:
        k -= 1
    L.atomic_add(y + offs, v, mask=inside)
    L.debug_barrier()
    return

def run(x):
    y = torch.zeros_like(x)
    grid = lambda meta: (T.cdiv(x.numel(), meta["BLOCK"]),)
    scale[grid](x, y, x.numel(), 3)
    z = torch.relu(torch.mm(y, y)) @ y
    del y
    return z
"""


def line_words(source: str, text: str, place: int = 0) -> str:
    """The words of the line that reads `text`."""
    lines = [number for number, line in enumerate(source.split("\n"), 1) if line.strip() == text]
    ((line, words),) = explain(source, lines[place])
    assert line == lines[place]
    return words


EXACT = [
    ("layernorm", "@triton.jit", "compiles the function below for the GPU, with Triton"),
    (
        "layernorm",
        "row = tl.program_id(0).to(tl.int64)",
        "row: the number of this program along grid axis 0 of x.numel() // columns, "
        "converted to int64",
    ),
    (
        "layernorm",
        "column = tl.arange(0, BLOCK)",
        "column: the BLOCK column indices 0 to BLOCK - 1; "
        "BLOCK is triton.next_power_of_2(columns) at the launch",
    ),
    (
        "layernorm",
        "mask = column < columns",
        "mask: true where column < columns (inside the tensor's edges); "
        "columns is x.shape[-1] at the launch",
    ),
    (
        "layernorm",
        "mean = tl.sum(x, axis=0) / columns",
        "mean: sum of x over axis 0 of the tile, divided by columns; "
        "columns is x.shape[-1] at the launch",
    ),
    (
        "layernorm",
        "centred = tl.where(mask, x - mean, 0.0)",
        "centred: x - mean where mask, elsewhere 0.0",
    ),
    (
        "layernorm",
        "y = centred / tl.sqrt(variance + eps) * weight + bias",
        "y: computed as centred / tl.sqrt(variance + eps) * weight + bias, "
        "with weight from weight_ptr, bias from bias_ptr; eps is self.norm.eps at the launch",
    ),
    (
        "layernorm",
        "tl.store(out_ptr + row * columns + column, y, mask=mask)",
        "writes y to out_ptr (out at the launch) at row * columns + column where mask; "
        "columns is x.shape[-1] at the launch",
    ),
    (
        "layernorm",
        "self.norm.weight,",
        "passed to layernorm_kernel: self.norm.weight as weight_ptr",
    ),
    ("layernorm", "num_warps=8,", "passed to layernorm_kernel: num_warps = 8"),
    ("layernorm", "import triton.language as tl", "makes triton.language as tl available here"),
    ("layernorm", "from torch import nn", "makes nn of torch available here"),
    (
        "layernorm",
        "class ModelNew(Model):",
        "ModelNew: the drop-in that replaces the module, made from Model",
    ),
    (
        "layernorm",
        "super().__init__()",
        "sets up what nn.Module (or the class above) needs",
    ),
    (
        "layernorm",
        "self.norm = nn.LayerNorm(columns)",
        "self.norm: a layer LayerNorm of torch with (columns), its parameters used below",
    ),
    (
        "layernorm",
        "return self.norm(x)",
        "gives back the result of the library call self.norm, made as nn.LayerNorm(columns): "
        "self.norm(x)",
    ),
    (
        "layernorm",
        "x = x.contiguous()",
        "x: x without gaps in memory, copied only if it has some",
    ),
    ("layernorm", "columns = x.shape[-1]", "columns: the size of the last dimension of x"),
    (
        "layernorm",
        "out = torch.empty_like(x)",
        "out: room for a result like x; what is in it is undefined",
    ),
    ("layernorm", "return out", "gives back out"),
    ("layernorm", "def get_inputs():", "get_inputs: example inputs for forward"),
    (
        "gemm_half",
        "tiles_m, tiles_n = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)",
        "tiles_m: how many blocks of BLOCK_M cover rows; tiles_n: how many blocks of BLOCK_N cover "
        "columns; rows is x.numel() // depth, BLOCK_M is 128, columns is b.shape[0] at the launch",
    ),
    (
        "gemm_half",
        "tile_n = (program % (GROUP * tiles_n)) // height",
        "tile_n: a coordinate of this program's tile: program % (GROUP * tiles_n) // height; "
        "GROUP is 8 at the launch",
    ),
    (
        "gemm_half",
        "row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)",
        "row: the BLOCK_M row indices of this program's tile, converted to int64; "
        "BLOCK_M is 128 at the launch",
    ),
    (
        "gemm_half",
        "total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)",
        "total: begins as a block (BLOCK_M, BLOCK_N) of zeros in float32; a loop carries it on; "
        "BLOCK_M is 128, BLOCK_N is 128 at the launch",
    ),
    (
        "gemm_half",
        "for start in range(0, depth, BLOCK_K):",
        "loop: start goes from 0 up to depth in steps of BLOCK_K; "
        "depth is x.shape[-1], BLOCK_K is 64 at the launch",
    ),
    (
        "gemm_half",
        "k = start + tl.arange(0, BLOCK_K)",
        "k: the BLOCK_K inner-dimension indices of the block that begins at start; "
        "BLOCK_K is 64 at the launch",
    ),
    (
        "gemm_half",
        "a_ptr + row[:, None] * depth + k[None, :],",
        "a: read from a_ptr (x at the launch) at row[:, None] * depth + k[None, :] where "
        "(row < rows)[:, None] & (k < depth)[None, :], 0.0 elsewhere; "
        "depth is x.shape[-1], rows is x.numel() // depth at the launch",
    ),
    (
        "gemm_half",
        "total = tl.dot(a, b, total)",
        "total, carried on: matrix product of a and b, added to total; precision of the operands' "
        "type (fp32 operands: TF32, Triton's default)",
    ),
    ("gemm_half", "BLOCK_M: tl.constexpr,", "BLOCK_M: compile-time constant, 128 at the launch"),
    ("gemm_half", "rows,", "rows: argument, x.numel() // depth at the launch"),
    (
        "gemm_split_k",
        'total = tl.dot(a, b, total, input_precision="tf32x3")',
        "total, carried on: matrix product of a and b, added to total; "
        "precision tf32x3: three TF32 products, close to fp32",
    ),
    (
        "gemm_split_k",
        "piece = tl.program_id(2)",
        "piece: the number of this program along grid axis 2 of 4",
    ),
    (
        "softmax_online",
        "highest = tl.max(top, axis=0)",
        "highest: maximum of top over axis 0 of the tile",
    ),
    ("softmax_online", "higher = tl.maximum(top, x)", "higher: the larger of top and x"),
    ("softmax_online", "top = higher", "top: the same as higher"),
    (
        "attention_flash",
        "fade = tl.exp(top - higher)",
        "fade: e to the power of top - higher",
    ),
    (
        "upsample_nearest",
        "offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "offsets: the BLOCK element indices of this program's tile; BLOCK is 512 at the launch",
    ),
    (
        "upsample_nearest",
        "column = offsets % (2 * width)",
        "column: a coordinate of each element: offsets % (2 * width); "
        "width is x.shape[3] at the launch",
    ),
    (
        "row_argmax",
        "tl.store(out_ptr + row, tl.argmax(x, axis=0).to(tl.int64))",
        "writes index of the maximum of x over axis 0 of the tile, converted to int64, to out_ptr "
        "(out at the launch) at row, without a mask",
    ),
    (
        "full_sum",
        "part = torch.empty(parts, dtype=torch.float32, device=x.device)",
        "part: room for a result of shape parts; what is in it is undefined",
    ),
]


@pytest.mark.parametrize(("kernel", "text", "words"), EXACT)
def test_a_packaged_line(kernel: str, text: str, words: str) -> None:
    source = (ROOT / f"src/agentkernel/knowledge/kernels/{kernel}.py").read_text()
    assert line_words(source, text) == words


HAND = [
    ("offs = pid * BLOCK + L.arange(0, BLOCK)", "offs: the BLOCK element indices of this program's "
     "tile; BLOCK is 64 or 128 (tuned) at the launch"),
    ("inside = (offs < n) & (offs >= 0)", "inside: true where offs < n and offs >= 0 (inside the "
     "tensor's edges); n is x.numel() at the launch"),
    ("v = L.load(x + offs, mask=inside)", "v: read from x at offs where inside, undefined "
     "elsewhere"),
    ("if BLOCK > 64: v = v * 2; v += 1.0", "only if BLOCK > 64, decided when compiled; BLOCK is "
     "64 or 128 (tuned) at the launch; then v: computed as v * 2, with v from x; then adds to v: "
     "1.0"),
    ("while k > 0:", "repeats while k > 0; k is 3 at the launch"),
    ("k -= 1", "takes from k: 1"),
    ("L.atomic_add(y + offs, v, mask=inside)", "adds v, atomically, at y at offs (programs come "
     "in any order)"),
    ("L.debug_barrier()", "waits until all threads of the program are here"),
    ("return", "ends this program"),
    ("y = torch.zeros_like(x)", "y: zeros in the shape of x"),
    ("del y", "lets go of y, so that its memory can be used again"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), HAND)
def test_a_hand_written_line_with_names_of_its_own(text: str, words: str) -> None:
    assert line_words(HAND_WRITTEN, text) == words


@pytest.mark.parametrize("path", [*PACKAGED, *GENERATED, *LIFTED], ids=lambda path: path.stem)
def test_every_line_gets_words(path: Path) -> None:
    source = path.read_text()
    for number, text in enumerate(source.split("\n")[:-1], start=1):
        ((line, words),) = explain(source, number)
        assert line == number
        assert words.strip()
        assert not words.startswith("part of a statement"), text


@pytest.mark.parametrize("path", [*PACKAGED, *GENERATED, *LIFTED], ids=lambda path: path.stem)
def test_the_whole_names_every_kernel_and_launch_in_the_order_of_the_file(path: Path) -> None:
    source = path.read_text()
    notes = explain(source)
    assert notes[0][0] is None
    numbers = [line for line, _ in notes[1:] if line is not None]
    assert numbers == sorted(numbers)
    text = "\n".join(words for _, words in notes)
    for name in (line for line in source.split("\n") if line.startswith("def ")):
        kernel = name.removeprefix("def ").partition("(")[0]
        if kernel not in ("get_inputs", "get_init_inputs"):
            assert kernel in text
    launched = re.findall(r"^\s+\w+\[.*\]\($|^\s+\w+\[.*,\)\]\(|^\s+\w+\[grid\]\(", source, re.M)
    assert text.count(": launches ") == len(launched) > 0


def test_the_whole_of_a_product() -> None:
    source = (ROOT / "src/agentkernel/knowledge/kernels/gemm_split_k.py").read_text()
    notes = dict.fromkeys(words for _, words in explain(source))
    assert (
        "partial_kernel: a kernel, launched in line 86 with triton.cdiv(rows, 32) x "
        "triton.cdiv(columns, 32) x 4 programs"
    ) in notes
    assert "grid axis 0: one program a tile of BLOCK_M (row)" in notes
    assert "grid axis 2: one program for each piece" in notes
    assert (
        "at the launch: BLOCK_M = 32, BLOCK_N = 32, BLOCK_K = 64, num_warps = 4, num_stages = 3"
    ) in notes
    assert (
        "step 2 of 2: launches add_parts_kernel with triton.cdiv(out.numel(), 512) programs"
    ) in notes, "its constants stand at the kernel"


def test_the_whole_of_a_lifted_file_names_fused_ops_and_library_calls() -> None:
    source = next(path for path in LIFTED if path.stem == "transformer_block").read_text()
    words = "\n".join(text for _, text in explain(source))
    assert "layer_norm_kernel: a kernel, launched in line 320 with 32 programs" in words
    assert "Fused: var_mean, sub, add, rsqrt, mul." in words
    assert "exp: a helper that kernels call" in words
    assert "library call torch.mm: torch.mm(layer_norm.view(32, 32)" in words
    assert words.index("library call torch.mm") < words.index("library call torch.bmm")


def test_the_whole_of_a_module_names_its_library_calls() -> None:
    source = (
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.proj = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        return self.proj(x).softmax(-1)\n"
    )
    assert explain(source)[1:] == (
        (9, "step 1 of 2: library call self.proj, made as nn.Linear(4, 4): self.proj(x)"),
        (9, "step 2 of 2: library call .softmax: self.proj(x).softmax(-1)"),
    )
    assert explain(source)[0][1] == "no kernels; no launches and 2 library calls."


def test_what_stands_inside_a_call_runs_before_it() -> None:
    steps = [words for _, words in explain(HAND_WRITTEN) if words.startswith("step")]
    assert [words.partition(": ")[2].partition(":")[0] for words in steps] == [
        "launches scale with T.cdiv(x.numel(), meta['BLOCK']) programs",
        "library call torch.mm",
        "library call torch.relu",
        "library call of a matrix product",
    ]


def test_a_range_says_each_statement_once() -> None:
    source = (ROOT / "src/agentkernel/knowledge/kernels/gemm_half.py").read_text()
    start = source.split("\n").index("        a = tl.load(") + 1
    notes = explain(source, start, start + 9)
    assert [line for line, _ in notes] == [start, start + 5]
    assert notes == explain(source, start + 9, start)


def test_a_line_that_is_not_there_is_named() -> None:
    assert explain("x = 1\n", 7) == ((None, "There is no line 7: the file has lines 1 to 1."),)
    assert explain("x = 1\n", 0)[0][0] is None


def test_text_that_is_no_python_is_described_by_its_form() -> None:
    notes = explain("x = (1,\ndef f(:\n# note\n\n)\nfoo bar\n", 2)
    assert notes[0][0] is None
    assert "no Python" in notes[0][1]
    assert notes[1] == (2, "a line that begins with def: def f(:")
    words = [explain("def f(:\n# note\n\n)\nfoo bar\nx = 3\n", line)[1][1] for line in range(2, 7)]
    assert words == [
        "comment: note",
        "a blank line, which separates",
        "closes what was opened above",
        "part of a statement: foo bar",
        "gives x a value: x = 3",
    ]
    assert len(explain("def f(:")) == 1


def test_a_comment_sign_inside_a_string_is_no_comment() -> None:
    source = 'TEXT = """\n# not a comment\n"""\nx = 1  # one\n# a comment\n'
    assert explain(source, 2)[0][1].startswith("TEXT: ")
    assert explain(source, 5) == ((5, "comment: a comment"),)


def test_windows_line_ends_change_no_line() -> None:
    source = HAND_WRITTEN
    assert explain(source.replace("\n", "\r\n"), 9) == explain(source, 9)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "\x00",
        "\ufeffx = 1",
        "x = " + "+".join("1" * 5000),
        "x = " + "(" * 300 + ")" * 300,
        "@triton.jit\ndef k(): pass\nk[0]()",
        "@triton.jit\ndef k(*a, **b):\n    tl.load()\n    tl.store()\n    tl.sum()\n"
        "    tl.dot()\n    tl.where()\n    tl.arange()\n    tl.program_id(a)\n    tl.full()\n"
        "    x = y = tl.maximum()\n    (a, b), *c = tl.exp()\n    tl.advance()\n    x.to()\n",
        "def f():\n    k[*g](*a, **b)\n    torch.full(1)\n    torch.empty()\n    nn.Parameter()",
    ],
)
def test_it_never_fails(source: str) -> None:
    assert explain(source)
    for line in range(1, source.count("\n") + 2):
        assert explain(source, line)


@given(st.data())
@given_settings(max_examples=150, deadline=None)
def test_it_never_fails_on_broken_kernels(data: st.DataObject) -> None:
    lines = HAND_WRITTEN.split("\n")
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=30))
    noise = data.draw(st.text(max_size=40))
    source = "\n".join([*kept, noise])
    assert explain(source)
    assert explain(source, data.draw(st.integers(-3, 40)), data.draw(st.integers(-3, 40)))


def test_a_line_that_moves_pointers_names_the_argument() -> None:
    source = next(path for path in GENERATED if path.stem == "linear_gelu").read_text()
    assert line_words(source, "a_ptrs += BLOCK_K") == (
        "moves a_ptrs (addresses in a_ptr (x at the launch)) on by BLOCK_K elements; "
        "BLOCK_K is 64 at the launch"
    )


KERNEL = """
@triton.jit
def kernel_{0}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def launch_{0}(x):
    n = x.numel()
    kernel_{0}[(n,)](x, x, n, BLOCK=64)
"""


def many_kernels(count: int) -> str:
    return "import torch" + "".join(KERNEL.format(number) for number in range(count))


def many_launches(count: int) -> str:
    calls = "".join(
        f"    n = x.size({at})\n    kernel_0[(n,)](x, x, n, BLOCK=64)\n" for at in range(count)
    )
    return f"{KERNEL.format(0)}\n\ndef forward(x):\n{calls}"


@pytest.mark.parametrize("made", [many_kernels, many_launches])
def test_four_times_the_text_takes_no_sixteen_times_the_calls(made: Callable[[int], str]) -> None:
    """Counted, not timed: whoever walks the file once a kernel makes sixteen times as many."""

    def calls(count: int) -> int:
        seen = 0

        def note(frame: object, event: str, argument: object) -> None:
            nonlocal seen
            seen += event == "call"

        source = made(count)
        sys.setprofile(note)
        try:
            explain(source)
            explain(source, 1, 20)
        finally:
            sys.setprofile(None)
        return seen

    assert calls(80) < 6 * calls(20)


def test_of_many_launches_the_first_few_are_told() -> None:
    ((_, told),) = explain(many_launches(30), 5)
    assert told.endswith("x.size(5) or x.size(6) or 23 more at the launch")


def test_a_text_past_the_bound_is_one_line() -> None:
    source = "x = 1\n" * (MOST_READ // 6 + 1)
    (whole,) = explain(source)
    assert whole[0] is None
    assert whole[1].startswith(
        f"This text has {len(source):,} characters. Expected at most 262,144"
    )
    assert explain(source, 2) == (whole, (2, "gives x a value: x = 1"))


def test_the_whole_of_a_running_maximum_shows_what_is_carried_on_and_nothing_twice() -> None:
    source = (ROOT / "tests/golden/kernels/softmax.py").read_text()
    lines = source.split("\n")
    found = [(lines[line - 1].strip(), words) for line, words in explain(source) if line]
    told = dict(found)
    assert told['shift = tl.where(new_max == -float("inf"), 0.0, new_max)'].startswith("shift: ")
    assert told["row_max = new_max"] == "row_max: the same as new_max"
    assert told["softmax = exp(x - row_max) * scale"].startswith("softmax: "), "what is written"
    assert any(words.startswith("lane_sum, carried on: ") for words in told.values())
    assert not any(line.startswith("col = ") for line in told), "no value of the turn before"
    every = [words for _, words in found]
    assert len(set(every)) == len(every)
    assert [words for words in every if "again as in line" in words] == [
        f"loop: again as in line {lines.index(next(x for x in lines if 'for start' in x)) + 1}",
        f"x: again as in line {lines.index(next(x for x in lines if 'x = tl.load' in x)) + 1}",
    ]
