"""Scans along the columns of a kernel, what came before a tile carried on to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentkernel.compiler.emit import BodyLines, Emitter
from agentkernel.compiler.expressions import Text
from agentkernel.compiler.ir import Node
from agentkernel.compiler.monoid import MonoidText


@dataclass(frozen=True)
class ScanText(MonoidText):
    """One scan in the making."""

    @property
    def backwards(self) -> bool:
        """Whether it begins at the last column."""
        return self.node.attrs[1] is True

    def lifted(self, body: BodyLines) -> list[str]:
        """Write the elements of a tile as lanes; their names. Past the end of a row nothing counts:
        a scan that comes from there has neutral elements in these columns."""
        emitter, source = self.emitter, self.node.args[0]
        value = emitter.full_tile(source, emitter.value(source, body)).code
        shape = "[BLOCK_M, BLOCK_N]" if emitter.many_rows else "[BLOCK_N]"
        mask = emitter.col_mask if self.backwards else None
        kinds, ends = self.kinds, self.neutrals
        names: list[str] = []
        for lane, kind, end in zip(self.monoid.lanes, kinds, ends, strict=True):
            code = {
                "x": value,
                "place": f"{emitter.columns}.to({kind})",
                "one": f"tl.full({shape}, 1.0, {kind})",
            }[lane.lift]
            if lane.lift == "place" and emitter.many_rows:
                code = f"{code} + tl.zeros({shape}, {kind})"
            if mask is not None and lane.lift != "place":
                code = f"tl.where({mask}, {code}, {end})"
            if code.isidentifier():
                names.append(code)
            else:
                wanted = {"x": "term", "place": "place", "one": "ones"}[lane.lift]
                names.append(emitter.names.unique(wanted))
                body.here.append(f"{names[-1]} = {code}")
        return names

    def along(self, lanes: list[str]) -> str:
        """The scan of a tile by itself."""
        emitter, tail = self.emitter, ", reverse=True" if self.backwards else ""
        if self.monoid.scan:
            return f"{self.monoid.scan}({lanes[0]}, {emitter.reduce_axis}{tail})"
        given = lanes[0] if len(lanes) == 1 else f"({', '.join(lanes)})"
        combine = self.monoid.combine
        return self._noted(f"tl.associative_scan({given}, {emitter.reduce_axis}, {combine}{tail})")

    def total(self, lanes: list[str]) -> str:
        """All elements of a tile together, one a row, as one expression of all lanes."""
        if len(lanes) == 1:
            return self.folded(lanes)[0]
        keep = ", keep_dims=True" if self.emitter.many_rows else ""
        given = ", ".join(lanes)
        axis, combine = self.emitter.reduce_axis, self.monoid.combine
        return self._noted(f"tl.reduce(({given}), {axis}, {combine}{keep})")

    def stored(self, carry: list[str]) -> list[tuple[str, str, str]]:
        """What a chunk leaves behind: label, name and Triton type of each lane."""
        labels = self.labels(f"{self.node.name}_{self.monoid.lanes[0].name}")
        return list(zip(labels, carry, self.kinds, strict=True))

    def resume(self, parts: list[str], lines: list[str]) -> list[str]:
        """Write the merge of the chunks before the program's; the carry that its tiles go on
        from."""
        carry = self.carry()[0]
        lines.append(f"{', '.join(carry)} = {self.total(parts)}")
        return carry

    def carry(self) -> tuple[list[str], list[str]]:
        """Names of what came before the tile at hand, and the lines that begin with nothing."""
        shape = "[BLOCK_M, 1]" if self.emitter.many_rows else "[]"
        names = [self.emitter.names.unique(f"{lane.name}_before") for lane in self.monoid.lanes]
        lines = [
            f"{name} = tl.full({shape}, {neutral}, {kind})"
            for name, neutral, kind in zip(names, self.neutrals, self.kinds, strict=True)
        ]
        return names, lines

    def advance(self, lanes: list[str], carry: list[str], body: BodyLines) -> None:
        """Take the elements of the tile at hand into the carry."""
        if self.monoid.sign:
            body.here.append(f"{carry[0]} {self.monoid.sign}= {self.total(lanes)}")
            return
        tile = [self.emitter.names.unique(f"tile_{lane.name}") for lane in self.monoid.lanes]
        body.here += [
            f"{', '.join(tile)} = {self.total(lanes)}",
            f"{', '.join(carry)} = {self.joined(carry, tile)}",
        ]

    def _end(self, found: list[str], body: BodyLines) -> list[str]:
        """Write what the scan of the tile at hand ends with: cheaper than its elements combined
        once more where that takes many operations."""
        emitter, unique = self.emitter, self.emitter.names.unique
        emitter.helpers.add("selected")
        last = unique("last")
        place = "0" if self.backwards else "BLOCK_N - 1"
        lane = f"tl.arange(0, BLOCK_N){'[None, :]' if emitter.many_rows else ''}"
        body.here.append(f"{last} = {lane} == {place}")
        tile = [unique(f"tile_{item.name}") for item in self.monoid.lanes]
        for name, value in zip(tile, found, strict=True):
            call = f"selected({value}, {last}, {emitter.reduce_axis}, {emitter.many_rows})"
            body.here.append(f"{name} = {call}")
        return tile

    def write(self, body: BodyLines, carry: list[str] | None) -> None:
        """Write the scan of a tile, onto `carry` where there is one, and bind its values."""
        emitter, node = self.emitter, self.node
        lanes = self.lifted(body)
        found = [
            emitter.names.unique(node.name if len(lanes) == 1 else f"running_{lane.name}")
            for lane in self.monoid.lanes
        ]
        code, several = self.along(lanes), len(lanes) > 1
        if carry is not None and not several:
            code = self.joined(carry, [code])
        body.here.append(f"{', '.join(found)} = {code}")
        if carry is not None and several:
            tile = self._end(found, body)
            body.here += [
                f"{', '.join(found)} = {self.joined(carry, found)}",
                f"{', '.join(carry)} = {self.joined(carry, tile)}",
            ]
        elif carry is not None:
            self.advance(lanes, carry, body)
        self._bind(found, body)

    def _bind(self, found: list[str], body: BodyLines) -> None:
        emitter, node = self.emitter, self.node
        texts = self.results(found)
        if len(texts) == 1:
            plain = texts[0].isidentifier()
            emitter.tile_values[node] = (
                Text(texts[0]) if plain else emitter.assign(node.name, texts[0], body, tile=True)
            )
            return
        for part in emitter.region.layout.dims:
            if part.kind == "field" and part.args[0] is node:
                index = part.attrs[0]
                assert isinstance(index, int)
                emitter.tile_values[part] = Text(texts[index])


def scans_below(emitter: Emitter, targets: Iterable[Node]) -> list[Node]:
    """The scans of this kernel that `targets` are computed from, producers first."""
    seen: set[Node] = set()
    waiting = list(targets)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += node.args if node in emitter.region.layout.dims else ()
    return [node for node in emitter.region.scans if node in seen]


def carried_scans(emitter: Emitter, targets: Iterable[Node], body: BodyLines) -> list[str]:
    """Write into a loop over tiles the scans that `targets` need; the lines before the loop."""
    lines: list[str] = []
    for node in scans_below(emitter, targets):
        text = ScanText(emitter, node)
        carry, begin = text.carry()
        lines += begin
        text.write(body, carry)
    return lines
