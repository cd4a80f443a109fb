"""Do the live table and the result panel show what the events say, and call estimates so?"""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console, RenderableType

from agentkernel.bench.batch import Row
from agentkernel.cli.nightly.batch import batch_table
from agentkernel.cli.rendering.live import LiveTable, RunProgress
from agentkernel.cli.rendering.run import facts, follow, kernel_table, result_panel
from agentkernel.cli.rendering.verdict import measured_lines
from agentkernel.domain.profile import CompileReport
from agentkernel.workflows.events import CandidateDrafted, OnEvent
from agentkernel.workflows.outcome import Result
from tests.cli.run_events import KERNEL, one_round, profile_taken, result, started
from tests.workflows.fakes import EAGER, measurement


def drawn(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def progress_of(events: list[object]) -> RunProgress:
    progress = RunProgress()
    for event in events:
        progress.show(event)  # type: ignore[arg-type]
    return progress


def test_an_estimated_candidate_has_no_speedup() -> None:
    shown = drawn(progress_of([*one_round(profile_taken())]).table())
    assert "cccccccccc" in shown
    assert "accepted (interpreted)" in shown
    assert "181 us estimated" in shown
    assert "x " not in shown.split("accepted")[1].split("\n")[0].replace("x eager", "")
    assert " left" in shown


def test_a_measured_candidate_shows_its_baselines() -> None:
    taken = profile_taken(
        measured=True,
        measured_on="h200",
        time_us=130.0,
        speedup_vs_eager=1.31,
        speedup_vs_compile=1.02,
        roofline_fraction=0.92,
    )
    shown = drawn(progress_of([*one_round(taken)]).table())
    for figure in ("130 us", "1.31x", "1.02x", "92%"):
        assert figure in shown
    assert "estimated" not in shown
    assert "autotune" not in shown
    third = taken.evolve(speedup_vs_autotune=1.15)
    shown = drawn(progress_of([*one_round(third)]).table())
    assert "x max-autotune" in shown
    assert "1.15x" in shown


def test_nothing_to_offer_is_a_row() -> None:
    none = CandidateDrafted(
        round=1, candidate=None, coder="compiler", strategy="", reason="no template"
    )
    assert "no template" in drawn(progress_of([started(), none]).table())


def test_without_a_limit_the_time_spent_is_shown() -> None:
    assert " spent" in drawn(progress_of([started(time_limit_s=None)]).table())


def test_live_table_draws_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with LiveTable(console) as table:
        for event in one_round(profile_taken()):
            table.show(event)
    assert isinstance(console.file, io.StringIO)
    assert "181 us estimated" in console.file.getvalue()


def test_panel_of_an_estimate() -> None:
    shown = drawn(result_panel(result()))
    assert "why                   accepted by the judge" in shown
    assert "estimated (h100-sxm)  181 us, eager 260 us, 1.44x" in shown
    assert "judged in the interpreter" in shown
    assert "/tmp/layernorm_optimized.py" in shown
    assert "measured" not in shown.replace("not measured: no GPU", "")


def test_the_panel_says_where_a_drop_in_holds() -> None:
    assert "holds for" not in drawn(result_panel(result()))
    fixed = result().evolve(declared_sizes=True)
    assert "the declared sizes only" in drawn(result_panel(fixed))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": 11680, "cost_usd": 0.03}, "11,680 tokens, 0.0300 USD"),
        ({"tokens": 11680, "cost_usd": 0.03, "unpriced": 1}, "at least 0.0300 USD"),
        ({"tokens": 11680, "unpriced": 3}, "11,680 tokens, no price known"),
        ({"unpriced": 3}, "tokens not counted, no price known"),
        ({"tokens": 9, "cost_usd": 2e-5, "replayed": True}, "2e-05 USD, in the run that was"),
    ],
)
def test_the_panel_says_what_models_took(changes: dict[str, object], words: str) -> None:
    assert words in drawn(facts(result(**changes)))
    assert "models" not in drawn(facts(result()))


def test_a_batch_says_what_models_took_where_any_was_asked() -> None:
    paid = result(tokens=11680, cost_usd=0.03)
    rows = (Row(key="a", file="a.py", result=paid), Row(key="b", file="b.py", result=result()))
    lines = [" ".join(line.split()) for line in drawn(batch_table(rows)).splitlines()]
    assert lines[0].endswith("error time tokens USD")
    assert lines[1].endswith("181 us estimated 11,680 0.0300")
    assert lines[2].endswith("181 us estimated - -")
    assert "tokens" not in drawn(batch_table(rows[1:]))


