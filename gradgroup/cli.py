"""``gradgroup``: the evaluation, comparisons and training from the command line.

The idea. A command checks what it was given, says in one sentence what is wrong with it, and hands
over to the module that does the work; that is imported only then, so that ``--help`` answers at
once.

Exit codes: 0, done; 1, something outside was missing or broken (data, a disk); 2, a mistake in the
command; 130, interrupted (143, by ``kill``).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from tempfile import TemporaryFile
from traceback import walk_stack
from types import FrameType
from typing import NoReturn

FAILED, MISTAKE = 1, 2

OVERVIEW = """\
Training with the gradients of several parameter vectors at once, and no
learning rate: the paper's evaluation, comparisons, training.

commands:
  reproduce   run every experiment of the paper, say of every claim if it holds
  compare     baselines over their learning rates, and what needs none
  fit         train softmax regression without a number to tune
  data        which data sets are here, and how to get the others

`gradgroup COMMAND --help` says more of each."""

EXAMPLES = """\
examples:
  gradgroup reproduce --quick     the whole evaluation, in minutes
  gradgroup compare digits        a table and a figure
  gradgroup fit train.npz         a model of your own data
  gradgroup data                  a list

Data are looked for in the folder of --data-dir or of the environment variable
GRADGROUP_DATA, then in the cache and in the folders of the system; then they
are downloaded from where they are published.

exit codes:
  0 done, 1 data or a file missing or broken, 2 a mistake in the command,
  130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKE, f"{self.prog}: {message.removesuffix('.')}; see {self.prog} --help.\n")


def parser() -> Parser:
    """All commands and their options."""
    found = Parser(
        prog="gradgroup",
        usage="gradgroup [-h] COMMAND ...",
        description=OVERVIEW,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Argparse's own list of commands breaks their descriptions into narrow columns.
    commands = found.add_subparsers(
        required=True, prog="gradgroup", metavar="COMMAND", help=argparse.SUPPRESS
    )
    for add in (add_reproduce, add_compare, add_fit, add_data):
        add(commands)
    return found


# What commands have in common.


def new(
    commands: argparse._SubParsersAction[Parser],
    run: Callable[[argparse.Namespace], int],
    text: str,
    examples: str,
    interrupted: str,
) -> Parser:
    """A command of the name of the function that runs it."""
    command = commands.add_parser(
        run.__name__,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run, interrupted=interrupted)
    command.add_argument(
        "--data-dir",
        type=folder,
        metavar="DIR",
        help="folder of official data files (default: the one that GRADGROUP_DATA names)",
    )
    return command


def add_study_options(command: Parser, out: str) -> None:
    command.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder for all that is found (default: {out})"
    )
    command.add_argument(
        "--jobs", type=count, metavar="N", help="processes (default: one for each core)"
    )


def whole(text: str, least: int) -> int:
    try:
        found = int(text)
    except ValueError:
        found = least - 1
    if found < least:
        raise argparse.ArgumentTypeError(
            f"give a whole number of at least {least} instead of {text!r}"
        )
    return found


def count(text: str) -> int:
    """A number of things there must be at least one of."""
    return whole(text, 1)


def seed(text: str) -> int:
    """What random numbers are drawn from."""
    return whole(text, 0)


def folder(text: str) -> Path:
    """A folder that is there."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}: make it or name another")
    return Path(text)


class Mistake(Exception):  # noqa: N818 - the user's, not the program's
    """Something in the command that cannot be, as a sentence without its full stop."""


def claim(place: Path) -> None:
    """Make a folder and write to it, so that one that cannot be had costs no training."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise Mistake(
            f"cannot write to the folder {place} ({error.strerror}): name another with --out"
        ) from error


def known_names(names: Sequence[str], otherwise: str = "") -> list[str]:
    from gradgroup.experiments.datasets import NAMES

    for name in names:
        if name not in NAMES:
            raise Mistake(
                f"there is no data set {name!r}: choose from {', '.join(NAMES)}{otherwise}"
            )
    return list(dict.fromkeys(names))


