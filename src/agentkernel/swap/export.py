"""A run's kernel as a package: a Hub kernel repository, a wheel or a torch.library operator.

What is exported needs torch and Triton and nothing of this package. It holds the drop-in's text as
it was verified, and the certificate that says for what.
"""

from __future__ import annotations

import base64
import hashlib
import json
import keyword
import re
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from agentkernel.domain.errors import KernelRefused, OutputError
from agentkernel.domain.problem import Problem, TensorSpec
from agentkernel.domain.region import Kernel
from agentkernel.storage.files import make_folder, write_atomic
from agentkernel.swap.kernel import check_kernel, kernel_of_run
from agentkernel.tools.certificate.record import canonical_json

Form = Literal["hub", "wheel", "torch-library"]
VERSION = "1"
VARIANT = "torch-universal"
"""The build variant of a kernel in Python: huggingface.co/docs/kernels, "Build variants"."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of each file in a wheel: the same run gives the same bytes."""
ONE_TENSOR = re.compile(r"^return \S+ as \*$", re.M)


@dataclass(frozen=True)
class Exported:
    """What was written, and the line of Python that takes it up."""

    path: Path
    use: str


def export_run(run: Path, form: Form, out: Path) -> Exported:
    """Write the kernel that the run in folder `run` handed over below the folder `out`.

    Raises KernelRefused where the run kept a baseline or its kernel does not go into that form,
    RunNotFound for a certificate that is missing or edited, OutputError where the place is taken.
    """
    kernel = kernel_of_run(run / "certificate.json")
    check_kernel(kernel)
    name = package_name(kernel.certificate.problem.name)
    if form == "wheel":
        return _wheel(kernel, name, out)
    if form == "hub":
        return _hub(kernel, name, out)
    place = _free(out / f"{name}_op")
    _write(place, {**_module_files(kernel), **_operator_files(kernel, name)})
    return Exported(place, f"import {name}_op; torch.ops.{namespace(kernel)}.{name}")


def package_name(problem: str) -> str:
    """A name for Python's `import` that is no keyword: `layernorm` of "LayerNorm.v2" and such."""
    name = re.sub(r"\W+", "_", problem.lower(), flags=re.ASCII).strip("_") or "kernel"
    return f"kernel_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def namespace(kernel: Kernel) -> str:
    """The operator's: of this text alone, so that several may be loaded beside each other."""
    return f"agentkernel_{kernel.sha256[:10]}"


