"""Compilation in the sandboxed worker: recorded launches, Triton IR only, and whole families.

A family of sources is compiled each in a forked process with a folder of its own, as many at a
time as there are cores: the imports are paid for once, and one that dies or hangs affects no
other.

The front end executes the file and compiles its kernels to Triton IR in the forms in which they
ran in the interpreter, which runs any Python; nothing is launched, and no GPU is needed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.problem import DataStructure
from agentkernel.domain.profile import CompileReport, KernelResources, OpCost
from agentkernel.domain.target import Target
from agentkernel.runtime.pool import lower_priority
from agentkernel.storage.files import lock_open_file, open_append
from agentkernel.tools.compile.binaries import Binary, launcher_of, size_of, taken
from agentkernel.tools.compile.instructions import Instructions, instructions_of
from agentkernel.tools.compile.occupancy import (
    OVER_LIMIT,
    BinaryFacts,
    amdgcn_facts,
    cubin_facts,
    disassembled,
    occupancy,
)
from agentkernel.tools.compile.recording import (
    Launch,
    gpu_target,
    pretend_gpu,
    record_launches,
    record_library,
)
from agentkernel.tools.problem.arguments import called_flat
from agentkernel.tools.roofline.op_cost import FILLS
from agentkernel.tools.sandbox.watchdog import readable
from agentkernel.tools.sandbox.worker import WorkerState

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON


MAX_THREADS_PER_BLOCK = 1024
PATIENCE_S = 30.0
"""So long a process waits for a kernel that another of its family compiles."""
LOOK_AGAIN_S = 0.02
"""A kernel takes from a tenth of a second on: the lock's usual interval would double that."""
MOST_IN_C = 4
BUSY = AgentKernelError("another process of the family compiles it")
TENSOR_MEMORY_COLUMNS = 512
"""Columns of tensor memory an SM of capability 10.0 (PTX ISA, tcgen05)."""
MAX_ERROR_CHARACTERS = 4000


class CompiledLaunch(NamedTuple):
    """A launch with its binary; for no NVIDIA GPU, without instruction counts."""

    resources: KernelResources
    kernel: triton.compiler.CompiledKernel | None = None

    @property
    def instructions(self) -> Instructions | None:
        """What the kernel issues, loads and stores."""
        ptx = None if self.kernel is None else self.kernel.asm.get("ptx")
        return instructions_of(ptx) if isinstance(ptx, str) else None


def compile_launches(
    launches: list[Launch], target: Target, gpu: GPUTarget, candidate: str, scratch: Path
) -> list[CompiledLaunch]:
    """One entry a launch, in order; launches that share a binary are compiled once, also by all
    processes of a family: what another is compiling comes last, out of Triton's cache."""
    done: dict[str, CompiledLaunch] = {}
    distinct = {launch.key: launch for launch in launches}
    for patience_s in (0.0, PATIENCE_S):
        for key, launch in distinct.items():
            if key in done:
                continue
            with _claimed(key, patience_s) as claimed:
                if claimed or patience_s:
                    done[key] = compile_launch(launch, target, gpu, candidate, scratch)
    return [_of_launch(done[launch.key], launch) for launch in launches]


