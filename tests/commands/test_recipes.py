from keras_vit.training.recipes import RECIPES


def test_every_recipe_has_a_line(command):
    done = command("recipes")
    assert done.code == 0
    for name in RECIPES:
        assert any(line.startswith(f"{name}  ") for line in done.out.splitlines()), name
    assert "BiT HyperRule" in done.out
    assert "0.001, 0.003, 0.01, 0.03" in done.out


def test_a_name_prints_all_values_also_scaled(command):
    done = command("recipes", "oxford flowers-102", "bit hyperrule", "--scale", "0.01")
    assert "for keras-vit finetune" in done.out
    assert "  batch_size = 64" in done.out
    assert "20,000" in done.out


def test_an_unknown_name_names_the_nearest(refused):
    assert "CIFAR-10, CIFAR-100" in refused("recipes", "CIFAR")
    assert "scale must be in (0, 1]" in refused("recipes", "--scale", 2)
