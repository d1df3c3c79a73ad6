"""Figures of a study: what is drawn is what the dataset holds."""

import io
from functools import partial

import jax
import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
pytest.importorskip("xarray", reason="studies need xarray")

import xarray as xr
from matplotlib.colors import to_rgb
from refusals import refused
from studies import COORDS, iterates, study

import rrjax
from rrjax import figures
from rrjax.data.errors import StudyError
from rrjax.estimators.catalogue import ESTIMATORS, METRICS, Estimator, Style
from rrjax.figures.curves import real_data
from rrjax.figures.selection import measured
from rrjax.study import drawings, paper
from rrjax.study.paper import convergence
from rrjax.study.report import ranking, ranking_rows, write_report
from validation.claims import check_claims

pytestmark = pytest.mark.once  # nothing here depends on the precision

AT = {"num_categories": 50, "epsilon": 4.0}


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    return figure


def curves(axes):
    """Colour → y, of the lines of a panel."""
    return {line.get_color(): np.asarray(line.get_ydata()) for line in axes.get_lines()}


def look(line):
    """Colour, marker and dash."""
    return str(line.get_color()), line.get_marker(), str(line._dash_pattern)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.long
def test_against_users_draws_what_was_given():
    dataset = study()
    figure = render(figures.against_users(dataset, **AT))
    assert len(figure.axes) == 6
    assert [axes.get_title() for axes in figure.axes[:3]] == [f"Zipf exponent s = {s}" for s in (0.01, 1.3, 2.5)]
    assert figure.axes[0].get_ylabel().startswith("mean squared error")
    assert "nats per report" in figure.axes[3].get_ylabel()
    assert figure.axes[5].get_xlabel() == "users N"
    assert figure.get_suptitle() == "K = 50, ε = 4; 8 seeds"
    assert legend(figure) == ["MLE*", "InvP", "InvN", "Emp. Bayes", "mine", "±2 standard errors"]
    for row, metric in enumerate(("mse", "nll")):
        for column, exponent in enumerate(COORDS["zipf"]):
            axes = figure.axes[3 * row + column]
            here = dataset.sel(**AT, zipf=exponent)
            drawn = curves(axes)
            assert len(drawn) == 5
            np.testing.assert_array_equal(drawn["#1b4f8a"], here[metric].sel(estimator="mle_star"))
            np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), COORDS["num_users"])
            low, high = axes.get_ylim()
            assert low < here[metric].min()
            assert high > (here[metric] + 2 * here[f"{metric}_se"]).max()
            assert axes.get_xlim()[0] < 100
            assert axes.get_xlim()[1] > 1_000_000
            assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log" if metric == "mse" else "linear")


@pytest.mark.long
def test_against_epsilon_takes_any_order_and_one_value():
    dataset = study(num_categories=[50], zipf=[1.3]).transpose("zipf", "epsilon", ..., "estimator")
    figure = render(figures.against_epsilon(dataset, ["mse"], num_users=10_000))
    (axes,) = figure.axes
    assert axes.get_xlabel() == "privacy ε (nats)"
    expected = dataset["mse"].sel(num_users=10_000, estimator="inv_n").squeeze()
    np.testing.assert_array_equal(curves(axes)["#3d8b57"], expected)
    # A selection drops dimensions; the value stays known.
    again = figures.against_epsilon(dataset.sel(num_users=10_000), ["mse"])
    assert again.get_suptitle() == figure.get_suptitle() == "K = 50, N = 10,000; 8 seeds"


@pytest.mark.long
def test_estimators_look_the_same_everywhere_and_differ_in_grey():
    dataset = study()
    whole = figures.against_users(dataset, **AT).axes[0].get_lines()
    some = dataset.sel(estimator=["mle_star", "inv_p"])
    part = figures.against_epsilon(some, ["mse"], num_categories=50, num_users=100).axes[0].get_lines()
    assert [look(line) for line in part] == [look(line) for line in whole[:2]]
    assert {len({look(line)[kind] for line in whole}) for kind in (0, 1, 2)} == {5}
    assert all(sum(to_rgb(line.get_color())) < 2 for line in whole)  # dark enough on white
    names = ["inv_n", "mine", "halfway"]
    shares = {name: [0.6, 0.4] for name in names}
    alone = figures.estimate_figure("ab", shares, standard_error=0.1).axes[0].get_lines()
    lines = figures.against_users(study(estimator=names), **AT).axes[0].get_lines()
    assert [look(line)[:2] for line in alone] == [look(line)[:2] for line in lines]


