"""The Vision Transformer (arXiv 2010.11929) as a Keras applications module.

Importing this package is cheap: a name loads its module, and with it Keras, at first use. The
names are listed in `__init__.pyi`, for `lazy_loader` and for type checkers alike.
"""

import lazy_loader

from keras_vit._installation import check_installation, folders_of_package, when_imported
from keras_vit._version import __version__ as __version__

_loaded, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    try:
        return _loaded(name)
    except AttributeError as error:
        from keras_vit.utils.synonyms import FUNCTIONS

        if name not in FUNCTIONS or name in __all__:
            raise
        raise AttributeError(f"{error}. {FUNCTIONS[name].answer()}") from None


__path__ = folders_of_package()
check_installation()
when_imported(("keras",), "keras_vit.layers")
# Not right after Keras, which these may be the first to import: the trainer needs them whole.
when_imported(("keras_vit.layers", "keras_vit.keras_private"), "keras_vit.training.trainer")
