"""The sandboxed worker: it serves one operation after the other and holds only what it was sent.

Triton asks `inspect` for a kernel's lines, which come from a file or from linecache; the
candidate can write to both, and put back what was there. The text that was loaded is the text
that is returned here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import linecache
import os
import secrets
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from agentkernel.domain.problem import DataStructure
from agentkernel.storage.source_text import compile_source
from agentkernel.tools.problem.arguments import called_flat
from agentkernel.tools.sandbox.lockdown import lock_calls, lock_files
from agentkernel.tools.sandbox.protocol import JSON, READY, receive_request, send_reply
from agentkernel.tools.sandbox.tensors import OpenTensors, TensorRef

if TYPE_CHECKING:
    import torch
    from torch import nn

    from agentkernel.tools.compile.binaries import Binary, DriverBuild


_lines: dict[str, list[str]] = {}
_original = cast("Callable[[object], tuple[list[str], int]]", inspect.getsourcelines)


def install_source_lines() -> None:
    """From now on `inspect.getsourcelines` asks here first."""
    setattr(inspect, "getsourcelines", source_lines)  # noqa: B010 - its own type is narrower


def serve_source(path: str, source: str) -> None:
    """From now on `source` is what the functions of the file `path` were written as."""
    # Not splitlines, which ends lines at more than Python does.
    _lines[path] = io.StringIO(source, newline=None).readlines()


def source_lines(item: object) -> tuple[list[str], int]:
    """As `inspect.getsourcelines`: the lines, and the number of the first."""
    code = getattr(inspect.unwrap(item), "__code__", None) if callable(item) else None
    known = _lines.get(code.co_filename) if isinstance(code, types.CodeType) else None
    if known is None or not isinstance(code, types.CodeType):
        return _original(item)
    first = code.co_firstlineno
    return inspect.getblock(known[first - 1 :]), first


CANDIDATE_FILE = "candidate.py"
NAMES = ("drop_in", "kernels", "layers", "model", "modules", "ops")
COMPILES = "agentkernel.tools.compile.worker"
JUDGES = "agentkernel.tools.judge.worker"
WITNESSES = "agentkernel.tools.judge.execution.tracer"
RECORDS = (
    "agentkernel.tools.judge.execution.process_state",
    "agentkernel.tools.judge.execution.launches",
    "agentkernel.tools.judge.comparison.state",
)
"""What a tracer and a call import late: a tenth of a second for each worker that has to."""
INTERPRETS = "agentkernel.tools.judge.interpreter.hooks"
LATE = ("triton.experimental.gluon",)
"""Triton imports it with the first launch."""
DYNAMO = "torch._dynamo"
"""A second of imports that every fork that compiles would need."""
COMPILER = ("triton.compiler.code_generator", "triton.experimental.gluon")
"""What the first kernel that is compiled imports."""
MEASURES = "agentkernel.tools.search.worker_ops"
Op = Callable[[Mapping[str, object], "WorkerState"], "dict[str, JSON]"]


class OpRefused(Exception):
    """An op outside agentkernel.tools."""


@dataclass
class WorkerState:
    """What an op may use. `memory` is free for ops to keep objects between calls."""

    scratch: Path
    device: Literal["cpu", "cuda"]
    interpret: bool
    tensors: OpenTensors = field(default_factory=OpenTensors)
    memory: dict[str, object] = field(default_factory=dict)

    def built(
        self,
        namespace: types.ModuleType,
        class_name: str,
        init_args: Sequence[object] = (),
        init_kwargs: Mapping[str, object] | None = None,
        seed: int | None = None,
        arguments: DataStructure | None = None,
    ) -> nn.Module:
        """Build `class_name` in eval mode: on the CPU, as the reference is built, then moved to
        this worker's device. It is called on the flat list of inputs, which lie in forward's
        arguments as `arguments` says."""
        import torch

        if seed is not None:
            torch.manual_seed(seed)
        built = getattr(namespace, class_name)(*init_args, **(init_kwargs or {}))
        return called_flat(cast("nn.Module", built.eval().to(self.device)), arguments)

    def execute(self, source: str, name: str = "candidate") -> types.ModuleType:
        """Run `source` as the module `name`; a candidate's is drawn, so that a name says nothing.
        Its file lies in the scratch, where Triton reads the text of kernels."""
        path = self.scratch / (CANDIDATE_FILE if name == "candidate" else f"{name}.py")
        path.write_text(source, encoding="utf-8", newline="")
        linecache.checkcache(str(path))
        serve_source(str(path), source)
        if name == "candidate":
            name = f"{secrets.choice(NAMES)}_{secrets.token_hex(2)}"
        module = types.ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        exec(compile_source(source, str(path)), module.__dict__)
        return module

    def open(self, ref: object) -> torch.Tensor:
        """The shared tensor behind `ref`."""
        return self.tensors.get(cast(TensorRef, ref))


def serve(line: int, config: Mapping[str, object], listener_socket: socket.socket) -> None:
    """Lock the doors, then answer requests on file descriptor `line` until the parent closes it."""
    sock = socket.socket(fileno=line)
    device = cast("Literal['cpu', 'cuda']", config["device"])
    state = WorkerState(Path(str(config["scratch"])), device, bool(config["interpret"]))
    late = bool(config.get("late"))
    abi = 0 if late else lock_files(config)
    warm_up(device, state.interpret, bool(config.get("frontend")))
    if not config.get("convolutions_round", True):
        import torch

        # By the older name, which sets recurrent layers too: else it could no longer be read.
        torch.backends.cudnn.allow_tf32 = False
    if late:
        abi = lock_files(config)
    locks = lock_calls(config, abi, listener_socket)
    if device == "cuda":
        try_device()
        enter_driver()
    send_reply(sock, READY, {"locks": cast("JSON", asdict(locks)), "pid": os.getpid()})
    while True:
        request = receive_request(sock)
        if request is None:
            return
        message = cast("dict[str, object]", request[0])
        number = str(message["id"])
        send_reply(sock, number, answer(message, request[1], state))


def warm_up(device: str, interpret: bool, frontend: bool) -> None:
    """Import and start all that needs more than a candidate may have, or that would be waited
    for."""
    imports(device, interpret, frontend)
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if device == "cuda":
        try_device()


def imports(device: str, interpret: bool, frontend: bool = False) -> None:
    """Import what a worker of this kind is asked for most; with `frontend`, only what Triton's
    front end takes. Starts no thread and no device. What is forked from here has the modules of
    Triton's driver, which it would compile before its first launch."""
    building = _begin_driver() if device == "cuda" else None
    import torch  # noqa: F401 - part of the start, not of the first op's time
    import triton  # noqa: F401

    for module in (COMPILES, *COMPILER) if frontend else _likely_ops(device, interpret):
        importlib.import_module(module)
    if not interpret and not frontend:
        from agentkernel.tools.compile.binaries import key_by_content

        hash_compiler()
        key_by_content()
    install_source_lines()
    if building is not None:
        _driver.extend(building.result())


