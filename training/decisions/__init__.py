"""Decisions of a classifier: when it answers, with a bound on its errors, and when it does not."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