@pytest.mark.long
def test_what_is_added_to_the_catalogue_is_known_everywhere(monkeypatch, tmp_path):
    style = Style("#123456", (0, (7, 1)), "h", 4)
    monkeypatch.setitem(ESTIMATORS, "mine", Estimator("mine", lambda counts, epsilon: counts, "My own", style))
    monkeypatch.setitem(METRICS, "mse", METRICS["mse"]._replace(label="error,\nsquared", short="SE"))
    dataset = study()
    figure = render(figures.against_users(dataset, ["mse"], **AT))
    assert legend(figure) == ["MLE*", "InvP", "InvN", "Emp. Bayes", "My own", "±2 standard errors"]
    assert figure.axes[0].get_ylabel() == "error,\nsquared"
    np.testing.assert_array_equal(
        curves(figure.axes[0])["#123456"], dataset["mse"].sel(estimator="mine", num_categories=50, epsilon=4, zipf=0.01)
    )
    assert "SE of My own" in figures.wins(dataset, estimator="mine").axes[-1].get_ylabel()
    assert "My own" in {row["estimator"] for row in ranking_rows(ranking(dataset))}
    assert drawings.of_study(dataset)[0].title == "Overview: SE, K = 50"
    page = write_report(tmp_path / "report.html", title="x", summary={}, datasets=dataset).read_text("utf-8")
    assert "My own" in page
    assert "Ranking by error, squared" in page


def test_what_is_not_in_the_dataset_is_named():
    dataset = study()
    calls = [
        ("epsilon", lambda: figures.against_users(dataset, num_categories=50, epsilon=3), 3),
        ("num_categories", lambda: figures.against_users(dataset, epsilon=4)),
        ("metric", lambda: figures.against_users(dataset, ["tv"], **AT), "tv"),
        ("zipf", lambda: figures.by_categories(dataset, zipf=9), 9),
        ("estimator", lambda: figures.wins(dataset, estimator="inv"), "inv"),
        ("num_users", lambda: figures.against_epsilon(dataset.sel(num_users=100), num_categories=50, num_users=7), 7),
        ("dataset", lambda: figures.wins(dataset.sel(estimator=["empirical_bayes"]), estimator="empirical_bayes")),
        ("epsilon", lambda: figures.decomposition(dataset, num_categories=50)),
        ("dataset", lambda: real_data(dataset, {})),
        ("dataset", lambda: figures.convergence(dataset)),
        ("dataset", lambda: figures.convergence(iterates().isel(variant=0, drop=True)), "variant"),
        ("dataset", lambda: figures.overview(dataset.isel(zipf=0, drop=True))),
        ("dataset", lambda: figures.overview(iterates())),
        ("zipf", lambda: figures.overview(dataset, "mse", zipf=1.3), 1.3),
        *(
            ("dataset", partial(whole, dataset["mse"]))
            for whole in (figures.overview, figures.against_users, ranking, figures.closest)
        ),
        ("ranked", lambda: ranking_rows(dataset)),
        ("metric", lambda: ranking(dataset, "tv"), "tv"),
    ]
    for argument, call, *value in calls:
        with refused(argument, **({"value": value[0]} if value else {})):
            call()


def every_figure(dataset):
    yield figures.against_users(dataset, **AT)
    yield figures.against_epsilon(dataset, num_categories=50, num_users=100)
    yield figures.by_categories(dataset, "nll", zipf=dataset["zipf"].values[0], epsilons=[4])
    yield figures.decomposition(dataset, **AT)
    yield figures.overview(dataset)
    yield figures.wins(dataset, estimator="empirical_bayes")
    yield figures.closest(dataset)


