import numpy as np
import pytest

from by_hand import array, randomized, tokens
from keras_vit.layers import AttentionPooling

DIM, HEADS, HIDDEN = 6, 2, 5


def numpy_pooling(layer, tokens, epsilon=1e-6):
    """The equations of the docstring as loops."""
    probe = array(layer.probe)[0, 0]
    outputs = []
    for z in tokens:
        mixed = np.zeros((HEADS, DIM // HEADS))
        for h in range(HEADS):
            query = probe @ array(layer.query.kernel)[:, h] + array(layer.query.bias)[h]
            keys = z @ array(layer.key.kernel)[:, h] + array(layer.key.bias)[h]
            values = z @ array(layer.value.kernel)[:, h] + array(layer.value.bias)[h]
            logits = keys @ query / np.sqrt(DIM // HEADS)
            weights = np.exp(logits - logits.max())
            mixed[h] = (weights / weights.sum()) @ values
        x = np.einsum("he,hed->d", mixed, array(layer.out.kernel)) + array(layer.out.bias)
        normed = (x - x.mean()) / np.sqrt(x.var() + epsilon)
        normed = normed * array(layer.norm.gamma) + array(layer.norm.beta)
        first, second = layer.mlp.dense_1, layer.mlp.dense_2
        hidden = normed @ array(first.kernel) + array(first.bias)
        hidden = hidden / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
        outputs.append(x + hidden @ array(second.kernel) + array(second.bias))
    return np.stack(outputs)


def test_the_probe_attends_and_an_mlp_follows():
    layer, z = randomized(AttentionPooling(HEADS, HIDDEN), (None, None, DIM)), tokens(2, 5, DIM)
    np.testing.assert_allclose(array(layer(z)), numpy_pooling(layer, z), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="num_heads=4, token size=6"):
        AttentionPooling(4, HIDDEN).build((None, None, DIM))
