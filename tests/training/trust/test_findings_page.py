"""The page of findings in Chromium, from a file with the network off."""

import csv
import io

import numpy as np
import pytest
from page_flaws import flaws_of

from keras_vit.reports.report import NamedFact, Report
from keras_vit.training.trust.findings_page import DRAWN, Card, ShownImage, write_cards
from keras_vit.utils.intervals import exact_interval
from makers import encode, smooth_picture

CLASSES = ["ant & bee", 'cat, "big"', "<b>dog</b>"]
RNG = np.random.default_rng(0)
PICTURES = [encode(smooth_picture(RNG, (40, 60), (3, 4)), "JPEG") for _ in range(8)]
NUM_COPIES = 6


def write(path, count=6):
    """Writes a page of `count` doubted labels, a conflict of six photos and two pairs of copies."""
    images = {
        n: ShownImage(f"{CLASSES[n % 3]}/{n:05}.jpg", CLASSES[n % 3], "", PICTURES[n % 8])
        for n in range(count)
    }
    cards = [
        Card(
            "wrong labels",
            (n,),
            f"{CLASSES[n % 3]}?",
            "score 0.80",
            near=[("given", [(n + 1) % count, (n + 2) % count]), ("proposed", [0])],
            choices=(CLASSES[(n + 1) % 3],),
        )
        for n in range(count)
    ]
    for n in range(NUM_COPIES):
        label = CLASSES[int(n == 5)]
        images[1000 + n] = ShownImage(f"tile/{n}.jpg", label, "train", PICTURES[n])
    tiles = tuple(range(1000, 1000 + NUM_COPIES))
    cards += [
        Card("conflicts", tiles, "near", "5 and 1", choices=tuple(CLASSES[:2])),
        Card("copies", tiles[:2], "exact", "2 of ant & bee"),
        Card("copies", tiles[2:4], "exact", "2 of ant & bee"),
        Card("shortcuts", (0,), "ant & bee", "border (AUROC 0.998, p 0.008)", [("typical", [3])]),
    ]
    fact = NamedFact("labels", f"{count} labels that <features> doubt", "A reservation.")
    lines = Report([fact])
    write_cards(path, "Check <of> photos", lines, images, cards, CLASSES)
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
    assert page.inner_text("#status").startswith("2 of 6 judged")
    assert page.inner_text(".finding:nth-child(1) output") == "dropped"
    assert page.inner_text("h1") == "Check <of> photos"
    assert "<b>dog</b>/00002.jpg" in page.inner_text(".finding:nth-child(3)")  # Names are text.


def test_undo_takes_back_the_last_decision(page):
    press(page, "d", "k", "ArrowUp", "r", "u")
    assert page.inner_text("#status").startswith("2 of 6 judged")
    assert page.inner_text(".finding[aria-current] output") == "kept"
    press(page, "u", "u", "u")
    assert page.inner_text("#status") == "0 of 6 judged"


def test_undo_goes_to_the_list_of_its_card(page):
    press(page, "d")
    page.click("button[data-kind=copies]")
    page.click("#undo")
    assert page.get_attribute("button[data-kind='wrong labels']", "aria-pressed") == "true"
    assert page.inner_text("#status") == "0 of 6 judged"


def test_another_class_can_be_chosen(page):
    page.select_option("#other", CLASSES[2])
    assert list(csv.reader(io.StringIO(saved(page, "#labels"))))[1][1] == CLASSES[2]


def test_copies_of_one_label_have_no_other_label(page):
    page.click("button[data-kind=copies]")
    press(page, "r")
    assert page.inner_text("#status") == "0 of 2 judged"
    assert page.locator("#other").count() == 0


def test_a_card_has_its_reason_in_words(page):
    first = page.inner_text(".finding:nth-child(1)")
    assert 'Labelled ant & bee. Is it cat, "big"?' in first
    assert 'takes it for cat, "big" (score 0.80).' in first
    page.click("button[data-kind=copies]")
    assert "All pixels are equal." in page.inner_text(".finding >> nth=0")


