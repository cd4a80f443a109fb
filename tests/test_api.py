from __future__ import annotations

import importlib.util
import inspect
import logging
import py_compile
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import agentkernel
from agentkernel.domain.errors import (
    KernelRefused,
    OutputError,
    ProblemError,
    RunNotFound,
    SettingError,
    UnknownTarget,
)
from agentkernel.workflows.state import OptimizeRequest
from tests.swap.applied_kernels import WRONG, block, example, norm_kernel
from tests.workflows.fakes import FakeWorkshop, Script

DROP_IN = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, 3))
        self.bias = nn.Parameter(torch.empty(2))

    def forward(self, x):
        return x @ self.weight.t() + self.bias + 0.0
"""


def optimize(
    tmp_path: Path, module: nn.Module, *scripts: Script, **goals: str | float | None
) -> agentkernel.api.Optimized:
    return agentkernel.optimize(
        module,
        [torch.randn(4, 3)],
        target="h100",
        workshop=FakeWorkshop(scripts),
        runs=str(tmp_path / "runs"),
        **goals,
    )


def test_the_drop_in_has_the_originals_weights_and_mode(tmp_path: Path) -> None:
    module = nn.Linear(3, 2, dtype=torch.float64)
    module.train()
    found = optimize(tmp_path, module, Script("a", source=DROP_IN, speedup=2.0))
    assert found.status == "met"
    assert module.training, "optimize leaves the module as it was"
    x = torch.randn(5, 3, dtype=torch.float64)
    assert type(found.module).__name__ == "ModelNew"
    assert torch.equal(found.module(x), module(x))
    assert found.module.training
    assert found.module.weight.data_ptr() == module.weight.data_ptr()
    assert found.module is found.module


def test_bytecode_beside_a_drop_in_never_runs(tmp_path: Path) -> None:
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN, speedup=2.0))
    assert found.candidate is not None
    file = Path(found.candidate)
    other = tmp_path / "other.py"
    other.write_text("raise SystemExit('must not run')\n")
    beside = importlib.util.cache_from_source(str(file))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), beside, invalidation_mode=unchecked)
    assert type(found.module).__name__ == "ModelNew"
    assert "must not" not in inspect.getsource(type(found.module))


def test_a_drop_in_with_two_readings_is_not_loaded(tmp_path: Path) -> None:
    source = f"# coding: unicode_escape\n{DROP_IN}# \\u000araise SystemExit\n"
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=source, speedup=2.0))
    with pytest.raises(RunNotFound, match="coding line"):
        _ = found.module


@pytest.mark.parametrize(
    ("baseline", "mode"), [("max-autotune", "max-autotune"), ("torch.compile", None)]
)
def test_a_kept_compiler_is_handed_back_in_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: str, mode: str | None
) -> None:
    asked: list[object] = []

    def noted(module: nn.Module, **how: object) -> nn.Module:
        asked.append(how.get("mode"))
        return module

    monkeypatch.setattr(torch, "compile", noted)
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", drafted=False)).evolve(
        status="kept_compiled", baseline=baseline
    )
    assert isinstance(found.module, nn.Linear)
    assert asked == [mode]


def test_a_kept_original_is_the_module_itself(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    found = optimize(tmp_path, module, Script("a", drafted=False))
    assert found.status == "kept_original"
    assert found.module is module
    for put in (agentkernel.apply, agentkernel.apply_all):
        applied = put(nn.Linear(3, 2), found)
        assert not applied.kernels
        assert "the run kept a baseline" in applied.note


class Seen(nn.Module):
    def __init__(self, raises: bool = False) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.raises = raises

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(torch.get_float32_matmul_precision())
        if self.raises:
            raise ArithmeticError
        return x


def test_a_kept_baseline_rounds_as_it_did_when_it_was_timed(tmp_path: Path) -> None:
    """TF32 is allowed within a call, and nowhere else."""
    kept = optimize(tmp_path, nn.Linear(3, 2), Script("a", drafted=False))
    kept = kept.evolve(baselines_matmul="high")
    before = torch.get_float32_matmul_precision()
    kept._original = module = Seen()
    kept.module(torch.zeros(1))
    assert module.seen == ["high"]
    module.raises = True
    with pytest.raises(ArithmeticError):
        kept.module(torch.zeros(1))
    assert torch.get_float32_matmul_precision() == before != "high"


def test_a_changed_file_is_not_imported(tmp_path: Path) -> None:
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN))
    assert found.status == "verified"
    Path(found.candidate or "").write_text("raise SystemExit('must not run')")
    with pytest.raises(RunNotFound, match="has changed"):
        _ = found.module
    Path(found.candidate or "").unlink()
    with pytest.raises(RunNotFound, match="is gone"):
        _ = found.module


class Stopped(Exception):
    pass


def test_a_module_that_runs_a_kernel_is_optimised_as_it_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Judged as it stood, the kernel would be held against itself; where its forward takes several
    arguments, copying it did not end."""
    model, x = block(), example()
    right = model(x)
    agentkernel.apply(model, {"norm": norm_kernel(WRONG)})

    def stop(request: OptimizeRequest, *_: object, **__: object) -> None:
        live = request.problem.build(seed=0)
        assert not agentkernel.counts(live)
        assert torch.equal(live(x), right)
        raise Stopped

    monkeypatch.setattr(sys.modules["agentkernel.api"], "run", stop)
    with pytest.raises(Stopped):
        agentkernel.optimize(model, [x], "h100")
    assert set(agentkernel.counts(model)) == {"norm"}


