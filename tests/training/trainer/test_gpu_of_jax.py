"""What a GPU under JAX changes, on a CPU that says it is one."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

import makers
from keras_vit.layers import fused_attention
from keras_vit.layers.encoder_block import ACTIVATIONS
from keras_vit.training import SGD, NonFiniteError, Trainer
from keras_vit.training.trainer import data_adapter

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX's devices"),
]


@pytest.fixture
def gpu(monkeypatch):
    device = SimpleNamespace(platform="gpu", compute_capability="9.0")
    monkeypatch.setattr(fused_attention, "device_of_jax", lambda: device)
    monkeypatch.setattr(fused_attention, "_cudnn_is_right", lambda *shape: False)


@pytest.fixture
def half():
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy("float32")


def trainer(**options):
    import keras_vit

    keras.utils.set_random_seed(0)
    model = keras_vit.build(
        makers.tiny_config(), classes=3, classifier_activation=None, input_shape=(8, 8, 3)
    )
    made = Trainer(model, **options)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(SGD(0.1), loss)
    return made


def data(count=12):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (count, 8, 8, 3)).astype("float32"), np.arange(count) % 3


def trained(**options):
    made = trainer()
    images, labels = data()
    history = made.fit(images, labels, batch_size=4, epochs=2, shuffle=False, verbose=0, **options)
    return history.history["loss"], made.predict(images, batch_size=5, verbose=0)


def test_two_devices_get_the_same_batches(gpu):
    with keras.distribution.DataParallel().scope():
        losses, outputs = trained()
    others, expected = trained()
    np.testing.assert_allclose(losses, others, rtol=1e-5)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


@pytest.fixture
def sent(monkeypatch):
    """The types and the number of the arrays that went to the device."""
    import jax

    types = []
    put = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda x, *to: types.append(str(x.dtype)) or put(x, *to))
    return types


def test_half_precision_crosses_the_bus_and_gives_the_same_numbers(half, monkeypatch, sent):
    expected = trained()
    assert "bfloat16" not in sent
    monkeypatch.setattr(fused_attention, "compute_capability", lambda: 9.0)
    assert str(trained()) == str(expected)
    assert "bfloat16" in sent


def test_full_precision_crosses_the_bus_as_it_is(gpu, sent):
    trained()
    assert set(sent) <= {"float32", "int32", "int64", "uint8", "uint32"}


def test_two_batches_are_on_their_way_while_one_computes(gpu):
    read = []

    def batches():
        for number in range(5):
            read.append(number)
            yield (np.full((1, 2), number, "float32"),)

    received = data_adapter.ahead(batches(), "float32")
    next(received)
    assert read == [0, 1, 2]
    assert [int(images[0, 0]) for images in received] == [1, 2, 3, 4]


def test_predictions_are_sent_in_the_type_of_the_model(half, monkeypatch, sent):
    from keras_vit.training.evaluation.predictions import predictions

    model, (images, labels) = trainer().model, data()
    batches = [(images[:5], labels[:5]), (images[5:9], labels[5:9])]
    expected = [outputs for outputs, _ in predictions(model, batches, 9)]
    monkeypatch.setattr(fused_attention, "compute_capability", lambda: 9.0)
    del sent[:]
    outputs = [outputs for outputs, _ in predictions(model, batches, 9)]
    np.testing.assert_array_equal(np.concatenate(outputs), np.concatenate(expected))
    assert sent[:2] == ["bfloat16"] * 2


def test_images_of_layers_in_front_stay_as_they_are(half):
    import keras_vit
    from keras_vit.description import input_dtype

    model = keras_vit.build(makers.tiny_config(), classes=3, input_shape=(8, 8, 3))
    assert input_dtype(model) == "bfloat16"
    images = keras.Input((8, 8, 3))
    scaled = keras.layers.Rescaling(2.0, dtype="float32")(images)
    assert input_dtype(keras.Model(images, model(scaled))) == "float32"


def test_a_step_that_is_not_finite_is_named_although_the_next_is_under_way(gpu):
    images, labels = data()
    images[4:8] = np.nan
    with pytest.raises(NonFiniteError, match="step 2"):
        trainer().fit(images, labels, batch_size=4, shuffle=False, verbose=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_an_activation_that_is_computed_again_are_autodiffs(gpu, name):
    import jax

    from keras_vit.layers.encoder_block import TRAINED_ACTIVATIONS

    x = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
    again, plain = (
        jax.jit(jax.grad(lambda x, f=f: keras.ops.sum(keras.ops.sin(f(x)))))(x)
        for f in (TRAINED_ACTIVATIONS[name], ACTIVATIONS[name])
    )
    np.testing.assert_allclose(again, plain, rtol=1e-6, atol=1e-6)


def test_second_derivatives_of_an_activation_that_is_computed_again_are_the_same(gpu):
    import jax

    from keras_vit.layers.encoder_block import TRAINED_ACTIVATIONS

    x = np.random.default_rng(0).normal(size=(6,)).astype("float32")
    again, plain = (
        jax.jacrev(jax.grad(lambda x, f=f: keras.ops.sum(keras.ops.sin(f(x)))))(x)
        for f in (TRAINED_ACTIVATIONS["tanh"], ACTIVATIONS["tanh"])
    )
    np.testing.assert_allclose(again, plain, rtol=1e-5, atol=1e-5)


def test_a_step_is_compiled_once(gpu, half, caplog):
    import jax

    made, (images, labels) = trainer(), data()
    with jax.log_compiles():
        for _ in range(2):
            made.fit(images, labels, batch_size=4, verbose=0)
    compiled = [record for record in caplog.records if "Compiling jit(_train)" in record.message]
    assert len(compiled) == 1


@pytest.fixture
def kernel(monkeypatch, gpu):
    """A GPU whose kernel of attention works."""
    monkeypatch.setattr(fused_attention, "_cudnn_is_right", lambda *shape: True)


def settings_of(**options):
    from keras_vit.training.settings import FineTuning

    return FineTuning(image_size=224, batch_size=256, **options)


def test_auto_is_half_precision_on_a_gpu_that_has_it(gpu):
    from keras_vit.training.run.machine import Machine, choose_precision

    given = [settings_of(), settings_of(strategy="cpu"), settings_of(precision="float32")]
    chosen = [choose_precision(settings, Machine.of(settings)) for settings in given]
    assert [each.precision for each in chosen] == ["mixed_bfloat16", "float32", "float32"]


def test_auto_is_single_precision_on_a_cpu():
    from keras_vit.training.run.machine import Machine, choose_precision

    settings = settings_of()
    assert choose_precision(settings, Machine.of(settings)).precision == "float32"


def test_the_plan_names_the_kernel_and_how_a_run_resumes(kernel):
    from keras_vit import configs
    from keras_vit.training.run.machine import facts_of_computation

    config = configs.resolve("ViT-B/16")
    facts = facts_of_computation(settings_of(precision="mixed_bfloat16"), config)
    assert facts["attention"].value == "cuDNN's kernel"
    assert facts["resumes"].value == "to rounding, not bit for bit"
    assert "attention" not in facts_of_computation(settings_of(precision="float32"), config)


def test_on_a_cpu_the_plan_has_no_facts_of_the_computation():
    from keras_vit import configs
    from keras_vit.training.run.machine import facts_of_computation

    settings = settings_of(precision="mixed_bfloat16")
    assert not facts_of_computation(settings, configs.resolve("ViT-B/16"))


def test_a_run_that_began_with_the_plain_path_keeps_it(kernel):
    from keras_vit import configs
    from keras_vit.description.run_record import Fact, RunRecord
    from keras_vit.training.run.machine import attention_as_it_began, attention_kernel

    settings, config = settings_of(precision="mixed_bfloat16"), configs.resolve("ViT-B/16")
    with attention_as_it_began(RunRecord(job="finetune")):
        assert attention_kernel(settings, config) is None
    with attention_as_it_began(RunRecord(job="finetune", facts={"attention": Fact("", "")})):
        assert attention_kernel(settings, config) is not None
    assert attention_kernel(settings, config) is not None


def test_the_memory_of_a_step_is_what_an_h200_took(kernel, monkeypatch):
    from keras_vit import configs
    from keras_vit.training.run.machine import step_memory

    settings, config = settings_of(precision="mixed_bfloat16"), configs.resolve("ViT-B/16")
    assert 16.5e9 <= step_memory(settings, config, 256) <= 1.3 * 16.5e9
    keras.config.disable_flash_attention()
    plain = step_memory(settings, config, 256)
    keras.config.enable_flash_attention()
    assert 28.8e9 <= plain <= 1.4 * 28.8e9


def test_a_batch_of_512_at_384_pixels_is_split_for_80_gb(kernel):
    from keras_vit import configs
    from keras_vit.training.run.machine import choose_accumulation
    from keras_vit.training.settings import FineTuning

    settings = FineTuning(image_size=384, batch_size=512, precision="mixed_bfloat16")
    found = choose_accumulation(settings, configs.resolve("ViT-B/16"), available=60 * 10**9)
    assert found.accumulate == 4


@pytest.fixture
def compiled_programs(monkeypatch, tmp_path):
    """Where JAX keeps compiled programs, after a command has asked for it."""
    import jax

    from keras_vit.training.trainer import jax_backend

    names = (
        "jax_compilation_cache_dir",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
    )
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    yield jax_backend.keep_compiled_programs
    for name, value in before.items():
        jax.config.update(name, value)


def test_compiled_programs_are_kept_in_a_bounded_folder_of_the_user(
    gpu, compiled_programs, tmp_path
):
    import jax

    compiled_programs()
    folder = tmp_path / "keras_vit" / "compiled"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert jax.config.jax_compilation_cache_max_size == 2 * 2**30


def test_without_a_gpu_no_compiled_programs_are_kept(compiled_programs):
    import jax

    compiled_programs()
    assert jax.config.jax_compilation_cache_dir is None
