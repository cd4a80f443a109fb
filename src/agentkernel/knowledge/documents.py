"""Which documents does the knowledge base ship, and what do they advise?"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
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


def load_documents(folder: Path = PACKAGE) -> tuple[Document, ...]:
    """All notes (`notes/*.md`) and kernel examples (`kernels/*.py`) below `folder`, by id."""
    notes = [read_note(path) for path in sorted((folder / "notes").glob("*.md"))]
    kernels = [read_kernel(path) for path in _kernel_files(folder)]
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


def _kernel_files(folder: Path) -> list[Path]:
    return [path for path in sorted((folder / "kernels").glob("*.py")) if path.stem != "__init__"]


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
