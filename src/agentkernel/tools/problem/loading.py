"""Loading of a problem from a file, a class or a live module.

A file follows the KernelBench convention, or names a class with inputs such as `x=f32[4,8]`.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import linecache
import random
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.problem import (
    Package,
    Problem,
    ShapeSet,
)
from agentkernel.storage.source_text import (
    compile_source,
    describe_syntax_error,
    parse_source,
    read_source,
)
from agentkernel.tools.problem.arguments import FlatCall, called_flat, flatten_call
from agentkernel.tools.problem.inputs import (
    InputTree,
    check_elements,
    default_value,
    describe_inputs,
    parse_init,
    parse_input,
    parse_kwargs,
)
from agentkernel.tools.problem.packages import (
    EXPORTS,
    entered,
    exported_from,
    is_dotted,
    module_file,
    no_such_file,
    package_of,
    pickle_by_value,
    search_path,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

Given = TypeVar("Given")
REMEMBERED = 2
REMEMBERED_BYTES = (16 << 20, 2 << 30)
"""Of the last few seeds, modules of so many bytes are constructed once: a billion random numbers
take the CPU ten seconds, a copy of them half a second."""


@dataclass(frozen=True)
class LoadedProblem:
    """A problem whose module class is at hand. The user's own code: trusted, runs in this process.

    `init_args` and `init_kwargs` are what the constructor gets; `live` is the module itself for a
    problem of origin "live", and `live_inputs` are its inputs, nested ones one by one.
    """

    problem: Problem
    module_class: type[nn.Module]
    init_args: tuple[object, ...] = ()
    init_kwargs: dict[str, object] = field(default_factory=dict)
    namespace: types.ModuleType | None = None
    live: nn.Module | None = None
    live_inputs: tuple[object, ...] = ()
    _constructed: dict[int, tuple[nn.Module, torch.Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """By seed: the module, and where the generator stood after its numbers."""

    def build(self, *, seed: int, device: str = "cpu") -> nn.Module:
        """Construct the reference with `torch.manual_seed(seed)`, in eval mode, on `device`.

        It is called on the flat list of inputs, however its class's forward takes them. On "cpu"
        and "meta" construction happens there; on a GPU it happens on the CPU first, so that the
        same seed draws the same numbers as on a box without one.
        """
        names = [item.name for item in self.problem.shape_sets[0].inputs]
        own = self.build_as_written(seed=seed, device=device)
        return called_flat(own, self.problem.arguments, names)

    def build_as_written(self, *, seed: int, device: str = "cpu") -> nn.Module:
        """The same, called as its class's forward takes its arguments."""
        import torch

        if self.live is not None:
            return copy.deepcopy(self.live).to(device).eval()
        torch.manual_seed(seed)
        try:
            if device == "meta":
                with torch.device("meta"):
                    return self.module_class(*self.init_args, **self.init_kwargs).eval()
            return self._construct(seed).to(device)
        except (Exception, SystemExit) as error:
            raise ProblemError(
                f"The constructor of {self.problem.class_name} raised "
                f"{type(error).__name__}: {one_line(error)}. Expected: it accepts "
                f"{self._init_label()}. Next: {self._init_advice(error)}."
            ) from error

    def _construct(self, seed: int) -> nn.Module:
        """The module with the numbers that `seed`, which is set, draws on the CPU."""
        import torch

        known = self._constructed.pop(seed, None)
        if known is None:
            module = self.module_class(*self.init_args, **self.init_kwargs).eval()
            if not _copies_are_alike(module):
                return module
            known = (module, torch.get_rng_state())
        try:
            module = copy.deepcopy(known[0])
        except Exception:  # noqa: BLE001 - the user's module may refuse to be copied, by any error
            return known[0]
        torch.set_rng_state(known[1])
        self._constructed[seed] = known
        while len(self._constructed) > REMEMBERED:
            del self._constructed[next(iter(self._constructed))]
        return module

    def make_inputs(
        self, shape_set: int = 0, *, seed: int, device: str = "cpu"
    ) -> tuple[object, ...]:
        """The inputs of one call, made on `device`: by `get_inputs` where the problem has it (first
        set only), else normal values (int64 tensors: 0 and 1; bool: a fair coin)."""
        import torch

        if self.live_inputs and shape_set == 0:
            return tuple(_to_device(item, device) for item in self.live_inputs)
        torch.manual_seed(seed)
        random.seed(seed)
        if self.problem.origin == "file":
            return tuple(_to_device(item, device) for item in self._own_inputs(shape_set, device))
        specs = self.problem.shape_sets[shape_set].inputs
        return tuple(default_value(spec, device) for spec in specs)

    def _own_inputs(self, shape_set: int, device: str) -> Sequence[object]:
        import torch

        with torch.device(device):
            values = _call_input_function(self.namespace, shape_set)
            named = _keywords(self.namespace)
        return flatten_call(self.module_class.forward, values, named, "get_inputs()").inputs

    def _init_advice(self, error: BaseException) -> str:
        try:
            inspect.signature(self.module_class).bind(*self.init_args, **self.init_kwargs)
        except TypeError:
            if self.problem.origin == "class":
                name = self.problem.class_name
                return (
                    "give its arguments with --init, literals such as '256, bias=False'; others, "
                    f"such as a configuration, by a file with Model = {name}, get_inputs() and "
                    "get_init_inputs()"
                )
            return "let get_init_inputs() give its arguments, as a list"
        except ValueError:  # It has no signature that Python can read.
            pass
        return "run it by itself in Python"

    def _init_label(self) -> str:
        words = [_short(value) for value in self.init_args]
        words += [f"{key}={_short(value)}" for key, value in self.init_kwargs.items()]
        return f"({', '.join(words)})"