def test_the_summary_has_counts_in_bold_and_reservations_in_a_second_line(page):
    page.locator("details").evaluate("details => details.open = true")
    cell = page.locator("details td")
    assert cell.locator("b").inner_text() == "6 labels"
    assert cell.locator("small").inner_text() == "A reservation."
    assert "that <features> doubt" in cell.inner_text()


def test_a_group_of_copies_is_one_card_with_all_photos_and_labels(page):
    page.click("button[data-kind=conflicts]")
    assert page.locator(".finding").count() == 1
    captions = page.locator(".group figcaption b").all_inner_texts()
    assert captions == ["ant & bee"] * 5 + ['cat, "big"']
    assert page.locator(".group img").count() == NUM_COPIES


def test_a_group_is_relabelled_as_one_of_its_classes(page):
    page.click("button[data-kind=conflicts]")
    page.click("text='Relabel as cat, \"big\"'")
    rows = list(csv.reader(io.StringIO(saved(page, "#labels"))))
    assert rows[1:] == [[f"tile/{n}.jpg", 'cat, "big"'] for n in range(5)]


def test_the_key_relabels_a_group_as_its_most_frequent_class(page):
    page.click("button[data-kind=conflicts]")
    press(page, "r")
    rows = list(csv.reader(io.StringIO(saved(page, "#labels"))))
    assert rows[1:] == [["tile/5.jpg", "ant & bee"]]


def test_the_others_of_a_group_are_dropped(page):
    page.click("button[data-kind=conflicts]")
    page.click("[data-path='tile/3.jpg']")
    dropped = saved(page, "#exclude").splitlines()
    assert dropped == [f"tile/{n}.jpg" for n in range(NUM_COPIES) if n != 3]
    assert page.inner_text("output.done") == "kept only tile/3.jpg"


def test_one_of_each_group_is_kept_in_one_step(page):
    page.click("button[data-kind=copies]")
    page.click("#one")
    assert saved(page, "#exclude") == "tile/1.jpg\ntile/3.jpg\n"
    press(page, "u")
    assert page.inner_text("#status") == "0 of 2 judged"


def test_groups_with_a_decision_are_not_changed_by_keeping_one_of_each(page):
    page.click("button[data-kind=copies]")
    press(page, "k")
    page.click("#one")
    assert saved(page, "#exclude") == "tile/3.jpg\n"


def test_one_class_with_shortcuts_is_one_card_without_buttons(page):
    page.click("button[data-kind=shortcuts]")
    text = page.inner_text(".finding")
    assert "ant & bee is given away by border (AUROC 0.998, p 0.008)" in text
    assert page.locator(".finding [data-action]").count() == 0


def test_what_a_person_decided_is_counted(page):
    press(page, "k", "r", "d")
    expected = "3 of 6 judged. 2 of the 3 that you looked at were wrong"
    assert page.inner_text("#status") == expected


def judge_draw(page, wrong):
    """Draws ten of the doubts and finds some of them wrong."""
    page.click("#draw")
    press(page, *("d",) * wrong, *("k",) * (DRAWN - wrong))


@pytest.mark.parametrize("wrong", [0, 2, 10])
def test_ten_that_were_drawn_give_an_estimate_of_all(chromium, tmp_path, wrong):
    least, most = interval_of_all(wrong, 47)
    for page in opened(chromium, write(tmp_path / "check.html", 47)):
        judge_draw(page, wrong)
        expected = (
            f"10 of 10 judged. {wrong} of the 10 that you looked at were wrong. {wrong} of 10 "
            f"drawn at random were wrong: about {round(4.7 * wrong)} of all 47 ({least} to {most}, "
            "95% interval)"
        )
        assert page.inner_text("#status") == expected


def interval_of_all(wrong, total):
    """The wrong labels among all that ten were drawn from, by the page's rule."""
    low, high = exact_interval(wrong, DRAWN)
    least, most = np.ceil(low * total - 1e-9), np.floor(high * total + 1e-9)
    return max(int(least), wrong), min(int(most), total - (DRAWN - wrong))


