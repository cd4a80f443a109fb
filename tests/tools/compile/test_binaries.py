"""A kernel that one process compiled is found in another's cache; its PTX says what it does."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.compiler import ASTSource, CompiledKernel

from agentkernel.tools.compile.binaries import (
    DriverBuild,
    enter,
    launcher_of,
    module_key,
    size_of,
    taken,
)
from agentkernel.tools.compile.candidate import with_binaries
from agentkernel.tools.compile.instructions import Count, instructions_from, instructions_of
from agentkernel.tools.compile.recording import gpu_target, pretend_gpu, record_launches
from agentkernel.tools.compile.worker import _set_apart
from agentkernel.tools.sandbox import worker as sandbox_worker
from agentkernel.tools.targets import find_target

HOPPER = GPUTarget("cuda", 90, 32)


def _double(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.exp(value), mask=places < n)


def _walk(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        places = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x + places, mask=places < n, other=0.0))
    tl.store(out + tl.arange(0, BLOCK), total)


def compiled(function: object, block: int = 1024, warps: int = 4) -> CompiledKernel:
    kernel = triton.jit(function)  # type: ignore[call-overload]
    divisible = [["tt.divisibility", 16]]
    source = ASTSource(
        kernel,
        {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {(3,): block},
        {(place,): divisible for place in range(3)},
    )
    return triton.compile(source, target=HOPPER, options={"num_warps": warps})


def test_another_cache_loads_it_without_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiled(_double)
    binary = json.loads(json.dumps(taken(first)))
    assert 0 < size_of([binary]) < 100_000
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    enter([binary])
    again = compiled(_double)
    assert again.hash == first.hash
    assert again.asm["cubin"] == first.asm["cubin"]
    assert {path.suffix for path in tmp_path.glob("*/*")} == {".json", ".cubin"}
    other = compiled(_double, block=512)
    assert other.hash != first.hash
    assert ".ptx" in {path.suffix for path in tmp_path.glob("*/*")}


def test_a_thread_loads_computes_and_stores_its_share() -> None:
    counts = instructions_of(compiled(_double).asm["ptx"])
    assert counts.loops == ()
    assert (counts.straight.load_bytes, counts.straight.store_bytes) == (32, 32)
    assert (counts.straight.loads, counts.straight.special, counts.matrix) == (2, 8, 0)
    assert 20 < counts.straight.issued < 100


def test_a_loop_is_counted_by_itself() -> None:
    counts = instructions_of(compiled(_walk, warps=8).asm["ptx"])
    (loop,) = counts.loops
    assert (loop.load_bytes, loop.store_bytes, loop.special) == (16, 0, 4)
    assert counts.straight.store_bytes == 16
    assert instructions_from(dataclasses.asdict(counts)) == counts
    assert loop.times(3) == loop + loop + loop
    assert Count() + loop == loop


MATRIX = """
	ld.param.b64 	%rd1, [k_param_0];
	mov.u32 	%r6, %ctaid.x;
$L__BB0_1:
$L__BB0_2:
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 16, %r2;
	cp.async.commit_group;
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1};
	@%p2 bra 	$L__BB0_2;
	add.s32 	%r3, %r3, 1;
	@%p3 bra 	$L__BB0_1;
	@!%p4 st.global.v2.b16 [ %rd3 + 0 ], { %rs1, %rs2 };
	ret;
