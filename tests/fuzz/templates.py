"""What the fuzzing begins from: whole files and folders, as the tool itself writes them."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.transfer import export_entries
from agentkernel.knowledge.vector_index import open_vectors
from agentkernel.nightly.library import Library
from agentkernel.nightly.library.maintenance import export_library
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.files import NightFile
from tests.chat.scripted_session import begin, shop
from tests.fuzz.edits import RUNS_CODE
from tests.knowledge.memory_store import HashEmbedder, MemoryTruth, entry
from tests.nightly.library.library_rows import certificate, kernel, key, model, night, region
from tests.workflows.fakes import PROBLEM

HONEST = Path(__file__).parents[1] / "redteam" / "honest"
EVIL = f"open('PWNED', 'w').close()\n\n\nclass Model: {RUNS_CODE}\n"
ZOO = """\
name: small
settings: {budget.rounds: 2}
models:
  - &one
    name: mlp
    model: models.py:Mlp
    init: {width: 64, hidden: 128}
    inputs: ["x=f32[2,16,64]", "ids=i64[2,16]<1000"]
  - <<: *one
    name: block
    dtype: bf16
    seed: 3
    weight: 2.5
    inputs: ["state=(f32[2,8], f32[2,8])", "scale=0.5"]
"""
INPUTS = ("x=f32[4,8]", "y=(f32[4,8], [i64[2], 1.5]);(f32[2,8], [i64[2], 2])")


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return eval, (RUNS_CODE,)


def make(folder: Path) -> None:
    """A folder below `folder` for each target."""
    for make_one in (_certificate, _run, _stores, _zoo, _problem, _candidate):
        make_one(folder / make_one.__name__.removeprefix("_"))


def _certificate(folder: Path) -> None:
    from agentkernel.tools.certificate.record import canonical_json

    folder.mkdir(parents=True)
    made = certificate("class ModelNew: ...\n", "2026-01-01", signed=True, at=key(), speedup=2.0)
    (folder / "certificate.json").write_text(canonical_json(made))
    (folder / "live.pkl").write_bytes(pickle.dumps(_Evil()))


def _run(folder: Path) -> None:
    """A session with the run that it began, and the record of a night."""
    folder.mkdir()
    with begin(folder, shop()) as session:
        session.say("run")
        session.say("show the tree")
    for path in (*folder.glob("plus.py"), folder / "empty.yaml"):
        path.unlink(missing_ok=True)
    made = night(models=(model(),), regions=(region(), region(1, "retuned")))
    record = NightFile(night=made, comparison=compare_nights(None, made))
    (folder / "night.json").write_text(record.model_dump_json())
    (folder / "night.html").write_text("an older page")
    run = next(folder.glob("runs/plus-2*"))
    (run / "report.html").write_text("an older page")
    (run / "live.pkl").write_bytes(pickle.dumps(_Evil()))


def _stores(folder: Path) -> None:
    """A library, and a folder of knowledge with its vectors and an export."""
    folder.mkdir()
    with Library(folder / "library.sqlite") as library:
        for number in range(3):
            library.put(kernel(number, signed=True))
        library.withdraw(kernel(1).sha256, "too slow")
        library.save_night(night(models=(model(),), regions=(region(),)))
        library.save_job("job", "kind", "{}")
        export_library(library, folder / "exported")
    entries = [entry(f"e/{number}", f"softmax {number}", "row sum") for number in range(5)]
    with open_knowledge_store(folder / "knowledge") as truth:
        truth.put(entries)
        truth.remove("e/3", "wrong")
    open_vectors(folder / "knowledge", HashEmbedder()).catch_up(MemoryTruth(entries))
    export_entries(entries, folder / "export.jsonl")


def _zoo(folder: Path) -> None:
    folder.mkdir()
    (folder / "zoo.yaml").write_text(ZOO)
    (folder / "models.py").write_text(EVIL)
    (folder / "evil.py").write_text(EVIL)


def _problem(folder: Path) -> None:
    folder.mkdir()
    (folder / "problem.py").write_text(f"from . import evil\nimport evil\n{PROBLEM}")
    (folder / "__init__.py").write_text("from .problem import Model\n")
    (folder / "evil.py").write_text(EVIL)
    (folder / "flags.json").write_text(
        json.dumps({"inputs": INPUTS, "init": "4096, bias=False", "kwargs": "alpha=0.5"})
    )


def _candidate(folder: Path) -> None:
    folder.mkdir()
    shutil.copy(HONEST / "add_norm_dictionary.py", folder / "candidate.py")
    (folder / "triton.py").write_text(EVIL)