def _hub(kernel: Kernel, name: str, out: Path) -> Exported:
    """`build/torch-universal` with its metadata, and the card: what the Hub's `kernels` loads."""
    place = _free(out / name)
    metadata = {
        "id": f"_{name}_{kernel.sha256[:10]}",
        "name": name.replace("_", "-"),
        "version": int(VERSION),
        "license": "other",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    _write(place, {"README.md": f"---\ntags:\n- kernel\n---\n\n{_readme(kernel)}"})
    _write(
        place / "build" / VARIANT,
        {**_module_files(kernel), "metadata.json": json.dumps(metadata, indent=2) + "\n"},
    )
    return Exported(place, f"kernels.get_local_kernel(Path({str(place)!r})).ModelNew")


def _wheel(kernel: Kernel, name: str, out: Path) -> Exported:
    """A pure wheel (PEP 427) of one package."""
    package = f"{name}_kernel"
    path = _free(out / f"{package}-{VERSION}-py3-none-any.whl")
    info = f"{package}-{VERSION}.dist-info"
    held = {f"{package}/{key}": text for key, text in _module_files(kernel).items()}
    held[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {VERSION}\n"
        f"Requires-Dist: torch\nRequires-Dist: triton\n"
        f"Description-Content-Type: text/markdown\n\n{_readme(kernel)}"
    )
    held[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: agentkernel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    rows = [f"{key},sha256={_digest(text)},{len(text.encode())}" for key, text in held.items()]
    held[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    make_folder(out)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for key, text in held.items():
            entry = zipfile.ZipInfo(key, EPOCH)
            entry.external_attr = 0o644 << 16
            file.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return Exported(path, f"from {package} import ModelNew")


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(found).decode().rstrip("=")


def _module_files(kernel: Kernel) -> dict[str, str]:
    """The package that has ModelNew alone."""
    return {
        "__init__.py": '"""A verified drop-in; see README.md."""\n\n'
        'from .drop_in import ModelNew\n\n__all__ = ["ModelNew"]\n',
        "drop_in.py": kernel.source,
        "certificate.json": canonical_json(kernel.certificate),
        "README.md": _readme(kernel),
    }


def _operator_files(kernel: Kernel, name: str) -> dict[str, str]:
    """The operator beside ModelNew. Raises KernelRefused for what no schema of tensors says."""
    problem = kernel.certificate.problem
    tensors = _tensors(problem)
    graph = kernel.certificate.graph
    if graph is None or not ONE_TENSOR.search(graph.text):
        raise _no_operator(problem, "it gives more than one tensor, or none")
    inputs = [f"input_{at}_{package_name(item.name)}" for at, item in enumerate(tensors)]
    names = [*inputs, *(f"p{at}" for at in range(len(kernel.parameters)))]
    schema = f"({', '.join(f'Tensor {item}' for item in names)}) -> Tensor"
    gradients = bool(kernel.certificate.verdict and kernel.certificate.verdict.gradients)
    template = (files("agentkernel.swap") / "operator.py.txt").read_text(encoding="utf-8")
    filled = {
        "NAME": f"{namespace(kernel)}::{name}",
        "SCHEMA": schema,
        "INPUTS": str(len(inputs)),
        "PARAMETERS": repr(kernel.parameters),
        "CLASS": problem.class_name,
        "GRADIENTS": str(gradients),
        "ARGUMENTS": "*original.get_init_inputs()"
        if problem.origin == "file"
        else problem.init_source,
    }
    for key, text in filled.items():
        template = template.replace(f"@{key}@", text)
    return {
        "original.py": problem.source,
        "operator.py": template,
        "__init__.py": '"""A verified drop-in as an operator; see README.md."""\n\n'
        "from .drop_in import ModelNew\n"
        f"from .operator import operator as {name}\n\n"
        f"__all__ = {sorted(['ModelNew', name])!r}\n".replace("'", '"'),
    }


def _tensors(problem: Problem) -> tuple[TensorSpec, ...]:
    """The inputs, where they are positional tensors and the module's source stands by itself."""
    if problem.origin == "live" or problem.package is not None:
        raise _no_operator(problem, "its source does not stand by itself in one file")
    given = problem.shape_sets[0].inputs
    tensors = tuple(item for item in given if isinstance(item, TensorSpec))
    if len(tensors) != len(given) or problem.arguments is not None:
        raise _no_operator(problem, "it takes other arguments than positional tensors")
    return tensors


def _no_operator(problem: Problem, why: str) -> KernelRefused:
    return KernelRefused(
        f"{problem.name} does not become a torch.library operator: {why}. Expected a module of a "
        "file, tensors in, one tensor out. Next: --as wheel."
    )


def _readme(kernel: Kernel) -> str:
    found, verdict = kernel.certificate, kernel.certificate.verdict
    lines = [
        f"# {found.problem.name}",
        "",
        f"A Triton drop-in for the module `{found.problem.class_name}`, verified by agentkernel "
        f"{found.versions.agentkernel} for {found.target}: {found.reason}.",
        "",
        f"- inputs: {found.problem.shape_sets[0].label}",
    ]
    if verdict is not None:
        lines += [
            f"- judged on {verdict.device}: {len(verdict.cases)} calls, precision "
            f"{verdict.precision}",
            f"- {'eval mode only' if verdict.eval_only else 'train and eval mode'}, "
            f"{'with gradients' if verdict.gradients else 'forward only'}",
        ]
    lines += [
        f"- SHA-256 of `drop_in.py`: {kernel.sha256}",
        "",
        "`ModelNew` takes the original's arguments and its state_dict. `certificate.json` holds "
        "the evidence: `agentkernel verify certificate.json`.",
        "",
    ]
    return "\n".join(lines)


def _free(path: Path) -> Path:
    """`path`, where nothing is yet. Raises OutputError."""
    if path.exists():
        raise OutputError(
            f"{str(path)!r} is there already. Expected a place of its own. "
            "Next: remove it, or name another folder with --out."
        )
    return path


def _write(folder: Path, texts: dict[str, str]) -> None:
    make_folder(folder)
    for name, text in texts.items():
        write_atomic(folder / name, text)
