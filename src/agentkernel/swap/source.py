"""Which kernel's text may be imported, and what class does it give?"""

from __future__ import annotations

import linecache
import re
import sys
import types
from typing import TYPE_CHECKING, cast

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import AgentKernelError, KernelRefused, one_line
from agentkernel.domain.region import Kernel
from agentkernel.storage.source_text import check_one_reading, compile_source
from agentkernel.tools.certificate.certificate import hash_errors
from agentkernel.tools.problem.problems import restore_problem
from agentkernel.tools.problem.tools_arguments import called_flat

if TYPE_CHECKING:
    from torch import nn

NEXT_OPTIMIZE_REGION = "Next: optimize the region again."
TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.M)
_classes: dict[str, type[nn.Module]] = {}
"""By SHA-256: uses of one kernel share its compiled binaries."""


def kernel_class(kernel: Kernel) -> type[nn.Module]:
    """`ModelNew` of a kernel whose text is the one that its certificate was given for.

    Raises KernelRefused for a kernel that is withdrawn, changed or not accepted.
    """
    check_kernel(kernel)
    if kernel.sha256 not in _classes:
        _classes[kernel.sha256] = _import(kernel)
    return _classes[kernel.sha256]


def build_kernel(kernel: Kernel) -> nn.Module:
    """A `ModelNew` of the kernel's text in eval mode, with the constructor's arguments that its
    problem names, called on the flat list of inputs. Raises KernelRefused."""
    made = kernel_class(kernel)
    problem = kernel.certificate.problem
    try:
        if problem.origin == "live":
            return called_flat(made().eval(), problem.arguments)
        loaded = restore_problem(problem)
        new = made(*loaded.init_args, **loaded.init_kwargs).eval()
        return called_flat(new, problem.arguments)
    except (TypeError, AgentKernelError) as error:
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} cannot be built: {one_line(error)}. Expected a "
            f"drop-in that takes the arguments of {problem.class_name}. {NEXT_OPTIMIZE_REGION}"
        ) from error


def check_kernel(kernel: Kernel) -> None:
    """Raise KernelRefused where nothing proves this text. Nothing is imported."""
    name = f"Kernel {kernel.sha256[:10]!r}"
    if kernel.withdrawn is not None:
        raise KernelRefused(
            f"{name} is withdrawn: {one_line(kernel.withdrawn)}. {NEXT_OPTIMIZE_REGION}"
        )
    if sha256_text(kernel.source) != kernel.sha256:
        raise KernelRefused(f"{name} has changed since it was verified. {NEXT_OPTIMIZE_REGION}")
    certificate = kernel.certificate
    if certificate.verdict is None or not certificate.verdict.accepted:
        raise KernelRefused(f"{name} was not accepted by the judge. {NEXT_OPTIMIZE_REGION}")
    wrong = hash_errors(certificate)
    if certificate.candidate_sha256 != kernel.sha256 or wrong:
        text = ", ".join(wrong) or f"candidate {str(certificate.candidate_sha256)[:10]!r}"
        raise KernelRefused(
            f"{name} has the certificate of another text ({text}). {NEXT_OPTIMIZE_REGION}"
        )


def keeps_gradients(kernel: Kernel) -> bool:
    """Whether the judge compared the kernel's gradients with those of the original."""
    verdict = kernel.certificate.verdict
    return verdict is not None and verdict.gradients is True


def needs_triton(source: str) -> bool:
    """Whether the text launches kernels, which need a GPU or Triton's interpreter."""
    return TRITON.search(source) is not None


def _import(kernel: Kernel) -> type[nn.Module]:
    try:
        name = f"agentkernel_kernel_{kernel.sha256[:16]}"
        return cast("type[nn.Module]", execute_module(kernel.source, name).ModelNew)
    except Exception as error:
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} raised {type(error).__name__} when imported: "
            f"{one_line(error)}. Expected torch and triton as in its key. {NEXT_OPTIMIZE_REGION}"
        ) from error


def execute_module(text: str, name: str) -> types.ModuleType:
    """`text` as the module `name`: the very text, from no file and no bytecode beside one, and the
    one that `inspect` finds, which Triton asks for a kernel's lines. Raises SyntaxError for a text
    with more than one reading, and whatever running it raises."""
    check_one_reading(text)
    filename = f"<{name}>"
    code = compile_source(text, filename)
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace = sys.modules[name] = types.ModuleType(name)
    namespace.__file__ = filename
    try:
        exec(code, namespace.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return namespace
