"""``gradgroup``: the evaluation, comparisons and training from the command line.

The idea. A command checks what it was given, says in one sentence what is wrong with it, and hands
over to the module that does the work; that is imported only then, so that ``--help`` answers at
once.

Exit codes: 0, done; 1, something outside was missing or broken (data, a disk); 2, a mistake in the
command; 130, interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130

OVERVIEW = """\
commands:
  gradgroup reproduce --quick     every claim of the paper, on the data that are here, in minutes
  gradgroup compare digits        baselines over their learning rates, and what needs none
  gradgroup fit train.npz         train softmax regression without a number to tune
  gradgroup data                  which data sets are here, and how to get the others

Data are looked for in the folder of --data-dir or of the environment variable GRADGROUP_DATA,
then in the cache and in the folders of the system; then they are downloaded from where they are
published.

exit codes: 0 done, 1 data or a file missing or broken, 2 a mistake in the command, 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKE, f"{self.prog}: {message.removesuffix('.')}.\n")


def count(text: str) -> int:
    """A number of things there must be at least one of."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"give a whole number of at least 1 instead of {text!r}")
    return number


def parser() -> Parser:
    """All commands and their options."""
    found = Parser(
        prog="gradgroup",
        description="Training with the gradients of several parameter vectors at once, and no "
        "learning rate: the paper's evaluation, comparisons, training.",
        epilog=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = found.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for add in (add_reproduce, add_compare, add_fit, add_data):
        add(commands)
    return found


# What commands have in common.


def new(
    commands: argparse._SubParsersAction[Parser],
    name: str,
    what: str,
    more: str,
    run: Callable[..., int],
) -> Parser:
    command = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}. {more}"
    )
    command.set_defaults(run=run)
    command.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="folder of official data files, instead of the one that GRADGROUP_DATA names",
    )
    return command


def add_study_options(command: Parser, out: str) -> None:
    command.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder for all that is found (default: {out})"
    )
    command.add_argument(
        "--jobs", type=count, metavar="N", help="processes (default: one for each core)"
    )


def claim(folder: Path) -> None:
    """Make a folder and write to it, so that one that cannot be had costs no training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Mistake(f"cannot write to {folder}: {error.strerror}") from error


class Mistake(Exception):  # noqa: N818 - the user's, not the program's
    """Something in the command that cannot be, as a sentence without its full stop."""


# The commands.


def add_reproduce(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        "reproduce",
        "run every experiment of the paper, and say of every claim whether it holds",
        "Runs that are done are kept: after an interruption, the same command goes on where it "
        "was.",
        reproduce,
    )
    level = command.add_mutually_exclusive_group()
    level.add_argument("--quick", action="store_true", help="few epochs and seeds: minutes")
    level.add_argument(
        "--paper", action="store_true", help="100 epochs and 10 seeds, as in the paper: hours"
    )
    command.add_argument(
        "--data",
        nargs="+",
        metavar="NAME",
        help="data sets, in this order (default: all of the paper's that are here, and digits)",
    )
    add_study_options(command, "runs/reproduce-LEVEL")


def reproduce(options: argparse.Namespace) -> int:
    with interrupt_put_off():
        from gradgroup.experiments import _reproduce as work
    level = work.LEVELS["quick" if options.quick else "paper" if options.paper else "default"]
    folder = options.out or Path("runs", f"reproduce-{level.name}")
    names = known_names(options.data) if options.data else work.present(options.data_dir)
    claim(folder)
    print(work.announcement(level, names, options.data_dir))
    claims, page, text = work.reproduce(level, names, folder, options.data_dir, options.jobs)
    print("", work.verdicts(claims), "", f"The report is {page}, and as text {text}.", sep="\n")
    return 0


def known_names(names: Sequence[str]) -> list[str]:
    from gradgroup.experiments.datasets import NAMES

    for name in names:
        if name not in NAMES:
            raise Mistake(f"there is no data set {name!r}: choose from {', '.join(NAMES)}")
    return list(dict.fromkeys(names))


def add_compare(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        "compare",
        "train every baseline at every learning rate of a grid, and what needs no rate",
        "Prints a table and draws the loss against the learning rate.",
        compare,
    )
    command.add_argument("name", metavar="DATA", help="a data set; `gradgroup data` lists them")
    command.add_argument("--epochs", type=count, default=10, help="(default: 10)")
    command.add_argument("--seeds", type=count, default=3, help="(default: 3)")
    add_study_options(command, "runs/compare-DATA")


def compare(options: argparse.Namespace) -> int:
    with interrupt_put_off():
        from gradgroup.experiments import _compare as work
    (name,) = known_names([options.name])
    folder = options.out or Path("runs", f"compare-{name}")
    claim(folder)
    found = work.compare(
        name, options.epochs, options.seeds, folder, options.data_dir, options.jobs
    )
    print(found)
    return 0


def add_fit(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        "fit",
        "train softmax regression by AutoGrouping, without a number to tune",
        "A file has arrays x (samples × features) and y (labels), and may have x_test and "
        "y_test. The model is weights (classes × features), bias and classes: a sample belongs "
        "to the class at which weights · x + bias is largest.",
        fit,
    )
    command.add_argument("train", metavar="TRAIN", help="an .npz file, or the name of a data set")
    command.add_argument(
        "--out", type=Path, default=Path("model.npz"), metavar="FILE", help="(default: model.npz)"
    )
    command.add_argument("--epochs", type=count, default=10, help="(default: 10)")
    command.add_argument("--batch", type=count, default=64, help="samples a step (default: 64)")
    command.add_argument("--seed", type=int, default=0, help="of the samples' order (default: 0)")


def fit(options: argparse.Namespace) -> int:
    if options.out.suffix != ".npz":
        raise Mistake(f"the model is written as .npz, but --out is {options.out}")
    claim(options.out.parent)
    with interrupt_put_off():
        from gradgroup.experiments import _fit as work
    training = work.read(options.train, options.data_dir)
    model = work.fit(training, options.epochs, options.batch, options.seed)
    work.save(model, options.out)
    print(work.told(model, training), f"The model is {options.out}.", sep="\n")
    return 0


def add_data(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        "data",
        "list the data sets: which are here, where they come from, how to get the others",
        "",
        data,
    )
    command.add_argument(
        "--fetch", nargs="+", metavar="NAME", help="download these data sets to the cache"
    )


def data(options: argparse.Namespace) -> int:
    from gradgroup.experiments import _listing as work
    from gradgroup.experiments.datasets import fetch

    for name in known_names(options.fetch or []):
        fetch(name)
    print(work.listing(options.data_dir))
    return 0


# Running them.


@contextmanager
def interrupt_put_off() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block: PyTorch aborts when its import is interrupted."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    options = parser().parse_args(argv)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("Interrupted. What was done is kept: the same command goes on.", file=sys.stderr)
        return INTERRUPTED
    except Mistake as mistake:
        print(f"gradgroup: {mistake}.", file=sys.stderr)
        return MISTAKE
    except ImportError as error:
        print(f"gradgroup: {error}", file=sys.stderr)
        return FAILED
    except expected_errors() as error:
        print(f"gradgroup: {error}", file=sys.stderr)
        return FAILED


def expected_errors() -> tuple[type[Exception], ...]:
    """What can go wrong outside of the program, and is said in a sentence."""
    from gradgroup.experiments.datasets import BadDataError, MissingDataError

    return BadDataError, MissingDataError, OSError


if __name__ == "__main__":
    sys.exit(main())
