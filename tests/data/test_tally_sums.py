"""Which tallies add up: labels, rates and what was stored of them; and what a tally is equal to."""

import dataclasses
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ULP, X64
from refusals import refused

import rrjax
from rrjax import RandomizedResponse, Tally
from rrjax.data.categories import Fingerprint
from rrjax.data.errors import ArgumentError
from rrjax.io import DataError, load_tally, save_tally
from rrjax.io.domain import Domain
from rrjax.mechanisms import MECHANISMS, Warner


def stored(tally, **changes):
    """As somebody has it who kept its numbers."""
    p, q = (changes.get(name, float(getattr(tally, name))) for name in ("p", "q"))
    return Tally(tally.support, tally.num_users, p, q, domain=changes.get("domain"))


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("kind", list(MECHANISMS.values())[:4])
def test_a_tally_of_stored_rates_adds_to_the_one_that_they_are_of(kind, epsilon):
    tally = Tally([5, 4, 3, 0], 10, rates=kind(4, epsilon).rates)
    tally = tally + Tally(jnp.asarray([5, 4, 3, 0]), jnp.asarray(10), rates=kind(4, epsilon).rates)
    for added in (stored(tally) + tally, tally + stored(tally), jax.jit(lambda a, b: a + b)(tally, stored(tally))):
        assert int(added.num_users) == 40
    for change in (64 * ULP, -64 * ULP):
        for other in (stored(tally, p=float(tally.p) * (1 + change)), stored(tally, q=float(tally.q) * (1 + change))):
            with refused("rates"):
                tally + other
            assert int(jax.jit(lambda a, b: a + b)(tally, other).num_users) == -1


def test_what_is_said_of_other_rates_shows_how_they_differ():
    rates = RandomizedResponse(4, 1.0).rates
    tally = Tally([3, 2, 1, 0], 10, rates=rates)
    near = Tally([3, 2, 1, 0], 10, float(rates.p) * (1 + 32 * ULP), float(rates.q))
    with refused("rates") as caught:
        tally + near
    shown = str(caught.value)
    assert re.search(r"p is (\S+) in one and (?!\1 )(\S+) in the other", shown), shown


@pytest.mark.long
def test_a_tally_has_the_fingerprint_of_its_labels():
    domain = Domain.of(["green", "red", "blue"])
    tally = Tally([3, 2, 1], 10, 0.5, 0.2, domain=domain)
    bare = Tally([3, 2, 1], 10, 0.5, 0.2)
    other = Tally([3, 2, 1], 10, 0.5, 0.2, domain=["red", "green", "blue"])
    assert tally.domain == domain.fingerprint
    assert tally.domain.labels == ("green", "red", "blue")
    assert bare.domain is None
    for added in (tally + bare, bare + tally, sum([tally, bare, tally])):
        assert added.domain == tally.domain
        assert added.domain.labels == tally.domain.labels
    for add in (lambda a, b: a + b, jax.jit(lambda a, b: a + b), jax.jit(lambda a, b: sum([a, b]))):
        with refused("domain") as caught:
            add(tally, other)
        assert "'green'" in str(caught.value)
        assert "'red'" in str(caught.value)
    # Kept by transformations.
    for kept in (
        jax.jit(lambda a: a + a)(tally),
        jax.tree.map(jnp.zeros_like, tally),
        jax.vmap(lambda a: a + a)(jax.tree.map(lambda *parts: jnp.stack(parts), tally, tally)),
        pickle.loads(pickle.dumps(tally)),
        dataclasses.replace(tally, support=tally.support + 1),
        jax.lax.fori_loop(0, 3, lambda _, total: total + tally, tally),
    ):
        assert kept.domain == tally.domain
    with refused("domain"):
        Tally([3, 2, 1], 10, 0.5, 0.2, domain=["red", "green"])
    with refused("domain"):
        Tally([3, 2, 1], 10, 0.5, 0.2, domain="0:2")


def test_estimators_compile_once_whatever_the_labels(compilations):
    rates = RandomizedResponse(3, 1.0).rates
    tallies = [Tally([5, 3, 2], 10, rates=rates, domain=labels) for labels in (None, ["a", "b", "c"], ["x", "y", "z"])]
    rrjax.inv_p(tallies[0])
    before = len(compilations)
    for tally in tallies[1:]:
        rrjax.inv_p(tally)
    assert len(compilations) == before


@pytest.mark.once
def test_fingerprints_tell_labels_and_their_order():
    assert Domain.range(3, 12).fingerprint == Domain.of([str(n) for n in range(3, 13)]).fingerprint
    assert Domain.of(["a", "bc"]).fingerprint != Domain.of(["ab", "c"]).fingerprint
    assert Domain.of(["01", "02"]).fingerprint != Domain.range(1, 2).fingerprint
    assert Domain.range(0, 2**31 - 2).fingerprint != Domain.range(1, 2**31 - 1).fingerprint
    assert Fingerprint.of([0, 1]) == Fingerprint.of(np.arange(2)) == Fingerprint.of(range(2))
    assert hash(Fingerprint.of(range(2))) == hash(Fingerprint.of(["0", "1"]))


