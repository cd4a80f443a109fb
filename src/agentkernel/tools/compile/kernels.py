"""What does one recorded launch become when compiled for a target?"""

from __future__ import annotations

import time
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError

from agentkernel.domain.profile import KernelResources
from agentkernel.domain.target import Target
from agentkernel.tools.compile.occupancy import OVER_LIMIT, occupancy
from agentkernel.tools.compile.recorder import Launch
from agentkernel.tools.compile.resources import BinaryFacts, amdgcn_facts, cubin_facts

MAX_THREADS_PER_BLOCK = 1024
TENSOR_MEMORY_COLUMNS = 512
"""Columns of tensor memory an SM of capability 10.0 (PTX ISA, tcgen05)."""
MAX_ERROR_CHARACTERS = 4000


def compile_launches(
    launches: list[Launch], target: Target, gpu: GPUTarget, candidate: str, scratch: Path
) -> list[KernelResources]:
    """One entry a launch, in order; launches that share a binary are compiled once."""
    done: dict[str, KernelResources] = {}
    for launch in launches:
        if launch.key not in done:
            done[launch.key] = compile_launch(launch, target, gpu, candidate, scratch)
    return [
        done[launch.key].model_copy(
            update={"grid": launch.grid, "bytes_touched": launch.bytes_touched}
        )
        for launch in launches
    ]


def compile_launch(
    launch: Launch, target: Target, gpu: GPUTarget, candidate: str, scratch: Path
) -> KernelResources:
    """Resources of one launch on `target`; a refusal by Triton or ptxas becomes `error`.

    `candidate` is the whole source text, for the line number of an error.
    """
    started = time.perf_counter()
    try:
        compiled = triton.compile(launch.source, target=gpu, options=dict(launch.options))
    except Exception as error:  # noqa: BLE001 - every compiler error is a finding about the candidate
        text, line = explain(error, candidate, launch.function_source)
        return _resources(launch, time.perf_counter() - started, error=text, line=line, fits=False)
    seconds = time.perf_counter() - started
    facts = _facts(compiled.asm, scratch)
    metadata = compiled.metadata
    shared, warps = int(metadata.shared), int(metadata.num_warps)
    problem = _over_limit(target, shared, warps, int(getattr(metadata, "tmem_size", 0) or 0))
    share = None
    if facts.registers is not None and problem is None:
        share = occupancy(
            target, registers=facts.registers, shared_bytes=shared, num_warps=warps
        ).share
    return _resources(launch, seconds, facts, shared, share, error=problem, fits=problem is None)


def explain(error: BaseException, candidate: str, function: str) -> tuple[str, int | None]:
    """The compiler's words and the candidate's line.

    The line is that of the innermost Triton function where the frontend refuses, else (a failed
    pass, ptxas) the first of the launched `function`.
    """
    text, line = str(error), _line_of(function, candidate)
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, CompilationError) and current.node is not None:
            line = _line(current, candidate) or line
            text = str(current)
        current = current.__cause__
    return f"{type(error).__name__}: {text}"[:MAX_ERROR_CHARACTERS], line


def _line(error: CompilationError, candidate: str) -> int | None:
    first = _line_of(error.src or "", candidate)
    return None if first is None else first + int(error.node.lineno) - 1


def _line_of(function: str, candidate: str) -> int | None:
    start = candidate.find(function) if function else -1
    return None if start < 0 else candidate.count("\n", 0, start) + 1


def _facts(asm: dict[str, str | bytes], scratch: Path) -> BinaryFacts:
    if "cubin" in asm:
        cubin, ptx = asm["cubin"], asm["ptx"]
        if isinstance(cubin, bytes) and isinstance(ptx, str):
            return cubin_facts(cubin, ptx, scratch)
    text = asm.get("amdgcn")
    return amdgcn_facts(text) if isinstance(text, str) else BinaryFacts(None, None, None)


def _over_limit(target: Target, shared: int, warps: int, tensor_memory: int) -> str | None:
    limit = int(target.shared_kb_per_block.value * 1024)
    if shared > limit:
        return f"{OVER_LIMIT}: shared memory, {shared} bytes needed, {limit} at most a block"
    if warps * target.warp_size > MAX_THREADS_PER_BLOCK:
        threads = warps * target.warp_size
        return f"{OVER_LIMIT}: {threads} threads, {MAX_THREADS_PER_BLOCK} at most a block"
    if tensor_memory > TENSOR_MEMORY_COLUMNS:
        return f"{OVER_LIMIT}: tensor memory, {tensor_memory} columns, 512 at most"
    return None


def _resources(
    launch: Launch,
    seconds: float,
    facts: BinaryFacts | None = None,
    shared_bytes: int = 0,
    share: float | None = None,
    *,
    error: str | None,
    fits: bool,
    line: int | None = None,
) -> KernelResources:
    return KernelResources(
        name=launch.name,
        grid=launch.grid,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        registers=None if facts is None else facts.registers,
        spill_bytes=None if facts is None else facts.spill_bytes,
        shared_bytes=shared_bytes,
        occupancy=share,
        tensor_core=None if facts is None else facts.tensor_core,
        constants=launch.constants,
        compile_s=round(seconds, 4),
        error=error,
        fits=fits,
        bytes_touched=launch.bytes_touched,
        line=line,
    )