@pytest.mark.full
def test_missing_values_are_left_out():
    dataset = study()
    dataset["mse"][{"estimator": 1}] = np.nan
    dataset["mse"][{"estimator": 0, "num_users": 1}] = np.inf
    dataset["mse_se"][{"num_users": 2}] = np.nan
    dataset["nll"][...] = np.nan
    dataset["bias2"][{"num_users": 0}] = -1e-9  # corrected for the seeds
    for figure in every_figure(dataset):
        render(figure)
    figure = figures.against_users(dataset, **AT)
    assert "MLE*" not in legend(figure)
    np.testing.assert_array_equal(figure.axes[0].get_lines()[1].get_xdata(), [100, 1_000_000])
    assert [text.get_text() for text in figure.axes[3].texts] == ["no finite values"]
    bias = figures.decomposition(dataset, **AT).axes[0]
    np.testing.assert_array_equal(bias.get_lines()[0].get_xdata(), [10_000, 1_000_000])


@pytest.mark.long
def test_single_points_are_markers_with_bars():
    dataset = study(num_categories=[50], num_users=[100], epsilon=[4.0], zipf=[1.3])
    for figure in every_figure(dataset):
        render(figure)
    (axes, _) = figures.against_users(dataset).axes
    assert all(line.get_marker() != "None" and len(line.get_xdata()) == 1 for line in axes.get_lines())
    assert len(axes.collections) == 5
    low, high = axes.get_ylim()
    assert low < (dataset["mse"] - 2 * dataset["mse_se"]).min()
    assert high > (dataset["mse"] + 2 * dataset["mse_se"]).max()


@pytest.mark.long
def test_bands_end_at_the_edge_where_they_reach_zero_and_are_not_drawn_without_standard_errors():
    dataset = study()
    dataset["mse_se"][...] = 0.9 * dataset["mse"]
    axes = render(figures.against_users(dataset, ["mse"], **AT)).axes[0]
    assert axes.get_ylim()[0] > dataset["mse"].sel(**AT, zipf=0.01).min() / 10
    vertices = axes.collections[0].get_paths()[0].vertices
    assert 0 < np.asarray(vertices)[:, 1].min() < axes.get_ylim()[0]
    figure = render(figures.against_users(dataset.drop_vars(["mse_se", "nll_se"]), **AT))
    assert "±2 standard errors" not in legend(figure)
    assert not figure.axes[0].collections


@pytest.mark.long
def test_small_differences_of_likelihoods_are_magnified():
    dataset = study()
    axes = render(figures.against_epsilon(dataset, num_categories=1000, num_users=100)).axes[3]
    assert not axes.child_axes  # they can be seen as they are
    dataset["nll"] = dataset["nll"] + 1 / dataset["epsilon"] ** 2
    axes = render(figures.against_epsilon(dataset, num_categories=1000, num_users=100)).axes[3]
    (inset,) = axes.child_axes
    here = dataset["nll"].sel(num_categories=1000, num_users=100, zipf=0.01)
    widest = (here.max("estimator") - here.min("estimator")).argmax("epsilon").item()
    assert inset.get_title() == f"magnified, at ε = {COORDS['epsilon'][widest]:g}"
    shown = {line.get_color(): line.get_ydata()[0] for line in inset.get_lines()}
    assert shown["#1b4f8a"] == here.sel(estimator="mle_star").isel(epsilon=widest)
    assert inset.get_ylim()[0] < min(shown.values()) < max(shown.values()) < inset.get_ylim()[1]


@pytest.mark.long  # a study of its own
def test_raw_inversion_does_not_hide_the_others():
    dataset = study(estimator=["mle_star", "inv_n", "inv"])
    dataset["mse"][{"estimator": 2}] *= 1e9
    figure = render(figures.against_users(dataset, ["mse"], **AT))
    here = dataset["mse"].sel(**AT, zipf=0.01)
    assert figure.axes[0].get_ylim()[1] < here.sel(estimator="inv").min()
    assert "may leave a panel" in figure.legends[0].get_title().get_text()
    alone = figures.against_users(dataset.sel(estimator=["inv"]), ["mse"], **AT)
    assert alone.axes[0].get_ylim()[1] > here.sel(estimator="inv").max()


