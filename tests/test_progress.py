import pytest

from keras_vit.utils.progress import progress_bar


class Clock:
    """Time that a test sets."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_rate_and_time_left_leave_out_the_first_step_which_compiles(clock, capsys):
    with progress_bar(1, "evaluate", disable=True) as bar:
        bar.update()
    assert capsys.readouterr().err == ""
    with progress_bar(13, "train", unit="steps", initial=2) as bar:  # A resumed run.
        clock.now += 50  # Compiles.
        bar.update()
        clock.now += 80
        bar.set_postfix({"loss": "0.5"}, refresh=False)
        bar.update(4)
        clock.now += 120
        bar.update(6)
    _, middle, last = capsys.readouterr().err.splitlines()
    assert middle == "train: 7/13 steps [01:20<02:00,  0.05 steps/s, loss=0.5]"
    assert last.startswith("train: 13/13 steps [03:20<00:00")


def test_a_log_gets_a_line_every_half_minute_and_the_last(clock, capsys):
    with progress_bar(100, "evaluate") as bar:
        for _ in range(100):
            clock.now += 1
            bar.update()
    lines = capsys.readouterr().err.splitlines()
    counts = [line.split()[1] for line in lines]
    assert counts == ["0/100", "31/100", "61/100", "91/100", "100/100"]
    assert all("1.00 images/s" in line for line in lines[1:])