def _copies_are_alike(module: nn.Module) -> bool:
    """Whether it has so many weights that copies pay, and nothing that a copy shares with it or has
    otherwise: functions that may hold it, and weights that lie in memory of another form."""
    from torch.nn.parameter import is_lazy

    values = [*module.parameters(), *module.buffers()]
    if any(map(is_lazy, values)):
        return False
    least, most = REMEMBERED_BYTES
    if not least <= sum(value.nbytes for value in values) <= most:
        return False
    if any(vars(value) or not value.is_contiguous() for value in values):
        return False
    if len({value.untyped_storage().data_ptr() for value in values}) < len(values):
        return False
    own = ("_parameters", "_buffers", "_modules")
    held = [
        item
        for part in module.modules()
        for name, value in vars(part).items()
        if name not in own
        for item in (value.values() if isinstance(value, dict) else (value,))
    ]
    return all(map(_is_plain, held))


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list | set):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | complex | str | bytes)


def load_problem(
    reference: str, inputs: Sequence[str] = (), init: str = "", kwargs: str = ""
) -> LoadedProblem:
    """Read `file.py` (KernelBench convention) or `file.py:Class` with `inputs` like `x=f32[4,8]`;
    without them the class is called as the file's `get_inputs` says.

    A module that Python finds stands for its file: `package.module:Class`. Several shape sets: one
    `;` between them, `x=f32[4096,8192];f32[128,512]`. `kwargs` are further keyword arguments of
    forward, literals: `alpha=0.5`. Raises ProblemError with one clear line for whatever is wrong.
    """
    found = _source(reference)
    path, source, class_name = found.path, found.text, found.class_name
    named = parse_kwargs(kwargs)
    if named and not class_name:
        source = with_kwargs(source, named)
    namespace = _execute(source, path, found.package)
    named_class = class_name and not (inputs or init or named)
    if named_class and callable(getattr(namespace, "get_inputs", None)):
        loaded = _load_convention(path, source, namespace, class_name)
    elif class_name:
        loaded = _load_class(path, source, namespace, class_name, inputs, init, named)
    elif inputs or init:
        raise ProblemError(
            f"--input and --init go with {path.name}:Class, and {reference!r} names no class. "
            f"Next: add ':ClassName' to the {'path' if path.is_file() else 'module'}."
        )
    else:
        loaded = _load_convention(path, source, namespace)
    if found.package is None:
        return loaded
    packaged = loaded.problem.evolve(package=found.package)
    return replace(loaded, problem=packaged)


