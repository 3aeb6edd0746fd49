"""The metrics straight from the paper, slowly: NumPy and SciPy, explicit inverses, loops where they are clearest.

Nothing here knows the library. Equation, proposition and theorem numbers are the paper's; section numbers such as
2.11 are those of the project's notes on the mathematics. Every function returns the *squared* distance.
"""

import numpy as np
import scipy.linalg

# ---------------------------------------------------------------------------------------------------- kernels


def squared_distance(a, b):
    return float(np.sum((np.asarray(a) - np.asarray(b)) ** 2))


def manhattan_distance(a, b):
    return float(np.sum(np.abs(np.asarray(a) - np.asarray(b))))


def pairwise(function, a, b):
    """The matrix with entries function(a_i, b_j), one pair at a time."""
    return np.array([[function(row_a, row_b) for row_b in b] for row_a in a], dtype=float)


DISTANCES = {"gaussian": squared_distance, "laplacian": manhattan_distance}


def kernel_values(distances, width):
    """exp(-distance / width): squared distances over sigma^2 (Gaussian), L1 distances over sigma (Laplacian)."""
    return np.exp(-distances / width)


def width_from_number(kernel, sigma_squared):
    """A bandwidth given as a number is sigma squared."""
    return float(sigma_squared) if kernel == "gaussian" else float(np.sqrt(sigma_squared))


def weighted_mean(matrix, row_weights, column_weights):
    """Mean of all entries, each pair weighted by the product of its two weights."""
    return float(row_weights @ matrix @ column_weights / (row_weights.sum() * column_weights.sum()))


def median_of_pairs(matrix, weights):
    """Median over the pairs of different samples; a sample of weight zero is not there."""
    present = np.flatnonzero(weights > 0)
    return float(np.median([matrix[i, j] for i in present for j in present if i < j]))


def as_weights(w, n):
    return np.ones(n) if w is None else np.asarray(w, dtype=float)


def pooled_weights(ws, wt):
    """Weights of the pooled sample: a domain counts by the number of its samples, not by the scale of its weights."""
    count_s, count_t = np.count_nonzero(ws), np.count_nonzero(wt)
    return np.concatenate([count_s * ws / ws.sum(), count_t * wt / wt.sum()])


def feature_widths(xs, xt, kernel, bandwidth, ws=None, wt=None):
    """The widths of K_ss, K_tt and K_ts."""
    ws, wt = as_weights(ws, len(xs)), as_weights(wt, len(xt))
    if not isinstance(bandwidth, str):
        return (width_from_number(kernel, bandwidth),) * 3
    distance = DISTANCES[kernel]
    if bandwidth == "per-block":
        return (
            weighted_mean(pairwise(distance, xs, xs), ws, ws),
            weighted_mean(pairwise(distance, xt, xt), wt, wt),
            weighted_mean(pairwise(distance, xt, xs), wt, ws),
        )
    pooled, weights = np.vstack([xs, xt]), pooled_weights(ws, wt)
    distances = pairwise(distance, pooled, pooled)
    rules = {"shared": weighted_mean(distances, weights, weights), "median": median_of_pairs(distances, weights)}
    return (rules[bandwidth],) * 3


def gram_blocks(xs, xt, kernel="gaussian", bandwidth="shared", ws=None, wt=None):
    """K_ss, K_tt, K_ts of the features."""
    pairs = ((xs, xs), (xt, xt), (xt, xs))
    if callable(kernel):
        return tuple(pairwise(kernel, a, b) for a, b in pairs)
    if kernel == "linear":
        return tuple(a @ b.T for a, b in pairs)
    widths = feature_widths(xs, xt, kernel, bandwidth, ws, wt)
    distance = DISTANCES[kernel]
    return tuple(kernel_values(pairwise(distance, a, b), w) for (a, b), w in zip(pairs, widths, strict=True))


def one_hot(labels, classes):
    return np.array([[1.0 if label == c else 0.0 for c in classes] for label in labels])


