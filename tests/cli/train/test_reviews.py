"""Does `agentkernel train reviews` outlive a kill, and does data learn what the teacher said?"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.training.data.rows import read_rows
from tests.agents.models.chat_server import Answer, ChatServer, Stalls
from tests.cli.commands import Cli
from tests.training.data.judged_rows import (
    by_number,
    review,
    reviewed_rows,
    slow_ones,
    write_rows,
)

KEY = "sk-abcdefgh12345678"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def words(pairs: Path, out: Path, url: str) -> list[str]:
    asked = ["train", "reviews", "--from", str(pairs), "--out", str(out), "--base-url", url]
    return [*asked, "--teacher", "chat:openai:scripted"]


@pytest.mark.slow
def test_killed_it_goes_on_and_data_has_the_words_of_the_teacher(tmp_path: Path, cli: Cli) -> None:
    pairs = write_rows(tmp_path / "pairs.jsonl.gz", reviewed_rows(12))
    out = tmp_path / "reviews.jsonl"
    answered = 0

    def answer(request: dict[str, object]) -> Answer:
        nonlocal answered
        answered += 1
        return by_number(review)(request) if answered != 4 else Stalls(60.0, "ANALYSIS\nIt is")

    with ChatServer([answer], forever=True) as server:
        call = words(pairs, out, server.url)
        child = subprocess.Popen([sys.executable, "-m", "agentkernel", *call, "--jobs", "1"])
        end = time.monotonic() + 120
        while len(server.requests) < 4 and time.monotonic() < end and child.poll() is None:
            time.sleep(0.05)
        child.kill()
        child.wait()
        assert out.read_text().count("\n") == 3
        with out.open("a") as file:
            file.write('{"kernel_sha256":"ab')
        report = cli.json([*call, "--json"])
        assert (report["known"], report["asked"], report["kept"]) == (3, 9, 9)
        assert report["taken"]["questions"] == 12
        said = cli(call).out
        assert len(server.requests) == 13
    assert "12 reviews of 12 kernels, 0 of them new; 0 questions asked" in said
    assert "1,200 tokens in, 240 out" in said
    assert "No price is known" in said
    assert f"Next: agentkernel train data --from {pairs} --from {out} --out DATA" in said
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["kernel_sha256"] for line in lines} == slow_ones(12)
    assert set(lines[-1]) == {"kernel_sha256", "by", "text"}
    assert all(KEY.encode() not in item.read_bytes() for item in tmp_path.glob("reviews.*"))

    data = tmp_path / "data"
    sources = ["--from", str(pairs), "--from", str(out)]
    assert run(["train", "data", *sources, "--out", str(data), "-c", "data.held_out=2"]) == 0
    rows = [row for row in read_rows(data, "train") if row.task == "optimise"]
    assert rows
    assert {row.reasoning_by for row in rows} == {"teacher"}
    for row in rows:
        assert "reads the row twice" in row.completion
        assert "Estimated speedup: 1.40x" in row.completion


def test_answers_without_sections_alone_are_told_and_end_with_one(tmp_path: Path, cli: Cli) -> None:
    pairs = write_rows(tmp_path / "pairs.jsonl.gz", reviewed_rows(2))
    with ChatServer(["It is slow."], forever=True) as server:
        said = cli(words(pairs, tmp_path / "r.jsonl", server.url), 1).out
    assert "came to nothing: 2 answered without sections" in said
    assert "train data" not in said
    assert (tmp_path / "r.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"--from": None}, "no --from"),
        ({"--from": "{dir}/none"}, "Nothing at"),
        ({"--from": "{single}"}, "Nothing to review"),
        ({"--teacher": "gpt"}, "Unknown model 'gpt'"),
        ({"--teacher": "chat:openai"}, "names no model"),
        ({"--teacher": "chat:openai:x@file:///etc"}, "is no URL"),
        ({"--base-url": "http://me:secret@localhost/v1"}, "holds a user"),
        ({"--out": "{dir}/r.json"}, "ends in .jsonl"),
        ({"--out": "{dir}/notes.jsonl"}, "holds no reviews"),
        ({"--count": "0"}, "--count"),
        ({"--jobs": "0"}, "--jobs"),
        ({"-c": "data.licences=[MIT]"}, "Nothing to review"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(
    changes: dict[str, str | None], said: str, tmp_path: Path, cli: Cli
) -> None:
    pairs = write_rows(tmp_path / "pairs.jsonl.gz", reviewed_rows(2))
    single = write_rows(tmp_path / "single.jsonl.gz", reviewed_rows(2)[:1])
    (tmp_path / "notes.jsonl").write_text("mine\n")
    flags: dict[str, str | None] = {
        "--from": str(pairs),
        "--out": str(tmp_path / "r.jsonl"),
        "--teacher": "chat:openai:scripted",
        "--base-url": "http://127.0.0.1:9/v1",
    }
    names = {"dir": tmp_path, "single": single}
    asked = [
        word
        for flag, value in (flags | changes).items()
        if value is not None
        for word in (flag, value.format(**names))
    ]
    line = cli.refused(["train", "reviews", *asked])
    assert said in line
    assert "secret" not in line
    assert not (tmp_path / "r.jsonl").exists()
    assert (tmp_path / "notes.jsonl").read_text() == "mine\n"


def test_a_missing_key_is_told_in_one_line(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    pairs = write_rows(tmp_path / "pairs.jsonl.gz", reviewed_rows(2))
    call = ["--from", str(pairs), "--out", str(tmp_path / "r.jsonl")]
    line = cli(["train", "reviews", *call, "--teacher", "chat:openai:scripted"], 4).err.strip()
    assert line.count("\n") == 0
    assert "OPENAI_API_KEY" in line
