"""What a GPU measured reads the same on the other side."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import TypeAdapter

from agentkernel.domain.candidate import Candidate, TrialResult
from agentkernel.domain.profile import OpCost, ProfileFailed
from agentkernel.remote import wire
from agentkernel.runtime.machine import LocalGpu
from agentkernel.tools.profiler.session import BaselineTimes, QuickTimes
from agentkernel.tools.search.cost import MatrixWork
from agentkernel.tools.targets import load_targets, resolve
from tests.workflows.fakes import COMPILED, VERSIONS, measurement, profile, timing, verdict

CANDIDATE = Candidate(source="x" * 300, coder="file", round=1)
GPU = LocalGpu(0, "NVIDIA H200", "90", 1 << 37, "580", 1980, 3201, 6144, 700.0, "NVML")
TARGET = load_targets()["h200"]
TRIAL = TrialResult(label="a", sha256="b", schedule={"k": {"BLOCK": 128}}, time_us=math.inf)
BASELINES = BaselineTimes(
    shapes="x", eager=timing(3.0), compiled=None, compile_error="no", eager_over_compiled=COMPILED
)
VALUES = [
    (wire.VERDICT, verdict(CANDIDATE)),
    (wire.PROFILE, profile(CANDIDATE, measurement())),
    (wire.PROFILE, profile(CANDIDATE, measurement(roofline=math.inf))),
    (wire.PROFILE, ProfileFailed(side="candidate", reason="raised")),
    (wire.BASELINES, BASELINES),
    (wire.BASELINES, BASELINES.evolve(eager=timing(math.inf))),
    (wire.BASELINES, ProfileFailed(side="eager", reason="memory")),
    (wire.QUICK, QuickTimes(eager_us=2.0, compiled_us=None)),
    (wire.QUICK, None),
    (wire.TRIALS_BY_SPACE, ((TRIAL,), ())),
    (wire.RESOLVED, resolve(TARGET, GPU)),
    (wire.DONE, None),
]
SPACE = wire.SpaceSent(
    problem=wire.Problem(
        name="step", origin="class", path="", source="", class_name="Empty", shape_sets=()
    ),
    sources=("a", "b"),
    labels=("a", "b"),
    schedules=({"k": {"BLOCK": 1}}, {}),
    segment="matmul 1",
    hints=(1,),
    matrix=MatrixWork(
        OpCost(op="m", dtype="float16", bytes_moved=0, flops=8, kind="matmul"), "tf32"
    ),
)


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_an_answer_comes_back_as_it_was(kind: TypeAdapter[object], value: object) -> None:
    answered = wire.Answered(id="1", answer=json.loads(kind.dump_json(value)))
    line = wire.FROM_WORKER.validate_json(answered.model_dump_json())
    assert isinstance(line, wire.Answered)
    found = kind.validate_json(json.dumps(line.answer))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "question",
    [
        wire.Tune(spaces=(SPACE,), target=TARGET),
        wire.Rank(space=SPACE, target=TARGET),
        wire.TakeProfile(candidate=CANDIDATE),
    ],
)
def test_a_question_arrives_as_it_was(question: wire.Question) -> None:
    texts: dict[str, str] = {}
    packed = wire.packed(json.loads(question.model_dump_json()), texts)
    assert wire.QUESTION.validate_json(json.dumps(wire.unpacked(packed, texts))) == question


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (b'{"kind": "agentkernel worker", "versions": {"agentkernel": "9"}, "new": 1}', "9"),
        (b'{"kind": "answered", "versions": {"agentkernel": "9"}}', None),
        (b'["kind"]', None),
        (b'{"kind": "agentkernel worker", "versions": [1]}', None),
        (b"Welcome!", None),
        (wire.Alive().model_dump_json().encode(), None),
    ],
)
def test_a_hello_of_another_version_is_known_by_its_version(
    line: bytes, version: str | None
) -> None:
    assert wire.foreign_version(line) == version


def test_a_hello_says_its_version() -> None:
    hello = wire.Hello(versions=VERSIONS, judge_sha256="0", gpu=None)
    assert wire.foreign_version(hello.model_dump_json().encode()) == VERSIONS.agentkernel
