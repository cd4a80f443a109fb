"""Packaged notes, fixes and kernel examples, as entries with the hints that they give.

The examples are parsed, never executed. Op patterns are named here in the words that the
documents use.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.knowledge import Entry, EntryKind, Structure
from agentkernel.domain.plan import Analysis
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.storage.source_text import describe_syntax_error, parse_source

PACKAGE = Path(__file__).parent
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "ampere": ("80", "86", "87"),
    "ada": ("89",),
    "hopper": ("90",),
    "blackwell": ("100", "103", "120", "121"),
    "cdna3": ("gfx940", "gfx941", "gfx942"),
}
"""Family name -> the names that Triton gives its members."""
SHORT_DTYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
}
"""torch's dtype name -> the name used in decision keys."""
YAML: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's is ten times faster; not every build of PyYAML has it."""


class DocumentError(ValueError):
    """A packaged document that does not parse: our bug, named by file."""


class FrontMatter(Frozen):
    """What a document says of itself. An empty `architectures` or `dtypes` means all of them.

    A hint's key is a decision key. A condition after `@` (`row.num_warps@hopper`,
    `row.invariant_first@hopper+fp32`) names the architecture family, the dtype or both that it
    holds for; such a hint wins over the key without.
    """

    title: str
    summary: str = ""
    patterns: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    hints: Mapping[str, str] = Field(default_factory=dict)
    source: str
    licence: str


class Document(FrontMatter):
    """One note or kernel example, with the texts under which it is found."""

    id: str
    """`notes/hopper`, `kernels/layernorm`."""
    kind: Literal["hardware", "kernel"]
    text: str
    passages: tuple[str, ...]
    """What the index embeds: one row each."""


def family_of(architecture: str) -> str | None:
    """`90`, `sm_90` or `hopper` -> `hopper`; None for an architecture without a note."""
    name = architecture.lower().removeprefix("sm_").removeprefix("sm")
    for family, members in ARCHITECTURES.items():
        if name == family or name.rstrip("a") in members:
            return family
    return None


def hints_for(
    hints: Mapping[str, str], family: str | None, dtypes: Sequence[str]
) -> dict[str, str]:
    """Those of `hints` that hold on `family` and for `dtypes` (torch's names)."""
    short = {SHORT_DTYPES.get(name, name) for name in dtypes}
    plain: dict[str, str] = {}
    special: dict[str, str] = {}
    for key, value in hints.items():
        name, _, condition = key.partition("@")
        named = {part for part in name.split(".") if part in SHORT_DTYPES.values()}
        if named and short and not named & short:
            continue
        if not condition:
            plain[name] = value
        elif set(condition.split("+")) <= {*short, family}:
            special[name] = value
    return plain | special


def load_documents() -> tuple[Document, ...]:
    """All notes (`notes/*.md`) and kernel examples (`kernels/*.py`) of the package, by id."""
    notes = [read_note(path) for path in sorted((PACKAGE / "notes").glob("*.md"))]
    files = sorted((PACKAGE / "kernels").glob("*.py"))
    kernels = [read_kernel(path) for path in files if path.stem != "__init__"]
    return tuple(notes + kernels)


