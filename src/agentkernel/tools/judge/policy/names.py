"""Names that the policy knows, and what the names of a source resolve to.

Modules, names and torch calls are listed here. Builtins are resolved by Python's own symbol
tables: a default, a decorator or a class body is read in the scope around the function, where a
parameter of the same name does not hide what it names. Modules are resolved by the objects
themselves: `torch.builtins` is Python's `builtins`, whatever it is called there.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from types import ModuleType

from agentkernel.storage.source_text import symbol_tables

IMPORTS = {
    "__future__",
    "collections.abc",
    "dataclasses",
    "itertools",
    "math",
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "triton",
    "triton.language",
    "triton.language.extra",
    "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.libdevice",
    "triton.language.math",
    "triton.language.standard",
    "triton.tools.tensor_descriptor",
    "typing",
}
TORCH_SPACES = {
    "torch.amp",
    "torch.autograd",
    "torch.backends",
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.cuda",
    "torch.cuda.amp",
    "torch.cuda.nvtx",
    "torch.fft",
    "torch.functional",
    "torch.linalg",
    "torch.nn.attention",
    "torch.nn.init",
    "torch.nn.modules",
    "torch.nn.parameter",
    "torch.nn.utils",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.rnn",
    "torch.random",
    "torch.return_types",
    "torch.signal",
    "torch.sparse",
    "torch.special",
    "torch.version",
    "torch.xpu",
}
"""Modules that may be named below torch, beside those that may be imported. What they compute is
seen; what is not on the list may lead to Python's own modules."""
TRITON_SPACES = {
    "triton.language.core",
    "triton.language.extra.hip",
    "triton.language.extra.hip.libdevice",
    "triton.language.random",
    "triton.language.target_info",
    "triton.runtime",
    "triton.runtime.driver",
    "triton.tools",
}
"""The same below triton."""
BUILTINS = {
    "Ellipsis",
    "False",
    "None",
    "NotImplemented",
    "True",
    "__debug__",
    "__name__",
    "abs",
    "all",
    "any",
    "bool",
    "bytes",
    "callable",
    "chr",
    "classmethod",
    "complex",
    "dict",
    "divmod",
    "enumerate",
    "filter",
    "float",
    "format",
    "frozenset",
    "hasattr",
    "hash",
    "hex",
    "id",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "object",
    "oct",
    "ord",
    "pow",
    "print",
    "property",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "slice",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "zip",
}
"""Python's builtins that a file may name, beside the exceptions."""
TYPING = {
    "Annotated",
    "Any",
    "Callable",
    "ClassVar",
    "Collection",
    "Dict",
    "Final",
    "FrozenSet",
    "Generator",
    "Generic",
    "Hashable",
    "Iterable",
    "Iterator",
    "List",
    "Literal",
    "Mapping",
    "MutableMapping",
    "NamedTuple",
    "Never",
    "NoReturn",
    "Optional",
    "Protocol",
    "Self",
    "Sequence",
    "Set",
    "TYPE_CHECKING",
    "Tuple",
    "Type",
    "TypeAlias",
    "TypeVar",
    "TypedDict",
    "Union",
    "cast",
    "final",
    "overload",
}
DATACLASSES = {
    "InitVar",
    "KW_ONLY",
    "asdict",
    "astuple",
    "dataclass",
    "field",
    "fields",
    "is_dataclass",
    "replace",
}
LISTED = {"typing": TYPING, "dataclasses": DATACLASSES}
"""Modules of which only some names may be read: others evaluate strings, or make classes of them.
"""
KERNEL_REFLECTION = {
    "bytes",
    "callable",
    "format",
    "hasattr",
    "hash",
    "id",
    "isinstance",
    "issubclass",
    "object",
    "repr",
    "str",
    "super",
    "type",
}
"""What may answer otherwise where a kernel is interpreted than where it is compiled."""
INTERPRETERS_NAMES = {"_InterpreterComparison", "interpreter_loop", "interpreter_semantic"}
"""What the interpreter puts into a file for the kernels that it rewrites."""
BANNED_ATTRIBUTES = {
    "ForwardRef",
    "_eval_type",
    "_evaluate",
    "ag_await",
    "ag_code",
    "ag_frame",
    "co_filename",
    "cr_await",
    "cr_code",
    "cr_frame",
    "cr_origin",
    "evaluate_forward_ref",
    "f_builtins",
    "f_code",
    "f_locals",
    "get_annotations",
    "get_type_hints",
    "getattr_static",
    "gi_code",
    "gi_yieldfrom",
    "make_dataclass",
    "resizable",
    "tb_frame",
    "tb_next",
    "_C",
    "_base",
    "_is_view",
    "handle",
    "is_inference",
    "is_inference_mode_enabled",
    "is_shared",
    "__dict__",
    "__globals__",
    "__builtins__",
    "__subclasses__",
    "ctypes",
    "data_ptr",
    "f_back",
    "f_globals",
    "from_file",
    "gi_frame",
    "numpy",
    "os",
    "default_generator",
    "default_generators",
    "register_backward_hook",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_hook",
    "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_post_accumulate_grad_hook",
    "register_state_dict_post_hook",
    "register_state_dict_pre_hook",
    "subprocess",
    "sys",
    "set_default_dtype",
    "set_float32_matmul_precision",
    "tolist",
    "untyped_storage",
    "typed_storage",
    "storage",
    "grad",
    "grad_fn",
    "is_leaf",
    "output_nr",
    "retains_grad",
    "importlib",
    "load_library",
    "inspect",
    "threading",
}
OWN_NAMES = {"self._version", "self.grad", "self.storage", "torch.autograd.grad"}
"""What is called like such an attribute and is none: a module's own, and the function."""
TELLING_QUESTIONS = {
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "get_num_interop_threads",
    "get_num_threads",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_deterministic_algorithms_warn_only_enabled",
}
"""What torch answers otherwise in the judge's process than in a user's, in constructors too."""
DEVICE_QUESTIONS = {
    "_is_compiled",
    "device_count",
    "get_device",
    "is_available",
    "is_cpu",
    "is_cuda",
    "is_initialized",
    "is_pinned",
    "is_xpu",
}
"""What torch answers otherwise where kernels are interpreted than on a GPU."""
ASKED_OF_KERNELS = {"best_config", "run", "warmup"}
"""Attributes of kernels that a file may read."""
HARMLESS_DUNDERS = {"__all__", "__init__", "__name__", "__version__"}
MODULE_QUESTIONS = {
    "buffers",
    "children",
    "get_buffer",
    "get_parameter",
    "get_submodule",
    "modules",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "parameters",
    "state_dict",
}
"""Methods that every module has and that compute nothing."""
TORCH_COMPUTE_SPACES = (
    "torch.nn.",
    "torch.fft.",
    "torch.linalg.",
    "torch.special.",
    "torch.sparse.",
    "torch.signal.",
    "torch.autograd.",
)
TORCH_PLAIN = {
    "Generator",
    "Size",
    "Tensor",
    "as_strided",
    "broadcast_shapes",
    "cuda",
    "device",
    "dtype",
    "empty",
    "empty_like",
    "empty_strided",
    "finfo",
    "flatten",
    "full",
    "full_like",
    "get_device_module",
    "iinfo",
    "is_autocast_enabled",
    "is_grad_enabled",
    "is_tensor",
    "movedim",
    "narrow",
    "no_grad",
    "ones",
    "ones_like",
    "permute",
    "promote_types",
    "ravel",
    "reshape",
    "result_type",
    "squeeze",
    "swapaxes",
    "tensor",
    "transpose",
    "unflatten",
    "unsqueeze",
    "zeros",
    "zeros_like",
}
"""Allocation, questions and views, whose methods are free too: no compute."""
LIBRARY_OPS = {
    "torch.addbmm",
    "torch.addmm",
    "torch.baddbmm",
    "torch.bmm",
    "torch.conv1d",
    "torch.conv2d",
    "torch.conv3d",
    "torch.conv_transpose1d",
    "torch.conv_transpose2d",
    "torch.conv_transpose3d",
    "torch.matmul",
    "torch.mm",
    "torch.mv",
    "torch.nn.functional.conv1d",
    "torch.nn.functional.conv2d",
    "torch.nn.functional.conv3d",
    "torch.nn.functional.conv_transpose1d",
    "torch.nn.functional.conv_transpose2d",
    "torch.nn.functional.conv_transpose3d",
    "torch.nn.functional.linear",
    "torch.nn.functional.scaled_dot_product_attention",
}
LIBRARY_METHODS = {"matmul", "mm", "bmm", "mv", "addmm", "baddbmm"}
COMPUTE_METHODS = LIBRARY_METHODS | {
    "abs",
    "add",
    "add_",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "argsort",
    "clamp",
    "clamp_",
    "cos",
    "cumprod",
    "cumsum",
    "div",
    "div_",
    "dot",
    "einsum",
    "erf",
    "exp",
    "exp_",
    "gather",
    "index_add",
    "index_select",
    "log",
    "log_softmax",
    "logsumexp",
    "masked_fill",
    "mean",
    "mul",
    "mul_",
    "norm",
    "pow",
    "prod",
    "reciprocal",
    "relu",
    "relu_",
    "rsqrt",
    "scatter",
    "scatter_add",
    "sigmoid",
    "sin",
    "softmax",
    "sort",
    "sqrt",
    "std",
    "sub",
    "sub_",
    "sum",
    "tanh",
    "topk",
    "tril",
    "triu",
    "var",
    "where",
}


