"""Do the pictures of a session say the same on a wide screen, a narrow one and in a pipe?"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from agentkernel.agents.models.costs import Account, Ledger
from agentkernel.chat.replies import (
    ClarificationNeeded,
    Compared,
    Cost,
    DiffOf,
    EditRequested,
    Explained,
    FilesWritten,
    KnowledgeFound,
    Planned,
    PositionChanged,
    Profiled,
    Reply,
    Roofline,
    RooflinePoint,
    SessionEnded,
    Source,
    StepRan,
    TextReply,
    TreeShown,
)
from agentkernel.chat.requests import Suggestion
from agentkernel.chat.tree import Branch, Node, Place, Step, Tree
from agentkernel.cli.rendering.candidates import scales
from agentkernel.cli.rendering.replies import place_words, render
from agentkernel.cli.rendering.roofline import chart_of, marks
from agentkernel.cli.rendering.text import escaped, escaped_model, truncate
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.knowledge import Entry, Hit, Score
from agentkernel.domain.plan import Decision, Hypothesis, Plan
from agentkernel.domain.profile import ProfileFailed, Ratio
from agentkernel.workflows.outcome import Result
from tests.workflows.fakes import ANALYSIS, measurement, mismatch, profile, verdict

GOLDEN = Path(__file__).parents[2] / "golden" / "pictures"
CODE = """@triton.jit
def add_one_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + 1.0, mask=mask)
"""
HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202eright[bold]\x00" + "n" * 200


def node(number: int, parent: int | None = None, **changes: object) -> Node:
    candidate = Candidate(source=f"# {number}", coder="compiler", round=1, strategy="rows")
    fields: dict[str, object] = {
        "number": number,
        "parent": parent,
        "step": 1,
        "candidate": candidate,
        "verdict": verdict(candidate),
    }
    return Node.model_validate({**fields, **changes})


def measured(number: int, time_us: float, parent: int | None = None, **changes: object) -> Node:
    made = node(number, parent)
    eager = Ratio(value=170 / time_us, low=1.0, high=2.0)
    compiled = Ratio(value=133 / time_us, low=1.0, high=2.0)
    clock = measurement(eager, compiled, candidate_us=time_us)
    found = {"profile": profile(made.candidate, clock), **changes}
    judged = verdict(made.candidate).evolve(interpreted=False)
    return made.evolve(verdict=judged, **found)


def estimated(number: int, time_us: float, parent: int | None = None) -> Node:
    made = node(number, parent)
    return made.evolve(profile=profile(made.candidate, estimate_us=time_us))


NODES = (
    measured(1, 150.0),
    measured(2, 128.5, 1),
    node(3, 2, step=2, verdict=verdict(node(3).candidate, mismatch())),
    estimated(4, 3.25, 2).evolve(origin="edited", step=2),
    node(5, 1, step=3, verdict=None, aside="3 times slower in the search"),
    node(6, 4, step=3, unprofiled=ProfileFailed(side="gpu", reason="throttled")),
)
PLACE = Place(candidate=2, changes={"goals.precision": "tf32"}, branch=2)
TREE = Tree(
    nodes=NODES,
    steps=(
        Step(number=1, text="go", state="done"),
        Step(number=2, text="allow tf32, and don't stop", base=2, state="done"),
        Step(number=3, text="more aggressive", base=4, state="done"),
    ),
    branches=(
        Branch(number=1, began=Place(), tip=Place(candidate=4)),
        Branch(number=2, began=Place(candidate=2, branch=2), tip=PLACE),
    ),
    places=(Place(), PLACE),
    at=1,
    kept=2,
    rejected=(3,),
)
PLAN = Plan(
    analysis=ANALYSIS,
    hypotheses=(
        Hypothesis(strategy="rows", reason="one program a row", predicted_us=2.5),
        Hypothesis(strategy="split", reason="few rows: split each over several programs"),
        Hypothesis(strategy="lifted", reason="TorchInductor's own kernel"),
    ),
    decisions=(
        Decision(key="row.num_warps", value="8", default="4", because="notes/hopper"),
        Decision(key="row.tile", value="1", default="1", because="default"),
    ),
    retrieved=("notes/hopper", "generated/ab12"),
)
RESULT = Result(
    status="improved",
    reason="1.310x [1.300, 1.320] against eager",
    run="layernorm-1",
    measured=True,
    measured_on="h200",
    candidate="/home/somebody/projects/kernels/runs/layernorm-1/layernorm_optimized.py",
    candidate_sha256="c" * 64,
    certificate=None,
    report=None,
    problem="layernorm",
    target="h100-sxm",
    interpreted=False,
    time_us=130.0,
    eager_us=170.0,
    compiled_us=133.0,
    speedup_vs_eager=1.31,
    speedup_vs_compile=1.02,
    speedup_ci95=(1.01, 1.03),
    roofline_fraction=0.92,
    drafts=2,
    spent_s=12.0,
)
LEDGER = Ledger(
    by_agent=(
        Account(label="coder", questions=3, requests=4, prompt=9000, completion=2500, seconds=31),
        Account(label="planner", questions=1, requests=1, seconds=2.0, cost_usd=0.01),
    ),
    by_round=(),
    by_model=(),
    total=Account(label="total", questions=4, requests=5, prompt=9000, completion=2500, seconds=33),
)
HIT = Hit(
    entry=Entry(
        id="notes/hopper",
        kind="note",
        title="Hopper: rows",
        answer="Use eight warps.\nShort rows want fewer.",
        passages=("Use eight warps.",),
        source="agentkernel",
        licence="Apache-2.0",
    ),
    score=Score(fused=0.031, dense_rank=1),
)
LONG_HIT = HIT.evolve(
    entry=HIT.entry.evolve(
        answer="# Hopper: rows\n\nSources: [CUDA] the guide.\n\n## Warps\n"
        + "A row that is read once wants as many bytes in flight as the latency holds,\n" * 6
        + "\n```python\nnum_warps = 8\n```\n"
    )
)
CODE_HIT = HIT.evolve(
    entry=HIT.entry.evolve(
        id="kernels/add_one",
        kind="kernel",
        title="One is added to each element",
        problem="class Model: ...",
        answer=f"import triton\n\n\n{CODE}",
    )
)
EXAMPLES: dict[str, Reply] = {
    "said": TextReply(text="The goal is 2x against the fastest baseline."),
    "refused": TextReply(text="There is no candidate 9. Known: c1 to c6.", ok=False),
    "puzzled": ClarificationNeeded(
        text="'make it sing' is not understood.",
        options=("go back to candidate 3", "undo 3 steps"),
        nearest=(
            Suggestion(name="more_aggressive", example="be more aggressive"),
            Suggestion(name="undo", example="undo"),
        ),
    ),
    "ran": StepRan(
        step=2, made=(3, 4), place=PLACE, result=RESULT, text="c4 is 1.2x faster than c2."
    ),
    "ran_refused": StepRan(
        step=3,
        made=(3,),
        place=Place(candidate=1),
        result=RESULT.evolve(
            status="kept_original",
            reason="1 candidate drafted, none accepted",
            measured=False,
            eager_us=None,
            candidate=None,
            drafts=1,
            error_vs_oracle=1.25,
            eager_error_vs_oracle=5e-8,
            report="/elsewhere/agentkernel-runs/layernorm-1/report.md",
        ),
        text="New: c3 refused at the gate correctness (mismatch).\nThe session stands at c1.",
    ),
    "source": Source(number=2, name="add_one.py", text=CODE, first=1, marked=(3,)),
    "diff": DiffOf(
        old="c1",
        new="c2",
        text="--- c1\n+++ c2\n@@ -3,2 +3,2 @@\n"
        "-    mask = offsets < 8\n+    mask = offsets < size\n"
        "     x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy='evict_first')",
    ),
    "same": DiffOf(old="c1", new="c2", text=""),
    "explained": Explained(
        name="c2, lines 3 to 4",
        notes=(
            (None, "One kernel: add_one_kernel."),
            (
                3,
                "offsets: the BLOCK element indices of this program's tile; BLOCK is 512 at launch",
            ),
            (4, "mask: true where offsets < size (inside the tensor's edges)"),
        ),
        source=Source(number=2, name="add_one.py", text=CODE, marked=(3, 4)),
    ),
    "compared": Compared(
        nodes=NODES[:4],
        rows=(
            ("time", ("150 us", "128 us", "-", "3.25 us (estimated)")),
            ("x eager", ("1.13x", "1.32x", "-", "-")),
            ("verdict", ("accepted", "accepted", "correctness", "accepted")),
        ),
        verdict="c2 is faster than c1: 1.17x. c3 was refused. c4 is not measured.",
    ),
    "compared_by_hand": Compared(
        nodes=(NODES[0], NODES[3]),
        rows=(
            ("verdict", ("right (interpreted)", "refused at the gate correctness (mismatch)")),
            ("strategy", ("one pass over memory for each fused chain of rows", "given")),
            ("by", ("compiler", "file:4af0.py")),
        ),
        verdict="c4 is not right.",
    ),
    "profiled": Profiled(
        node=NODES[1],
        analysis=ANALYSIS,
        facts=(
            ("bound by", "memory"),
            ("reached", "3000 GB/s of 4300 GB/s"),
            ("in the way", "memory bandwidth"),
        ),
    ),
    "roofline": Roofline(
        target="h100-sxm",
        gb_per_s=3000.0,
        peak_gflops=67000.0,
        peak_of="fp32 units",
        points=(
            RooflinePoint(label="eager", intensity=0.5, gflops=900.0, measured=True),
            RooflinePoint(label="c1", intensity=1.0, gflops=1500.0, measured=True),
            RooflinePoint(label="c2", intensity=1.02, gflops=1600.0, measured=True),
            RooflinePoint(label="c4", intensity=4.0, gflops=9000.0, measured=False),
        ),
    ),
    "planned": Planned(plan=PLAN, tried=("rows",)),
    "planned_by_rule": Planned(plan=PLAN, note="Planned by rule, nothing was run yet."),
    "tree": TreeShown(tree=TREE),
    "moved": PositionChanged(place=PLACE, text="Strict again from here on."),
    "moved_back": PositionChanged(place=PLACE, text="At c2: right; precision: strict -> tf32."),
    "changed": PositionChanged(place=PLACE, text="precision: strict -> tf32. 'run' tries it."),
    "cost": Cost(seconds=125.0, accounts=LEDGER, text="Two steps."),
    "cost_free": Cost(seconds=5.0, accounts=None, text="No model was asked."),
    "found": KnowledgeFound(query="rows", hits=(HIT,)),
    "found_long": KnowledgeFound(query="rows", hits=(LONG_HIT, CODE_HIT)),
    "found_nothing": KnowledgeFound(query="xyzzy", hits=()),
    "wrote": FilesWritten(
        paths=("layernorm_optimized.py", "/tmp/" + "long/" * 20), text="Exported:"
    ),
    "editing": EditRequested(number=2, text=CODE, line=3),
    "ended": SessionEnded(text="Until next time: agentkernel resume layernorm-chat-1"),
}


def drawn(
    reply: Reply,
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
    terminal: bool = False,
) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(render(reply, width, colour, unicode))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().split("\n")) + "\n"


def made_hostile(value: object) -> object:
    """`value` with every free text in it replaced by one that steers terminals."""
    if isinstance(value, Frozen):
        fixed = {"kind", "name", "gate", "origin", "state", "status", "roofline", "verified"}
        fixed -= {"name"} if not isinstance(value, Suggestion) else set()
        names = [name for name in type(value).model_fields if name not in fixed]
        return value.evolve(**{name: made_hostile(getattr(value, name)) for name in names})
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(made_hostile(item) for item in value)
    if isinstance(value, dict):
        return {made_hostile(key): made_hostile(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(("width", "unicode"), [(80, True), (40, False)])
def test_golden(name: str, width: int, unicode: bool) -> None:
    expected = (GOLDEN / f"{name}_{width}.txt").read_text(encoding="utf-8")
    assert drawn(EXAMPLES[name], width, unicode=unicode) == expected


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_text_steers_the_terminal_or_breaks_the_width(
    name: str, width: int, unicode: bool
) -> None:
    hostile = made_hostile(EXAMPLES[name])
    text = drawn(hostile, width, unicode=unicode, terminal=True)  # type: ignore[arg-type]
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert unicode or text.isascii()
    assert max(cell_len(line) for line in text.split("\n")) <= width
    if name not in ("editing",):
        assert "\\x1b" in text.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("name", EXAMPLES)
def test_colours_change_no_word(name: str) -> None:
    reply = EXAMPLES[name]
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(render(reply, 80, True))
    plain = "".join(
        part.partition("m")[2] if place else part
        for place, part in enumerate(capture.get().split("\x1b["))
    )
    lines = [line.rstrip() for line in plain.rstrip().split("\n")]
    assert "\n".join(lines) + "\n" == drawn(reply)


def test_colours_are_there_where_they_are_wanted() -> None:
    for name in ("diff", "source", "tree", "compared"):
        assert "\x1b[" in drawn(EXAMPLES[name], colour=True, terminal=True)
        assert "\x1b" not in drawn(EXAMPLES[name], colour=False, terminal=True)


@pytest.mark.parametrize("time_us", [0.001, 0.5, 999.9, 1e4, 1e7])
def test_bars_hold_any_time(time_us: float) -> None:
    reply = Compared(nodes=(measured(1, time_us), measured(2, 20.0)), rows=(), verdict="")
    for width in (20, 40, 80):
        text = drawn(reply, width)
        assert max(len(line) for line in text.split("\n")) <= width
        assert "nan" not in text


def test_measured_and_estimated_times_share_no_scale() -> None:
    found = scales(NODES)
    assert [(scale.basis.words, [node.number for node in scale.nodes]) for scale in found] == [
        ("measured on h200", [1, 2]),
        ("estimated for h100-sxm", [4]),
    ]
    assert [line[1] for line in found[0].lines] == ["eager", "torch.compile"]
    assert [line[1] for line in found[1].lines] == ["eager"]


def test_a_longer_time_has_a_longer_bar() -> None:
    text = drawn(Compared(nodes=NODES[:2], rows=(), verdict=""))
    first, second = (line.count("█") for line in text.split("\n") if "█" in line)
    assert first > second > 0


def test_marks_tell_estimated_points_apart() -> None:
    points = EXAMPLES["roofline"]
    assert isinstance(points, Roofline)
    assert marks(points.points) == ["a", "c1", "c2", "(c4)"]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_the_chart_holds_ridge_and_points(scale: float) -> None:
    points = tuple(
        RooflinePoint(label=f"c{number}", intensity=scale * number, gflops=scale, measured=True)
        for number in range(1, 60)
    )
    reply = Roofline(target="t", gb_per_s=1e-3, peak_gflops=1e9, peak_of="fp32", points=points)
    chart = chart_of(reply, marks(points))
    assert all(chart.x.low < point.intensity < chart.x.high for point in points)
    assert all(chart.y.low < point.gflops < chart.y.high for point in points)
    assert max(len(line) for line in drawn(reply).split("\n")) <= 80


def test_a_point_on_the_roof_stands_on_it() -> None:
    point = RooflinePoint(label="c1", intensity=10.0, gflops=10.0, measured=True)
    reply = Roofline(target="t", gb_per_s=1, peak_gflops=100, peak_of="fp32", points=(point,))
    text = drawn(reply)
    said, *chart = text.split("\n")
    assert said == "c1 is bound by memory: 10 FLOP/byte, below the ridge at 100."
    drawn_roof = next(line for line in chart if "c1" in line)
    assert "╱╱c1" in drawn_roof or "c1╱╱" in drawn_roof
    assert "100%" in text
    without = drawn(reply.evolve(points=()))
    assert "No candidate has a time yet." in without


def test_a_deep_tree_says_whom_a_candidate_came_from() -> None:
    chain = tuple(node(number, number - 1 or None) for number in range(1, 300))
    text = drawn(TreeShown(tree=Tree(nodes=chain)), 80)
    assert "c299 [from c298]" in text
    assert max(len(line) for line in text.split("\n")) <= 80


def test_a_tree_with_a_strange_parent_is_drawn() -> None:
    lost = (node(1, 7), node(2, 2))
    text = drawn(TreeShown(tree=Tree(nodes=lost)))
    assert "c1 [from c7]" in text
    assert "c2 [from c2]" in text
    assert "you are here" in text


def test_source_is_cut_and_not_wrapped() -> None:
    long = Source(number=None, name="m.py", text="x = " + "1" * 300 + "\n\ty = 2\r\n", first=99)
    rows = drawn(long, 40).split("\n")
    assert rows[1].startswith("   99 │ x = 1")
    assert rows[1].endswith("…")
    assert rows[2] == "  100 │     y = 2"
    assert len(rows) == 4


def test_shown_writes_out_what_is_no_visible_sign() -> None:
    assert escaped("a\x1b[0m\x9b\u202eb\U000e0001\ud800\n") == (
        "a\\x1b[0m\\x9b\\u202eb\\U000e0001\\ud800\n"
    )
    assert escaped("a\r\nb\rc") == "a\nb\\rc"
    assert escaped("naïve →", unicode=False) == "na\\xefve \\u2192"
    assert escaped_model(TextReply(text="\x07")).text == "\\x07"


def test_cut_counts_columns_and_marks_the_cut() -> None:
    assert truncate("abcdef", 6) == "abcdef"
    assert truncate("abcdef", 5) == "abcd…"
    assert truncate("abcdef", 5, unicode=False) == "abcd>"
    assert cell_len(truncate("漢字漢字", 5)) <= 5
    assert truncate("ab", 0) == ""


def test_no_value_is_a_dash_in_ascii_too() -> None:
    assert drawn(EXAMPLES["compared_by_hand"], unicode=False).isascii()
    assert escaped("–", unicode=False) == "-"


def test_one_reading_is_not_a_choice() -> None:
    one = ClarificationNeeded(text="Do you mean this? 'yes' does it.", options=("start over",))
    assert drawn(one, 80).splitlines() == [f"? {one.text}", "  1. start over"]


def test_place_words() -> None:
    assert place_words(Place()) == "the module"
    assert place_words(PLACE) == "c2 on branch 2 (precision tf32)"


def test_a_step_shows_what_is_new_and_says_where_it_stands_once() -> None:
    text = drawn(EXAMPLES["ran_refused"])
    assert "kept_original" not in text
    assert text.count("c1") == 1
    assert "certificate" not in text
    nothing = EXAMPLES["ran_refused"].evolve(made=())
    assert "error against fp64" not in drawn(nothing), "an earlier candidate's"


def test_paths_are_told_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside = str(tmp_path / "runs" / "softmax_optimized.py")
    reply = FilesWritten(
        paths=(inside, "/elsewhere/report.md"), text=f"Kept c3 as {inside}: 181 us."
    )
    assert drawn(reply) == "Kept c3 as runs/softmax_optimized.py: 181 us.\n  /elsewhere/report.md\n"
    result = RESULT.evolve(report=str(tmp_path / "runs" / "report.md"))
    ran = StepRan(step=1, made=(), place=Place(), result=result, text="")
    assert "run  2 drafts, 12 s; runs/report.md\n" in drawn(ran)


def test_a_setting_that_changed_is_told_once() -> None:
    assert drawn(EXAMPLES["changed"]) == "→ precision: strict -> tf32. 'run' tries it.\n"
    assert drawn(EXAMPLES["moved_back"]).count("c2") == 1


def test_a_profile_and_a_comparison_say_a_time_once() -> None:
    profiled, compared = EXAMPLES["profiled"], EXAMPLES["compared"]
    assert isinstance(profiled, Profiled)
    more = (*profiled.facts, ("possible", "2 us on the roofline"), ("roofline", "memory"))
    assert drawn(profiled.evolve(facts=more)) == drawn(profiled)
    assert "no time" not in drawn(compared), "its row says it"
    assert "no time: c3" in drawn(compared.evolve(rows=()))


def test_long_cells_are_folded_in_their_table() -> None:
    rows = drawn(EXAMPLES["compared_by_hand"]).split("\n")
    assert [cell for cell in rows[0].split() if cell] == ["c1", "c4"]
    assert not any("file:" in row or "given" in row for row in rows)
    assert any("edited by hand" in row for row in rows)


def test_points_of_one_intensity_stand_in_one_column() -> None:
    points = tuple(
        RooflinePoint(label=label, intensity=value, gflops=gflops, measured=True)
        for label, value, gflops in (("c1", 0.1650, 100.0), ("c2", 0.1667, 400.0))
    )
    for width in range(60, 101):
        reply = Roofline(target="t", gb_per_s=3e3, peak_gflops=6e4, peak_of="fp32", points=points)
        chart = drawn(reply, width).partition("mark")[0].split("\n")[1:]
        first, second = (next(row for row in chart if name in row) for name in ("c1", "c2"))
        assert first.index("c1") == second.index("c2")


def test_costs_are_told_once() -> None:
    one = LEDGER.evolve(by_agent=LEDGER.by_agent[:1])
    text = drawn(Cost(seconds=125.0, accounts=one, text="125.0 s in 2 steps; 9000 tokens in."))
    assert text.count("2 min 5 s") == 1
    assert "125" not in text
    assert text.count("9,000") == 1, "the total of one agent is that agent's"


def test_what_was_found_is_short_and_never_wider_than_the_screen() -> None:
    for width in (40, 80, 120):
        text = drawn(EXAMPLES["found_long"], width)
        assert "Sources" not in text
        assert "score" not in text
        assert "```" not in text
        assert "agentkernel knowledge show notes/hopper" in text.replace("\n", " ")
        assert len(text.split("\n\n")[0].split("\n")) == 10
