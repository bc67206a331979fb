"""Conformal test martingales: alarms about a stream of photos with a bound on false ones.

Vovk, Petej, Nouretdinov, Ahlberg, Carlsson and Gammerman, "Retrain or not retrain: conformal test
martingales for change-point detection" (2021, arXiv:2102.10439).
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from keras_vit.description.drift_reference import ALARM_LEVEL, CLASS, LARGEST_STEP, DriftReference
from keras_vit.utils.json_files import check_fields

JUMP_RATES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # Rates of the composite jumper.
_INTERVALS = 16
_MOST_NUMBERS = 1_000_000  # Numbers of a signal in a state that is read.
_END = 0.02  # Width of the intervals at both ends, for photos that are stranger than nearly all.
_MORE = 0.1  # A bet on an interval: this share of the photos now falls into it in addition.

BETS = (4 + 2 + 2 + _INTERVALS) + 1
_RATES = np.array(JUMP_RATES)[:, np.newaxis]


def bets(p_values: np.ndarray) -> np.ndarray:
    """Returns what each bet makes of a unit of capital, `(S, BETS)`.

    Each bet f is not negative and has the integral 1 over [0, 1], so that it keeps its capital on
    average: 1 (no bet), 1 + e (p - 1/2), 1 + e (6 (p - 1/2)^2 - 1/2) and, for an interval of the
    width w, 0.9 + 0.1 / w inside and 0.9 outside.

    Args:
        p_values: `(S,)`, one of each signal.
    """
    p = p_values[:, np.newaxis]
    centred = p - 0.5
    widths, low, high = _LIMITS
    inside = (p >= low) & (p < high)
    return np.concatenate(
        [
            np.ones_like(p),
            1 + _SLOPES * centred,
            1 + _SPREADS * (6 * centred * centred - 0.5),
            (1 - _MORE) + (_MORE / widths) * inside,
        ],
        axis=1,
    )


def bet(shares: np.ndarray, p_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shares of the capital after a photo, and the logarithms of the gains.

    Args:
        shares: `(S, 5, BETS)`, each of the S with the sum 1.
        p_values: `(S,)`.
    """
    capital = shares * bets(p_values)[:, np.newaxis]
    capital += _RATES * (capital.mean(axis=2, keepdims=True) - capital)
    sums = capital.sum(axis=(1, 2))
    return capital / sums[:, np.newaxis, np.newaxis], np.log(sums)


def first_shares(count: int) -> np.ndarray:
    """Returns the even shares `(count, 5, BETS)` of martingales that begin."""
    rates = len(JUMP_RATES)
    return np.full((count, rates, BETS), 1 / (rates * BETS))


_SLOPES = np.array([-2.0, -1.0, 1.0, 2.0])
_SPREADS = np.array([-1.0, 1.0])
_STARTS = np.append(np.arange(_INTERVALS) / _INTERVALS, [0, 1 - _END])
_ENDS = np.append((1 + np.arange(_INTERVALS)) / _INTERVALS, [_END, 1])
_LIMITS = (_ENDS - _STARTS, _STARTS, np.where(_ENDS == 1, 2, _ENDS))  # p = 1 is in the last.


