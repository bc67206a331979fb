"""Flags that are made from the fields of settings."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining
from keras_vit.utils.fields import add_arguments, field_info, given_fields


def parsed(settings_type, *flags):
    parser = argparse.ArgumentParser()
    add_arguments(parser, settings_type)
    return parser.parse_args([str(flag) for flag in flags])


def settings(settings_type, *flags):
    return settings_type.from_options(given_fields(settings_type, parsed(settings_type, *flags)))


@pytest.mark.parametrize("settings_type", [FineTuning, PreTraining, MaskedPatches, DataSpec])
def test_every_flag_has_help_and_what_its_value_is(settings_type):
    for field in dataclasses.fields(settings_type):
        known = field_info(field)
        assert known.help
        if known.flag != "" and "bool" not in field.type:
            assert known.unit or known.choices, field.name
        assert (known.used is None) == (known.needs == ""), field.name
    if settings_type is not DataSpec:
        assert settings(settings_type) == settings_type()


def test_flags_give_values_of_the_fields_types():
    given = settings(
        FineTuning,
        *("--image-size", "384x512", "--decay", "linear"),
        *("--dropout-rate", 0.5, "--stochastic-depth-rate", 0.1, "--no-jit-compile", "--remat"),
    )
    assert (given.image_size, given.decay) == ((384, 512), "linear")
    assert (given.dropout_rate, given.stochastic_depth_rate) == (0.5, 0.1)
    assert (given.jit_compile, given.remat) == (False, True)
    given = settings(FineTuning, "--global-clipnorm", 0, "--ema-momentum", 0.0, "--weights", "none")
    assert (given.global_clipnorm, given.ema_momentum, given.weights) == (None, None, None)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--lora-rank", 4, "--train", "head"), "--lora-rank .*--train lora"),
        (("--temperature", 2), "--temperature .*--teacher and --distillation"),
        (("--replay-share", 0.3), "--replay-share .*without --replay."),
        (("--momentum", 0.8, "--optimizer", "adam"), "--momentum .*no effect"),
    ],
)
def test_a_flag_without_effect_is_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        settings(FineTuning, *flags)
