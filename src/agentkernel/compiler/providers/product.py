"""Products, gated pairs and joined products by the own GEMM: schedules, and place in forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from agentkernel.compiler.axes import Store, contiguous_strides
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output
from agentkernel.compiler.ir import Node
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.joined import (
    JoinedStep,
    emit_joined_step,
    joined_facts,
    joined_schedules,
)
from agentkernel.compiler.products.pairs import (
    PairStep,
    emit_pair_step,
    filling,
    pair_facts,
    pair_schedules,
)
from agentkernel.compiler.products.rotation import rotated_schedules
from agentkernel.compiler.products.row_parts import (
    RowPartsStep,
    emit_row_parts_step,
    row_parts_facts,
    row_parts_schedules,
)
from agentkernel.compiler.products.schedules import (
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
    sampled_gemm_schedules,
)
from agentkernel.compiler.products.step import (
    ProductStep,
    Scope,
    emit_product_step,
    gemm_facts,
    scope_of,
)
from agentkernel.compiler.providers.protocol import (
    LAUNCH_US,
    AnySchedule,
    Setting,
    flop_per_us,
    moved_us,
    product_us,
)


class Product:
    """Provider of matrix products with a fused epilogue."""

    own = True

    def schedules(self, step: ProductStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles that fit the target's shared memory."""
        facts = gemm_facts(step, setting.symbols, setting.precision)
        found = _schedules(facts, setting)
        return rotated_schedules(found, [step.rotation], facts.dtype, setting.target)

    def write(
        self, step: ProductStep, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Allocate the result and launch the product."""
        _write(step, schedule, forward, outputs, emit_product_step)

    def work_us(self, step: ProductStep, symbols: Symbols) -> float:
        """Its multiplications, or what goes in and out."""
        work = step.share(symbols) * product_us(step.node, symbols)
        return LAUNCH_US + max(moved_us((*step.reads, step.result), symbols), work)

    def pattern(self, step: ProductStep) -> str:
        """With or without an epilogue."""
        return "gemm_epilogue" if step.epilogue else "gemm"


class Pair:
    """Provider of products of one matrix that meet element by element."""

    own = True

    def schedules(self, step: PairStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles that fit the target's shared memory."""
        facts = pair_facts(step, setting.symbols, setting.precision)
        found = pair_schedules(_schedules(facts, setting), len(step.parts))
        return filling(found, facts, len(step.parts), int(setting.target.sm_count.value))

    def write(
        self, step: PairStep, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Allocate the results and launch the kernel."""
        for store in step.stores[1:]:
            forward.allocate(store, forward.result_name(store.node, outputs))
        _write(step, schedule, forward, outputs, emit_pair_step)

    def work_us(self, step: PairStep, symbols: Symbols) -> float:
        """Its multiplications."""
        rate = flop_per_us(step.products[0].node.dtype)
        return LAUNCH_US + 2 * symbols.hint(step.multiplied) / rate

    def pattern(self, step: PairStep) -> str:
        """Always the same."""
        return "gemm_pair"


class RowParts:
    """Provider of products of which only sums along their rows are wanted."""

    own = True

    def schedules(self, step: RowPartsStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles of one or two parts' columns."""
        facts = row_parts_facts(step, setting.symbols, setting.precision)
        return row_parts_schedules(_schedules(facts, setting))

    def write(
        self, step: RowPartsStep, schedule: AnySchedule, forward: Forward,
        outputs: Sequence[Output],
    ) -> None:  # fmt: skip
        """Allocate the parts and launch the product."""
        assert isinstance(schedule, dict)
        wanted = {_contiguous(part): f"{part.name}s" for part in step.parts}
        write_several(step, wanted, schedule, forward, emit_row_parts_step)

    def work_us(self, step: RowPartsStep, symbols: Symbols) -> float:
        """Its multiplications."""
        rate = flop_per_us(step.gathered.product.dtype)
        return LAUNCH_US + symbols.hint(step.multiplied) / rate

    def pattern(self, step: RowPartsStep) -> str:
        """Always the same."""
        return "gemm_row_parts"


class Joined:
    """Provider of products of one matrix in one launch."""

    own = True

    def schedules(self, step: JoinedStep, setting: Setting) -> Sequence[AnySchedule]:
        """Tiles through pointers."""
        facts = joined_facts(step, setting.symbols, setting.precision)
        found = joined_schedules(_schedules(facts, setting))
        rotations = [item.rotation for item in step.products]
        return rotated_schedules(found, rotations, facts.dtype, setting.target)

    def write(
        self, step: JoinedStep, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Allocate the results and launch all products."""
        assert isinstance(schedule, dict)
        wanted = {store: store.node.name for store in step.stores}
        write_several(step, wanted, schedule, forward, emit_joined_step)

    def work_us(self, step: JoinedStep, symbols: Symbols) -> float:
        """Its multiplications."""
        return LAUNCH_US + sum(product_us(item.node, symbols) for item in step.products)

    def pattern(self, step: JoinedStep) -> str:
        """Always the same."""
        return "gemm_joined"


class Stores(Protocol):
    """A step that stores several values."""

    @property
    def node(self) -> Node:
        """What its kernel is called after."""


Several = TypeVar("Several", bound=Stores)


def write_several(
    step: Several, wanted: Mapping[Store, str], schedule: GemmSchedule, forward: Forward,
    emit: Callable[[Several, GemmSchedule, str, Sequence[str], Scope], KernelCode],
) -> None:  # fmt: skip
    """Allocate the results, called as `wanted` or like it, and launch the kernel that makes all."""
    names = [forward.allocate(store, name) for store, name in wanted.items()]
    kernel = forward.names.unique(f"{step.node.name}_kernel")
    forward.place(emit(step, schedule, kernel, names, scope_of(forward)))
    forward.schedule[kernel] = dict(schedule)


def _contiguous(node: Node) -> Store:
    return Store(node, contiguous_strides(node.shape))


Multiplied = TypeVar("Multiplied", ProductStep, PairStep)


def _write(
    step: Multiplied,
    schedule: AnySchedule,
    forward: Forward,
    outputs: Sequence[Output],
    emit: Callable[[Multiplied, GemmSchedule, str, str, Scope], KernelCode],
) -> None:
    assert isinstance(schedule, dict)
    store = step.store if isinstance(step, ProductStep) else step.stores[0]
    forward.write_kernel(
        store, schedule, outputs,
        lambda kernel, name: emit(step, schedule, kernel, name, scope_of(forward)),
    )  # fmt: skip


def _schedules(facts: GemmFacts, setting: Setting) -> list[GemmSchedule]:
    guesses = gemm_schedules(facts, setting.target, setting.decision)
    more = sampled_gemm_schedules(facts, setting.target, setting.sampled)
    return guesses + [item for item in more if item not in guesses]
