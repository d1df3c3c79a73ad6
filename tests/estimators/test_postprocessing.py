"""The field's post-processing: each method against its published definition in plain NumPy, and what it promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64, collect
from jax.test_util import check_grads
from refusals import refused
from scipy import integrate, optimize, stats

import rrjax
from rrjax import postprocessing
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.mechanisms import OptimizedUnaryEncoding

NAMES = [name for name, entry in ESTIMATORS.items() if entry.by_name and entry.needs == "tally"]
every = pytest.mark.parametrize("name", NAMES)
ONE = ("norm", "power_ns")
"""What sums to one."""
SIGNED = ("norm",)
"""What may be negative."""
EXACT = ("base_pos", "norm", "norm_cut", "base_cut")
"""What has a closed form; the others have an integral."""


class Plain:
    """A collection in double precision: shares, N, p and q."""

    def __init__(self, support, number, p, q):
        self.number, self.p, self.q = number, p, q
        self.shares = (np.asarray(support, np.float64) / number - q) / (p - q)
        self.size = len(self.shares)

    @classmethod
    def of_counts(cls, counts, epsilon):
        e1 = np.expm1(epsilon)
        return cls(counts, np.sum(counts), (e1 + 1) / (e1 + len(counts)), 1 / (e1 + len(counts)))

    @classmethod
    def of_tally(cls, tally):
        return cls(tally.support, int(tally.num_users), float(tally.p), float(tally.q))

    def base_pos(self):
        return np.array([max(share, 0) for share in self.shares])

    def base_cut(self, alpha=0.05):
        deviation = np.sqrt(self.q * (1 - self.q) / self.number) / (self.p - self.q)
        threshold = stats.norm.ppf(1 - alpha / self.size) * deviation
        return np.array([share if share >= threshold else 0 for share in self.shares])

    def norm(self):
        return self.shares + (1 - self.shares.sum()) / self.size

    @staticmethod
    def projected(shares):
        low, high = -shares.max(), 1 - shares.min()
        delta = optimize.brentq(lambda delta: np.maximum(shares + delta, 0).sum() - 1, low, high, xtol=1e-15)
        return np.maximum(shares + delta, 0)

    def norm_cut(self):
        for threshold in sorted(set(self.shares[self.shares > 0])):  # the smallest first
            if self.shares[self.shares >= threshold].sum() <= 1 + 1e-12:
                return np.where(self.shares >= threshold, self.shares, 0)
        return np.zeros(self.size)

    def law(self):
        """The ends and the exponent of the power law."""
        least = min(1 / self.number, 0.1 / self.size)

        def integral(power):  # of x^(power − 1) from the least share to one
            return -np.log(least) if abs(power) < 1e-9 else (1 - least**power) / power

        return least, optimize.brentq(lambda s: integral(2 - s) / integral(1 - s) - 1 / self.size, 0, 3)

    def variance(self, x):
        noise, held = self.q * (1 - self.q), self.p * (1 - self.p)
        return (noise + x * (held - noise)) / (self.number * (self.p - self.q) ** 2)

    def power(self):
        least, exponent = self.law()
        found = []
        for share in self.shares:
            near = share + np.sqrt(self.variance(np.clip(share, least, 1))) * np.linspace(-14, 14, 4001)
            x = np.unique(np.concatenate([np.geomspace(least, 1, 40_001), np.clip(near, least, 1)]))
            log_density = -exponent * np.log(x) - ((x - share) ** 2 / self.variance(x) + np.log(self.variance(x))) / 2
            density = np.exp(log_density - log_density.max())
            found.append(integrate.simpson(density * x, x=x) / integrate.simpson(density, x=x))
        return np.array(found)

    def power_ns(self):
        return self.projected(self.power())


def tally_of(name, seed=0):
    """Twelve categories, other rates than k-ary randomized response's."""
    support = np.array([700, 400, 390, 360, 300, 310, 280, 290, 300, 150, 255, 310])
    if name == "faint":
        support = 300 + np.array([40, 30, 20, 10, 5, -3, -5, -5, -10, -20, -20, -30])
    if name == "unary":
        truth = np.array([900, 500, 300, 150, 80, 40, 20, 10, 0, 0, 0, 0])
        return OptimizedUnaryEncoding(12, 1.0).collect(jax.random.key(seed), truth)
    return Tally(support, 1000, *{"plain": (0.75, 0.1), "faint": (0.5, 0.3), "bold": (0.95, 0.25)}[name])


