"""The Python API: optimise a module, apply its kernels to a model, open a session."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

import torch
from pydantic import PrivateAttr
from torch import nn

from agentkernel.chat.session import Session
from agentkernel.chat.session_state import settings_overlay
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import OutputError, ProblemError, RunNotFound, SettingError, one_line
from agentkernel.domain.region import Kernel
from agentkernel.nightly.page.files import JSON_NAME, kernels_of_night, refuse_night
from agentkernel.storage.configuration import load_settings
from agentkernel.storage.source_text import describe_syntax_error
from agentkernel.swap.kernel import execute_module, kernel_of_run
from agentkernel.swap.swap import (
    KEPT,
    Applied,
    apply_equal,
    apply_whole,
    counts,
    restore,
    with_nothing,
    without_kernels,
)
from agentkernel.swap.swap import apply as apply_kernels
from agentkernel.swap.swap import apply_all as apply_everywhere
from agentkernel.tools.matmul_precision import RoundingModule
from agentkernel.tools.problem.loading import (
    load_problem,
    problem_from_module,
    require_module,
)
from agentkernel.tools.run_store import LAST, find_kernel_run
from agentkernel.tools.targets import find_target
from agentkernel.workflows.answer import (
    answer_html,
    answer_sentence,
    certificate_of,
    folder_of,
    use_lines,
)
from agentkernel.workflows.events import Event, Finished, NodeStarted, OnEvent, ignore
from agentkernel.workflows.optimize import run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.progress import WORDS, progress_bar
from agentkernel.workflows.state import OptimizeRequest

if TYPE_CHECKING:
    from types import ModuleType

    from agentkernel.domain.settings import Settings
    from agentkernel.workflows.deps import RunFactory

__all__ = [
    "Optimized",
    "Session",
    "apply",
    "apply_all",
    "counts",
    "load_drop_in",
    "open_session",
    "optimize",
    "restore",
]

LOG = logging.getLogger("agentkernel")
GOALS = ("speedup", "baseline", "objective", "max_memory_bytes", "precision", "policy")
BUDGETS = {"rounds": "budget.rounds", "time": "budget.time_s"}
PLAIN = ("coder", "runs", "seed")


class Optimized(Result):
    """A run's result with the module to use in the original's place."""

    _original: nn.Module = PrivateAttr()

    def __repr__(self) -> str:
        """The answer in one line."""
        return f"<{answer_sentence(self, certificate_of(self))}>"

    def __str__(self) -> str:
        """The answer, the lines that use the drop-in, and the folder of its files."""
        certificate = certificate_of(self)
        rows = [*use_lines(self, certificate), ("folder", folder_of(self))]
        lines = (f"{name}: {text}" for name, text in rows)
        return "\n".join([answer_sentence(self, certificate), *lines])

    def _repr_html_(self) -> str:
        """The answer, its figures, the roofline, how it is used and the drop-in, in a notebook."""
        return answer_html(self)

    @cached_property
    def module(self) -> nn.Module:
        """The verified drop-in with the original's weights (the same storage), device and mode.

        Where a baseline is kept it is that baseline: the original, or `torch.compile` of it in the
        mode that was the fastest; where it was allowed TF32 (`baselines_matmul`), within each call.
        Under max-autotune a call overwrites the outputs of the one
        before (CUDA graphs): clone what is to last.
        Raises RunNotFound where the file is not the one that was verified.
        """
        if self.candidate is None:
            kept = self._kept()
            if self.baselines_matmul == "highest":
                return kept
            return RoundingModule(kept, self.baselines_matmul)
        return load_drop_in(self, self._original)

    def _kept(self) -> nn.Module:
        """The baseline as such, whatever its products may round."""
        if self.status != "kept_compiled":
            return self._original
        if self.baseline == "max-autotune":
            tuned = torch.compile(self._original, mode="max-autotune", dynamic=False)
            return cast(nn.Module, tuned)
        return cast(nn.Module, torch.compile(self._original))


def optimize(
    module: nn.Module,
    example_inputs: Sequence[object],
    target: str | None = None,
    *,
    example_kwargs: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    on_event: OnEvent = ignore,
    progress: bool = False,
    workshop: RunFactory | None = None,
    **goals: str | float | None,
) -> Optimized:
    """Find a faster drop-in for `module` on inputs like `example_inputs` and `example_kwargs`:
    tensors, numbers, strings, None, and tuples, lists and dicts of them.

    `target` None: the local GPU, else h100. `goals`: speedup, baseline, objective,
    max_memory_bytes, precision, policy, rounds, time (seconds), coder, runs, seed. `progress` shows
    a bar; nothing is printed otherwise. Steps and the answer are logged under "agentkernel" at
    INFO, every event at DEBUG. Raises AgentKernelError subclasses with one clear line.
    """
    settings = _settings(target, goals)
    require_module(module)
    modes = {item: item.training for item in module.modules()}
    try:
        bare = without_kernels(module)
        loaded = problem_from_module(bare, example_inputs, example_kwargs)
        request = OptimizeRequest(loaded, settings, Path(out) if out is not None else None)
        with progress_bar() if progress else nullcontext(ignore) as show:

            def tell(event: Event) -> None:
                log_event(event)
                show(event)
                on_event(event)

            done = run(request, tell, workshop=workshop)
        made = Optimized.model_validate(done.model_dump())
        made._original = module
        return made
    finally:
        for item, training in modes.items():
            item.training = training


def log_event(event: Event) -> None:
    """A step or the answer at INFO, any other event at DEBUG: quiet unless logging is set up."""
    if isinstance(event, NodeStarted):
        LOG.info("round %d: %s", event.round, WORDS[event.node])
    elif isinstance(event, Finished):
        LOG.info("%s", answer_sentence(event.result, certificate_of(event.result)))
    elif LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("%s", event.model_dump_json())


def apply(
    model: nn.Module,
    what: Result | Mapping[str, Kernel] | str | Path,
    *,
    parameters: Mapping[str, tuple[str, ...]] | None = None,
    name: str | None = None,
    declared_sizes: bool = False,
) -> Applied:
    """Let `model` run verified kernels inside, behind a guard; it stays the same object otherwise.

    `what` is the result of `optimize`, or its run by folder, by name or as "last", for `model`
    itself; the folder of a night (`name` says which of its models this is); or kernels by path with
    the uses' own `parameters`. Each module is compared with the verified one: graph, constants and
    tensors. A kernel runs at other sizes too where its certificate and the module's graph hold for
    them, with `declared_sizes` only at those that it was timed at, as a night's kernels always do.
    A result or night that kept a baseline changes nothing. Raises AgentKernelError subclasses with
    one clear line that names what differs; the model is unchanged then.
    """
    require_module(model)
    what = _run_named(what) if isinstance(what, str) else what
    if isinstance(what, Result) or _is_run(what):
        kernel = _kernel_of(what)
        if kernel is None:
            return with_nothing(apply_equal(model, {}), KEPT)
        name = kernel.certificate.problem.class_name
        return apply_whole(model, kernel, name, declared_sizes=declared_sizes)
    if isinstance(what, str | Path):
        _require_folder(Path(what))
        chosen = kernels_of_night(Path(what), name)
        # The whole model was checked and timed with them at these sizes alone.
        made = apply_equal(model, chosen.kernels, chosen.parameters, declared_sizes=True)
        return with_nothing(made, chosen.nothing) if chosen.nothing else made
    _require_kernels(what)
    return apply_equal(model, what, parameters, declared_sizes=declared_sizes)


def apply_all(
    model: nn.Module, what: Result | str | Path, *, declared_sizes: bool = False
) -> Applied:
    """Put the kernel of a run on every module inside of `model`, itself included, that computes
    what was verified.

    `what` is the result of `optimize`, or the folder of its run, or its name below the folder of
    runs, or "last", the newest that handed a kernel over. `Applied.paths` are the modules
    that got it; `Applied.refused` says of every other module of the same class what differs;
    `declared_sizes` is that of `apply`. A result that kept a baseline changes nothing. Raises
    AgentKernelError subclasses with one line.
    """
    require_module(model)
    what = _run_named(what) if isinstance(what, str) else what
    _require_run(what)
    kernel = _kernel_of(what)
    if kernel is None:
        return with_nothing(apply_kernels(model, {}), KEPT)
    name = kernel.certificate.problem.class_name
    return apply_everywhere(model, kernel, name, declared_sizes=declared_sizes)


def _run_named(what: str) -> str | Path:
    """The folder of the run that `what` names as on the command line: "last", which is the newest
    run that handed a kernel over, or a run's name. A path is given back as it is."""
    if os.path.lexists(what) or os.sep in what:
        return what
    runs = Path(load_settings(None, (), {}).runs)
    return find_kernel_run(runs, what) if what == LAST or (runs / what).is_dir() else what