@pytest.mark.long
def test_real_data_stands_beside_its_histogram():
    names = ["kosarak", "PUMA $x$"]
    dataset = study(distribution=names, num_categories=[4000, 3], num_users=[100])
    # Each data set has its own K: the other combinations are empty.
    for variable in ("mse", "nll"):
        dataset[variable] = dataset[variable].where(
            (dataset.num_categories == 4000) == (dataset.distribution == names[0])
        )
    shares = np.full(4000, 1 / 8000)
    shares[1234] += 0.5
    figure = render(real_data(dataset, {"kosarak": shares, "PUMA $x$": np.array([0.5, 0.25, 0.25])}))
    left, right, below, beside = figure.axes
    assert left.get_title() == "kosarak: K = 4,000, N = 100"
    assert below.get_title() == r"PUMA \$x\$: K = 3, N = 100"
    steps = left.patches[0].get_data()
    assert len(steps.values) == 1000
    assert steps.values.max() == shares.max()  # the tallest is not averaged away
    assert "largest in each of 1,000 bins" in left.get_ylabel()
    np.testing.assert_array_equal(below.patches[0].get_data().values, [0.5, 0.25, 0.25])
    assert right.get_yscale() == "log"
    expected = dataset["mse"].sel(estimator="inv_p", distribution=names[1], num_categories=3, num_users=100)
    np.testing.assert_array_equal(curves(beside)["#d9702b"], expected)
    assert beside.get_xlabel() == "privacy ε (nats)"


@pytest.mark.long
def test_real_data_with_sizes_along_the_data_sets_and_a_missing_histogram():
    dataset = study(distribution=["a", "b"], num_categories=[7], num_users=[100]).squeeze(drop=True)
    dataset = dataset.assign_coords(num_categories=("distribution", [3, 4]), num_users=("distribution", [10, 20]))
    figure = render(real_data(dataset, {"b": np.full(4, 0.25)}, metric="nll"))
    assert not figure.axes[0].axison
    assert figure.axes[2].get_title() == "b: K = 4, N = 20"
    assert figures.against_epsilon(dataset, ["mse"]).axes[1].get_title() == "b, K = 4"


@pytest.mark.long
def test_convergence_shows_every_variant_until_it_stopped():
    dataset = iterates()
    figure = render(figures.convergence(dataset))
    settings = [f"Zipf exponent s = {s}, N = {n}" for s in (0.01, 1.3) for n in ("10,000", "500,000")]
    assert [axes.get_title() for axes in figure.axes] == settings
    variants = ["IBU (plain EM)", "deflated EM", "Anderson acceleration"]
    assert legend(figure) == ["ε = 0.5", "ε = 1", "ε = 2", *variants]
    for axes in figure.axes:
        lines = axes.get_lines()
        assert len(lines) == 9
        assert {len({look(line)[kind] for line in lines}) for kind in (0, 1, 2)} == {3}
        assert axes.get_xlim()[0] < 0
        assert axes.get_xlim()[1] > 40_000
    anderson = figure.axes[0].get_lines()[2]
    last = dataset["iteration"].values[dataset["iteration"].values <= 30].max()
    assert anderson.get_xdata()[-1] == last
    assert figure.axes[0].get_ylim()[0] < anderson.get_ydata()[-1]
    assert "squared distance" in figure.axes[0].get_ylabel()
    assert "K = 500" in figure.get_suptitle()


def test_convergence_of_one_curve_to_zero():
    dataset = iterates().isel(variant=[0], zipf=[0], num_users=0, epsilon=0)
    dataset["distance"][{"iteration": slice(5, None)}] = 0.0
    (axes,) = render(figures.convergence(dataset)).axes
    (line,) = axes.get_lines()
    assert len(line.get_xdata()) == 5
    dataset["distance"][...] = np.nan
    render(figures.convergence(dataset))


