"""Bad input is refused with a message that names the argument, what was given and what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

import bures

N, M, D, K = 8, 7, 3, 3
RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(N, D)), RNG.normal(size=(M, D))
YS, YT = np.arange(N) % K, np.arange(M) % K
PS, PT = RNG.dirichlet(np.ones(K), size=N), RNG.dirichlet(np.ones(K), size=M)
COV = np.cov(XS.T)
LABEL_NAMES = ("ys", "yt")


def with_entry(array: np.ndarray, index: Any, value: float) -> np.ndarray:
    array = np.array(array, dtype=np.float64)
    array[index] = value
    return array


def torch_of(*arrays: np.ndarray) -> tuple[torch.Tensor, ...]:
    return tuple(torch.as_tensor(array) for array in arrays)


class Row:
    """One line of the table: what is wrong, the arguments to change, the error and what its message must say."""

    def __init__(
        self, what: str, error: type[Exception] | tuple[type[Exception], ...], message: str, **changes: Any
    ) -> None:
        self.what, self.error, self.message, self.changes = what, error, message, changes

    def __str__(self) -> str:
        return self.what.replace(" ", "-")


def refuses(row: Row, call: Callable[..., Any], *, takes_labels: bool = True, **defaults: Any) -> None:
    with pytest.raises(row.error, match=f"(?s){row.message}"):
        call(
            **{
                **defaults,
                **{name: value for name, value in row.changes.items() if takes_labels or name not in LABEL_NAMES},
            }
        )


def table(*rows: Row) -> Any:
    return pytest.mark.parametrize("row", rows, ids=str)


CONDITIONAL = [bures.ckb, bures.ckw, bures.explain]
each_conditional = pytest.mark.parametrize("metric", CONDITIONAL, ids=lambda metric: metric.__name__)

FEATURES = [
    Row(
        "different feature dimensions",
        ValueError,
        r"xs has 3 features but xt has 2.*same number of columns",
        xt=XT[:, :2],
    ),
    Row(
        "NaN in xs",
        ValueError,
        r"xs contains NaN or infinity in 1 of 8 rows \(first: row 2\).*remove or impute",
        xs=with_entry(XS, (2, 1), np.nan),
    ),
    Row("infinity in xs", ValueError, r"xs contains NaN or infinity.*row 0", xs=with_entry(XS, (0, 0), np.inf)),
    Row(
        "NaN in xt",
        ValueError,
        r"xt contains NaN or infinity in 2 of 7 rows \(first: row 3\)",
        xt=with_entry(XT, ([3, 5], 1), np.nan),
    ),
    Row("minus infinity in xt", ValueError, r"xt contains NaN or infinity", xt=with_entry(XT, (0, 0), -np.inf)),
    Row(
        "masked entries",
        ValueError,
        r"xt has 1 masked entries; remove or impute these samples",
        xt=np.ma.masked_array(XT, mask=np.arange(XT.size).reshape(XT.shape) == 4),
    ),
    Row("no source samples", ValueError, r"xs is empty \(shape \(0, 3\)\).*at least one sample", xs=XS[:0], ys=YS[:0]),
    Row("no target samples", ValueError, r"xt is empty \(shape \(0, 3\)\).*at least one sample", xt=XT[:0], yt=YT[:0]),
    Row("no features", ValueError, r"xs is empty \(shape \(8, 0\)\).*one feature", xs=XS[:, :0], xt=XT[:, :0]),
    Row("empty list", ValueError, r"xs is empty", xs=[], ys=[]),
    Row("three-dimensional xs", ValueError, r"xs has shape \(8, 3, 1\).*\(n_samples, n_features\)", xs=XS[:, :, None]),
    Row("three-dimensional xt", ValueError, r"xt has shape \(1, 7, 3\).*\(n_samples, n_features\)", xt=XT[None]),
    Row("scalar xs", ValueError, r"xs has shape \(\).*\(n_samples, n_features\)", xs=1.0),
    Row("complex xs", TypeError, r"xs .*complex.*real numbers|xs .*real numbers.*complex", xs=XS + 1j),
    Row("complex xt", TypeError, r"xt .*complex", xt=XT + 0j),
    Row("strings as features", TypeError, r"xs could not be read.*real numbers.*accepted are", xs=np.full((N, D), "a")),
    Row("numbers written as strings", TypeError, r"xs could not be read.*accepted are", xs=XS.astype(str)),
    Row(
        "sparse xs", TypeError, r"xs is a sparse csr_matrix of shape \(8, 3\).*pass xs\.toarray\(\)", xs=csr_matrix(XS)
    ),
    Row("ragged rows", TypeError, r"xs could not be read.*accepted are", xs=[[1.0, 2.0], [1.0]]),
    Row("None as features", (TypeError, ValueError), r"xt (has shape \(\)|could not be read).*accepted", xt=None),
    Row(
        "mixed NumPy and torch features", TypeError, r"xs is a torch tensor but .*NumPy arrays", xs=torch.as_tensor(XS)
    ),
]

TORCH_FEATURES = [
    Row("target of another library", TypeError, r"xs is a torch tensor but xt is a ndarray.*all as NumPy", xt=XT),
    Row("target as a list", TypeError, r"xs is a Tensor but xt is a list; pass both", xt=XT.tolist()),
    Row(
        "target on another device",
        ValueError,
        r"xs is on device cpu but xt is on meta.*\.to\(device\)",
        xt=torch.empty(M, D, device="meta"),
    ),
    Row(
        "source on another device",
        ValueError,
        r"xs is on device meta but .* is on cpu.*\.to\(device\)",
        xs=torch.empty(N, D, device="meta"),
    ),
    Row("complex tensor", TypeError, r"xs has dtype torch.complex.*accepted are real", xs=torch.as_tensor(XS + 1j)),
    Row(
        "NaN in a tensor",
        ValueError,
        r"xt contains NaN or infinity in 1 of 7 rows \(first: row 4\)",
        xt=torch.as_tensor(with_entry(XT, (4, 0), np.nan)),
    ),
    Row("overflow of half precision", ValueError, r"xs contains NaN or infinity", xs=torch.as_tensor(XS * 1e6).half()),
]

WEIGHTS = [
    Row(
        "too few source weights",
        ValueError,
        r"sample_weight_s has shape \(7,\).*shape \(8,\)",
        sample_weight_s=np.ones(N - 1),
    ),
    Row(
        "too many target weights",
        ValueError,
        r"sample_weight_t has shape \(8,\).*shape \(7,\)",
        sample_weight_t=np.ones(M + 1),
    ),
    Row(
        "matrix of weights",
        ValueError,
        r"sample_weight_s has shape \(8, 1\).*shape \(8,\)",
        sample_weight_s=np.ones((N, 1)),
    ),
    Row(
        "negative weight",
        ValueError,
        r"sample_weight_s contains the negative weight -1\.0.*>= 0",
        sample_weight_s=with_entry(np.ones(N), 2, -1),
    ),
    Row("zero weights", ValueError, r"sample_weight_t is zero for every sample.*positive", sample_weight_t=np.zeros(M)),
    Row("NaN weight", ValueError, r"sample_weight_s contains NaN", sample_weight_s=with_entry(np.ones(N), 0, np.nan)),
    Row(
        "infinite weight",
        ValueError,
        r"sample_weight_t contains NaN or infinity",
        sample_weight_t=with_entry(np.ones(M), 0, np.inf),
    ),
    Row("strings as weights", TypeError, r"sample_weight_s could not be read", sample_weight_s=["a"] * N),
    Row(
        "weights of another library",
        TypeError,
        r"sample_weight_s is a torch tensor but xs is a ndarray",
        sample_weight_s=torch.ones(N),
    ),
]

KERNELS = [
    Row(
        "unknown kernel",
        ValueError,
        r"kernel='rbf' is unknown; accepted are 'gaussian', 'laplacian', 'linear', or a function",
        kernel="rbf",
    ),
    Row("kernel of the wrong type", ValueError, r"kernel=3 is unknown; accepted are", kernel=3),
    Row("no kernel", ValueError, r"kernel=None is unknown", kernel=None),
    Row(
        "unknown bandwidth",
        ValueError,
        r"bandwidth='silverman' is unknown; accepted are 'shared'.*positive number",
        bandwidth="silverman",
    ),
    Row("zero bandwidth", ValueError, r"bandwidth=0\.0 is out of range; accepted is a positive number", bandwidth=0),
    Row("negative bandwidth", ValueError, r"bandwidth=-1\.0 is out of range", bandwidth=-1.0),
    Row("NaN bandwidth", ValueError, r"bandwidth=nan is out of range", bandwidth=np.nan),
    Row("infinite bandwidth", ValueError, r"bandwidth=inf is out of range", bandwidth=np.inf),
    Row("boolean bandwidth", TypeError, r"bandwidth=True is not a number.*positive number", bandwidth=True),
    Row("no bandwidth", TypeError, r"bandwidth is a NoneType; accepted is a positive number", bandwidth=None),
    Row("several bandwidths", TypeError, r"bandwidth is a ndarray of shape \(2,\)", bandwidth=np.ones(2)),
    Row(
        "kernel of the wrong shape",
        ValueError,
        r"kernel returned a .*of shape \(8,\).*must return an array of shape \(8, 8\)",
        kernel=lambda x, y: x[:, 0],
    ),
    Row(
        "kernel that transposes",
        ValueError,
        r"kernel returned a .*of shape \(8, 7\).*shape \(7, 8\)",
        kernel=lambda x, y: y @ x.T,
    ),
    Row("kernel that returns NaN", ValueError, r"kernel contains NaN", kernel=lambda x, y: x @ y.T * np.nan),
    Row(
        "kernel that returns nothing", ValueError, r"kernel returned a .*must return an array", kernel=lambda x, y: None
    ),
]

LABELS = [
    Row("too few source labels", ValueError, r"ys has 7 labels but xs has 8 samples.*one per sample", ys=YS[:-1]),
    Row("too many target labels", ValueError, r"yt has 8 labels but xt has 7 samples.*one per sample", yt=YS),
    Row(
        "labels without a column",
        ValueError,
        r"ys has shape \(8, 0\); accepted is at least one column",
        ys=np.empty((N, 0)),
    ),
    Row("too few rows of probabilities", ValueError, r"yt has 6 labels but xt has 7 samples", yt=PT[:-1]),
    Row("a single label", ValueError, r"ys has shape \(\); accepted is \(n,\) or \(n, columns\)", ys=1),
    Row("three-dimensional labels", ValueError, r"ys has shape \(8, 3, 1\); accepted is", ys=PS[:, :, None]),
    Row(
        "real numbers not declared",
        ValueError,
        r"ys is a vector of real numbers.*conditioning='hard'.*conditioning='continuous'",
        ys=XS[:, 0],
    ),
    Row(
        "integer-valued floats not declared",
        ValueError,
        r"yt is a vector of real numbers.*conditioning=",
        yt=YT.astype(float),
    ),
    Row(
        "rows that do not sum to one",
        ValueError,
        r"yt has 1 of 7 rows that are not probabilities \(row 1: .*sum 1\.5.*softmax.*conditioning='continuous'",
        yt=with_entry(PT, 1, [0.5, 0.5, 0.5]),
    ),
    Row("logits", ValueError, r"ys has \d of 8 rows that are not probabilities.*softmax", ys=5 * PS),
    Row(
        "negative probability",
        ValueError,
        r"yt has 1 of 7 rows that are not probabilities \(row 0: smallest entry -0\.5",
        yt=with_entry(PT, 0, [-0.5, 0.5, 1.0]),
    ),
    Row(
        "NaN probability", ValueError, r"yt contains NaN or infinity in 1 of 7 rows", yt=with_entry(PT, (1, 1), np.nan)
    ),
    Row("infinite probability", ValueError, r"ys contains NaN or infinity", ys=with_entry(PS, (1, 1), np.inf)),
    Row(
        "NaN among continuous values",
        ValueError,
        r"ys contains NaN or infinity",
        ys=with_entry(XS[:, 0], 1, np.nan),
        yt=XT[:, 0],
        conditioning="continuous",
    ),
    Row(
        "NaN among hard floats",
        ValueError,
        r"ys contains NaN.*every sample needs a class",
        ys=with_entry(YS, 1, np.nan),
        conditioning="hard",
    ),
    Row(
        "class beyond the columns",
        ValueError,
        r"ys contains class 3 but yt has 3 columns.*from 0 to 2",
        ys=YS + 1,
        yt=PT,
    ),
    Row(
        "negative class beside columns",
        ValueError,
        r"yt contains class -1 but ys has 3 columns.*from 0 to 2",
        ys=PS,
        yt=YT - 1,
    ),
    Row(
        "strings beside a matrix",
        ValueError,
        r"ys holds .* but yt is a matrix of 3 columns; ys must then be integers from 0 to 2",
        ys=YS.astype(str),
        yt=PT,
    ),
    Row(
        "floats beside a matrix",
        ValueError,
        r"ys holds .* but yt is a matrix of 3 columns; ys must then be integers",
        ys=YS + 0.5,
        yt=PT,
        conditioning=("hard", "soft"),
    ),
    Row(
        "different numbers of columns",
        ValueError,
        r"ys has 3 columns but yt has 2; both need one column for each class",
        ys=PS,
        yt=RNG.dirichlet(np.ones(2), size=M),
    ),
    Row(
        "strings beside integers",
        TypeError,
        r"ys has classes of dtype .* but yt of .*name the classes alike",
        ys=YS.astype(str),
    ),
    Row(
        "continuous beside hard",
        ValueError,
        r"ys is continuous but yt is hard; continuous values need continuous",
        ys=XS[:, 0],
        conditioning=("continuous", "hard"),
    ),
    Row(
        "soft beside continuous",
        ValueError,
        r"ys is soft but yt is continuous",
        ys=PS,
        yt=XT[:, 0],
        conditioning=("soft", "continuous"),
    ),
    Row(
        "continuous of different widths",
        ValueError,
        r"ys has 2 columns but yt has 1; .*same number in both",
        ys=XS[:, :2],
        yt=XT[:, 0],
        conditioning="continuous",
    ),
    Row(
        "strings as continuous values",
        TypeError,
        r"ys could not be read as an array of real numbers",
        ys=YS.astype(str),
        yt=YT,
        conditioning="continuous",
    ),
    Row(
        "a missing name",
        ValueError,
        r"ys contains a missing value; every sample needs a class",
        ys=np.array(["a", None] * 4, dtype=object),
        yt=np.array(["a"] * M),
    ),
    Row(
        "NaN among names",
        ValueError,
        r"yt contains a missing value; every sample needs a class",
        ys=np.array(["a"] * N),
        yt=np.array(["a", np.nan, *"aaaaa"], dtype=object),
    ),
    Row(
        "what pandas has for a missing name",
        ValueError,
        r"yt contains a missing value; every sample needs a class",
        ys=np.array(["a"] * N),
        yt=pd.Series(["a", pd.NA, *"aaaaa"], dtype="string"),
    ),
    Row(
        "masked labels",
        ValueError,
        r"ys has 2 masked entries",
        ys=np.ma.masked_array(YS, mask=np.arange(N) < 2),
    ),
    Row("complex labels", TypeError, r"ys .*complex", ys=YS + 0j),
    Row("complex rows", TypeError, r"ys .*complex", ys=PS + 0j),
    Row(
        "dates as labels",
        TypeError,
        r"ys has dtype datetime64.*accepted are integers, strings",
        ys=YS.astype("datetime64[D]"),
        yt=YT.astype("datetime64[D]"),
    ),
    Row(
        "names that cannot be compared",
        TypeError,
        r"ys and yt cannot be compared.*one type",
        ys=np.array(["a", 1] * 4, dtype=object),
        yt=np.array(["a"] * M, dtype=object),
    ),
    Row("no labels", (TypeError, ValueError), r"ys ", ys=None),
    Row(
        "unknown conditioning",
        ValueError,
        r"conditioning='classes' is unknown; accepted are 'hard', 'soft', 'continuous'",
        conditioning="classes",
    ),
    Row(
        "unknown conditioning in a pair",
        ValueError,
        r"conditioning='none' is unknown; accepted are",
        conditioning=("hard", "none"),
    ),
    Row(
        "three conditionings", TypeError, r"conditioning=.*pair of these \(source, target\)", conditioning=("hard",) * 3
    ),
    Row(
        "boolean conditioning",
        TypeError,
        r"conditioning=True is not accepted.*'hard', 'soft', 'continuous'",
        conditioning=True,
    ),
]

OPTIONS = [
    Row("zero eps", ValueError, r"eps=0\.0 is out of range; accepted is a positive number or 'auto'", eps=0),
    Row("negative eps", ValueError, r"eps=-0\.01 is out of range", eps=-1e-2),
    Row("NaN eps", ValueError, r"eps=nan is out of range", eps=np.nan),
    Row("infinite eps", ValueError, r"eps=inf is out of range", eps=np.inf),
    Row("boolean eps", TypeError, r"eps=True is not a number; accepted is a positive number", eps=True),
    Row("unknown eps", ValueError, r"eps='small' is unknown; accepted are 'auto', or a positive number", eps="small"),
    Row("no eps", TypeError, r"eps is a NoneType; accepted is a positive number", eps=None),
    Row(
        "automatic eps without classes",
        ValueError,
        r"eps='auto' needs classes.*pass a positive number",
        ys=XS[:, 0],
        yt=XT[:, 0],
        conditioning="continuous",
        eps="auto",
    ),
    Row(
        "automatic eps with a function",
        ValueError,
        r"eps='auto' needs .*label kernel.*positive number",
        label_kernel=lambda x, y: x @ y.T,
        eps="auto",
    ),
    Row(
        "unknown label kernel",
        ValueError,
        r"label_kernel='delta' is unknown; accepted are 'gaussian', 'laplacian', 'linear', or a function",
        label_kernel="delta",
    ),
    Row(
        "unknown label bandwidth",
        ValueError,
        r"label_bandwidth='shared' is unknown; accepted are 'mean', 'median', or a positive number",
        label_bandwidth="shared",
    ),
    Row("zero label bandwidth", ValueError, r"label_bandwidth=0\.0 is out of range", label_bandwidth=0.0),
    Row("negative label bandwidth", ValueError, r"label_bandwidth=-2\.0 is out of range", label_bandwidth=-2),
    Row("NaN label bandwidth", ValueError, r"label_bandwidth=nan is out of range", label_bandwidth=np.nan),
    Row("boolean label bandwidth", TypeError, r"label_bandwidth=False is not a number", label_bandwidth=False),
    Row(
        "label kernel of the wrong shape",
        ValueError,
        r"label_kernel returned .*must return an array of shape \(8, 8\)",
        label_kernel=lambda x, y: np.ones(3),
    ),
    Row(
        "label kernel that returns NaN",
        ValueError,
        r"label_kernel contains NaN",
        label_kernel=lambda x, y: x @ y.T * np.nan,
    ),
    Row(
        "indefinite label kernel",
        ValueError,
        r"label kernel of ys is not positive semi-definite \(smallest eigenvalue -.*pass another label_kernel",
        label_kernel=lambda x, y: -(x @ y.T),
    ),
    Row("unknown method", ValueError, r"method='fast' is unknown; accepted are 'auto', 'svd'", method="fast"),
    Row(
        "unknown prior",
        ValueError,
        r"prior='balanced' is unknown; accepted are 'source', 'target', 'uniform', or one frequency per class",
        prior="balanced",
    ),
    Row(
        "prior of the wrong length",
        ValueError,
        r"prior has shape \(2,\); accepted is one frequency per class, shape \(3,\)",
        prior=[0.5, 0.5],
    ),
    Row(
        "prior that does not sum to one",
        ValueError,
        r"prior .*sum.* 1\.2; accepted are frequencies >= 0 that sum to one",
        prior=[0.4, 0.4, 0.4],
    ),
    Row("negative prior", ValueError, r"prior .*(negative|-0\.5).*>= 0", prior=[-0.5, 0.5, 1.0]),
    Row("NaN prior", ValueError, r"prior contains NaN", prior=[np.nan, 0.5, 0.5]),
    Row("boolean prior", (TypeError, ValueError), r"prior", prior=True),
    Row(
        "prior without classes",
        ValueError,
        r"prior='uniform' needs classes.*prior=None",
        ys=XS[:, 0],
        yt=XT[:, 0],
        conditioning="continuous",
        prior="uniform",
    ),
    Row(
        "prior of a class missing from the target",
        ValueError,
        r"prior gives class 2 the frequency 0\.333 but the target has no sample.*prior=None",
        yt=YT % 2,
        prior="uniform",
    ),
    Row(
        "prior of a class missing from the source",
        ValueError,
        r"prior gives class 2 .* but the source has no sample",
        ys=YS % 2,
        prior="target",
    ),
]


@each_conditional
@table(*FEATURES, *WEIGHTS, *KERNELS, *LABELS, *OPTIONS)
def test_conditional_distances_refuse(metric, row):
    refuses(row, metric, xs=XS, ys=YS, xt=XT, yt=YT)


@pytest.mark.parametrize("metric", [bures.kernel_bures, bures.mmd], ids=lambda metric: metric.__name__)
@table(*FEATURES, *WEIGHTS, *KERNELS)
def test_marginal_distances_refuse(metric, row):
    refuses(row, metric, takes_labels=False, xs=XS, xt=XT)


@table(*FEATURES, *WEIGHTS)
def test_bures_refuses(row):
    refuses(row, bures.bures, takes_labels=False, xs=XS, xt=XT)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e30), (torch.float64, 1e160)], ids=str)
def test_bures_refuses_samples_whose_squares_are_beyond_their_dtype(dtype, size):
    xs, xt = (torch.as_tensor(size * x, dtype=dtype) for x in (XS, XT))
    with pytest.raises(ValueError, match=rf"xs and xt have entries of size .* beyond the range of {dtype}"):
        bures.bures(xs, xt)


@each_conditional
@table(
    *TORCH_FEATURES,
    Row("labels of another library", TypeError, r"xs is a torch tensor but ys is a ndarray.*all as NumPy", ys=YS),
    Row(
        "target labels on another device",
        ValueError,
        r"xs is on device cpu but yt is on meta",
        yt=torch.empty(M, K, device="meta"),
    ),
    Row(
        "real numbers not declared",
        ValueError,
        r"ys is a vector of real numbers.*conditioning=",
        ys=torch.as_tensor(XS[:, 0]),
    ),
    Row(
        "class beyond the columns",
        ValueError,
        r"ys contains class 3 but yt has 3 columns",
        ys=torch.as_tensor(YS) + 1,
        yt=torch.as_tensor(PT),
    ),
    Row(
        "floats beside a matrix",
        ValueError,
        r"ys .*integers",
        ys=torch.as_tensor(YS) + 0.5,
        yt=torch.as_tensor(PT),
        conditioning=("hard", "soft"),
    ),
    Row(
        "float32 rows that do not sum to one",
        ValueError,
        r"yt has 7 of 7 rows that are not probabilities",
        yt=torch.as_tensor(PT).float() * 1.01,
    ),
    Row(
        "weights of another library",
        TypeError,
        r"xs is a torch tensor but sample_weight_t is a ndarray",
        sample_weight_t=np.ones(M),
    ),
    Row("complex labels", TypeError, r"ys .*complex", ys=torch.as_tensor(YS + 0j)),
    Row(
        "kernel that leaves torch",
        ValueError,
        r"kernel returned a ndarray",
        kernel=lambda x, y: np.zeros((len(x), len(y))),
    ),
)
def test_conditional_distances_refuse_tensors(metric, row):
    xs, ys, xt, yt = torch_of(XS, YS, XT, YT)
    refuses(row, metric, xs=xs, ys=ys, xt=xt, yt=yt)


@pytest.mark.parametrize("metric", [bures.kernel_bures, bures.mmd, bures.bures], ids=lambda metric: metric.__name__)
@table(*TORCH_FEATURES)
def test_marginal_distances_refuse_tensors(metric, row):
    xs, xt = torch_of(XS, XT)
    refuses(row, metric, xs=xs, xt=xt)


@pytest.mark.parametrize("call", [bures.mmd, bures.ckw, bures.MMDLoss, bures.CKWLoss], ids=lambda call: call.__name__)
def test_differences_of_means_refuse_one_bandwidth_for_each_block(call):
    data = {bures.mmd: {"xs": XS, "xt": XT}, bures.ckw: {"xs": XS, "ys": YS, "xt": XT, "yt": YT}}.get(call, {})
    with pytest.raises(
        ValueError, match=r"bandwidth='per-block' is unknown; accepted are 'shared', 'median', or a positive"
    ):
        call(**data, bandwidth="per-block")


@table(
    Row("not square", ValueError, r"cov_s has shape \(2, 3\); accepted is a square matrix", cov_s=COV[:2]),
    Row("different sizes", ValueError, r"cov_s has 3 features but cov_t has 2", cov_t=COV[:2, :2]),
    Row("asymmetric", ValueError, r"cov_t is not symmetric.*\(cov \+ cov\.T\) / 2", cov_t=with_entry(COV, (0, 1), 5)),
    Row(
        "indefinite",
        ValueError,
        r"cov_s has the negative eigenvalue -1.*positive semi-definite",
        cov_s=np.diag([1.0, 2.0, -1.0]),
    ),
    Row("NaN", ValueError, r"cov_s contains NaN", cov_s=with_entry(COV, (1, 1), np.nan)),
    Row("infinite", ValueError, r"cov_t contains NaN or infinity", cov_t=with_entry(COV, (1, 1), np.inf)),
    Row("empty", ValueError, r"cov_s is empty", cov_s=np.empty((0, 0)), cov_t=np.empty((0, 0))),
    Row("three-dimensional", ValueError, r"cov_s has shape \(1, 3, 3\)", cov_s=COV[None]),
    Row("complex", TypeError, r"cov_t .*complex", cov_t=COV + 0j),
    Row("mixed libraries", TypeError, r"cov_t is a torch tensor but cov_s is a ndarray", cov_t=torch.as_tensor(COV)),
    Row("strings", TypeError, r"cov_s could not be read", cov_s=[["a", "b", "c"]] * D),
)
def test_bures_covariance_refuses(row):
    refuses(row, bures.bures_covariance, cov_s=COV, cov_t=COV)


@pytest.mark.parametrize("name", ["n_permutations", "n_bootstrap"])
@pytest.mark.parametrize("value", [-1, 2.5, True, "100", None], ids=repr)
def test_explain_refuses_counts_that_are_not_whole_numbers(name, value):
    error = ValueError if value == -1 else TypeError
    with pytest.raises(error, match=rf"{name}={value!r} .*; accepted is an integer of at least 0; 0 leaves it out$"):
        bures.explain(XS, YS, XT, YT, **{name: value})


@pytest.mark.parametrize("loss", [bures.CKBLoss, bures.CKWLoss], ids=lambda loss: loss.__name__)
@table(
    Row(
        "unknown pseudo-labels",
        ValueError,
        r"pseudo_labels='argmax' is unknown; accepted are 'soft', 'hard'",
        pseudo_labels="argmax",
    ),
    Row("boolean pseudo-labels", ValueError, r"pseudo_labels=True is unknown", pseudo_labels=True),
    Row("unknown kernel", ValueError, r"kernel='rbf' is unknown", kernel="rbf"),
    Row("unknown bandwidth", ValueError, r"bandwidth='none' is unknown", bandwidth="none"),
    Row("unknown label kernel", ValueError, r"label_kernel='rbf' is unknown", label_kernel="rbf"),
    Row("zero label bandwidth", ValueError, r"label_bandwidth=0\.0 is out of range", label_bandwidth=0),
    Row("negative eps", ValueError, r"eps=-1\.0 is out of range", eps=-1),
    Row("boolean eps", TypeError, r"eps=True is not a number", eps=True),
    Row("unknown method", ValueError, r"method='fast' is unknown", method="fast"),
    Row("unknown prior", ValueError, r"prior='balanced' is unknown; accepted are", prior="balanced"),
)
def test_conditional_losses_refuse_options_when_built(loss, row):
    refuses(row, loss)


@pytest.mark.parametrize("loss", [bures.KernelBuresLoss, bures.MMDLoss], ids=lambda loss: loss.__name__)
@table(
    Row("unknown kernel", ValueError, r"kernel='rbf' is unknown", kernel="rbf"),
    Row("unknown bandwidth", ValueError, r"bandwidth='none' is unknown", bandwidth="none"),
    Row("negative bandwidth", ValueError, r"bandwidth=-1\.0 is out of range", bandwidth=-1),
    Row("boolean bandwidth", TypeError, r"bandwidth=True is not a number", bandwidth=True),
)
def test_marginal_losses_refuse_options_when_built(loss, row):
    refuses(row, loss)


@pytest.mark.parametrize("loss", [bures.CKBLoss, bures.CKWLoss, bures.MMDLoss], ids=lambda loss: loss.__name__)
@table(
    Row(
        "logits",
        ValueError,
        r"(p_t|yt) has 7 of 7 rows that are not probabilities.*softmax",
        p_t=torch.as_tensor(PT).log(),
    ),
    Row(
        "class beyond the columns",
        ValueError,
        r"(y_s|ys) contains class 3 but (p_t|yt) has 3 columns",
        y_s=torch.as_tensor(YS) + 1,
    ),
    Row("NaN probabilities", ValueError, r"(p_t|yt) contains NaN", p_t=torch.as_tensor(with_entry(PT, (0, 0), np.nan))),
    Row(
        "too few source labels",
        ValueError,
        r"(y_s|ys) has 7 labels but (z_s|xs) has 8 samples",
        y_s=torch.as_tensor(YS[:-1]),
    ),
    Row(
        "too few predictions",
        ValueError,
        r"(p_t|yt) has 6 labels but (z_t|xt) has 7 samples",
        p_t=torch.as_tensor(PT[:-1]),
    ),
    Row(
        "labels with another number of columns",
        ValueError,
        r"(y_s|ys) has 4 columns but (p_t|yt) has 3",
        y_s=torch.full((N, 4), 0.25),
    ),
)
def test_losses_refuse_batches(loss, row):
    z_s, y_s, z_t, p_t = torch_of(XS, YS, XT, PT)
    batch = {"z_s": z_s, "y_s": y_s, "z_t": z_t, "p_t": p_t, **row.changes}
    with pytest.raises(row.error, match=f"(?s){row.message}"):
        loss()(*batch.values())


def test_a_label_kernel_that_is_none_is_told_by_the_names_of_the_loss():
    loss = bures.CKBLoss(label_kernel=lambda a, b: -(a @ b.T))
    with pytest.raises(ValueError, match=r"the label kernel of y_s is not positive semi-definite"):
        loss(*(torch.as_tensor(part) for part in (XS, PS, XT, PT)))


@pytest.mark.parametrize("count", [1, 3, 5])
def test_mmd_loss_refuses_other_numbers_of_arguments(count):
    with pytest.raises(TypeError, match=rf"\(z_s, y_s, z_t, p_t\) or two batches, got {count} arguments"):
        bures.MMDLoss()(*[torch.zeros(2, 2)] * count)


def test_mmd_loss_refuses_predicted_classes():
    with pytest.raises(ValueError, match=r"p_t has shape \(7,\); accepted are probabilities of shape \(m, K\)"):
        bures.MMDLoss()(*torch_of(XS, YS, XT, YT))


@table(
    Row("too small share", ValueError, r"share=-0\.1 is out of range; accepted is a number from 0 to 1", share=-0.1),
    Row("too large share", ValueError, r"share=2 is out of range", share=2),
)
def test_exchanged_regions_refuses(row):
    refuses(row, bures.data.exchanged_regions)


@table(
    Row(
        "frequencies that do not sum to one",
        ValueError,
        r"frequencies sum to 0\.9.*summing to one",
        frequencies=[0.5, 0.4],
    ),
    Row("negative frequency", ValueError, r"frequencies .*>= 0", frequencies=[-0.5, 1.5]),
    Row(
        "means of another number of classes",
        ValueError,
        r"means has shape \(3, 1\).*accepted for 2 frequencies",
        means=np.zeros((3, 1)),
    ),
    Row(
        "covariances of another size",
        ValueError,
        r"covariances \(2, 2, 2\).*accepted for 2",
        covariances=np.zeros((2, 2, 2)),
    ),
)
def test_gaussian_classes_refuse(row):
    refuses(
        row, bures.data.GaussianClasses, frequencies=[0.5, 0.5], means=np.zeros((2, 1)), covariances=np.ones((2, 1, 1))
    )


@each_conditional
def test_the_table_starts_from_accepted_arguments(metric):
    """What every row above changes is accepted unchanged, so it is the change that is refused."""
    metric(XS, YS, XT, YT)
    metric(*torch_of(XS, YS, XT, YT))
    metric(XS, PS, XT, PT)
