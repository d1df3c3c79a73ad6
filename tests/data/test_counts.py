"""Reports in memory to counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import INT, X64
from refusals import refused

import rrjax
from rrjax.data.arguments import count_summary, is_distribution


def test_counts_are_those_of_numpy():
    reports = np.random.default_rng(0).integers(0, 7, (50, 20))
    counts = rrjax.count(reports, num_categories=7)
    assert counts.dtype == INT
    np.testing.assert_array_equal(counts, np.bincount(reports.ravel(), minlength=7))
    compiled = jax.jit(rrjax.count, static_argnums=1)(jnp.asarray(reports), 7)
    np.testing.assert_array_equal(compiled, counts)


def test_parts_add_up_to_the_whole():
    reports = np.random.default_rng(0).integers(0, 5, 1000)
    whole = rrjax.count(reports, 7)  # nobody reports 5 and 6
    for pieces in (1, 2, 7):
        parts = [rrjax.count(part, 7) for part in np.array_split(reports, pieces)]
        np.testing.assert_array_equal(sum(parts), whole)


@pytest.mark.parametrize("reports", [[], np.zeros(0, int), np.zeros((0, 3), np.int32)])
def test_no_reports_are_counts_of_zero(reports):
    counts = rrjax.count(reports, 3)
    assert counts.tolist() == [0, 0, 0]
    assert counts.dtype == INT
    # And no estimate is made of them: peers return zeros or divide by zero.
    assert np.isnan(rrjax.mle_star(counts, 1.0)).all()


def test_one_report():
    assert rrjax.count(2, 3).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("num_categories", [3, 200, 300, 70_000])
def test_any_integer_dtype_in_any_domain(dtype, num_categories):
    top = min(num_categories - 1, int(np.iinfo(dtype).max))
    counts = rrjax.count(np.array([0, 1, top, top], dtype), num_categories)
    assert counts[0] == 1
    assert counts[top] == 2
    assert counts.sum() == 4


@pytest.mark.parametrize(
    ("reports", "named"),
    [([0, 1, -1], "-1 at position 2"), ([[0, 1], [4, 9]], "4 at position 2"), ([2**40], str(2**40))],
)
def test_reports_outside_the_domain_are_refused(reports, named):
    with refused("reports"):
        rrjax.count(np.array(reports), 4)


@pytest.mark.parametrize("outside", [-1, 4, -(2**31), 2**31 - 1])
def test_under_tracing_they_poison_the_counts_and_the_estimate(outside):
    # bincount alone would put −1 in bin 0 and drop what is too large.
    reports = jnp.array([0, 1, outside, 2], jnp.int32)
    counts = jax.jit(rrjax.count, static_argnums=1)(reports, 4)
    assert counts.tolist() == [-1] * 4
    assert np.isnan(rrjax.mle_star(counts, 1.0)).all()
    assert np.isnan(rrjax.nll([0.25] * 4, counts, 1.0))


@pytest.mark.parametrize("library", [np, jnp])
def test_counts_that_the_default_integers_cannot_hold_are_refused(library):
    dtype, largest = (np.uint64, 2**63 - 1) if np.dtype(INT).itemsize == 8 else (np.uint32, 2**31 - 1)
    fits, wraps = (library.asarray([0, count], dtype) for count in (largest, largest + 1))
    assert rrjax.inv(fits, 1.0)[1] > 1
    assert np.isnan(jax.jit(rrjax.inv)(wraps, 1.0)).all()
    with refused("counts"):
        rrjax.inv(wraps, 1.0)


@pytest.mark.parametrize("reports", [[0.0, 1.0], ["a", "b"], [True, False], [1 + 0j]])
def test_reports_that_are_not_integers_are_refused(reports):
    with refused("reports"):
        rrjax.count(reports, 4)


@pytest.mark.parametrize("num_categories", [1, 0, -1, 3.0, True, None, 2**31])
def test_bad_domains_are_refused(num_categories):
    with refused("num_categories"):
        rrjax.count([0, 0], num_categories)


def test_a_distribution_is_told_with_a_tolerance():
    theta = jnp.full(1000, 1e-3)
    root = float(jnp.finfo(theta.dtype).eps) ** 0.5
    assert is_distribution(theta, root)
    assert is_distribution(theta.at[0].add(root / 2), root)
    assert is_distribution(theta * (1 + 1e-5), 1e-4)
    assert not is_distribution(theta.at[0].add(3 * root), root)
    assert not is_distribution(theta * (1 + 1e-3), 1e-4)
    assert not is_distribution(theta.at[:2].add(jnp.array([-0.002, 0.002], theta.dtype)), root)
    assert not is_distribution(theta.at[0].set(jnp.nan), root)


class OnAnAccelerator:
    """A stand-in for an array of CuPy, or of torch on a GPU: NumPy cannot read it, DLPack can."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *arguments, **given):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __dlpack__(self, **given):
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.long
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float32])
def test_an_array_that_numpy_cannot_read_goes_through_dlpack(kind):
    counts = np.array([50, 30, 20], kind)
    found = rrjax.mle_star(OnAnAccelerator(counts), 1.0)
    np.testing.assert_array_equal(found, rrjax.mle_star(counts, 1.0))


def test_reports_that_numpy_cannot_read_go_through_dlpack():
    assert rrjax.count(OnAnAccelerator(np.array([0, 1, 1, 2], np.int32)), 3).tolist() == [1, 2, 1]
    with refused("reports"):
        rrjax.count(OnAnAccelerator(np.array([0, 3], np.int32)), 3)


@pytest.mark.parametrize("num_categories", [2**16 - 1, 2**16])  # one sum of high parts below, three from here on
@pytest.mark.skipif(X64, reason="a total of so few categories beyond 2⁶³ − 1 needs counts that are no machine words")
def test_a_total_that_wraps_is_seen_at_any_number_of_categories(num_categories):
    summary = jax.jit(count_summary)
    rng = np.random.default_rng(num_categories)
    fits = np.zeros(num_categories, np.int64)
    fits[:3] = 2**31 - 1 - 5, 2, 3
    totals, law = (2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**33 + 1, 2**36), np.full(num_categories, 1 / num_categories)
    wraps = [fits + (np.arange(num_categories) == 7), *(np.full(num_categories, each) for each in (2**31 - 1, 2**16))]
    wraps.extend(rng.multinomial(total, law) for total in totals)
    for counts, usable in [(fits, True), *((each, False) for each in wraps)]:
        assert bool(summary(jnp.asarray(counts.astype(np.int32))).usable) is usable
    negative = np.where(np.arange(num_categories) == 5, -1, 1)
    assert not summary(jnp.asarray(negative.astype(np.int32))).usable
