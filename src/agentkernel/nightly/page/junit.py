"""How does a pipeline's own test report show a night?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from agentkernel.domain.night import Change, ChangeKind, Comparison, NightlyRun, RegionRow
from agentkernel.nightly.page.changes import change_text
from agentkernel.nightly.page.speeds import form_time_us, speedup
from agentkernel.nightly.page.wording import region_label, times, us

FAILURES: tuple[ChangeKind, ...] = ("withdrawn", "failed_to_verify", "regression")
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, section 2.2: https://www.w3.org/TR/xml/#charsets"""


def junit_xml(night: NightlyRun, comparison: Comparison) -> str:
    """A test case a model and a region: a regression or what does not verify is a failure, a model
    that raised an error, a region that was not reached skipped."""
    found: dict[str, list[Change]] = {}
    for change in comparison.changes:
        found.setdefault(change.what, []).append(change)
    root = ElementTree.Element("testsuites", name=_clean(f"agentkernel {night.zoo}"))
    models, regions = _suite("models", night), _suite("regions", night)
    for row in night.models:
        case = _case(models, night, "models", row.name, 0.0)
        _told(case, found.get(row.name, ()))
        text = f"{row.form}, {us(form_time_us(row))}, {times(speedup(row))} ({row.basis})"
        ElementTree.SubElement(case, "system-out").text = _clean(text)
    for region in sorted(night.regions, key=lambda row: (-row.share, row.signature)):
        label = region_label(region)
        case = _case(regions, night, "regions", label, region.spent_s)
        _told(case, found.get(label, ()))
        if region.status == "unreached":
            ElementTree.SubElement(case, "skipped", message="the budget was spent before it")
        ElementTree.SubElement(case, "system-out").text = _clean(_region_text(region))
    for suite in (models, regions):
        _count(suite)
        root.append(suite)
    _count(root)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _suite(name: str, night: NightlyRun) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=name, timestamp=_clean(night.started[:19]))
    properties = ElementTree.SubElement(suite, "properties")
    known = {"gpu": night.gpu, "target": night.target, **night.versions.model_dump()}
    for key, value in known.items():
        if value is not None:
            ElementTree.SubElement(properties, "property", name=key, value=_clean(str(value)))
    return suite


def _case(
    suite: ElementTree.Element, night: NightlyRun, kind: str, name: str, seconds: float
) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean(f"{night.zoo}.{kind}"),
        name=_clean(name),
        time=f"{seconds:.3f}",
    )


def _told(case: ElementTree.Element, changes: Iterable[Change]) -> None:
    """The worst of what is to be told, the first alone: a case has one outcome."""
    for change in changes:
        tag = "error" if change.kind == "model_failed" else "failure"
        if tag == "error" or change.kind in FAILURES:
            text = _clean(change_text(change))
            found = ElementTree.SubElement(
                case, tag, type=change.kind, message=" ".join(text.split())[:300]
            )
            found.text = text
            return


def _region_text(row: RegionRow) -> str:
    kernel = f", {us(row.time_us)} ({row.basis})" if row.time_us is not None else ""
    return f"{row.status}{kernel}, {row.shapes}"


def _count(element: ElementTree.Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(key, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def _clean(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text)