@pytest.mark.parametrize("total", [11, 20, 47, 400])
def test_the_interval_of_the_estimate_holds_in_simulated_draws(total):
    intervals = np.array([interval_of_all(wrong, total) for wrong in range(DRAWN + 1)])
    rng = np.random.default_rng(0)
    for wrong in np.unique(np.linspace(0, total, 12).astype(int)):
        found = rng.hypergeometric(wrong, total - wrong, DRAWN, size=4000)
        holds = (intervals[found, 0] <= wrong) & (wrong <= intervals[found, 1])
        assert holds.mean() >= 0.945, (total, wrong)  # 4,000 draws: 95% less 1.5 deviations.


def test_a_draw_is_of_ten_undecided_doubts_and_kept(chromium, tmp_path):
    for page in opened(chromium, write(tmp_path / "check.html", 30)):
        press(page, *("k",) * 15)
        page.click("#draw")
        page.reload()
        page.wait_for_selector("body[data-state=ready]")
        page.click("button[data-kind='drawn at random']")
        assert page.inner_text("#status") == "0 of 10 judged"
        drawn = {text[-9:] for text in page.locator(".finding > div > small").all_inner_texts()}
        assert drawn <= {f"{n:05}.jpg" for n in range(15, 30)}


def test_an_unfinished_draw_gives_no_estimate(chromium, tmp_path):
    for page in opened(chromium, write(tmp_path / "check.html", 30)):
        page.click("#draw")
        press(page, *("k",) * 9)
        assert page.inner_text("#status") == (
            "9 of 10 judged. 0 of the 9 that you looked at were wrong"
        )


def test_few_doubts_are_not_drawn_from(page):
    assert page.is_hidden("#draw")


def test_a_click_enlarges_a_photo_and_a_key_closes_it_again(page):
    page.click(".near .picture >> nth=0")
    assert page.locator("#large img").count() == 2  # Beside the photo that is judged.
    press(page, "Escape", "e")
    assert page.inner_text("#large figcaption").startswith("Labelled ant & bee")
    press(page, "k")
    assert page.is_hidden("#large")
    assert page.inner_text("#status").startswith("1 of 6 judged")


def test_a_click_on_a_button_judges_its_row_and_goes_on_to_the_next(page):
    page.click(".finding:nth-child(3) [data-action=drop]")
    assert page.inner_text(".finding:nth-child(3) output") == "dropped"
    assert page.inner_text(".finding[aria-current] small >> nth=-1") == "ant & bee/00003.jpg"


def test_what_was_enlarged_is_what_a_key_judges(page):
    page.click(".finding:nth-child(2) .near .picture >> nth=1")
    press(page, "d")
    assert page.inner_text(".finding:nth-child(2) output") == "dropped"
    assert page.inner_text("#status").startswith("1 of 6 judged")


def test_neighbours_are_beside_the_photo(page):
    photo = page.locator(".picture").nth(0).bounding_box()
    for near in page.locator(".finding:nth-child(1) .near .picture").all():
        box = near.bounding_box()
        assert box["x"] > photo["x"] + photo["width"]
        assert box["y"] < photo["y"] + 2 * photo["height"]


def test_rows_far_down_are_filled_when_they_are_chosen(chromium, tmp_path):
    for page in opened(chromium, write(tmp_path / "check.html", 100)):
        press(page, *("d",) * 50)
        assert page.inner_text("#status").startswith("50 of 100 judged")
        assert "00050.jpg" in page.inner_text(".finding[aria-current]")
        assert page.locator(".finding[aria-current]").bounding_box()["y"] < 800
        assert page.locator(".finding:empty").count() > 20


@pytest.mark.parametrize("kind", ["wrong labels", "conflicts", "copies"])
def test_the_page_has_no_flaws_for_people(chromium, tmp_path, kind):
    def judge(page):
        press(page, "k", "r", "d")
        page.click(f"button[data-kind='{kind}']")

    assert flaws_of(chromium, write(tmp_path / "check.html").as_uri(), judge) == []
