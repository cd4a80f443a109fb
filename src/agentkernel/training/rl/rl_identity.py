"""What makes a practice the same one, so that it may go on in its folder?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from agentkernel.agents.models.local_files import model_folder
from agentkernel.agents.models.local_presets import LocalPreset
from agentkernel.domain.errors import TrainingError
from agentkernel.training.folder import read_record, without_default_settings
from agentkernel.training.rl.turn_work import TurnSettings
from agentkernel.training.training import TrainingSettings

FREE = ("most_minutes", "save_steps")
"""Settings that change nothing of what is learned: the same training may go on with others."""
WEIGHTS = ("*.safetensors", "config.json", "adapter_config.json", "tokenizer.json")
HEAD = 1 << 20


def model_hash(preset: LocalPreset) -> str:
    """Of the names, sizes and first megabytes of the files that the weights are made of."""
    found = hashlib.sha256()
    for name in (preset.model, preset.adapter):
        place = Path(model_folder(name)) if name is not None else None
        for path in _weight_files(place) if place is not None else ():
            found.update(f"{path.name}:{path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                found.update(file.read(HEAD))
    return found.hexdigest()


def check_held_back(preset: LocalPreset, data_sha256: str, settings: TrainingSettings) -> None:
    """Raise TrainingError where the model was fine-tuned on this data and left another share of its
    modules to practice than is asked for."""
    found = read_record(Path(model_folder(preset.adapter or preset.model)))
    if found is None or found.data_sha256 != data_sha256:
        return
    left = found.settings.rl.spared
    if left != settings.rl.spared:
        raise TrainingError(
            f"rl.spared is {settings.rl.spared}, and the model's fine-tuning left {left} of the "
            f"modules to practice. Expected the same share. Next: -c rl.spared={left}"
        )


def _weight_files(place: Path) -> list[Path]:
    return sorted(path for pattern in WEIGHTS for path in place.glob(pattern))


def rl_run_identity(
    settings: TrainingSettings, asked: TurnSettings, data_sha256: str, model_sha256: str
) -> dict[str, str]:
    """All that decides what is learned, by name."""
    rl = settings.rl.model_dump(mode="json", exclude=set(FREE))
    named = without_default_settings({f"rl.{key}": json.dumps(value) for key, value in rl.items()})
    return {
        **named,
        "method": settings.sft.method,
        "licences": json.dumps(settings.data.licences),
        "model": model_sha256[:16],
        "data": data_sha256[:16],
        "judged on": asked.verification.device,
        "speed": asked.speed,
        "target": asked.target or "default",
    }


__all__ = ["check_held_back", "model_hash", "rl_run_identity"]
