"""A submission, the work that it stands for, and the answer to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import Policy, Precision, Verdict

SOURCE_MOST = 200_000
"""Characters of one file."""
NOTHING = ""
"""The candidate of work that only asks who is there."""
SEEDS = 2**31
DECISIVE = {"target", "coder", "seed", "goals", "judge", "profile"}
"""What of the settings a verdict or a profile hangs on."""

Source = Annotated[str, StringConstraints(min_length=1, max_length=SOURCE_MOST)]
ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
TargetName = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class Submission(Frozen):
    """What a client sends. `problem` is a file in the KernelBench convention, `candidate` one that
    defines ModelNew, `name` the problem's, as its file would have it. None: as the server is set.
    """

    problem: Source
    candidate: Source
    name: ModuleName = "problem"
    target: TargetName | None = None
    policy: Policy | None = None
    precision: Precision | None = None
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] | None = None
    profile: bool = False
    """Time an accepted candidate as well, where a GPU measures."""

    def settings_in(self, settings: Settings) -> Settings:
        """The server's `settings` with what is given here in their place."""
        goals = settings.goals.evolve(
            policy=self.policy or settings.goals.policy,
            precision=self.precision or settings.goals.precision,
        )
        seed = settings.judge.seed if self.seed is None else self.seed
        return settings.evolve(
            target=self.target or settings.target,
            goals=goals,
            judge=settings.judge.evolve(seed=seed),
        )


class Work(Frozen):
    """A submission with all that its answer hangs on. `place` names what judges (a GPU's name, the
    interpreter, a cluster), `judge_sha256` the files of the judge."""

    problem: str
    candidate: str
    name: str
    profile: bool
    settings: Settings
    place: str
    judge_sha256: str

    @property
    def id(self) -> str:
        """SHA-256 of the content: equal work has an equal answer, and is done once."""
        told = {"settings": DECISIVE} | {
            name: True for name in type(self).model_fields if name != "settings"
        }
        return sha256_text(self.model_dump_json(include=told))


class Answer(Frozen):
    """What became of a submission: the one thing about it that is kept for good.

    `verdict` is None where the judge came to none, and `error` says why. `profile` is None where
    none was asked for, or where `not_profiled` says why there is none.
    """

    verdict: Verdict | None = None
    profile: Profile | ProfileFailed | None = None
    error: str = ""
    not_profiled: str = ""


class WorkerAnswer(Frozen):
    """What a worker says. `unable`: nothing can be judged there at all, and why."""

    answer: Answer = Answer()
    unable: str = ""