def test_panel_of_a_measurement() -> None:
    measured = result(
        status="improved",
        measured=True,
        measured_on="h200",
        interpreted=False,
        time_us=130.0,
        eager_us=170.0,
        compiled_us=133.0,
        speedup_vs_eager=1.31,
        speedup_vs_compile=1.02,
        speedup_ci95=(1.01, 1.03),
        roofline_fraction=0.92,
    )
    shown = drawn(result_panel(measured))
    assert "measured (h200)" in shown
    assert "1.02x (133 us), 95% [1.01, 1.03]" in shown


def test_panel_shows_the_third_baseline_where_it_was_measured_or_failed() -> None:
    measured = result(
        measured=True,
        time_us=130.0,
        eager_us=170.0,
        compiled_us=143.0,
        speedup_vs_eager=1.31,
        speedup_vs_compile=1.1,
        speedup_ci95=(1.01, 1.03),
    )
    tuned = measured.evolve(autotuned_us=133.0, speedup_vs_autotune=1.02)
    shown = drawn(result_panel(tuned))
    rows = [line.rstrip() for line in shown.splitlines()]
    assert "x torch.compile       1.10x (143 us)" in rows
    assert "x max-autotune        1.02x (133 us), 95% [1.01, 1.03]" in rows
    assert "max-autotune" not in drawn(result_panel(measured))
    assert "failed: timeout: it took" in drawn(facts(measured, "timeout: it took"))
    assert "left out on request" in drawn(facts(measured, "left out on request"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (None, None),
        ("left out on request", "  max-autotune left out on request"),
        ("RuntimeError: no tile\nTraceback\nno tile", "  max-autotune failed: no tile"),
    ],
)
def test_profile_lines_say_why_the_third_has_no_time(words: str | None, line: str | None) -> None:
    found = measurement().evolve(autotune_error=words)
    told = [item for item in measured_lines(found) if "max-autotune" in item]
    assert told == ([] if line is None else [line])


def test_profile_lines_show_the_third() -> None:
    timed = measurement(EAGER)
    found = timed.evolve(autotuned=timed.eager, vs_autotune=timed.vs_eager)
    told = [item for item in measured_lines(found) if "max-autotune" in item]
    assert told == ["  max-autotune 20 us: 2.000x [1.950, 2.050]"]


def test_profile_lines_name_a_library_plan() -> None:
    found = measurement().evolve(own_kernel_share=0.05, library_calls=4)
    assert "  library plan, 4 calls" in measured_lines(found)
    assert not any("library plan" in line for line in measured_lines(measurement()))


def test_kernels_show_registers_spills_and_shared_memory() -> None:
    shown = drawn(kernel_table(CompileReport(target="h100-sxm", kernels=(KERNEL,))))
    assert shown.splitlines()[1].split() == (
        ["layer_norm_rows", "8192", "x", "1", "x", "1", "8", "64", "0", "B", "128", "B", "50%"]
    )


def test_json_is_a_line_an_event_and_the_result_last(capsys: pytest.CaptureFixture[str]) -> None:
    def job(on_event: OnEvent) -> Result:
        for event in one_round(profile_taken()):
            on_event(event)
        return result()

    follow(job, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("kind") for line in lines[:-1]] == [
        "run_started",
        "node_started",
        "candidate_drafted",
        "verdict",
        "profile",
    ]
    wanted = {"status", "run", "measured", "candidate", "certificate", "speedup_vs_eager"}
    wanted |= {"speedup_vs_compile", "speedup_ci95", "roofline_fraction"}
    wanted |= {"error_vs_oracle", "eager_error_vs_oracle"}
    assert wanted <= set(lines[-1])


def test_a_pipe_gets_plain_lines_and_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    def job(on_event: OnEvent) -> Result:
        for event in one_round(profile_taken()):
            on_event(event)
        return result()

    follow(job, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run layernorm-1: layernorm for h100-sxm (no local GPU)"
    assert "timed cccccccccc: 181 us estimated" in lines
    assert not any(line.startswith("{") for line in lines)
