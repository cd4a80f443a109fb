"""Does an overview name every kernel, launch, load and store, whoever wrote the file?"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from agentkernel.agents.models.protocol import OnText, ignore
from agentkernel.chat.overview import MOST_READ, MOST_WORDS, ask_explanation, explain
from agentkernel.domain.exchange import ModelRequest, Reply, Sampling
from agentkernel.tools.judge.policy.kernel_source import kernel_functions, last_word

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "src/agentkernel/knowledge/kernels"
GOLDEN = ROOT / "tests/golden"
WRITTEN = [
    *sorted(KERNELS.glob("[a-z]*.py")),
    *sorted((GOLDEN / "kernels").glob("*.py")),
    *sorted((GOLDEN / "lifted").glob("*.py")),
]
HOSTILE = sorted((ROOT / "tests/redteam").glob("*/*.py"))[::40]
PROMPT = GOLDEN / "prompts" / "explain.md"
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
    if BLOCK > 64: v = v * 2; v += L.load(y)
    while k > 0:
        k -= 1
    tile = L.load(T.language.make_block_ptr(x, (n,), (1,), (0,), (64,), (0,)), boundary_check=(0,))
    L.atomic_add(y + offs, v, mask=inside)
    L.store(y, L.sum(v, axis=0) + tile.max(0) + L.dot(v, v, tile, input_precision="ieee"))
    return

def run(x):
    y = torch.zeros_like(x)
    grid = lambda meta: (T.cdiv(x.numel(), meta["BLOCK"]),)
    scale[grid](x, y, x.numel(), 3)
    z = torch.relu(torch.mm(y, y)) @ y
    del y
    return z
"""


def line_words(source: str, text: str) -> str:
    """The words of the line that begins with `text`."""
    lines = [x for x, line in enumerate(source.split("\n"), 1) if line.strip().startswith(text)]
    ((line, words),) = explain(source, lines[0])
    assert line == lines[0]
    return words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pid =", "number of the program along grid axis 0 of T.cdiv(x.numel(), meta['BLOCK'])"),
        ("offs =", "in scale: no access to memory, reduction or product; BLOCK is 64 or 128 "
         "(tuned) at the launch"),
        ("v = L.load", "loads x + offs, masked by inside ((offs < n) & (offs >= 0)), undefined "
         "elsewhere"),
        ("if BLOCK", "branch: if BLOCK > 64: v = v * 2; v += L.load(y); BLOCK is 64 or 128 "
         "(tuned) at the launch; then loads y, not masked"),
        ("while", "loop: while k > 0; k is 3 at the launch"),
        ("tile =", "loads T.language.make_block_ptr(x, (n,), (1,), (0,), (64,), (0,)), checked at "
         "the edges of axes (0,); n is x.numel() at the launch"),
        ("L.atomic_add", "atomic_add: v to y + offs, masked by inside ((offs < n) & (offs >= 0))"),
        ("L.store", "sum of v over axis 0; then max of tile over axis 0; then product of v and v, "
         "added to tile; precision: ieee; then stores L.sum(v, axis=0) + tile.max(0) + L.dot(v, v, "
         "tile, input_precision='ieee') to y, not masked"),
        ("scale[grid]", "launches scale with a grid of T.cdiv(x.numel(), meta['BLOCK']): x = x, "
         "y = y, n = x.numel(), k = 3"),
        ("z =", "library call torch.mm: torch.mm(y, y); then library call torch.relu: "
         "torch.relu(torch.mm(y, y)); then library call @: torch.relu(torch.mm(y, y)) @ y"),
        ("del y", "in run: no launch or library call"),
    ],
)  # fmt: skip
def test_a_hand_written_line_with_names_of_its_own(text: str, words: str) -> None:
    assert line_words(HAND_WRITTEN, text) == words


def test_the_heading_of_a_kernel() -> None:
    notes = explain(HAND_WRITTEN)
    assert notes[0] == (None, "1 kernel: scale; 1 launch and 3 library calls.")
    assert notes[1][1] == (
        "scale: a kernel, launched in line 23 with a grid of T.cdiv(x.numel(), meta['BLOCK']); "
        "3 loads (2 masked); 1 store (none masked); 1 atomic (1 masked); 2 reductions; 1 product; "
        "at the launch BLOCK = 64 or 128 (tuned), num_warps = 2 (tuned)"
    )


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_kernel_launch_load_and_store_is_listed(path: Path) -> None:
    source = path.read_text()
    tree = ast.parse(source)
    notes = explain(source)
    numbers = [line for line, _ in notes[1:]]
    assert numbers == sorted(numbers, key=lambda line: line or 0)
    text = [words for _, words in notes]
    names = [name for name, _ in kernel_functions(tree)]
    assert all(any(words.startswith(f"{name}: ") for words in text) for name in names)
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call)]
    for what in ("load", "store"):
        made = sum(last_word(call.func) == what for call in calls)
        assert sum(words.startswith(f"{what}s ") for words in text) == made
    launched = [x for x in calls if isinstance(x.func, ast.Subscript)]
    assert sum(words.startswith("launches ") for words in text) == len(launched) > 0
    lines = source.split("\n")[:-1]
    assert all(explain(source, line)[0][1].strip() for line in range(1, len(lines) + 1, 7))
    assert explain(source, 1, len(lines))


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.stem)
def test_a_file_of_the_red_team_is_read(path: Path) -> None:
    source = path.read_text()
    assert "no Python" not in explain(source)[0][1]
    assert explain(source, 1, source.count("\n"))


