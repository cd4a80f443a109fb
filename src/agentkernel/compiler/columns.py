"""Which columns does a tile cover, and which of them are in range?"""

from __future__ import annotations

from agentkernel.compiler.emit import Emitter


def column_lines(emitter: Emitter, start: str, width: str = "BLOCK_N") -> list[str]:
    """Column indices of a tile, their mask, and the index of each axis."""
    tail = "[None, :]" if emitter.many_rows else ""
    first = "" if start == "0" else f"{start} + "
    name = emitter.columns
    lines = [f"{name} = {first}tl.arange(0, {width}){tail}"]
    if emitter.col_mask is not None:
        lines.append(f"{emitter.col_mask} = {_mask_text(emitter, width)}")
    return lines + emitter.split_index(emitter.region.cols, name)


def _mask_text(emitter: Emitter, width: str) -> str:
    """Columns in range. Where the length is a free constant, the test folds away if tiles fit."""
    count = emitter.region.col_count
    name = emitter.sizes.text(count)
    within = f"{emitter.columns} < {name}"
    if count.is_number or not emitter.region.reduces:
        return within
    unit = f"(CHUNKS * {width})" if emitter.schedule.form == "split" else width
    return f"({within}) | ({name} % {unit} == 0)"
