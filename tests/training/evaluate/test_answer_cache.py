"""Are answers that lie there taken for those that would be given now, and no others?"""

from __future__ import annotations

import gzip
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkernel.agents.models.local import Sample
from agentkernel.domain.errors import OutputError, TrainingError
from agentkernel.domain.exchange import Message
from agentkernel.training.data.conversations import to_write
from agentkernel.training.evaluate.answer_cache import CachedWriter, model_fingerprints
from agentkernel.training.evaluate.evaluation import run_evaluation
from agentkernel.training.worker_pool import SubmissionJudge
from tests.training.lent_answerers import lender, lent_judge
from tests.training.rl.stand_in import make_policy
from tests.training.training_rows import kernel, make_data, problem

__all__ = ["lender", "lent_judge"]

ASKED = [[Message(role="user", text=f"module {number}")] for number in range(3)]


class Counts:
    """Answers with a number of its own, and counts how often it is asked."""

    def __init__(self, *, ranked: bool = False) -> None:
        self.ranked = ranked
        self.asked = 0

    def write(
        self, conversations: Sequence[Sequence[Message]], samples: int, wrote: object = None
    ) -> list[list[Sample]]:
        self.asked += 1
        return [
            [Sample(f"{self.asked}: {place}/{at} \u2028", "length", at) for at in range(samples)]
            for place in range(len(conversations))
        ]


def keep(folder: Path, writer: Counts, **changes: object) -> CachedWriter:
    values = {
        "model": "local:m",
        "seed": 0,
        "made_from": {"model": "a" * 64, "settings": "s"},
        **changes,
    }
    return CachedWriter(folder, make=lambda: writer, **values)  # type: ignore[arg-type]


def test_the_same_question_is_asked_once(tmp_path: Path) -> None:
    writer = Counts(ranked=True)
    kept = keep(tmp_path, writer)
    assert not kept.has(ASKED, 2)
    first = kept.write(ASKED, 2)
    assert kept.ranked

    def nobody() -> Counts:
        raise AssertionError("nobody is to be loaded")

    # With all of it here, with a part and without any.
    for made in ({"model": "a" * 64, "settings": "s"}, {"settings": "s"}, dict[str, str]()):
        again = CachedWriter(tmp_path, "local:m", 0, made, nobody)
        assert again.has(ASKED, 2)
        assert again.write(ASKED, 2) == first
        assert again.ranked


@pytest.mark.parametrize("changes", [{"model": "local:n"}, {"seed": 1}])
def test_another_model_or_seed_is_asked(changes: dict[str, object], tmp_path: Path) -> None:
    writer = Counts()
    keep(tmp_path, writer).write(ASKED, 2)
    keep(tmp_path, writer, **changes).write(ASKED, 2)
    assert writer.asked == 2


def test_other_questions_or_samples_are_asked(tmp_path: Path) -> None:
    writer = Counts()
    kept = keep(tmp_path, writer)
    kept.write(ASKED, 2)
    kept.write(ASKED[:2], 2)
    kept.write([*ASKED[:2], ASKED[0]], 2)
    kept.write(ASKED, 1)
    assert writer.asked == 4
    assert len(list(tmp_path.iterdir())) == 4


def test_answers_of_other_weights_are_refused(tmp_path: Path) -> None:
    keep(tmp_path, Counts()).write(ASKED, 2)
    with pytest.raises(TrainingError, match="its model was aaaaaaaaaaaa; now it is bbbbbbbbbbbb"):
        keep(tmp_path, Counts(), made_from={"model": "b" * 64}).write(ASKED, 2)
    with pytest.raises(TrainingError, match="its adapter was None"):
        keep(tmp_path, Counts(), made_from={"adapter": "b" * 64}).write(ASKED, 2)


def test_a_folder_that_cannot_be_written_is_found_before_anybody_is_asked(tmp_path: Path) -> None:
    writer, file = Counts(), tmp_path / "file"
    file.touch()
    with pytest.raises(TrainingError, match="Cannot read answers"):
        keep(file, writer).write(ASKED, 2)
    with pytest.raises(OutputError):
        keep(Path("/proc/nowhere"), writer).write(ASKED, 2)
    assert not writer.asked


