"""All optimizers on one data set: a table, and the loss against the learning rate."""

from __future__ import annotations

from pathlib import Path

from gradgroup.experiments._reproduce import HIGHEST, LOSS
from gradgroup.experiments.figures import Frame, plot_panels, save
from gradgroup.experiments.report import _graphs as graphs
from gradgroup.experiments.report._scores import scores_of, write_csv
from gradgroup.experiments.report._tables import HEAD, NUMBERS, aligned, rows
from gradgroup.experiments.report._words import title
from gradgroup.experiments.study import Store, sweep
from gradgroup.experiments.study._jobs import images_of
from gradgroup.experiments.study._plans import Level, sensitivity


def compare(
    name: str, epochs: int, seeds: int, folder: Path, data_dir: Path | None, jobs: int | None
) -> str:
    """Do what is not done yet, and draw the figure; what is to be said of it.

    Parameters
    ----------
    name : str
        The data set.
    epochs, seeds : int
        How long each run is, and how many there are of each.
    folder : Path
        Where all is kept.
    data_dir : Path, optional
        Where data are looked for first.
    jobs : int, optional
        Processes.
    """
    images = images_of(name, data_dir)
    level = Level("compare", seeds, epochs, epochs)
    runs = sweep(sensitivity(name, level), Store(folder / "runs.jsonl"), jobs=jobs, folder=data_dir)
    scores = scores_of(runs)
    write_csv(folder / "results.csv", scores)
    heading = title(name, images.outputs * images.x.shape[1])
    frame = Frame("Learning rate", LOSS, "log", "log", HIGHEST)
    figure = plot_panels([graphs.sensitivity(scores, name, heading)], frame)
    png, svg = save(figure, folder / "sensitivity")
    return "\n".join(
        [
            f"{heading}: {epochs} epochs, {seeds} seeds",
            "",
            aligned(HEAD, rows(scores, name), NUMBERS),
            "",
            "Loss in training: the mean over all steps of the loss where gradients are taken. A "
            "star:",
            "the best rate is at an end of those that were tried, and one beyond may be better.",
            "",
            f"The figure is {png} and {svg}, all scores are in {folder / 'results.csv'}.",
        ]
    )