# The commands.

KEPT = "What was done is kept: the same command goes on."


def add_reproduce(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        reproduce,
        "Run every experiment of the paper, and say of every claim whether it holds.\n\n"
        "Runs that are done are kept: after an interruption, the same command goes on\n"
        "where it was. The report is report.html, and the same as text report.md.",
        "examples:\n"
        "  gradgroup reproduce --quick\n"
        "  gradgroup reproduce --data digits mnist --out runs/mine --jobs 4",
        KEPT,
    )
    level = command.add_mutually_exclusive_group()
    level.add_argument("--quick", action="store_true", help="few epochs and seeds: minutes")
    level.add_argument(
        "--paper",
        action="store_true",
        help="100 epochs and 10 seeds, as in the paper: hours (default: 10 epochs and 5 seeds)",
    )
    command.add_argument(
        "--data",
        nargs="+",
        metavar="NAME",
        help="data sets, in this order (default: all of the paper's that are here, and digits)",
    )
    add_study_options(command, "runs/reproduce-LEVEL")


def reproduce(options: argparse.Namespace) -> int:
    from gradgroup.experiments import _reproduce as work

    level = work.LEVELS["quick" if options.quick else "paper" if options.paper else "default"]
    place = options.out or Path("runs", f"reproduce-{level.name}")
    names = known_names(options.data) if options.data else work.present(options.data_dir)
    claim(place)
    print(work.announcement(level, names, place, options.data_dir), flush=True)
    claims, page, text = work.reproduce(level, names, place, options.data_dir, options.jobs)
    print("", work.verdicts(claims), "", f"The report is {page}, and as text {text}.", sep="\n")
    return 0


def add_compare(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        compare,
        "Train every baseline at every learning rate of a grid, and what needs no rate.\n\n"
        "Prints a table and draws the loss against the learning rate. Runs that are done\n"
        "are kept: after an interruption, the same command goes on where it was.",
        "example:\n  gradgroup compare fashion-mnist --epochs 2 --seeds 5",
        KEPT,
    )
    command.add_argument("name", metavar="DATA", help="a data set; `gradgroup data` lists them")
    command.add_argument(
        "--epochs", type=count, default=10, metavar="N", help="of each run (default: 10)"
    )
    command.add_argument(
        "--seeds", type=count, default=3, metavar="N", help="runs of each kind (default: 3)"
    )
    add_study_options(command, "runs/compare-DATA")


def compare(options: argparse.Namespace) -> int:
    from gradgroup.experiments import _compare as work

    (name,) = known_names([options.name])
    place = options.out or Path("runs", f"compare-{name}")
    claim(place)
    found = work.compare(name, options.epochs, options.seeds, place, options.data_dir, options.jobs)
    print(found)
    return 0


def add_fit(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        fit,
        "Train softmax regression by AutoGrouping, without a number to tune.\n\n"
        "A file has arrays x (samples × features) and y (labels: numbers or strings),\n"
        "and may have x_test and y_test, on which the model is tested.",
        "examples:\n"
        "  gradgroup fit train.npz --out model.npz\n"
        "  gradgroup fit mnist --epochs 5\n\n"
        "The model is a file of weights (classes × features), bias and classes:\n\n"
        '  model = numpy.load("model.npz")\n'
        '  scores = x @ model["weights"].T + model["bias"]\n'
        '  labels = model["classes"][scores.argmax(axis=1)]',
        "No model was written.",
    )
    command.add_argument("train", metavar="TRAIN", help="an .npz file, or the name of a data set")
    command.add_argument(
        "--out",
        type=Path,
        default=Path("model.npz"),
        metavar="FILE",
        help="the model (default: model.npz)",
    )
    command.add_argument(
        "--epochs", type=count, default=10, metavar="N", help="passes over the data (default: 10)"
    )
    command.add_argument(
        "--batch", type=count, default=64, metavar="N", help="samples a step (default: 64)"
    )
    command.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="of the samples' order (default: 0)"
    )