def files_sha256(paths: Iterable[Path]) -> str:
    """One hash over the names and contents of `paths`."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.parent.name}/{path.name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class Page(NamedTuple):
    """A Markdown file: the YAML on its top, not yet validated, and what stands below it."""

    front: object
    body: str


def read_page(path: Path) -> Page:
    """A Markdown file with YAML between two `---` lines on top; DocumentError without it."""
    match = re.match(r"---\n(.*?)\n---\n(.*)", path.read_text(encoding="utf-8"), re.DOTALL)
    if match is None:
        raise DocumentError(f"{path} has no front matter. Expected YAML between two '---' lines.")
    try:
        return Page(yaml.load(match[1], Loader=YAML), match[2].strip())
    except yaml.YAMLError as error:
        raise DocumentError(f"{path}: {error}") from error


def read_note(path: Path) -> Document:
    """A page as `read_page` reads it. Each `##` section is a passage."""
    page = read_page(path)
    front = _front_matter(page.front, path)
    sections = [part.strip() for part in re.split(r"^## ", page.body, flags=re.MULTILINE)[1:]]
    passages = [f"{front.title}. {front.summary}"]
    passages += [f"{front.title}: {section}" for section in sections]
    return Document(
        **front.model_dump(),
        id=f"notes/{path.stem}",
        kind="hardware",
        text=page.body,
        passages=tuple(passages),
    )


def read_kernel(path: Path) -> Document:
    """A Python file with a docstring and a `META` literal; parsed, never executed."""
    text = path.read_text(encoding="utf-8")
    try:
        tree = parse_source(text, str(path))
    except SyntaxError as error:
        raise DocumentError(
            f"{path} {describe_syntax_error(error)}. Expected valid Python."
        ) from error
    front = _front_matter(_meta_literal(tree, path), path)
    about = ast.get_docstring(tree)
    if not about:
        raise DocumentError(f"{path} has no docstring. Expected what, when it helps, pitfalls.")
    tags = " ".join(front.patterns).replace("_", " ")
    headline = about.split("\n\n")[0]
    return Document(
        **front.model_dump(),
        id=f"kernels/{path.stem}",
        kind="kernel",
        text=text,
        passages=(
            f"{front.title}. {front.summary}",
            f"{front.title}. {headline}",
            f"{tags} {front.summary}",
            about,
        ),
    )


def _meta_literal(tree: ast.Module, path: Path) -> object:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "META":
            return ast.literal_eval(node.value)
    raise DocumentError(f"{path} has no META. Expected a dict literal at module level.")


def _front_matter(value: object, path: Path) -> FrontMatter:
    try:
        front = FrontMatter.model_validate(value)
    except ValidationError as error:
        raise DocumentError(f"{path}: {error}") from error
    unknown = [name for name in front.architectures if name not in ARCHITECTURES]
    if unknown:
        raise DocumentError(f"{path} names {unknown[0]!r}. Known: {', '.join(ARCHITECTURES)}.")
    return front


FOLDER = Path(__file__).parent / "fixes"
SECTIONS = ("Cause", "Fix", "Check")
VARIES = 200
"""Characters that a `*` may stand for; a log is long, and two halves far apart are no hit."""


class FixFrontMatter(Frozen):
    """What a fix says of itself."""

    title: str
    errors: tuple[str, ...] = ()
    """Lines as the user sees them; `*` stands for what varies."""
    symptoms: tuple[str, ...] = Field(min_length=1)
    """The same in plain words, one situation each."""
    applies: str = ""
    """The Triton versions it is for; "": all."""
    source: str
    licence: str


def load_fixes(folder: Path = FOLDER) -> tuple[Entry, ...]:
    """All fixes (`*.md`) in `folder` as entries, by id.

    The passages are each error line, each symptom, and the title with the cause. Raises
    DocumentError for a file that does not parse.
    """
    return tuple(read_fix(path) for path in sorted(folder.glob("*.md")))


def read_fix(path: Path) -> Entry:
    """One Markdown page with the front matter of `FixFrontMatter` and the three `SECTIONS`.

    Its cause's first paragraph is the summary. Raises DocumentError, which names the file.
    """
    front, text = _read(path)
    summary = _squeezed(text.split("\n\n")[1])  # the first paragraph below the first heading
    return Entry(
        id=f"fixes/{path.stem}",
        kind="fix",
        title=front.title,
        summary=summary,
        answer=text,
        passages=(*front.errors, *front.symptoms, f"{front.title}. {summary}"),
        source=front.source,
        licence=front.licence,
        triton=front.applies or None,
    )


def match(error: str, folder: Path = FOLDER) -> list[str]:
    """The ids of the fixes whose error lines occur in `error`, the most literal line first.

    `error` is any text: a message, a log, a traceback. Case and the breaking of lines do not
    count. An error that no fix knows gives an empty list.
    """
    text = _squeezed(error).lower()
    best: dict[str, int] = {}
    for line in _error_lines(folder):
        if line.length > best.get(line.fix, 0) and line.occurs_in(text):
            best[line.fix] = line.length
    return sorted(best, key=lambda fix: (-best[fix], fix))


class _ErrorLine(NamedTuple):
    """One error line of a fix, ready to be looked for in lower-case text."""

    fix: str
    parts: tuple[str, ...]
    """What stands between the `*`s."""
    pattern: re.Pattern[str]

    @property
    def length(self) -> int:
        """Literal characters."""
        return sum(map(len, self.parts))

    def occurs_in(self, text: str) -> bool:
        # The plain search is far faster than the pattern, and most lines are in no log.
        return all(part in text for part in self.parts) and bool(self.pattern.search(text))


@functools.cache
def _error_lines(folder: Path) -> tuple[_ErrorLine, ...]:
    return tuple(
        _error_line(f"fixes/{path.stem}", line)
        for path in sorted(folder.glob("*.md"))
        for line in _read(path)[0].errors
    )


def _error_line(fix: str, line: str) -> _ErrorLine:
    # A `*` at an end finds nothing more, and in front it makes the search slow.
    parts = tuple(_squeezed(line).lower().strip("*").split("*"))
    pattern = f".{{0,{VARIES}}}?".join(map(re.escape, parts))
    return _ErrorLine(fix, parts, re.compile(pattern))


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _read(path: Path) -> tuple[FixFrontMatter, str]:
    page = read_page(path)
    try:
        front = FixFrontMatter.model_validate(page.front)
    except ValidationError as error:
        raise DocumentError(f"{path}: {error}") from error
    found = tuple(re.findall(r"^## (.+)$", page.body, flags=re.MULTILINE))
    if found != SECTIONS:
        raise DocumentError(f"{path} has sections {found}. Expected {SECTIONS}.")
    return front, page.body


StructureOf = Callable[[str], Structure | None]
"""The structure of a PyTorch module's source; None where it has none that can be read."""
KINDS: dict[str, EntryKind] = {"hardware": "note", "kernel": "kernel"}
CANDIDATE = "ModelNew"


