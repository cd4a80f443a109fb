"""The documentation as a site: every page has its place, and no link leads nowhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("site_links", ROOT / ".ci" / "site_links.py")
assert SPEC is not None
assert SPEC.loader is not None
site_links = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site_links)


def leaves(value: object) -> list[str]:
    """The files of a nav."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    assert inner is not None
    return [name for item in inner for name in leaves(item)]  # type: ignore[attr-defined]


def test_every_page_has_one_place() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = leaves(yaml.safe_load(text)["nav"])
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_a_link_into_the_repository_becomes_a_name_and_a_broken_one_stays() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="judge.md"))
    text = "[the README](../README.md), [chat](chat.md), [none](../none.md), [x](https://a.b/c.md)"
    assert site_links.on_page_markdown(text, page=page) == (
        "the README (`README.md`), [chat](chat.md), [none](../none.md), [x](https://a.b/c.md)"
    )


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")
    assert "optimize" in page
    assert "max_memory_bytes" in page
    assert "fonts.googleapis.com" not in page
