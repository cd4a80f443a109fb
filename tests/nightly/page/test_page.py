"""Does the page work in a real browser: sort, filter, plots, a phone, print, no word amiss?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentkernel.domain.nightly import NightlyRun
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.files import read_night_file, write_night
from agentkernel.nightly.page.pages import night_page, render
from tests.nightly.page.headless_chromium import PROGRAM, Chromium
from tests.nightly.page.runs import (
    VERSIONS,
    estimated_model,
    history,
    kernels,
    model,
    night,
    region,
    timing,
    tonight,
)

NASTY = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='o'\">"
NAMES = (
    "[...document.querySelectorAll('#models tbody tr:not([hidden]) th .value')]"
    ".map(e => e.textContent)"
)
OVERLAPPING = """(() => {
  const boxes = [...document.querySelectorAll('svg .number, svg .roofname')]
    .filter(e => e.getBoundingClientRect().height > 0)
    .map(e => [e.textContent, e.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
    .filter(([, q]) => p.left < q.right && q.left < p.right
      && p.top + 3 < q.bottom - 3 && q.top + 3 < p.bottom - 3)
    .map(([b]) => `${a} ${b}`));
})()"""
"""The labels of plots that lie over each other; the box of a letter has room above and below."""
browser_only = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("night")
    before, after = history(), tonight()
    write_night(found, after, compare_nights(before[-1], after), before, kernels())
    return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    found = Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def page(folder: Path) -> str:
    return (folder / "night.html").as_uri()


@pytest.mark.quick(1)
@browser_only
@pytest.mark.parametrize(("width", "media"), [(400, "light"), (1400, "light"), (1400, "dark")])
def test_page_opens_without_a_complaint_and_fits(
    browser: Chromium, page: str, width: int, media: str, tmp_path: Path
) -> None:
    browser.complaints.clear()
    browser.open(page, width, 900, media)
    assert browser.complaints == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    seen = browser.value(
        "[...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().height > 200)"
        ".map(e => e.getAttribute('class'))"
    )
    assert seen == ["narrow" if width == 400 else "wide"] * 2
    cut_off = browser.value(
        "[...document.querySelectorAll('svg text')].filter(e => e.getBoundingClientRect().right"
        " > e.ownerSVGElement.getBoundingClientRect().right).map(e => e.textContent)"
    )
    assert cut_off == []
    covered = browser.value(OVERLAPPING)
    assert covered == []
    hidden = browser.value(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        ".map(e => e.parentElement.id)"
    )
    # A model's measured and estimated columns side by side are too many for a screen.
    assert set(hidden) <= {"models"}
    assert browser.value("document.querySelectorAll('svg .dot').length") == 60
    dark = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 24)"
    assert dark == (media == "dark")
    browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000


@browser_only
def test_table_sorts_by_a_click_and_filters_by_typing(browser: Chromium, page: str) -> None:
    browser.open(page)
    as_listed = browser.value(NAMES)
    browser.click("#models th[data-key=speedup] button")
    assert browser.value(NAMES)[:2] == ["whisper-tiny", "bert-base"]
    assert set(browser.value(NAMES)[-2:]) == {"clip-text", "mamba"}
    browser.click("#models th[data-key=speedup] button")
    assert browser.value(NAMES)[0] == "llama-8l"
    assert set(browser.value(NAMES)[-2:]) == {"clip-text", "mamba"}
    browser.click("#models th[data-key=model] button")
    assert browser.value(NAMES) == sorted(as_listed)
    browser.click("#models .filter")
    browser.type("no such model")
    assert browser.value(NAMES) == []
    assert browser.value("document.querySelector('#models .nothing').hidden") is False
    browser.value("document.querySelector('#models .filter').value = ''")
    browser.type("BFLOAT")
    assert browser.value(NAMES) == ["bert-base", "gpt2-medium", "llama-8l"]
    assert browser.value("document.querySelector('#models .shown').textContent") == "3 of 7 models"
    assert browser.value("location.hash") == "#sort=model&order=asc&filter=BFLOAT"


@browser_only
def test_links_keep_sort_and_filter_and_open_folds(browser: Chromium, page: str) -> None:
    browser.open(f"{page}#sort=speedup&filter=float16")
    assert browser.value(NAMES) == ["whisper-tiny", "bert-base", "gpt2-medium", "llama-8l"]
    browser.open(f"{page}#table=regions&sort=spent&filter=attention")
    spent = browser.value(
        "[...document.querySelectorAll('#regions tbody tr:not([hidden]) .k-spent')]"
        ".map(e => Number(e.dataset.sort || 0))"
    )
    assert len(spent) == 5
    assert spent == sorted(spent, reverse=True)
    browser.open(page)
    assert browser.value("document.querySelectorAll('details[open]').length") == 0
    browser.click("#regions tbody tr:nth-child(2) .k-kernel a")
    browser.wait("document.querySelector('details[open]') !== null")
    opened = browser.value("[...document.querySelectorAll('details[open]')].map(e => e.id)")
    assert len(opened) == 1
    assert opened[0].startswith("kernel-")
    assert browser.value("document.querySelector('details[open] .add').textContent").strip() == (
        "+    BLOCK = 128"
    )


@browser_only
def test_hostile_words_stay_words(browser: Chromium, tmp_path: Path) -> None:
    found = night()
    rows = tuple(row.evolve(error=NASTY) for row in found.models)
    regions = tuple(
        row.evolve(name=NASTY, reason=NASTY, shapes=NASTY, run=NASTY) for row in found.regions
    )
    found = found.evolve(models=rows, regions=regions, zoo=NASTY)
    known = {sha: item.evolve(source=NASTY, withdrawn=NASTY) for sha, item in kernels().items()}
    write_night(tmp_path, found, compare_nights(history()[-1], found), (), known)
    browser.complaints.clear()
    browser.open((tmp_path / "night.html").as_uri())
    assert browser.complaints == []
    assert browser.value("document.querySelectorAll('script').length") == 1
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.title").startswith("</script>")


@browser_only
def test_print_opens_the_kernels_and_hides_the_controls(browser: Chromium, page: str) -> None:
    browser.open(page)
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert browser.value("document.querySelectorAll('details.fold:not([open])').length") == 0
    browser.call("Emulation.setEmulatedMedia", media="print")
    hidden = "getComputedStyle(document.querySelector('.tools')).display"
    assert browser.value(hidden) == "none"
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.value("dispatchEvent(new Event('afterprint'))")
    assert browser.value("document.querySelectorAll('details[open]').length") == 0


class Cells(HTMLParser):
    """The texts of the table cells, by whether their column is of estimates."""

    def __init__(self) -> None:
        super().__init__()
        self.now: bool | None = None
        self.texts: dict[bool, list[str]] = {False: [], True: []}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "td":
            self.now = "est" in (dict(attrs)["class"] or "").split()
            self.texts[self.now].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.now = None

    def handle_data(self, data: str) -> None:
        if self.now is not None:
            self.texts[self.now][-1] += data


def test_estimates_are_marked_and_have_columns_of_their_own() -> None:
    found = night()
    mixed = found.evolve(
        models=(*found.models, estimated_model("clip", 760.0, 1.2)),
        regions=tuple(
            region(number, basis="estimated" if number % 2 else "measured") for number in range(30)
        ),
    )
    cells = Cells()
    cells.feed(render(night_page(mixed, compare_nights(None, mixed), (), kernels())))
    guesses = [text for text in cells.texts[True] if text != "–"]
    assert len(guesses) > 60
    assert all(text.startswith(("≈", "no gain")) for text in guesses)
    assert not any("≈" in text for text in cells.texts[False])


def test_every_figure_stands_beside_machine_dtypes_and_versions(folder: Path) -> None:
    text = (folder / "night.html").read_text()
    captions = re.findall(r'<(?:p class="caption"|figcaption)>(.*?)</(?:p|figcaption)>', text, re.S)
    told = [item for item in captions if "Since night" not in item]
    assert len(told) == 5
    for item in told:
        assert "NVIDIA H200 (driver 580.95.05)" in item
        assert "bfloat16, float16, float32" in item
        assert f"torch {VERSIONS.torch}, triton {VERSIONS.triton}" in item


def test_every_measured_ratio_stands_with_its_interval() -> None:
    found = night()
    before = history()
    text = render(night_page(found, compare_nights(before[-1], found), before, kernels()))
    shown = re.sub(r"<(script|style|pre)>.*?</\1>|<svg.*?(?=<title>)", "", text, flags=re.S)
    words = re.sub(r"<[^>]*>", " ", shown)
    around = r"\s*\(?\d+\.\d\d to \d+\.\d\d| ±\d"
    bare = [
        words[match.start() - 40 : match.end() + 30]
        for match in re.finditer(rf"(?!1\.00)\b\d+\.\d\d×(?!{around})", words)
    ]
    assert bare == []
    assert len(re.findall(rf"\d×(?={around})", words)) > 60


def test_a_row_of_before_has_the_lower_end_alone() -> None:
    found = night(regions=(region(0, speedup_high=None),))
    text = render(night_page(found, compare_nights(None, found), (), {}))
    assert f"at least {region(0).speedup_low:.2f}" in text


def test_the_page_says_whether_the_whole_is_one_region_and_why() -> None:
    whole = model("one", 100.0, 1.2, 1.5, form="one-region", shapes="float32[8, 64]")
    whole = whole.evolve(
        timings={**whole.timings, "one-region": timing(50.0)},
        why="as one region 1.20× (1.18 to 1.22) as fast as regions",
        dropped=("0" * 16,),
    )
    refused = model("two", 100.0, 1.2, 1.5, why="not as one region: it runs 80 ops")
    guess = estimated_model("three", 100.0, 1.2, estimated_forms_us={"regions": 83.3})
    found = night(models=(whole, refused, guess.evolve(form="one-region")))
    text = render(night_page(found, compare_nights(None, found), (), kernels()))
    assert (
        "as one region 1.20× (1.18 to 1.22) as fast as regions; 1 kernel dropped: the whole" in text
    )
    assert "not as one region: it runs 80 ops" in text
    assert "eager ≈ 100 µs\nregions ≈ 83.3 µs" in text
    assert "float32[8, 64]" in text


def test_a_page_needs_nothing_from_outside(folder: Path) -> None:
    text = (folder / "night.html").read_text()
    outside = re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"|url\(|@import", text)
    assert outside == []
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(script) == 1
    assert len(script[0].splitlines()) < 200


def test_the_record_gives_the_same_page(folder: Path) -> None:
    found = read_night_file(folder)
    again = render(night_page(found.night, found.comparison, found.history, found.kernels))
    assert again == (folder / "night.html").read_text()


def test_large_nights_are_cut_with_a_word() -> None:
    found = night()
    many = tuple(
        region(number % 30, signature=f"{number:016x}", share=1 / (number + 1))
        for number in range(2000)
    )
    models = tuple(model(f"m{number}", 2000.0, 1.3, 1.1) for number in range(500))
    found = found.evolve(regions=many, models=models)
    before = night(22, models=models)
    text = render(night_page(found, compare_nights(None, found), (before,), kernels()))
    assert text.count('<tr id="region-') == text.count('<tr id="model-') == 400
    assert text.count('class="dot ') == 2 * 400
    assert text.count('class="series ') == 2 * 61
    assert "1,600 more regions in regions.csv." in text


@pytest.mark.parametrize(
    "found",
    [
        night().evolve(regions=(), models=(), lost=(), gpu=None),
        night().evolve(regions=tuple(
            region(number, flops=None, bytes_min=None, sha256=None) for number in range(3)
        )),
        night().evolve(target="no-such-gpu", finished=None, budget_s=None),
    ],
)  # fmt: skip
def test_little_is_no_trouble(found: NightlyRun) -> None:
    text = render(night_page(found, compare_nights(None, found), (), {}))
    assert "No earlier night to compare with." in text
    assert "nan" not in re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.S).lower()
