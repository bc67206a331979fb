import numpy as np
import pytest

from keras_vit.training.evaluation.ridge import Decomposition, one_hot

RNG = np.random.default_rng(0)
TARGETS = RNG.normal(size=(30, 3)) + 2
SHAPES = {"N > D": RNG.normal(size=(30, 7)) + 5, "N < D": RNG.normal(size=(30, 80)) + 5}


def fit(features, targets, l2, groups=None):
    return Decomposition(features).ridge(targets, l2, groups=groups)


def refitted(features, targets, l2):
    """Weights and constant by the normal equations, with the constant as a free column."""
    columns = np.c_[features, np.ones(len(features))]
    penalty = np.full(columns.shape[1], l2)
    penalty[-1] = 0
    solution = np.linalg.solve(columns.T @ columns + np.diag(penalty), columns.T @ targets)
    return solution[:-1], solution[-1]


@pytest.fixture(params=SHAPES)
def features(request):
    return SHAPES[request.param]


@pytest.mark.parametrize("sizes", [[1] * 30, [1, 2, 4, 23], [15, 15], [1] * 28 + [2]])
def test_leaving_a_group_out_equals_fitting_without_it(features, sizes):
    groups = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    ridge = fit(features, TARGETS, 2.5, groups)
    for group in range(len(sizes)):
        out = groups == group
        weights, constant = refitted(features[~out], TARGETS[~out], 2.5)
        expected = features[out] @ weights + constant
        np.testing.assert_allclose(ridge.left_out_predictions[out], expected, atol=1e-8)
        residual = TARGETS[out] - expected
        np.testing.assert_allclose(ridge.left_out_residuals[out], residual, atol=1e-8)


def test_the_l2_with_the_smallest_left_out_error_is_chosen(features):
    choices = [0.1, 1.0, 10.0, 100.0, 1000.0]
    alone = [fit(features, TARGETS, l2) for l2 in choices]
    expected = [np.square(ridge.left_out_residuals).mean() for ridge in alone]
    ridge = fit(features, TARGETS, choices)
    assert ridge.l2 == choices[int(np.argmin(expected))]
    np.testing.assert_array_equal(ridge.weights, alone[int(np.argmin(expected))].weights)


def test_it_agrees_with_scikit_learn(features):
    linear_model = pytest.importorskip("sklearn.linear_model")
    expected = linear_model.Ridge(alpha=2.5, solver="svd").fit(features, TARGETS)
    found = fit(features, TARGETS, 2.5)
    np.testing.assert_allclose(found.weights, expected.coef_.T, atol=1e-8)
    cross = linear_model.RidgeCV([2.5], store_cv_results=True).fit(features, TARGETS)
    np.testing.assert_allclose(
        np.square(found.left_out_residuals), cross.cv_results_[:, :, 0], atol=1e-8
    )


def test_one_hot_rows_need_memory_of_rows_times_classes_alone():
    rows = one_hot([0, 99_999], 100_000)  # A square of the classes would be 80 GB.
    assert rows.shape == (2, 100_000)
    assert np.argwhere(rows).tolist() == [[0, 0], [1, 99_999]]