@pytest.mark.full
def test_iterates_are_those_of_the_collections_drawn():
    steps = {"none": 12, "anderson": 5}
    found = convergence(num_categories=20, num_users=[500, 4000], epsilon=[1.0, 2.0], zipf=[1.3], steps=steps, seed=7)
    assert found["variant"].values.tolist() == ["ibu", "anderson"]
    settings = [(n, e) for n in (500, 4000) for e in (1.0, 2.0)]
    for place, (n, e) in enumerate(settings):
        key = jax.random.fold_in(jax.random.key(7), place)
        counts = rrjax.simulate.counts(key, rrjax.simulate.zipf(20, 1.3), n, e)
        exact = np.asarray(rrjax.mle_star(counts, e))
        for (name, number), variant in zip(steps.items(), found["variant"].values, strict=True):
            theta = np.asarray(rrjax.ibu_path(counts, e, number, accelerate=name))
            followed = found["distance"].sel(variant=variant, zipf=1.3, num_users=n, epsilon=e)
            expected = np.sum((theta - exact) ** 2, axis=-1)[found["iteration"].values[: number + 1]]
            # Far above what float32 leaves of a distance.
            np.testing.assert_allclose(followed.values[: number + 1], expected, rtol=1e-3, atol=1e-9)
            assert expected[0] > 1e-4
            assert np.isnan(followed.values[number + 1 :]).all()
    with refused("num_users", error=StudyError, value=0):
        convergence(num_users=[0])


@pytest.mark.long
def test_by_categories_has_a_row_for_every_size():
    dataset = study()
    figure = render(figures.by_categories(dataset, zipf=2.5))
    assert len(figure.axes) == 2 * 5
    assert [axes.get_title() for axes in figure.axes[:5]] == ["true distribution", "ε = 1", "ε = 2", "ε = 4", "ε = 10"]
    assert "K = 50" in figure.axes[0].get_ylabel()
    assert "K = 1,000" in figure.axes[5].get_ylabel()
    (true,) = figure.axes[5].get_lines()
    rank = np.asarray(true.get_xdata(), float)
    whole = np.arange(1, 1001) ** -2.5
    np.testing.assert_allclose(true.get_ydata(), rank**-2.5 / whole.sum(), rtol=1e-12)
    expected = dataset["mse"].sel(estimator="mle_star", num_categories=1000, epsilon=10.0, zipf=2.5)
    np.testing.assert_array_equal(curves(figure.axes[9])["#1b4f8a"], expected)
    assert "Zipf exponent s = 2.5" in figure.get_suptitle()


@pytest.mark.long
def test_by_categories_of_named_distributions():
    dataset = study(distribution=["flat", "steep"], epsilon=[0.5, 1.0])
    figure = render(figures.by_categories(dataset, zipf="steep"))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["ε = 0.5", "ε = 1"]
    assert len(figure.axes) == 4
    with refused("distribution", value="wide"):
        figures.by_categories(dataset, zipf="wide")


@pytest.mark.long
def test_decomposition_has_one_scale_for_both():
    dataset = study()
    dataset["variance"] = dataset["variance"] * 1e3
    figure = render(figures.decomposition(dataset, num_categories=50, num_users=100))
    assert [axes.get_ylabel().split(",")[0] for axes in (figure.axes[0], figure.axes[3])] == [
        "squared bias",
        "variance",
    ]
    assert figure.axes[0].get_ylim() == figure.axes[3].get_ylim()
    here = dataset.sel(num_categories=50, num_users=100, zipf=0.01)
    low, high = figure.axes[0].get_ylim()
    assert low < here["bias2"].min() < here["variance"].max() < high


@pytest.mark.full
def test_overview_spreads_over_what_is_long():
    figure = render(figures.overview(study(epsilon=np.arange(1.0, 10.0), num_users=[10**n for n in range(1, 7)])))
    assert figure.axes[-1].get_xlabel() == "privacy ε (nats)"
    assert len(figure.axes) == 4 * 3
    note = figure.legends[0].get_title().get_text()
    assert "4 of 6 values of N" in note
    assert "K = 1,000 is one of 2" in note
    assert "MSE alone of 2 metrics" in note
    figure = render(figures.overview(study(epsilon=[1.0], num_categories=[50])))
    assert len(figure.axes) == 2 * 3  # room for both metrics
    assert "drawn" not in figure.legends[0].get_title().get_text()
    figure = render(figures.overview(study(epsilon=[1.0], num_users=[9], num_categories=[5], distribution=["a", "b"])))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["a", "b"]
    figure = render(figures.overview(study(distribution=["a", "b"]), "nll"))
    assert "egative log-likelihood" in figure.get_suptitle()


