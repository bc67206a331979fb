"""Attention, position embeddings and filters of a model: figures 6, 7, 10, 11, 14 of the paper.

Functions return NumPy arrays; for each there is a function `draw_*` that returns a
`matplotlib.figure.Figure`. Images are preprocessed, `(B, H, W, C)`, as
`Classifier.preprocess` returns them. The modules `rollouts` and `position_embeddings` are not
named like the functions `rollout` and `position_similarity`, which would hide them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
