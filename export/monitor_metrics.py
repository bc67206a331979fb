"""The metrics of a server's monitor for Prometheus, made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from keras_vit.description.decision import UNKNOWN
from keras_vit.monitoring.monitor import Monitor
from keras_vit.monitoring.signals import FAMILIARITY, PROBABILITY, odds_number

_PROBABILITIES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
_FAMILIARITIES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8)


class MonitorMetrics:
    """A collector of a `CollectorRegistry`.

    Args:
        monitor: The monitor.
        core: The module `prometheus_client.core`.
    """

    def __init__(self, monitor: Monitor, core: Any):
        self._monitor, self._core = monitor, core

    def collect(self) -> Iterator[Any]:
        """Yields the metrics."""
        core, monitor = self._core, self._monitor
        martingales = monitor.martingales
        answers = core.CounterMetricFamily(
            "keras_vit_answers", "Photos by the answer, or by label.", labels=["answer"]
        )
        for name in monitor.classifier.class_names:
            answers.add_metric([name], monitor.answers[name])
        yield answers
        photos = martingales.photos
        share = monitor.answers[UNKNOWN] / photos if photos else 0.0
        yield self._gauge("keras_vit_unknown_share", "Share of photos answered unknown.", share)
        yield core.HistogramMetricFamily(
            "keras_vit_probability",
            "Calibrated probability of the most probable class.",
            buckets=self._probability_buckets(),
            sum_value=None,
        )
        if FAMILIARITY in martingales.bags:
            yield core.HistogramMetricFamily(
                "keras_vit_familiarity",
                "Share of reference photos that are at least as strange.",
                buckets=self._familiarity_buckets(),
                sum_value=None,
            )
        logs = core.GaugeMetricFamily(
            "keras_vit_drift_log_martingale",
            "Natural logarithm of a conformal test martingale.",
            labels=["signal"],
        )
        alarms = core.GaugeMetricFamily(
            "keras_vit_drift_alarm", "Whether it ever reached the limit.", labels=["signal"]
        )
        alarming = martingales.alarms(monitor.alarm_level)
        for name, value in zip(martingales.bags, martingales.logs.tolist(), strict=True):
            logs.add_metric([name], value)
            alarms.add_metric([name], float(name in alarming))
        yield logs
        yield alarms
        limit = martingales.limit(monitor.alarm_level)
        yield self._gauge("keras_vit_drift_limit", "The logarithm that raises the alarm.", limit)
        yield self._gauge("keras_vit_monitored_images", "Photos since the monitor began.", photos)
        yield self._gauge(
            "keras_vit_monitor_seconds", "Time of the monitor in this process.", monitor.seconds
        )

    def _gauge(self, name, documentation, value):
        return self._core.GaugeMetricFamily(name, documentation, value=value)

    def _probability_buckets(self):
        counts = self._monitor.stream_counts(PROBABILITY)
        limits = [odds_number(probability) for probability in _PROBABILITIES]
        return _buckets(_PROBABILITIES, limits, counts)

    def _familiarity_buckets(self):
        reference = self._monitor.reference
        limits, below = [], 0
        remaining = list(reference.counts[FAMILIARITY].items())
        for share in _FAMILIARITIES:
            while remaining and below + remaining[0][1] <= share * reference.images:
                below += remaining.pop(0)[1]
            limits.append(remaining[0][0] - 1 if remaining else 10**6)
        return _buckets(_FAMILIARITIES, limits, self._monitor.stream_counts(FAMILIARITY))


def _buckets(bounds: Sequence[float], limits: Sequence[int], counts: dict[int, int]):
    """The cumulative buckets of Prometheus: photos whose number is at most each limit."""
    pairs = [
        (str(bound), float(sum(count for number, count in counts.items() if number <= limit)))
        for bound, limit in zip(bounds, limits, strict=True)
    ]
    return [*pairs, ("+Inf", float(sum(counts.values())))]
