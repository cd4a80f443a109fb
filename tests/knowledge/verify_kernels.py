"""Is every kernel example right? Runs each against its module; prints one JSON object.

A script of its own, because TRITON_INTERPRET must be set before triton is imported.
Usage: `verify_kernels.py cpu|cuda [NAME ...]`.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
import traceback
from pathlib import Path

import torch

FOLDER = Path(__file__).parents[2] / "src" / "agentkernel" / "knowledge" / "kernels"
FLOOR_ULPS = {torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}


def verify(path: Path, device: str) -> str:
    """ "" where ModelNew is right, else what is wrong."""
    example = importlib.import_module(f"agentkernel.knowledge.kernels.{path.stem}")
    torch.manual_seed(7)
    model = example.Model(*getattr(example, "get_init_inputs", list)())
    fast = example.ModelNew(*getattr(example, "get_init_inputs", list)())
    fast.load_state_dict(model.state_dict())
    inputs = [item.to(device) for item in example.get_inputs()]
    model, fast = model.to(device), fast.to(device)
    before = [item.clone() for item in inputs]
    elsewhere = copy.deepcopy(model).to("meta")(*[item.to("meta") for item in inputs])
    layouts = [item.stride() for item in _tuple(elsewhere)]
    with torch.no_grad():
        eager = _tuple(model(*inputs))
        found = _tuple(fast(*inputs))
        oracle = _tuple(model.double()(*[_widen(item) for item in inputs]))
    if not all(torch.equal(old, new) for old, new in zip(before, inputs, strict=True)):
        return "inputs changed"
    sides = zip(eager, found, oracle, layouts, strict=True)
    notes = [_compare(*side) for side in sides]
    return "; ".join(note for note in notes if note)


def _compare(
    eager: torch.Tensor, found: torch.Tensor, oracle: torch.Tensor, layout: tuple[int, ...]
) -> str:
    """The layout is eager's or that of the meta device: attention's depends on the kernel that
    torch picks."""
    if (found.dtype, found.shape) != (eager.dtype, eager.shape):
        return f"{found.dtype} {tuple(found.shape)} in place of {eager.dtype} {tuple(eager.shape)}"
    if found.stride() not in (eager.stride(), layout):
        return f"strides {found.stride()} in place of {eager.stride()} or {layout}"
    if not eager.dtype.is_floating_point:
        return "" if torch.equal(eager, found) else f"{int((eager != found).sum())} values differ"
    scale = oracle.abs().max().clamp_min(1e-30)
    error = float((found.double() - oracle).abs().max() / scale)
    eager_error = float((eager.double() - oracle).abs().max() / scale)
    ulp = torch.finfo(eager.dtype).eps
    allowed = 2 * eager_error + FLOOR_ULPS[eager.dtype] * ulp
    return "" if error <= allowed else f"error {error:.2e}, allowed {allowed:.2e}"


def _widen(item: torch.Tensor) -> torch.Tensor:
    return item.double() if item.dtype.is_floating_point else item


def _tuple(value: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def main() -> None:
    device, *names = sys.argv[1:]
    paths = [path for path in sorted(FOLDER.glob("*.py")) if path.stem != "__init__"]
    report = {}
    for path in paths:
        if names and path.stem not in names:
            continue
        try:
            report[path.stem] = verify(path, device)
        except Exception:  # noqa: BLE001 - reported, and the test fails on it
            report[path.stem] = traceback.format_exc()[-1500:]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
