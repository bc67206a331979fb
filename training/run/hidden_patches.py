"""Pre-training without labels, by hidden patches; the paper's section 4.6."""

from __future__ import annotations

import dataclasses
from typing import cast

import keras

from keras_vit import configs
from keras_vit.classifier_folder import write_without_classes
from keras_vit.configs.recognition import config_of
from keras_vit.description.run_record import RunRecord
from keras_vit.models.rebuild import inference_model
from keras_vit.opening import OpenedModel
from keras_vit.training.settings import OBJECTIVE, MaskedPatches, Settings
from keras_vit.training.trainer.trainer import Trainer

from .card import masked_patch_card
from .masked_patches import check_masked_patches, make_masked_patch_trainer, masked_patch_model
from .objective import Finished, Objective, config_to_train
from .plan import Plan


class HiddenPatches(Objective):
    """What hidden patches of images show; paper, section 4.6."""

    settings: MaskedPatches

    @property
    def reading(self) -> dict[str, bool | int]:
        return {"labelled": False}

    def weights(self, given: Settings) -> OpenedModel:
        weights = super().weights(given)
        check_masked_patches(weights.description.config, self.settings)
        return weights

    def build(self, plan: Plan) -> tuple[keras.Model, str]:
        model = masked_patch_model(
            cast(configs.ViTConfig, config_to_train(plan)),  # `check_masked_patches`.
            image_size=plan.settings.image_size,
            target=self.settings.target,
            corruption=self.settings.corruption,
        )
        return model, "random"

    def trainer(self, model: keras.Model, plan: Plan) -> Trainer:
        return make_masked_patch_trainer(model, plan.settings, self.settings.target)

    def finish(self, run, plan, model, history, contents):
        folder = run.folder
        record = run.finished_record(plan, RunRecord(objective=OBJECTIVE))
        name = configs.layer_name(plan.description.name)
        plain = inference_model(model, include_top=False, name=name)
        described = dataclasses.replace(plan.description, config=config_of(plain))
        card = masked_patch_card(record, history)
        write_without_classes(folder.path, plain, described, record.to_json(), history, card)
        run.publish(plan.source)
        if folder.writes:
            command = f"keras-vit finetune --weights {folder.output}"
            run.options.log(f"written {folder.output}; give it classes with {command}")
        return Finished(folder.output, history, plain)
