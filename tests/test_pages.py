import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from keras_vit.reports.pages import (
    GridPicture,
    Line,
    calibration_chart,
    chart,
    confusion_table,
    facts_table,
    heading,
    paragraph,
    picture_grid,
    result_panel,
    round_ticks,
    wide_picture,
    write_page,
)
from makers import encode

HOSTILE = "<script>alert('&\"')</script>\udcff"  # With a byte of a path that is no UTF-8.


def red(size, file_format="PNG", **options):
    return encode(Image.new("RGB", size, "red"), file_format, **options)


def pictures_of(page):
    found = re.findall(r'src="data:image/(\w+);base64,([^"]*)"', page)
    return [(kind, Image.open(io.BytesIO(base64.b64decode(data)))) for kind, data in found]


def test_every_text_of_a_page_is_escaped(tmp_path):
    picture = red((8, 8))
    write_page(
        tmp_path / "page.html",
        HOSTILE,
        heading(HOSTILE),
        paragraph(HOSTILE),
        facts_table([(HOSTILE, HOSTILE)]),
        wide_picture(picture, HOSTILE, HOSTILE),
        picture_grid([GridPicture(HOSTILE, picture, {HOSTILE: HOSTILE})]),
    )
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page
    # Title, h1, h2, p, th, td, a picture's alt and caption, a grid picture's caption twice; its
    # name and alt begin at the last slash.
    assert page.count("&lt;script&gt;alert(&#x27;&amp;&quot;&#x27;)&lt;/script&gt;\\udcff") == 10
    assert page.count("script&gt;\\udcff") == 12


def test_a_page_loads_nothing_from_elsewhere(tmp_path):
    picture = red((8, 8))
    grid = picture_grid([GridPicture("a.png", picture, {"cosine": ""})])
    write_page(tmp_path / "page.html", "Page", wide_picture(picture, "b", "c"), grid)
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"https?:|<link|<script|@import|url\(", page)
    assert [kind for kind, _ in pictures_of(page)] == ["png", "jpeg"]


def test_a_thumbnail_is_upright_and_has_no_metadata():
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: turned by a quarter.
    exif[0x010E] = "taken at home"
    photo = red((320, 160), "JPEG", exif=exif)
    ((kind, image),) = pictures_of(picture_grid([GridPicture("a.jpg", photo, {})]))
    assert (kind, image.size, dict(image.getexif())) == ("jpeg", (80, 160), {})
    assert np.asarray(image).mean(axis=(0, 1)) == pytest.approx([254, 0, 0], abs=2)


def test_names_of_classes_in_charts_and_confusion_are_escaped():
    photos = {(HOSTILE, "b"): [GridPicture("", red((8, 8)), {HOSTILE: HOSTILE})]}
    parts = [
        chart(HOSTILE, [Line(HOSTILE, [(0, 1)], "series-1")], HOSTILE, [(HOSTILE, 0)]),
        result_panel(0.5, HOSTILE, (0.4, 0.6), [(HOSTILE, 0.3)]),
        confusion_table((HOSTILE, "b"), np.array([[1, 2], [0, 3]]), photos),
        facts_table([(HOSTILE, HOSTILE)], (HOSTILE, HOSTILE)),
    ]
    assert len(parts)
    for part in parts:
        assert "<script" not in part
        assert "&lt;script&gt;" in part


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 60, [0, 20, 40, 60]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 0.3, [0, 0.1, 0.2, 0.3]),
        (0.83, 0.97, [0.8, 0.85, 0.9, 0.95, 1]),
        (7, 30_123, [0, 10_000, 20_000, 30_000, 40_000]),
        (0, 3e-5, [0, 1e-5, 2e-5, 3e-5]),
        (-3, 12, [-5, 0, 5, 10, 15]),
        (2, 2, [2, 2.5, 3, 3.5, 4]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_numbers_around_the_values(low, high, ticks):
    assert round_ticks(low, high) == pytest.approx(ticks, abs=1e-12)


def test_an_axis_of_equal_shares_is_from_0_to_100_percent():
    drawn = chart("Accuracy", [Line("", [(0, 1.0), (9, 1.0)], "series-1")], "step", shares="y")
    texts = re.findall(r'class="y"[^>]*>([^<]*)<', drawn)
    assert (texts[0], texts[-1]) == ("0%", "100%")


def test_dots_of_few_photos_are_marked_as_too_few():
    drawn = calibration_chart([(12, 0.4, 0.5), (20, 0.9, 0.8)], [(0.2, 0.7), (0.6, 0.9)], 20)
    assert [drawn.count(f'class="{kind}" d="M') for kind in ("few", "series-1")] == [2, 1]
    assert "too few photos, under 20" in drawn


def test_without_few_photos_nothing_is_said_of_them():
    assert "few" not in calibration_chart([(20, 0.9, 0.8)], [(0.6, 0.9)], 20)


def test_a_chart_leaves_out_what_is_not_finite():
    points = [(0, float("nan")), (1, 0.5), (2, float("inf"))]
    drawn = chart("loss", [Line("training", points, "series-1")], "step")
    (places,) = re.findall(r'points="([^"]*)"', drawn)
    assert len(places.split()) == 1
    assert chart("loss", [Line("training", points[:1], "series-1")], "step") == ""


def test_a_chart_has_shares_as_percent_and_a_key_for_each_mark():
    line = Line("validation", [(0, 0.7), (40, 0.9)], "series-2")
    drawn = chart("Accuracy", [line], "step", [("kept weights, after step 30", 30)], "y")
    assert re.findall(r'class="y"[^>]*>([^<]*)<', drawn) == ["70%", "75%", "80%", "85%", "90%"]
    assert re.findall(r'class="x"[^>]*>([^<]*)<', drawn) == ["0", "10", "20", "30", "40"]
    assert re.findall(r"</svg>([^<]+)</li>", drawn) == [
        "kept weights, after step 30",
        "validation",
    ]
    assert 'class="mark-1" d="M75.00 0V100"' in drawn


def test_a_page_of_three_sections_links_to_them(tmp_path):
    parts = [heading(text) for text in ("Numbers", "Most confident errors", "The run")]
    write_page(tmp_path / "page.html", "Page", *parts)
    page = (tmp_path / "page.html").read_text()
    links = re.findall(r'<a href="#([\w-]+)">', page)
    assert links == ["numbers", "most-confident-errors", "the-run"]
    assert links == re.findall(r'<h2 id="([\w-]+)">', page)