@pytest.mark.long
def test_drawings_come_in_the_order_of_the_paper():
    grid = {"num_categories": [paper.K], "num_users": [paper.N], "epsilon": list(paper.EPSILONS)}
    whole = study(**grid, zipf=list(paper.EXPONENTS))
    users = study(distribution=["visits", "towns"], num_categories=[3], num_users=[100])
    counts = {"visits": np.array([70, 20, 10]), "towns": np.array([40, 40, 20])}
    found = [*drawings.of_paper(whole), *drawings.of_users(users, "towns", counts["towns"], "towns", number=3)]
    found += [*drawings.of_users(users, "visits", counts["visits"], "visits"), *drawings.of_em(iterates())]
    found = drawings.ordered(found)
    assert [drawing.name for drawing in found] == [
        *("figure-1", "figure-2", "figure-3-towns", "figure-4", "figure-5", "figure-6", "figure-7", "figure-8"),
        *("figure-9", "figure-10", "decomposition-users", "decomposition-epsilon", "data-visits"),
    ]
    by_name = {drawing.name: drawing for drawing in found}
    assert by_name["figure-5"].title == "Figure 5: mean squared error, Zipf exponent 0.01"
    assert by_name["figure-10"].title == "Figure 10: negative log-likelihood, Zipf exponent 2.5"
    assert by_name["figure-3-towns"].title == "Figure 3: towns, N = 100, K = 3"
    assert by_name["figure-4"].title.endswith("MLE* (K = 500)")
    for name, axes in {"figure-2": 6, "figure-10": 5, "decomposition-epsilon": 6, "data-visits": 2}.items():
        assert len(by_name[name].draw().axes) == axes, name
    left, right = by_name["figure-3-towns"].draw().axes
    np.testing.assert_allclose(left.patches[0].get_data().values, counts["towns"] / 100)
    np.testing.assert_array_equal(
        curves(right)["#1b4f8a"], users["mse"].sel(estimator="mle_star", distribution="towns").squeeze()
    )
    assert [drawing.name for drawing in drawings.of_paper(whole, [1, 9])] == ["figure-1", "figure-9"]


def test_drawings_of_any_study():
    names = [drawing.name for drawing in drawings.of_study(study())]
    assert names == [
        *(f"overview-{metric}-K-{size}" for metric in ("mse", "nll") for size in (50, 1000)),
        "closest",
        "empirical-bayes",
    ]
    assert len(drawings.of_study(study(estimator=["inv_n", "mine"], zipf=[1.3]))) == 3
    assert drawings.of_study(study(("energy",), zipf=[1.3]))[-1].title == "Overview: energy"


def test_claims_on_empirical_bayes():
    names = ["mle_star", "inv_p", "inv_n", "empirical_bayes"]
    dataset = study(estimator=names, num_categories=[50], zipf=[1.3])
    dataset["mse"][...] = 2.0
    dataset["mse"][{"estimator": 3}] = 1.0
    dataset["mse"][{"estimator": 3, "num_users": 0, "epsilon": 0}] = 5.0
    dataset["mse_se"] = dataset["mse_se"] * 0 + 0.01
    dataset["mse_difference_se"] = dataset["mse_difference_se"] * 0 + 0.01
    found = [claim for claim in check_claims(dataset) if "empirical Bayes" in claim.claim]
    assert [claim.violated for claim in found] == [1, 1]
    assert found[0].worst.startswith("2.5 times")
    dataset["mse"][{"estimator": 3}] = 2.0
    assert all(claim.holds for claim in check_claims(dataset) if "empirical Bayes" in claim.claim)
    with refused("dataset"):
        check_claims(dataset.drop_vars("nll"))