def check_reference(reference: str) -> None:
    """Raise ProblemError where `reference` names no file that can be read as Python; nothing is
    executed, and torch is not imported."""
    _source(reference)


@dataclass(frozen=True)
class _Source:
    """A file's text, and which class of it is meant ("" for the convention's)."""

    path: Path
    text: str
    class_name: str
    package: Package | None


def _source(reference: str) -> _Source:
    """What `file.py:Class` or `package.module:Class` names; raises ProblemError."""
    place, _, class_name = reference.partition(":")
    path, package = Path(place), ""
    if not path.is_file():
        if not is_dotted(place):
            raise no_such_file(place)
        found = module_file(place)
        path, package = found.path, found.package
        for _ in range(EXPORTS):
            text = _checked_text(path)
            origin = class_name and exported_from(found, text, class_name)
            if not origin:
                break
            found, class_name = module_file(origin[0]), origin[1]
            path, package = found.path, found.package
    text = _checked_text(path)
    return _Source(path, text, class_name, package_of(path, text, package))


def _checked_text(path: Path) -> str:
    source = _read(path)
    _check_syntax(source, path)
    return source


def restore_problem(problem: Problem, live: object | None = None) -> LoadedProblem:
    """Rebuild a LoadedProblem from its stored value alone (the file may have changed or gone)."""
    if problem.origin == "live":
        module, inputs = live  # type: ignore[misc]
        return LoadedProblem(problem, type(module), live=module, live_inputs=inputs)
    namespace = _execute(problem.source, Path(problem.path), problem.package)
    return from_namespace(problem, namespace)


def declared_problem(loaded: LoadedProblem) -> Problem:
    """What the source of a problem in the KernelBench convention declares, whatever its record
    says. Raises ProblemError where it is none any more."""
    assert loaded.namespace is not None
    problem = loaded.problem
    path, source = Path(problem.path), problem.source
    return _load_convention(path, source, loaded.namespace, problem.class_name).problem


def from_namespace(problem: Problem, namespace: types.ModuleType) -> LoadedProblem:
    """Bind a stored problem to the module object that its source made."""
    module_class = getattr(namespace, problem.class_name)
    if problem.origin == "file":
        args, kwargs = _convention_init(namespace, problem.path)
    else:
        args, kwargs = parse_init(problem.init_source)
    return LoadedProblem(problem, module_class, args, kwargs, namespace)


def require_module(given: object) -> None:
    """Raise ProblemError for what is no module: a class that nobody called, a function."""
    from torch import nn

    if isinstance(given, nn.Module):
        return
    name = getattr(given, "__name__", type(given).__name__)
    if isinstance(given, type) and issubclass(given, nn.Module):
        raise ProblemError(
            f"{name} is a class. Expected a module made of it. Next: give {name}(...) with its "
            "constructor's arguments."
        )
    what = f"{name} is a function" if inspect.isroutine(given) else f"Got a {name}"
    raise ProblemError(
        f"{what}. Expected a torch.nn.Module. Next: put what it computes into the forward of one."
    )


def _require_list(given: object) -> None:
    import torch

    if isinstance(given, torch.Tensor):
        raise ProblemError(
            f"The example inputs are a tensor of shape {list(given.shape)}. Expected a list of "
            "forward's arguments. Next: give [x] in place of x."
        )
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ProblemError(
            f"The example inputs are a {type(given).__name__}. Expected a list of forward's "
            "arguments. Next: give [x] in place of x."
        )
    if isinstance(given, dict):
        raise ProblemError(
            f"The example inputs are a dict of {', '.join(map(str, given)) or 'nothing'}. Expected "
            "a list of forward's arguments. Next: give [], and the dict as example_kwargs."
        )


