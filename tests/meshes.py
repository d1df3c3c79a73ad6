"""Runs every public function on a mesh of four devices, in a process of its own: `python meshes.py <way> <K>`.

Prints a line of JSON for every function: what went wrong, or nothing. With the way "products" it looks for products of
float32 below its precision.
"""

import json
import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import rrjax
from rrjax import Mixture, inference, longitudinal, mechanisms, models, surveys
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Decay
from rrjax.estimators.catalogue import METRICS
from rrjax.estimators.em import ems
from rrjax.mechanisms import Geometric, LocalHashing, OptimizedUnaryEncoding, RandomizedResponse, SquareWave

OWN = os.path.dirname(rrjax.__file__)
EPSILON = 1.5
K = int(sys.argv[2]) if __name__ == "__main__" else 8
FEW = {"num_draws": 19}
HEAD = [0.3, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05]
COUNTS = np.random.default_rng(0).multinomial(900, np.pad(HEAD, (0, K - 7)), size=4).astype(np.int32)
SHARES = np.random.default_rng(1).dirichlet(np.ones(K), size=4).astype(np.float32)
UNARY = OptimizedUnaryEncoding(K, EPSILON)
HASHING = LocalHashing(K, EPSILON)
MECHANISMS = {
    "randomized response": RandomizedResponse(K, EPSILON),
    "unary": UNARY,
    "hashing": HASHING,
    "subsets": mechanisms.SubsetSelection(K, EPSILON),
    "hadamard": mechanisms.HadamardResponse(K, EPSILON),
    "planes": mechanisms.ProjectiveGeometry(K, EPSILON),
    "forced": mechanisms.ForcedResponse(0.6, np.full(K, 1 / K)),
    "negative": mechanisms.NegativeQuestion(K),
}
PAIR = mechanisms.Product([RandomizedResponse(2, 2.0), RandomizedResponse(2, 2.0)])
CHEATING = mechanisms.CheatingDetection(forced=[0.25, 0.75])
UNRELATED = mechanisms.UnrelatedQuestionTwoSamples(truth=[0.7, 0.3])
NUMBERS, ZIPF = np.arange(K), partial(models.zipf_logits, num_categories=K)
TWO_DESIGNS = mechanisms.ByRespondent([mechanisms.Direct(K), RandomizedResponse(K, EPSILON)])
FORCED = MECHANISMS["forced"]
PROTOCOLS = {
    "randomized response": longitudinal.LongitudinalRandomizedResponse(K, 2.0, 1.0),
    "local hashing": longitudinal.LongitudinalLocalHashing(K, 2.0, 1.0),
    "unary encoding": longitudinal.LongitudinalUnaryEncoding(K, 2.0, 1.0, permanent_encoding="symmetric"),
    "bit flipping": longitudinal.LongitudinalBitFlipping(K, 2.0, num_bits=3),
}


def gradients(estimator):
    """Of a smooth function of an estimate, in ε and in weights."""

    def of(key, counts, theta):
        del key
        weights = counts.astype(theta.dtype) + 0.25
        # An ε of each problem: the derivative in a common one is the sum over the devices.
        epsilon = EPSILON + theta[0]
        return jax.grad(lambda c, e: jnp.sum(theta * estimator(c, e)), argnums=(0, 1))(weights, epsilon)

    return of


def reports(counts):
    """Some reports of unary encoding, made of counts."""
    return (counts[None, :] >> jnp.arange(6)[:, None]) % 2 == 1


def of_rounds(protocol, *, joint=False):
    """Two rounds of a longitudinal protocol, and what comes of them."""

    def of(key, counts, theta):
        memo = protocol.memoize(key, counts % K)
        first, second = (protocol.report(jax.random.fold_in(key, turn), memo) for turn in (0, 1))
        if joint:
            return rrjax.nll(theta, protocol.mixture(jnp.stack([first, second], axis=1)))
        return protocol.tally(second), protocol.debias(first)

    return of


