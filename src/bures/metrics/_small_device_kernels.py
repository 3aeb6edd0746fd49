r"""The GPU programs of `bures.metrics._small_device`, in Triton: `prepare`, `squared_distance` and `gradient`.

All matrices are square tiles of one side, each in the registers and the shared memory of one multiprocessor. Rows and
columns beyond a sample are samples at the common mean with weight zero: they change nothing. Numbers in the code are
those that float32 holds exactly, because that is how the compiler may read them; all others come as arguments. Where
values may be NaN a comparison decides, which keeps them; a maximum may lose them.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["gradient", "prepare", "squared_distance"]


@triton.jit(do_not_specialize=["n", "m", "d", "columns_s", "columns_t", "share"])
def prepare(
    xs, xt, labels_s, labels_t, weights_s, weights_t, width_s, width_t, eps, factors, squares, largest,
    n, m, d, columns_s, columns_t, share,
    HARD_S: tl.constexpr, HARD_T: tl.constexpr, SIDE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Label factors C^T H D of source and target by two programs; by each other, a part of the squared distances.

    ``share`` features belong to a part. Beside it lies the part's largest entry.
    """
    program = tl.program_id(0)
    if program == 0:
        _label_factor(labels_s, weights_s, width_s, eps, factors, n, columns_s, HARD_S, SIDE, CHUNK)
    elif program == 1:
        _label_factor(labels_t, weights_t, width_t, eps, factors + SIDE * SIDE, m, columns_t, HARD_T, SIDE, CHUNK)
    else:
        part = program - 2
        start = part * share
        _part_of_distances(
            xs, xt, squares + part * 3 * SIDE * SIDE, largest + part, n, m, d, start, tl.minimum(start + share, d),
            SIDE, CHUNK,
        )  # fmt: skip


@triton.jit
def _label_factor(
    labels, weights, width, eps, factor, n, columns, HARD: tl.constexpr, SIDE: tl.constexpr, CHUNK: tl.constexpr
):
    """The matrix sqrt(eps) L^-1 H D with L L^T = G_Y + eps I, as `bures.factors.CholeskyFactor` has it."""
    row, column, place, on_diagonal = _tile(SIDE)
    root = tl.sqrt(tl.load(weights + row, mask=row < n, other=0.0))
    if HARD:
        label = tl.load(labels + row, mask=row < n, other=-1)
        squares = tl.where(label[:, None] == label[None, :], 0.0, 2.0).to(tl.float64)
    else:
        squares = _squared_distances_of_rows(labels, root * root, n, columns, SIDE, CHUNK)
    eps = tl.load(eps)
    gram = tl.exp(-squares / tl.load(width)) * root[:, None] * root[None, :]
    # H G H = G - q v^T - v q^T with v = G q - (q^T G q / 2) q.
    v = tl.sum(gram * root[None, :], axis=1)
    v -= tl.sum(v * root, axis=0) * root / 2
    gram -= root[:, None] * v[None, :] + v[:, None] * root[None, :]
    gram += tl.where(on_diagonal, eps, 0.0)
    # Elimination makes the matrix upper triangular, with the squared diagonal of L, and a unit matrix L^-1 up to this.
    inverse = tl.where(on_diagonal, 1.0, 0.0).to(tl.float64)
    for step in range(n):
        at = row == step
        pivot_row = tl.sum(tl.where(at[:, None], gram, 0.0), axis=0)
        inverse_row = tl.sum(tl.where(at[:, None], inverse, 0.0), axis=0)
        below = tl.sum(tl.where((column == step)[None, :], gram, 0.0), axis=1)
        pivot = tl.sum(tl.where(at, below, 0.0), axis=0)
        share = tl.where(row > step, below / pivot, 0.0)
        gram -= share[:, None] * pivot_row[None, :]
        inverse -= share[:, None] * inverse_row[None, :]
    pivots = tl.sum(tl.where(on_diagonal, gram, 0.0), axis=1)
    inverse *= tl.sqrt(eps / pivots)[:, None]
    inverse -= tl.sum(inverse * root[None, :], axis=1)[:, None] * root[None, :]
    tl.store(factor + place, inverse * root[None, :])