def test_goals_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no goal 'sped'"):
        optimize(tmp_path, nn.Linear(3, 2), sped=3.0)
    with pytest.raises(SettingError, match="precision"):
        optimize(tmp_path, nn.Linear(3, 2), precision="loose")
    with pytest.raises(SettingError, match="rounds"):
        optimize(tmp_path, nn.Linear(3, 2), rounds=0)
    with pytest.raises(SettingError, match=r"^time is 'soon'\. Expected: a valid number\.$"):
        optimize(tmp_path, nn.Linear(3, 2), time="soon")


@pytest.mark.parametrize("call", [agentkernel.optimize, agentkernel.open_session])
def test_a_wrong_target_or_folder_is_told_at_once(
    tmp_path: Path, call: Callable[..., object]
) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(UnknownTarget, match=r"Unknown target 'zzz'\. Known: .*h100"):
        call(nn.ReLU(), [torch.ones(2)], target="zzz", runs=str(runs))
    assert not runs.exists()
    for place in (__file__, f"{__file__}/runs"):
        with pytest.raises(
            OutputError, match=r"runs is .*test_api\.py' is a file\. Expected a fol"
        ):
            call(nn.ReLU(), [torch.ones(2)], target="h100", runs=place)


def plain(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    ("module", "inputs", "line"),
    [
        (nn.LayerNorm, [torch.ones(2)], "LayerNorm is a class. Expected a module made of it. Next"),
        (plain, [torch.ones(2)], "plain is a function. Expected a torch.nn.Module. Next: put"),
        (7, [torch.ones(2)], "Got a int. Expected a torch.nn.Module"),
        (nn.ReLU(), torch.ones(128), "are a tensor of shape [128]. Expected a list"),
        (nn.ReLU(), {"input": torch.ones(2)}, "are a dict of input. Expected a list"),
        (nn.ReLU(), 7, "are a int. Expected a list"),
    ],
)
def test_what_is_no_module_or_no_list_of_inputs_is_told_in_a_line(
    module: object, inputs: object, line: str
) -> None:
    for call in (agentkernel.optimize, agentkernel.open_session):
        with pytest.raises(ProblemError) as caught:
            call(module, inputs)  # type: ignore[arg-type, operator]
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [agentkernel.apply, agentkernel.apply_all])
def test_a_kernel_is_applied_to_a_module_alone(call: Callable[..., object]) -> None:
    with pytest.raises(ProblemError, match=r"LayerNorm is a class\. Expected a module"):
        call(nn.LayerNorm, "agentkernel-runs/none")


def test_a_mistyped_run_is_no_night(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=r"No such folder: .*'agentkernel runs' lists the runs"):
        agentkernel.apply(nn.ReLU(), tmp_path / "none")
    with pytest.raises(RunNotFound, match=r"neither certificate\.json nor night\.json"):
        agentkernel.apply(nn.ReLU(), tmp_path)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda m: agentkernel.apply(m, None), "What to apply is None, a NoneType. Expected what"),
        (lambda m: agentkernel.apply(m, {"up": 3}), "The kernel at 'up' is 3, a int. Expected"),
        (lambda m: agentkernel.apply(m, {4: 3}), "The path of a kernel is 4, a int. Expected"),
        (lambda m: agentkernel.apply_all(m, 5), "The run to apply is 5, a int. Expected what"),
        (lambda m: agentkernel.counts(None), "The model is None, a NoneType. Expected the torch"),
        (lambda m: agentkernel.restore(3), "The model is 3, a int. Expected the torch.nn.Module"),
    ],
)
def test_what_is_no_run_no_kernel_or_no_model_is_told_in_a_line(
    call: Callable[[nn.Module], object], line: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        call(nn.ReLU())
    assert str(caught.value).startswith(line)
    assert " Next: give " in str(caught.value)


def test_what_is_said_to_a_session_is_a_text(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    with (
        agentkernel.open_session(nn.ReLU(), [torch.ones(2, 3)], "h100", runs=runs) as session,
        pytest.raises(ProblemError, match=r"The line to say is 3, a int\. Expected a text\. Next"),
    ):
        session.say(3)  # type: ignore[arg-type]


def test_apply_all_says_where_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=r"No such folder: .*'agentkernel runs' lists the runs"):
        agentkernel.apply_all(nn.ReLU(), tmp_path / "none")
    with pytest.raises(RunNotFound, match=r"has no certificate\.json\. Expected the folder of a"):
        agentkernel.apply_all(nn.ReLU(), tmp_path)
    (tmp_path / "night.json").write_text("{}")
    for night in (tmp_path, tmp_path / "night.json"):
        with pytest.raises(
            RunNotFound, match=r"is a night\. Expected a run\. Next: agentkernel\.a"
        ):
            agentkernel.apply_all(nn.ReLU(), night)
    with pytest.raises(RunNotFound, match=r"py' is a file\. Expected the folder of a finished run"):
        agentkernel.apply_all(nn.ReLU(), __file__)


def test_out_gets_copies(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN), out=folder)
    assert found.candidate == str(folder / "linear_optimized.py")
    names = sorted(item.name for item in folder.iterdir())
    assert names == ["certificate.json", "linear_optimized.py", "report.md", "roofline.svg"]
    run_folder = tmp_path / "runs" / found.run
    assert (run_folder / "linear_optimized.py").read_text() == DROP_IN