ORIGINS = ("notes/", "kernels/", "fixes/")
"""How the ids of what the package brings begin."""
MADE_FROM = ("notes/*.md", "kernels/*.py", "fixes/*.md", "*.py", "../domain/knowledge.py")
"""Below the package of knowledge: the texts, and all code that may have a part in reading them."""


def packaged_sha256() -> str:
    """One hash of what the packaged entries are made from; with another one they may be others.

    Names and bytes of the texts and of the code that reads them, and Python's version, whose `ast`
    writes the modules.
    """
    files = files_sha256(path for pattern in MADE_FROM for path in PACKAGE.glob(pattern))
    return sha256_text(f"{files}\0{sys.version_info[:2]}")


def all_packaged() -> tuple[Entry, ...]:
    """Every entry that the package brings, read anew (0.1 s)."""
    # A search that finds them in the truth does without what reads code.

    return (*packaged_entries(load_documents(), structure_of_code), *load_fixes())


def packaged_entries(documents: Iterable[Document], structure_of: StructureOf) -> Iterator[Entry]:
    """One entry a document. A kernel example holds its module as `Model` and the drop-in as
    `ModelNew`: the first is the problem, the whole file the answer."""
    for document in documents:
        problem = reference_source(document.text) if document.kind == "kernel" else ""
        yield Entry(
            id=document.id,
            kind=KINDS[document.kind],
            title=document.title,
            summary=document.summary,
            problem=problem,
            answer=document.text,
            passages=document.passages,
            source=document.source,
            licence=document.licence,
            verified="interpreter" if document.kind == "kernel" else "no",
            structure=structure_of(problem) if problem else None,
            architectures=document.architectures,
            hints=dict(document.hints),
        )


def reference_source(text: str) -> str:
    """The part of a kernel example that runs without Triton: imports of torch, the module and its
    inputs. Parsed, never executed."""
    tree = parse_source(text)
    kept = [node for node in tree.body if _of_the_reference(node)]
    return "\n\n\n".join(ast.unparse(node) for node in kept) + "\n"


