"""Strict settings for the whole suite. JAX_ENABLE_X64 comes from outside; both values must pass."""

import jax
import pytest
from hypothesis import settings

settings.register_profile("rrjax", derandomize=True, deadline=None, max_examples=100, database=None)
settings.load_profile("rrjax")


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "error")
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def compilations():
    """A list that grows by one with every program that XLA compiles."""
    events = []

    def listen(event, duration, **kwargs):
        del duration, kwargs
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """`rrjax` in this process, in an empty folder: returns exit code, standard output and standard error."""
    from typer.testing import CliRunner

    from rrjax.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    return call