def _is_run(what: object) -> TypeGuard[str | Path]:
    return isinstance(what, str | Path) and (Path(what) / "certificate.json").is_file()


def _require_kernels(given: object) -> None:
    """Raises ProblemError for what is no dict of kernels by path."""
    if not isinstance(given, Mapping):
        wrong = f"What to apply is {_short(given)}"
    elif paths := [path for path in given if not isinstance(path, str)]:
        wrong = f"The path of a kernel is {_short(paths[0])}"
    elif paths := [path for path in given if not isinstance(given[path], Kernel)]:
        wrong = f"The kernel at {paths[0]!r} is {_short(given[paths[0]])}"
    else:
        return
    raise ProblemError(
        f"{wrong}. Expected what optimize() returned, the folder of a run or of a night, or a dict "
        "of kernels by path. Next: give the run's folder; 'agentkernel runs' lists the runs."
    )


def _require_run(given: object) -> None:
    """Raises ProblemError for what is neither a result nor a path, RunNotFound for a path without a
    run."""
    if isinstance(given, Result):
        return
    if not isinstance(given, str | Path):
        raise ProblemError(
            f"The run to apply is {_short(given)}. Expected what optimize() returned, or the "
            "folder of its run. Next: give that folder; 'agentkernel runs' lists the runs."
        )
    place = Path(given)
    refuse_night(given)
    if not _is_run(given):
        raise _no_run(place, "has no certificate.json", "a finished run")


