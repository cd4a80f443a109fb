import functools
import importlib.util
from pathlib import Path

import pytest

from agentkernel.tools.capture import capture
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problems import load_problem

spec = importlib.util.spec_from_file_location(
    "judge_sources", Path(__file__).with_name("sources.py")
)
sources_module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sources_module)


@pytest.fixture(scope="session")
def sources():
    return sources_module


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Problem text -> loaded and captured, each text once."""

    @functools.cache
    def prepare(text):
        path = tmp_path_factory.mktemp("problem") / "problem.py"
        path.write_text(text)
        loaded = load_problem(str(path))
        return loaded, capture(loaded)

    return prepare


@pytest.fixture(scope="session")
def judged(prepared):
    """Judge a candidate, required cases only unless told otherwise."""

    def run(problem, source, **settings):
        loaded, captured = prepared(problem)
        settings.setdefault("budget_s", 0.0)
        return judge(loaded, captured, source, JudgeSettings(**settings))

    return run