def problem_from_module(
    module: nn.Module,
    example_inputs: Sequence[object],
    example_kwargs: Mapping[str, object] | None = None,
) -> LoadedProblem:
    """A problem from a live module. Its class's file is kept as source where Python knows it.

    Raises ProblemError where `module` is none, or `example_inputs` are no list of its arguments.
    """
    require_module(module)
    _require_list(example_inputs)
    name = type(module).__name__
    given = flatten_call(
        type(module).forward, tuple(example_inputs), example_kwargs or {}, "example_inputs"
    )
    try:
        source = inspect.getsource(sys.modules[type(module).__module__])
    except (OSError, TypeError, KeyError):
        source = ""
    digest = hashlib.sha256(repr(module).encode())
    for key, tensor in module.state_dict().items():
        digest.update(f"{key}{tuple(tensor.shape)}{tensor.dtype}".encode())
    specs = describe_inputs(given.inputs, given.names)
    check_elements(specs)
    problem = Problem(
        name=name.lower(),
        origin="live",
        path="",
        source=source,
        class_name=name,
        init_source=digest.hexdigest(),
        shape_sets=(ShapeSet(inputs=specs),),
        arguments=given.structure,
    )
    return LoadedProblem(problem, type(module), live=module.eval(), live_inputs=given.inputs)


def _load_class(
    path: Path,
    source: str,
    namespace: types.ModuleType,
    class_name: str,
    inputs: Sequence[str],
    init: str,
    named: Mapping[str, object],
) -> LoadedProblem:
    module_class = _module_class(namespace, class_name, path)
    if not inputs:
        raise ProblemError(
            f'{path.name}:{class_name} needs its inputs. Expected one --input "name=dtype[shape]" '
            f"each for {', '.join(_forward_names(module_class)) or 'forward'}."
        )
    parsed = dict(parse_input(item) for item in inputs)
    names = _argument_names(module_class)
    unknown = [name for name in (*parsed, *named) if names and name not in names]
    if unknown:
        flag = "--input" if unknown[0] in parsed else "--kwargs"
        raise ProblemError(
            f"{flag} names {unknown[0]!r}, which {class_name}.forward does not take. "
            f"Expected: {', '.join(names)}."
        )
    count = max(len(item) for item in parsed.values())
    calls = [
        flatten_call(
            module_class.forward, *_class_call(module_class, parsed, named, index), "--input"
        )
        for index in range(count)
    ]
    sets = _shape_sets(calls)
    args, kwargs = parse_init(init)
    problem = Problem(
        name=class_name.lower(),
        origin="class",
        path=str(path),
        source=source,
        class_name=class_name,
        init_source=init,
        shape_sets=sets,
        arguments=calls[0].structure,
    )
    return LoadedProblem(problem, module_class, args, kwargs, namespace)


def _load_convention(
    path: Path, source: str, namespace: types.ModuleType, class_name: str = "Model"
) -> LoadedProblem:
    import torch

    module_class = _module_class(namespace, class_name, path)
    if not callable(getattr(namespace, "get_inputs", None)):
        raise ProblemError(
            f"{path.name} has no get_inputs(). Expected the KernelBench convention (Model, "
            f"get_inputs, get_init_inputs). Next: add it, or use {path.name}:Model --input."
        )
    args, kwargs = _convention_init(namespace, str(path))
    calls: list[FlatCall] = []
    for index in range(_input_set_count(namespace)):
        try:
            with torch.device("meta"):
                values, named = _call_input_function(namespace, index), _keywords(namespace)
        except (Exception, SystemExit):  # noqa: BLE001 - the user's function may need real data; then pay for it once
            values = _user_call(partial(_call_input_function, namespace, index), path)
            named = _user_call(lambda: _keywords(namespace), path, "get_kwargs()")
        calls.append(flatten_call(module_class.forward, values, named, "get_inputs()"))
    problem = Problem(
        name=path.stem if class_name == "Model" else class_name.lower(),
        origin="file",
        path=str(path),
        source=source,
        class_name=class_name,
        shape_sets=_shape_sets(calls),
        arguments=calls[0].structure,
    )
    return LoadedProblem(problem, module_class, args, kwargs, namespace)