def _require_folder(place: Path) -> None:
    """Raises RunNotFound for what is neither a run's folder nor a night's."""
    if not place.is_file() and not (place / JSON_NAME).is_file():
        lacks = f"has neither certificate.json nor {JSON_NAME}"
        raise _no_run(place, lacks, "a finished run or of a night")


def _no_run(place: Path, lacks: str, expected: str) -> RunNotFound:
    what = f"No such folder: {str(place)!r}"
    if place.exists():
        what = f"{str(place)!r} {lacks if place.is_dir() else 'is a file'}"
    return RunNotFound(
        f"{what}. Expected the folder of {expected}. Next: check the path; "
        "'agentkernel runs' lists the runs."
    )


def _short(given: object) -> str:
    return f"{one_line(repr(given), 40)}, a {type(given).__name__}"


def _kernel_of(what: Result | str | Path) -> Kernel | None:
    """The kernel that a run handed over; None where it kept a baseline."""
    if not isinstance(what, Result):
        return kernel_of_run(Path(what) / "certificate.json")
    if what.candidate is None or what.certificate is None:
        return None
    return kernel_of_run(Path(what.certificate))


def open_session(
    what: nn.Module | str | Path,
    example_inputs: Sequence[object] = (),
    target: str | None = None,
    *,
    example_kwargs: Mapping[str, object] | None = None,
    on_event: OnEvent = ignore,
    workshop: RunFactory | None = None,
    **goals: str | float | None,
) -> Session:
    """A session about a live module with its inputs, or about a file such as `layernorm.py`; a
    session's own folder opens that one again.

    `goals` are those of `optimize`. Raises AgentKernelError subclasses with one clear line.
    """
    if isinstance(what, str | Path) and (Path(what) / "session.sqlite").is_file():
        return Session.reopen(Path(what), on_event=on_event, workshop=workshop)
    began = _settings(target, goals)
    # A session that began would say so in each of its answers.
    _ = find_target(began.target) if workshop is None else workshop.resolve(began)
    if isinstance(what, str | Path):
        loaded = load_problem(str(what))
    else:
        require_module(what)
        loaded = problem_from_module(without_kernels(what), example_inputs, example_kwargs)
    return Session.begin(loaded, settings_overlay(began), on_event=on_event, workshop=workshop)


