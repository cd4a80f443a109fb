"""How does a model get better on the judge, so that a kill at any moment costs only a few steps?"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import ValidationError

from agentkernel.agents.models.local_files import model_folder
from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.training import TrainingSettings
from agentkernel.errors import SettingError
from agentkernel.tools.atomic import write_atomic
from agentkernel.tools.targets import find_target
from agentkernel.tools.versions import installed_versions
from agentkernel.workflows.training import checkpoints, folder
from agentkernel.workflows.training.device import Precision, device_name, in_bf16, precision_of
from agentkernel.workflows.training.ending import drop_checkpoints, ended_words, save_trained
from agentkernel.workflows.training.evaluate import Show
from agentkernel.workflows.training.folder import Ended
from agentkernel.workflows.training.judging import STRICT
from agentkernel.workflows.training.loading import (
    MANY_WEIGHTS,
    Base,
    check_packages,
    load_base,
    load_tokenizer,
    lora_of,
)
from agentkernel.workflows.training.quiet import quiet
from agentkernel.workflows.training.reward import Basis, JudgedTurn
from agentkernel.workflows.training.rl_curve import RlPoint, cut_after, draw, read_points
from agentkernel.workflows.training.rl_problems import RlProblem, chosen_at, training_problems
from agentkernel.workflows.training.rollouts import roll_out, samples_of, tally
from agentkernel.workflows.training.rows import fingerprint
from agentkernel.workflows.training.sampler import Drawing, ModelWriter
from agentkernel.workflows.training.turn_pool import (
    Answered,
    Environment,
    JudgePool,
    Judges,
    LocalJudges,
)
from agentkernel.workflows.training.turn_work import TurnSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentkernel.workflows.training.rl_trainer import RlWatch, Round

Say = Callable[[str], None]
FREE = ("most_minutes", "save_steps")
"""Settings that change nothing of what is learned: the same training may go on with others."""
PACKAGES = ("trl", "transformers", "peft", "accelerate", "tokenizers")
LAST = 10
"""Steps at either end that the record's means are taken over."""
WEIGHTS = ("*.safetensors", "config.json", "adapter_config.json", "tokenizer.json")
HEAD = 1 << 20


@dataclass(frozen=True)
class Practice:
    """Where answers are judged and how fast right ones are. None: on the GPU that is here, timed
    there; without one in the interpreter, with estimates for `target`."""

    target: str | None = None
    device: Literal["cpu", "cuda"] | None = None
    speed: Basis | Literal["none"] | None = None
    jobs: int | None = None
    """Processes of this machine that judge; as many as it has processors."""
    ray: str | None = None
    """The address of a Ray cluster whose workers judge."""


class Means(Frozen):
    """The means of a few steps; see RlPoint."""

    steps: int
    reward: float
    first: float
    correct: float
    hack_rate: float
    speedup: float | None


class RlRecord(Frozen):
    """training.json: how the weights beside it came about."""

    kind: Literal["rl"] = "rl"
    name: str
    ended: Ended
    settings: TrainingSettings
    model: str
    model_sha256: str
    data: str
    data_sha256: str
    parameters: int
    trained_parameters: int
    steps: int
    planned_steps: int
    problems: int
    turns: int
    answer_tokens: int
    begin: Means | None
    end: Means | None
    speed: Basis | Literal["none"]
    """Whether the rewards' speedups were measured or estimated: never both in one training."""
    judged_on: Literal["cpu", "cuda"]
    device: str
    precision: Precision
    seconds: float
    versions: Versions
    packages: dict[str, str]

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.ended == "steps"


@dataclass(frozen=True)
class RlDone:
    """What a call of `train_rl` came to."""

    out: Path
    record: RlRecord
    resumed_from: int | None
    """The step of the checkpoint that it went on from."""

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.record.finished


@dataclass
class _Timed:
    """An environment, and the seconds that it took."""

    environment: Environment
    seconds: float = field(default=0.0)

    def judge(self, answers: Sequence[Answered]) -> list[JudgedTurn]:
        begun_s = time.monotonic()
        try:
            return self.environment.judge(answers)
        finally:
            self.seconds += time.monotonic() - begun_s


