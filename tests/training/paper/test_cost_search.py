import pytest

from keras_vit.training.paper import cost as search
from keras_vit.training.paper.cost import Trial


class Machine:
    """A machine whose memory and time are known, and that counts what it is asked."""

    def __init__(self, base=1000, per_image=7, budget=10_000, saturates_at=16):
        self.base, self.per_image, self.budget = base, per_image, budget
        self.saturates_at = saturates_at
        self.asked, self.died = [], []

    def __call__(self, batch_size):
        self.asked.append(batch_size)
        memory = self.base + self.per_image * batch_size
        if memory > self.budget:
            self.died.append(batch_size)
            return None
        return Trial(batch_size, memory, (100.0 * min(batch_size, self.saturates_at),))


def test_doubling_stops_where_the_rate_no_longer_grows():
    machine = Machine(saturates_at=16)
    trials = search.rates_by_doubling(machine)
    assert [trial.batch_size for trial in trials] == [1, 2, 4, 8, 16, 32, 64]
    assert max(trials, key=lambda trial: trial.rate).batch_size == 16


def test_doubling_stops_where_a_batch_does_not_fit():
    machine = Machine(budget=1000 + 7 * 9)
    trials = search.rates_by_doubling(machine)
    assert [trial.batch_size for trial in trials] == [1, 2, 4, 8]
    assert machine.asked[-1] == 16


def test_doubling_stops_where_a_step_is_long():
    trials = search.rates_by_doubling(lambda size: Trial(size, 1, (3.0 * size**0.05,)))
    assert [trial.batch_size for trial in trials] == [1, 2, 4, 8, 16, 32, 64]
    assert 32 / trials[-2].rate < search.LONGEST_STEP <= 64 / trials[-1].rate


@pytest.mark.parametrize("fitting", [0, 1, 2, 3, 7, 31, 32, 33, 100, 1000, 12345])
def test_the_largest_batch_has_fitted_and_the_next_has_not(fitting):
    machine = Machine(budget=1000 + 7 * fitting + 3)
    trials = search.rates_by_doubling(machine)
    largest, too_large = search.largest_batch(machine, trials, machine.budget)
    assert largest <= fitting < too_large
    assert too_large == search.next_batch(largest)
    assert too_large <= largest * 17 / 16 + 1
    assert largest in {0, *machine.asked}
    assert too_large in machine.died


def test_a_line_needs_few_trials_and_few_deaths():
    machine = Machine(budget=1000 + 7 * 3000)
    trials = search.rates_by_doubling(machine)
    machine.asked.clear()
    machine.died.clear()
    search.largest_batch(machine, trials, machine.budget)
    assert len(machine.asked) <= 5
    assert len(machine.died) == 1


@pytest.mark.parametrize("bend", [0.5, 2])
def test_the_largest_batch_is_found_for_nonlinear_memory(bend):
    def attempt(batch_size):
        memory = int(1000 + batch_size ** (1 + bend / 4))
        return Trial(batch_size, memory) if memory <= 9000 else None

    fitting = max(b for b in range(1, 9000) if attempt(b))
    trials = [attempt(1), attempt(2), attempt(4)]
    largest, too_large = search.largest_batch(attempt, trials, 9000)
    assert largest <= fitting < too_large == search.next_batch(largest)


def test_memory_that_does_not_grow_ends_at_the_largest_batch_of_all():
    largest, too_large = search.largest_batch(
        lambda batch_size: Trial(batch_size, 5), [Trial(1, 5), Trial(2, 5)], 10
    )
    assert (largest, too_large) == (search.MAX_BATCH, None)


def test_trials_beyond_the_budget_do_not_count():
    largest, _ = search.largest_batch(
        lambda batch_size: None, [Trial(1, 5), Trial(2, 8), Trial(4, 14)], 10
    )
    assert largest == 2
