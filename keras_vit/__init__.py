"""Image classifiers with the Vision Transformer (arXiv 2010.11929) in Keras.

    keras_vit.check("photos")                              # what is wrong with labelled photos
    keras_vit.finetune("photos", "runs/photos")            # a classifier of them, and its accuracy
    classifier = keras_vit.load_classifier("runs/photos")  # or "imagenet", "cifar10", an export
    classifier("cat.jpg").label                            # the answer to a photo
    model = keras_vit.ViTB16()                             # a Keras model, as keras.applications'

`help(keras_vit.finetune)` and so on have the arguments. More models are in keras_vit.applications,
configs in keras_vit.configs, training in Keras in keras_vit.training, export formats in
keras_vit.export. The pages are in docs/; docs/python.md is the first.
"""

import re

import lazy_loader

from keras_vit._installation import check_installation, folders_of_package, when_imported
from keras_vit._version import __version__ as __version__

# A name loads its module, and with it Keras, at first use. The names are in __init__.pyi.
_loaded, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    try:
        return _loaded(name)
    except AttributeError as error:
        from keras_vit.utils.synonyms import FUNCTIONS, MODULES

        if name in __all__:
            raise
        if name in FUNCTIONS:
            raise AttributeError(f"{error}. {FUNCTIONS[name].answer()}") from None
        for pattern, module in MODULES.items():
            if re.fullmatch(pattern, name):
                raise AttributeError(f"{error}. It is {__name__}.{module}.{name}") from None
        raise


__path__ = folders_of_package()
check_installation()
when_imported(("keras",), "keras_vit.layers")
# Not right after Keras, which these may be the first to import: the trainer needs them whole.
when_imported(("keras_vit.layers", "keras_vit.keras_private"), "keras_vit.training.trainer")
