"""Tables and CSV files of models and regions, and the details of each kernel."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import one_line
from agentkernel.domain.formatting import (
    DASH,
    count,
    error_text,
    interval,
    percent,
    ratio_text,
    span,
    times,
    us,
    when,
)
from agentkernel.domain.nightly import (
    Comparison,
    Form,
    ModelRow,
    NightlyRun,
    RegionRow,
    RegionStatus,
)
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Kernel
from agentkernel.domain.verdict import Verdict
from agentkernel.nightly.page.elements import (
    Cell,
    Column,
    Details,
    Row,
    Table,
    Tone,
    source_lines,
)
from agentkernel.nightly.page.figures import (
    BASELINES,
    SHORT,
    ModelCost,
    caption,
    dropped_text,
    dtypes_of,
    form_time_us,
    is_faster,
    is_replaced,
    kernel_ratio,
    merged_regions,
    model_costs,
    nearest,
    region_interval,
    speedup,
    unhelpful,
    withdrawn_text,
)

STATUS_TONES: dict[RegionStatus, Tone] = {
    "new": "good",
    "reused": "good",
    "retuned": "good",
    "kept": "quiet",
    "failed": "bad",
    "withdrawn": "bad",
    "unreached": "quiet",
}
SHOWN_OPS = 8
"""Operations of a region that its row names; the CSV file has all."""
MOST_ROWS = 400
"""A page with more rows than this is slow on a phone; the CSV files have all."""
WITH_REGIONS = {"regions", "regions+torch.compile"}
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What begins a formula in a spreadsheet."""


MODEL_TABLE = (
    Column("model", "model"),
    Column("form", "runs as"),
    Column("speedup", "over the faster baseline", number=True),
    Column("eager", "over eager", number=True),
    Column("compile", "over torch.compile", number=True),
    Column("time", "time of a forward", number=True),
    Column("cost", "cost of 1% gained", number=True),
    Column("estimated-speedup", "over eager", number=True, estimated=True),
    Column("estimated-time", "time", number=True, estimated=True),
    Column("estimated-cost", "cost of 1% gained", number=True, estimated=True),
    Column("before", "beside last night", number=True),
    Column("estimated-before", "beside last night", number=True, estimated=True),
    Column("regions", "regions in", number=True),
    Column("outputs", "outputs"),
)
REGION_TABLE = (
    Column("number", "#", number=True),
    Column("region", "region"),
    Column("status", "status"),
    Column("share", "share of time", number=True),
    Column("headroom", "headroom", number=True),
    Column("eager", "eager", number=True),
    Column("time", "kernel", number=True),
    Column("speedup", "over the faster baseline", number=True),
    Column("estimated-share", "share of time", number=True, estimated=True),
    Column("estimated-headroom", "headroom", number=True, estimated=True),
    Column("estimated-eager", "eager", number=True, estimated=True),
    Column("estimated-time", "kernel", number=True, estimated=True),
    Column("bound", "roofline bound", number=True, estimated=True),
    Column("uses", "uses", number=True),
    Column("kernel", "lineage"),
    Column("spent", "spent", number=True),
)


def model_table(night: NightlyRun, comparison: Comparison) -> Table:
    """End to end, one row a model. Measured figures and estimates have columns of their own."""
    moved = {
        item.what: item.ratio
        for item in comparison.changes
        if item.kind in ("regression", "gain") and item.ratio is not None
    }
    shapes, costs = _model_dtypes(night), model_costs(night)
    rows = night.models[:MOST_ROWS]
    return Table(
        id="models",
        title="End to end",
        caption=_captions(night, {row.basis for row in rows}),
        noun="model",
        columns=MODEL_TABLE,
        rows=tuple(
            _model(row, shapes.get(row.name, ""), costs.get(row.name), moved.get(row.name))
            for row in rows
        ),
        note=_left_out(len(night.models), "model", "models.csv"),
    ).without_empty()


def region_order(night: NightlyRun) -> list[RegionRow]:
    """What takes the most time first."""
    return sorted(night.regions, key=lambda row: (-row.share, row.signature))


