"""Where on this machine are the files of a model, and may its weights be read?"""

from __future__ import annotations

from pathlib import Path

from agentkernel.domain.errors import ModelUnavailable, one_line

WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What is fetched: no pickled weights and no Python, which run code as they are read."""
HUB_TIMEOUT_S = 5.0
"""How long the hub may take to say that it knows a name, before any file is asked for."""


def model_folder(name: str) -> Path:
    """The folder of the model or adapter `name`: a path, a cached copy, or fetched from the hub.

    Raises ModelUnavailable where it is nowhere, or holds no safetensors.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _cached(name) or _fetched(name)
    if any(folder.glob("*.safetensors")):
        return folder
    raise ModelUnavailable(
        f"Model {name!r} has no *.safetensors in {str(folder)!r}. Expected safetensors, as pickled "
        f"weights can run code. Next: a safetensors copy, or {_fetch_line(name)}."
    )


def local_model_folder(name: str) -> Path | None:
    """The folder of the model or adapter `name` if it is on this machine, with its weights: nobody
    is asked for it."""
    folder = Path(name).expanduser()
    try:
        found = folder if folder.is_dir() else _cached(name)
    except ModelUnavailable:
        return None
    return found if found is not None and any(found.glob("*.safetensors")) else None


def _cached(name: str) -> Path | None:
    """The whole copy in the hub's cache, None where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        found = Path(snapshot_download(name, local_files_only=True, allow_patterns=list(WANTED)))
    except HFValidationError as error:
        raise _nowhere(name, "it is neither a folder nor a name on the hub") from error
    except OSError:
        return None
    # The cache also knows models of which only a configuration was ever read.
    return found if any(found.glob("*.safetensors")) else None


def _fetched(name: str) -> Path:
    from huggingface_hub import HfApi, constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        raise _nowhere(name, "HF_HUB_OFFLINE forbids asking the hub")
    try:
        # One short question first: a download would try again and again where no hub answers.
        HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
        return Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except Exception as error:  # the hub's client and its HTTP library share no exception type
        raise _nowhere(name, f"the hub says {type(error).__name__}: {one_line(error)}") from error


def _nowhere(name: str, why: str) -> ModelUnavailable:
    from huggingface_hub import constants

    return ModelUnavailable(
        f"Model {name!r} is not here: looked for a folder of that name and in "
        f"{constants.HF_HUB_CACHE}; {why.rstrip('.')}. Expected local:FOLDER or a name on the hub. "
        f"Next: give the folder's path, or {_fetch_line(name)}."
    )


def _fetch_line(name: str) -> str:
    return f"'hf download {name}' (older: huggingface-cli download) where there is a network"


__all__ = ["model_folder"]
