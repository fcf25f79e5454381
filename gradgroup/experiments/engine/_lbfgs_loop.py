"""The iterations of L-BFGS on one batch, in the coordinates of that batch.

The idea. L-BFGS needs nothing of its vectors but their products with one another. A gradient on a
batch is residuals times samples, g = R X, so that its product with any vector v is that of R with
the *view* of v, its logits v Xᵀ: some hundred numbers instead of thousands. Views add up as vectors
do. So all iterations that a step makes on its batch are made on views; the vectors themselves, the
moves and the changes of the gradient, are linear combinations that are worked out once at its end.

Conventions. Of one run. Views and residuals are flat, outputs · samples. Pairs (s, y) of the
history are rows of ``views_s`` and ``views_y`` from the oldest to the newest, with room for those
of this step; the *window* from ``low`` to before ``high`` is what L-BFGS remembers. ``sy`` holds
sᵢ·yⱼ for i ≤ j, ``yy`` yᵢ·yⱼ, ``sg`` and ``yg`` the products with the latest gradient: float64.
Residuals have the samples' number divided out already.
"""

from __future__ import annotations

import numpy as np

from gradgroup.experiments.engine._compiling import compiled

# PyTorch's defaults.
HISTORY = 100
ITERATIONS = 20
SMALLEST_GRADIENT = 1e-7
SMALLEST_CHANGE = 1e-9
SMALLEST_CURVATURE = 1e-10

# Places in ``state``, what a run remembers in single numbers.
COUNT, GAMMA, GG, PENDING_G, STARTED = range(5)


