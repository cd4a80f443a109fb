"""The folder of a training: its owner, its record, its weights, and the device it ran on.

`training.json` says how the weights beside it came about, `agentkernel.yaml` how they are
loaded. Progress bars and release notes of the libraries are silenced while a training runs.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import yaml
from pydantic import ValidationError

from agentkernel.agents.models.local_presets import OWN_FILE
from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import RunBusy, TrainingError
from agentkernel.storage import files
from agentkernel.storage.files import (
    explain_write_failure,
    make_folder,
    make_own_folder,
    write_atomic,
)
from agentkernel.training import checkpoints, curve
from agentkernel.training.evaluate.evaluation import PassAt
from agentkernel.training.settings import SamplingSettings, TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Precision = Literal["bf16", "fp32"]


def device_name() -> str:
    """The GPU's name, or "CPU"."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"


def in_bf16(wanted: bool) -> bool:
    """Whether products are taken in bf16: where that is `wanted`, and the GPU has it itself."""
    if not wanted or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def precision_of(wanted: bool) -> Precision:
    """The name of the numbers, as a record has it; `wanted` as in `in_bf16`."""
    return "bf16" if in_bf16(wanted) else "fp32"


BEGUN, RECORD, LOCK = "begun.json", "training.json", ".training.lock"
TOKENIZER = "tokenizer"
FREE = ("most_minutes", "evaluate_problems", "save_steps", "compile", "shard")
"""Settings that change nothing of what is learned from, and how: the same training may go on with
others. (The time that there is shortens the learning rate's way down.)"""
NEUTRAL = {"sft.dropout": "0.0", "rl.spared": "0.0", "rl.oversample": "1"}
"""Later settings, and the values under which all is as it was before them."""
Ended = Literal["steps", "minutes", "signal"]
"""All steps are done; the time was up; somebody asked it to end."""

Kept = TypeVar("Kept", bound=Frozen)


class Record(Frozen):
    """training.json: how the weights beside it came about."""

    name: str
    ended: Ended
    settings: TrainingSettings
    data: str
    data_sha256: str
    card_sha256: str | None
    older_sha256: str | None
    parameters: int
    trained_parameters: int
    steps: int
    planned_steps: int
    epochs: float
    rows: int
    too_long: int
    replayed: int
    tokens: int
    """Tokens that were trained on, given ones and repetitions included."""
    tokens_a_pass: int
    device: str
    """The GPU's name, or "CPU"."""
    ranks: int = 1
    """Processes that trained together, one a GPU."""
    sharded: bool = False
    batch: int | None = None
    """Rows (or packed rows) of one step, over all ranks."""
    precision: Precision
    seconds: float
    loss: float | None = None
    held_out_loss: float | None = None
    passed: PassAt | None = None
    versions: Versions
    packages: dict[str, str]

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.ended == "steps"


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Be the only process that trains in `out`. Raises RunBusy, OutputError."""
    make_folder(out)
    busy = RunBusy(
        f"Another process trains in {str(out)!r}. Expected that nobody does. Next: wait for it, "
        "end it, or give another --out; the same command then goes on."
    )
    with files.hold_file_lock(out / LOCK, busy, wait_s=0.0):
        yield


def claim(out: Path, identity: Mapping[str, str]) -> None:
    """Say whose training `out` holds; the same one may go on, and another may begin where no step
    is kept yet. Raises TrainingError where it is another's, with the first thing that differs."""
    path = out / BEGUN
    if not path.is_file():
        write_atomic(path, json.dumps(dict(identity), indent=1))
        return
    begun = _begun(path)
    if begun != identity and _is_empty(out):
        shutil.rmtree(out / TOKENIZER, ignore_errors=True)
        write_atomic(path, json.dumps(dict(identity), indent=1))
        return
    for key in sorted({*begun, *identity}):
        then, now = (item.get(key, NEUTRAL.get(key)) for item in (begun, identity))
        if then != now:
            raise TrainingError(
                f"{str(out)!r} holds another training: {key} was {then}, and is {now}. Expected "
                "the same data and settings. Next: give another --out, or leave this one as it was."
            )