def region_table(night: NightlyRun, chains: Mapping[str, Sequence[str]]) -> Table:
    """One row a region; `chains`: signature -> the hashes of its kernels, oldest first."""
    rows = region_order(night)[:MOST_ROWS]
    left_out = _left_out(len(night.regions), "region", "regions.csv")
    return Table(
        id="regions",
        title="Regions",
        caption=_captions(night, {row.basis for row in rows}),
        noun="region",
        columns=REGION_TABLE,
        rows=tuple(
            Row(f"region-{row.signature}", _region(number, row, chains.get(row.signature, ())))
            for number, row in enumerate(rows, 1)
        ),
        note=f"{merged_regions(night).words} {left_out}".strip(),
    ).without_empty()


MODEL_COLUMNS = (
    "model dtype weight basis form time_us eager_us compile_us speedup speedup_low speedup_high "
    "vs_eager vs_compile estimated_us estimated_eager_us estimated_speedup jobs_s gained "
    "cost_of_percent_s estimated_cost_of_percent_s verified worst_error eager_error swapped "
    "dropped left_out time_in_regions error"
)
REGION_COLUMNS = (
    "signature region ops shapes uses models basis status share headroom eager_us time_us speedup "
    "speedup_low estimated_eager_us estimated_time_us estimated_bound_us sha256 parent run spent_s "
    "reason"
)


def models_csv(night: NightlyRun) -> str:
    """All models, with the machine and the versions in each row."""
    rows, costs = [], model_costs(night)
    for row in night.models:
        found, cost = nearest(row), costs.get(row.name)
        timed = {form: timing.median_us for form, timing in row.timings.items()}
        values = {
            "model": row.name,
            f"{'' if row.basis == 'measured' else 'estimated_'}cost_of_percent_s": (
                cost.percent_s if cost else None
            ),
            "time_us": form_time_us(row) if row.basis == "measured" else None,
            "eager_us": timed.get("eager"),
            "compile_us": timed.get("torch.compile"),
            "vs_eager": row.vs_eager.value if row.vs_eager else None,
            "vs_compile": row.vs_compile.value if row.vs_compile else None,
            "dropped": " ".join(unhelpful(row)),
            "left_out": "; ".join(f"{name}: {why}" for name, why in row.left_out.items()),
        }
        if found is not None:
            values |= {"speedup": found.value, "speedup_low": found.low, "speedup_high": found.high}
        rows.append({**dict(row), **(dict(cost) if cost else {}), **values})
    return _csv(MODEL_COLUMNS, rows, night)


def regions_csv(night: NightlyRun) -> str:
    """All regions, with the machine and the versions in each row."""
    rows = []
    for row in region_order(night):
        times = {"eager_us": row.eager_us, "time_us": row.time_us}
        if row.basis == "estimated":
            times = {f"estimated_{name}": value for name, value in times.items()}
            times |= dict.fromkeys(("eager_us", "time_us"))
        values = {
            "region": row.name,
            "ops": " ".join(row.ops),
            "uses": len(row.uses),
            "models": " ".join(sorted({use.model for use in row.uses})),
            "estimated_bound_us": row.bound_us,
        }
        rows.append({**dict(row), **values, **times})
    return _csv(REGION_COLUMNS, rows, night)