def _class_call(
    module_class: type[nn.Module],
    parsed: Mapping[str, Sequence[InputTree]],
    named: Mapping[str, object],
    index: int,
) -> tuple[list[object], dict[str, object]]:
    """Positional arguments and keywords of shape set `index`."""
    values: dict[str, object] = {
        name: item[min(index, len(item) - 1)] for name, item in parsed.items()
    }
    parameters = inspect.signature(module_class.forward).parameters.values()
    if any(item.kind is item.VAR_POSITIONAL for item in parameters):
        return list(values.values()), dict(named)
    unnamed = [
        item.name
        for item in parameters
        if item.kind is item.POSITIONAL_ONLY and item.name in values
    ]
    return [values.pop(name) for name in unnamed], {**values, **named}


def _shape_sets(calls: Sequence[FlatCall]) -> tuple[ShapeSet, ...]:
    """One set a call. Raises ProblemError where two calls are nested differently."""
    found: list[ShapeSet] = []
    for index, call in enumerate(calls):
        if call.structure != calls[0].structure or len(call.names) != len(calls[0].names):
            raise ProblemError(
                f"Input set {index} is nested otherwise than set 0. Expected sets that differ in "
                "sizes alone. Next: make a problem of each form."
            )
        found.append(ShapeSet(inputs=describe_inputs(call.inputs, call.names)))
        check_elements(found[-1].inputs)
    return tuple(found)


def _user_call(call: Callable[[], Given], path: Path, name: str = "get_inputs()") -> Given:
    try:
        return call()
    except ProblemError:
        raise
    except (Exception, SystemExit) as error:
        expected = "a list of inputs" if name == "get_inputs()" else "a dict of forward's keywords"
        raise ProblemError(
            f"{name} of {path.name} raised {type(error).__name__}: {one_line(error)}. "
            f"Expected {expected}. Next: {step_after(error, 'fix that function')}."
        ) from error


NO_CUDA = ("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")
"""What torch says of `x.cuda()` where there is no GPU."""


def step_after(error: BaseException, usual: str) -> str:
    """What to do about an error of the user's code, where it is not the `usual`."""
    if any(words in str(error) for words in NO_CUDA):
        return "leave .cuda() and device='cuda' out: inputs and module are put where they run"
    return usual


def _input_set_count(namespace: types.ModuleType) -> int:
    maker = getattr(namespace, "get_input_sets", None)
    if maker is None:
        return 1
    import torch

    with torch.device("meta"):
        return max(1, len(maker()))


def _call_input_function(namespace: types.ModuleType | None, shape_set: int) -> Sequence[object]:
    """`get_inputs()`, or the given entry of `get_input_sets()` where a problem has several sets."""
    maker = getattr(namespace, "get_input_sets", None)
    if maker is not None:
        return list(maker()[shape_set])
    values = namespace.get_inputs()  # type: ignore[union-attr]
    if isinstance(values, Mapping):
        raise ProblemError(
            "get_inputs() gave a dict. Expected a list of forward's positional arguments. Next: "
            "let get_kwargs() give the dict, and get_inputs() an empty list."
        )
    if not isinstance(values, list | tuple):
        raise ProblemError(
            f"get_inputs() gave a {type(values).__name__}. Expected a list of inputs. Next: "
            "return [x] in place of x."
        )
    return list(values)


def _keywords(namespace: types.ModuleType | None) -> dict[str, object]:
    """The keyword arguments of forward that `get_kwargs()` gives; none where there is none."""
    maker = getattr(namespace, "get_kwargs", None)
    if maker is None:
        return {}
    values = maker()
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ProblemError(
            f"get_kwargs() gave a {type(values).__name__}. Expected a dict with names of forward's "
            "parameters as keys."
        )
    return dict(values)


def with_kwargs(source: str, named: Mapping[str, object]) -> str:
    """`source`, its `get_kwargs()` overruled by these literals."""
    return (
        source.rstrip("\n") + "\n\n\n_kwargs_as_given = globals().get('get_kwargs', dict)\n\n\n"
        "def get_kwargs():\n"
        '    """Keyword arguments of forward, those of --kwargs among them."""\n'
        f"    return {{**_kwargs_as_given(), **{dict(named)!r}}}\n"
    )