KNOWN = (*IMPORTS, *TORCH_SPACES, *TRITON_SPACES)
ERRORS = {
    name
    for name, item in vars(builtins).items()
    if isinstance(item, type) and issubclass(item, Exception)
}
FREE = {*BUILTINS, *ERRORS}
ROOTS = {name.partition(".")[0] for name in IMPORTS} - {"__future__"}


@dataclass(frozen=True)
class Use:
    """A name that is read, and the first line that may read it."""

    name: str
    line: int


def is_banned(name: str) -> bool:
    """True for a builtin of Python's that a file may not read. Names with two underscores have a
    rule of their own, and some are there only once a process has run `exec` in that module."""
    return name not in FREE and not is_dunder(name) and hasattr(builtins, name)


def is_dunder(name: str) -> bool:
    """True for `__class__` and the like."""
    return name.startswith("__") and name.endswith("__")


def builtin_uses(source: str, tree: ast.Module) -> Iterator[Use]:
    """Reads of Python's builtins that are not among the free ones. What the file's own statements
    or a class body assign is no shelter: before that, the name still stands for the builtin."""
    lines: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            lines.setdefault(node.id, []).append(node.lineno)
    for table in symbol_tables(source):
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if not is_banned(name) or not symbol.is_referenced():
                continue
            if table.get_type() != "function" or symbol.is_global():
                later = [line for line in lines.get(name, ()) if line >= table.get_lineno()]
                yield Use(name, min(later, default=table.get_lineno()))


