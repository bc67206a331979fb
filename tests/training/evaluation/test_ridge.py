import numpy as np
import pytest

from keras_vit.training.evaluation.ridge import Decomposition, Ridge, one_hot

RNG = np.random.default_rng(0)
TARGETS = RNG.normal(size=(30, 3)) + 2
SHAPES = {"N > D": RNG.normal(size=(30, 7)) + 5, "N < D": RNG.normal(size=(30, 80)) + 5}


def refitted(features, targets, l2, bias):
    """Weights and constant by the normal equations, with the constant as a free column."""
    columns = np.c_[features, np.ones(len(features))] if bias else features
    penalty = np.full(columns.shape[1], l2)
    penalty[features.shape[1] :] = 0
    solution = np.linalg.solve(columns.T @ columns + np.diag(penalty), columns.T @ targets)
    constant = solution[-1] if bias else np.zeros(targets.shape[1])
    return solution[: features.shape[1]], constant


@pytest.fixture(params=SHAPES)
def features(request):
    return SHAPES[request.param]


@pytest.mark.parametrize("bias", [True, False])
def test_leaving_one_out_equals_fitting_without_it(features, bias):
    ridge = Ridge.fit(features, TARGETS, 2.5, bias=bias)
    for row in range(len(features)):
        rest = np.arange(len(features)) != row
        weights, constant = refitted(features[rest], TARGETS[rest], 2.5, bias)
        expected = features[row] @ weights + constant
        np.testing.assert_allclose(ridge.left_out_predictions[row], expected, atol=1e-8)
        residual = TARGETS[row] - expected
        np.testing.assert_allclose(ridge.left_out_residuals[row], residual, atol=1e-8)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [[1, 2, 4, 23], [15, 15], [1] * 28 + [2]])
def test_leaving_a_group_out_equals_fitting_without_it(features, bias, sizes):
    groups = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    ridge = Ridge.fit(features, TARGETS, 2.5, bias=bias, groups=groups)
    for group in range(len(sizes)):
        out = groups == group
        weights, constant = refitted(features[~out], TARGETS[~out], 2.5, bias)
        expected = features[out] @ weights + constant
        np.testing.assert_allclose(ridge.left_out_predictions[out], expected, atol=1e-8)


@pytest.mark.parametrize("bias", [True, False])
def test_weights_solve_the_normal_equations(features, bias):
    ridge = Ridge.fit(features, TARGETS, 2.5, bias=bias)
    weights, constant = refitted(features, TARGETS, 2.5, bias)
    np.testing.assert_allclose(ridge.weights, weights, atol=1e-8)
    np.testing.assert_allclose(ridge.constant, constant, atol=1e-8)
    new = RNG.normal(size=(4, features.shape[1]))
    np.testing.assert_allclose(ridge.predict(new), new @ weights + constant, atol=1e-8)


@pytest.mark.parametrize("bias", [True, False])
def test_leverages_are_the_quadratic_form(features, bias):
    ridge = Ridge.fit(features, TARGETS, 2.5, bias=bias)
    columns = np.c_[features, np.ones(30)] if bias else features
    penalty = np.full(columns.shape[1], 2.5)
    penalty[features.shape[1] :] = 0
    inverse = np.linalg.inv(columns.T @ columns + np.diag(penalty))
    expected = np.einsum("nd,de,ne->n", columns, inverse, columns)
    np.testing.assert_allclose(ridge.leverages, expected, atol=1e-8)
    new = RNG.normal(size=(4, features.shape[1])) * 3
    padded = np.c_[new, np.ones(4)] if bias else new
    expected = np.einsum("nd,de,ne->n", padded, inverse, padded)
    np.testing.assert_allclose(ridge.leverage(new), expected, rtol=1e-8)


def test_a_rows_leverage_gives_its_leverage_as_a_new_row(features):
    ridge = Ridge.fit(features, TARGETS, 2.5)
    without = Ridge.fit(features[1:], TARGETS[1:], 2.5)
    h = ridge.leverages[0]
    np.testing.assert_allclose(without.leverage(features[:1]), h / (1 - h), rtol=1e-8)