def _convention_init(
    namespace: types.ModuleType, path: str
) -> tuple[tuple[object, ...], dict[str, object]]:
    maker = getattr(namespace, "get_init_inputs", None)
    try:
        values = [] if maker is None else maker()
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"get_init_inputs() of {Path(path).name} raised {type(error).__name__}: "
            f"{one_line(error)}. Expected the constructor's arguments as a list."
        ) from error
    if (
        isinstance(values, list | tuple)
        and len(values) == 2
        and isinstance(values[0], list | tuple)
        and isinstance(values[1], dict)
    ):
        return tuple(values[0]), dict(values[1])
    if isinstance(values, dict):
        return (), dict(values)
    if not isinstance(values, list | tuple):
        raise ProblemError(
            f"get_init_inputs() of {Path(path).name} gave {type(values).__name__}. "
            "Expected the constructor's arguments as a list."
        )
    return tuple(values), {}


def _module_class(namespace: types.ModuleType, name: str, path: Path) -> type[nn.Module]:
    from torch import nn

    found = getattr(namespace, name, None)
    if isinstance(found, type) and issubclass(found, nn.Module):
        return found
    classes = [
        key
        for key, value in vars(namespace).items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == namespace.__name__
    ]
    hint = f"It has: {', '.join(classes)}." if classes else "It defines no torch module."
    place = f"{path.parent.name}/{path.name}" if path.stem == "__init__" else path.name
    raise ProblemError(
        f"{place} has no torch module named {name!r}. {hint} Next: name one as {place}:Class."
    )


def _forward_names(module_class: type[nn.Module]) -> tuple[str, ...]:
    parameters = list(inspect.signature(module_class.forward).parameters.values())[1:]
    return tuple(
        item.name
        for item in parameters
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    )


def _argument_names(module_class: type[nn.Module]) -> tuple[str, ...]:
    """What forward can be given by name; empty where it takes any name."""
    parameters = list(inspect.signature(module_class.forward).parameters.values())[1:]
    if any(item.kind in (item.VAR_KEYWORD, item.VAR_POSITIONAL) for item in parameters):
        return ()
    return tuple(item.name for item in parameters)


def _read(path: Path) -> str:
    try:
        return read_source(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(
            f"Cannot read {str(path)!r}: {one_line(error)}. Expected Python source in UTF-8."
        ) from error


def _check_syntax(source: str, path: Path) -> None:
    try:
        parse_source(source, str(path))
    except SyntaxError as error:
        raise ProblemError(
            f"{path.name} {describe_syntax_error(error)}. Expected valid Python. "
            "Next: fix the syntax."
        ) from error


def _execute(source: str, path: Path, package: Package | None = None) -> types.ModuleType:
    """Run the user's file as a module of its own name, findable by `inspect` and by pickle.

    What it imports with dots comes from `package`.
    """
    name = f"agentkernel_problem_{path.stem}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    module = types.ModuleType(name)
    filename = f"<{name}>"
    module.__file__ = str(path)
    if package is not None and package.name:
        module.__package__ = package.name
        # Libraries ask of which of their folders a function is.
        filename = "/".join([filename, *package.name.split("."), path.name])
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    sys.modules[name] = module
    found = search_path(path.parent) if package is None else entered(package, path.parent)
    with found:
        try:
            exec(compile_source(source, filename), module.__dict__)
        except (Exception, SystemExit) as error:
            sys.modules.pop(name, None)
            named = package.name if package is not None else ""
            run = f"python -m {named}.{path.stem}" if named else "it with python"
            raise ProblemError(
                f"{path.name} raised {type(error).__name__} when imported: {one_line(error)}. "
                f"Expected a file that imports by itself. Next: run {run}."
            ) from error
    pickle_by_value(module)
    return module


def _to_device(value: object, device: str) -> object:
    import torch

    return value.to(device) if isinstance(value, torch.Tensor) else value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
