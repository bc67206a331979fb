import json
import math

from keras_vit.reports.report import Report, Table, align_columns

ROWS = [("model", "tokens", "weights"), ("ViT-B/16", "197", "imagenet"), ("BiT-R50x1", "", "-")]


def test_columns_are_aligned_at_the_left_or_at_the_right():
    assert align_columns(ROWS, left=(0, -1)).splitlines() == [
        "model      tokens  weights",
        "ViT-B/16      197  imagenet",
        "BiT-R50x1          -",
    ]
    assert align_columns(ROWS).splitlines()[1] == "ViT-B/16   197     imagenet"


def test_facts_and_tables_are_text_json_and_csv(tmp_path):
    table = Table(("class", "images", "F1"), [("cat", 3, 0.51234567), ("=dog", 0, math.nan)])
    report = Report(["top-1  50%"], {"top_1": 0.5}, {"per_class": table}, "per_class", ["a note"])
    assert str(report).splitlines() == [
        "top-1  50%",
        "",
        "class  images      F1",
        "cat         3  0.5123",
        "=dog        0       -",
        "a note",
    ]
    written = report.write(tmp_path / "new")
    assert [path.name for path in written] == ["metrics.json", "per_class.csv"]
    assert json.loads(written[0].read_text()) == {"top_1": 0.5}
    assert written[1].read_text() == "class,images,F1\ncat,3,0.512346\n'=dog,0,\n"
