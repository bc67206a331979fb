"""Cells of tables as people have them: quotation marks, objects, separators, numbers, parts."""

import json

import pytest
from labelled_data import opened, refused

from keras_vit.training.data.tables import NO_LABEL

ROWS = [(f"{name}{n}.png", name) for name in ("cat", "dog") for n in range(10)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory, write_image):
    folder = tmp_path_factory.mktemp("photos")
    for value, (path, _) in enumerate(ROWS):
        write_image(folder / path, value)
    return folder


@pytest.fixture
def table(photos, tmp_path):
    """A function that writes rows of cells under a header to a table of the photos."""

    def write(header, rows, separator=",", name="labels.csv"):
        lines = [header, *(separator.join(row) for row in rows)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return tmp_path / name

    return write


def read(path, photos, **options):
    return opened(path, data_dir=str(photos), holdout=0, **options)


def labels(source):
    """The names of the classes of each image by its name."""
    found = {}
    for examples in source.splits.values():
        for path, label in zip(examples.names, examples.labels.tolist(), strict=True):
            numbers = [n for n, one in enumerate(label) if one] if type(label) is list else [label]
            found[path.rpartition("/")[2]] = [source.class_names[number] for number in numbers]
    return found


SINGLE = {path: [name] for path, name in ROWS}

# Quotation marks


@pytest.mark.parametrize(
    "header", ["path,label,caption", "caption,path,label", "path,caption,label"]
)
@pytest.mark.parametrize("marks", [('"text', '"text'), ('"text', 'text"'), ('"text', "text")])
def test_a_quotation_mark_that_swallows_rows_is_refused_with_its_row(table, photos, header, marks):
    captions = {3: marks[0], 9: marks[1]}
    cells = [
        {"path": path, "label": name, "caption": captions.get(n, "text")}
        for n, (path, name) in enumerate(ROWS)
    ]
    path = table(header, [[row[name] for name in header.split(",")] for row in cells])
    refused(path, "labels.csv, row 5: quotation marks", data_dir=str(photos))


def test_short_rows_that_a_quotation_mark_swallows_are_refused_too(table, photos):
    rows = [(*row, {3: '"a', 9: 'b"'}.get(n, "text")) for n, row in enumerate(ROWS)]
    path = table("path,label,caption,source,license", rows)
    refused(path, "row 5: quotation marks", data_dir=str(photos))


def test_a_quotation_mark_behind_a_label_gets_a_line(table, photos):
    rows = [("cat0.png", 'cat"'), *ROWS[1:]]
    notes = read(table("path,label", rows), photos).class_notes
    assert notes == ("'cat' and 'cat\"' are taken as two classes",)


def test_a_space_before_a_quotation_mark_is_no_part_of_the_cell(table, photos):
    rows = [(path, f' "{name}, a pet"') for path, name in ROWS]
    source = read(table("path,label", rows), photos)
    assert source.class_names == ("cat, a pet", "dog, a pet")


def test_a_huge_cell_is_refused_in_one_line(table, photos):
    path = table("path,label,thumbnail", [(*row, "A" * 140_000) for row in ROWS])
    refused(path, "row 2: .*131,072 letters.*field larger", data_dir=str(photos))


def test_a_table_of_labels_with_a_single_quotation_mark_is_refused(photos, table):
    path = table("path,label", ROWS)
    given = ["path,label,why", 'cat0.png,dog,"5 cm', "cat1.png,dog,x", 'cat2.png,dog,5"']
    refused(path, "--labels .*, row 2: quotation", data_dir=str(photos), labels=given)


# Labels


OBJECTS = [
    {"name": "cat"},
    {"choices": ["cat", "pet"]},
    {"choices": ["cat"], "score": 1},
    {"choices": [{"name": "cat"}]},
    [{"name": "cat"}],
    [["cat"]],
    {},
]


@pytest.mark.parametrize("label", OBJECTS, ids=str)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_other_objects_as_labels_are_refused_with_their_row(table, photos, tmp_path, label, kind):
    rows = [{"path": path, "label": label} for path, _ in ROWS]
    path = tmp_path / "labels.jsonl"
    if kind == "csv":
        cell = json.dumps(label).replace('"', '""')
        path = table("path,label", [(row["path"], f'"{cell}"') for row in rows])
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    match = rf"row \d: a label .*labels_to_csv.py table.csv {path}"
    refused(path, match, data_dir=str(photos))


@pytest.mark.parametrize(
    "cell",
    ["['cat', 'dog']", "[np.str_('cat')]", "{'cat'}", '["cat", "dog"', "[cat, dog]", "('cat', )"],
)
def test_the_text_of_a_list_is_refused_and_no_class(table, photos, cell):
    quoted = cell.replace('"', '""')
    rows = [("cat0.png", f'"{quoted}"'), ("dog0.png", "dog")]
    refused(table("path,label", rows), "row 2: a label", data_dir=str(photos))


def test_a_cell_may_have_more_letters_than_a_name(table, photos):
    names = [f"name{number:04d}" for number in range(600)]
    source = read(table("path,label", [("cat0.png", ";".join(names)), *ROWS[1:]]), photos)
    assert source.class_names == ("cat", "dog", *names)


# Separators


def test_one_semicolon_makes_all_rows_multi_label_with_a_line(table, photos):
    rows = [("cat0.png", "cat; tabby"), *ROWS[1:]]
    path = table("path,label", rows)
    source = read(path, photos)
    (line,) = [note for note in source.notes if "multi-label" in note]
    assert line == (
        "multi-label, as 1 of 20 labels are lists or hold \";\", the first 'cat; tabby' in "
        f'{path}, row 2; --task multiclass (task="multiclass") takes each text as one name'
    )
    assert source.class_names == ("cat", "dog", "tabby")


def test_a_semicolon_is_part_of_the_name_where_multi_class_is_asked_for(table, photos):
    rows = [("cat0.png", "cat; tabby"), *ROWS[1:]]
    source = read(table("path,label", rows), photos, task="multiclass")
    assert labels(source) == {**SINGLE, "cat0.png": ["cat; tabby"]}
    assert source.notes == ()


@pytest.mark.parametrize("task", [None, "multilabel"])
def test_an_entity_of_html_is_refused_where_its_semicolon_would_separate(table, photos, task):
    rows = [("cat0.png", "cat;pet"), ("dog0.png", "cats &amp; dogs")]
    match = "row 3: .*HTML .*labels_to_csv.py table.csv"
    refused(table("path,label", rows), match, data_dir=str(photos), task=task)
    rows = [(path, name.replace("cat", "cats &amp; kittens")) for path, name in ROWS]
    source = read(table("path,label", rows), photos, task="multiclass")
    assert source.class_names == ("cats &amp; kittens", "dog")


def test_letters_that_are_no_entity_are_separated(table, photos):
    source = read(table("path,label", [("cat0.png", "R&D;pet"), *ROWS[1:]]), photos)
    assert source.class_names == ("R&D", "cat", "dog", "pet")


def test_the_same_number_written_in_two_ways_gets_a_line(table, photos):
    rows = [(path, "1" if n % 2 else "1.0") for n, (path, _) in enumerate(ROWS)]
    notes = read(table("path,label", rows), photos).class_notes
    assert notes == ("'1' and '1.0' are taken as two classes",)


def test_a_few_numbered_classes_get_no_line(table, photos):
    for text in ("{}", "{}.0"):
        rows = [(path, text.format(n % 4)) for n, (path, _) in enumerate(ROWS)]
        assert read(table("path,label", rows), photos).notes == ()


def test_classes_of_numbers_are_in_the_order_of_the_numbers(table, photos):
    rows = [(path, ("10.0", "2.0", "1.0", "2.5")[n % 4]) for n, (path, _) in enumerate(ROWS)]
    classes = read(table("path,label", rows), photos).class_names
    assert classes == ("1.0", "2.0", "2.5", "10.0")


# Parts


@pytest.mark.parametrize("test", ["test", "val", "valid ", "validation"])
def test_the_column_split_has_the_parts(table, photos, test):
    rows = [(*row, test if n % 2 else "train") for n, row in enumerate(ROWS)]
    splits = read(table("path,label,split", rows), photos).splits
    found = {part: [name.rpartition("/")[2] for name in splits[part].names] for part in splits}
    names = [path for path, _ in ROWS]
    assert found == {"train": names[::2], "test": names[1::2]}


@pytest.mark.parametrize("word", ["Val", "TEST", "dev", "eval", "testing", "holdout"])
def test_other_words_for_parts_are_refused_with_the_program_that_reads_them(table, photos, word):
    rows = [(*row, word if n % 2 else "train") for n, row in enumerate(ROWS)]
    path = table("path,label,split", rows)
    match = f"split .*labels_to_csv.py table.csv {path} .* in row 3: .*{word}"
    refused(path, match, data_dir=str(photos))


@pytest.mark.parametrize("labels", ["label", "cat,dog"])
@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("set", "train", "test"),
        ("Split", "train", "test"),
        ("Where", "training", "Holdout"),
        ("is_valid", "False", "True"),
        ("isTest", "0", "1"),
        ("is_test", "0.0", "1.0"),
        ("Usage", "PrivateTest", "Training"),
    ],
)
def test_a_column_of_parts_under_another_name_is_refused(table, photos, labels, name, train, test):
    rows = [
        (path, *("01", "10")[label == "cat"], test if n % 2 else train)
        if "," in labels
        else (path, label, test if n % 2 else train)
        for n, (path, label) in enumerate(ROWS)
    ]
    path = table(f"path,{labels},{name}", rows)
    first, second = sorted((train, test))
    match = (
        f"named split; --split TABLE .*labels_to_csv.py table.csv {path} --split {name} "
        f".*Received: {name}, with {first}, {second}"
    )
    refused(path, match, data_dir=str(photos))
    parts = {path: ("train", "test")[n % 2] for n, (path, _) in enumerate(ROWS)}
    assert len(read(path, photos, split=parts, label_column=labels).splits["test"]) == 10


