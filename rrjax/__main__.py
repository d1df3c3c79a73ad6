"""`python -m rrjax` is `rrjax`."""

from rrjax.cli import main

if __name__ == "__main__":
    main()
