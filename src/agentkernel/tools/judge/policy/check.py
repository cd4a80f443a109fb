"""The static policy check of a source by its syntax tree, before anything executes it.

It keeps honest coders honest and gives their mistakes a rule and a line. It is no security
boundary: that is the sandbox, together with the comparison with the oracle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from agentkernel.domain.verdict import Policy, PolicyViolation
from agentkernel.storage.source_text import BYTE_ORDER_MARK, check_one_reading, parse_source
from agentkernel.tools.judge.policy.definitions import (
    FUNCTIONS,
    defined_twice,
    kernel_texts,
    names_given,
    overridden,
)
from agentkernel.tools.judge.policy.expressions import (
    asks_type,
    classes_asked,
    constant_value,
    is_inherited,
    is_matmul,
    is_named_result,
    is_rounding_of_a_gpu,
    is_torch_alone,
    kept_counts,
    made_text,
    only_raises,
    own_type,
    places_of_reads,
    plain_fields,
    reads_name,
    shown_items,
    stored,
    strings_given,
    texts_of,
    told_devices,
)
from agentkernel.tools.judge.policy.families import GraphOperators
from agentkernel.tools.judge.policy.kernel_source import (
    argument_names,
    backward_only,
    functions,
    kernel_functions,
    last_word,
    reachable,
)
from agentkernel.tools.judge.policy.launch_form import plain_form
from agentkernel.tools.judge.policy.names import (
    ASKED_OF_KERNELS,
    BANNED_ATTRIBUTES,
    COMPUTE_METHODS,
    DEVICE_QUESTIONS,
    HARMLESS_DUNDERS,
    IMPORTS,
    KERNEL_REFLECTION,
    KNOWN,
    LIBRARY_METHODS,
    LIBRARY_OPS,
    LISTED,
    MODULE_QUESTIONS,
    OWN_NAMES,
    TELLING_QUESTIONS,
    TORCH_COMPUTE_SPACES,
    TORCH_PLAIN,
    annotated,
    builtin_uses,
    is_code_at,
    is_dunder,
    module_at,
    unbound_uses,
)
from agentkernel.tools.judge.policy.operator_calls import OperatorCalls
from agentkernel.tools.problem.loading import LoadedProblem

PLAIN_PATTERNS = {
    "bool",
    "bytes",
    "dict",
    "float",
    "frozenset",
    "int",
    "list",
    "set",
    "str",
    "tuple",
}
"""Classes whose positional pattern is the value itself."""
ASKING = ("callable", "hasattr", "hash", "id", "isinstance", "len", "type")
"""Builtins that ask what their first argument is."""
PLAIN_ANNOTATION = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.BitOr,
    ast.UnaryOp,
    ast.USub,
    ast.Load,
)


def check_policy(
    source: str,
    policy: Policy,
    original: frozenset[str] | None = None,
    operators: GraphOperators | None = None,
) -> PolicyViolation | None:
    """The first violation in `source`, in the order of the lines; None where it may run.
    `original`: what the original's classes define, beside which no method of a module may be
    overridden; None where that is not known, and not asked. `operators`: what the original's graph
    calls, of which "mixed" allows a source as much; None where that is not known, and none may be
    called. Of a source in its graph form the plain text is read: the block around it is known.
    """
    source = plain_form(source) or source
    try:
        check_one_reading(source)
        tree = parse_source(source)
        reading = _Reading(tree, source, policy, original, operators)
        found = sorted(reading.violations(), key=lambda item: item.line)
    except SyntaxError as error:
        # What Python's parser takes its tables of names may refuse: a nonlocal in no function.
        return PolicyViolation(rule="syntax", line=error.lineno or 0, text=str(error.msg))
    return found[0] if found else None


def own_names(loaded: LoadedProblem) -> frozenset[str]:
    """What the original's classes define: those in its text, those of its parts where it is
    there, and those that they derive from."""
    from torch import nn

    parts = [type(item) for item in loaded.live.modules()] if loaded.live is not None else []
    every = [kind for item in (loaded.module_class, *parts) for kind in item.__mro__]
    kinds = [kind for kind in every if kind not in (nn.Module, object)]
    names = frozenset(name for kind in kinds for name in vars(kind) if name != "__module__")
    try:
        return names | names_given(parse_source(loaded.problem.source))
    except SyntaxError:  # the text of a module that was handed over alive may not stand alone
        return names


class _Reading:
    """One source with what is known about its names."""

    def __init__(
        self,
        tree: ast.Module,
        source: str,
        policy: Policy,
        original: frozenset[str] | None,
        operators: GraphOperators | None,
    ) -> None:
        self.tree = tree
        self.lines = source.removeprefix(BYTE_ORDER_MARK).splitlines()
        self.policy = policy
        self._original = original
        self._operators = operators if policy == "mixed" else None
        self._operator_names: set[int] = set()
        self.modules: dict[str, str] = {}
        self._jit = kernel_functions(tree)
        self.kernels = {name for name, _ in self._jit}
        self._kernel_nodes = {id(node) for _, f in self._jit for node in ast.walk(f)}
        self._kept_counts = kept_counts(tree)
        self._source = source
        self._backward = {id(item) for item in backward_only(tree)}
        self._backward_nodes = {id(node) for item in backward_only(tree) for node in ast.walk(item)}

    def violations(self) -> Iterator[PolicyViolation]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._imports(node)
        self._follow()
        yield from self._operator_calls()
        for use in builtin_uses(self._source, self.tree):
            yield self._at_line(use.line, "banned-name", use.name)
        for node in ast.walk(self.tree):
            yield from self._names(node)
        yield from self._told_apart()
        yield from self._texts()
        yield from self._handed_on()
        yield from self._shape_of_file()
        found = [defined_twice(self.tree), kernel_texts(self.tree, self.lines)]
        if self._original is not None:
            found.append(overridden(self.tree, self._original, self._path))
        for node, rule, text in chain.from_iterable(found):
            yield self._at(node, rule, text)
        yield from self._reflection()
        for node in ast.walk(self._class() or ast.Module(body=[], type_ignores=[])):
            if isinstance(node, ast.Try | ast.TryStar):
                yield self._at(node, "try-in-model", "a fallback hides what ran")
        if self.policy != "any":
            yield from self._compute()

    def _operator_calls(self) -> Iterator[PolicyViolation]:
        """Operators that are called by their full names, beside the library's."""
        if self._operators is None:
            return
        calls = OperatorCalls(self._forward_functions(), self._class(), self._path)
        self._operator_names = calls.nodes
        for node, rule, text in calls.violations(self._operators):
            yield self._at(node, rule, text)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[PolicyViolation]:
        for alias in node.names:
            base = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            full = f"{base}.{alias.name}" if isinstance(node, ast.ImportFrom) else base
            # What is taken from a module may be one itself: `from torch import builtins`.
            module = module_at(full) if isinstance(node, ast.ImportFrom) else None
            allowed = full in IMPORTS or (base in IMPORTS and (module is None or module in KNOWN))
            if not allowed or alias.name == "*" or getattr(node, "level", False):
                yield self._at(node, "import", f"{full} is not among {', '.join(sorted(IMPORTS))}")
            elif alias.name in BANNED_ATTRIBUTES | TELLING_QUESTIONS | DEVICE_QUESTIONS:
                yield self._at(node, "banned-attribute", alias.name)
            elif isinstance(node, ast.ImportFrom) or alias.asname:
                self.modules[alias.asname or alias.name] = full
            else:
                self.modules[alias.name.split(".")[0]] = alias.name.split(".")[0]

    def _names(self, node: ast.AST) -> Iterator[PolicyViolation]:
        if id(node) in self._operator_names:
            return
        if isinstance(node, ast.Name) and is_dunder(node.id) and node.id not in HARMLESS_DUNDERS:
            yield self._at(node, "dunder", node.id)
        elif isinstance(node, ast.Attribute):
            own = self._path(node) in OWN_NAMES
            if node.attr in BANNED_ATTRIBUTES and not own:
                yield self._at(node, "banned-attribute", node.attr)
            elif node.attr == "_version" and not own and id(node) not in self._kept_counts:
                text = "_version: it may be kept, and compared with what was kept"
                yield self._at(node, "banned-attribute", text)
            elif is_dunder(node.attr) and node.attr not in HARMLESS_DUNDERS:
                yield self._at(node, "dunder", node.attr)
            elif node.attr == "backward" and id(node) not in self._backward_nodes:
                yield self._at(node, "backward-called", "forward may not differentiate")
            elif self._path(node).startswith("torch.") and self._torch_banned(node):
                yield self._at(node, "torch-namespace", self._path(node))
            elif self._foreign(node):
                yield self._at(
                    node, "foreign-module", f"{self._path(node)} leads to another module"
                )
        elif isinstance(node, ast.Name) and self._banned_import(node):
            yield self._at(node, "torch-namespace", self._path(node))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield self._at(node, "global-state", ", ".join(node.names))
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            yield from self._patching(node)

    def _reflection(self) -> Iterator[PolicyViolation]:
        """Ways from a string, or from what a name happens to be, to an attribute or to code; in
        kernels, questions that the compiler answers otherwise than the interpreter."""
        given = stored(self.tree)
        noted = {id(item) for root in annotated(self.tree) for item in ast.walk(root)}
        yield from self._annotations(given)
        asked = own_type(self.tree) | noted
        for node in ast.walk(self.tree):
            asked |= classes_asked(node)
            if asks_type(node):
                asked.add(id(node.func))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.MatchClass) and node.patterns:
                if last_word(node.cls) not in PLAIN_PATTERNS - given:
                    yield self._at(node, "class-pattern", "name the attributes that it matches")
            elif reads_name(node, {"type"}) and id(node) not in asked:
                yield self._at(node, "banned-name", "type: to ask one value for its type alone")
            elif isinstance(node, ast.Attribute):
                module, _, name = self._path(node).rpartition(".")
                if module in LISTED and name not in LISTED[module]:
                    yield self._at(node, "banned-attribute", f"{name} of {module}")
            elif isinstance(node, ast.ImportFrom) and node.module in LISTED:
                for alias in node.names:
                    if alias.name not in LISTED[node.module]:
                        yield self._at(node, "import", f"{alias.name} of {node.module}")
        yield from self._kernels_asked()
        for kernel in {id(item): item for _, item in self._jit}.values():
            asking = KERNEL_REFLECTION - stored(kernel) - argument_names(kernel.args)
            for node in (x for body in (kernel.args, *kernel.body) for x in ast.walk(body)):
                if reads_name(node, asking) and id(node) not in noted:
                    text = f"{node.id}: a compiled kernel answers otherwise than an interpreted one"
                    yield self._at(node, "kernel-reflection", text)
        for use in unbound_uses(self._source, self.tree, noted):
            yield self._at_line(use.line, "unbound-name", f"nothing binds {use.name}")

    def _kernels_asked(self) -> Iterator[PolicyViolation]:
        """A compiled kernel has other attributes and another type than an interpreted one."""
        named = self._named_after(self.kernels)
        for node in ast.walk(self.tree):
            if id(node) in self._kernel_nodes:
                continue
            asked: list[ast.expr] = []
            if isinstance(node, ast.Attribute) and node.attr not in ASKED_OF_KERNELS:
                asked = [node.value]
            elif isinstance(node, ast.Call) and last_word(node.func) in ASKING:
                asked = node.args[:1]
            if any(isinstance(item, ast.Name) and item.id in named for item in asked):
                text = f"{ast.unparse(node)[:60]}: a kernel is launched, and asked for nothing else"
                yield self._at(node, "kernel-reflection", text)

    def _annotations(self, given: set[str]) -> Iterator[PolicyViolation]:
        """Where the file does not put it off, an import evaluates annotations, and the judge does
        not: they are plain names and what those of other modules hold."""
        kinds = (*FUNCTIONS, ast.ClassDef)
        own = given | {item.name for item in ast.walk(self.tree) if isinstance(item, kinds)}
        for item in (x for root in annotated(self.tree) for x in ast.walk(root)):
            root: ast.AST = item
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            reaches = root is not item and isinstance(root, ast.Name) and root.id in own
            if reaches or not isinstance(item, PLAIN_ANNOTATION):
                yield self._at(item, "annotation", "an import evaluates it: names of types alone")

    def _told_apart(self) -> Iterator[PolicyViolation]:
        """What tells the judge's process from a user's. Where it only decides whether the file
        refuses, by an assertion or a raise, it may be read, and in constructors, which are the
        original's own text."""
        built = self._building()
        inside = [
            *self._constructor_helpers(),
            *(f for f in functions(self.tree) if id(f) in built),
        ]
        free = {id(node) for function in inside for node in ast.walk(function)}
        refusing: set[int] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assert | ast.Raise):
                refusing |= {id(item) for item in ast.walk(node)}
            elif isinstance(node, ast.If) and only_raises(node):
                refusing |= {id(item) for item in ast.walk(node.test)}
            elif (
                isinstance(node, ast.Compare)
                and "__main__" in map(constant_value, node.comparators)
            ) or (is_rounding_of_a_gpu(node) and is_torch_alone(self.tree)):
                free |= {id(item) for item in ast.walk(node)}
        for node in ast.walk(self.tree):
            if id(node) in refusing:
                continue
            if isinstance(node, ast.Attribute) and node.attr in TELLING_QUESTIONS:
                text = f"{node.attr}: it may decide on a raise alone"
                yield self._at(node, "banned-attribute", text)
            if id(node) in free:
                continue
            if isinstance(node, ast.Name) and node.id == "__name__":
                yield self._at(node, "banned-name", "__name__")
            elif isinstance(node, ast.Attribute) and (
                node.attr in DEVICE_QUESTIONS or self._path(node).startswith("torch.version.")
            ):
                text = f"{node.attr}: it may decide on a raise alone"
                yield self._at(node, "banned-attribute", text)
            elif isinstance(node, ast.MatchClass):
                for name in node.kwd_attrs:
                    if name in BANNED_ATTRIBUTES or is_dunder(name):
                        yield self._at(node, "banned-attribute", name)
        for node in told_devices(self.tree):
            if id(node) not in refusing | free:
                yield self._at(node, "banned-attribute", "a device: it may decide on a raise alone")

    def _texts(self) -> Iterator[PolicyViolation]:
        """Attributes that a format string names, and the text of functions and classes, which says
        where they were defined. In the message of an error both may stand."""
        said = {
            id(item)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Raise | ast.Assert)
            for item in ast.walk(node)
        }
        strings = strings_given(self.tree)
        code = self._code_names()
        for node in ast.walk(self.tree):
            if id(node) in said:
                continue
            if isinstance(node, ast.Attribute) and node.attr in {"format", "format_map"}:
                known = texts_of(node.value, strings)
                if known is None or not all(map(plain_fields, known)):
                    text = f"{node.attr}: of a string that is written out, with plain fields"
                    yield self._at(node, "banned-attribute", text)
            for value in made_text(node):
                if any(self._is_code(item, code) for item in shown_items(value)):
                    text = f"the text of {ast.unparse(value)[:60]}, which is code"
                    yield self._at(node, "text-of-code", text)

    def _code_names(self) -> set[str]:
        """The file's own functions, classes and kernels, and names that are assigned one."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = {node.name for node in ast.walk(self.tree) if isinstance(node, kinds)}
        return self._named_after(found | self.kernels, code=True)

    def _named_after(self, found: set[str], *, code: bool = False) -> set[str]:
        """The names `found` and all that are assigned one of them, with `code` any other code."""
        while True:
            more = {
                target.id
                for node in ast.walk(self.tree)
                if isinstance(node, ast.Assign)
                and any(
                    self._is_code(item, found) if code else reads_name(item, found)
                    for item in shown_items(node.value)
                )
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            if more <= found:
                return found
            found = found | more

    def _is_code(self, node: ast.expr, named: set[str]) -> bool:
        """Whether it is a function, a class or a method, as far as names say."""
        if isinstance(node, ast.Lambda):
            return True
        if isinstance(node, ast.Name) and node.id in named:
            return True
        root = self._path(node).split(".")[0]
        method = isinstance(node, ast.Attribute) and node.attr not in HARMLESS_DUNDERS
        if method and root in self.kernels:
            return True
        return self._imported(node) and is_code_at(self._path(node))

    def _follow(self) -> None:
        """Names that are assigned a module: `libdevice = tl.extra.cuda.libdevice`."""
        found = True
        while found:
            found = False
            for node in ast.walk(self.tree):
                if not isinstance(node, ast.Assign) or not self._module(node.value):
                    continue
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id not in self.modules:
                        self.modules[target.id] = self._path(node.value)
                        found = True

    def _module(self, node: ast.AST) -> bool:
        """Whether the node stands for a module: an imported one, or one below it."""
        path = self._path(node)
        return self._imported(node) and module_at(path) is not None

    def _imported(self, node: ast.AST) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.modules

    def _foreign(self, node: ast.Attribute) -> bool:
        if not self._imported(node) or id(node) in self._backward_nodes:
            return False
        module = module_at(self._path(node))
        return module is not None and module not in KNOWN

    def _handed_on(self) -> Iterator[PolicyViolation]:
        """Modules as values: what is put into a list or handed to a function nobody follows."""
        plain: set[int] = set()
        for node in ast.walk(self.tree):
            named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if isinstance(node, ast.Attribute) or named:
                plain.add(id(node.value))  # type: ignore[attr-defined]
            elif isinstance(node, ast.Call) and self._path(node.func) == "hasattr":
                plain |= {id(item) for item in node.args}
        for node in ast.walk(self.tree):
            read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
            if read and id(node) not in plain and self._module(node):
                text = f"{self._path(node)} is a module: name what it has, by a dot"
                yield self._at(node, "module-value", text)

    def _banned_import(self, node: ast.Name) -> bool:
        """A function that was imported by its own name: `from torch import load`."""
        path = self.modules.get(node.id, "")
        return path.startswith("torch.") and self._torch_banned(node)

    def _torch_banned(self, node: ast.Attribute | ast.Name) -> bool:
        words = self._path(node).split(".")
        space = words[1]
        if space == "ops" and id(node) in self._backward_nodes:
            return len(words) > 2 and words[2] != "aten"
        if space in {"ops", "compile", "jit", "_dynamo", "_inductor", "_C", "classes", "hub"}:
            return True
        return space in {"utils", "load", "save", "multiprocessing", "distributed", "package"}

    def _patching(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign
    ) -> Iterator[PolicyViolation]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            root = self._path(target).split(".")[0]
            if isinstance(target, ast.Attribute) and root in {"torch", "triton", "math"}:
                yield self._at(node, "patching", f"assigns to {self._path(target)}")

    def _shape_of_file(self) -> Iterator[PolicyViolation]:
        if self._class() is None:
            yield PolicyViolation(rule="no-model", line=1, text="there is no class ModelNew")
            return
        if self.policy != "triton":
            return
        if not self.kernels:
            yield PolicyViolation(rule="no-kernel", line=1, text="there is no @triton.jit function")
        elif not self._launches():
            yield PolicyViolation(
                rule="no-launch", line=1, text=f"none of {sorted(self.kernels)} is launched"
            )

    def _launches(self) -> bool:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                value = node.func.value
                names = {item.id for item in ast.walk(value) if isinstance(item, ast.Name)}
                if names & self.kernels or isinstance(value, ast.Name | ast.Attribute):
                    return True
        return False

    def _compute(self) -> Iterator[PolicyViolation]:
        """Torch compute outside kernels and constructors: forbidden, but for the library's GEMM,
        convolution and attention under "mixed", and what the original's graph calls."""
        for function in self._forward_functions():
            for node in ast.walk(function):
                if id(node) in self._kernel_nodes:
                    continue
                if isinstance(node, ast.Call):
                    yield from self._call(node)
                elif self.policy == "triton" and is_matmul(node):
                    yield self._at(node, "torch-compute", "the @ operator")

    def _forward_functions(self) -> list[ast.FunctionDef]:
        model = self._class()
        built = [f for f in ast.walk(model) if isinstance(f, ast.FunctionDef)] if model else []
        skip = {id(f) for f in built if f.name == "__init__"}
        skip |= {id(f) for f in self._constructor_helpers()}
        skip |= {id(f) for _, f in self._jit} | self._backward | self._building()
        return [f for f in reachable(self.tree, "ModelNew") if id(f) not in skip]

    def _building(self) -> set[int]:
        """Ids of functions that constructors alone use, as `self.layers = self._make_layers(2)`.

        Each of their names is read nowhere but where a constructor, or another of them, calls it
        right away, and no class of torch.nn has a method so called, which it might call itself.
        """
        reads = places_of_reads(self.tree)
        own = {f.name: f for f in functions(self.tree) if not is_inherited(f.name)}
        inside = {id(f) for f in self._constructor_helpers()}
        found: set[int] = set()
        while True:
            more = {
                id(f)
                for name, f in own.items()
                if reads.get(name) and all(home in inside | found for home in reads[name])
            }
            if more <= found:
                return found
            found |= more

    def _constructor_helpers(self) -> list[ast.FunctionDef]:
        """`__init__` of every class: parameters may be drawn and initialised with torch."""
        return [f for f in functions(self.tree) if f.name in {"__init__", "reset_parameters"}]

    def _call(self, node: ast.Call) -> Iterator[PolicyViolation]:
        path = self._path(node.func)
        if path.startswith("torch."):
            if id(node.func) not in self._operator_names and not self._torch_call_allowed(path):
                yield self._at(node, "torch-compute", path)
        elif path.startswith("self.") and path.count(".") == 1:
            name = path.removeprefix("self.")
            own = name in self._own_methods() or name in MODULE_QUESTIONS
            if not own and not self._module_call_allowed(name):
                yield self._at(node, "module-call", f"{path}(...) computes in torch")
        elif path.startswith("self.") and path.endswith(".forward"):
            yield self._at(node, "module-call", f"{path}(...) computes in torch")
        elif isinstance(node.func, ast.Attribute):
            method = node.func.attr
            library = self.policy == "mixed" and method in LIBRARY_METHODS
            root = path.split(".")[0]
            if method in COMPUTE_METHODS and not library and root not in {"math", "tl", "triton"}:
                yield self._at(node, "torch-compute", f"the tensor method {method}")

    def _torch_call_allowed(self, path: str) -> bool:
        if self.policy == "mixed" and path in LIBRARY_OPS:
            return True
        if any(path.startswith(space) for space in TORCH_COMPUTE_SPACES):
            return False
        words = path.split(".")
        return words[1] in TORCH_PLAIN or is_named_result(words)

    def _module_call_allowed(self, name: str) -> bool:
        """Under "mixed": a submodule built as nn.Linear or nn.Conv*."""
        if self.policy != "mixed":
            return False
        model = self._class()
        for node in ast.walk(model) if model else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                targets = {self._path(target) for target in node.targets}
                kind = self._path(node.value.func).rpartition(".")[2]
                if f"self.{name}" in targets and (kind == "Linear" or kind.startswith("Conv")):
                    return True
        return False

    def _own_methods(self) -> set[str]:
        """Methods of any class of the file: ModelNew may inherit them."""
        classes = [node for node in self.tree.body if isinstance(node, ast.ClassDef)]
        return {f.name for item in classes for f in functions(item)}

    def _class(self) -> ast.ClassDef | None:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
                return node
        return None

    def _path(self, node: ast.AST) -> str:
        """`F.linear` -> "torch.nn.functional.linear"; "" for what is no dotted name."""
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        words.append(self.modules.get(node.id, node.id))
        return ".".join(reversed(words))

    def _at(self, node: ast.AST, rule: str, text: str) -> PolicyViolation:
        return self._at_line(getattr(node, "lineno", 0), rule, text)

    def _at_line(self, line: int, rule: str, text: str) -> PolicyViolation:
        code = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return PolicyViolation(rule=rule, line=line, text=f"{text} | {code[:120]}")
