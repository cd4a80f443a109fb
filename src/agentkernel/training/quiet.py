"""How do the libraries of a training keep to themselves what is not for the user?"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

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


__all__ = ["silenced_libraries"]
