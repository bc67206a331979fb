"""The Vision Transformer (arXiv 2010.11929) as a Keras applications module.

Importing this package is cheap: a name loads its module, and with it Keras, at first use. The
names are listed in `__init__.pyi`, for `lazy_loader` and for type checkers alike.
"""

import lazy_loader

from keras_vit._installation import check_installation, folders_of_package, when_keras_is_imported
from keras_vit._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__path__ = folders_of_package()
check_installation()
when_keras_is_imported("keras_vit.layers", "keras_vit.training.trainer")
