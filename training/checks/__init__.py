"""Checks of labelled photos before training: labels, copies, shortcuts, odd images."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