def label_width(y, kernel="gaussian", rule="mean", w=None):
    """Width of the label kernel within one domain: the mean distance over all its pairs, diagonal included."""
    if not isinstance(rule, str):
        return width_from_number(kernel, rule)
    w = as_weights(w, len(y))
    distances = pairwise(DISTANCES[kernel], y, y)
    mean = weighted_mean(distances, w, w)
    # Where most pairs share a class the median is zero and says nothing: the mean takes its place.
    return (median_of_pairs(distances, w) or mean) if rule == "median" else mean


def label_gram(y, kernel="gaussian", bandwidth="mean", w=None, columns=None):
    """k_Y between the rows of one domain's label matrix y, or between them and other rows (columns)."""
    other = y if columns is None else columns
    if callable(kernel):
        return pairwise(kernel, y, other)
    if kernel == "linear":
        return y @ other.T
    return kernel_values(pairwise(DISTANCES[kernel], y, other), label_width(y, kernel, bandwidth, w))


# -------------------------------------------------------------------------------------------- the matrices B, C, R


def centring(n):
    return np.eye(n) - np.ones((n, n)) / n


def regression_residual(g_y, eps):
    """B by its definition, above Proposition 4."""
    n = len(g_y)
    inverse = np.linalg.inv(g_y + eps * n * np.eye(n))
    return np.eye(n) - (g_y - g_y @ inverse @ g_y) / (n * eps)


def proposition_4(g_y, eps):
    """B by Proposition 4."""
    n = len(g_y)
    return eps * n * np.linalg.inv(g_y + eps * n * np.eye(n))


def evd_factor(b):
    """C = U sqrt(D), the paper's factor (Remark after Proposition 4)."""
    values, vectors = scipy.linalg.eigh((b + b.T) / 2)
    return vectors * np.sqrt(np.clip(values, 0, None))


def nuclear_norm(matrix):
    return float(np.sum(scipy.linalg.svd(matrix, compute_uv=False)))


def psd_root(matrix):
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T


def bures_covariance(r_s, r_t):
    """Eq. (2) with explicit matrices: tr(R_s + R_t - 2 (R_s^1/2 R_t R_s^1/2)^1/2)."""
    root = psd_root(r_s)
    return float(np.trace(r_s) + np.trace(r_t) - 2 * np.trace(psd_root(root @ r_t @ root)))


def covariance(a, b=None, w=None):
    """(1/n) Σ (a_i - mean)(b_i - mean)ᵀ, or with weights of sum one in place of 1/n."""
    b = a if b is None else b
    w = np.full(len(a), 1 / len(a)) if w is None else np.asarray(w, dtype=float) / np.sum(w)
    a, b = a - w @ a, b - w @ b
    return (a * w[:, None]).T @ b


def conditional_covariance(phi, psi, eps, w=None):
    """Eq. (3) with explicit features: R_XX - R_XY (R_YY + eps I)^-1 R_YX."""
    s_yy = covariance(psi, w=w)
    s_xy = covariance(phi, psi, w)
    return covariance(phi, w=w) - s_xy @ np.linalg.inv(s_yy + eps * np.eye(len(s_yy))) @ s_xy.T


# --------------------------------------------------------------------------------------------------- the metrics


def theorem_5(k_ss, k_tt, k_ts, k_ys, k_yt, eps):
    """Eq. (5) from the three feature Grams and the two label Grams."""
    n, m = len(k_ss), len(k_tt)
    h_n, h_m = centring(n), centring(m)
    g_xs, g_xt, g_ys, g_yt = h_n @ k_ss @ h_n, h_m @ k_tt @ h_m, h_n @ k_ys @ h_n, h_m @ k_yt @ h_m
    c_s, c_t = evd_factor(proposition_4(g_ys, eps)), evd_factor(proposition_4(g_yt, eps))
    trace_s = eps * np.trace(g_xs @ np.linalg.inv(eps * n * np.eye(n) + g_ys))
    trace_t = eps * np.trace(g_xt @ np.linalg.inv(eps * m * np.eye(m) + g_yt))
    cross = nuclear_norm((h_m @ c_t).T @ k_ts @ (h_n @ c_s))
    return float(trace_s + trace_t - 2 / np.sqrt(n * m) * cross), float(trace_s + trace_t)