def test_two_words_for_one_part_are_refused(table, photos):
    rows = [(*row, ("train", "valid", "val", "test")[n % 4]) for n, row in enumerate(ROWS)]
    match = "valid and val, .*validation"
    refused(table("path,label,split", rows), match, data_dir=str(photos))


def test_a_column_split_may_have_the_labels(table, photos):
    path = table("path,split", ROWS)
    assert labels(read(path, photos, label_column="split")) == SINGLE


@pytest.mark.parametrize("name", ["age", "caption", "test_score"])
def test_other_columns_get_no_line(table, photos, name):
    rows = [(*row, f"{n + 20}") for n, row in enumerate(ROWS)]
    assert read(table(f"path,label,{name}", rows), photos).notes == ()


def test_a_class_of_a_one_hot_table_may_be_called_test_tube(table, photos):
    rows = [(path, "01"[n % 2], "10"[n % 2]) for n, (path, _) in enumerate(ROWS)]
    source = read(table("path,test_tube,train", rows), photos, label_column="test_tube,train")
    assert source.class_names == ("test_tube", "train")


# Paths and headers


@pytest.mark.parametrize("separator", ["|", " "])
def test_other_marks_between_cells_are_refused(table, photos, separator):
    path = table(f"path{separator}label", ROWS, separator)
    match = f"path,label .*labels_to_csv.py table.csv {path} "
    refused(path, match, data_dir=str(photos))


