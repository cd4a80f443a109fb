"""Can an export be read without this package, and does it harm nothing that lies there?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.errors import OutputError
from agentkernel.nightly.library import Library
from agentkernel.nightly.library.maintenance import export_library
from agentkernel.tools.certificate.record import read_certificate
from tests.nightly.library.library_rows import kernel, key


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    live = tmp_path / "live.pkl"
    live.write_bytes(b"module")
    with Library(tmp_path / "library.sqlite", pytest.fail) as opened:
        opened.put(kernel(0, signed=True), live=live)
        opened.put(kernel(0, at=key(0, gpu="NVIDIA H100"), signed=True))
        wrong = kernel(1, signed=True)
        opened.put(wrong)
        opened.withdraw(wrong.sha256, "wrong")
        yield opened


def test_sources_certificates_and_an_index(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = export_library(library, folder)
    assert (found.kernels, found.left_out) == (2, 1)
    entries = json.loads((folder / "index.json").read_text())["kernels"]
    assert {item["key"]["gpu"] for item in entries} == {"NVIDIA H200", "NVIDIA H100"}
    for item in entries:
        source = (folder / item["source"]).read_bytes()
        assert hashlib.sha256(source).hexdigest() == item["sha256"]
        certificate = read_certificate(folder / item["certificate"])
        assert certificate.candidate_sha256 == item["sha256"]
    assert [item["live"] for item in entries] == [None, None]


def test_withdrawn_ones_and_modules_where_asked_for(library: Library, tmp_path: Path) -> None:
    found = export_library(library, tmp_path / "out", withdrawn=True, modules=True)
    entries = json.loads((tmp_path / "out" / "index.json").read_text())["kernels"]
    assert (found.kernels, found.left_out) == (3, 0)
    assert [item["withdrawn"] for item in entries] == [None, None, "wrong"]
    lives = [tmp_path / "out" / item["live"] for item in entries if item["live"]]
    assert [item.read_bytes() for item in lives] == [b"module", b"module"][: len(lives)]
    assert lives


def test_a_later_export_leaves_nothing_of_what_was_withdrawn(
    library: Library, tmp_path: Path
) -> None:
    export_library(library, tmp_path / "out")
    library.withdraw(kernel(0).sha256, "slower", key=key(0))
    export_library(library, tmp_path / "out")
    assert len(list((tmp_path / "out" / "kernels").iterdir())) == 1


def test_a_text_that_an_import_reads_otherwise_stays(library: Library, tmp_path: Path) -> None:
    library.put(kernel(2, source="# coding: latin-1\nclass ModelNew: ...\n", signed=True))
    found = export_library(library, tmp_path / "out")
    assert (found.kernels, found.left_out) == (2, 2)


def test_a_folder_of_other_files_is_left_alone(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "own.py").write_text("")
    (folder / "index.json").write_text('{"kernels": []}')
    with pytest.raises(OutputError, match="holds other files"):
        export_library(library, folder)
    assert (folder / "kernels" / "own.py").exists()
    with pytest.raises(OutputError, match="Cannot write"):
        export_library(library, folder / "index.json")
