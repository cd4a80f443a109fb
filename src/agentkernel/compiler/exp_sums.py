"""Sums of exponentials along a row, and sums weighted by them, gathered in one sweep.

Where a tile raises the maximum m, the sums so far are rescaled (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018). Those of u * (x - m) first move by the step of m times
the sum of u, so that differences are always taken from a maximum and never cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentkernel.compiler.emit import BodyLines, Emitter
from agentkernel.compiler.expressions import SUM, TRITON_TYPES, Text, pointwise_text
from agentkernel.compiler.ir import ExpSums, Node, WeightedSum, compute_dtype
from agentkernel.compiler.monoid import (
    Accumulator,
    Part,
    fields_of,
    masked,
    row_max,
    row_sum,
)

LOWEST = '-float("inf")'


class Base(NamedTuple):
    """The text of one row of exponentials: its maximum, its sum (one a lane within a sweep), each
    element less the maximum and e to that; what sums so far are scaled by, and how far the maximum
    has moved."""

    top: str
    total: str
    apart: str = ""
    grown: str = ""
    scale: str = ""
    moved: str = ""


@dataclass(frozen=True)
class ExpSumsText:
    """The text of an `expsum` or `expsums` in one kernel."""

    emitter: Emitter
    node: Node

    @property
    def sums(self) -> ExpSums:
        """What it gathers."""
        found = self.node.attrs[1] if self.node.op == "expsums" else ExpSums(1, ())
        assert isinstance(found, ExpSums)
        return found

    @property
    def guarded(self) -> bool:
        """Whether it takes no infinite maximum out."""
        return "guarded" in self.node.attrs

    @property
    def kind(self) -> str:
        """The Triton type of every sum."""
        return TRITON_TYPES[compute_dtype(self.node.args[0].dtype)]

    @property
    def part_count(self) -> int:
        """How many numbers a sweep leaves behind."""
        return 2 * self.sums.bases + sum(1 + _has_own_weight(item) for item in self.sums.sums)

    # rows in registers

    def hold(self, body: BodyLines) -> None:
        """Write all of it for rows that lie in registers, and bind the results."""
        bases = [self._held(place, body) for place in range(self.sums.bases)]
        codes = [self._weighted(item, bases, body) for item in self.sums.sums]
        self._bind(bases, [row_sum(self.emitter, code) for code in codes], body)

    def _held(self, place: int, body: BodyLines) -> Base:
        emitter, source = self.emitter, self.node.args[place]
        value = self._value(place, body)
        code = row_max(emitter, masked(emitter, value.code, LOWEST))
        top = emitter.assign("row_max", code, body, tile=False).code
        shift = self._shift(top, body)
        apart = f"{value.within(SUM - 1)} - {shift}"
        if self._is_centred(place):
            apart = emitter.assign("apart", apart, body, tile=True).code
        grown = emitter.assign("numerator", exp_call(emitter, apart, source), body, tile=True)
        code = row_sum(emitter, masked(emitter, grown.code, "0.0"))
        total = emitter.assign("row_sum", code, body, tile=False).code
        if not self.guarded:
            emitter.numerators[(source, self._fields()[2 * place])] = grown
        return Base(top, total, apart, grown.code)

    def _shift(self, top: str, body: BodyLines) -> str:
        if not self.guarded:
            return top
        code = f"tl.where({is_infinite_text(top)}, 0.0, {top})"
        return self.emitter.assign("shift", code, body, tile=False).code

    # rows walked in tiles

    def step(self, body: BodyLines) -> Accumulator:
        """Write what a tile adds: one running maximum a row, and sums in every lane that are
        rescaled once a tile; what the loop carries."""
        emitter, unique = self.emitter, self.emitter.names.unique
        tops = [(unique("row_max"), unique("lane_sum")) for _ in range(self.sums.bases)]
        bases: list[Base] = []
        raised: list[str] = []
        for place, names in enumerate(tops):
            bases.append(self._stepped(place, names, raised, body))
        carried = [name for names in tops for name in names]
        for item in self.sums.sums:
            carried += self._step_sum(item, bases, body)
        for base, top in zip(bases, raised, strict=True):
            grown = masked(emitter, base.grown, "0.0")
            body.here += [
                f"{base.total} = {base.total} * {base.scale} + {grown}", f"{base.top} = {top}"
            ]  # fmt: skip
        shape = "[BLOCK_M, BLOCK_N]" if emitter.many_rows else "[BLOCK_N]"
        zero = f"tl.zeros({shape}, {self.kind})"
        maxima = {top for top, _ in tops}
        init = [f"{name} = {self._lowest() if name in maxima else zero}" for name in carried]
        return Accumulator(tuple(carried), tuple(init))

    def _stepped(
        self, place: int, names: tuple[str, str], raised: list[str], body: BodyLines
    ) -> Base:
        emitter, unique, source = self.emitter, self.emitter.names.unique, self.node.args[place]
        value = self._value(place, body)
        top, shift = unique("new_max"), unique("shift")
        raised.append(top)
        left_in = is_infinite_text(top) if self.guarded else f"{top} == {LOWEST}"
        seen = row_max(emitter, masked(emitter, value.code, LOWEST))
        body.here += [
            f"{top} = tl.maximum({names[0]}, {seen})",
            f"{shift} = tl.where({left_in}, 0.0, {top})",
        ]
        scale = exp_call(emitter, f"{names[0]} - {shift}", source)
        if self.guarded:
            scale = f"tl.where({left_in}, 1.0, {scale})"
        apart, moved = f"{value.within(SUM - 1)} - {shift}", ""
        if self._is_centred(place):
            apart = self._named("apart", apart, body)
            moved = self._named("moved", f"{finite(names[0])} - {shift}", body)
        grown = exp_call(emitter, apart, source)
        if any(item.base == place for item in self.sums.sums):
            grown, scale = self._named("grown", grown, body), self._named("scale", scale, body)
        return Base(*names, apart, grown, scale, moved)

    def _step_sum(self, item: WeightedSum, bases: Sequence[Base], body: BodyLines) -> list[str]:
        unique = self.emitter.names.unique
        held, names = unique("lane_weighted"), []
        own = "" if item.base is None else bases[item.base].total
        code = self._weighted(item, bases, body)
        if _has_own_weight(item):
            own = unique("lane_weight")
            names = [own]
        body.here.append(f"{held} = {_carried(item, held, own, bases)} + {code}")
        if names:
            weight = "1.0" if item.factor is None else self._value(item.factor, body).code
            body.here.append(f"{own} += {masked(self.emitter, weight, '0.0')}")
        return [held, *names]

    def _lowest(self) -> str:
        if self.emitter.many_rows:
            return f"tl.full([BLOCK_M, 1], {LOWEST}, {self.kind})"
        return LOWEST if self.kind == "tl.float32" else f"tl.full([], {LOWEST}, {self.kind})"

    def finish(self, names: Sequence[str], body: BodyLines) -> None:
        """Fold the lanes of a finished sweep, and bind the results."""
        bases, sums = self._read(names)
        totals = [row_sum(self.emitter, base.total) for base in bases]
        found = [
            Base(base.top, self.emitter.assign("row_sum", code, body, tile=False).code)
            for base, code in zip(bases, totals, strict=True)
        ]
        self._bind(found, [row_sum(self.emitter, held) for _, held, _ in sums], body)

    # chunks of a row

    def parts(self, names: Sequence[str]) -> list[Part]:
        """What a sweep over a chunk leaves behind."""
        bases, sums = self._read(names)
        found: list[Part] = []
        for base in bases:
            total = row_sum(self.emitter, base.total)
            found += [("max", base.top, self.kind), ("sum", total, self.kind)]
        for _, held, own in sums:
            found.append(("weighted", row_sum(self.emitter, held), self.kind))
            if own:
                found.append(("weight", row_sum(self.emitter, own), self.kind))
        return found

    def merge(self, parts: Sequence[str], body: BodyLines) -> None:
        """Fold what the chunks have left behind, and bind the results."""
        emitter = self.emitter
        chunks, sums = self._read(parts)
        bases: list[Base] = []
        found: list[Base] = []
        for place, chunk in enumerate(chunks):
            top = emitter.assign("row_max", row_max(emitter, chunk.top), body, tile=False).code
            shift = self._shift(top, body)
            scale = exp_call(emitter, f"{chunk.top} - {shift}", self.node.args[place])
            moved = f"({finite(chunk.top)} - {shift})" if self._is_centred(place) else ""
            code = row_sum(emitter, f"{chunk.total} * {scale}")
            total = emitter.assign("row_sum", code, body, tile=False).code
            bases.append(Base(chunk.top, chunk.total, scale=scale, moved=moved))
            found.append(Base(top, total))
        codes = [
            row_sum(emitter, _carried(item, held, own or _own(item, chunks), bases))
            for item, held, own in sums
        ]
        self._bind(found, codes, body)

    # what all of them share

    def _read(self, names: Sequence[str]) -> tuple[list[Base], list[tuple[WeightedSum, str, str]]]:
        """Maxima and sums, then each weighted sum with that of its weight where it has one."""
        left: Iterator[str] = iter(names)
        bases = [Base(next(left), next(left)) for _ in range(self.sums.bases)]
        sums = [
            (item, next(left), next(left) if _has_own_weight(item) else "")
            for item in self.sums.sums
        ]
        return bases, sums

    def _weighted(self, item: WeightedSum, bases: Sequence[Base], body: BodyLines) -> str:
        """What each element adds to a weighted sum."""
        terms = [(bases[place].apart, times) for place, times in item.centred]
        if item.value is not None:
            terms.append((self._value(item.value, body).within(SUM - 1), 1.0))
        code = combined(terms)
        if item.base is not None:
            code = f"{bases[item.base].grown} * {_grouped(code)}"
        elif item.factor is not None:
            code = f"{self._value(item.factor, body).within(SUM)} * {_grouped(code)}"
        return masked(self.emitter, code, "0.0")

    def _is_centred(self, place: int) -> bool:
        return any(place == at for item in self.sums.sums for at, _ in item.centred)

    def _value(self, place: int, body: BodyLines) -> Text:
        node = self.node.args[place]
        return self.emitter.full_tile(node, self.emitter.value(node, body))

    def _named(self, wanted: str, code: str, body: BodyLines) -> str:
        name = self.emitter.names.unique(wanted)
        body.here.append(f"{name} = {code}")
        return name

    def _fields(self) -> list[Node]:
        return fields_of(self.emitter, self.node, 2 * self.sums.bases + len(self.sums.sums))

    def _bind(self, bases: Sequence[Base], sums: Sequence[str], body: BodyLines) -> None:
        texts = [Text(name) for base in bases for name in (base.top, base.total)]
        texts += [self.emitter.assign("weighted", code, body, tile=False) for code in sums]
        self.emitter.row_values.update(zip(self._fields(), texts, strict=True))


def _has_own_weight(item: WeightedSum) -> bool:
    """Whether a sum moves by the sum of a weight that nothing else gathers."""
    return item.base is None and bool(item.centred)


def _own(item: WeightedSum, bases: Sequence[Base]) -> str:
    return "" if item.base is None else bases[item.base].total


def _carried(item: WeightedSum, held: str, own: str, bases: Sequence[Base]) -> str:
    """A sum so far, `held`, about the new maxima; `own` is that of its weight."""
    if item.centred:
        steps = combined([(bases[at].moved, times) for at, times in item.centred])
        held += f" + {own} * {_grouped(steps)}"
    return held if item.base is None else f"({held}) * {bases[item.base].scale}"


def _grouped(code: str) -> str:
    return code if code.isidentifier() else f"({code})"


def combined(terms: Sequence[tuple[str, float]]) -> str:
    """The sum of codes, each times a number."""
    text = ""
    for code, times in terms:
        size = code if abs(times) == 1.0 else f"{abs(times)!r} * {code}"
        sign = "-" if times < 0 else "+"
        text = f"{text} {sign} {size}" if text else ("-" if times < 0 else "") + size
    return text


def finite(top: str) -> str:
    """A maximum, 0 before there is one."""
    return f"tl.where({top} == {LOWEST}, 0.0, {top})"


def is_infinite_text(code: str) -> str:
    """True of plus and minus infinity."""
    return f'tl.abs({code}) == float("inf")'


def exp_call(emitter: Emitter, code: str, node: Node) -> str:
    """exp of `code`, as accurate as what is stored needs it."""
    kind = compute_dtype(node.dtype)
    return pointwise_text(
        "exp", [Text(code)], kind, kind, emitter.helpers, coarse=emitter.narrow
    ).code
