"""The tests' own search for flaws of pages, on a page that has each of them."""

from page_flaws import flaws_of

PAGE = """<!doctype html>
<style>body { background: #fff; color: #000; } p { color: #999; } div { width: 400px; }</style>
<p>grey</p> <p hidden>hidden</p> <button disabled style="color: #999">off</button>
<b style="opacity: .4">pale</b> <div>wide</div> <button></button> <button>Save</button>
<p style="font-size: 24px; color: #888">large</p> <svg><text y="9" fill="#777">x</text></svg>
<p style="background: #0008; color: #fff">translucent</p>
"""


def test_each_flaw_is_a_line_and_nothing_else_is(chromium, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE, encoding="utf-8")
    flaws = [line for line in flaws_of(chromium, page.as_uri()) if line.startswith("light")]
    assert flaws == [
        "light: 408 pixels wide",
        "light: contrast 2.85: grey",
        "light: contrast 2.85: pale",
        "light: contrast 4.48: x",
        "light: contrast 4.48: translucent",
        "light: button without a name",
    ]