def test_how_long_the_writing_took_is_kept(tmp_path: Path) -> None:
    class Slow(Counts):
        def write(self, *given: object, **more: object) -> list[list[Sample]]:
            time.sleep(0.2)
            return super().write(*given, **more)  # type: ignore[arg-type]

    for _ in range(2):
        kept = keep(tmp_path, Slow())
        kept.write(ASKED, 2)
        assert 0.2 <= kept.seconds < 5


@pytest.mark.parametrize("wreck", ["cut", "line", "json", "seed"])
def test_a_wrecked_file_is_an_error_of_one_line(wreck: str, tmp_path: Path) -> None:
    kept = keep(tmp_path, Counts())
    kept.write(ASKED, 2)
    (path,) = tmp_path.iterdir()
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(
        {
            "cut": path.read_bytes()[:-9],
            "line": gzip.compress(text[: text.rindex(b"\n", 0, -1) + 1]),
            "seed": gzip.compress(text.replace(b'"seed":0', b'"seed":7', 1)),
            "json": gzip.compress(text.replace(b'"length"', b'"because"', 1)),
        }[wreck]
    )
    with pytest.raises(TrainingError, match=r"Cannot read answers .* Next: remove the file"):
        kept.has(ASKED, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("lent_judge")
def test_what_is_kept_is_judged_as_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m0.py"
    path.write_text(problem(0))

    class Says(Counts):
        def write(self, *given: object, **more: object) -> list[list[Sample]]:
            self.asked += 1
            return [[Sample(f"```python\n{kernel(0)}```", "stop", 3), Sample("", "stop", 0)]]

    writer, questions = Says(), to_write([path], "h100", "triton")
    found = [
        run_evaluation(
            keep(tmp_path / "kept", writer), questions, 2, SubmissionJudge(jobs=1), ks=(1,)
        )
        for _ in range(2)
    ]
    assert writer.asked == 1
    assert found[0].rows == found[1].rows
    assert (found[1].rows[0].correct, found[1].rows[0].no_file) == (1, 1)


def test_what_answers_are_made_from_is_weights_and_settings_or_the_rows(tmp_path: Path) -> None:
    data, policy = make_data(tmp_path / "data"), make_policy(tmp_path / "m")
    name = f"local:{policy}"
    first = model_fingerprints(name, data)
    assert set(first) == {"model", "settings"}
    assert model_fingerprints(name, data) == first
    assert set(model_fingerprints("nearest", data)) == {"rows"}
    own = policy / "agentkernel.yaml"
    own.write_text(own.read_text().replace("temperature: 0.8", "temperature: 0.3"))
    colder = model_fingerprints(name, data)
    assert colder["settings"] != first["settings"]
    assert colder["model"] == first["model"]
    for file in ("model.safetensors", "tokenizer_config.json"):
        before, path = model_fingerprints(name, data), policy / file
        path.write_bytes(path.read_bytes()[:-4] + b"abcd")
        assert model_fingerprints(name, data)["model"] != before["model"]
    (policy / "training.json").write_text("{}")  # says how they came about, and decides nothing
    assert model_fingerprints(name, data) == model_fingerprints(name, data) | {
        "settings": colder["settings"]
    }


def test_an_adapter_on_a_model_of_the_hub_is_told_by_its_own_files(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "agentkernel.yaml").write_text("model: nobody/nothing\nadapter: .\n")
    found = []
    for weights in (b"one", b"two"):
        (adapter / "adapter_model.safetensors").write_bytes(weights)
        found.append(model_fingerprints(f"local:{adapter}", tmp_path))
    assert set(found[0]) == {"adapter", "settings"}
    assert found[0]["adapter"] != found[1]["adapter"]


@pytest.mark.parametrize(
    "model", ["local:{here}/nowhere", "local:{here}/no.yaml", "untrained:{here}/nowhere", "nearest"]
)
def test_of_what_is_not_here_nothing_is_said(model: str, tmp_path: Path) -> None:
    assert model_fingerprints(model.format(here=tmp_path), tmp_path) == {}
    (tmp_path / "nowhere").mkdir()  # records without weights
    assert model_fingerprints(model.format(here=tmp_path), tmp_path) == {}