def test_two_drop_ins_are_written_into_one_folder(tmp_path: Path) -> None:
    """Each report names the picture that lies beside it; the run's own keep their names."""
    for name in ("a", "b"):
        script = Script("a", source=f"{DROP_IN}# {name}\n")
        found = optimize(tmp_path, nn.Linear(3, 2), script, out=tmp_path / "out" / f"{name}.py")
        assert found.picture == str(tmp_path / "out" / f"{name}.roofline.svg")
        assert f"({name}.roofline.svg)" in Path(str(found.report)).read_text()
        own = tmp_path / "runs" / found.run
        assert "(roofline.svg)" in (own / "report.md").read_text()
        assert (own / "roofline.svg").is_file()
    kinds = ("certificate.json", "py", "report.md", "roofline.svg")
    expected = [f"{name}.{kind}" for name in ("a", "b") for kind in kinds]
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == expected


def test_the_newest_run_is_applied_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of runs is that of the settings, as on the command line."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunNotFound, match="No run 'last' in 'agentkernel-runs'"):
        agentkernel.apply_all(nn.Linear(3, 2), "last")
    script = Script("a", source=DROP_IN)
    found = agentkernel.optimize(
        nn.Linear(3, 2), [torch.randn(4, 3)], target="h100", workshop=FakeWorkshop((script,))
    )
    for name in ("last", found.run):
        # It is found; that a scripted run keeps no graph is another matter.
        with pytest.raises(KernelRefused, match=f"Run '{found.run}' does not say what its module"):
            agentkernel.apply_all(nn.Linear(3, 2), name)


def test_the_api_is_listed_and_typed() -> None:
    assert {"optimize", "apply", "errors", "Session"} <= set(dir(agentkernel))
    assert all(hasattr(agentkernel, name) for name in dir(agentkernel))
    assert (Path(agentkernel.__file__).parent / "py.typed").is_file()


def test_a_result_says_its_answer_in_one_line(tmp_path: Path) -> None:
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN, speedup=2.0))
    said = repr(found)
    assert "\n" not in said
    assert said == "<1.33x faster than torch.compile [1.32, 1.34], 80% of the roofline>"


def test_a_printed_result_says_how_it_is_used_and_where_it_lies(tmp_path: Path) -> None:
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN, speedup=2.0))
    first, *lines = str(found).splitlines()
    assert f"<{first}>" == repr(found)
    folder = tmp_path / "runs" / found.run
    assert f"or: agentkernel.apply_all(model, {str(folder)!r})" in lines
    assert lines[0].startswith("use it: ")
    assert lines[-1] == f"folder: {folder}"
    kept = found.model_copy(update={"candidate": None, "status": "kept_original"})
    assert len(str(kept).splitlines()) == 2


def test_a_result_lists_what_is_its_own(tmp_path: Path) -> None:
    found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN, speedup=2.0))
    names = dir(found)
    assert {"module", "candidate", "exit_code", "speedup_vs_eager"} <= set(names)
    assert not {"parse_raw", "from_orm", "model_config", "model_dump", "copy"} & set(names)
    assert all(hasattr(found, name) for name in names)


def test_a_result_in_a_notebook_is_escaped_and_shows_how_it_is_used(tmp_path: Path) -> None:
    script = Script("a", source=f"{DROP_IN}# <script>alert(1)</script>\n", speedup=2.0)
    found = optimize(tmp_path, nn.Linear(3, 2), script)
    page = found._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert f"{found.run}.{Path(str(found.candidate)).stem}" in page
    assert "class ModelNew" in page
    kept = found.model_copy(update={"candidate": None, "status": "kept_original"})
    assert "ModelNew" not in kept._repr_html_()


def test_steps_and_the_answer_are_logged_and_nothing_is_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "agentkernel"):
        found = optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN, speedup=2.0))
    assert {item.name for item in caplog.records} == {"agentkernel"}
    assert "round 1: judging" in caplog.messages
    assert f"<{caplog.messages[-1]}>" == repr(found)
    assert capsys.readouterr().out == ""


def test_progress_shows_a_bar_that_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    optimize(tmp_path, nn.Linear(3, 2), Script("a", source=DROP_IN, speedup=2.0), progress=True)
    assert "done" in capsys.readouterr().out


def test_a_session_is_not_made_by_its_class() -> None:
    with pytest.raises(TypeError, match=r"Expected agentkernel\.open_session\(module"):
        agentkernel.Session(nn.ReLU(), [torch.ones(2, 3)])  # type: ignore[arg-type]