def _begun(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_empty(out: Path) -> bool:
    """Whether nothing was trained there: a mistaken setting costs the folder nothing."""
    done = (out / RECORD).is_file() or (out / curve.FILE).is_file()
    return not done and checkpoints.last_complete(checkpoints.folder_of(out)) is None


def identity_of(
    settings: TrainingSettings, data_sha256: str, older_sha256: str | None
) -> dict[str, str]:
    """All that decides what is learned, by name."""
    tree = settings.model_dump(mode="json", include={"model", "new", "sft", "name"})
    for free in FREE:
        del tree["sft"][free]
    tree["licences"] = list(settings.data.licences)
    tree["rl.spared"] = settings.rl.spared
    named = without_default_settings(dict(_flat(tree, "")))
    return {**named, "data": data_sha256[:16], "older data": (older_sha256 or "none")[:16]}


def without_default_settings(named: dict[str, str]) -> dict[str, str]:
    """Settings that came later are not named where they change nothing: a folder that was begun
    before them goes on."""
    return {key: value for key, value in named.items() if NEUTRAL.get(key) != value}


def _flat(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value)


def read_record(out: Path) -> Record | None:
    """What training.json says of a fine-tuning; see `read_as`."""
    return read_as(Record, out)


def read_as(kind: type[Kept], out: Path) -> Kept | None:
    """What training.json says; None where there is none that can be read as `kind`."""
    try:
        return kind.model_validate_json((out / RECORD).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def check_weights(out: Path, ended: Ended) -> None:
    """Raise TrainingError where `out` says that it ended as `ended` and has no weights, or has
    others than it wrote: steps that are done are not done again, and their checkpoints are gone."""
    if ended == "signal":
        return
    if next(out.glob("*.safetensors"), None) is not None:
        changed = checkpoints.changed_file(out, _hashes(out / checkpoints.MARKER))
        if changed is None:
            return
        raise TrainingError(
            f"{str(out / changed)!r} is not as it was written when the training was done. Expected "
            "the weights that were trained. Next: bring the file back from a copy, or remove the "
            "folder and train again."
        )
    raise TrainingError(
        f"{str(out)!r} says that its training is done, and holds no weights (*.safetensors). "
        "Expected them beside training.json. Next: remove the folder and train again."
    )


def write_record(out: Path, record: Frozen) -> None:
    """Write training.json. Raises OutputError."""
    write_atomic(out / RECORD, record.model_dump_json(indent=1))


def card_hash(data: Path) -> str | None:
    """Hex SHA-256 of the data's card; None where it has none."""
    path = data / "card.json"
    return files.sha256_of_file(path) if path.is_file() else None


def save_tokenizer(out: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Keep a tokenizer that was made for this training, whole or not at all."""
    kept = out / TOKENIZER
    temporary = out / f".{TOKENIZER}.tmp"
    with explain_write_failure(kept):
        shutil.rmtree(temporary, ignore_errors=True)
        make_own_folder(temporary)
        tokenizer.save_pretrained(str(temporary))
        temporary.rename(kept)
    return kept


def save_weights(
    out: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    base: str | None,
    sampling: SamplingSettings,
) -> None:
    """Put what `--coder local:OUT` loads into `out`: weights or adapter in safetensors, tokenizer,
    and how the model is asked. `base`: the weights below an adapter; None for whole weights.

    A file is there whole or not at all. Raises OutputError.
    """
    temporary = out / ".weights.tmp"
    with explain_write_failure(out):
        shutil.rmtree(temporary, ignore_errors=True)
        make_own_folder(temporary)
        # Left to choose, peft asks the hub whether the vocabulary has grown; it has not.
        kept: dict[str, Any] = {} if base is None else {"save_embedding_layers": False}
        model.save_pretrained(str(temporary), **kept)
        tokenizer.save_pretrained(str(temporary))
        (temporary / OWN_FILE).write_text(model_file(base, sampling), encoding="utf-8")
        moved = [path for path in sorted(temporary.iterdir()) if path.name != "README.md"]
        hashes = {path.name: files.sha256_of_file(path) for path in moved if path.is_file()}
        # Weights that are written over others are of no training until their hashes are there.
        (out / checkpoints.MARKER).unlink(missing_ok=True)
        for path in moved:
            path.replace(out / path.name)
        write_atomic(out / checkpoints.MARKER, json.dumps(hashes, indent=1))
        shutil.rmtree(temporary)


def _hashes(marker: Path) -> dict[str, str]:
    """The hash of each file of finished weights; none where an older version wrote them."""
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return {marker.name: ""}
    return dict(found)


def model_file(base: str | None, sampling: SamplingSettings) -> str:
    """agentkernel.yaml: the folder is a model, or an adapter on `base`."""
    where = {"model": "."} if base is None else {"model": base, "adapter": "."}
    asked = {
        "prompt": "taught",
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.most_tokens,
    }
    return yaml.safe_dump({**where, **asked}, sort_keys=False)


TALKERS = ("trl", "accelerate", "peft", "torch.distributed")


@contextmanager
def silenced_libraries() -> Iterator[None]:
    """Without bars, and without what libraries tell one another about their next releases."""
    from datasets.utils import logging as data_logging
    from transformers.utils import logging as model_logging

    shown = model_logging.get_verbosity()
    bars = model_logging.is_progress_bar_enabled(), data_logging.is_progress_bar_enabled()
    model_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    model_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    data_logging.disable_progress_bar()
    loggers = [logging.getLogger(name) for name in TALKERS]
    levels = [item.level for item in loggers]
    for item in loggers:
        item.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        model_logging.set_verbosity(shown)
        if bars[0]:
            model_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
        if bars[1]:
            data_logging.enable_progress_bar()
        for item, level in zip(loggers, levels, strict=True):
            item.setLevel(level)