@pytest.mark.long
def test_own_metrics_and_extremes():
    dataset = study(("$mine$", "mse"), zipf=[0.0, np.inf], epsilon=[1.0, np.inf])
    dataset["$mine$"] = dataset["$mine$"] - 100
    assert measured(dataset) == ["mse", "$mine$"]
    figure = render(figures.against_epsilon(dataset, ["$mine$"], num_categories=50, num_users=100))
    assert figure.axes[1].get_title() == "Zipf exponent s = ∞"
    assert figure.axes[0].get_yscale() == "linear"
    assert figure.axes[0].get_ylabel() == r"\$mine\$"
    np.testing.assert_array_equal(figure.axes[0].get_lines()[0].get_xdata(), [1.0])
    figure = render(figures.by_categories(dataset, zipf=np.inf))
    assert [axes.get_title() for axes in figure.axes[1:3]] == ["ε = 1", "ε = ∞"]
    np.testing.assert_array_equal(figure.axes[0].get_lines()[0].get_ydata(), [1.0])
    render(figures.wins(dataset, estimator="empirical_bayes"))
    render(figures.overview(dataset))


def two_by_two(*changes, **coords):
    """Errors of 4, of the second estimator 2, but for changes; paired differences with standard errors."""
    dataset = study(num_categories=[50], zipf=[1.3], num_users=[100, 1000], epsilon=[1.0, 2.0], **coords)
    dataset["mse"][...] = 4.0
    for place, value in (({"estimator": 1}, 2.0), *changes):
        dataset["mse"][place] = value
    difference = dataset["mse"] - dataset["mse"].rename(estimator="versus")
    dataset["mse_difference"] = difference.transpose(*dataset["mse_difference"].dims)
    dataset["mse_difference_se"] = dataset["mse_difference_se"] * 0 + 0.4
    dataset["mse_difference_se"][{"num_users": 1, "epsilon": 0}] = 1.1  # twice that is more than 4 − 2
    return dataset


def test_wins_where_its_error_is_smaller():
    dataset = two_by_two(({"estimator": 3}, np.reshape([[1.0, 8.0], [4.0, np.nan]], (1, 2, 2, 1))))
    figure = render(figures.wins(dataset, estimator="empirical_bayes"))
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array().filled(99), [[-1, 2], [1, 99]])
    assert {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts} == {(0, 0): "−", (1, 0): "+"}
    assert "1 win and 1 loss in 3 configurations" in figure.get_suptitle().replace("\n", " ")
    whole = figure.get_tightbbox()
    assert whole.x0 >= 0
    assert whole.x1 <= figure.get_figwidth()
    untested = figures.wins(dataset.drop_vars("mse_difference"), estimator="empirical_bayes")
    assert len(untested.axes[0].texts) == 3
    assert "standard errors" not in untested.get_suptitle()


def test_closest_has_the_colour_of_the_best_and_is_pale_where_another_may_be():
    names = ["mle_star", "inv_p", "empirical_bayes"]
    best = {"estimator": 2, "num_users": 1, "epsilon": 1}, 1.0
    dataset = two_by_two(best, ({"num_users": 0, "epsilon": 1}, np.nan), estimator=names)
    figure = render(figures.closest(dataset))
    cells = figure.axes[0].images[0].get_array()
    colour = {name: np.array(to_rgb(ESTIMATORS[name].style.colour)) for name in names}
    np.testing.assert_allclose(cells[0, 0], colour[names[1]])
    np.testing.assert_allclose(cells[1, 0], 0.35 * colour[names[1]] + 0.65)
    np.testing.assert_allclose(cells[1, 1], colour[names[2]])
    np.testing.assert_allclose(cells[0, 1], 0.85)
    titles = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(int(title.split(": ")[1]) for title in titles)[-2:] == [1, 2]
    assert "in 3 configurations" in figure.get_suptitle()
    with refused("dataset"):
        figures.closest(dataset.sel(estimator=names[:1]))


@pytest.mark.long
def test_the_dataset_is_left_as_it_was():
    dataset = study()
    before = dataset.copy(deep=True)
    for _ in every_figure(dataset):
        pass
    ranking(dataset)
    xr.testing.assert_identical(dataset, before)
