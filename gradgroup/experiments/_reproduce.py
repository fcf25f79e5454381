"""The whole evaluation: runs, measurements, figures, report.

The idea. Each part takes what the one before has left, in a folder: ``runs.jsonl``, the runs;
``measured.json``, times and memory; ``results.csv``, all scores; ``figures/``; and the report in
two forms. All but the runs takes a minute, and is made anew each time.
"""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from gradgroup.experiments import datasets
from gradgroup.experiments.datasets import Images
from gradgroup.experiments.engine import BATCH, GROUPING
from gradgroup.experiments.figures import Frame, Panel, idea_info, plot_idea, plot_panels, save
from gradgroup.experiments.report import _graphs as graphs
from gradgroup.experiments.report._claims import Claim, Evidence, judge
from gradgroup.experiments.report._document import Picture
from gradgroup.experiments.report._measure import measured
from gradgroup.experiments.report._report import Figures, Study, write
from gradgroup.experiments.report._scores import scores_of, write_csv
from gradgroup.experiments.report._words import title
from gradgroup.experiments.study import Store, sweep
from gradgroup.experiments.study._jobs import images_of, mark_of
from gradgroup.experiments.study._plans import DEFAULT, PAPER, QUICK, Level, everything
from gradgroup.experiments.study._store import Key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = "runs.jsonl"
LEVELS = {level.name: level for level in (QUICK, DEFAULT, PAPER)}
LOSS = "Mean loss over the training phase"
# Ten times the loss of a model that knows nothing of ten classes: what is above does not matter.
HIGHEST = 10.0 * math.log(10.0)


def present(folder: Path | None) -> list[str]:
    """The data sets that are here."""
    return [data.name for data in datasets.inventory(folder) if data.found is not None]


def absent(folder: Path | None) -> list[tuple[str, str]]:
    """Those that are not, and how to get them."""
    return [(data.name, data.advice) for data in datasets.inventory(folder) if data.found is None]


def announcement(level: Level, names: Sequence[str], folder: Path, data_dir: Path | None) -> str:
    """What is about to be done, once it is sure that it can be."""
    known = Store(folder / RUNS).runs
    keys = [Key(mark_of(s.data, data_dir), s) for s in everything(names, level)]
    done = sum(key in known for key in keys)
    told = f"{', '.join(names)}: {len(keys)} runs, {done or 'none'} of them done."
    left = [name for name, _ in absent(data_dir) if name not in names]
    hint = f" Not here, see `gradgroup data`: {', '.join(left)}." if left else ""
    return f"Level {level.name}, on {told}{hint}"


def reproduce(
    level: Level, names: Sequence[str], folder: Path, data_dir: Path | None, jobs: int | None
) -> tuple[list[Claim], Path, Path]:
    """Do what is not done yet, and write the report; the claims, and where the report is.

    Parameters
    ----------
    level : Level
        How much of everything.
    names : sequence of str
        The data sets.
    folder : Path
        Where all is kept.
    data_dir : Path, optional
        Where data are looked for first.
    jobs : int, optional
        Processes.
    """
    store = Store(folder / RUNS)
    runs = sweep(everything(names, level), store, jobs=jobs, folder=data_dir)
    images = [images_of(name, data_dir) for name in names]
    scores = scores_of(runs)
    evidence = Evidence(scores, tuple(names), measured(folder / "measured.json", images))
    write_csv(folder / "results.csv", scores)
    hours = sum(store.seconds[Key(mark_of(s.data, data_dir), s)] for s in runs) / 3600.0
    samples = {data.name: len(data.x) for data in images}
    study = Study(level, evidence, samples, tuple(absent(data_dir)), hours)
    page, text = write(study, draw(level, evidence, images, folder / "figures"), folder)
    return judge(evidence), page, text


def verdicts(claims: Sequence[Claim]) -> str:
    """The claims in a few lines, as wide as the terminal."""
    width = max(len(claim.verdict.value) for claim in claims) + 3
    lines = shutil.get_terminal_size().columns - width
    told = (textwrap.wrap(claim.says, max(lines, 40)) for claim in claims)
    return "\n".join(
        f"{verdict:<{width}}{line}"
        for claim, found in zip(claims, told, strict=True)
        for verdict, line in zip_longest([claim.verdict.value], found, fillvalue="")
    )


# Figures.


def draw(level: Level, evidence: Evidence, images: Sequence[Images], folder: Path) -> Figures:
    """Draw and save all figures."""
    folder.mkdir(exist_ok=True)
    scores, data, found = evidence
    titles = {d.name: title(d.name, d.outputs * d.x.shape[1]) for d in images}

    def panels(of: Callable[[str], Panel], name: str, frame: Frame, caption: str) -> Picture:
        figure = plot_panels([of(each) for each in data], frame)
        return picture(figure, folder / name, caption)

    rates = Frame("Learning rate", LOSS, "log", "log", HIGHEST)
    time = {each.name: seconds_of_epochs(found.seconds[each.name], each) for each in images}
    return Figures(
        idea=picture(plot_idea(idea_info()), folder / "idea", IDEA),
        sensitivity=panels(
            lambda name: graphs.sensitivity(scores, name, titles[name]), "sensitivity", rates, RATES
        ),
        members=panels(
            lambda name: graphs.members(scores, name, titles[name]),
            "members",
            Frame("Members N", LOSS),
            MEMBERS,
        ),
        spreads=panels(
            lambda name: graphs.spreads(scores, name, titles[name]),
            "spreads",
            Frame("Spread of the members at the start", LOSS, "log", "log", HIGHEST),
            SPREADS,
        ),
        standard=panels(
            lambda name: graphs.sensitivity(scores, name, titles[name], "standard"),
            "standardised",
            rates,
            STANDARD,
        ),
        epochs=panels(
            lambda name: graphs.progress(scores, name, titles[name]),
            "epochs",
            Frame("Epochs", "Mean loss in the epoch"),
            EPOCHS,
        ),
        seconds=panels(
            lambda name: graphs.progress(scores, name, titles[name], time[name]),
            "seconds",
            Frame("Seconds on one core", "Mean loss in the epoch", "log"),
            SECONDS,
        ),
    )


def picture(figure: Figure, stem: Path, caption: str) -> Picture:
    png, svg = save(figure, stem)
    return Picture(svg, png, caption)


def seconds_of_epochs(of_steps: Mapping[str, float], images: Images) -> dict[str, float]:
    """How long an epoch of each optimizer takes."""
    return {name: seconds * (len(images.x) // BATCH) for name, seconds in of_steps.items()}


IDEA = (
    "The paper's Figure 1 on a real function, log-sum-exp. (a) Gradient descent has one point. "
    f"(b) {GROUPING}, here with N = 4: every gradient draws a line, and each member jumps along "
    "its own to where all of them are closest together."
)
RATES = (
    "The paper's Figure 2. Loss against the learning rate; × marks rates at which a run blew up. "
    "Lines are optimizers without a learning rate. Shaded: standard deviation over the seeds."
)
MEMBERS = (
    "The paper's Figure 3. Loss against the number of members, where every member brings 32 "
    "samples of its own, and where 64 samples are divided among them."
)
SPREADS = (
    "What the paper leaves open: how far apart members start, as a multiple of PyTorch's own "
    "random start, which is 1, and whether they see the same samples."
)
STANDARD = "The same as the paper's Figure 2 on pixels of mean 0 and standard deviation 1."
EPOCHS = "Loss against epochs, every baseline at its best rate."
SECONDS = (
    "The same against the seconds that as many steps take by PyTorch on one thread, members one "
    "after the other."
)
