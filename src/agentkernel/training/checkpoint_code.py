"""No checkpoint runs code: torch pickles parts of one, and its folder may be anybody's."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.storage.disk import read_regular

METADATA = ".metadata"
"""What torch.distributed.checkpoint unpickles before it reads a sharded checkpoint."""
VARIABLE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""https://docs.pytorch.org/docs/stable/notes/serialization.html: no torch.load unpickles more than
weights, whatever it was asked for."""
PLACES = "torch.distributed.checkpoint"
KNOWN = frozenset(
    {
        ("collections", "OrderedDict"),
        ("pathlib", "PosixPath"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        (f"{PLACES}.filesystem", "_StorageInfo"),
        (f"{PLACES}.filesystem", "_StoragePrefix"),
        (f"{PLACES}.metadata", "BytesStorageMetadata"),
        (f"{PLACES}.metadata", "ChunkStorageMetadata"),
        (f"{PLACES}.metadata", "Metadata"),
        (f"{PLACES}.metadata", "MetadataIndex"),
        (f"{PLACES}.metadata", "StorageMeta"),
        (f"{PLACES}.metadata", "TensorProperties"),
        (f"{PLACES}.metadata", "TensorStorageMetadata"),
        (f"{PLACES}.metadata", "_MEM_FORMAT_ENCODING"),
    }
)
"""What such a file names: values, and one function that turns a text into a layout."""


def refuse_code(folder: Path) -> None:
    """From now on torch loads weights and nothing else in this process. Raises TrainingError where
    the checkpoint in `folder` names what no checkpoint does."""
    os.environ[VARIABLE] = "1"
    for path in sorted(folder.rglob(METADATA)):
        try:
            _Known(io.BytesIO(read_regular(path))).load()
        except Exception as error:
            raise TrainingError(
                f"{str(path)!r} is no checkpoint's: {one_line(error, 120)}. Expected what this "
                "command wrote, which names values only. Next: choose another --out."
            ) from error


class _Known(pickle.Unpickler):
    """Finds nothing but what is known."""

    def find_class(self, module: str, name: str, /) -> Any:
        import torch

        known = (module, name) in KNOWN
        if known or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


__all__ = ["refuse_code"]
