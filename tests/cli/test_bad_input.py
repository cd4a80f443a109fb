"""Every mistake that a user can make ends in one clear line and exit 2."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.loading import load_problem
from tests.cli.commands import Cli

HEAD = "import torch\nfrom torch import nn\n"
GOOD = HEAD + (
    "class Model(nn.Module):\n"
    "    def __init__(self, n=8):\n        super().__init__()\n        self.ln = nn.LayerNorm(n)\n"
    "    def forward(self, x):\n        return self.ln(x)\n"
    "def get_inputs():\n    return [torch.randn(4, 8)]\n"
    "def get_init_inputs():\n    return [8]\n"
)
BROKEN = {
    "syntax": (HEAD + "class Model(nn.Module:\n", "line 3"),
    "no_model": (HEAD + "class Net(nn.Module):\n    pass\n", "Net"),
    "constructor": (GOOD.replace("super().__init__()", "raise ValueError('width')"), "width"),
    "forward": (GOOD.replace("return self.ln(x)", "raise RuntimeError('midway')"), "midway"),
    "inputs": (GOOD.replace("torch.randn(4, 8)", "torch.randn(4, 9)"), "9"),
    "control_flow": (
        GOOD.replace("return self.ln(x)", "return self.ln(x) if x.sum() > 0 else x"),
        "tensor values",
    ),
    "import": ("import no_such_package_here\n" + GOOD, "no_such_package_here"),
    "exit": ("raise SystemExit(0)\n" + GOOD, "SystemExit"),
    "exit_in_init": (GOOD.replace("super().__init__()", "raise SystemExit(0)"), "SystemExit"),
    "exit_in_inputs": (
        GOOD.replace("return [torch", "raise SystemExit(0)\n    [torch"),
        "SystemExit",
    ),
    "bare_tensor": (GOOD.replace("[torch.randn(4, 8)]", "torch.randn(4, 8)"), "Tensor"),
    "empty": (GOOD.replace("randn(4, 8)", "randn(0, 8)"), "no elements"),
    "init_inputs": (GOOD.replace("return [8]", "return 8"), "int"),
}


def fails_in_one_line(words: list[str], cli: Cli, hint: str) -> None:
    said = cli(words, 2)
    assert said.err.count("\n") == 1
    assert hint.lower() in said.err.lower()
    assert "Traceback" not in said.err + said.out


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.py"
    path.write_text(GOOD)
    return path


@pytest.mark.quick(8)
@pytest.mark.parametrize("command", ["plan", "optimize"])
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_problem(name: str, command: str, tmp_path: Path, cli: Cli) -> None:
    source, hint = BROKEN[name]
    path = tmp_path / "broken.py"
    path.write_text(source)
    words = [command, str(path), "--target", "h100"]
    if command == "optimize":
        words += ["--runs", str(tmp_path / "runs")]
    fails_in_one_line(words, cli, hint)
    assert not (tmp_path / "runs").exists()


def test_unknown_target_names_the_nearest(good: Path, cli: Cli) -> None:
    fails_in_one_line(["plan", str(good), "--target", "h1000"], cli, "'h100'")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--input", "x=f32[4,8]"], "names no class"),
        (["--max-memory", "lots"], "lots"),
        (["--time", "soon"], "soon"),
        (["--coder", "parrot"], "parrot"),
        (["--coder", "file:nowhere.py"], "nowhere.py"),
        (["--coder", "file:"], "names no file"),
        (["--coder", "chat:openai"], "chat:PROVIDER:MODEL"),
        (["-c", "judge.sedes=3"], "judge.seeds"),
        (["-c", "judge.seeds=none at all"], "judge.seeds"),
        (["--rounds", "0"], "rounds"),
        (["--config", "/no/such/config.yaml"], "/no/such/config.yaml"),
        (["--runs", "/proc/no/runs"], "/proc/no/runs"),
    ],
)
def test_flags(
    words: list[str],
    hint: str,
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    monkeypatch.chdir(tmp_path)
    fails_in_one_line(["optimize", str(good), *words], cli, hint)


def test_a_file_where_the_runs_should_go(good: Path, tmp_path: Path, cli: Cli) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    fails_in_one_line(["optimize", str(good), "--runs", str(blocked)], cli, "blocked")


def test_out_folder_that_cannot_be_written(good: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["optimize", str(good), "--runs", str(tmp_path / "runs"), "--out", "/proc/no/out"]
    fails_in_one_line(words, cli, "/proc/no/out")


def test_a_picture_that_cannot_be_written_names_its_own_flag(
    good: Path, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "file").write_text("no folder")
    for name in ("file/cut.svg", "none/cut.svg", "x" * 300, "file"):
        words = ["plan", str(good), "--target", "h100", "--picture", str(tmp_path / name)]
        fails_in_one_line(words, cli, "another with --picture" if name != "file" else "--picture")
    assert (tmp_path / "file").read_text() == "no folder"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (None, "no such file or directory. expected a text file"),
        (b"\xff\xfe\x00", "no text in utf-8. expected a text file"),
        (b"", "names no problem. expected names"),
        (b"good\nab\x00sent", "names 'ab\\x00sent', which is not there. expected names"),
        (b"x" * 9000, "names 'xxx"),
    ],
    ids=["missing", "binary", "empty", "unknown", "long"],
)
def test_a_list_of_problems_that_cannot_be_read(
    content: bytes | None, hint: str, good: Path, tmp_path: Path, cli: Cli
) -> None:
    listed = tmp_path / "listed"
    if content is not None:
        listed.write_bytes(content)
    words = ["bench", str(good.parent), "--problems", str(listed), "--target", "h100"]
    words += ["--out", str(tmp_path / "out")]
    fails_in_one_line(words, cli, hint)
    said = cli(words, 2).err
    assert "give --problems another one" in said
    assert len(said) < 500 + len(str(tmp_path)) * 3


@pytest.mark.parametrize("command", ["show", "resume"])
def test_unknown_run(command: str, tmp_path: Path, cli: Cli) -> None:
    fails_in_one_line([command, "nothing", "--runs", str(tmp_path)], cli, "nothing")


@pytest.mark.parametrize("command", ["show", "resume"])
def test_corrupt_run(command: str, tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "layernorm-20260101-000000-abcd"
    folder.mkdir()
    (folder / "run.json").write_text('{"format": 1')
    fails_in_one_line([command, folder.name, "--runs", str(tmp_path)], cli, "corrupt")


def test_candidate_that_is_not_there(good: Path, cli: Cli) -> None:
    fails_in_one_line(["judge", str(good), "--candidate", "none.py"], cli, "none.py")


def test_a_list_that_is_not_there_is_named_once(tmp_path: Path, cli: Cli) -> None:
    said = cli.refused(["batch", "none.yaml"])
    assert said.startswith("agentkernel: Cannot read the list 'none.yaml': No such file or dir")
    assert "it is a folder. Expected" in cli.refused(["batch", str(tmp_path)])


def test_judge_asks_for_the_policy_that_a_run_has(good: Path, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "new.py"
    path.write_text("class ModelNew(:\n")
    words = ["judge", str(good), "--candidate", str(path), "--target", "h100", "--json"]
    assert cli.json(words, 3)["policy"] == "mixed"
    assert cli.json([*words, "--policy", "triton"], 3)["policy"] == "triton"


@pytest.mark.parametrize("text", ["", "problems: []", "a: [", "problems: [{fle: x.py}]"])
def test_batch_list(text: str, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    fails_in_one_line(["batch", str(path), "--runs", str(tmp_path / "runs")], cli, "list.yaml")


@pytest.mark.slow
def test_no_such_file_in_a_real_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", "optimize", "nowhere.py", "--target", "h100"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "agentkernel: No such file: 'nowhere.py'. Expected a Python file with a torch module. "
        "Next: check the path."
    ]


def test_a_file_that_asks_for_cuda_is_told_that_it_need_not(tmp_path: Path) -> None:
    said = "Torch not compiled with CUDA enabled"
    file = tmp_path / "there.py"
    file.write_text(
        GOOD.split("def get_inputs")[0] + f"def get_inputs(): raise OSError({said!r})\n"
    )
    with pytest.raises(ProblemError) as caught:
        load_problem(str(file))
    assert str(caught.value).endswith(
        "Next: leave .cuda() and device='cuda' out: inputs and module are put where they run."
    )


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    for names in ((), ("norm.py", "zero.py")):
        for name in names:
            (tmp_path / name).write_text("")
        with pytest.raises(ProblemError) as caught:
            load_problem(str(tmp_path))
        likely = tmp_path / (names[0] if names else "model.py")
        assert str(caught.value) == (
            f"{str(tmp_path)!r} is a folder. Expected a Python file with a torch module. "
            f"Next: name one of its files, as {str(likely)!r}."
        )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="a full disk is made with bubblewrap")
def test_a_full_disk(good: Path) -> None:
    small = ["bwrap", "--dev-bind", "/", "/", "--size", "65536", "--tmpfs", "/mnt"]
    words = [sys.executable, "-m", "agentkernel", "optimize", str(good), "--runs", "/mnt/runs"]
    done = subprocess.run([*small, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "No room left" in done.stderr