def annotated(tree: ast.Module) -> Iterator[ast.expr]:
    """What stands as an annotation: the judge does not evaluate it, and an import may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def unbound_uses(source: str, tree: ast.Module, asked: Container[int] = ()) -> Iterator[Use]:
    """Reads of names that neither the file nor Python binds, but for those in nodes of the ids
    `asked`: only what runs the file could have put them there. Names of the interpreter's are such
    wherever they stand."""
    lines: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in asked:
            lines.setdefault(node.id, []).append(node.lineno)
    tables = list(symbol_tables(source))
    bound = {
        symbol.get_name()
        for symbol in tables[0].get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    for table in tables:
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if name in INTERPRETERS_NAMES and name in lines:
                yield Use(name, lines[name][0])
            at_large = symbol.is_global() or table.get_type() == "module"
            known = name in bound or is_dunder(name) or hasattr(builtins, name)
            if at_large and symbol.is_referenced() and not known and name in lines:
                yield Use(name, lines[name][0])


@functools.cache
def _root(name: str) -> ModuleType | None:
    return importlib.import_module(name) if name in ROOTS else None


@functools.cache
def module_at(path: str) -> str | None:
    """The module that `torch.nn.functional` and the like is, by its own name; None for what is no
    module, and for what this version does not have."""
    item = _object_at(path)
    return item.__name__ if isinstance(item, ModuleType) else None


def is_code_at(path: str) -> bool:
    """Whether `torch.relu`, `torch.Tensor.add` and the like is a function, a class or a method."""
    item = _object_at(path)
    if item is None and path.count("."):
        owner = _object_at(path.rpartition(".")[0])
        item = getattr(owner, path.rpartition(".")[2], None) if isinstance(owner, type) else None
    return callable(item)


def _object_at(path: str) -> object:
    first, *rest = path.split(".")
    item: object = _root(first)
    for at, word in enumerate(rest):
        if not isinstance(item, ModuleType):
            return None
        below = vars(item).get(word)
        if below is None and ".".join((first, *rest[: at + 1])) in KNOWN:
            below = _imported(".".join((first, *rest[: at + 1])))
        item = below
    return item


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
