"""The commands of `keras-vit`, one file each.

A file has a dataclass of settings with `run`, and imports TensorFlow and Keras only inside `run`,
so that `--help` answers at once. Those with `result` are also functions; see `as_functions.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from keras_vit.utils.fields import check_fields, setting

TRAINING_BACKENDS = ("tensorflow", "jax")  # The commands that train run on these.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its fields are its arguments, its docstring is the text of `--help`.

    The first paragraph of the docstring is the summary, the rest stands below the arguments.
    """

    called_as: str = setting("", "the whole command, for the files that a run writes", flag="")
    log: Callable[[str], object] | None = setting(
        print,
        "receives each line about the work while it goes on; None shows neither lines nor progress",
        flag="",
    )

    # Whether it starts at once: it needs no TensorFlow, or starts processes that import it.
    without_tensorflow: ClassVar[bool] = False
    # The backends of Keras that it runs on.
    backends: ClassVar[tuple[str, ...]] = (*TRAINING_BACKENDS, "torch")

    # The flags that `--help` lists, those that people use; all where there are none.
    common_flags: ClassVar[tuple[str, ...]] = ()

    # Whether a run's recipe may say how its data are read, and not the arguments.
    takes_data_of_run: ClassVar[bool] = False

    def __post_init__(self):
        check_fields(self)

    def check_input(self) -> None:
        """Looks for models and data, so that an error comes before TensorFlow is started."""
        from keras_vit.checkpoints.catalogue import check_exists

        for model in self.models:
            check_exists(model)
        self.check_data()

    @property
    def models(self) -> tuple[str | None, ...]:
        """What it opens as models or weights: names, paths, and what is in memory."""
        return ()

    def check_data(self) -> None:
        """Raises ValueError for no data, and for a table or a folder that cannot be read."""
        spec: Any = getattr(self, "data", None)
        if spec is None or getattr(getattr(self, "options", None), "resume", False):
            return
        data = getattr(self, "photos", spec.data)
        if data is None and not self.takes_data_of_run:
            spec.check_given()
        if isinstance(data, str):
            from keras_vit.checkpoints.catalogue import check_is_data
            from keras_vit.training.data.early_checks import check_table

            check_is_data(data)
            decides = self.reads_labels and not self.takes_data_of_run
            classes = self.least_classes if decides else 0
            check_table(dataclasses.replace(spec, data=data), min_classes=classes)

    @property
    def reads_labels(self) -> bool:
        """Whether images must have labels; it may depend on the arguments."""
        return True

    @property
    def least_classes(self) -> int:
        """The classes that labelled data must have; it may depend on the arguments."""
        return 2

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow is imported before it runs; it may depend on the arguments."""
        return not self.without_tensorflow

    def check_backend(self, called: str) -> None:
        """Raises ValueError if it does not run on Keras's backend.

        Args:
            called: The command or the function, for the message.
        """
        import keras

        backend = keras.backend.backend()
        if backend not in self.backends:
            raise ValueError(
                f"{called} must run on Keras's backend {' or '.join(self.backends)} "
                f"(KERAS_BACKEND={self.backends[0]}), which takes what was trained on any other. "
                f"Received: {backend}"
            )

    def note(self, line: str) -> None:
        """Reports a line about the work."""
        if self.log is not None:
            self.log(line)

    def result(self):
        """Does the work and returns what the function of the same name returns."""
        raise NotImplementedError

    def run(self) -> int | None:
        """Runs the command; returns the exit code, None for 0."""
        raise NotImplementedError
