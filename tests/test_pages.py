import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from keras_vit.inspection.pages import (
    GridPicture,
    facts_table,
    heading,
    paragraph,
    picture_grid,
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