def _settings(target: str | None, goals: dict[str, str | float | None]) -> Settings:
    flags: dict[str, object] = {"target": target}
    asked = {}
    for name, value in goals.items():
        known = name in GOALS or name in PLAIN
        key = f"goals.{name}" if name in GOALS else name if known else BUDGETS.get(name)
        if key is None:
            names = ", ".join((*GOALS, *BUDGETS, *PLAIN))
            raise ProblemError(f"optimize() has no goal {name!r}. Expected one of: {names}.")
        flags[key], asked[key] = value, name
    try:
        settings = load_settings(None, (), flags)
    except SettingError as error:
        # The caller typed `time`, which the settings call by another name.
        text = str(error)
        for key, name in asked.items():
            text = text.replace(f"Setting {key!r} is", f"{name} is")
        raise SettingError(text) from None
    _require_runs(Path(settings.runs))
    return settings


def _require_runs(runs: Path) -> None:
    """Raises OutputError where a file stands where the folder of runs would be made."""
    taken = next((place for place in (runs, *runs.parents) if os.path.isfile(place)), None)
    if taken is not None:
        raise OutputError(
            f"runs is {str(runs)!r}, and {str(taken)!r} is a file. Expected a folder, which is "
            "made where there is none. Next: give another folder as runs."
        )


def load_drop_in(result: Result, original: nn.Module) -> nn.Module:
    """The verified file's `ModelNew` (a live problem's takes no arguments) with `original`'s
    weights. What runs is the text that was compared, not its file: bytecode may lie beside that.
    Raises RunNotFound where the file has changed since it was verified."""
    if result.candidate is None:
        raise RunNotFound(f"Run {result.run!r} kept a baseline: there is no drop-in to load.")
    path = Path(result.candidate)
    source = _verified_source(path, result)
    name = f"agentkernel_drop_in_{sha256_text(source)[:10]}"
    try:
        namespace = execute_module(source, name)
    except SyntaxError as error:
        raise RunNotFound(
            f"The drop-in {str(path)!r} is not loaded: {describe_syntax_error(error)}. "
            "Next: optimize again."
        ) from error
    _return_own(namespace, original)
    made: nn.Module = namespace.ModelNew()
    made.load_state_dict(original.state_dict(), assign=True)
    return made.train(original.training)


def _return_own(namespace: ModuleType, original: nn.Module) -> None:
    """Let the drop-in return the dataclasses and named tuples of the original, not its copies."""
    own = sys.modules.get(type(original).__module__)
    for name, copied in list(vars(namespace).items()):
        theirs = getattr(own, name, None)
        if isinstance(copied, type) and isinstance(theirs, type):
            fields = _field_names(copied)
            if fields and fields == _field_names(theirs):
                setattr(namespace, name, theirs)


def _field_names(kind: type) -> tuple[str, ...]:
    """Those of a dataclass or a named tuple."""
    named: Iterable[str] = getattr(kind, "__dataclass_fields__", ()) or getattr(kind, "_fields", ())
    return tuple(named)


def _verified_source(path: Path, result: Result) -> str:
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunNotFound(
            f"The drop-in {str(path)!r} is gone. Next: 'agentkernel show {result.run}'."
        ) from error
    if sha256_text(source) != result.candidate_sha256:
        raise RunNotFound(
            f"The drop-in {str(path)!r} has changed since it was verified. "
            f"Next: 'agentkernel judge' it, or take the copy in run {result.run!r}."
        )
    return source
