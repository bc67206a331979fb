import csv
import io

import pytest

from keras_vit.training.run import progress


class Clock:
    """Time that a test sets."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_time_left_is_that_of_the_steps_after_the_first(clock):
    file = io.StringIO()
    line = progress.Progress("step", 11, file)
    clock.now += 50  # Compiles.
    line.show(1)
    clock.now += 80
    line.show(5, {"loss": "0.5"})
    clock.now += 120
    line.show(11)
    first, middle, last = file.getvalue().splitlines()
    assert first == "step 1/11"
    assert middle == "step 5/11  loss 0.5  2:00 left"
    assert last == "step 11/11  4:10"


def test_a_file_gets_a_line_every_half_minute_and_the_last(clock):
    file = io.StringIO()
    line = progress.Progress("step", 100, file)
    for done in range(1, 101):
        clock.now += 1
        line.show(done)
    shown = [text.split()[1] for text in file.getvalue().splitlines()]
    assert shown == ["1/100", "31/100", "61/100", "91/100", "100/100"]


def test_a_screen_has_one_line_that_is_written_over(clock):
    screen = Screen()
    line = progress.Progress("step", 3, screen)
    for done in (1, 2, 3):
        clock.now += 1
        line.show(done)
    line.close()
    line.close()
    assert screen.getvalue().count("\r") == 3
    assert screen.getvalue().count("\n") == 1


def test_a_resumed_history_drops_the_rows_after_its_step(tmp_path):
    columns = ("step", "loss")
    history = progress.History(tmp_path / "history.csv", columns)
    for step in (10, 20, 30):
        history.add({"step": step, "loss": 1 / step})
    history = progress.History(tmp_path / "history.csv", columns, last_step=20)
    history.add({"step": 30, "loss": 0.5, "unknown": 1})
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == history.rows
    assert [(row["step"], row["loss"]) for row in rows] == [
        ("10", "0.1"),
        ("20", "0.05"),
        ("30", "0.5"),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.4, "7 s"), (59.6, "1:00"), (725, "12:05"), (11_220, "3:07:00")]
)
def test_times_are_told_shortly(seconds, text):
    assert progress.clock(seconds) == text
