"""Triton's interpreter in a program without a GPU: kernels run on the CPU as they were judged."""

from __future__ import annotations

import os
import sys

from agentkernel.domain.errors import SettingError

VARIABLE = "TRITON_INTERPRET"


def interpret() -> None:
    """From now on this process runs Triton's kernels on the CPU, slowly. For a machine without a
    GPU; call it before anything imports Triton, which is an interpreter, or not, from its import
    on: torch.compile does, and the other names of agentkernel. Raises SettingError after that.

    It sets TRITON_INTERPRET=1. That alone is not enough for bf16: Triton's own interpreter
    multiplies bit patterns.
    """
    if "triton.language" in sys.modules and not is_interpreted():
        raise SettingError(
            "agentkernel.interpret() comes too late: Triton is imported, and compiles for a GPU in "
            "this process. Expected it before other names of agentkernel are used or imported. "
            "Next: call it first in the program; in a notebook, restart the kernel."
        )
    os.environ[VARIABLE] = "1"
    correct_where_interpreted()


def is_interpreted() -> bool:
    """Whether Triton's kernels run on the CPU in this process: as it was imported, whatever the
    environment says now."""
    import triton.language as tl
    from triton.runtime.jit import JITFunction

    return not isinstance(tl.sum, JITFunction)


def correct_where_interpreted() -> None:
    """Before a drop-in runs: let the interpreter, where there is one, compute as it was judged."""
    if is_interpreted():
        from agentkernel.tools.judge.interpreter.hooks import correct_interpreter

        correct_interpreter()
