"""All runs of a study, on several processes, from where it was interrupted.

The idea. Runs that are in the store are not done again; the rest become jobs, which joblib hands to
its workers. A job's runs are kept as soon as it is done. joblib's backends are how a study leaves
one machine::

    with joblib.parallel_config(backend="dask"):
        sweep(settings, store)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
    todo = [setting for setting, key in keys.items() if key not in store.runs]
    for job, runs, seconds in _done(jobs_of(todo, folder), jobs):
        found = zip((keys[setting] for setting in job.settings), runs, strict=True)
        store.add(found, seconds)
    return {setting: store.runs[key] for setting, key in keys.items()}


class Done(NamedTuple):
    """A job that comes back, in no order, with what it has done."""

    job: Job
    runs: list[Run]
    seconds: float


def _done(todo: Sequence[Job], jobs: int | None) -> Iterator[Done]:
    """Jobs as they are done; a bar says how long the rest will take."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    if not todo:
        return
    total = sum(map(cost, todo))
    form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}"
    with tqdm(total=total, desc="Training", bar_format=form, disable=None) as bar:
        parallel = Parallel(jobs or -1, return_as="generator_unordered", batch_size=1)
        for number, done in enumerate(parallel(delayed(_timed)(job) for job in todo)):
            yield done
            bar.set_postfix_str(f"{number + 1} of {len(todo)} jobs", refresh=False)
            bar.update(cost(done.job))


def _timed(job: Job) -> Done:
    start = time.perf_counter()
    runs = do(job)
    return Done(job, runs, time.perf_counter() - start)