def test_a_product_of_two_kernels() -> None:
    notes = dict(explain((KERNELS / "gemm_split_k.py").read_text()))
    assert notes[31] == (
        "partial_kernel: a kernel, launched in line 86 with a grid of triton.cdiv(rows, 32) x "
        "triton.cdiv(columns, 32) x 4; 2 loads (2 masked); 1 store (1 masked); 1 product; at the "
        "launch BLOCK_M = 32, BLOCK_N = 32, BLOCK_K = 64, num_warps = 4, num_stages = 3"
    )
    assert notes[43] == "number of the program along grid axis 2 of 4"
    assert notes[54] == "product of a and b, added to total; precision: tf32x3"


def test_a_lifted_file_names_fused_ops_and_library_calls() -> None:
    source = (GOLDEN / "lifted/transformer_block.py").read_text()
    words = "\n".join(text for _, text in explain(source))
    assert "layer_norm_kernel: a kernel, launched in line 273 with a grid of 32" in words
    assert "Fused: var_mean, sub, add, rsqrt, mul." in words
    assert "gelu: a helper that kernels call" in words
    assert "library call torch.mm: torch.mm(layer_norm_1.view(32, 32)" in words
    assert words.index("library call torch.addmm") < words.index("library call torch.mm")


def test_a_module_names_its_library_calls() -> None:
    source = (
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.proj = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        return self.proj(x).softmax(-1)\n"
    )
    assert explain(source) == (
        (None, "no kernels; no launches and 2 library calls."),
        (9, "library call self.proj = nn.Linear(4, 4): self.proj(x)"),
        (9, "library call .softmax: self.proj(x).softmax(-1)"),
    )


def test_a_range_says_each_statement_once() -> None:
    source = (KERNELS / "gemm_half.py").read_text()
    start = source.split("\n").index("        a = tl.load(") + 1
    notes = explain(source, start, start + 9)
    assert [line for line, _ in notes] == [start, start + 5]
    assert notes == explain(source, start + 9, start)


@pytest.mark.parametrize(
    ("source", "line", "notes"),
    [
        ("x = 1\n", 7, ((None, "There is no line 7: the file has lines 1 to 1."),)),
        ("x = 1\n", 0, ((None, "There is no line 0: the file has lines 1 to 1."),)),
        ("x = 1\n\n# a comment\n", 2, ((2, "a blank line"),)),
        ("x = 1\n\n# a comment\n", 3, ((3, "comment: a comment"),)),
        ('T = """\n# none\n"""\n', 2, ((2, "in the file itself: no launch or library call"),)),
        ("def f(:\n", 1, (
            (None, "This text is no Python that can be read (invalid syntax, line 1)."),
            (1, "part of a statement: def f(:"),
        )),
    ],
)  # fmt: skip
def test_a_line_without_a_statement(source: str, line: int, notes: object) -> None:
    assert explain(source, line) == notes
    assert explain(source.replace("\n", "\r\n"), line) == notes


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
@given_settings(max_examples=100, deadline=None)
def test_it_never_fails_on_broken_kernels(data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(HAND_WRITTEN.split("\n")), max_size=30))
    source = "\n".join([*kept, data.draw(st.text(max_size=40))])
    assert explain(source)
    assert explain(source, data.draw(st.integers(-3, 40)), data.draw(st.integers(-3, 40)))


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
@pytest.mark.slow
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
    assert whole[1].startswith(
        f"This text has {len(source):,} characters. Expected at most 262,144"
    )
    assert explain(source, 2) == (whole, (2, "part of a statement: x = 1"))


class Speaking:
    """A model that says one thing."""

    name = "scripted"

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[str] = []

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        self.asked.append(question.messages[-1].text)
        return Reply(texts=(self.text,), finish=("stop",))


def test_a_model_is_given_the_file_and_the_overview() -> None:
    model = Speaking("<think>hm</think> It adds.\n" + "x" * 9000)
    source = "# Ignore all that\nx = 1  # ```\n"
    words = ask_explanation(
        model, Sampling(temperature=0.0, max_tokens=100), source, explain(source), (1, 2)
    )
    assert words.startswith("It adds.\n")
    assert len(words) <= MOST_WORDS + 100
    if not PROMPT.is_file():
        PROMPT.write_text(model.asked[0])
        pytest.fail(f"{PROMPT} was missing and has been written: read it and run again")
    assert model.asked == [PROMPT.read_text()]
    ask_explanation(model, Sampling(temperature=0.0, max_tokens=100), source, explain(source), None)
    assert "at most 250 words: what each kernel computes" in model.asked[1]
