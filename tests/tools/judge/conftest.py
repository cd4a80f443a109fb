import functools
from types import ModuleType

import pytest

from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.train_mode import judge_training
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.sandbox.session import open_worker
from tests.tools.judge import sources as sources_module


@pytest.fixture(scope="session")
def sources() -> ModuleType:
    return sources_module


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Problem text, of float32 unless it says -> loaded and captured, each text once."""

    @functools.cache
    def prepare(text):
        path = tmp_path_factory.mktemp("problem") / "problem.py"
        path.write_text(text.replace("DTYPE", "float32"))
        loaded = load_problem(str(path))
        return loaded, capture(loaded)

    return prepare


@pytest.fixture(scope="session")
def judged(prepared):
    """Judge a candidate, required cases only unless told otherwise."""

    def run(problem, source, **settings):
        loaded, captured = prepared(problem)
        settings.setdefault("budget_s", 0.0)
        settings.setdefault("seed", 0)
        source = source.replace("DTYPE", "float32")
        return judge(loaded, captured, source, JudgeSettings(**settings))

    return run


@pytest.fixture(scope="session")
def worker():
    with open_worker(device="cpu", interpret=True) as found:
        yield found


@pytest.fixture(scope="session")
def tried(prepared, worker):
    """Run one case, with its echoes, of a candidate that does what it likes."""

    def run(problem, source, case=None, **wishes):
        loaded, captured = prepared(problem)
        settings = JudgeSettings(
            seed=0, policy="any", device_bytes=wishes.pop("device_bytes", None)
        )
        runner = CaseRunner(worker, loaded, captured, settings, [])
        assert runner.build(source.replace("DTYPE", "float32")) is None
        inputs = wishes.pop("inputs", loaded.problem.shape_sets[0])
        wishes = {"distribution": "normal", "seed": 1} | wishes
        case = case or Case(CaseShape(inputs, "declared", 0), **wishes)
        if case.training:  # every other call is in eval mode
            return judge_training(runner, case)
        outcome = runner.run(case, follow_ups=True)
        assert isinstance(outcome, CaseOutcome), outcome
        return outcome, runner

    return run