@contextmanager
def _claimed(key: str, patience_s: float = PATIENCE_S) -> Iterator[bool]:
    """True where no other process of the family makes what `key` names, or none does any more after
    at most `patience_s`. A lock in the cache's folder ends with the process that holds it."""
    folder = os.environ.get("TRITON_CACHE_DIR")
    if not folder:
        yield True
        return
    path = Path(folder) / "claims" / sha256_text(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_append(path) as file:
        free = True
        try:
            lock_open_file(file, BUSY, patience_s, LOOK_AGAIN_S)
        except AgentKernelError:
            free = False
        yield free


@contextmanager
def _claimed_in_c(key: str) -> Iterator[None]:
    """The same for a module in C, of which `MOST_IN_C` are compiled at once: three processes each,
    and a worker may have only so many."""
    with _claimed(f"{int(key, 16) % MOST_IN_C} of those in C"):
        yield


def _of_launch(made: CompiledLaunch, launch: Launch) -> CompiledLaunch:
    own = made.resources.evolve(grid=launch.grid, bytes_touched=launch.bytes_touched)
    return CompiledLaunch(own, made.kernel)


def compile_launch(
    launch: Launch, target: Target, gpu: GPUTarget, candidate: str, scratch: Path
) -> CompiledLaunch:
    """One launch on `target` with its resources; a refusal by Triton or ptxas becomes `error`.

    `candidate` is the whole source text, for the line number of an error.
    """
    started = time.perf_counter()
    try:
        compiled = triton.compile(launch.source, target=gpu, options=dict(launch.options))
    except Exception as error:  # noqa: BLE001 - every compiler error is a finding about the candidate
        text, line = explain(error, candidate, launch.function_source)
        refused = _resources(launch, time.perf_counter() - started)
        return CompiledLaunch(refused.evolve(error=text, line=line, fits=False))
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
    resources = _resources(launch, seconds).evolve(
        registers=facts.registers,
        spill_bytes=facts.spill_bytes,
        tensor_core=facts.tensor_core,
        shared_bytes=shared,
        occupancy=share,
        error=problem,
        fits=problem is None,
    )
    return CompiledLaunch(resources, compiled)


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


def _resources(launch: Launch, seconds: float) -> KernelResources:
    """What is known of a launch before its binary: nothing of registers and memory."""
    return KernelResources(
        name=launch.name,
        grid=launch.grid,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        registers=None,
        spill_bytes=None,
        shared_bytes=0,
        occupancy=None,
        tensor_core=None,
        constants=launch.constants,
        compile_s=round(seconds, 4),
        error=None,
        fits=True,
        bytes_touched=launch.bytes_touched,
        line=None,
    )


Target.model_rebuild()  # before the fork, not in each worker's first op


def take(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """`payload`: the source, a target as JSON, and forms of `judge.forms`. The reply has what the
    compiler refuses first, with its line, and how many forms it took."""
    target = Target.model_validate_json(str(payload["target"]))
    source = str(payload["source"])
    gpu = gpu_target(target)
    taken = 0
    with pretend_gpu(target):
        with _kernels_made() as kernels:
            state.execute(source)
        for form in cast("Sequence[Sequence[Sequence[object]]]", payload["forms"]):
            name, line = cast("tuple[str, int]", tuple(form[0]))
            kernel = kernels.get(line)
            if kernel is None:
                return {"missing": name}
            try:
                _frontend(kernel, form[1], kernels, gpu)
            except Exception as error:  # noqa: BLE001 - whatever the compiler raises is its answer
                text, at = explain(error, source, kernel.src)
                return {"refused": f"kernel {name}: {text}", "line": at or line}
            taken += 1
    return {"taken": taken}


@contextmanager
def _kernels_made() -> Iterator[dict[int, JITFunction]]:
    """The kernels that the block makes, by their first line."""
    made: dict[int, JITFunction] = {}
    original = JITFunction.__init__

    def init(self: JITFunction, fn: FunctionType, *args: object, **named: object) -> None:
        original(self, fn, *args, **named)
        made[fn.__code__.co_firstlineno] = self

    JITFunction.__init__ = init
    try:
        yield made
    finally:
        JITFunction.__init__ = original


def _frontend(
    kernel: JITFunction,
    words: Sequence[object],
    kernels: Mapping[int, JITFunction],
    gpu: GPUTarget,
) -> None:
    """Raises what Triton raises for one form."""
    from triton._C.libtriton import ir

    given = {
        name: _argument(value, kernels)
        for name, value in cast("Sequence[tuple[str, Sequence[object]]]", words)
    }
    with record_launches(gpu) as launches:
        kernel.run(grid=(1,), warmup=False, **given)
    (launch,) = launches
    backend = make_backend(gpu)
    options = backend.parse_options(dict(launch.options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options)
    launch.source.make_ir(gpu, options, functions, backend.get_module_map(), context)


def _argument(words: Sequence[object], kernels: Mapping[int, JITFunction]) -> object:
    kind, *values = words
    if kind == "tensor":
        return torch.empty(16, dtype=getattr(torch, str(values[0])), device="meta")
    if kind == "dtype":
        return next(x for x in vars(tl).values() if isinstance(x, tl.dtype) and x.name == values[0])
    return kernels[cast(int, values[1])] if kind == "kernel" else values[0]


CLASS_NAME = "ModelNew"
MAX_LOG_CHARACTERS = 6000
MAX_REAL_BYTES = 1 << 30
MANY_KERNELS = 4
"""Of a source with so many kernels another core begins with the last, where it has nothing else."""
MAX_BINARIES = 10 << 20
"""Characters of binaries in one reply, which may have 16 MiB."""
NO_VALUES = re.compile(r"meta tensor|\bon meta\b|_local_scalar_dense|DataDependent", re.I)
"""How torch says that a tensor without storage was asked for a value."""


@dataclass(frozen=True)
class Recorded:
    """What one forward would have done on a GPU."""

    launches: list[Launch]
    library: list[OpCost]


def compile_forward(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build `ModelNew` without storage, note what its forward launches, compile that.

    `payload`: source, target (as JSON), init_args, init_kwargs, arguments, inputs (meta tensors and
    scalars).
    The reply holds either "report" or "failed" ("load" or "run") with the log; where `binaries` is
    true, also the instruction counts of each launch and the binaries; where `assembly` is true,
    the texts of each kernel. A forward that reads values is tried again on real zeros, where they
    are small.
    """
    target = Target.model_validate_json(str(payload["target"]))
    inputs = cast("Sequence[object]", payload["inputs"])
    with pretend_gpu(target), torch.no_grad():
        found = _record(payload, state, target, inputs, "meta")
        if isinstance(found, dict) and NO_VALUES.search(str(found["log"])) and _small(inputs):
            again = _record(payload, state, target, [_zeros(item) for item in inputs], "cpu")
            found = found if isinstance(again, dict) else again
        if isinstance(found, dict):
            return found
        launches = found.launches[::-1] if payload.get("helps") else found.launches
        made = compile_launches(
            launches, target, gpu_target(target), str(payload["source"]), state.scratch
        )
    report = CompileReport(
        target=target.name,
        kernels=tuple(item.resources for item in made),
        library_ops=tuple(cost.op for cost in found.library if cost.op not in FILLS),
        library_costs=tuple(found.library),
    )
    reply: dict[str, JSON] = {"report": report.model_dump_json()}
    if payload.get("assembly"):
        reply["assembly"] = _assembly(made, state.scratch)
    if payload["binaries"]:
        reply["instructions"] = [_described(item.instructions) for item in made]
        kernels = {item.kernel.hash: item.kernel for item in made if item.kernel is not None}
        launchers = [launcher_of(kernel, _claimed_in_c) for kernel in kernels.values()]
        binaries = [*map(taken, kernels.values()), *(item for item in launchers if item)]
        reply["binaries"] = [dict(item) for item in binaries]
    return reply


def _assembly(made: Sequence[CompiledLaunch], scratch: Path) -> JSON:
    """By name, each kernel's PTX and SASS, or what its target has in their place."""
    found: dict[str, JSON] = {}
    for name, kernel in {item.resources.name: item.kernel for item in made}.items():
        asm = {} if kernel is None else kernel.asm
        texts = {kind: asm[kind] for kind in ("ptx", "amdgcn") if isinstance(asm.get(kind), str)}
        if isinstance(asm.get("cubin"), bytes):
            texts["sass"] = disassembled(asm["cubin"], scratch)
        found[name] = cast("JSON", {kind: text for kind, text in texts.items() if text})
    return found


def _described(instructions: Instructions | None) -> JSON:
    return None if instructions is None else cast("JSON", asdict(instructions))


def _record(
    payload: Mapping[str, object],
    state: WorkerState,
    target: Target,
    inputs: Sequence[object],
    device: str,
) -> Recorded | dict[str, JSON]:
    """One forward on tensors of `device`: its launches and torch ops, or why there are none."""
    try:
        model = _build(payload, state, device)
    except Exception:  # noqa: BLE001 - the candidate may raise anything
        return _failed("load")
    with record_launches(gpu_target(target)) as launches, record_library() as library:
        try:
            model(*inputs)
        except Exception:  # noqa: BLE001 - the candidate may raise anything
            return _failed("run")
    return Recorded(launches, library)


def record_forward(model: nn.Module, inputs: Sequence[object], target: Target) -> list[Launch]:
    """The launches of one trusted module on meta inputs, not compiled."""
    with pretend_gpu(target), torch.no_grad(), record_launches(gpu_target(target)) as launches:
        model(*inputs)
    return launches


def _build(payload: Mapping[str, object], state: WorkerState, device: str) -> nn.Module:
    """On `device`; a constructor that needs numbers is run on the CPU, and its tensors moved."""
    module = state.execute(str(payload["source"]))
    args = cast("Sequence[object]", payload["init_args"])
    kwargs = cast("Mapping[str, object]", payload["init_kwargs"])
    create = getattr(module, CLASS_NAME)
    try:
        with torch.device(device):
            built = create(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        with torch.device("cpu"):
            built = create(*args, **kwargs)
    made = cast("nn.Module", built.to(device).eval())
    return called_flat(made, cast("DataStructure | None", payload.get("arguments")))


def _small(inputs: Sequence[object]) -> bool:
    sizes = [item.nbytes for item in inputs if isinstance(item, torch.Tensor)]
    return sum(sizes) <= MAX_REAL_BYTES


def _zeros(item: object) -> object:
    if not isinstance(item, torch.Tensor):
        return item
    with torch.device("cpu"):
        return torch.zeros(item.shape, dtype=item.dtype)


def _failed(stage: str) -> dict[str, JSON]:
    return {"failed": stage, "log": traceback.format_exc(limit=-8)[-MAX_LOG_CHARACTERS:]}


@dataclass
class _Child:
    """A forked process at work on source `index`; its answer arrives on `reader`."""

    index: int
    pid: int
    reader: int
    end_s: float
    answer: bytearray = field(default_factory=bytearray)


def compile_family(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """`compile_forward` for each of `payload["sources"]`; the reply has its answers by index.

    A source is a pair: which of `payload["calls"]` holds the rest of what compile_forward takes
    (but for `target` and `binaries`, which all share), and the text. `at_once` are compiled side by
    side. `timeout_s` is for each source; after `seconds` none begins (its answer is None). Kernels
    and what launches them, which the sources share, are told once, as "binaries".
    """
    warm_compiler(Target.model_validate_json(str(payload["target"])))
    sources = cast("Sequence[tuple[int, str]]", payload["sources"])
    last_start_s = time.monotonic() + cast(float, payload["seconds"])
    at_once = cast(int, payload["at_once"])
    waiting = list(range(len(sources)))[::-1]
    running: list[_Child] = []
    helpers: list[_Child] = []
    helped: set[int] = set()
    answers: dict[int, JSON] = {}
    binaries: dict[str, Binary] = {}
    room = MAX_BINARIES
    while waiting or running:
        while waiting and len(running) < at_once:
            index = waiting.pop()
            if time.monotonic() > last_start_s:
                answers[index] = None
            else:
                running.append(_fork(index, payload, state))
        alone = [x.index for x in running if x.index not in helped and _has_many(sources[x.index])]
        free = 0 if waiting else max(0, at_once - len(running) - len(helpers))
        for index in alone[:free]:
            helped.add(index)
            helpers.append(_fork(index, payload, state, helps=True))
        for child in _finished([*running, *helpers]):
            if child in helpers:
                helpers.remove(child)
                _dismiss(child)
                continue
            running.remove(child)
            answers[child.index] = answer = _collect(child)
            room = _set_apart(answer, binaries, room)
    for child in helpers:
        _dismiss(child)
    return {
        "answers": [answers[index] for index in range(len(sources))],
        "binaries": [dict(item) for item in binaries.values()],
    }


def warm_compiler(target: Target) -> None:
    """Ask the assembler for its version, which each process would ask for that compiles."""
    make_backend(gpu_target(target)).hash()


def _set_apart(answer: JSON, made: dict[str, Binary], room: int) -> int:
    """Leave an answer the hashes alone of its binaries, which sources of a family share, and enter
    those that `made` does not have yet as far as they fit into `room` characters; what is left of
    it."""
    own = answer.get("binaries") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(own, list):
        return room
    binaries = cast("Sequence[Binary]", own)
    for item in binaries:
        size = size_of([item])
        if item["hash"] not in made and size <= room:
            made[item["hash"]] = item
            room -= size
    answer["binaries"] = [item["hash"] for item in binaries]
    return room


def _has_many(source: tuple[int, str]) -> bool:
    """Whether a second process pays that begins with the last kernel of the source."""
    return source[1].count("@triton.jit") >= MANY_KERNELS


def _fork(
    index: int, payload: Mapping[str, object], state: WorkerState, *, helps: bool = False
) -> _Child:
    """A process for source `index`; one that `helps` another fills the cache that both share, from
    the last kernel on."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work(index, {**payload, "helps": helps}, state, writer)
    os.close(writer)
    return _Child(index, pid, reader, time.monotonic() + cast(float, payload["timeout_s"]))


def _work(index: int, payload: Mapping[str, object], state: WorkerState, writer: int) -> None:
    """The child's whole life; it never returns. It gives way to what times."""
    code = 1
    try:
        lower_priority(0)
        scratch = state.scratch / f"source{index}{'helper' if payload['helps'] else ''}"
        scratch.mkdir(exist_ok=True)
        own = WorkerState(scratch, state.device, state.interpret)
        call, source = cast("Sequence[tuple[int, str]]", payload["sources"])[index]
        rest = cast("Sequence[Mapping[str, object]]", payload["calls"])[call]
        common = {key: payload[key] for key in ("target", "binaries", "helps")}
        own_payload = {**rest, **common, "source": source}
        answer = compile_forward(own_payload, own)
        with os.fdopen(writer, "wb") as line:
            line.write(json.dumps(answer).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - the candidate may raise anything, SystemExit too
        traceback.print_exc(limit=-8)
    finally:
        os._exit(code)


def _finished(running: Sequence[_Child]) -> list[_Child]:
    """Children that closed their line or ran out of time, after at most a tenth of a second."""
    lines = {child.reader: child for child in running}
    done = []
    for line in readable(lines, 0.1):
        data = os.read(line, 1 << 16)
        lines[line].answer += data
        if not data:
            done.append(lines[line])
    now = time.monotonic()
    return done + [child for child in running if now > child.end_s and child not in done]


def _collect(child: _Child) -> JSON:
    """The answer of a child that is done, reaped; a failure where it has none."""
    os.close(child.reader)
    try:
        answer: JSON = json.loads(child.answer)
    except ValueError:
        answer = None
    if answer is not None:
        _end(child.pid)
        return answer
    if time.monotonic() > child.end_s:
        _end(child.pid)
        return {"failed": "timeout", "log": "no answer in time"}
    code = _end(child.pid, patience_s=1.0)
    return {"failed": "died", "log": f"the process that compiled it ended with exit code {code}"}


def _dismiss(child: _Child) -> None:
    """End a helper: what it compiled lies in the cache, its answer is another's too."""
    os.close(child.reader)
    _end(child.pid)


def _end(pid: int, patience_s: float = 0.0) -> int:
    """Reap a child, killed where it does not end by itself; its exit code."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