@dataclasses.dataclass
class Martingales:
    """A conformal test martingale for each signal of a stream of photos.

    The p-value of a photo's number x is (less + U equal) / n with a random U in [0, 1), where the n
    numbers are from the reference and all photos of the stream until now, this one
    included. If the reference and the stream are exchangeable (drawn alike), the p-values are
    independent and uniform, exactly and whatever the numbers mean. A bet f multiplies its capital
    by f(p). After each photo the share J of the capital is dealt out evenly to all bets (the
    Simple Jumper); the martingale is the mean over the rates J of `JUMP_RATES`. It starts at 1, and
    by Ville's inequality the probability that it ever reaches 1 / a is at most a. Each of the S
    signals has the level a = `alarm_level` / S.

    Args:
        bags: For each signal the counts of all numbers until now, int `(M,)`.
        photos: Photos of the stream.
        shares: The shares of the capital by rate and bet, `(S, 5, BETS)`.
        logs: The natural logarithm of each martingale, `(S,)`.
        highest: The highest of each until now, `(S,)`.
        seed: Seed of the random U.
    """

    bags: dict[str, np.ndarray]
    photos: int
    shares: np.ndarray
    logs: np.ndarray
    highest: np.ndarray
    seed: int = 0

    def __post_init__(self):
        # Seeded anew by the number of photos, so that a restart goes on with new numbers.
        self._random = random.Random(f"{self.seed} {self.photos}")

    @classmethod
    def of(
        cls, reference: DriftReference, signals: tuple[str, ...], classes: int, seed: int = 0
    ) -> Self:
        """Returns the martingales of a reference before the first photo.

        Args:
            reference: The counts.
            signals: Names of signals of the reference.
            classes: Number of classes, K.
            seed: Seed of the random U.
        """
        bags = {}
        for name in signals:
            bag = np.zeros(max(classes, 2 * LARGEST_STEP + 1), "int64")
            counts = reference.counts[name]
            bag[cell(np.array(list(counts)), name)] = list(counts.values())
            bags[name] = bag
        zeros = np.zeros(len(bags))
        return cls(bags, 0, first_shares(len(bags)), zeros, zeros.copy(), seed)

    def add(self, numbers: Mapping[str, int]) -> None:
        """Adds a photo with a number for each signal."""
        p_values = []
        total = 0
        for name, bag in self.bags.items():
            place = cell(numbers[name], name)
            bag[place] += 1
            less, equal = int(bag[:place].sum()), int(bag[place])
            total = total or int(bag.sum())
            p_values.append((less + self._random.random() * equal) / total)
        self.shares, gains = bet(self.shares, np.array(p_values))
        self.logs = self.logs + gains
        np.maximum(self.highest, self.logs, out=self.highest)
        self.photos += 1

    def limit(self, alarm_level: float = ALARM_LEVEL) -> float:
        """Returns the logarithm that a martingale reaches for an alarm."""
        return math.log(len(self.bags) / alarm_level)

    def alarms(self, alarm_level: float = ALARM_LEVEL) -> list[str]:
        """Returns the signals whose martingale has ever reached the limit."""
        limit = self.limit(alarm_level)
        return [name for name, high in zip(self.bags, self.highest, strict=True) if high >= limit]

    def to_json(self) -> dict[str, Any]:
        """Returns the state as types of JSON."""
        bags = {}
        for name, bag in self.bags.items():
            places = np.flatnonzero(bag)
            bags[name] = {
                "size": len(bag), "places": places.tolist(), "counts": bag[places].tolist()
            }  # fmt: skip
        return {
            "bags": bags,
            "photos": self.photos,
            "shares": self.shares.tolist(),
            "logs": self.logs.tolist(),
            "highest": self.highest.tolist(),
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the state that `to_json` wrote.

        Raises:
            ValueError: If it is none.
        """
        check_fields(content, _FIELDS, "a monitor's state")
        try:
            bags = {}
            for name, kept in content["bags"].items():
                if not 0 < kept["size"] <= _MOST_NUMBERS:
                    raise KeyError(f"a bag of {kept['size']} numbers")
                bags[name] = np.zeros(kept["size"], "int64")
                bags[name][kept["places"]] = kept["counts"]
            shares, logs, highest = (
                np.array(content[name], "float64") for name in ("shares", "logs", "highest")
            )
            found = cls(bags, content["photos"], shares, logs, highest, content["seed"])
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"A monitor's state must be complete. Received: {error}") from error
        if found.shares.shape != (len(bags), len(JUMP_RATES), BETS) or not (
            found.logs.shape == found.highest.shape == (len(bags),)
        ):
            raise ValueError(
                f"A monitor's state must have {len(bags)} martingales of {BETS} bets. "
                f"Received: shares of shape {found.shares.shape}"
            )
        return found


def cell(number, signal):
    """Returns the place of a number in the counts of a signal."""
    return number if signal == CLASS else number + LARGEST_STEP


_FIELDS = {
    "bags": dict,
    "photos": int,
    "shares": list,
    "logs": list,
    "highest": list,
    "seed": int,
}