"""


def test_only_the_innermost_loop_counts_as_one() -> None:
    counts = instructions_of(MATRIX)
    assert counts.loops == (Count(issued=3, matrix=1, load_bytes=16, loads=1),)
    assert counts.straight == Count(issued=2, store_bytes=4)
    assert counts.matrix == 1


class Loading(Exception):
    """Ends a launch once its kernel is compiled: there is no device to load it on."""


def test_a_recorded_launch_has_the_hash_of_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = triton.jit(_double)
    target = find_target("h200").target

    def stop(self: CompiledKernel) -> None:
        raise Loading(self.hash)

    monkeypatch.setattr(CompiledKernel, "_init_handles", stop)
    with pretend_gpu(target):
        x = torch.empty(4096)
        launch = partial(kernel[(4,)], x, torch.empty(4096), 4096, BLOCK=1024, num_warps=8)
        with record_launches(gpu_target(target)) as launches:
            launch()
        with pytest.raises(Loading) as real:
            launch()
    (recorded,) = launches
    ours = triton.compile(
        recorded.source, target=gpu_target(target), options=dict(recorded.options)
    )
    assert real.value.args == (ours.hash,)


def test_the_modules_of_the_driver_are_compiled_beside_and_found_in_another_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is linked against and never loaded is enough: it is not asked for anything."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    stub = tmp_path / "libcuda.so.1"
    (tmp_path / "stub.c").write_text("int nothing;\n")
    words = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(stub)]
    subprocess.run([*words, str(tmp_path / "stub.c")], check=True)
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))
    (found,) = json.loads(json.dumps(DriverBuild().result()))
    (name,) = found.keys() - {"hash"}
    assert name.startswith("cuda_utils")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sandbox_worker, "_driver", [found])
    sandbox_worker.enter_driver()
    kept = triton.runtime.cache.get_cache_manager(found["hash"]).get_file(name)
    assert Path(kept).read_bytes()[:4] == b"\x7fELF"


def test_without_a_driver_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path / "none"))
    assert DriverBuild().result() == []


class Launchers:
    """Triton's driver up to 3.6, which compiles a module in C for each signature."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.compiled = 0
        patch.setattr(driver, "make_launcher", None, raising=False)
        patch.setattr(driver, "compile_module_from_src", self.compile, raising=False)
        patch.setattr(driver, "CudaLauncher", self.launcher)

    def compile(self, src: str, name: str) -> None:
        self.compiled += 1
        cache = triton.runtime.cache.get_cache_manager(module_key(src))
        cache.put(f"compiled {src}".encode(), f"{name}.so")
        raise ImportError("libcuda.so.1: cannot open shared object file")

    def launcher(self, source: ASTSource, metadata: object) -> None:
        driver.compile_module_from_src(src=str(source.signature), name="launcher")


def test_a_launcher_is_compiled_once_for_a_signature_and_found_in_another_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[str] = []
    first, second, other = compiled(_double), compiled(_double, block=256), compiled(_walk, warps=8)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "one"))
    triton_36 = Launchers(monkeypatch)
    claim = lambda key: nullcontext(claimed.append(key))  # noqa: E731
    found = [launcher_of(kernel, claim) for kernel in (first, second, other)]
    assert found[0] == found[1] == found[2] != None  # noqa: E711
    assert triton_36.compiled == 1
    assert set(claimed) == {found[0]["hash"]}
    assert driver.compile_module_from_src == triton_36.compile
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "two"))
    enter(found)
    kept = triton.runtime.cache.get_cache_manager(found[0]["hash"]).get_file("launcher.so")
    assert Path(kept).read_text().startswith("compiled {'x'")


def test_newer_versions_need_none() -> None:
    if hasattr(driver, "make_launcher"):
        pytest.skip("this one needs them")
    assert launcher_of(compiled(_double), lambda key: nullcontext()) is None


def test_what_launches_kernels_travels_once_for_all_sources() -> None:
    one, two = {"hash": "1", "a.so": "AAAA"}, {"hash": "2", "a.so": "BB"}
    made: dict[str, dict[str, str]] = {}
    answers: list[object] = [{"binaries": [one, two]}, {"binaries": [two]}, {"failed": "load"}]
    room = 10
    for item in answers:
        room = _set_apart(item, made, room)
    assert room == 2
    given = with_binaries(answers, list(made.values()))
    assert given == [{"binaries": [one, two]}, {"binaries": [two]}, {"failed": "load"}]
    made.clear()
    answers = [{"binaries": [one, two]}, {"binaries": [one]}]
    assert [_set_apart(item, made, 3) for item in answers] == [0, 3]
    assert with_binaries(answers, list(made.values())) == [{"binaries": [two]}, {"binaries": []}]
