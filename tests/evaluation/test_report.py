"""The report is one well-formed file that needs nothing else, says every number, and lets no name become markup."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.evaluation.score.mistakes import Mistake
from saccade.evaluation.show.report import Gallery, environment, report, write_report
from saccade.types import InputError
from tests.evaluation.samples import detections, drawn_around, evaluation, labels, result

NASTY = """</style></title><script>alert("1")</script><img src=x onerror='alert(2)'>&amp;]]>\x00\x1b\udcff"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def gallery(recording: str = "17-04-06_drive") -> Gallery:
    truth = labels([(10, 10, 50, 40), (60, 20, 80, 70)], [0, 1], still_us=np.array([0, 600_000]), visible=np.array([1, 0.5], np.float32))
    guess = detections([(90, 10, 120, 40)], [0], [0.93])
    pixels = np.random.default_rng(0).integers(0, 255, (90, 140, 3)).astype(np.uint8)
    false = Mistake("false", recording, 1_250_000, truth, guess, 0, 0.93)
    missed = Mistake("missed", recording, 1_250_000, truth, guess, 1, 500.0)
    return Gallery(evaluation().results[4].condition, [(false, pixels)], [(missed, pixels)])


def parsed(page: str) -> ElementTree.Element:
    """Also a parser of XML reads it: every element is closed, every character allowed."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


SHAPES = {
    "whole": (evaluation(), gallery()),
    "no pictures": (evaluation(), None),
    "one condition": (evaluation(results=(result(31.2),)), None),
    "nothing found": (evaluation(results=(result(0.0, 0.0), result(0.0, 0.0, rate_hz=200))), Gallery(result(0.0).condition, [], [])),
    "nothing to count": (evaluation(results=(result(float("nan"), float("nan")), result(float("nan"), float("nan"), rate_hz=200))), None),
    "scores alone": (evaluation(results=(replace(result(31.2), by_still_s=(), by_speed_px_s=(), curves={}),)), None),
    "other weights": (evaluation(), gallery(), (evaluation(model="rvt-nano", weights="rvt.safetensors"),)),
    "intervals": (evaluation(results=tuple(map(drawn_around, evaluation().results)), names=("a", "b")), None),
    "many series": (evaluation(results=tuple(result(30.0 - i, rate_hz=rate, seed=i) for i in range(9) for rate in (20, 1000))), None),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_well_formed_and_needs_no_other_file(shape: str) -> None:
    page = report(*SHAPES[shape])
    tree = parsed(page)
    for item in tree.iter():
        assert item.tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        for name, value in item.attrib.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action", "{http://www.w3.org/1999/xlink}href"):
                inside = item.tag == "use" and value.startswith("#")  # markers of a chart, drawn once in the same file
                assert inside or value.startswith("data:image/png;base64,"), f"{item.tag} {name}={value[:80]}"
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page))
    assert not re.search(r"\bnan\b", " ".join(tree.itertext()).lower())


def test_it_says_the_table_and_the_parts() -> None:
    page = report(*SHAPES["whole"])
    words = " ".join(" ".join(parsed(page).itertext()).split())
    for said in ("disjoint, direct 31.2 27.4 20.1 17.6 9.3 12.6 29.8 %", "Hidden objects", "over 3 s", "600 labels", "Speed",
                 "over 120 px/s", "score 0.93", "20 × 50 px, 50 % visible, no events for 0.6 s", "17-04-06_drive, 1.250 s"):  # fmt: skip
        assert said in words, said
    assert page.count("data:image/png;base64,") == 2
    assert page.count('class="chart"') == 2 + 3  # mAP and hidden recall, a curve per class


def test_it_says_the_intervals_and_how_many_recordings_they_are_of() -> None:
    page = report(*SHAPES["intervals"])
    words = " ".join(" ".join(parsed(page).itertext()).split())
    for said in ("9.3 [7.3, 11.3] 12.6 [12.6, 12.6] 29.8 %", "-21.9 [-21.9, -21.9]", "bootstrap over the 17 recordings", "26.8 to 30.8;"):
        assert said in words, said
    assert page.count("fill-opacity: 0.1") >= 6  # a pale band for each series in both charts


def test_the_same_evaluation_gives_the_same_bytes() -> None:
    assert report(*SHAPES["many series"]) == report(*SHAPES["many series"])


def test_every_colour_is_there_for_light_and_for_dark_pages() -> None:
    page = report(*SHAPES["many series"])
    light, dark = (set(re.findall(r"--(\w+):", block)) for block in re.findall(r":root \{(.*?)\}", page, re.DOTALL))
    assert light == dark >= set(re.findall(r"var\(--(\w+)\)", page))
    assert not re.search(r"(stroke|fill): ?#", page.partition("</style>")[2]), "a colour that the style sheet can't change"


def test_other_weights_stand_beside_the_first() -> None:
    words = " ".join(" ".join(parsed(report(*SHAPES["other weights"])).itertext()).split())
    for said in ("gs5-vit-nano: disjoint, direct 31.2 27.4", "rvt-nano: disjoint, direct 31.2 27.4", "rvt.safetensors"):
        assert said in words, said


def test_names_never_become_markup(tmp_path: Path) -> None:
    odd = evaluation(weights=NASTY, model=NASTY, dataset=NASTY, split=NASTY, protocol=NASTY, classes=(NASTY, "b", "c"))
    odd = replace(odd, results=tuple(replace(one, curves={NASTY: (1.0, 0.5)}) for one in odd.results))
    write_report(tmp_path / "report.html", odd, gallery(NASTY))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    tree = parsed(page)
    assert not [item for item in tree.iter() if item.tag in ("script",) or "onerror" in item.attrib]
    assert len(list(tree.iter("style"))) == 1
    assert 'alert("1")' in "".join(tree.itertext())


TEMPLATE = environment().from_string('<p title="{{ value }}">{{ value }}</p>')


@given(st.text(st.characters(exclude_characters="\t\r\n")))
def test_any_text_survives_but_for_what_xml_forbids(value: str) -> None:
    back = ElementTree.fromstring(TEMPLATE.render(value=value).encode("utf-8"))
    assert (back.text or "") == back.get("title")
    assert all(one in (other, "\ufffd") for one, other in zip(back.text or "", value, strict=True))


def test_an_evaluation_without_results_is_refused() -> None:
    with pytest.raises(InputError, match="at least one rate"):
        report(evaluation(results=()))


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["whole", "nothing to count", "many series"])  # the others are made of the same parts
def test_a_browser_shows_it_without_errors_and_asks_for_nothing(shape: str, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: the report can't be opened headless")
    write_report(tmp_path / "report.html", *SHAPES[shape])
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr", "--window-size=1200,3000", f"--screenshot={tmp_path / 'report.png'}",
        (tmp_path / "report.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (tmp_path / "report.png").stat().st_size > 10_000
    # The page's own policy forbids every other file, and the browser says on the console what it refused.
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