def test_the_l2_with_the_smallest_left_out_error_is_chosen(features):
    choices = [0.1, 1.0, 10.0, 100.0, 1000.0]
    alone = [Ridge.fit(features, TARGETS, l2) for l2 in choices]
    expected = [np.square(ridge.left_out_residuals).mean() for ridge in alone]
    ridge = Ridge.fit(features, TARGETS, choices)
    assert ridge.l2 == choices[int(np.argmin(expected))]
    np.testing.assert_array_equal(ridge.weights, alone[int(np.argmin(expected))].weights)


def test_chunks_do_not_change_the_result(features, monkeypatch):
    groups = np.repeat(np.arange(10), 3)
    expected = Ridge.fit(features, TARGETS, 2.5, groups=groups)
    monkeypatch.setattr("keras_vit.training.evaluation.ridge._CHUNK", 4)
    found = Ridge.fit(features, TARGETS, 2.5, groups=groups)
    np.testing.assert_allclose(found.left_out_predictions, expected.left_out_predictions, atol=1e-9)
    np.testing.assert_allclose(found.leverage(features), expected.leverage(features), atol=1e-9)


def test_it_agrees_with_scikit_learn(features):
    linear_model = pytest.importorskip("sklearn.linear_model")
    expected = linear_model.Ridge(alpha=2.5, solver="svd").fit(features, TARGETS)
    found = Ridge.fit(features, TARGETS, 2.5)
    np.testing.assert_allclose(found.weights, expected.coef_.T, atol=1e-8)
    cross = linear_model.RidgeCV([2.5], store_cv_results=True).fit(features, TARGETS)
    np.testing.assert_allclose(
        np.square(found.left_out_residuals), cross.cv_results_[:, :, 0], atol=1e-8
    )


def test_float32_features_are_computed_in_float64():
    features = SHAPES["N > D"].astype("float32")
    expected = Ridge.fit(features.astype("float64"), TARGETS, 2.5)
    found = Ridge.fit(features, TARGETS, 2.5)
    np.testing.assert_array_equal(found.left_out_residuals, expected.left_out_residuals)


def test_equal_features_have_no_weights():
    ridge = Ridge.fit(np.ones((5, 9)), TARGETS[:5], 1.0)
    np.testing.assert_allclose(ridge.weights, 0)
    np.testing.assert_allclose(ridge.constant, TARGETS[:5].mean(axis=0))


def test_one_hot_has_a_column_for_each_class():
    np.testing.assert_array_equal(one_hot([1, 0], 3), [[0, 1, 0], [1, 0, 0]])
    assert one_hot([1, 0]).shape == (2, 2)


def test_wrong_arguments_are_refused():
    features = SHAPES["N > D"]
    with pytest.raises(ValueError, match="N at least 2"):
        Decomposition(features[:1])
    with pytest.raises(ValueError, match="finite"):
        Decomposition(np.where(features > 6, np.nan, features))
    decomposition = Decomposition(features)
    with pytest.raises(ValueError, match=r"\(30, K\). Received: shape=\(29, 3\)"):
        decomposition.ridge(TARGETS[:-1], 1.0)
    for wrong in (0.0, [], [1.0, -1.0], np.nan, np.inf):
        with pytest.raises(ValueError, match="l2 must be positive"):
            decomposition.ridge(TARGETS, wrong)
    with pytest.raises(ValueError, match="one group"):
        decomposition.ridge(TARGETS, 1.0, groups=np.zeros(30))
    with pytest.raises(ValueError, match="30 groups"):
        decomposition.ridge(TARGETS, 1.0, groups=np.zeros(29))
    with pytest.raises(ValueError, match=r"\(M, 7\)"):
        decomposition.ridge(TARGETS, 1.0).leverage(features[:, :5])