def _of_the_reference(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "triton" not in ast.unparse(node)
    if isinstance(node, ast.ClassDef):
        return node.name != CANDIDATE
    return isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs")


OP_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "layer_norm": ("norm", "layernorm", "row_norm"),
    "rms_norm": ("norm", "rmsnorm", "row_norm"),
    "group_norm": ("norm", "group_norm"),
    "instance_norm": ("norm", "instance_norm"),
    "batch_norm": ("norm", "batch_norm"),
    "vector_norm": ("reduction", "l2"),
    "log_softmax": ("log_softmax", "row_softmax"),
    "softmax": ("softmax",),
    "cross_entropy_loss": ("loss", "cross_entropy"),
    "binary_cross_entropy_with_logits": ("loss", "bce"),
    "nll_loss_forward": ("loss", "nll"),
    "nll_loss": ("loss", "nll"),
    "mse_loss": ("loss", "mse"),
    "huber_loss": ("loss", "huber"),
    "smooth_l1_loss": ("loss", "huber"),
    "kl_div": ("loss", "kl"),
    "cosine_similarity": ("cosine", "similarity", "row_reduction"),
    "cosine_embedding_loss": ("loss", "cosine"),
    "logsumexp": ("reduction", "logsumexp"),
    "argmax": ("reduction", "argmax"),
    "argmin": ("reduction", "argmax"),
    "cumsum": ("scan", "cumsum"),
    "cumprod": ("scan", "cumsum"),
    "var": ("reduction", "variance"),
    "std": ("reduction", "variance"),
    "sum": ("reduction", "sum"),
    "mean": ("reduction", "sum"),
    "amax": ("reduction",),
    "amin": ("reduction",),
    "max": ("reduction",),
    "min": ("reduction",),
    "prod": ("reduction",),
    "linear": ("gemm", "linear"),
    "mm": ("gemm", "matmul"),
    "addmm": ("gemm", "linear"),
    "matmul": ("gemm", "matmul"),
    "bmm": ("gemm", "bmm", "batched"),
    "baddbmm": ("gemm", "bmm", "batched"),
    "mv": ("gemm", "gemv"),
    "scaled_dot_product_attention": ("attention",),
    "embedding": ("embedding", "gather"),
    "index_select": ("gather", "index_select"),
    "max_pool2d": ("pool", "max_pool2d"),
    "max_pool2d_with_indices": ("pool", "max_pool2d"),
    "avg_pool2d": ("pool", "avg_pool2d"),
    "upsample_nearest2d": ("upsample",),
    "gelu": ("activation", "pointwise"),
    "relu": ("activation", "pointwise"),
    "leaky_relu": ("activation", "pointwise"),
    "silu": ("activation", "pointwise"),
    "sigmoid": ("activation", "pointwise"),
    "tanh": ("activation", "pointwise"),
    "mish": ("activation", "pointwise"),
    "softplus": ("activation", "pointwise"),
    "hardswish": ("activation", "pointwise"),
    "hardtanh": ("activation", "pointwise"),
    "elu": ("activation", "pointwise"),
    "clamp": ("pointwise",),
    "add": ("pointwise",),
    "sub": ("pointwise",),
    "mul": ("pointwise",),
    "div": ("pointwise",),
    "pow": ("pointwise",),
    "exp": ("pointwise",),
    "round": ("pointwise",),
}
"""ATen op (without namespace and overload) -> the patterns it shows."""
GATES = ("silu", "gelu", "sigmoid")


def patterns_of(analysis: Analysis) -> tuple[str, ...]:
    """The templates' names that the analysis gives, then what its ops show; no name twice."""
    ops = {op_name(name) for name in analysis.op_counts}
    found = dict.fromkeys(analysis.patterns)
    for name in sorted(ops):
        found |= dict.fromkeys(OP_PATTERNS.get(name, ()))
    return tuple(found | dict.fromkeys(_composite(ops, found)))


def op_name(name: str) -> str:
    """`aten._native_layer_norm.default` -> `layer_norm`."""
    words = name.split(".")
    bare = (words[1] if len(words) > 1 else words[0]).strip("_")
    for prefix in ("native_", "fused_"):
        bare = bare.removeprefix(prefix)
    return "batch_norm" if bare.startswith("batch_norm") else bare


def _composite(ops: Collection[str], found: Collection[str]) -> list[str]:
    """Patterns that several ops show together."""
    result: list[str] = []
    if {"mean", "rsqrt"} <= set(ops):
        result += ["norm", "rmsnorm", "row_norm"]
    if "gemm" in found and "softmax" in found:
        result += ["attention"]
    elif "gemm" in found and "pointwise" in found:
        result += ["epilogue"]
    if "mul" in ops and any(gate in ops for gate in GATES) and "gemm" not in found:
        result += ["gated"]
    if "add" in ops and ("layernorm" in found or "rmsnorm" in [*found, *result]):
        result += ["residual"]
    return result
