"""`keras-vit report`: the paper's tables with the results of runs."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command, shared_arguments
from keras_vit.training.evaluation.results import read_results
from keras_vit.training.paper import tables
from keras_vit.utils.fields import REQUIRED, setting
from keras_vit.utils.text_tables import align_columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Collect results into the paper's tables."""

    folders: tuple[str, ...] = setting(
        REQUIRED,
        "folders with result files or classifiers' folders, subfolders included",
        unit="DIR",
        positional=True,
    )
    output: str | None = setting(
        None, "write report.md, and a CSV file and a picture per table", unit="DIR"
    )
    task: tuple[str, ...] = shared_arguments.tasks()
    no_pictures: bool = shared_arguments.no_pictures()

    without_tensorflow = True

    def run(self) -> None:
        """Prints the tables, and writes them if --output is given."""
        results = [found for _, found in read_results(self.folders, self.task)]
        print(align_columns(tables.list_results(results)), end="\n\n")
        try:
            made = tables.make_tables(results)
        except ValueError as error:
            print(error)
            made = []
        for table in made:
            print(table.to_markdown())
        if self.output:
            written = tables.write_report(self.output, made, results, pictures=not self.no_pictures)
            for path in written:
                print(f"written {path}")
