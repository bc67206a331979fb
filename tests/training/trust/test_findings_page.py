"""The page of findings in Chromium, from a file with the network off."""

import csv
import io

import numpy as np
import pytest
from page_flaws import flaws_of

from keras_vit.training.trust.check_report import Finding, write_findings
from makers import encode, smooth_picture

CLASSES = ["ant & bee", 'cat, "big"', "<b>dog</b>"]
RNG = np.random.default_rng(0)
PICTURES = [encode(smooth_picture(RNG, (40, 60), (3, 4)), "JPEG") for _ in range(8)]


def write(path, count=6):
    """Writes a page of `count` doubted labels, and a copy."""
    images = {
        10 + n: (f"{CLASSES[n % 3]}/{n:05}.jpg", CLASSES[n % 3], PICTURES[n % 8])
        for n in range(count)
    }
    findings = [
        Finding(
            "wrong labels",
            10 + n,
            f"{CLASSES[n % 3]}?",
            "about 80 of 100 labels doubted as much are wrong",
            0.8,
            near=[("given", [10 + (n + 1) % count, 10 + (n + 2) % count]), ("proposed", [10])],
            to=CLASSES[(n + 1) % 3],
        )
        for n in range(count)
    ]
    findings.append(
        Finding("copies", 11, "exact", "two", other=10, near=[("the other image", [10])])
    )
    lines = [("labels", "A line.")]
    write_findings(path, "Check <of> photos", lines, images, findings, CLASSES)
    return path


@pytest.fixture(params=[1280, 390])
def page(request, chromium, tmp_path):
    path = write(tmp_path / "check.html")
    yield from opened(chromium, path, request.param)


def opened(chromium, path, width=1280):
    """Yields a page, and fails on an error or a request of it."""
    context = chromium.new_context(offline=True, viewport={"width": width, "height": 800})
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: line.type == "error" and problems.append(line.text))
    page.on("request", lambda sent: sent.url.startswith("http") and problems.append(sent.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-state=ready]")
    yield page
    assert problems == []
    context.close()


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def saved(page, button):
    with page.expect_download() as download:
        page.click(button)
    return open(download.value.path(), encoding="utf-8", newline="").read()


def test_decisions_by_key_are_saved_as_the_files_that_finetune_takes(page):
    press(page, "k", "r", "d", "ArrowDown", "r", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "d")
    rows = list(csv.reader(io.StringIO(saved(page, "#labels"))))
    names = ['cat, "big"/00001.jpg', 'cat, "big"/00004.jpg']
    assert rows == [["path", "label"], *([name, "<b>dog</b>"] for name in names)]
    assert saved(page, "#exclude") == "<b>dog</b>/00002.jpg\nant & bee/00003.jpg\n"


def test_decisions_are_still_there_when_the_page_is_opened_again(page):
    press(page, "d", "r")
    page.reload()
    page.wait_for_selector("body[data-state=ready]")
    assert page.inner_text("#status") == "2 of 6 judged"
    assert page.inner_text(".finding:nth-child(1) output") == "dropped"
    assert page.inner_text("h1") == "Check <of> photos"
    assert "<b>dog</b>/00002.jpg" in page.inner_text(".finding:nth-child(3)")  # Names are text.


def test_undo_takes_back_the_last_decision(page):
    press(page, "d", "k", "ArrowUp", "r", "u")
    assert page.inner_text("#status") == "2 of 6 judged"
    assert page.inner_text(".finding[aria-current] output") == "kept"
    press(page, "u", "u", "u")
    assert page.inner_text("#status") == "0 of 6 judged"


def test_undo_goes_to_the_list_of_its_finding(page):
    press(page, "d")
    page.click("button[data-kind=copies]")
    page.click("#undo")
    assert page.get_attribute("button[data-kind='wrong labels']", "aria-pressed") == "true"
    assert page.inner_text("#status") == "0 of 6 judged"


def test_another_class_can_be_chosen(page):
    page.select_option("#other", CLASSES[2])
    assert list(csv.reader(io.StringIO(saved(page, "#labels"))))[1][1] == CLASSES[2]


def test_a_copy_has_no_other_label(page):
    page.click("button[data-kind=copies]")
    press(page, "r")
    assert page.inner_text("#status") == "0 of 1 judged"
    assert page.locator("#other").count() == 0


def test_a_finding_has_its_reason_in_words(page):
    first = page.inner_text(".finding:nth-child(1)")
    assert 'Labelled ant & bee. Is it cat, "big"?' in first
    assert 'takes it for cat, "big"; about 80 of 100 labels doubted as much are wrong.' in first
    page.click("button[data-kind=copies]")
    assert "All pixels of both are equal." in page.inner_text(".finding")


def test_a_click_enlarges_a_photo_and_a_key_closes_it_again(page):
    page.click(".near .picture >> nth=0")
    assert page.locator("#large img").count() == 2  # Beside the photo that is judged.
    press(page, "Escape", "e")
    assert page.inner_text("#large figcaption").startswith("Labelled ant & bee")
    press(page, "k")
    assert page.is_hidden("#large")
    assert page.inner_text("#status") == "1 of 6 judged"


def test_a_click_on_a_button_judges_its_row_and_goes_on_to_the_next(page):
    page.click(".finding:nth-child(3) [data-action=drop]")
    assert page.inner_text(".finding:nth-child(3) output") == "dropped"
    assert page.inner_text(".finding[aria-current] small >> nth=-1") == "ant & bee/00003.jpg"


def test_what_was_enlarged_is_what_a_key_judges(page):
    page.click(".finding:nth-child(2) .near .picture >> nth=1")
    press(page, "d")
    assert page.inner_text(".finding:nth-child(2) output") == "dropped"
    assert page.inner_text("#status") == "1 of 6 judged"


def test_neighbours_are_beside_the_photo(page):
    photo = page.locator(".picture").nth(0).bounding_box()
    for near in page.locator(".finding:nth-child(1) .near .picture").all():
        box = near.bounding_box()
        assert box["x"] > photo["x"] + photo["width"]
        assert box["y"] < photo["y"] + 2 * photo["height"]


def test_rows_far_down_are_filled_when_they_are_chosen(chromium, tmp_path):
    for page in opened(chromium, write(tmp_path / "check.html", 100)):
        press(page, *("d",) * 50)
        assert page.inner_text("#status") == "50 of 100 judged"
        assert "00050.jpg" in page.inner_text(".finding[aria-current]")
        assert page.locator(".finding[aria-current]").bounding_box()["y"] < 800
        assert page.locator(".finding:empty").count() > 20


@pytest.mark.parametrize("kind", ["wrong labels", "copies"])
def test_the_page_has_no_flaws_for_people(chromium, tmp_path, kind):
    def judge(page):
        press(page, "k", "r", "d")
        page.click(f"button[data-kind='{kind}']")

    assert flaws_of(chromium, write(tmp_path / "check.html").as_uri(), judge) == []