COUNTS = collect(3, 12, 3000, 1.0, 1.3)
CASES = [
    *((collect(seed, 12, number, epsilon, skew), epsilon) for seed, number, epsilon, skew in [
        (0, 200, 0.5, 1.0), (1, 3000, 1.0, 1.3), (2, 10**6, 2.0, 2.5), (4, 30, 1.0, 0.0), (5, 10**6, 8.0, 1.0),
    ]),
    ([0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1.0),  # its largest share is above one
    ([178] + [132] * 3 + [78] * 8, 1.0),  # three alike, of which one fits
]  # fmt: skip


@pytest.mark.long
@every
def test_against_the_definition(name):
    tolerance = 300 * ULP if name in EXACT else max(300 * ULP, 1e-7)
    for counts, epsilon in CASES:
        plain = Plain.of_counts(counts, epsilon)
        found = np.asarray(ESTIMATORS[name](np.asarray(counts), epsilon), np.float64)
        scale = max(1, np.abs(plain.shares).max())
        np.testing.assert_allclose(found, getattr(plain, name)(), atol=tolerance * scale, err_msg=f"{counts}")


@every
@pytest.mark.parametrize(
    "rates", ["plain", *(pytest.param(rates, marks=pytest.mark.long) for rates in ("unary", "faint", "bold"))]
)
def test_of_other_rates_against_the_definition(name, rates):
    tally = tally_of(rates)
    plain = Plain.of_tally(tally)
    tolerance = 300 * ULP if name in EXACT else max(300 * ULP, 1e-7)
    found = np.asarray(ESTIMATORS[name].function(tally), np.float64)
    np.testing.assert_allclose(found, getattr(plain, name)(), atol=tolerance * max(1, np.abs(plain.shares).max()))


def test_the_cases_tell_the_methods_apart():
    plain = Plain.of_tally(tally_of("faint"))
    assert plain.base_pos().sum() < 1 - 1e-3
    # Published loops never revive what they have set to zero; the definition does.
    assert ((plain.projected(plain.shares) > 0) & (plain.shares < 0)).any()
    assert Plain.of_tally(tally_of("plain")).shares.sum() > 1 + 1e-3
    zero, tied = CASES[-2:]
    assert not np.asarray(postprocessing.norm_cut(*zero)).any()
    assert np.count_nonzero(postprocessing.norm_cut(*tied)) == 1
    _, next_one, *_ = np.asarray(rrjax.inv(*tied))
    assert float(postprocessing.norm_cut(*tied).sum()) + next_one < 1
    bold = Plain.of_tally(tally_of("bold"))
    assert bold.p * (1 - bold.p) < bold.q * (1 - bold.q)


@every
def test_sums_signs_and_permutations(name):
    order = np.random.default_rng(1).permutation(12)
    for counts, epsilon in CASES:
        counts = np.asarray(counts)
        theta = np.asarray(ESTIMATORS[name](counts, epsilon), np.float64)
        if name in ONE:
            assert theta.sum() == pytest.approx(1, abs=100 * ULP * max(1, np.abs(theta).max()))
        if name == "norm_cut":
            assert theta.sum() <= 1 + 100 * ULP
        if name not in SIGNED:
            assert theta.min() >= 0
        moved = np.asarray(ESTIMATORS[name](counts[order], epsilon))
        np.testing.assert_allclose(moved, theta[order], atol=30 * ULP * max(1, np.abs(theta).max()))


@pytest.mark.long
@every
def test_jit_and_batches(name):
    function = ESTIMATORS[name].function
    counts = np.stack([np.asarray(row) for row, _ in CASES]).astype(INT)
    epsilon = np.array([each for _, each in CASES], FLOAT)
    together = np.asarray(jax.jit(jax.vmap(function))(counts, epsilon))
    for index, (row, each) in enumerate(zip(counts, epsilon, strict=True)):
        alone = np.asarray(function(row, each))
        np.testing.assert_allclose(together[index], alone, atol=30 * ULP * max(1, np.abs(alone).max()))


@pytest.mark.long
@every
def test_what_makes_no_sense_is_nan_under_tracing(name):
    function = jax.jit(ESTIMATORS[name].function)
    good, nan = np.asarray(COUNTS, INT), FLOAT.type(np.nan)
    assert not np.isnan(function(good, FLOAT.type(1))).any()
    for counts, epsilon in [
        (np.zeros(12, INT), 1),
        (np.where(np.arange(12) == 3, -1, good).astype(INT), 1),
        (np.full(12, LARGEST // 5, INT), 1),
        (good, 0),
        (good, -1),
        (good, nan),
    ]:
        assert np.isnan(function(counts, FLOAT.type(epsilon))).all(), (counts, epsilon)
    for weights in (np.zeros(12, FLOAT), np.where(np.arange(12) == 3, nan, 5).astype(FLOAT)):
        assert np.isnan(function(weights, FLOAT.type(1))).all(), weights
    tallied = jax.jit(lambda support, number, p, q: function(Tally(support, number, p, q)))
    assert not np.isnan(tallied(good, INT.type(5000), 0.5, 0.2)).any()
    for number, p, q in [(100, 0.5, 0.2), (5000, 0.2, 0.5), (5000, 0.3, 0.3), (5000, 1.5, 0.2), (5000, np.nan, 0.2)]:
        assert np.isnan(tallied(good, INT.type(number), p, q)).all(), (number, p, q)


@every
def test_extreme_epsilon_and_two_categories(name):
    function, counts = ESTIMATORS[name].function, np.array([70, 30])
    for epsilon in (40.0, 800.0, np.inf):
        # One user of a hundred is the least share of a power law, and none of these is near it.
        np.testing.assert_allclose(function(counts, epsilon), [0.7, 0.3], atol=max(1e-9, 30 * ULP))
    many = np.asarray(function(np.array([700, 300] + [0] * 10), 800.0))
    np.testing.assert_allclose(many, [0.7, 0.3] + [0] * 10, atol=1.1e-3 if name == "power" else 2e-3)
    for epsilon in (1e-3, 1e-30):
        assert np.isfinite(np.asarray(function(counts, epsilon))).all()
    exact = Tally([70, 30, 0], 100, 1.0, 0.0)
    np.testing.assert_allclose(function(exact), [0.7, 0.3, 0], atol=0.011 if "power" in name else 1e-6)


def test_nothing_is_dropped_where_nothing_is_negative():
    rng = np.random.default_rng(0)
    for size in (2, 3, 12, 5000):  # the shares sum to one, to rounding on either side
        counts = rng.integers(50, 100, size)
        np.testing.assert_array_equal(postprocessing.norm_cut(counts, 9.0), rrjax.inv(counts, 9.0))


@pytest.mark.long
def test_the_threshold_of_base_cut():
    counts = np.array([500, 260, 150, 90])
    plain = Plain.of_counts(counts, 1.0)
    for alpha in (1e-6, 0.05, 1.0, 2.0):
        np.testing.assert_allclose(
            postprocessing.base_cut(counts, 1.0, alpha=alpha), plain.base_cut(alpha), atol=100 * ULP
        )
    traced = jax.jit(lambda alpha: postprocessing.base_cut(counts, 1.0, alpha=alpha))
    np.testing.assert_allclose(traced(1.0), plain.base_cut(1.0), atol=100 * ULP)
    for alpha in (0.0, -1.0, 2.5, np.nan):
        assert np.isnan(traced(alpha)).all()
        with refused("alpha"):
            postprocessing.base_cut(counts, 1.0, alpha=alpha)
    # What nobody holds is kept about alpha times, of many.
    kept = []
    for seed in range(200):
        counts = np.random.default_rng(seed).binomial(10**6, 0.2, 200)
        kept.append(np.count_nonzero(postprocessing.base_cut(Tally(counts, 10**6, 0.5, 0.2), alpha=2.0)))
    assert abs(np.mean(kept) - 2) <= 4 * np.sqrt(2 / 200)


@every
def test_bad_input_is_refused(name):
    function = ESTIMATORS[name].function
    for counts, epsilon, words in [
        ([5], 1.0, "counts"),
        ([[5, 3]], 1.0, "counts"),
        ([5, 3], None, "epsilon"),
        ([5, 3], [1.0], "epsilon"),
        (tally_of("faint"), 1.0, "epsilon"),
    ]:
        with refused(words):
            function(counts, epsilon)


@pytest.mark.long
@every
def test_weights_and_derivatives(name):
    function = ESTIMATORS[name].function
    weights = np.array([700.5, 400.25, 300, 160, 120, 110], FLOAT)  # no share is at a threshold
    np.testing.assert_allclose(
        function(np.round(weights), 1.5), function(np.round(weights).astype(INT), 1.5), atol=100 * ULP
    )
    direction = np.cos(np.arange(6)).astype(FLOAT)

    def smooth(counts, epsilon):
        return jnp.sum(direction * function(counts, epsilon))

    if X64:
        check_grads(smooth, (weights, 1.5), order=1, atol=1e-6, rtol=1e-5)
    slopes = jax.grad(smooth, argnums=(0, 1))(weights, 1.5)
    assert all(np.isfinite(np.asarray(slope)).all() for slope in slopes)
    assert np.abs(np.asarray(slopes[0])).max() > 0


def merged_by_hand(counts, epsilon, cut):
    """Mixture reduction in plain floats: the groups, and the maximum of the likelihood among what is even on them."""
    counts, e1 = np.asarray(counts, np.float64), np.expm1(epsilon)
    size, number = len(counts), counts.sum()
    groups = [[i] for i in range(size)]

    def maximum():
        sums, parts = np.array([counts[g].sum() for g in groups]), np.array([len(g) for g in groups]) / e1
        order = np.argsort(-sums / parts)
        for last in range(len(groups), 0, -1):  # the largest support on which all shares are positive
            kept = order[:last]
            shares = sums[kept] / sums[kept].sum() * (1 + parts[kept].sum()) - parts[kept]
            if (shares > 0).all():
                break
        theta = np.zeros(size)
        for place, share in zip(kept, shares, strict=True):
            theta[groups[place]] = share / len(groups[place])
        return theta

    theta = maximum()
    for _ in range(2):
        level = cut * np.sqrt((size - 1 + e1) / number) / e1
        small = sorted((counts[g[0]], g[0]) for g in groups if len(g) == 1 and theta[g[0]] < level)
        if not small or size < 4:
            break
        most = small[min(len(small), size // 4) - 1][0]
        joined = [i for count, i in small if count <= most]
        groups = [g for g in groups if len(g) > 1 or g[0] not in joined] + [joined]
        theta = maximum()
    return theta


@pytest.mark.long
@pytest.mark.parametrize("cut", [None, 0.5, 3.0])
def test_mixture_reduction_against_its_definition(cut):
    for counts, epsilon in CASES:
        found = np.asarray(postprocessing.mixture_reduction(np.asarray(counts), epsilon, cut=cut), np.float64)
        wanted = merged_by_hand(counts, epsilon, cut if cut is not None else 1 if np.exp(epsilon) < 5 else 2)
        np.testing.assert_allclose(found, wanted, atol=300 * ULP, err_msg=f"{counts}")
        assert found.sum() == pytest.approx(1, abs=100 * ULP)
        best = np.asarray(rrjax.mle_star(np.asarray(counts), epsilon))
        given_up = float(rrjax.nll(found, counts, epsilon) - rrjax.nll(best, counts, epsilon))
        gap = float(rrjax.certificate(found.astype(FLOAT), counts, epsilon).gap)
        assert -100 * ULP <= given_up <= gap + 100 * ULP


@pytest.mark.long  # programs that compile for seconds
def test_mixture_reduction_refuses_what_it_has_no_counts_of():
    with pytest.raises(ValueError, match="counts of k-ary randomized response"):
        postprocessing.mixture_reduction(tally_of("plain"))
    with refused("cut"):
        postprocessing.mixture_reduction([5, 3], 1.0, cut=-1.0)
    assert np.isnan(jax.jit(postprocessing.mixture_reduction)(jnp.zeros(5, INT), 1.0)).all()
    np.testing.assert_allclose(postprocessing.mixture_reduction([70, 30], 800.0), [0.7, 0.3], atol=30 * ULP)


@pytest.mark.full
@pytest.mark.parametrize(
    ("truth", "epsilon", "wanted"),
    [([3000] * 30 + [100] * 30, 2.0, 0.06), ([2000] * 4 + [400] * 56, 1.5, -0.04)],
    ids=["gain", "loss"],
)
def test_where_mixture_reduction_gains_on_the_maximum_and_where_it_loses(truth, epsilon, wanted):
    """What it merges is alike here, or of which half looks larger by chance. Four standard errors, and by how much."""
    truth = np.asarray(truth)
    draw = jax.jit(jax.vmap(lambda key: rrjax.RandomizedResponse(60, epsilon).collect(key, truth).support))
    counts = draw(jax.random.split(jax.random.key(0), 400))
    merged, likeliest = (
        ((np.asarray(jax.jit(jax.vmap(lambda c, f=f: f(c, epsilon)))(counts)) - truth / truth.sum()) ** 2).sum(1)
        for f in (postprocessing.mixture_reduction, rrjax.mle_star)
    )
    gain = (likeliest - merged) / likeliest.mean()
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    assert abs(gain.mean()) > 4 * error
    assert gain.mean() == pytest.approx(wanted, abs=0.01)


def errors(names, mechanism, truth, num_seeds=40):
    """`[names, seeds]`: squared errors, summed over the categories."""
    shares = truth / truth.sum()
    tallies = [mechanism.collect(jax.random.key(seed), truth) for seed in range(num_seeds)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tallies)
    return np.array(
        [((np.asarray(jax.jit(jax.vmap(ESTIMATORS[name].function))(batch)) - shares) ** 2).sum(1) for name in names]
    )


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_order_that_the_paper_reports_on_a_zipf_population(epsilon):
    truth = 1 / np.arange(1, 257) ** 1.5
    truth = np.round(100_000 * truth / truth.sum()).astype(int)
    names = ["inv", "norm", "inv_n", "base_pos", "inv_p", "norm_cut", "power", "power_ns"]
    found = dict(zip(names, errors(names, OptimizedUnaryEncoding(256, epsilon), truth), strict=True))
    assert (found["norm"] <= found["inv"] * (1 + 100 * ULP)).all()  # a projection on what sums to one
    for better, worse in [
        ("base_pos", "inv"),
        ("inv_p", "norm"),
        ("inv_p", "inv_n"),
        ("inv_p", "base_pos"),
        ("power", "inv_p"),
        ("power_ns", "inv_p"),
        ("power", "norm_cut"),
    ]:
        difference = found[worse] - found[better]
        assert difference.mean() > 4 * difference.std(ddof=1) / np.sqrt(len(difference)), (better, worse)


@pytest.mark.once
def test_the_list_is_there_by_name_alone():
    from rrjax.reports.comparison import everything

    assert NAMES == ["base_pos", "base_cut", "norm", "norm_cut", "power", "power_ns"]
    assert set(everything(ordered=True)) == set(ESTIMATORS) - {*NAMES, "mixture_reduction", "mle"}


@pytest.mark.full
@pytest.mark.once
def test_the_command_line_takes_the_names(invoke, tmp_path):
    (tmp_path / "a.csv").write_text("answer\n" + "\n".join("aaaaabbbccd"))
    listed = [*NAMES, "mixture_reduction"]
    names = [word for name in listed for word in ("--estimator", name)]
    code, out, error = invoke("compare", "a.csv", "--epsilon", "1", *names)
    assert code == 0, error
    assert all(ESTIMATORS[name].title in out for name in listed)
    assert "The shares of Power do not sum to one" in " ".join(out.split())
    code, out, error = invoke("estimate", "a.csv", "--epsilon", "1", "--estimator", "norm-cut")
    assert code == 0, error
    assert "Norm-Cut" in out


@pytest.mark.full
@pytest.mark.once
def test_a_study_takes_the_names():
    study = pytest.importorskip("rrjax.study")
    names = ["norm_cut", "power_ns"]
    result = study.Study(
        estimators=names, num_categories=[20], num_users=[300], epsilon=[1.0], zipf=[1.3], num_seeds=4, metrics=["mse"]
    ).run()
    assert result.estimator.values.tolist() == names
    assert np.isfinite(result.mse.values).all()