def fit(options: argparse.Namespace) -> int:
    if options.out.suffix != ".npz" or options.out.is_dir():
        raise Mistake(f"the model is a file that ends in .npz, but --out is {options.out}")
    if not options.train.endswith(".npz"):
        known_names([options.train], ", or name an .npz file")
    claim(options.out.parent)
    from gradgroup.experiments import _fit as work

    training = work.read(options.train, options.data_dir)
    model = work.fit(training, options.epochs, options.batch, options.seed)
    work.save(model, options.out)
    print(work.told(model, training), f"The model is {options.out}.", sep="\n")
    return 0


def add_data(commands: argparse._SubParsersAction[Parser]) -> None:
    command = new(
        commands,
        data,
        "List the data sets: which are here, where they come from, how to get the others.",
        "examples:\n  gradgroup data\n  gradgroup data --fetch mnist fashion-mnist",
        "What was downloaded is kept: the same command goes on.",
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


# Interruptions.

STOPS = (signal.SIGINT, signal.SIGTERM)
# Half of an extension module, or of PyTorch, makes the process crash.
LOADERS = (ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__)
# Numba's compiler and finalizers go on as if they had not been interrupted.
DEAF = ("llvmlite.", "weakref", "_weakrefset")


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn Ctrl-C and ``kill`` into a KeyboardInterrupt, one, where it does no harm."""
    before = {number: signal.signal(number, stop) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(number: int, frame: FrameType | None) -> None:
    if any(is_fragile(each) for each, _ in walk_stack(frame)):
        again = threading.Timer(0.02, tell, [threading.get_ident(), number])
        again.daemon = True
        again.start()
        return
    for each in STOPS:  # or impatience would interrupt the clearing up
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def tell(thread: int, number: int) -> None:
    """Send a signal to a thread, which gets it once it does not block it."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, number)
    else:  # Windows
        signal.raise_signal(number)


def is_fragile(frame: FrameType) -> bool:
    """Whether what a frame is at must not be interrupted."""
    name, code = str(frame.f_globals.get("__name__")), frame.f_code
    half_loaded = code in LOADERS or (name, code.co_name) == ("torch", "<module>")
    return half_loaded or name.startswith(DEAF) or code.co_name == "__del__"


# Running them.


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    options = parser().parse_args(argv)
    try:
        with stoppable():
            code = int(options.run(options))
            flush()
            return code
    except KeyboardInterrupt as stopped:
        print(f"Interrupted. {options.interrupted}", file=sys.stderr)
        return 128 + int((stopped.args or STOPS)[0])
    except Mistake as mistake:
        print(f"gradgroup: {mistake}.", file=sys.stderr)
        return MISTAKE
    except ImportError as error:
        print(f"gradgroup: {error}", file=sys.stderr)
        return FAILED
    except expected_errors() as error:
        print(f"gradgroup: {sentence(error)}", file=sys.stderr)
        return FAILED


def flush() -> None:
    """Hand over what was printed; that somebody has read enough of it is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def expected_errors() -> tuple[type[Exception], ...]:
    """What can go wrong outside of the program, and is said in a sentence."""
    from concurrent.futures.process import BrokenProcessPool

    from gradgroup.experiments.datasets import BadDataError, MissingDataError

    return BadDataError, MissingDataError, BrokenProcessPool, OSError


def sentence(error: Exception) -> str:
    from concurrent.futures.process import BrokenProcessPool

    if isinstance(error, BrokenProcessPool):
        return (
            "a process was killed, most likely for want of memory. "
            "What was done is kept: the same command goes on, and with --jobs 1 needs the least."
        )
    if isinstance(error, OSError):
        return f"cannot use {error.filename} ({error.strerror}): see to it or name another place."
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
