"""The command line: the only place that prints, reads flags or touches JAX's configuration."""

import sys

__all__ = ["main"]


def main() -> None:
    """Runs `rrjax` with the arguments of the process; see `rrjax --help`."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"rrjax: the command line needs {error.name}: pip install 'rrjax[cli]'")

    import jax

    # Certificates of 1e-10 and totals beyond 2³¹ need 64 bits; an application may ask for them, a library not.
    jax.config.update("jax_enable_x64", True)

    from rrjax.cli.commands import app

    app(prog_name="rrjax")
