"""Does `doctor` say what is there, what is missing and what fixes it, without telling secrets?"""

from __future__ import annotations

import compileall
import json
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.doctor import check_bytecode, check_disk, check_keys, check_package


def test_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["ok"] else 4)
    names = [check["name"] for check in found["checks"]]
    assert {"python", "torch", "triton", "GPU", "sandbox", "cuobjdump", "index"} <= set(names)
    assert len(names) < 20
    assert all(check["mend"] for check in found["checks"] if not check["ok"])


def test_missing_package_names_its_cure() -> None:
    check = check_package("no-such-package-here", "1.0", "pip install it")
    assert (check.ok, check.mend, check.required) == (False, "pip install it", True)


def test_too_old_is_missing() -> None:
    assert not check_package("typer", "99.0", "pip install -U typer").ok


def test_keys_are_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    check = check_keys()
    assert "OPENAI_API_KEY" in check.found
    assert "sk-very-secret" not in repr(check)


def test_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert str(tmp_path) in check_disk(tmp_path / "a" / "b").found


def test_uncompiled_package_names_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import").mkdir()
    (tmp_path / "slow_to_import" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    check = check_bytecode("slow_to_import")
    assert not check.ok
    assert "compileall" in check.mend
    assert str(tmp_path) in check.mend
    compileall.compile_dir(tmp_path, quiet=2)
    assert check_bytecode("slow_to_import").ok


def doctor(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    """The checks of a call by name."""
    assert run(["doctor", "--json", *words]) in (0, 4)
    found = json.loads(capsys.readouterr().out)
    return {check["name"]: check for check in found["checks"]}


@pytest.mark.parametrize(
    ("coder", "ok", "hint"),
    [
        ("chat:openai:m", False, "export OPENAI_API_KEY=..."),
        ("chat:openai:m@http://127.0.0.1:9/v1", True, "no key needed"),
        ("chat:ghost:m", False, "pip install langchain-ghost"),
        ("chat:openai", False, "names no model"),
        ("local:kernelbook-qwen", False, "lacks the adapter"),
        ("local:./nowhere", False, "no *.safetensors in ./nowhere"),
        ("local:kernelllm", True, "hf download facebook/KernelLLM"),
    ],
)
def test_what_a_coder_needs(
    coder: str,
    ok: bool,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    check = doctor("--coder", coder, capsys=capsys)["coder"]
    assert (check["ok"], check["required"]) == (ok, False)
    assert hint in f"{check['found']} {check['mend']}"


def test_a_file_as_the_coder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("class ModelNew:\n    pass\n")
    found = doctor("--coder", f"file:{path}", capsys=capsys)["coder"]
    assert (found["ok"], found["found"]) == (True, "file:kernel.py, 2 lines")
    path.unlink()
    assert doctor("--coder", f"file:{path}", capsys=capsys)["coder"]["ok"] is False


def test_the_key_of_a_coder_is_named_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    checks = doctor("--coder", "chat:openai:m", "-c", "models.planner=parrot", capsys=capsys)
    assert checks["coder"]["found"] == "chat:openai:m, with OPENAI_API_KEY"
    assert "Unknown model 'parrot'" in str(checks["planner"]["found"])
    assert "sk-very-secret" not in json.dumps(checks)


def test_weights_in_a_folder_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    check = doctor("--coder", f"local:{tmp_path}", capsys=capsys)["coder"]
    assert str(check["found"]).endswith("its weights are here")


def test_without_a_model_as_coder_there_is_no_line_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = doctor(capsys=capsys)
    assert "coder" not in checks
    assert "transformers" in str(checks["local models"]["found"])