@triton.jit
def _squared_distances_of_rows(labels, weight, n, columns, SIDE: tl.constexpr, CHUNK: tl.constexpr):
    """Squared distances of labels (n, columns) in float64, by products about their mean."""
    row = tl.arange(0, SIDE)
    squares = tl.full((SIDE, SIDE), 0.0, tl.float64)
    for start in range(0, columns, CHUNK):
        column = start + tl.arange(0, CHUNK)
        here = (row < n)[:, None] & (column < columns)[None, :]
        part = tl.load(labels + row[:, None] * columns + column[None, :], mask=here, other=0.0)
        part = tl.where(here, part - tl.sum(weight[:, None] * part, axis=0)[None, :], 0.0)
        squares += _squared_distances(part, part)
    return tl.where(squares < 0, 0.0, squares)


@triton.jit
def _part_of_distances(xs, xt, squares, largest, n, m, d, start, stop, SIDE: tl.constexpr, CHUNK: tl.constexpr):
    """Squared distances in some features: within the source, within the target, between target and source.

    On the diagonals of the first two are the squared norms about the mean.
    """
    _, _, place, on_diagonal = _tile(SIDE)
    within_s = tl.full((SIDE, SIDE), 0.0, tl.float64)
    within_t = tl.full((SIDE, SIDE), 0.0, tl.float64)
    between = tl.full((SIDE, SIDE), 0.0, tl.float64)
    norms_s = tl.full((SIDE,), 0.0, tl.float64)
    norms_t = tl.full((SIDE,), 0.0, tl.float64)
    entries = tl.full((SIDE, CHUNK), 0.0, tl.float32)
    for first in range(start, stop, CHUNK):
        a, b = _load(xs, n, d, first, stop, SIDE, CHUNK), _load(xt, m, d, first, stop, SIDE, CHUNK)
        entries = tl.maximum(entries, tl.maximum(tl.abs(a), tl.abs(b)))
        a, b = _about_mean(a, b, n, m, SIDE)
        within_s += _squared_distances(a, a)
        within_t += _squared_distances(b, b)
        between += _squared_distances(b, a)
        norms_s += tl.sum(a * a, axis=1)
        norms_t += tl.sum(b * b, axis=1)
    tl.store(squares + place, tl.where(on_diagonal, norms_s[:, None], within_s))
    tl.store(squares + SIDE * SIDE + place, tl.where(on_diagonal, norms_t[:, None], within_t))
    tl.store(squares + 2 * SIDE * SIDE + place, between)
    tl.store(largest, tl.max(tl.max(entries, axis=1), axis=0))


