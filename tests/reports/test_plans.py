"""Plans of collections, in a notebook and at the command line."""

import pytest

pytest.importorskip("duckdb", reason="the command line needs rrjax[cli]")
pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal

import rrjax
from rrjax import reports
from rrjax.mechanisms import DESIGNS

pytestmark = pytest.mark.once  # plans compute in float64, whatever the setting
KUK = ("--mechanism", "kuk", "--parameter", "have=0.5", "--parameter", "lack=0.05")


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "ask"),
    [
        (
            ("--categories", "50", "--epsilon", "1", "--target-rmse", "0.01"),
            lambda: rrjax.plan(50, epsilon=1, target_rmse=0.01),
        ),
        (
            ("--categories", "10", "--users", "50000", "--target-width", "0.02", "--share", "0.3", "--level", "0.9"),
            lambda: rrjax.plan(10, num_users=50_000, target_width=0.02, share=0.3, level=0.9),
        ),
        (
            ("--categories", "10", "--users", "50000", "--epsilon", "1.5", "--mechanism", "ss"),
            lambda: rrjax.plan(10, 1.5, 50_000, mechanism="ss"),
        ),
        ((*KUK, "--users", "1000"), lambda: rrjax.plan(num_users=1000, mechanism=DESIGNS["kuk"](0.5, 0.05))),
        (
            (*KUK, "--target-width", "0.08"),
            lambda: rrjax.plan(2, target_width=0.08, mechanism="kuk", parameters={"have": "1/2", "lack": 0.05}),
        ),
        (
            ("--columns", "2,3", "--epsilon", "2", "--users", "10000"),
            lambda: reports.plan_columns([2, 3], 2.0, 10_000),
        ),
    ],
    ids=["users", "epsilon", "known", "design", "named design", "columns"],
)
def test_the_command_line_says_what_the_answer_says(invoke, line, ask):
    answer = ask()
    check_outlets(answer, invoke, "plan", *line, tolerance=1e-12, out=False)
    (rows,) = answer.rows().values()
    assert len(answer.to_polars()) == len(rows)
    code, out, error = invoke("plan", *line)
    assert code == 0, error
    assert answer.title.split(":")[0] in out
    assert "<th" in answer._repr_html_()


@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("num_categories", lambda: rrjax.plan(epsilon=1.0, num_users=9)),
        ("num_categories", lambda: rrjax.plan(1, epsilon=1.0, num_users=9)),
        ("num_categories", lambda: rrjax.plan(3, num_users=9, mechanism=DESIGNS["warner"](0.7))),
        ("num_users", lambda: rrjax.plan(3, epsilon=1.0, num_users=0)),
        ("num_users", lambda: rrjax.plan(4, 1, 10.5)),
        ("num_users", lambda: rrjax.plan(4, 1, True)),
        ("num_users", lambda: reports.plan_columns([3, 4], 1.0, float("inf"))),
        ("epsilon", lambda: rrjax.plan(4, True, 10)),
        ("num_users", lambda: rrjax.plan(mechanism=DESIGNS["warner"](0.7))),
        ("epsilon", lambda: rrjax.plan(3, num_users=9)),
        ("epsilon", lambda: rrjax.plan(3, epsilon=-1.0, num_users=9)),
        ("epsilon", lambda: rrjax.plan(epsilon=1.0, num_users=9, mechanism=DESIGNS["warner"](0.7))),
        ("mechanism", lambda: rrjax.plan(3, 1.0, 9, mechanism="loloha")),
        ("parameters", lambda: rrjax.plan(3, 1.0, 9, parameters={"truth": 0.5})),
        ("target_rmse", lambda: rrjax.plan(3, 1.0, target_rmse=5)),
        ("target_width", lambda: rrjax.plan(3, 1.0, target_rmse=0.1, target_width=0.1)),
        ("share", lambda: rrjax.plan(3, 1.0, 9, share=2)),
        ("level", lambda: rrjax.plan(3, 1.0, 9, level=95)),
        ("num_categories", lambda: reports.plan_columns([3], 1.0, 9)),
        ("num_categories", lambda: reports.plan_columns(["a", 3], 1.0, 9)),
        ("num_users", lambda: reports.plan_columns([3, 4], 1.0, 0)),
        ("epsilon", lambda: reports.plan_columns([3, 4], 100.0, 9)),
    ],
)
def test_errors_name_the_argument(argument, ask):
    check_refusal(argument, ask)


@pytest.mark.long
def test_a_plan_draws_itself():
    pytest.importorskip("matplotlib")
    for plan in (rrjax.plan(3, 1.0, 900), reports.plan_columns([2, 3], 2.0, 900)):
        assert plan.figure().axes
