"""Loads an operator package: its library, which registers the operators, and their converters."""

import functools
import importlib.machinery
import importlib.util
import os
import sys
from importlib.metadata import version

import torch


def load(package: str) -> None:
    """Imports PACKAGE.PACKAGE_lib and registers the converters: what a package's ``__init__.py`` calls with its name.

    The package then has ``routes()``, which says what its operators call.

    Raises:
        ImportError: there is no library, or it was built with another custom_pypto or torch than is installed.
    """
    library = f"{package}.{package}_lib"
    if importlib.util.find_spec(library) is None:
        _take_installed(package)
    try:
        importlib.import_module(library)
    except ImportError as error:
        raise ImportError(
            f"{package} was built with other versions than are installed, custom_pypto {version('custom_pypto')} and "
            f"torch {torch.__version__}: build and install it again ({error})"
        ) from error
    from .converter import register  # not before: our own folder is the installed one only now
    from .routes import routes

    register(package)
    sys.modules[package].routes = functools.partial(routes, package)


def _take_installed(package: str) -> None:
    """Lets a source folder, which has no compiled library and comes first in sys.path, be the installed package."""
    path = sys.modules[package].__path__
    here = os.path.realpath(os.path.dirname(path[0]))
    others = [folder for folder in sys.path if os.path.realpath(folder) != here]
    installed = importlib.machinery.PathFinder.find_spec(package, others)
    if installed is None:
        raise ImportError(f"{path[0]} is {package}'s source folder, and no compiled {package} is installed")
    path[:] = installed.submodule_search_locations
