"""The error of a missing optional package."""

import pytest

from keras_vit._installation import import_optional


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(
        ImportError, match=r'A test needs .* no_such: pip install -e "\.\[export\]"'
    ):
        import_optional("no_such.module", "A test", "export")


def test_a_package_without_an_extra_is_installed_by_its_name():
    with pytest.raises(ImportError, match=r"no_such: pip install no_such \("):
        import_optional("no_such.module", "A test", extra="")