@triton.jit(do_not_specialize=["n", "m", "d", "parts"])
def squared_distance(
    weights_s, weights_t, factors, squares, largest, scalings, bandwidth, value, pairs, n, m, d, parts, n_scalings,
    RULE: tl.constexpr, WANTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """The squared distance, by one program; where wanted, with what pairs of samples weigh in its gradient."""
    row, _, place, on_diagonal = _tile(SIDE)
    within_s = _sum_of_parts(squares, parts, SIDE)
    within_t = _sum_of_parts(squares + SIDE * SIDE, parts, SIDE)
    between = _sum_of_parts(squares + 2 * SIDE * SIDE, parts, SIDE)
    norms = tl.maximum(tl.where(on_diagonal, within_s, 0.0), tl.where(on_diagonal, within_t, 0.0))
    within_s, within_t = tl.where(on_diagonal, 0.0, within_s), tl.where(on_diagonal, 0.0, within_t)

    # Bandwidths, by the rules of `bures.kernels.block_widths`, in the units of the samples.
    unit = _squared_unit(largest, parts)
    if RULE == "given":
        width = tl.minimum(tl.maximum(tl.load(bandwidth), unit * 2.0**-126), unit * 2.0**127)
        width_s, width_t, width_ts = width, width, width
    else:
        weight_s = tl.load(weights_s + row, mask=row < n, other=0.0)
        weight_t = tl.load(weights_t + row, mask=row < m, other=0.0)
        width_s = _total(within_s * weight_s[:, None] * weight_s[None, :])
        width_t = _total(within_t * weight_t[:, None] * weight_t[None, :])
        width_ts = _total(between * weight_t[:, None] * weight_s[None, :])
        if RULE == "shared":
            count_s = tl.sum(tl.where(weight_s > 0, 1.0, 0.0).to(tl.float64), axis=0)
            count_t = tl.sum(tl.where(weight_t > 0, 1.0, 0.0).to(tl.float64), axis=0)
            share_s, share_t = count_s / (count_s + count_t), count_t / (count_s + count_t)
            width = share_s * share_s * width_s + share_t * share_t * width_t + 2 * share_s * share_t * width_ts
            width_s, width_t, width_ts = width, width, width
        floor = unit * d * 2.0**-42 + tl.max(tl.max(norms, axis=1), axis=0) * 2.0**-20
        width_s, width_t = tl.where(width_s < floor, floor, width_s), tl.where(width_t < floor, floor, width_t)
        width_ts = tl.where(width_ts < floor, floor, width_ts)

    # The traces. Tiles that are not needed for a while go to memory: registers are few.
    factor_s, factor_t = tl.load(factors + place), tl.load(factors + SIDE * SIDE + place)
    trace_s, within_s = _trace(within_s, width_s, factor_s, unit)
    trace_t, within_t = _trace(within_t, width_t, factor_t, unit)
    if WANTED:
        tl.store(pairs + place, within_s - tl.where(on_diagonal, tl.sum(within_s, axis=1)[:, None], 0.0))
        tl.store(pairs + SIDE * SIDE + place, within_t - tl.where(on_diagonal, tl.sum(within_t, axis=1)[:, None], 0.0))

    # The matrix under the norm, its polar factor, and what it is worth to the kernel between the samples.
    kernel = _less_one(between / width_ts)
    cross = tl.dot(tl.dot(factor_t, kernel), tl.trans(factor_s))
    polar = _polar_factor(cross, scalings, n_scalings)
    tl.store(value, (trace_s + trace_t - 2 * _total(polar * cross)).to(tl.float32))
    if WANTED:
        factor_s, factor_t = tl.load(factors + place), tl.load(factors + SIDE * SIDE + place)
        outer = tl.dot(tl.dot(tl.trans(factor_t), polar), factor_s)
        tl.store(pairs + 2 * SIDE * SIDE + place, (kernel + 1) * outer * _rate(width_ts, unit))


@triton.jit
def _trace(squares, width, factor, unit):
    """The sum of a kernel less one times D H B H D, and what pairs of its samples weigh in the gradient."""
    kernel = _less_one(squares / width)
    outer = tl.dot(tl.trans(factor), factor)
    return _total(kernel * outer), (kernel + 1) * outer * _rate(width, unit)


@triton.jit
def _polar_factor(matrix, scalings, n_scalings):
    """The iteration of `bures.polar.polar_factor`."""
    gram = tl.dot(tl.trans(matrix), matrix)
    bound = tl.sqrt(tl.sqrt(_total(gram * gram)))
    x = matrix / tl.where(bound == 0, 1.0, bound + bound * 2.0**-26)
    for step in range(n_scalings):
        rho = tl.load(scalings + step)
        gram = tl.dot(tl.trans(x), x)
        x = rho * (1.5 * x - 0.5 * rho * rho * tl.dot(x, gram))
    return x


@triton.jit(do_not_specialize=["n", "m", "d"])
def gradient(xs, xt, pairs, result, n, m, d, SIDE: tl.constexpr, CHUNK: tl.constexpr):
    """The gradient (n + m, d), each program's in some features."""
    row, _, place, on_diagonal = _tile(SIDE)
    within_s, within_t = tl.load(pairs + place), tl.load(pairs + SIDE * SIDE + place)
    between = tl.load(pairs + 2 * SIDE * SIDE + place)
    within_s += tl.where(on_diagonal, tl.sum(between, axis=0)[:, None], 0.0)
    within_t += tl.where(on_diagonal, tl.sum(between, axis=1)[:, None], 0.0)
    start = tl.program_id(0) * CHUNK
    a, b = _load(xs, n, d, start, d, SIDE, CHUNK), _load(xt, m, d, start, d, SIDE, CHUNK)
    a, b = _about_mean(a, b, n, m, SIDE)
    to_a = tl.dot(within_s, a) - tl.dot(tl.trans(between), b)
    to_b = tl.dot(within_t, b) - tl.dot(between, a)
    feature = start + tl.arange(0, CHUNK)
    entry, here = row[:, None] * d + feature[None, :], (feature < d)[None, :]
    tl.store(result + entry, to_a.to(tl.float32), mask=(row < n)[:, None] & here)
    tl.store(result + n * d + entry, to_b.to(tl.float32), mask=(row < m)[:, None] & here)


@triton.jit
def _tile(SIDE: tl.constexpr):
    """Rows and columns of a tile, where its entries are, and which of them are on the diagonal."""
    row, column = tl.arange(0, SIDE), tl.arange(0, SIDE)
    return row, column, row[:, None] * SIDE + column[None, :], row[:, None] == column[None, :]


@triton.jit
def _load(x, n, d, start, stop, SIDE: tl.constexpr, CHUNK: tl.constexpr):
    """Some features of a sample (n, d), zeros beyond."""
    row, feature = tl.arange(0, SIDE), start + tl.arange(0, CHUNK)
    return tl.load(
        x + row[:, None] * d + feature[None, :], mask=(row < n)[:, None] & (feature < stop)[None, :], other=0.0
    )


@triton.jit
def _about_mean(a, b, n, m, SIDE: tl.constexpr):
    """Two samples in float64, about their common mean."""
    row = tl.arange(0, SIDE)
    a, b = a.to(tl.float64), b.to(tl.float64)
    mean = (tl.sum(a, axis=0) + tl.sum(b, axis=0)) / (n + m)
    return tl.where((row < n)[:, None], a - mean[None, :], 0.0), tl.where((row < m)[:, None], b - mean[None, :], 0.0)


@triton.jit
def _squared_distances(a, b):
    squares_a, squares_b = tl.sum(a * a, axis=1), tl.sum(b * b, axis=1)
    return squares_a[:, None] + squares_b[None, :] - 2 * tl.dot(a, tl.trans(b))


@triton.jit
def _sum_of_parts(squares, parts, SIDE: tl.constexpr):
    _, _, place, _ = _tile(SIDE)
    total = tl.load(squares + place)
    for part in range(1, parts):
        total += tl.load(squares + part * 3 * SIDE * SIDE + place)
    return tl.where(total < 0, 0.0, total)


@triton.jit
def _squared_unit(largest, parts):
    """The square of the unit of `bures.kernels.standardise`: the largest entry without the digits of its mantissa."""
    entry = tl.load(largest)
    for part in range(1, parts):
        entry = tl.maximum(entry, tl.load(largest + part))
    bits = entry.to(tl.int32, bitcast=True) & 0x7F800000
    unit = tl.where(bits == 0, 1.0, bits.to(tl.float32, bitcast=True)).to(tl.float64)
    return unit * unit


@triton.jit
def _less_one(x):
    """The function exp(-x) - 1, for small x by its series: the difference would lose digits."""
    series = 1 - x / 8
    series = 1 - x / 7 * series
    series = 1 - x / 6 * series
    series = 1 - x / 5 * series
    series = 1 - x / 4 * series
    series = 1 - x / 3 * series
    series = 1 - x / 2 * series
    return tl.where(x < 0.015625, -x * series, tl.exp(-x) - 1)


@triton.jit
def _rate(width, unit):
    """What a weight of the kernel is to the features, cut as in `bures.metrics._pooled.gradient_rates`."""
    rate, limit = 4 / width, 2.0**122 / unit
    return tl.where(rate > limit, limit, rate)


@triton.jit
def _total(x):
    return tl.sum(tl.sum(x, axis=1), axis=0)