def train_rl(
    data: Path,
    settings: TrainingSettings,
    out: Path,
    *,
    model: str,
    practice: Practice | None = None,
    environment: Environment | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> RlDone:
    """Let the weights that `model` names practise on the training modules in `data` by TRL's
    GRPOTrainer, and leave in `out` what `--coder local:OUT` loads. `environment` takes the judge's
    place.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done. Raises TrainingError where a module is held out or `out` holds another training,
    SettingError, RunBusy, MissingDependency, ModelUnavailable, SandboxUnavailable, OutputError.
    """
    asked = turn_settings(practice or Practice())
    preset = parse_local(model)
    settings = _with_model(settings, preset, model)
    check_packages(settings.sft)
    data_hash, model_hash = fingerprint(data), _model_hash(preset)
    with folder.alone(out):
        folder.claim(out, _identity(settings, asked, data_hash, model_hash))
        record = _read_record(out)
        if record is not None and record.finished:
            say(f"all {record.steps} steps were done before")
            return RlDone(out, record, record.steps)
        problems = training_problems(data, settings.data.licences)
        say(f"{len(problems)} modules to practise on; speedups are {_basis(asked)}")
        with ExitStack() as held:
            held.enter_context(quiet())
            place = environment or held.enter_context(JudgePool(_judges(practice, asked)))
            training = _Training(settings, preset, problems, place, asked, out, say, show)
            record, resumed = training.run()
        record = record.model_copy(
            update={
                "model": model,
                "model_sha256": model_hash,
                "data": str(data),
                "data_sha256": data_hash,
            }
        )
        write_atomic(out / folder.RECORD, record.model_dump_json(indent=1))
        draw(out, _title(record))
        if record.finished:
            drop_checkpoints(out)
    return RlDone(out, record, resumed)


def turn_settings(practice: Practice) -> TurnSettings:
    """What the judges are told. Raises SettingError for times that nobody here can measure."""
    device = practice.device or ("cuda" if torch.cuda.is_available() else "cpu")
    resolved = find_target(practice.target)
    measurable = (
        device == "cuda" and resolved.measurable and resolved.target.vendor == "nvidia"
    ) or practice.ray is not None
    if practice.speed == "measured" and not measurable:
        raise SettingError(
            f"Speedups cannot be measured for {resolved.target.name!r} on {device!r}. Expected the "
            "GPU that is here, with --device cuda. Next: --speed estimated."
        )
    chosen = practice.speed or ("measured" if measurable and device == "cuda" else "estimated")
    verification = STRICT.model_copy(update={"device": device})
    return TurnSettings(verification=verification, target=practice.target, speed=chosen)


def _judges(practice: Practice | None, asked: TurnSettings) -> Judges:
    if practice is not None and practice.ray is not None:
        from agentkernel.workflows.training.turn_ray import RayJudges

        return RayJudges(practice.ray, asked)
    return LocalJudges(asked, practice.jobs if practice else None)


def _basis(asked: TurnSettings) -> str:
    words = {
        "measured": "measured on the GPU",
        "estimated": f"estimated for {find_target(asked.target).target.name}, nobody measured them",
        "none": "not looked at",
    }
    return words[asked.speed]


def _with_model(settings: TrainingSettings, preset: LocalPreset, model: str) -> TrainingSettings:
    """An adapter is trained further; weights without one as the settings' fine-tuning did."""
    method = settings.sft.method
    if preset.adapter is not None and method == "full":
        method = "lora"
    sft = settings.sft.model_copy(update={"method": method, "bf16": settings.rl.bf16})
    return settings.model_copy(update={"model": model, "new": None, "sft": sft})


def _model_hash(preset: LocalPreset) -> str:
    """Of the names, sizes and first megabytes of the files that the weights are made of."""
    found = hashlib.sha256()
    for name in (preset.model, preset.adapter):
        place = Path(model_folder(name)) if name is not None else None
        for path in _weight_files(place) if place is not None else ():
            found.update(f"{path.name}:{path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                found.update(file.read(HEAD))
    return found.hexdigest()


def _weight_files(place: Path) -> list[Path]:
    return sorted(path for pattern in WEIGHTS for path in place.glob(pattern))


def _identity(
    settings: TrainingSettings, asked: TurnSettings, data_hash: str, model_hash: str
) -> dict[str, str]:
    """All that decides what is learned, by name."""
    rl = settings.rl.model_dump(mode="json", exclude=set(FREE))
    named = {f"rl.{key}": json.dumps(value) for key, value in rl.items()}
    return {
        **named,
        "method": settings.sft.method,
        "licences": json.dumps(settings.data.licences),
        "model": model_hash[:16],
        "data": data_hash[:16],
        "judged on": asked.verification.device,
        "speed": asked.speed,
        "target": asked.target or "default",
    }


def _read_record(out: Path) -> RlRecord | None:
    try:
        return RlRecord.model_validate_json((out / folder.RECORD).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


@dataclass(frozen=True)
class _Training:
    """One call's training, with all that it needs."""

    settings: TrainingSettings
    preset: LocalPreset
    problems: tuple[RlProblem, ...]
    environment: Environment
    asked: TurnSettings
    out: Path
    say: Say
    show: Show

    def run(self) -> tuple[RlRecord, int | None]:
        """Train until all is done, the time is up or somebody asks to end."""
        from agentkernel.workflows.training.rl_trainer import RlWatch
        from agentkernel.workflows.training.watch import stopping

        rl = self.settings.rl
        tokenizer = load_tokenizer(self.settings.model or "")
        base = load_base(self.settings, tokenizer, "sdpa")
        self.say(f"{base.parameters:,} weights on {device_name()}")
        places = checkpoints.prepare(self.out)
        for half in checkpoints.drop_halves(places):
            self.say(f"left out {half.name}: a kill left half of it")
        last = checkpoints.last_whole(places)
        whole = checkpoints.read_whole(last) if last is not None else None
        cut_after(self.out, whole.step if whole else 0)
        trainer = self._trainer(base, tokenizer, places)
        with stopping() as stop:
            watch = RlWatch(self.out, whole, stop, rl.most_minutes, self.show)
            trainer.add_callback(watch)
            if whole is not None:
                self.say(f"goes on from step {whole.step} of {rl.steps}")
            # A pass is a step: where all are done, only the weights are read.
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        if watch.ended == "signal":
            self.say(ended_words(trainer.state.global_step, rl.steps))
        else:
            self._save(trainer, base, tokenizer)
        return self._record(base, trainer, watch), whole.step if whole else None

    def _trainer(self, base: Base, tokenizer: PreTrainedTokenizerBase, places: Path) -> Any:
        from transformers import PrinterCallback

        from agentkernel.workflows.training.rl_trainer import TurnTrainer, arguments

        window = int(base.model.config.get_text_config().max_position_embeddings)
        rl, large = self.settings.rl, base.parameters >= MANY_WEIGHTS
        chosen = arguments(rl, places, bf16=in_bf16(rl.bf16), large=large)
        play = self._play(tokenizer, window)
        adapter = None if base.has_adapter else lora_of(self.settings.sft)
        trainer = TurnTrainer(base.model, tokenizer, chosen, play, adapter)
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _play(self, tokenizer: PreTrainedTokenizerBase, window: int) -> Callable[[Any, int], Round]:
        from agentkernel.workflows.training.rl_trainer import Round

        rl = self.settings.rl
        drawing = Drawing(rl.temperature, rl.top_p, rl.most_tokens)

        def play(trainer: Any, step: int) -> Round:
            begun_s, environment = time.monotonic(), _Timed(self.environment)
            writer = ModelWriter(
                trainer.accelerator.unwrap_model(trainer.model),
                tokenizer,
                drawing,
                ends=trainer.eos_token_ids,
                window=window,
                autocast=trainer.accelerator.autocast,
                chat_template=self.preset.chat_template,
            )
            chosen = chosen_at(self.problems, step, rl.problems, rl.seed)
            groups = roll_out(chosen, writer, environment, rl, rl.seed * 1_000_003 + step)
            samples = samples_of(groups, rl)
            figures = tally(groups, samples, rl)._asdict()
            figures["hack_rate"] = figures.pop("hacks")
            known = {name: float(value) for name, value in figures.items() if value is not None}
            took_s = time.monotonic() - begun_s
            known |= {
                "learned": float(sum(item.advantage != 0.0 for item in samples)),
                "judge_s": round(environment.seconds, 3),
                "write_s": round(took_s - environment.seconds, 3),
            }
            return Round(samples, known)

        return play

    def _save(self, trainer: Any, base: Base, tokenizer: PreTrainedTokenizerBase) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        bf16 = in_bf16(self.settings.rl.bf16)
        save_trained(self.out, model, tokenizer, base, self.settings, bf16=bf16)

    def _record(self, base: Base, trainer: Any, watch: RlWatch) -> RlRecord:
        points = read_points(self.out)
        trained = (item.numel() for item in trainer.model.parameters() if item.requires_grad)
        return RlRecord(
            name=self.settings.name,
            ended=watch.ended,
            settings=self.settings,
            model="",
            model_sha256="",
            data="",
            data_sha256="",
            parameters=base.parameters,
            trained_parameters=sum(trained),
            steps=trainer.state.global_step,
            planned_steps=self.settings.rl.steps,
            problems=len(self.problems),
            turns=int(sum(point.turns for point in points)),
            answer_tokens=int(sum(point.answer_tokens for point in points)),
            begin=means(points[:LAST]),
            end=means(points[-LAST:]),
            speed=self.asked.speed,
            judged_on=self.asked.verification.device,
            device=device_name(),
            precision=precision_of(self.settings.rl.bf16),
            seconds=round(watch.seconds, 2),
            versions=installed_versions(),
            packages={name: version(name) for name in PACKAGES},
        )


def means(points: Sequence[RlPoint]) -> Means | None:
    """Over some steps; None where there are none."""
    if not points:
        return None
    speedups = [point.speedup for point in points if point.speedup is not None]
    names = ("reward", "first", "correct", "hack_rate")
    found = {name: sum(getattr(point, name) for point in points) / len(points) for name in names}
    speedup = sum(speedups) / len(speedups) if speedups else None
    return Means(steps=len(points), speedup=speedup, **found)


def _title(record: RlRecord) -> str:
    steps = f"{record.steps} of {record.planned_steps} steps"
    return f"{record.name}: {record.parameters:,} weights, {steps}, speedups {record.speed}"


__all__ = ["Practice", "RlDone", "RlRecord", "train_rl", "turn_settings"]
