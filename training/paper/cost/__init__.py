"""What models cost on the machine at hand: images per second and the largest batch.

Importing this package is cheap: TensorFlow is loaded by the child processes that measure.
"""

from .measure import Plan, benchmark
from .results import Cell, Measurement, Results, read_results

__all__ = ["Cell", "Measurement", "Plan", "Results", "benchmark", "read_results"]