def of_mechanism(mechanism):
    """Reports, and what is read from them."""

    def of(key, counts, theta):
        drawn = mechanism.randomize(key, counts % K)
        return mechanism.tally(drawn), mechanism.debias(drawn), rrjax.nll(theta, mechanism.mixture(drawn))

    return of


def of_three(key, counts, theta, **options):
    """A regression of three categories, the reports, and the covariates."""
    del key
    return models.fit(theta, counts % 3, EPSILON, num_categories=3, ridge=0.1, **options)


# Of a key, counts `[K]` and a distribution `[K]`.
FUNCTIONS = {
    "inv": lambda k, c, t: rrjax.inv(c, EPSILON),
    "inv_n": lambda k, c, t: rrjax.inv_n(c, EPSILON),
    "inv_p": lambda k, c, t: rrjax.inv_p(c, EPSILON),
    "inv_p, sort": lambda k, c, t: rrjax.inv_p(c, EPSILON, solver="sort"),
    "mle_star": lambda k, c, t: rrjax.mle_star(c, EPSILON),
    "mle_star, sort": lambda k, c, t: rrjax.mle_star(c, EPSILON, solver="sort"),
    "mle_star of weights": lambda k, c, t: rrjax.mle_star(t, EPSILON),
    "ibu": lambda k, c, t: rrjax.nll(rrjax.ibu(c, EPSILON).theta, c, EPSILON),
    "ibu, plain": lambda k, c, t: rrjax.ibu(c, EPSILON, accelerate="none", max_iters=9),
    "ibu_path": lambda k, c, t: rrjax.ibu_path(c, EPSILON, 5),
    "ibu of a mixture": lambda k, c, t: rrjax.ibu(UNARY.mixture(reports(c)), max_iters=9),
    "ibu by newton": lambda k, c, t: rrjax.ibu(c, EPSILON, accelerate="newton"),
    "ibu of a mixture by newton": lambda k, c, t: rrjax.ibu(UNARY.mixture(reports(c)), accelerate="newton"),
    "gradient of ibu of a mixture": lambda k, c, t: jax.grad(
        lambda w: jnp.sum(rrjax.ibu(Mixture(w, 1.0, Decay(0.5, K)), accelerate="newton").theta * t)
    )(c.astype(t.dtype) + 1),
    "ems": lambda k, c, t: ems(Geometric(K, EPSILON).mixture(c % K)),
    "nll": lambda k, c, t: rrjax.nll(t, c, EPSILON),
    "score": lambda k, c, t: rrjax.score(t, c, EPSILON),
    "certificate": lambda k, c, t: rrjax.certificate(t, c, EPSILON),
    "empirical_bayes": lambda k, c, t: rrjax.empirical_bayes(c, EPSILON),
    "ordered_bayes": lambda k, c, t: rrjax.ordered_bayes(c, EPSILON),
    "norm_cut": lambda k, c, t: rrjax.postprocessing.norm_cut(c, EPSILON),
    "base_cut of a tally": lambda k, c, t: rrjax.postprocessing.base_cut(UNARY.tally(reports(c))),
    "power_ns": lambda k, c, t: rrjax.postprocessing.power_ns(c, EPSILON),
    "power_ns of a tally": lambda k, c, t: rrjax.postprocessing.power_ns(UNARY.tally(reports(c))),
    "gradient of power": gradients(rrjax.postprocessing.power),
    "gradient of inv_n": gradients(rrjax.inv_n),
    "gradient of mle_star": gradients(rrjax.mle_star),
    "gradient of inv_p": gradients(rrjax.inv_p),
    "gradient of ibu": gradients(lambda c, e: rrjax.ibu(c, e).theta),
    **{
        f"gradient of {estimator.__name__} in a common ε": lambda k, c, t, estimator=estimator: jax.grad(
            lambda e: jnp.sum(t * estimator(c, e))
        )(EPSILON)
        for estimator in (rrjax.inv, rrjax.inv_n, rrjax.mle_star, rrjax.inv_p)
    },
    "derivative of mle_star": lambda k, c, t: jax.jacfwd(lambda e: rrjax.mle_star(c, e))(jnp.float32(EPSILON)),
    "inv of a tally": lambda k, c, t: rrjax.inv(UNARY.tally(reports(c))),
    "inv_n of a tally": lambda k, c, t: rrjax.inv_n(UNARY.tally(reports(c))),
    "inv_p of a tally": lambda k, c, t: rrjax.inv_p(UNARY.tally(reports(c))),
    "empirical_bayes of a tally": lambda k, c, t: rrjax.empirical_bayes(UNARY.tally(reports(c))),
    "intervals": lambda k, c, t: inference.intervals(c, EPSILON),
    "intervals, wilson": lambda k, c, t: inference.intervals(c, EPSILON, method="wilson"),
    "intervals of users": lambda k, c, t: inference.intervals(c, EPSILON, estimand="users"),
    "p_values": lambda k, c, t: inference.p_values(c, EPSILON),
    "discoveries": lambda k, c, t: inference.discoveries(c, EPSILON),
    "variances": lambda k, c, t: inference.variances(t, 900, EPSILON),
    "covariance": lambda k, c, t: inference.covariance(t, 900, EPSILON),
    "standard_errors": lambda k, c, t: inference.standard_errors(c, EPSILON),
    "profile": lambda k, c, t: inference.profile(c, EPSILON, 1)(t[0]),
    "goodness_of_fit_test": lambda k, c, t: inference.goodness_of_fit_test(k, c, EPSILON, t, **FEW),
    "goodness_of_fit_test of any": lambda k, c, t: inference.goodness_of_fit_test(k, c, EPSILON, **FEW),
    "likelihood_ratio_test": lambda k, c, t: inference.likelihood_ratio_test(k, c, EPSILON, t, **FEW),
    "likelihood_ratio_test, limit": lambda k, c, t: inference.likelihood_ratio_test(
        k, c, EPSILON, t, null="chi-bar-square", **FEW
    ),
    "equality_test": lambda k, c, t: inference.equality_test(k, jnp.stack([c, c[::-1]]), EPSILON, **FEW),
    "trend_test": lambda k, c, t: inference.trend_test(k, jnp.stack([c, c[::-1]]), EPSILON, **FEW),
    "independence_test": lambda k, c, t: inference.independence_test(k, c.reshape(2, -1), **FEW),
    "independence_test of pairs": lambda k, c, t: inference.independence_test(k, c.reshape(2, -1), EPSILON, **FEW),
    "association": lambda k, c, t: inference.association(k, c[:4].reshape(2, 2), PAIR, **FEW),
    "odds_ratios": lambda k, c, t: inference.odds_ratios(c[:4].reshape(2, 2), PAIR),
    "contradiction_test": lambda k, c, t: inference.contradiction_test(UNARY.tally(reports(c)), UNARY),
    "compliance": lambda k, c, t: inference.compliance(c[:4].reshape(2, 2), CHEATING),
    "unrelated_question": lambda k, c, t: inference.unrelated_question(c[:4].reshape(2, 2), UNRELATED),
    "detectable_share": lambda k, c, t: inference.detectable_share(K, 900, 1 + t[0]),
    "users_for_width": lambda k, c, t: inference.users_for_width(K, 1 + t[0], 0.1),
    "epsilon_for_error": lambda k, c, t: inference.epsilon_for_error(
        K, 900, 1 + t[0], mechanism=OptimizedUnaryEncoding
    ),
    "linear_functional": lambda k, c, t: inference.linear_functional(c, EPSILON, values=NUMBERS),
    "linear_functional of values of each": lambda k, c, t: inference.linear_functional(c, EPSILON, values=t),
    "linear_functional of a tally": lambda k, c, t: inference.linear_functional(UNARY.tally(reports(c)), values=t),
    "linear_functional, normal": lambda k, c, t: inference.linear_functional(c, EPSILON, values=t, method="normal"),
    "linear_functional of a group": lambda k, c, t: inference.linear_functional(c, EPSILON, values=NUMBERS > 3),
    "difference": lambda k, c, t: inference.difference(c, c[::-1], EPSILON, values=NUMBERS),
    "stratified": lambda k, c, t: inference.stratified(
        jnp.stack([c, c[::-1]]), EPSILON, shares=[0.3, 0.7], values=NUMBERS
    ),
    "quantile": lambda k, c, t: inference.quantile(c, EPSILON),
    "rr_loss": lambda k, c, t: models.rr_loss(jnp.log(t)[None] + t[:, None], c % K, EPSILON),
    "backward_loss": lambda k, c, t: models.backward_loss(jnp.log(t)[None] + t[:, None], c % K, EPSILON),
    "rr_with_prior": lambda k, c, t: models.rr_with_prior(t, EPSILON).randomize(k, c[0] % K),
    "fit": lambda k, c, t: models.fit(t, c % 2, EPSILON, num_categories=2),
    "fit, reduced": lambda k, c, t: models.fit(t, c % 2, EPSILON, num_categories=2, reduce_bias=True),
    "fit of three": of_three,
    "fit of three, reduced": partial(of_three, reduce_bias=True),
    "predict": lambda k, c, t: models.predict(of_three(k, c, t), t[:, None]),
    "wald_test": lambda k, c, t: models.wald_test(of_three(k, c, t), 0).p_value,
    "score_test": lambda k, c, t: (
        models.score_test(of_three(k, c, t), t[:, None], t[:, None] ** 2, c % 3, EPSILON).p_value
    ),
    "fit by l-bfgs": lambda k, c, t: models.fit(t, c % 2, EPSILON, num_categories=2, solver="l-bfgs"),
    "fit_in_batches": lambda k, c, t: models.fit_in_batches(k, t, c % 2, EPSILON, num_categories=2, batch_size=4),
    "goodness_of_fit_test of a regression": lambda k, c, t: (
        models.goodness_of_fit_test(models.fit(t, c % 2, EPSILON, num_categories=2), t, c % 2, EPSILON).p_value
    ),
    "fit of two samples": lambda k, c, t: models.fit(t, c % 2, CHEATING, sample=c // 2 % 2),
    "fit of two samples, robust": lambda k, c, t: models.fit(
        t, c % 2, CHEATING, sample=c // 2 % 2, weights=t, covariance="sandwich", nuisance=t
    ),
    "fit_randomized_covariates": lambda k, c, t: models.fit_randomized_covariates(
        None, [(c // 2 % 2, RandomizedResponse(2, EPSILON))], c % 2, EPSILON, num_categories=2
    ),
    "fit_outcome": lambda k, c, t: models.fit_outcome(t, t[::-1], c % 2, EPSILON, num_categories=2),
    "fit_family": lambda k, c, t: models.fit_family(ZIPF, 1.0, c, EPSILON),
    "fit_dirichlet": lambda k, c, t: models.fit_dirichlet(k, jnp.stack([c, c[::-1]]), EPSILON, num_draws=16),
    "delta_method of a mixture": lambda k, c, t: models.delta_method(
        lambda theta: jnp.sum(theta * t), Mixture(c, 1.0, Decay(0.5, K))
    ),
    "delta_method": lambda k, c, t: models.delta_method(lambda theta: jnp.sum(theta * t), c, EPSILON),
    "split_budget": lambda k, c, t: models.split_budget(1 + t[0], (2, 10), 1000),
    "posterior": lambda k, c, t: inference.posterior(k, c, EPSILON, num_draws=8, num_warmup=2),
    "simulate.true_counts": lambda k, c, t: rrjax.simulate.true_counts(k, t, 900),
    "simulate.values": lambda k, c, t: rrjax.simulate.values(k, t, 50),
    "simulate.counts": lambda k, c, t: rrjax.simulate.counts(k, t, 900, EPSILON),
    "simulate.collect": lambda k, c, t: rrjax.simulate.collect(k, t, 900, EPSILON),
    "simulate.randomized": lambda k, c, t: rrjax.simulate.randomized(k, c, EPSILON),
    "randomize": lambda k, c, t: RandomizedResponse(K, EPSILON).randomize(k, c % K),
    "randomize, geometric": lambda k, c, t: Geometric(K, EPSILON).randomize(k, c % K),
    "randomize, square wave": lambda k, c, t: SquareWave(K, EPSILON).randomize(k, t),
    "count, square wave": lambda k, c, t: SquareWave(K, EPSILON).count(t),
    "randomize, channel": lambda k, c, t: Geometric(K, EPSILON).channel().randomize(k, c % K),
    "inv of a channel": lambda k, c, t: Geometric(K, EPSILON).channel().inv(c),
    **{f"reads {name}": of_mechanism(each) for name, each in MECHANISMS.items()},
    **{f"collect, {name}": lambda k, c, t, each=each: each.collect(k, c) for name, each in MECHANISMS.items()},
    "collect, kuk": lambda k, c, t: mechanisms.Kuk(0.5, 0.05).collect(k, c[:2]),
    "debias of a channel": lambda k, c, t: Geometric(K, EPSILON).channel().debias(c % K),
    "count of a product": lambda k, c, t: PAIR.count([c % 2, c // 2 % 2]),
    "count": lambda k, c, t: rrjax.count(c % K, K),
    "tally, hashing": lambda k, c, t: HASHING.tally(
        HASHING.randomize(k, jnp.repeat(c % K, 20, total_repeat_length=20 * K))
    ),
    "mixture, hashing": lambda k, c, t: rrjax.nll(t, HASHING.mixture(HASHING.randomize(k, c % K))),
    "mle of a survey": lambda k, c, t: rrjax.mle(FORCED.mixture_of_counts(c)),
    "mle of a survey, denying": lambda k, c, t: rrjax.mle(mechanisms.NegativeQuestion(K).mixture_of_counts(c)),
    "mle of a survey's law": lambda k, c, t: rrjax.mle(mechanisms.ForcedResponse(0.6, t).mixture_of_counts(c)),
    "inv of a survey": lambda k, c, t: rrjax.inv(FORCED.tally_of_counts(c)),
    "nll of a survey": lambda k, c, t: rrjax.nll(t, FORCED.mixture_of_counts(c)),
    "nll of a survey, denying": lambda k, c, t: rrjax.nll(t, mechanisms.NegativeQuestion(K).mixture_of_counts(c)),
    "intervals of a survey": lambda k, c, t: inference.intervals(FORCED.tally_of_counts(c)),
    "standard_errors of a survey": lambda k, c, t: inference.standard_errors(FORCED.mixture_of_counts(c)),
    "surveys.groups.mle": lambda k, c, t: surveys.groups.mle(jnp.stack([c, c[::-1]]), [1.0, 2.0]),
    "surveys.groups.inv": lambda k, c, t: surveys.groups.inv(jnp.stack([c, c[::-1]]), [1.0, 2.0]),
    "design_fit_test": lambda k, c, t: inference.design_fit_test(jnp.stack([c, c[::-1]]), TWO_DESIGNS),
    "mle by respondent": lambda k, c, t: rrjax.mle(
        mechanisms.ByRespondent(TWO_DESIGNS.designs, c % 2).mixture(jnp.arange(K) % K)
    ),
    "randomize by respondent": lambda k, c, t: mechanisms.ByRespondent(TWO_DESIGNS.designs, c % 2).randomize(k, c % K),
    **{
        f"maximum of columns, {name}": lambda k, c, t, each=MECHANISMS[name]: rrjax.mle(
            each.mixture_of_counts(jnp.pad(c, (0, each.num_columns - K)))
        )
        for name in ("hadamard", "planes")
    },
    **{f"reports, {name}": of_rounds(protocol) for name, protocol in PROTOCOLS.items()},
    **{f"likelihood, {name}": of_rounds(protocol, joint=True) for name, protocol in PROTOCOLS.items()},
    **{f"collect rounds, {name}": lambda k, c, t, each=each: each.collect(k, c, 2) for name, each in PROTOCOLS.items()},
    "smooth_bayes": lambda k, c, t: rrjax.smooth_bayes(Mixture(c, 1.0, Decay(0.5, K))).theta,
    "joint_bayes": lambda k, c, t: rrjax.joint_bayes(Mixture(c, 1.0, Decay(0.5, K)), (2, K // 2)).theta,
    "randomize, discrete square wave": lambda k, c, t: mechanisms.DiscreteSquareWave(K, EPSILON).randomize(k, c % K),
    "metrics": lambda k, c, t: [m.measure(t, t[::-1], c, EPSILON) for m in METRICS.values() if m.measure],
}

# `jax.random.gamma` cannot be spread, in jax 0.10, nor can loops and sums of the regressions; optax's line search knows
# no devices.
REFUSED = {("vmap, explicit", name) for name in (
    "posterior", "fit_dirichlet", "fit_in_batches", "fit_outcome", "fit_randomized_covariates",
    "goodness_of_fit_test of a regression", "predict", "score_test", "independence_test of pairs",
    "association", "odds_ratios", "contradiction_test", "fit of two samples", "fit of two samples, robust",
    "compliance", "unrelated_question", "debias of a channel", "reads subsets", "reads hadamard", "reads planes",
    "collect, subsets", "collect, hadamard", "collect, planes", "collect rounds, local hashing",
    "collect rounds, bit flipping",
)}  # fmt: skip
REFUSED |= {
    (way, "fit by l-bfgs")
    for way in ("shard_map, explicit", "shard_map, vmap", "shard_map, two axes", "vmap, explicit")
}
# Up to 1,024 categories, or with a matrix of all categories.
FEW_CATEGORIES = {
    "smooth_bayes", "joint_bayes", "randomize, channel", "inv of a channel", "debias of a channel",
    "randomize, discrete square wave",
}  # fmt: skip


def data():
    """Keys, counts and distributions of four problems."""
    return jax.random.split(jax.random.key(3), 4), jnp.asarray(COUNTS), jnp.asarray(SHARES)


def mesh_of(kind):
    return jax.make_mesh((4,), ("x",), axis_types=(kind,))


def placed(values, mesh):
    return jax.device_put(values, NamedSharding(mesh, PartitionSpec("x")))


def expanded(function):
    """Of a batch of one, as every device has it."""
    return lambda *given: jax.tree.map(lambda leaf: leaf[None], function(*(value[0] for value in given)))


def in_shard_map(kind, batched):
    """One problem on each device, by itself or as a batch of one."""

    def way(function):
        every, mesh = PartitionSpec("x"), mesh_of(kind)
        run = jax.shard_map(batched(function), mesh=mesh, in_specs=every, out_specs=every, check_vma=True)
        return run, placed(data(), mesh), jax.vmap(function), data()

    return way


def of_two_axes(function):
    """Keys differ along one axis, counts and distributions along another one."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    specs = PartitionSpec("x"), PartitionSpec("y"), PartitionSpec("y")
    split = jax.shard_map(
        expanded(function), mesh=mesh, in_specs=specs, out_specs=PartitionSpec(("x", "y")), check_vma=True
    )
    given = tuple(each[:2] for each in data())
    key, law = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 1])
    everywhere = tuple(NamedSharding(mesh, spec) for spec in specs)
    plain = tuple(each[place] for each, place in zip(given, (key, law, law), strict=True))
    return split, jax.device_put(given, everywhere), jax.vmap(function), plain


def in_vmap(function):
    return jax.vmap(function), placed(data(), mesh_of(AxisType.Explicit)), jax.vmap(function), data()


def over_categories(kind):
    def way(function):
        key, *rest = (value[0] for value in data())
        return function, (key, *placed(tuple(rest), mesh_of(kind))), function, (key, *rest)

    return way


# A function, what it is given, and both as they are on one device.
WAYS = {
    "shard_map, explicit": in_shard_map(AxisType.Explicit, expanded),
    "shard_map, vmap": in_shard_map(AxisType.Auto, jax.vmap),
    "shard_map, two axes": of_two_axes,
    "vmap, explicit": in_vmap,
    "categories, automatic": over_categories(AxisType.Auto),
    "categories, explicit": over_categories(AxisType.Explicit),
}
# With explicit axes an expression of this file, such as c[::-1], may itself want more said; these are functions alone.
ALONE = {
    "inv", "inv_n", "inv_p", "mle_star, sort", "mle_star of weights", "nll", "score", "certificate", "empirical_bayes",
    "ordered_bayes", "intervals", "discoveries", "p_values", "standard_errors", "variances", "quantile",
    "linear_functional", "linear_functional of values of each", "linear_functional, normal",
    "linear_functional of a group", "ibu", "simulate.counts", "simulate.true_counts",
    "fit of three", "fit of three, reduced", "wald_test", "count of a product",
    "debias of a channel", *(f"{kind} {name}" for name in MECHANISMS for kind in ("reads", "collect,")),
}  # fmt: skip


def names(way):
    """The functions that go this way."""
    alone = [name for name in FUNCTIONS if way != "categories, explicit" or name in ALONE]
    return [name for name in alone if K <= 1024 or name not in FEW_CATEGORIES]


# Types are checked as a program is built; compiling and running all of them would take minutes. These few are.
RUN = {"inv_n", "mle_star", "gradient of mle_star", "certificate", "intervals", "simulate.counts"}


def difference(way, name):
    """What is wrong with a result on a mesh; it is compared with that of one device."""
    run, given, alone, plain = WAYS[way](FUNCTIONS[name])
    if name not in RUN:
        # Not every type that `vmap` makes is looked at before it is lowered.
        _ = jax.jit(run).lower(*given) if way == "vmap, explicit" else jax.jit(run).trace(*given)
        return ""
    found, expected = jax.jit(run)(*given), jax.jit(alone)(*plain)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)  # sums are rounded in another order
    return ""


def programs(function):
    """The program of a function, and those of its derivatives in counts and in distributions, as far as it has them."""
    key, counts, theta = (value[0] for value in data())
    yield jax.make_jaxpr(function)(key, counts, theta).jaxpr

    def smooth(counts, theta):
        return [each for each in jax.tree.leaves(function(key, counts, theta)) if each.dtype == theta.dtype]

    for of, point in ((partial(smooth, theta=theta), counts + 0.25), (partial(smooth, counts), theta)):
        # Reverse mode transposes these products; that leaves their precision.
        try:
            yield jax.make_jaxpr(lambda x, of=of: jax.jvp(of, (x,), (x,)))(point).jaxpr
        except (TypeError, ArgumentError, NotImplementedError):  # counts are integers, or it has no derivatives
            continue


def below_float32(program):
    """Where a program multiplies matrices of floats by default, which on a GPU is with fewer bits than they have."""
    for equation in program.eqns:
        if equation.primitive.name in {"dot_general", "conv_general_dilated"}:
            exact = equation.params["precision"] == (Precision.HIGHEST, Precision.HIGHEST)
            if jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating) and not exact:
                frames = equation.source_info.traceback.frames
                yield next((f"{f.file_name}:{f.line_num}" for f in frames if f.file_name.startswith(OWN)), "elsewhere")
        for part in jax.tree.leaves(list(equation.params.values())):
            if hasattr(inner := getattr(part, "jaxpr", part), "eqns"):
                yield from below_float32(inner)


def problems(way, num_categories=8, x64="0"):
    """What this file finds wrong in a process of its own, per function."""
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": x64}
    command = [sys.executable, __file__, way, str(num_categories)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return dict(json.loads(line) for line in found.stdout.splitlines())


if __name__ == "__main__":
    way = sys.argv[1]
    jax.devices()
    jax.default_backend = lambda: "gpu"  # the programs of both platforms are traced
    for name in names(way):
        try:
            if way == "products":
                places = {place for program in programs(FUNCTIONS[name]) for place in below_float32(program)}
                problem = " ".join(sorted(places))
            else:
                problem = difference(way, name)
        except NotImplementedError as error:
            problem = f"refused: {error}"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:500]
        print(json.dumps([name, problem]), flush=True)
