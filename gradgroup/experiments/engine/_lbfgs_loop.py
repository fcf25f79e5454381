"""The iterations of L-BFGS on one batch, in the coordinates of that batch.

The idea. L-BFGS needs nothing of its vectors but their products with one another. A gradient on a
batch is residuals times samples, g = R X, so that its product with any vector v is that of R with
the *view* of v, its logits v Xᵀ: some hundred numbers instead of thousands. Views add up as vectors
do. So all iterations but the first that a step makes on its batch are made on views; the vectors
themselves, the moves and the changes of the gradient, are linear combinations that are worked out
once at its end.

Conventions. Of one run. Views and residuals are flat, outputs · samples. Pairs (s, y) of the
history are rows of ``views_s`` and ``views_y`` from the oldest to the newest, with room for those
of this step; the *window* from ``low`` to before ``high`` is what L-BFGS remembers, and the row
after it is the candidate, whose y is not known yet. ``sy`` holds sᵢ·yⱼ for i ≤ j, ``yy`` yᵢ·yⱼ,
``sg`` and ``yg`` the products with the latest gradient: float64. Residuals have the samples' number
divided out already.
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
def _largest(residual, x):
    """The largest number in the gradient, by size."""
    largest = x.dtype.type(0)
    gradient = np.empty(x.shape[1], x.dtype)
    for c in range(residual.shape[0]):
        gradient[:] = 0
        for i in range(x.shape[0]):
            _add(gradient, residual[c, i], x[i])
        largest = max(largest, np.abs(gradient).max())
    return largest


@compiled
def _is_flat(residual, x, gg):
    """PyTorch's test of the gradient; the product with itself nearly always answers it."""
    numbers = residual.shape[0] * x.shape[1]
    if not gg <= numbers * SMALLEST_GRADIENT**2:
        return False
    return _largest(residual, x) <= SMALLEST_GRADIENT


@compiled
def weights_of(sy, yy, sg, yg, gamma, low, high, alpha, moves):
    """The two loops, on products alone: d = −γ (g + Σ alphaⱼ yⱼ) + Σ movesⱼ sⱼ."""
    for i in range(high - 1, low - 1, -1):
        alpha[i] = -(sg[i] + _dot(alpha[i + 1 : high], sy[i, i + 1 : high])) / sy[i, i]
    bent = np.zeros(high)
    for i in range(low, high):
        product = bent[i] - gamma * (yg[i] + _dot(alpha[low:high], yy[i, low:high]))
        moves[i] = alpha[i] - product / sy[i, i]
        _add(bent[i + 1 : high], moves[i], sy[i, i + 1 : high])


@compiled
def _renew(views, high, change, products, changes):
    """By how much products with the gradient change, and what they are now."""
    for i in range(high):
        changes[i] = _dot(views[i], change)
        products[i] += changes[i]


@compiled
def _compare(change, gram, memory, high, change_s, change_y):
    """The candidate pair: its products with those before it; sᵀy and yᵀy of its own."""
    views_s, views_y, _, _, sg, yg = memory
    s, y, flat = views_s[high], views_y[high], change.reshape(-1)
    _view(change, gram, y.reshape(change.shape))
    _renew(views_s, high, flat, sg, change_s)
    _renew(views_y, high, flat, yg, change_y)
    return _dot(s, flat), _dot(y, flat)


@compiled
def _join(memory, high, residual, of_s, of_y, change_s, change_y):
    """Make the candidate pair the newest."""
    views_s, views_y, sy, yy, sg, yg = memory
    sy[:high, high] = change_s[:high]
    yy[:high, high] = yy[high, :high] = change_y[:high]
    sy[high, high], yy[high, high] = of_s, of_y
    sg[high], yg[high] = _dot(views_s[high], residual), _dot(views_y[high], residual)


