"""The commands of ``datasetrt``. They only print: what they find out, the library's functions do.

Nothing of the package imports this, so that importing `datasetrt` does not import click.
"""

from ._main import main

__all__ = ["main"]
