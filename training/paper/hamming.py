"""Search among 64-bit hashes by the number of bits that differ."""

from __future__ import annotations

import numpy as np

_BANDS = 4  # Of 16 bits.
_NUM_KEYS = 2**16
_ONES = np.array([key.bit_count() for key in range(_NUM_KEYS)], np.uint8)

MAX_RADIUS = 15  # Beyond, a band would be searched with over 2500 patterns.


class HammingIndex:
    """All entries within a Hamming distance of a query; exact (Norouzi et al., 2012).

    Hashes that differ in at most r of 64 bits differ in at most r // 4 bits of at least
    one of their four 16-bit bands. So each band has a table from its value to the entries,
    which is looked up under every value that near, and the distance of what is found is
    computed. For a fixed index the time of a query does not depend on how many there are.

    Args:
        hashes: uint64 `(M,)`, the entries.
        radius: The greatest distance, in bits.

    Raises:
        ValueError: If the radius is not in [0, 15].
    """

    def __init__(self, hashes, radius):
        if not 0 <= radius <= MAX_RADIUS:
            raise ValueError(
                f"The distance must be in [0, {MAX_RADIUS}] bits. Received: distance={radius}"
            )
        self._radius = radius
        self._hashes = np.ascontiguousarray(hashes, np.uint64)
        self._patterns = np.flatnonzero(radius // _BANDS >= _ONES).astype(np.uint16)
        self._tables = []
        for band in _bands(self._hashes).T:
            order = np.argsort(band, kind="stable")
            starts = np.searchsorted(band[order], np.arange(_NUM_KEYS + 1))
            self._tables.append((order, starts))

    def search(self, queries):
        """Returns pairs of a query and an entry that are near, and their distances.

        Args:
            queries: uint64 `(Q,)`.

        Returns:
            Three integer arrays `(P,)`: query indices ascending, entry indices ascending
            for each query, distances in bits.
        """
        queries = np.ascontiguousarray(queries, np.uint64)
        found = []
        for band, (order, starts) in zip(_bands(queries).T, self._tables, strict=True):
            keys = (band[:, np.newaxis] ^ self._patterns).astype(np.int64)
            begins, counts = starts[keys].ravel(), (starts[keys + 1] - starts[keys]).ravel()
            query = np.repeat(np.repeat(np.arange(len(queries)), len(self._patterns)), counts)
            # Positions begin, begin + 1, ... for each key that has entries.
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            entry = order[np.repeat(begins, counts) + within]
            near = distances(queries[query], self._hashes[entry]) <= self._radius
            found.append(query[near] * len(self._hashes) + entry[near])
        pairs = np.unique(np.concatenate(found))  # A pair may be near in several bands.
        query, entry = np.divmod(pairs, max(len(self._hashes), 1))
        return query, entry, distances(queries[query], self._hashes[entry])


def distances(first, second):
    """Returns how many bits differ between uint64 arrays `(P,)`, pair by pair."""
    return _ONES[_bands(first ^ second)].sum(axis=1)


def _bands(hashes):
    return np.ascontiguousarray(hashes).view(np.uint16).reshape(-1, _BANDS)