@compiled
def _dot(a, b):
    total = a.dtype.type(0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@compiled
def _add(out, factor, a):
    for k in range(out.shape[0]):
        out[k] += factor * a[k]


@compiled
def residuals(logits, labels, out):
    """The mean loss; residuals of the softmax are written to ``out``."""
    outputs, samples = logits.shape
    total, share = 0.0, logits.dtype.type(1.0 / samples)
    for j in range(samples):
        top = logits[0, j]
        for c in range(1, outputs):
            top = max(top, logits[c, j])
        norm = logits.dtype.type(0)
        for c in range(outputs):
            out[c, j] = np.exp(logits[c, j] - top)
            norm += out[c, j]
        total += np.log(norm) + top - logits[labels[j], j]
        for c in range(outputs):
            out[c, j] *= share / norm
        out[labels[j], j] -= share
    return total / samples


@compiled
def _view(residual, gram, out):
    """``R (X Xᵀ)``: the view of a gradient."""
    outputs, samples = out.shape
    out[:] = 0
    for c in range(outputs):
        for i in range(samples):
            _add(out[c], residual[c, i], gram[i])


@compiled
def _size(residual, x):
    """The largest number in the gradient, and the sum of all of them, by size."""
    largest, total = x.dtype.type(0), 0.0
    gradient = np.empty(x.shape[1], x.dtype)
    for c in range(residual.shape[0]):
        gradient[:] = 0
        for i in range(x.shape[0]):
            _add(gradient, residual[c, i], x[i])
        largest = max(largest, np.abs(gradient).max())
        total += np.abs(gradient).sum()
    return largest, total


@compiled
def _is_flat(residual, x, gg):
    """PyTorch's test of the gradient; the product with itself nearly always answers it."""
    numbers = residual.shape[0] * x.shape[1]
    if not gg <= numbers * SMALLEST_GRADIENT**2:
        return False
    return _size(residual, x)[0] <= SMALLEST_GRADIENT


@compiled
def _weights(sy, yy, sg, yg, gamma, low, high, alpha, moves):
    """The two loops, on products alone: d = −γ (g + Σ alphaⱼ yⱼ) + Σ movesⱼ sⱼ."""
    for i in range(high - 1, low - 1, -1):
        alpha[i] = -(sg[i] + _dot(alpha[i + 1 : high], sy[i, i + 1 : high])) / sy[i, i]
    bent = np.zeros(high)
    for i in range(low, high):
        product = bent[i] - gamma * (yg[i] + _dot(alpha[low:high], yy[i, low:high]))
        moves[i] = alpha[i] - product / sy[i, i]
        _add(bent[i + 1 : high], moves[i], sy[i, i + 1 : high])


@compiled
def _renew(views, high, against, products, changes, fresh):
    """Products with the new gradient, and by how much they have changed.

    ``against`` is the gradient's residual where that is ``fresh``, of another batch; its change
    since the last one otherwise, which keeps digits that a difference of products would lose.
    """
    for i in range(high):
        product = _dot(views[i], against)
        changes[i] = product - products[i] if fresh else product
        products[i] = product if fresh else products[i] + product


@compiled
def _combine(row, step, gamma, alpha, moves, low, high, order, joined, table):
    """A move in terms of the vectors that are there: old pairs by slot, this step's gradients."""
    slots, old = (table.shape[1] - ITERATIONS - 2) // 2, order.shape[0]
    gradients, mine = 2 * slots + 2, table[row]
    mine[:] = 0
    mine[gradients + row] = -step * gamma
    for i in range(low, high):
        of_s, of_y = step * moves[i], -step * gamma * alpha[i]
        if i < old:
            mine[order[i]] += of_s
            mine[slots + 1 + order[i]] += of_y
            continue
        # A pair of this step: s is the move before, y the change of the gradient since.
        at = joined[i - old]
        mine[gradients + at] += of_y
        if at == 0:
            mine[slots] += of_s
            mine[2 * slots + 1] -= of_y
        else:
            _add(mine, of_s, table[at - 1])
            mine[gradients + at - 1] -= of_y


@compiled
def _compare(k, now, view_before, log, gram, memory, high, state, change_s, change_y):
    """The candidate pair: its products with those before it; sᵀy and yᵀy of its own."""
    views_s, views_y, _, _, sg, yg = memory
    s, y = views_s[high], views_y[high]
    if k == 0:
        residual = log[0].reshape(-1)
        y[:] = now - view_before
        _renew(views_s, high, residual, sg, change_s, True)
        _renew(views_y, high, residual, yg, change_y, True)
        square = _dot(now, residual) + state[GG] - 2 * _dot(view_before, residual)
        return _dot(s, residual) - state[PENDING_G], square
    change = log[k] - log[k - 1]
    _view(change, gram, y.reshape(change.shape))
    _renew(views_s, high, change.reshape(-1), sg, change_s, False)
    _renew(views_y, high, change.reshape(-1), yg, change_y, False)
    return _dot(s, change.reshape(-1)), _dot(y, change.reshape(-1))


@compiled
def _join(memory, high, residual, of_s, of_y, change_s, change_y):
    """Make the candidate pair the newest."""
    views_s, views_y, sy, yy, sg, yg = memory
    sy[:high, high] = change_s[:high]
    yy[:high, high] = yy[high, :high] = change_y[:high]
    sy[high, high], yy[high, high] = of_s, of_y
    sg[high], yg[high] = _dot(views_s[high], residual), _dot(views_y[high], residual)


@compiled
def _direct(now, gg, step, gamma, alpha, moves, low, high, memory):
    """The view of the next move, as the next candidate's s; the slope along its direction."""
    views_s, views_y, _, _, sg, yg = memory
    kind, move, slope = now.dtype.type, views_s[high], -gamma * gg
    move[:] = kind(-step * gamma) * now
    for i in range(low, high):
        slope += moves[i] * sg[i] - gamma * alpha[i] * yg[i]
        _add(move, kind(step * moves[i]), views_s[i])
        _add(move, kind(-step * gamma * alpha[i]), views_y[i])
    return slope


@compiled
def iterate(logits, batch, history, memory, state, rate, record):
    """One step: up to twenty iterations on a batch.

    Parameters
    ----------
    logits : array of shape (outputs, samples)
        They are moved with the run.
    batch : tuple
        Labels, samples, and the products of the samples.
    history : tuple
        Slots of the pairs from the oldest on; the view of the gradient before the last move.
    memory : tuple
        ``views_s``, ``views_y``, ``sy``, ``yy``, ``sg``, ``yg``.
    state : array
        The run's single numbers.
    rate : float
        The learning rate.
    record : tuple
        Where to leave residuals, moves in terms of vectors, and when pairs joined.

    Returns
    -------
    tuple
        The loss before the step; how many gradients and moves are recorded; how many of the moves
        were made; how many pairs joined; how many gradients were taken.
    """
    labels, x, gram = batch
    order, view_before = history
    sy, yy, sg, yg = memory[2:]
    log, table, joined = record
    kind, room = logits.dtype.type, len(sg)
    low, high, pairs = 0, len(order), 0
    change_s, change_y = np.empty(room), np.empty(room)
    alpha, moves = np.zeros(room), np.zeros(room)
    view = np.empty(logits.shape, logits.dtype)
    now, flat = view.reshape(-1), logits.reshape(-1)
    first = loss = residuals(logits, labels, log[0])
    for k in range(ITERATIONS):
        residual, before = log[k].reshape(-1), loss
        if k:
            loss = residuals(logits, labels, log[k])
        _view(log[k], gram, view)
        gg = _dot(residual, now)
        if _is_flat(log[k], x, gg) or (k and abs(kind(loss) - kind(before)) < SMALLEST_CHANGE):
            return first, k, k, pairs, k + 1
        step = rate
        if state[STARTED]:
            of_s, of_y = _compare(
                k, now, view_before, log, gram, memory, high, state, change_s, change_y
            )
            if of_s > SMALLEST_CURVATURE:
                _join(memory, high, residual, of_s, of_y, change_s, change_y)
                joined[pairs] = k
                pairs, high = pairs + 1, high + 1
                low, state[GAMMA] = max(0, high - HISTORY), of_s / of_y
        else:
            state[STARTED], state[GAMMA] = 1, 1.0
            step *= min(1.0, 1.0 / _size(log[k], x)[1])
        gamma = state[GAMMA]
        _weights(sy, yy, sg, yg, gamma, low, high, alpha, moves)
        _combine(k, step, gamma, alpha, moves, low, high, order, joined, table)
        slope = _direct(now, gg, step, gamma, alpha, moves, low, high, memory)
        state[GG], state[PENDING_G] = gg, step * slope
        if slope > -SMALLEST_CHANGE:
            return first, k + 1, k, pairs, k + 1
        _add(flat, kind(1), memory[0][high])
    return first, ITERATIONS, ITERATIONS, pairs, ITERATIONS