@compiled
def _combine(row, rate, gamma, alpha, moves, low, high, order, joined, table):
    """A move in terms of the vectors that are there.

    Those are, by columns: s by slot, the move of the first iteration, y by slot, the gradient of
    the first iteration, and the gradients of all.
    """
    slots, old = (table.shape[1] - ITERATIONS - 2) // 2, order.shape[0]
    gradients, mine = 2 * slots + 2, table[row]
    mine[:] = 0
    mine[gradients + row] = -rate * gamma
    for i in range(low, high):
        of_s, of_y = rate * moves[i], -rate * gamma * alpha[i]
        if i < old:
            mine[order[i]] += of_s
            mine[slots + 1 + order[i]] += of_y
            continue
        # A pair of this batch: s is the move before, y the change of the gradient since.
        at = joined[i - old]
        mine[gradients + at] += of_y
        if at == 1:
            mine[slots] += of_s
            mine[2 * slots + 1] -= of_y
        else:
            _add(mine, of_s, table[at - 1])
            mine[gradients + at - 1] -= of_y


@compiled
def _direct(now, gg, rate, gamma, alpha, moves, low, high, memory):
    """The view of the next move, as the next candidate's s; the slope along its direction."""
    views_s, views_y, _, _, sg, yg = memory
    kind, move, slope = now.dtype.type, views_s[high], -gamma * gg
    move[:] = kind(-rate * gamma) * now
    for i in range(low, high):
        slope += moves[i] * sg[i] - gamma * alpha[i] * yg[i]
        _add(move, kind(rate * moves[i]), views_s[i])
        _add(move, kind(-rate * gamma * alpha[i]), views_y[i])
    return slope


@compiled
def iterate(logits, batch, order, memory, gamma, rate, loss, record):
    """Go on after the first iteration of a step, to the last.

    Parameters
    ----------
    logits : array of shape (outputs, samples)
        After the first iteration; they are moved with the run.
    batch : tuple
        Labels, samples, and the products of the samples.
    order : array
        Slots of the pairs from the oldest on.
    memory : tuple
        ``views_s``, the last of which is the first iteration's move; ``views_y``, ``sy``, ``yy``,
        ``sg``, ``yg``.
    gamma, rate, loss : float
        Scale of the inverse Hessian, learning rate, loss before the first iteration.
    record : tuple
        Residuals, of which the first iteration's are there; where to leave the others, the moves in
        terms of vectors, and when pairs joined.

    Returns
    -------
    tuple
        γ; how many gradients and moves are recorded, with those of the first iteration; how many
        of the moves were made; how many pairs joined; how many gradients were taken.
    """
    labels, x, gram = batch
    sy, yy, sg, yg = memory[2:]
    log, table, joined = record
    kind, room = logits.dtype.type, len(sg)
    low, high, pairs = 0, len(order), 0
    change_s, change_y = np.empty(room), np.empty(room)
    alpha, moves = np.zeros(room), np.zeros(room)
    view = np.empty(logits.shape, logits.dtype)
    now, flat = view.reshape(-1), logits.reshape(-1)
    for k in range(1, ITERATIONS):
        residual, before = log[k].reshape(-1), loss
        loss = residuals(logits, labels, log[k])
        _view(log[k], gram, view)
        gg = _dot(residual, now)
        if _is_flat(log[k], x, gg) or abs(kind(loss) - kind(before)) < SMALLEST_CHANGE:
            return gamma, k, k, pairs, k + 1
        change = log[k] - log[k - 1]
        of_s, of_y = _compare(change, gram, memory, high, change_s, change_y)
        if of_s > SMALLEST_CURVATURE:
            _join(memory, high, residual, of_s, of_y, change_s, change_y)
            joined[pairs] = k
            pairs, high = pairs + 1, high + 1
            low, gamma = max(0, high - HISTORY), of_s / of_y
        weights_of(sy, yy, sg, yg, gamma, low, high, alpha, moves)
        _combine(k, rate, gamma, alpha, moves, low, high, order, joined, table)
        slope = _direct(now, gg, rate, gamma, alpha, moves, low, high, memory)
        if slope > -SMALLEST_CHANGE:
            return gamma, k + 1, k, pairs, k + 1
        _add(flat, kind(1), memory[0][high])
    return gamma, ITERATIONS, ITERATIONS, pairs, ITERATIONS
