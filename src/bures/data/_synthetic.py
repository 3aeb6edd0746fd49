"""Synthetic domain shifts whose structure is known: which distribution differs, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bures.arrays import check_count, check_positive, check_seed, numpy_to_tensor
from bures.metrics import bures_covariance

__all__ = ["DomainPair", "GaussianClasses", "drifting_class", "exchanged_regions", "rotated_moons"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class DomainPair(NamedTuple):
    """A source and a target sample with their classes, in the order the metrics take them.

    Attributes
    ----------
    xs, ys : array (n, d), (n,)
        Source features and classes.
    xt, yt : array (m, d), (m,)
        Target features and classes.

    Examples
    --------
    >>> import bures
    >>> pair = bures.data.drifting_class(60, drift=0.0, seed=0)
    >>> bures.ckb(*pair) < 0.1
    True
    """

    xs: Floats
    ys: Integers
    xt: Floats
    yt: Integers


@dataclass(frozen=True)
class GaussianClasses:
    r"""A population of Gaussian classes in d dimensions, with its conditional covariance in closed form.

    Parameters
    ----------
    frequencies : array (K,)
        Class frequencies; they sum to one.
    means : array (K, d)
        Class means.
    covariances : array (K, d, d)
        Class covariances.

    Notes
    -----
    For the linear kernel the operator of eq. (3) is a matrix. With hard classes under a Gaussian label kernel of
    bandwidth :math:`\sigma_Y^2`, :math:`1 - a = 1 - e^{-2/\sigma_Y^2}` and :math:`\bar\Sigma = \sum_c \pi_c \Sigma_c`,

    .. math::
        R_\varepsilon = \Sigma_{XX} - \Sigma_{XY} \Big(\Sigma_{YY} + \tfrac{\varepsilon}{1-a} I\Big)^{-1} \Sigma_{YX}
        \;\longrightarrow\; \bar\Sigma \quad (\varepsilon \to 0).

    Examples
    --------
    >>> import numpy as np, bures
    >>> population = bures.data.GaussianClasses([0.5, 0.5], [[0.0], [9.0]], [[[1.0]], [[4.0]]])
    >>> population.conditional_covariance()
    array([[2.5]])
    """

    frequencies: Floats
    means: Floats
    covariances: Floats

    def __post_init__(self) -> None:
        for name in ("frequencies", "means", "covariances"):
            given = numpy_to_tensor(name, getattr(self, name))
            if not bool(given.isfinite().all()):
                raise ValueError(f"{name} contains NaN or infinity; accepted are finite numbers")
            object.__setattr__(self, name, given.numpy())
        if self.frequencies.ndim != 1 or self.means.ndim != 2:
            raise ValueError(
                f"frequencies has shape {self.frequencies.shape} and means {self.means.shape}; "
                "accepted are (K,) and (K, d)"
            )
        k, d = len(self.frequencies), self.means.shape[1]
        if self.means.shape != (k, d) or self.covariances.shape != (k, d, d):
            raise ValueError(
                f"means has shape {self.means.shape} and covariances {self.covariances.shape}; "
                f"accepted for {k} frequencies are ({k}, d) and ({k}, d, d)"
            )
        if (self.frequencies < 0).any() or not math.isclose(self.frequencies.sum(), 1.0, abs_tol=1e-9):
            raise ValueError(
                f"frequencies sum to {self.frequencies.sum():.6g}; accepted are numbers >= 0 summing to one"
            )

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> tuple[Floats, Integers]:
        """Draw n independent samples: features (n, d) and classes (n,)."""
        rng = np.random.default_rng(seed)
        y = rng.choice(len(self.frequencies), size=n, p=self.frequencies)
        # Eigenvectors serve as a root of singular covariances too, where Cholesky fails.
        values, vectors = np.linalg.eigh(self.covariances)
        roots = vectors * np.sqrt(values.clip(min=0))[:, None, :]
        noise = rng.normal(size=(n, self.means.shape[1]))
        return self.means[y] + np.einsum("nij,nj->ni", roots[y], noise), y

    def conditional_covariance(self, eps: float = 0.0, *, label_bandwidth: float | None = None) -> Floats:
        """Population conditional covariance (d, d) for the linear kernel, regularised by ``eps``.

        ``label_bandwidth`` is the bandwidth of the Gaussian label kernel; None is the population value of the mean
        rule, twice the probability that two samples differ in class.
        """
        pi = self.frequencies
        within: Floats = np.einsum("c,cij->ij", pi, self.covariances)
        if eps == 0:
            return within
        check_positive("eps", eps)
        sigma2 = (
            2 * (1 - (pi**2).sum()) if label_bandwidth is None else check_positive("label_bandwidth", label_bandwidth)
        )
        if sigma2 == 0:  # one class: nothing lies between classes
            return within
        contrast = -math.expm1(-2 / sigma2)
        centred = self.means - pi @ self.means
        between = (centred * pi[:, None]).T @ centred
        label_covariance = np.diag(pi) - np.outer(pi, pi)
        cross = (centred * pi[:, None]).T
        explained: Floats = cross @ np.linalg.solve(label_covariance + eps / contrast * np.eye(len(pi)), cross.T)
        return np.asarray(within + between - explained)

    def ckb(self, other: GaussianClasses, eps: float = 0.0, *, label_bandwidth: float | None = None) -> float:
        """Squared population CKB distance to another population, for the linear kernel (Definition 1)."""
        own, its = (p.conditional_covariance(eps, label_bandwidth=label_bandwidth) for p in (self, other))
        return float(bures_covariance(own, its))


def drifting_class(n: int = 300, *, drift: float = 1.0, seed: int = 0) -> DomainPair:
    """Three classes in the plane, of which the first is drawn out and turned in the target.

    Parameters
    ----------
    n : int, optional
        Number of samples in each domain.
    drift : float, optional
        How far the first class departs: its centre moves by ``drift`` and it turns and stretches as it goes. 0 is no
        shift: both domains are samples of one distribution.
    seed : int, optional
        Seed of the samples.

    Returns
    -------
    DomainPair
        ``(xs, ys, xt, yt)``.

    Examples
    --------
    >>> import bures
    >>> near, far = (bures.data.drifting_class(200, drift=drift) for drift in (0.0, 3.0))
    >>> bures.ckb(*near) < bures.ckb(*far)
    True
    """
    n = check_count("n", n)
    check_seed(seed)
    if not (isinstance(drift, Real) and math.isfinite(drift)):
        raise ValueError(f"drift={drift!r} is out of range; accepted is a finite number")
    frequencies = np.full(3, 1 / 3)
    means = np.array([[0.0, 2.4], [-2.2, -1.2], [2.2, -1.2]])
    covariances = np.array([_ellipse(0.6, 0.3, 0.0), _ellipse(0.7, 0.3, 0.9), _ellipse(0.7, 0.3, -0.9)])
    source = GaussianClasses(frequencies, means, covariances)
    moved, turned = means.copy(), covariances.copy()
    moved[0] += drift * np.array([0.8, -0.6])
    turned[0] = _ellipse(0.6 + 0.3 * drift, 0.3, 0.6 * drift)
    target = GaussianClasses(frequencies, moved, turned)
    rng = np.random.default_rng(seed)
    return DomainPair(*source.sample(n, rng), *target.sample(n, rng))


def exchanged_regions(n: int = 300, *, share: float = 1.0, seed: int = 0) -> DomainPair:
    """Two classes that exchange part of their regions in the target, while P(X) and P(Y) stay as they are.

    Each class has two lobes. In the target, a sample of the second lobe belongs to the other class with probability
    ``share``. Seen without labels the domains are alike, which is the misalignment of the paper's Figure 1: a
    marginal distance finds nothing, a conditional one does.

    Parameters
    ----------
    n : int, optional
        Number of samples in each domain.
    share : float, optional
        Share of the second lobes that changes class, from 0 (no shift) to 1.
    seed : int, optional
        Seed of the samples.

    Returns
    -------
    DomainPair
        ``(xs, ys, xt, yt)``.

    Examples
    --------
    >>> import bures
    >>> pair = bures.data.exchanged_regions(200, share=1.0)
    >>> bures.mmd(pair.xs, pair.xt) < 0.05 < bures.ckw(*pair)
    True
    """
    n = check_count("n", n)
    check_seed(seed)
    if not (isinstance(share, Real) and 0 <= share <= 1):
        raise ValueError(f"share={share!r} is out of range; accepted is a number from 0 to 1")
    centres = np.array([[[-2.5, 1.2], [0.6, 1.2]], [[-0.6, -1.2], [2.5, -1.2]]])  # class, lobe, coordinate
    rng = np.random.default_rng(seed)
    samples = []
    for exchanged in (0.0, share):
        y, lobe = rng.integers(2, size=n), rng.integers(2, size=n)
        x = centres[y, lobe] + 0.45 * rng.normal(size=(n, 2))
        changes = (lobe == 1) & (rng.random(n) < exchanged)
        samples.append((x, np.where(changes, 1 - y, y)))
    (xs, ys), (xt, yt) = samples
    return DomainPair(xs, ys, xt, yt)


def rotated_moons(n: int = 300, *, angle: float = 30.0, noise: float = 0.1, seed: int = 0) -> DomainPair:
    """Two interleaved half moons, one for each class, which are turned about their centre in the target.

    Parameters
    ----------
    n : int, optional
        Number of samples in each domain, at least 2.
    angle : float, optional
        By how many degrees the target is turned, counterclockwise. 0 is no shift. The figure of both moons looks the
        same upside down, so that at 180 the classes have changed places and P(X) is as it was.
    noise : float, optional
        Standard deviation of the Gaussian noise around the moons, at least 0; their radius is one.
    seed : int, optional
        Seed of the samples.

    Returns
    -------
    DomainPair
        ``(xs, ys, xt, yt)``, centred at the origin.

    Examples
    --------
    >>> import bures
    >>> near, far = (bures.data.rotated_moons(200, angle=angle) for angle in (0.0, 60.0))
    >>> bures.ckw(*near) < bures.ckw(*far)
    True
    """
    from sklearn.datasets import make_moons  # not needed to import the package

    n = check_count("n", n, minimum=2, alternatives=": each moon has a sample")
    check_seed(seed)
    if not (isinstance(noise, Real) and 0 <= noise < math.inf):
        raise ValueError(f"noise={noise!r} is out of range; accepted is a number of at least 0")
    if not (isinstance(angle, Real) and math.isfinite(angle)):
        raise ValueError(f"angle={angle!r} is out of range; accepted is a finite number of degrees")
    state_s, state_t = (int(state) for state in np.random.SeedSequence(seed).generate_state(2))
    centre = np.array([0.5, 0.25])  # scikit-learn puts the centres of the half circles at (0, 0) and (1, 0.5)
    xs, ys = make_moons(n, noise=noise, random_state=state_s)
    xt, yt = make_moons(n, noise=noise, random_state=state_t)
    return DomainPair(xs - centre, ys, (xt - centre) @ _rotation(math.radians(angle)).T, yt)


def _rotation(angle: float) -> Floats:
    """Matrix that turns the plane counterclockwise by ``angle``, in radians."""
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def _ellipse(long: float, short: float, angle: float) -> Floats:
    """Covariance with standard deviations ``long`` and ``short``, turned by ``angle``."""
    rotation = _rotation(angle)
    return np.asarray(rotation @ np.diag([long**2, short**2]) @ rotation.T)
