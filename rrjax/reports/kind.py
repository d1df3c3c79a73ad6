"""Kinds of reports: each answers the questions that it can, and refuses the others; the questions about one column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack

import numpy as np

if TYPE_CHECKING:
    from rrjax.inference.intervals import Looks
    from rrjax.io.source import Source
    from rrjax.reports.classes import ClassStatements
    from rrjax.reports.comparison import Comparison, Truth
    from rrjax.reports.regression import Regression
    from rrjax.reports.shares import Shares
    from rrjax.reports.statements import Groups, Population, Statements
    from rrjax.reports.testing import Test

QUESTIONS = (
    "shares",
    "mean",
    "quantile",
    "group",
    "by",
    "statements",
    "within",
    "joint",
    "pairs",
    "tree",
    "compare",
    "test_fit",
    "regress",
)
"""All questions, each a method of the kinds of reports that can answer it."""


class OfPopulation(TypedDict, total=False):
    """Arguments about a population, or about intervals at any time, which `statements` explains."""

    weights: str | None
    strata: str | None
    clusters: str | None
    population_size: str | float | None
    total: bool
    population: Population | None
    looks: Looks | None
    tuned_to: float | None


class Kind:
    """Reports of one kind: one column, columns randomized separately, rounds, groups, numbers, two samples.

    A question is a method that returns an `Answer`. A kind has the methods of the questions that it can answer.
    """

    called_kind: ClassVar[str] = "reports"
    """The kind in words, for messages."""
    instead: ClassVar[str] = ""
    """What to do where a question does not apply to this kind, for messages of the command line."""
    estimate_is: ClassVar[str] = "unbiased: the randomization is undone, on average"
    """What an estimate of a share or of a mean is, for explanations."""
    warnings: Any
    """What is odd about the reports."""
    num_reports: Any
    """N, the number of reports; missing ones do not count."""
    source: Any
    """Their files; None for reports that were counted elsewhere."""

    def summary(self) -> str:
        """A sentence about the reports."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """The reports, as fields of a JSON object."""
        raise NotImplementedError

    @property
    def simulated(self) -> bool:
        """Whether the metadata say that the reports were made from a seed, which protects nobody."""
        return False

    @property
    def name(self) -> str:
        """The name of the first file, for messages."""
        return "the table of reports" if self.source is None else Path(self.source.files()[0]).name

    @property
    def inputs(self) -> list[Source]:
        """All files that reports were read from, also those whose rows are not known any more."""
        return [] if self.source is None else [self.source]

    @property
    def paths(self) -> list[str] | None:
        """The files as they were given; None without any."""
        given: Any = () if self.source is None else self.source.paths
        return [*given] or None

    @property
    def called(self) -> str:
        """The number of reports in words, for titles."""
        return f"{self.num_reports:,} {'simulated reports (they protect nobody)' if self.simulated else 'reports'}"

    def table(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns of a table to write, with one more if the reports are simulated."""
        number = len(next(iter(columns.values())))
        return {**columns, **({"simulated": np.full(number, True)} if self.simulated else {})}

    def __repr__(self) -> str:
        """The sentence about the reports, and what is odd about them."""
        return "\n".join([self.summary(), *(f"Warning: {warning}" for warning in self.warnings)])

    @classmethod
    def questions(cls) -> list[str]:
        """The questions that these reports can answer."""
        return [name for name in QUESTIONS if hasattr(cls, name)]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuses a question that these reports cannot answer."""
            if name in QUESTIONS:
                answers = ", ".join(self.questions())
                raise NoSuchQuestion(f"{self.called_kind} cannot answer {name!r}; they answer {answers}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class NoSuchQuestion(AttributeError):  # noqa: N818
    """A question that reports of this kind cannot answer."""


class ColumnQuestions(Kind):
    """Questions that `Reports` answers, each a method."""

    def shares(
        self: Any,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        fdr: float = 0.05,
        estimator: str | None = None,
        ordered: bool = False,
        looks: Looks | None = None,
        tuned_to: float | None = None,
        fakes: bool = False,
    ) -> Shares:
        """Estimates the shares of all categories: the closest and the likeliest estimate, intervals, discoveries.

        Args:
            level: Confidence level of the intervals, in (0, 1).
            simultaneous: Whether all intervals hold their share together with that confidence, not each.
            fdr: False discovery rate of the categories that are significantly above zero, in (0, 1).
            estimator: One estimator of the catalogue in place of the two.
            ordered: Whether neighbours in the domain are similar, as ages are.
            looks: "any" for intervals and marks that hold at all numbers of users together, so that growing reports may
                be read every day; they are wider. None for one number of users.
            tuned_to: With looks "any": the number of users at which the intervals are narrow, to be fixed beforehand;
                None is 10,000.
            fakes: Whether to count the fake reports that would overturn each mark, or its absence.

        Returns:
            `Shares`, computed in float64.

        Raises:
            ArgumentError: A level or rate outside of (0, 1), or an estimator that these reports do not allow.

        Example:
            >>> import rrjax
            >>> shares = rrjax.Reports.of_counts([600, 250, 150], 2.0, ["red", "green", "blue"]).shares()
            >>> shares.columns["closest"].round(3).tolist(), shares.columns["discovered"].tolist()
            ([0.725, 0.211, 0.064], [True, True, True])
        """
        from rrjax.reports.shares import shares_of

        return shares_of(self, level, simultaneous, fdr, estimator, ordered, looks, tuned_to, fakes)

    def compare(
        self: Any,
        truth: Truth | None = None,
        *,
        estimators: Sequence[str] | None = None,
        ordered: bool = False,
        level: float = 0.95,
    ) -> Comparison:
        """Runs all estimators on the reports, and measures them against the truth if it is given.

        Args:
            truth: K true shares or counts; a mapping or series of labels to counts; or a file of true values. None
                measures likelihoods only.
            estimators: Estimators of the catalogue in place of all.
            ordered: Whether neighbours in the domain are similar, which adds an estimator that uses it.
            level: Confidence level of the intervals in the figure, in (0, 1).

        Returns:
            `Comparison`, computed in float64. Of the true values it has the shares only.

        Raises:
            ArgumentError: A level outside of (0, 1), estimators that these reports do not allow, or true values that
                are not those of the domain.
            DataError: A file of true values that cannot be used.

        Example:
            >>> import rrjax
            >>> reports = rrjax.Reports.of_counts([600, 250, 150], 2.0, ["red", "green", "blue"])
            >>> answer = reports.compare([0.7, 0.2, 0.1], estimators=["inv", "inv_p"])
            >>> [row["errors"]["tv"] < 0.1 for row in answer.rows()["estimators"]]
            [True, True]
        """
        from rrjax.reports.comparison import compared

        return compared(self, truth, estimators, ordered, level)

    def test_fit(
        self: Any,
        theta: Truth | None = None,
        *,
        significance: float = 0.05,
        draws: int | None = None,
        seed: int = 0,
    ) -> Test:
        """Tests whether the users come from a distribution; without one, whether any can have made these reports.

        Args:
            theta: The distribution: K shares or counts, a mapping or series of labels to counts, or a file of values;
                None for any.
            significance: The hypothesis is rejected where the p-value is at most this.
            draws: Number of simulated collections; None is 9999, or as many as take about ten seconds.
            seed: Seed of the simulation.

        Returns:
            `Test`, computed in float64 by `rrjax.inference.goodness_of_fit_test`; of randomized response and a
            distribution also by `rrjax.inference.likelihood_ratio_test`.

        Raises:
            ArgumentError: Shares that are no distribution, or a significance or a number of draws that tells nothing.

        Example:
            >>> import rrjax
            >>> test = rrjax.Reports.of_counts([600, 250, 150], 2.0).test_fit([0.5, 0.3, 0.2], draws=999)
            >>> test.outcomes[0].rejected
            True
        """
        from rrjax.reports.hypotheses import fit_of
        from rrjax.reports.testing import Simulation

        return fit_of(self, theta, Simulation(significance, draws, seed))

    def statements(
        self: Any,
        *,
        mean: bool = False,
        quantile: float | Iterable[float] = (),
        group: Groups = (),
        by: str | None = None,
        weights: str | None = None,
        strata: str | None = None,
        clusters: str | None = None,
        population_size: str | float | None = None,
        total: bool = False,
        population: Population | None = None,
        normal: bool = False,
        level: float = 0.95,
        top: int | None = None,
        looks: Looks | None = None,
        tuned_to: float | None = None,
    ) -> Statements:
        """Estimates means, quantiles and shares of groups, of all users and of the levels of a public column.

        Args:
            mean: Whether to estimate the mean of the labels, which are numbers.
            quantile: Quantiles in the order of the domain, each in (0, 1); 0.5 is the median.
            group: Groups of categories: texts such as "young=0:29" (both ends included) or "north=Oslo,Rome", and
                mappings from names to labels. Without mean, quantile and group the most frequent categories are taken.
            by: A public column of the file: the statements for each of its levels, and the difference of two levels.
            weights: A column of survey weights. With it, or with one of the next three, the statements are about the
                population that the sample represents (`rrjax.inference.survey_estimate`).
            strata: A column of strata, which were sampled independently.
            clusters: A column of clusters, which were sampled whole, such as schools; each lies in one stratum.
            population_size: The number of clusters, or of people where there are none, in the population of the
                stratum: a column, or a number where there are no strata. Without weights it makes them.
            total: Whether to estimate numbers of people, and sums, in place of shares and means.
            population: The sizes of the levels of `by` in a population, which is estimated, too: a file with two
                columns, or a mapping or series.
            normal: Whether intervals use the normal approximation: shorter, and valid for thousands of users.
            level: Confidence level of each interval, in (0, 1).
            top: How many of the most frequent categories to take; None is 10.
            looks: As for `shares`: "any" makes intervals of means and groups that hold at all numbers of users.
            tuned_to: As for `shares`.

        Returns:
            `Statements`, computed in float64.

        Raises:
            DataError: A file or a column that cannot be used.
            ArgumentError: Arguments that contradict each other, the labels or the reports.

        Example:
            >>> import rrjax
            >>> reports = rrjax.Reports.of_counts([400, 300, 200, 100], 2.0)
            >>> answer = reports.statements(mean=True, group={"often": [2, 3]})
            >>> answer.columns["statement"].tolist(), answer.columns["value"].round(3).tolist()
            (['mean', 'often'], [0.687, 0.175])
        """
        from rrjax.reports.statements import statements_of
        from rrjax.reports.surveys import Sample

        sample = Sample(weights, strata, clusters, population_size, total)
        how = normal, level, top, sample, looks, tuned_to
        return statements_of(self, mean, quantile, group, by, population, *how)

    def mean(
        self,
        *,
        by: str | None = None,
        normal: bool = False,
        level: float = 0.95,
        **population: Unpack[OfPopulation],
    ) -> Statements:
        """Estimates the mean of labels that are numbers; see `statements`, also for the arguments of a population.

        Example:
            >>> import rrjax
            >>> mean = rrjax.Reports.of_counts([400, 300, 200, 100], 2.0).mean()
            >>> [round(float(mean.columns[name][0]), 2) for name in ("value", "lower", "upper")]
            [0.69, 0.53, 0.85]
        """
        return self.statements(mean=True, by=by, normal=normal, level=level, **population)

    def quantile(self, *quantiles: float, by: str | None = None, level: float = 0.95) -> Statements:
        """Estimates quantiles in the order of the domain, such as 0.5 for the median; see `statements`.

        Example:
            >>> import rrjax
            >>> rrjax.Reports.of_counts([400, 300, 200, 100], 2.0).quantile(0.5, 0.9).columns["value"].tolist()
            [1, 2]
        """
        chosen = [each for one in quantiles for each in (one if isinstance(one, Iterable) else [one])]
        return self.statements(quantile=chosen, by=by, level=level)

    def group(
        self,
        *groups: Any,
        by: str | None = None,
        normal: bool = False,
        level: float = 0.95,
        **population: Unpack[OfPopulation],
    ) -> Statements:
        """Estimates the share of some categories together; see `statements`, also for the arguments of a population.

        Example:
            >>> import rrjax
            >>> reports = rrjax.Reports.of_counts([400, 300, 200, 100], 2.0, ["a", "b", "c", "d"])
            >>> reports.group("vowels=a", {"others": ["b", "c", "d"]}).columns["value"].round(3).tolist()
            [0.494, 0.506]
        """
        return self.statements(group=groups, by=by, normal=normal, level=level, **population)

    def by(
        self,
        column: str,
        *,
        mean: bool = False,
        quantile: float | Iterable[float] = (),
        group: Groups = (),
        normal: bool = False,
        level: float = 0.95,
        top: int | None = None,
        **population: Unpack[OfPopulation],
    ) -> Statements:
        r"""Estimates statements for each level of a public column; see `statements`.

        Example:
            >>> import pathlib, rrjax, tempfile
            >>> rows = ["Oslo,north", "Rome,north", "Oslo,south", "Rome,north"] * 100
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "cities.csv")
            ...     _ = path.write_text("\n".join(["city,region", *rows]))
            ...     answer = rrjax.read(path, column="city", epsilon=2.0).by("region", group="Oslo")
            >>> answer.columns["of"].tolist()
            ['all', 'north', 'south', 'north less south']
        """
        given: dict[str, Any] = {"mean": mean, "quantile": quantile, "group": group, **population}
        return self.statements(by=column, normal=normal, level=level, top=top, **given)

    def within(
        self: Any,
        within: str,
        *,
        mean: bool = False,
        quantile: float | Iterable[float] = (),
        by: str | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> ClassStatements:
        r"""Estimates means and quantiles of public numbers within each class, where the class was randomized.

        Args:
            within: A column of the same file with numbers that were not randomized, such as load times.
            mean: Whether to estimate the mean.
            quantile: Quantiles, each in (0, 1). Without mean and quantile it is the median.
            by: A public column of the file: the same for each of its levels.
            level: Confidence level of each interval, in (0, 1).
            simultaneous: Whether all intervals hold together with that confidence, not each.

        Returns:
            `ClassStatements`, computed in float64 by `inference.class_quantiles` and `inference.class_means`; of two
            classes also how far the first is above the second.

        Raises:
            DataError: A file or a column that cannot be used, such as one with other values than numbers.
            ArgumentError: A column that was randomized, or a level or a quantile outside of (0, 1).

        Example:
            >>> import pathlib, rrjax, tempfile
            >>> rows = [f"{'low' if place % 3 else 'high'},{place % 7 + place % 3}" for place in range(600)]
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "timings.csv")
            ...     _ = path.write_text("\n".join(["confidence,seconds", *rows]))
            ...     given = {"mechanism": "coin", "parameters": {"rate": 0.4}, "domain": ["low", "high"]}
            ...     answer = rrjax.read(path, column="confidence", **given).within("seconds", quantile=0.75)
            >>> answer.columns["class"].tolist(), answer.columns["value"].tolist()
            (['low', 'high', 'low less high'], [6.0, 3.0, 3.0])
        """
        from rrjax.reports.classes import within_of

        return within_of(self, within, mean, quantile, by, level, simultaneous)

    def regress(
        self: Any,
        covariates: str | Iterable[str],
        *,
        factors: Iterable[str] = (),
        reference: str | None = None,
        weights: str | None = None,
        clusters: str | None = None,
        robust: bool = False,
        drop_missing: bool = False,
        ridge: float = 0.0,
        nuisance: Iterable[str] = (),
        level: float = 0.95,
    ) -> Regression:
        r"""Finds what the true answers depend on: multinomial logistic regression.

        Args:
            covariates: Columns of the same file: numbers, texts as factors, or columns that were randomized apart,
                whose true values are estimated, too.
            factors: Covariates whose numbers are names of levels.
            reference: The category that others are compared with; None is the first one.
            weights: Column of survey weights; errors are robust then.
            clusters: Column of clusters, within which users may depend on each other.
            robust: Whether standard errors hold where the model is wrong, too (sandwich).
            drop_missing: Whether to leave out rows that lack a covariate, a weight or a cluster.
            ridge: Precision of a normal prior on standardized coefficients.
            nuisance: Of a design of two samples, columns that its second share may depend on; none is a constant one.
            level: Confidence level of each interval, in (0, 1).

        Returns:
            `Regression`, computed in float64.

        Raises:
            DataError: Columns that cannot be used, or that do not determine the coefficients.
            ArgumentError: Arguments that contradict each other or the reports.

        Example:
            >>> import pathlib, rrjax, tempfile
            >>> rows = [f"{'yes' if age > 40 or age % 3 else 'no'},{age}" for age in range(20, 70)] * 20
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "people.csv")
            ...     _ = path.write_text("\n".join(["smokes,age", *rows]))
            ...     answer = rrjax.read(path, column="smokes", epsilon=3.0, domain=["no", "yes"]).regress("age")
            >>> answer.columns["term"].tolist(), answer.columns["estimate"].round(3).tolist()
            (['(intercept)', 'age'], [-2.455, 0.12])
        """
        from rrjax.reports.regression import regression_of

        how = robust, drop_missing, ridge, list(nuisance), level
        return regression_of(self, covariates, factors, reference, weights, clusters, *how)