def test_a_line_of_excel_before_the_names_is_refused(table, photos):
    path = table("sep=;\npath;label", ROWS, ";")
    refused(path, "labels_to_csv.py .*: sep=, and 21 rows", data_dir=str(photos))


def test_rows_of_empty_cells_at_the_end_are_no_rows(table, photos):
    assert labels(read(table("path,label", [*ROWS, ("", ""), ("", "")]), photos)) == SINGLE


def test_paths_of_windows_are_read(table, photos):
    rows = [(f"{photos.name}\\{path}", name) for path, name in ROWS]
    assert labels(read(table("path,label", rows), photos.parent)) == SINGLE
    given = {f"{photos.name}\\cat0.png": "dog"}
    rows = [(f"{photos.name}/{path}", name) for path, name in ROWS]
    source = read(table("path,label", rows), photos.parent, labels=given)
    assert labels(source) == {**SINGLE, "cat0.png": ["dog"]}


@pytest.mark.parametrize("form", ["CAT0.PNG", "cat0.PNG", "cat0", "else/cat0.png"])
def test_a_path_that_is_no_file_is_refused_with_the_program_that_finds_it(table, photos, form):
    path = table("path,label", [(form, "cat"), *ROWS[1:]])
    match = f"row 2: .*{form}; --data-dir .*table.csv {path} --images FOLDER"
    refused(path, match, data_dir=str(photos))


@pytest.mark.parametrize("whole", [False, True])
def test_a_photo_that_is_gone_may_be_excluded(table, photos, whole):
    path = table("path,label", [*ROWS, ("gone.png", "cat")])
    refused(path, "row 22: no such file", data_dir=str(photos))
    gone = str(photos / "gone.png") if whole else "gone.png"
    assert labels(read(path, photos, exclude=[gone])) == SINGLE


@pytest.mark.parametrize("options", [{}, {"path_column": "path"}])
def test_a_first_line_that_is_a_row_is_called_so(table, photos, options):
    path = table("cat0.png,cat", ROWS[1:])
    match = (
        "first line of .*labels.csv .*: cat0.png, cat, "
        ".*labels_to_csv.py table.csv FILE --columns path,label"
    )
    refused(path, match, data_dir=str(photos), **options)
    path = table("path,label", ROWS)
    refused(path, "first line of .*--split", data_dir=str(photos), split=["x.png,test"])


def test_a_table_of_boxes_is_called_so(table, photos):
    rows = [("cat0.png", "1", "2", "cat"), ("cat0.png", "3", "4", "dog")]
    path = table("path,x,y,label", rows)
    refused(path, "a table of boxes .* Received in row 3", data_dir=str(photos))


# Rows without a label


@pytest.fixture
def half_labelled(table):
    return table(
        "path,label", [(path, name if n % 2 else "") for n, (path, name) in enumerate(ROWS)]
    )


def test_rows_without_a_label_are_refused_with_the_flag_that_leaves_them_out(half_labelled, photos):
    refused(half_labelled, "--skip-unlabelled leaves .* in row 2", data_dir=str(photos))


def test_skip_unlabelled_leaves_the_rows_without_a_label_out(half_labelled, photos):
    source = read(half_labelled, photos, skip_unlabelled=True)
    assert labels(source) == {path: [name] for path, name in ROWS[1::2]}
    assert [reason for _, reason in source.skipped] == [NO_LABEL] * 10
