"""Training that gives the same numbers on one device, two replicas and two machines.

Importing this package is cheap: a name loads its module, and with it Keras, at first use.
"""

import importlib
from typing import Any

# Public name: the module that holds it.
_LAZY = {
    "SGD": "trainer.optimizer",
    "Adam": "trainer.optimizer",
    "Checkpoints": "run.state",
    "NonFiniteError": "trainer.trainer",
    "SigmoidCrossentropy": "trainer.losses",
    "SoftmaxCrossentropy": "trainer.losses",
    "Trainer": "trainer.trainer",
    "WarmupSchedule": "trainer.schedule",
    "split_batch": "trainer.distribution",
    "strategy": "trainer.distribution",
    "warmup_schedule": "trainer.schedule",
}

_MODULES = ("data", "evaluation", "recipes")

__all__ = [*_LAZY, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