def weighted_theorem_5(k_ss, k_tt, k_ts, k_ys, k_yt, eps, ws, wt):
    """Section 2.11: the same with sample weights, B = eps (G_Y + eps I)^-1."""

    def side(k_x, k_y, w):
        q = np.sqrt(np.asarray(w, dtype=float) / np.sum(w))
        h = np.eye(len(q)) - np.outer(q, q)
        g_x, g_y = (h @ np.diag(q) @ k @ np.diag(q) @ h for k in (k_x, k_y))
        b = eps * np.linalg.inv(g_y + eps * np.eye(len(q)))
        return float(np.trace(b @ g_x)), evd_factor(b), h @ np.diag(q)

    trace_s, c_s, left_s = side(k_ss, k_ys, ws)
    trace_t, c_t, left_t = side(k_tt, k_yt, wt)
    cross = nuclear_norm(c_t.T @ left_t @ k_ts @ left_s.T @ c_s)
    return trace_s + trace_t - 2 * cross, trace_s + trace_t


def ckb(
    xs,
    ys,
    xt,
    yt,
    *,
    kernel="gaussian",
    bandwidth="shared",
    label_kernel="gaussian",
    label_bandwidth="mean",
    eps=1e-2,
    ws=None,
    wt=None,
):
    """Squared CKB, and tr R_s + tr R_t, for label *matrices* ys (n, c) and yt (m, c)."""
    grams = gram_blocks(xs, xt, kernel, bandwidth, ws, wt)
    k_ys = label_gram(ys, label_kernel, label_bandwidth, ws)
    k_yt = label_gram(yt, label_kernel, label_bandwidth, wt)
    if ws is None and wt is None:
        return theorem_5(*grams, k_ys, k_yt, eps)
    return weighted_theorem_5(*grams, k_ys, k_yt, eps, as_weights(ws, len(xs)), as_weights(wt, len(xt)))


def kernel_bures(xs, xt, *, kernel="gaussian", bandwidth="shared", ws=None, wt=None):
    """Squared kernel Bures distance (B = I), and tr R_s + tr R_t."""
    k_ss, k_tt, k_ts = gram_blocks(xs, xt, kernel, bandwidth, ws, wt)
    ws, wt = as_weights(ws, len(xs)), as_weights(wt, len(xt))
    q_s, q_t = np.sqrt(ws / ws.sum()), np.sqrt(wt / wt.sum())
    left_s = (np.eye(len(q_s)) - np.outer(q_s, q_s)) @ np.diag(q_s)
    left_t = (np.eye(len(q_t)) - np.outer(q_t, q_t)) @ np.diag(q_t)
    scale = float(np.trace(left_s @ k_ss @ left_s.T) + np.trace(left_t @ k_tt @ left_t.T))
    return scale - 2 * nuclear_norm(left_t @ k_ts @ left_s.T), scale


def bures(xs, xt, ws=None, wt=None):
    """Squared Bures distance between the two covariance matrices, and the sum of their traces.

    The linear kernel and B = I: nothing is squared, so that singular covariances lose no digits.
    """
    return kernel_bures(xs, xt, kernel="linear", ws=ws, wt=wt)