_driver: list[Binary] = []
_begun = threading.Event()
"""That it is not begun again in what is forked."""


def _begin_driver() -> DriverBuild | None:
    if _begun.is_set():
        return None
    _begun.set()
    from agentkernel.tools.compile.binaries import DriverBuild

    with contextlib.suppress(OSError):  # no folder to build in
        return DriverBuild()
    return None


def enter_driver() -> None:
    """Put the modules of Triton's driver into this worker's own cache."""
    if _driver:
        from agentkernel.tools.compile.binaries import enter

        enter(_driver)


def hash_compiler() -> None:
    """Let Triton hash its own files, hundreds of megabytes, before the forks: else each of them
    does so for its first kernel. Not every version keeps the hash."""
    from triton.runtime import cache

    getattr(cache, "triton_key", str)()


def try_device() -> None:
    """The GPU still takes memory and kernels. Raises what CUDA raises."""
    import torch

    value = torch.ones(2, device="cuda")
    if float((value + value).sum()) != 4.0:
        raise RuntimeError("the GPU cannot add")


def _likely_ops(device: str, interpret: bool) -> tuple[str, ...]:
    """What a worker of this kind is asked for most: imported before anyone waits."""
    if device == "cuda":
        return (JUDGES, WITNESSES, *RECORDS, DYNAMO, *LATE, MEASURES)
    return (
        (JUDGES, WITNESSES, *RECORDS, *LATE, INTERPRETS)
        if interpret
        else (COMPILES, DYNAMO, *COMPILER)
    )


def answer(
    request: Mapping[str, object], fds: Sequence[int], state: WorkerState
) -> dict[str, JSON]:
    """Run one op; what it raises becomes part of the reply."""
    state.tensors.drop(cast("list[int]", request["drop"]))
    state.tensors.add(cast("list[TensorRef]", request["share"]), fds)
    try:
        state.tensors.pull()
        function = find_op(str(request["op"]))
        value = function(cast("Mapping[str, object]", request["payload"]), state)
        state.tensors.push()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the candidate may raise anything, SystemExit too
        return {"ok": False, **describe_error(error, state.scratch)}
    return {"ok": True, "value": value}


def find_op(name: str) -> Op:
    """`agentkernel.tools.x.y:function`. Raises OpRefused for any other place."""
    module_name, _, function = name.partition(":")
    if not module_name.startswith("agentkernel.tools."):
        raise OpRefused(f"{name!r} is not below agentkernel.tools")
    return cast(Op, getattr(importlib.import_module(module_name), function))


def describe_error(error: BaseException, scratch: Path) -> dict[str, JSON]:
    """Type, message, traceback (paths shortened) and the candidate's last line in it."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.endswith(CANDIDATE_FILE):
            line = frame.lineno
    text = "".join(traceback.format_exception(error, limit=-12)).replace(f"{scratch}/", "")
    return {
        "error": type(error).__name__,
        "message": str(error)[:4000],
        "traceback": text[-12000:],
        "line": line,
    }


def execute(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Run `source`; its `result` (JSON-able) is the reply. `tensors` are bound by name first."""
    refs = cast("Mapping[str, object]", payload.get("tensors", {}))
    state.memory["tensors"] = {name: state.open(ref) for name, ref in refs.items()}
    module = state.execute(str(payload["source"]))
    run = getattr(module, "run", None)
    value = run(state.memory["tensors"]) if callable(run) else getattr(module, "result", None)
    return {"result": cast("JSON", value)}
