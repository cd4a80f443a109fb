"""Problems that a judging process keeps loaded, and the verdict on a file."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkernel.domain.base import Frozen
from agentkernel.domain.verdict import Policy, Verdict
from agentkernel.tools.judge.cases.shapes import count_elements
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem

POLICY: Literal["mixed"] = "mixed"
INTERPRETED_ELEMENTS = 50_000
"""With more of them going in, the interpreter takes minutes: a pair is for its declared sizes, so
none is judged on smaller ones."""


class Verification(Frozen):
    """How hard a file is judged: seconds for each call, and for the cases past the required ones;
    how many seeds. What has more than `most_elements` is not interpreted."""

    time_limit_s: float = 20.0
    budget_s: float = 2.0
    seeds: int = 1
    device: Literal["cpu", "cuda"] = "cpu"
    policy: Policy = POLICY
    most_elements: int = INTERPRETED_ELEMENTS


class JudgedProblem(NamedTuple):
    """A problem that is loaded; `captured` is None where it is too large to be judged here."""

    loaded: LoadedProblem
    captured: Captured | None
    elements: int

    @property
    def too_large(self) -> str:
        """Why nothing is judged on it."""
        return f"{self.elements} elements are too many to interpret"


class JudgedProblems:
    """The last `most` problems stay loaded: to capture one takes about as long as to judge a file
    for it."""

    def __init__(self, verification: Verification, most: int) -> None:
        self._verification, self._most = verification, most
        self._loaded: OrderedDict[tuple[Path, bytes], JudgedProblem] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def load(self, path: Path) -> JudgedProblem:
        """The problem in that file; one whose file says something else by now is loaded anew.
        Raises what loading and capturing raise."""
        key = (path, path.read_bytes() if path.is_file() else b"")
        if key not in self._loaded:
            self._loaded[key] = self._load(path)
            if len(self._loaded) > self._most:
                _forget(self._loaded.popitem(last=False)[1])
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _load(self, path: Path) -> JudgedProblem:
        loaded, asked = load_problem(str(path)), self._verification
        elements = count_elements(loaded.problem.shape_sets[0])
        too_many = asked.device == "cpu" and elements > asked.most_elements
        return JudgedProblem(loaded, None if too_many else capture(loaded), elements)

    def judge(self, problem: JudgedProblem, file: str) -> Verdict | None:
        """The verdict on `file`; None where the problem is too large. Raises SandboxUnavailable."""
        if problem.captured is None:
            return None
        settings = JudgeSettings(
            declared_sizes=bool(problem.captured.free_dims),
            **self._verification.model_dump(exclude={"most_elements"}),
        )
        return judge(problem.loaded, problem.captured, file, settings)


def _forget(problem: JudgedProblem) -> None:
    """Let the module go, unless another file of the same name and text has taken its place."""
    namespace = problem.loaded.namespace
    if namespace is not None and sys.modules.get(namespace.__name__) is namespace:
        del sys.modules[namespace.__name__]
