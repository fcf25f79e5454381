"""All runs of a study, on several processes, from where it was interrupted.

The idea. Runs that are in the store are not done again; the rest become jobs, which joblib hands to
its workers. A job's runs are kept as soon as it is done. Ctrl-C is for this process alone, which
ends the others. joblib's backends are how a study leaves one machine::

    with joblib.parallel_config(backend="dask"):
        sweep(settings, store)
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from gradgroup.experiments.datasets import BadDataError
from gradgroup.experiments.engine import Run, Setting
from gradgroup.experiments.study._jobs import Job, cost, do, jobs_of, mark_of
from gradgroup.experiments.study._store import Key, Store


def sweep(
    settings: Iterable[Setting],
    store: Store,
    *,
    jobs: int | None = None,
    folder: Path | None = None,
) -> dict[Setting, Run]:
    """Do all runs that are not in the store yet; what all of them came to.

    Parameters
    ----------
    settings : iterable of Setting
        The runs.
    store : Store
        Where they are kept.
    jobs : int, optional
        Processes; as many as joblib's backend has workers by default, which is one for each core.
    folder : Path, optional
        Where data are looked for first.

    Returns
    -------
    dict
        The runs by setting.
    """
    keys = {setting: Key(mark_of(setting.data, folder), setting) for setting in settings}
    todo = jobs_of((setting for setting, key in keys.items() if key not in store.runs), folder)
    if todo:
        _do_all(todo, store, jobs)
    _check(keys, store)
    return {setting: store.runs[key] for setting, key in keys.items()}


class Done(NamedTuple):
    """A job that comes back, in no order, with what it has done."""

    job: Job
    found: list[tuple[Key, Run]]
    seconds: float


def _do_all(todo: Sequence[Job], store: Store, jobs: int | None) -> None:
    """Keep what is done as it comes; a bar on a terminal says how long the rest will take."""
    from tqdm import tqdm

    total = sum(map(cost, todo))
    form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}"
    with (
        tqdm(total=total, desc="Training", bar_format=form, disable=None) as bar,
        _working(todo, jobs) as results,
    ):
        for number, done in enumerate(results, 1):
            store.add(done.found, done.seconds)
            bar.set_postfix_str(f"{number} of {len(todo)} jobs", refresh=False)
            bar.update(cost(done.job))


def _check(keys: Mapping[Setting, Key], store: Store) -> None:
    """Refuse what workers elsewhere have made of data that are not ours."""
    other = sorted({setting.data for setting, key in keys.items() if key not in store.runs})
    if other:
        raise BadDataError(
            f"Where runs are done there are other files of {', '.join(other)} than here: use the "
            "same files everywhere."
        )


# Workers.


@contextmanager
def _working(todo: Sequence[Job], jobs: int | None) -> Iterator[Iterator[Done]]:
    """Jobs as they are done; whoever leaves before the last one ends the workers."""
    from joblib import Parallel, delayed

    parallel = Parallel(jobs or -1, return_as="generator_unordered", batch_size=1)
    with ExitStack() as stack:
        with _deaf_to_interrupts():
            results = parallel(delayed(_timed)(job, os.getpid()) for job in todo)
            stack.push(partial(_end, results))
        yield results


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Have processes that are started within never hear of Ctrl-C, and this one afterwards.

    A terminal tells all processes, and each would say where it was interrupted, even while it
    starts. What is blocked when a process is started stays blocked in it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # The first process of a pool; on Python 3.11 its start would lift the block.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(results: Generator[Done], kind: type[BaseException] | None, *_: Any) -> None:
    """Let joblib end its workers if anything went wrong; just closed, it would warn of it."""
    if kind is not None:
        with suppress(KeyboardInterrupt):
            results.throw(KeyboardInterrupt)


def _timed(job: Job, sweeper: int) -> Done:
    _end_with(sweeper)
    start = time.perf_counter()
    runs = do(job)
    mark = mark_of(job.grid.like.data, job.folder)
    found = [(Key(mark, s), run) for s, run in zip(job.settings, runs, strict=True)]
    return Done(job, found, time.perf_counter() - start)


@cache
def _end_with(sweeper: int) -> None:
    """In a worker, end when the process of the sweep does; killed, it cannot say so."""

    def watch() -> None:
        while os.getppid() == sweeper:
            time.sleep(1.0)
        os._exit(1)

    # Jobs done in the sweep's own process, or on another machine, have other parents.
    if os.getppid() == sweeper:
        threading.Thread(target=watch, daemon=True).start()