def mmd(xs, xt, *, kernel="gaussian", bandwidth="shared", unbiased=False):
    """Squared MMD, pair by pair; the unbiased form leaves out the diagonal of K_ss and K_tt."""
    k_ss, k_tt, k_ts = gram_blocks(xs, xt, kernel, bandwidth)
    n, m = len(k_ss), len(k_tt)
    if not unbiased:
        return float(k_ss.mean() + k_tt.mean() - 2 * k_ts.mean())
    within_s = sum(k_ss[i, j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_t = sum(k_tt[i, j] for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return float(within_s + within_t - 2 * k_ts.mean())


def class_mean_terms(k_ss, k_tt, k_ts, p_s, p_t, priors=None, ws=None, wt=None):
    """π_c and ||μ_c^s - μ_c^t||² for every class c; NaN where a class has no mass in one of the domains."""
    ws, wt = as_weights(ws, len(p_s)), as_weights(wt, len(p_t))
    weights, squares = [], []
    for c in range(p_s.shape[1]):
        a, b = ws * p_s[:, c], wt * p_t[:, c]
        frequency = (a.sum() / ws.sum() + b.sum() / wt.sum()) / 2
        weights.append(frequency if priors is None else priors[c])
        if a.sum() == 0 or b.sum() == 0:
            squares.append(np.nan)
            continue
        a, b = a / a.sum(), b / b.sum()
        squares.append(a @ k_ss @ a + b @ k_tt @ b - 2 * b @ k_ts @ a)
    return np.array(weights), np.array(squares)


def conditional_mean_term(k_ss, k_tt, k_ts, k_ys, k_yt, k_ys_pooled, k_yt_pooled, eps):
    """Mean over the pooled y of ||Φ_s (K_Y + eps n I)^-1 k_Y(., y) - Φ_t (K_Y + eps m I)^-1 k_Y(., y)||²."""
    n, m = len(k_ss), len(k_tt)
    inverse_s = np.linalg.inv(k_ys + eps * n * np.eye(n))
    inverse_t = np.linalg.inv(k_yt + eps * m * np.eye(m))
    terms = []
    for j in range(n + m):
        a, b = inverse_s @ k_ys_pooled[:, j], inverse_t @ k_yt_pooled[:, j]
        terms.append(a @ k_ss @ a + b @ k_tt @ b - 2 * b @ k_ts @ a)
    return float(np.mean(terms))


def ckw(xs, ys, xt, yt, *, kernel="gaussian", bandwidth="shared", ws=None, wt=None, **options):
    """Squared CKW for hard (one-hot) or soft label matrices: CKB plus the class means, and tr R_s + tr R_t."""
    covariance_part, scale = ckb(xs, ys, xt, yt, kernel=kernel, bandwidth=bandwidth, ws=ws, wt=wt, **options)
    grams = gram_blocks(xs, xt, kernel, bandwidth, ws, wt)
    weights, squares = class_mean_terms(*grams, ys, yt, ws=ws, wt=wt)
    return covariance_part + float(np.nansum(weights * squares)), scale


def ckw_continuous(
    xs, ys, xt, yt, *, kernel="gaussian", bandwidth="shared", label_kernel="gaussian", label_bandwidth="mean", eps=1e-2
):
    """Squared CKW for a continuous Y: CKB plus the conditional mean embeddings on the pooled y."""
    options = {"label_kernel": label_kernel, "label_bandwidth": label_bandwidth, "eps": eps}
    covariance_part, scale = ckb(xs, ys, xt, yt, kernel=kernel, bandwidth=bandwidth, **options)
    grams = gram_blocks(xs, xt, kernel, bandwidth)
    pooled = np.vstack([ys, yt])
    k_ys, k_yt = (label_gram(y, label_kernel, label_bandwidth) for y in (ys, yt))
    k_ys_pooled, k_yt_pooled = (label_gram(y, label_kernel, label_bandwidth, columns=pooled) for y in (ys, yt))
    return covariance_part + conditional_mean_term(*grams, k_ys, k_yt, k_ys_pooled, k_yt_pooled, eps), scale


# -------------------------------------------------------------------------------------------- derived quantities


def effective_rank(r):
    """(Σ λ)² / Σ λ² from the eigenvalues of a covariance."""
    values = scipy.linalg.eigvalsh((r + r.T) / 2)
    return float(values.sum() ** 2 / (values**2).sum())


def operator_matrix(k_x, k_y, eps, w=None):
    """Cᵀ H D K D H C: a matrix with the non-zero eigenvalues of R_{X|Y}."""
    w = as_weights(w, len(k_x)) / as_weights(w, len(k_x)).sum()
    q = np.sqrt(w)
    left = np.diag(q) @ (np.eye(len(q)) - np.outer(q, q))
    c = evd_factor(eps * np.linalg.inv(left.T @ k_y @ left + eps * np.eye(len(q))))
    return c.T @ left.T @ k_x @ left @ c