def _csv(columns: str, rows: Sequence[Mapping[str, object]], night: NightlyRun) -> str:
    """RFC 4180 without the carriage returns; no text is a formula. The machine and its versions
    stand in each row."""
    if not rows:
        return ""
    names = ("driver", "torch", "triton", "agentkernel")
    machine = {"gpu": night.gpu, "target": night.target}
    machine |= {name: getattr(night.versions, name) for name in names}
    file = io.StringIO()
    writer = csv.DictWriter(file, [*columns.split(), *machine], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {name: row.get(name) for name in columns.split()}
        writer.writerow({name: _inert(value) for name, value in {**cells, **machine}.items()})
    return file.getvalue()


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _captions(night: NightlyRun, bases: set[str]) -> str:
    found = [caption(night, "measured")] if "measured" in bases else []
    return ". ".join([*found, caption(night, "estimated")] if "estimated" in bases else found)


def _left_out(total: int, noun: str, file: str) -> str:
    more = total - MOST_ROWS
    return f"{count(more, f'more {noun}')} in {file}." if more > 0 else ""


def _model_dtypes(night: NightlyRun) -> dict[str, str]:
    """What a model runs in: its own cast, else the dtypes of its regions."""
    shapes: dict[str, list[str]] = {}
    for row in night.regions:
        for use in row.uses:
            shapes.setdefault(use.model, []).append(row.shapes)
    return {
        row.name: row.dtype or ", ".join(dtypes_of(shapes.get(row.name, ())))
        for row in night.models
    }


def _model(row: ModelRow, dtype: str, cost: ModelCost | None, moved: Ratio | None) -> Row:
    weight = f"weight {row.weight:g}" if row.weight != 1 else ""
    about = ", ".join(item for item in (dtype, row.shapes, weight) if item)
    name = Cell(row.name, row.name, about)
    cells: tuple[Cell | None, ...]
    price, beside = _cost(cost), _moved(moved)
    if row.basis == "measured":
        eager = _ratio(row, row.vs_eager, "eager")
        compiled = _ratio(row, row.vs_compile, "torch.compile")
        cells = (_speedup(row), eager, compiled, _time(row), price, *[None] * 3, beside, None)
    else:
        cells = (*[None] * 5, _guess(row), _guessed_time(row), _about(price), None, beside)
    return Row(f"model-{row.name}", (name, _form(row), *cells, _regions(row), _outputs(row)))


def _form(row: ModelRow) -> Cell:
    if row.error is not None:
        return Cell("failed", "failed", one_line(row.error), "bad")
    tone: Tone = "quiet" if row.form in BASELINES else "good"
    return Cell(row.form, row.form, _note(row), tone)


def _speedup(row: ModelRow) -> Cell | None:
    value = speedup(row)
    if value is None:
        return None
    tone: Tone = "good" if is_faster(row) else "quiet"
    return Cell(times(value), value, interval(nearest(row)), tone)


def _ratio(row: ModelRow, ratio: Ratio | None, baseline: Form) -> Cell | None:
    """The ratio, its interval and the baseline's own time below it."""
    timing = row.timings.get(baseline)
    if row.error is not None or (ratio is None and timing is None):
        return None
    took = us(timing.median_us) if timing is not None else ""
    if ratio is None:
        return Cell("1.00×", 1.0, took) if row.form == baseline else Cell(DASH, None, took)
    return Cell(times(ratio.value), ratio.value, "\n".join(filter(None, (interval(ratio), took))))


def _time(row: ModelRow) -> Cell | None:
    if not row.timings or row.error is not None:
        return None
    value = form_time_us(row)
    return Cell(us(value), value)


def _cost(cost: ModelCost | None) -> Cell | None:
    """Seconds of jobs for a percent, and all of those seconds below."""
    if cost is None:
        return None
    more = f"{span(cost.jobs_s)} of jobs" if cost.jobs_s else ""
    return Cell(cost.text, cost.percent_s, more, "" if cost.gained else "quiet")


def _guess(row: ModelRow) -> Cell | None:
    value = row.estimated_speedup
    return None if value is None else Cell(f"≈ {times(value)}", value)


def _guessed_time(row: ModelRow) -> Cell | None:
    if row.estimated_us is None:
        return None
    others = {"eager": row.estimated_eager_us, **row.estimated_forms_us}
    more = [f"{form} ≈ {us(value)}" for form, value in others.items() if form != row.form and value]
    return Cell(f"≈ {us(row.estimated_us)}", row.estimated_us, "\n".join(more))


def _moved(ratio: Ratio | None) -> Cell | None:
    if ratio is None:
        return None
    tone: Tone = "good" if ratio.value > 1 else "bad"
    return Cell(times(ratio.value), ratio.value, interval(ratio), tone)


def _regions(row: ModelRow) -> Cell | None:
    if row.error is not None:
        return None
    share = row.time_in_regions
    more = f"{percent(share)} of eager's time" if row.swapped and share else ""
    return Cell(str(row.swapped), row.swapped, more)


def _outputs(row: ModelRow) -> Cell | None:
    if row.verified is None or row.error is not None:
        return None
    more = ""
    if row.worst_error is not None:
        more = f"error {error_text(row.worst_error)}, eager {error_text(row.eager_error)}"
    return Cell(
        "verified" if row.verified else "wrong",
        float(row.verified),
        more,
        "good" if row.verified else "bad",
    )


def _note(row: ModelRow) -> str:
    """Whether the whole is one region and why, why a form has no time, what was taken out again."""
    forms: dict[str, list[str]] = {}
    for form, why in row.failed.items():
        if not row.why.endswith(why):
            forms.setdefault(one_line(why, 120), []).append(form)
    parts = [
        why if set(names) == WITH_REGIONS else f"no time for {' and '.join(names)}: {why}"
        for why, names in forms.items()
    ]
    return "; ".join(filter(None, [one_line(row.why), *parts, *dropped_text(row)]))


def _region(number: int, row: RegionRow, chain: Sequence[str]) -> tuple[Cell | None, ...]:
    measured = row.basis == "measured"
    share = Cell(percent(row.share), row.share)
    headroom = Cell(percent(row.headroom), row.headroom)
    eager = Cell(us(row.eager_us), row.eager_us)
    kernel = Cell(us(row.time_us), row.time_us) if row.time_us is not None else None
    faster = None
    if row.speedup is not None:
        faster = Cell(times(row.speedup), row.speedup, region_interval(row))
    models = sorted({f"{use.model}{'' if use.path else ' (whole)'}" for use in row.uses})
    calls = sum(use.calls for use in row.uses)
    return (
        Cell(str(number), number),
        Cell(row.name, row.name, f"{_ops(row)} · {row.shapes}"),
        Cell(row.status, row.status, _why(row), STATUS_TONES[row.status]),
        *((share, headroom, eager, kernel, faster) if measured else (None,) * 5),
        *(
            (None,) * 4
            if measured
            else tuple(_about(item) for item in (share, headroom, eager, kernel))
        ),
        Cell(f"≈ {us(row.bound_us)}", row.bound_us),
        Cell(str(calls), calls, ", ".join(models[:4]) + (" …" if len(models) > 4 else "")),
        _lineage(row, chain),
        Cell(f"{row.spent_s:,.0f} s", row.spent_s) if row.spent_s else None,
    )


def _ops(row: RegionRow) -> str:
    names = [name.removeprefix("aten.") for name in row.ops]
    more = len(names) - SHOWN_OPS
    return " ".join(names[:SHOWN_OPS]) + (f" and {more} more" if more > 0 else "")


def _why(row: RegionRow) -> str:
    """The reason of a status, but for a kernel whose figures stand beside it."""
    if row.status == "withdrawn":
        return withdrawn_text(row)
    return "" if row.sha256 is not None and row.speedup is not None else one_line(row.reason)


def _about(cell: Cell | None) -> Cell | None:
    """The cell as an estimate; what is no figure stays as it is."""
    if cell is None or cell.sort is None:
        return cell
    return cell._replace(text=f"≈ {cell.text}")


def _lineage(row: RegionRow, chain: Sequence[str]) -> Cell | None:
    if row.sha256 is None:
        run = f"run {row.run}" if row.run else ""
        return Cell(f"was {row.parent[:SHORT]}" if row.parent else DASH, more=run)
    before = [item[:SHORT] for item in chain if item != row.sha256] or (
        [row.parent[:SHORT]] if row.parent else []
    )
    more = f"from {' ← '.join(reversed(before))}" if before else ""
    if is_replaced(row):
        same = row.sha256 == row.parent
        more = "drafted again" if same else f"in place of {(row.parent or '')[:SHORT]}".rstrip()
    here = row.sha256[:SHORT]
    return Cell(here, row.sha256, more, href=f"#kernel-{here}")


MOST_KERNELS = 100
"""The page holds the source and certificate of so many, those of the largest regions."""


def shown_kernels(
    night: NightlyRun, kernels: Mapping[str, Kernel]
) -> list[tuple[RegionRow, Kernel]]:
    """The regions whose kernel is known, the largest first, each kernel once."""
    found: dict[str, tuple[RegionRow, Kernel]] = {}
    for row in region_order(night):
        kernel = kernels.get(row.sha256 or row.parent or "")
        if kernel is not None:
            found.setdefault(kernel.sha256, (row, kernel))
    return list(found.values())[:MOST_KERNELS]


def kernel_details(
    night: NightlyRun, kernels: Mapping[str, Kernel], chains: Mapping[str, Sequence[str]]
) -> tuple[Details, ...]:
    """Facts, source or diff to the parent, and certificate of each kernel."""
    return tuple(
        _kernel(row, kernel, kernels, chains.get(row.signature, ()))
        for row, kernel in shown_kernels(night, kernels)
    )


def certificate_facts(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """The fields that a reader asks for first."""
    versions = certificate.versions
    yield "result", f"{certificate.status.replace('_', ' ')}: {certificate.reason}"
    yield "run", f"{certificate.run}, {when(certificate.created)}"
    yield "times are", certificate.basis
    profile = certificate.profile
    if profile is not None and profile.measurements:
        gpu = profile.measurements[0].gpu
        yield "measured on", f"{gpu.name}, driver {gpu.driver}"
    yield "target", certificate.target
    yield "made with", f"torch {versions.torch}, triton {versions.triton}"
    if certificate.problem.shape_sets:
        yield "shapes", certificate.problem.shape_sets[0].label
    if certificate.verdict is not None:
        yield "verdict", verdict_words(certificate.verdict)
    signature = certificate.signature
    signer = f"ed25519, key {signature.fingerprint[:16]}" if signature else "not signed"
    if not signature and certificate.unsigned:
        signer += f": {certificate.unsigned}"
    yield "signature", signer
    yield "problem", certificate.problem_sha256
    yield "judge", certificate.judge_sha256


def verdict_words(verdict: Verdict) -> str:
    """The gate, how many cases, the errors, the rules."""
    gate = "accepted" if verdict.accepted else f"stopped at {verdict.gate}"
    gate = verdict.undecided or gate
    how = " in Triton's interpreter" if verdict.interpreted else f" on {verdict.device}"
    errors = ""
    if verdict.cases:
        errors = (
            f"; error {error_text(verdict.worst_error)}, "
            f"eager's own {error_text(verdict.worst_eager_error)}"
        )
    rules = f"; precision {verdict.precision}, policy {verdict.policy}"
    return f"{gate}{how}, {count(len(verdict.cases), 'case')}{errors}{rules}"


def _kernel(
    row: RegionRow, kernel: Kernel, kernels: Mapping[str, Kernel], chain: Sequence[str]
) -> Details:
    before = [item for item in chain if item != kernel.sha256]
    parent = kernels.get(row.parent or (before[-1] if before else ""))
    if parent is not None and parent.sha256 == kernel.sha256:
        parent = None
    replaced = is_replaced(row)
    other = "the withdrawn" if replaced else "its parent"
    title = f"Diff to {other} {parent.sha256[:SHORT]}" if parent is not None else "Source"
    return Details(
        id=f"kernel-{kernel.sha256[:SHORT]}",
        title=f"{row.name} {kernel.sha256[:SHORT]}",
        state="in place of a withdrawn one" if replaced else row.status,
        tone="good" if replaced else STATUS_TONES[row.status],
        facts=tuple(_facts(row, kernel)),
        chain=tuple(item[:SHORT] for item in (*before, kernel.sha256)),
        source_title=title,
        source=source_lines(parent.source if parent else None, kernel.source),
        record=kernel.certificate.model_dump_json(indent=1),
    )


def _facts(row: RegionRow, kernel: Kernel) -> Iterator[tuple[str, str]]:
    yield "kernel", kernel.sha256
    yield "region", f"{row.signature}: {' '.join(row.ops)}, {row.shapes}"
    yield "holds for", _holds_for(kernel)
    if (ratio := kernel_ratio(kernel)) is not None:
        yield "speedup", f"{ratio_text(ratio)} over the fastest baseline (measured)"
    if kernel.time_us is not None:
        beside = f", baseline {us(kernel.baseline_us)}" if kernel.baseline_us else ""
        yield "time", f"{us(kernel.time_us)}{beside} ({kernel.basis})"
    if kernel.verified:
        yield "last judged", when(kernel.verified)
    if row.status == "withdrawn":
        yield "withdrawn", withdrawn_text(row)
    elif kernel.withdrawn or row.reason:
        yield ("withdrawn" if kernel.withdrawn else "note"), kernel.withdrawn or row.reason
    yield from certificate_facts(kernel.certificate)


def _holds_for(kernel: Kernel) -> str:
    key = kernel.key
    parts = (key.gpu, f"torch {key.torch}", f"triton {key.triton}", key.dtype, key.precision)
    return ", ".join(item for item in parts if item)