def test_equality_is_one_bool_and_a_tally_is_shown_short():
    tally = Tally([3, 2, 1], 10, 0.5, 0.2, domain=["red", "green", "blue"])
    again = Tally(jnp.asarray([3, 2, 1]), 10, 0.5, 0.2, domain=["red", "green", "blue"])
    assert (tally == again) is True
    for other in (
        Tally([3, 2, 0], 10, 0.5, 0.2, domain=tally.domain),
        Tally([3, 2, 1], 11, 0.5, 0.2, domain=tally.domain),
        Tally([3, 2, 1], 10, 0.5, 0.3, domain=tally.domain),
        Tally([3, 2, 1], 10, 0.5, 0.2),
        Tally([3, 2, 1, 0], 10, 0.5, 0.2),
        3,
    ):
        assert (tally == other) is False
        assert (tally != other) is True
    with pytest.raises(TypeError):
        hash(tally)
    with pytest.raises(jax.errors.TracerArrayConversionError):
        jax.jit(lambda a, b: a == b)(tally, again)
    assert repr(tally) == "Tally(support=[3, 2, 1], num_users=10, p=0.5, q=0.2, domain=('red', 'green', 'blue'))"
    large = Tally(np.zeros(100_000, int), 10, 0.5, 0.2, domain=range(100_000))
    assert len(repr(large)) < 120
    assert "100000" in repr(jax.vmap(lambda a: a)(jax.tree.map(lambda x: jnp.asarray(x)[None], large)))


@pytest.mark.parametrize("support", [[5, 4, 3, 0], np.asarray([5.5, 4.25, 0.1, 0], np.float32)])
@pytest.mark.parametrize("labels", [None, ["red", "green", "blue", "1"], range(7, 11)])
def test_a_stored_tally_comes_back_as_it_was(tmp_path, support, labels):
    mechanism = MECHANISMS["subset-selection"](4, 0.7)
    file = tmp_path / "monday.parquet"
    for rates in ({"rates": mechanism.rates}, {"p": float(mechanism.rates.p), "q": float(mechanism.rates.q)}):
        number = 10 if isinstance(support, list) else np.float32(10.3)
        tally = Tally(support, number, **rates, domain=labels)
        save_tally(file, tally, mechanism)
        found = load_tally(file)
        assert found.tally == tally
        assert found.tally.support.dtype == tally.support.dtype
        assert found.tally.num_users.dtype == tally.num_users.dtype
        assert jax.tree.structure(found.tally) == jax.tree.structure(tally)
        assert found.mechanism == mechanism
        assert (found.domain and [str(label) for label in found.domain.labels()]) == (labels and list(map(str, labels)))
        assert found.tally + tally == tally + tally
    save_tally(file, tally)
    assert load_tally(file).mechanism is None


@pytest.mark.once
def test_what_cannot_be_stored_or_read_is_refused(tmp_path):
    tally = Tally([5, 4], 10, 0.7, 0.3)
    with refused(error=DataError, file="tally.csv"):
        save_tally("tally.csv", tally)
    for mechanism in (Warner(0.7), RandomizedResponse(2, 3.0), RandomizedResponse(3, 1.0)):
        with pytest.raises(DataError):
            save_tally(tmp_path / "tally.parquet", tally, mechanism)
    file = tmp_path / "other.parquet"
    save_tally(file, tally)
    with refused(error=ArgumentError, argument="tally"):
        save_tally(file, load_tally(file))
    file.unlink()
    rrjax.io.write_table(file, {"label": np.arange(2), "support": np.arange(2)})
    with refused(error=DataError, file=str(file)):
        load_tally(file)


@pytest.mark.skipif(X64, reason="64 bits hold it")
def test_a_tally_of_more_than_32_bits_is_refused_without_x64(tmp_path):
    import duckdb

    file = tmp_path / "large.parquet"
    save_tally(file, Tally([5, 4], 10, 0.7, 0.3))
    wide = tmp_path / "wide.parquet"
    duckdb.execute(
        f"COPY (SELECT label, support::BIGINT + 3000000000 AS support FROM '{file}') TO '{wide}' (FORMAT parquet, "
        f"KV_METADATA {{rrjax_tally: {kept(file)!r}}})"
    )
    with pytest.raises(DataError):
        load_tally(wide)


def kept(file):
    import duckdb

    found = duckdb.execute(f"SELECT value FROM parquet_kv_metadata('{file}') WHERE key = 'rrjax_tally'::BLOB")
    return found.fetchone()[0].decode()
