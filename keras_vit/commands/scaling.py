"""`keras-vit scaling`: accuracy by pre-training data and compute, Figures 3, 4 and 5."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command, shared_arguments
from keras_vit.training.evaluation.results import read_results
from keras_vit.utils.fields import REQUIRED, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling(Command):
    """Draw accuracy by pre-training data and compute from results.

    Writes scaling.csv, and each figure that has results as PNG and SVG. The x axes need the
    pre-training in the result files (model.pretraining, pretraining_images, pretraining_epochs,
    pretraining_image_size, pretraining_classes). Runs of this package write these fields; they
    can be added to other files. Missing fields are listed.
    """

    results: tuple[str, ...] = setting(
        REQUIRED,
        "result files, and folders with result files or classifiers' folders",
        unit="RESULTS",
        positional=True,
    )
    output: str = setting(REQUIRED, "the folder to write", unit="DIR")
    task: tuple[str, ...] = shared_arguments.tasks()
    no_paper: bool = setting(False, "leave out the paper's own points (Tables 5, 6)")
    no_pictures: bool = shared_arguments.no_pictures()

    without_tensorflow = True

    def run(self) -> None:
        """Writes the figures and lists the results that are not in them."""
        from keras_vit.training.paper import scaling_figures as scaling

        results = read_results(self.results, self.task)
        points, left_out = scaling.result_points(results)
        if not points:
            raise ValueError(f"No result has what a figure needs. {'; '.join(left_out)}")
        background = [] if self.no_paper else scaling.paper_points()
        written = scaling.write_figures(
            self.output, points, background, pictures=not self.no_pictures
        )
        for line in left_out:
            print(f"left out  {line}")
        for point in points:
            x = f"{point.x:.4g}"
            print(
                f"Figure {point.figure}  {point.model:<16}  {point.task:<20}  "
                f"{point.pretraining:<14}  {x:>10}  {point.accuracy:.2f} %"
            )
        for path in written:
            print(f"written {path}")
