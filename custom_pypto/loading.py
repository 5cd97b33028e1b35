# SPDX-License-Identifier: Apache-2.0
"""Loads an operator package: its library, which registers the operators, and their converters."""

import functools
import importlib.machinery
import importlib.util
import os
import sys
from importlib.metadata import version

import torch
from packaging.version import Version


def load(package: str) -> None:
    """Imports PACKAGE.PACKAGE_lib and registers the converters: what a package's ``__init__.py`` calls with its name.

    The package then has ``routes()``, which says what its operators call.

    Raises:
        ImportError: there is no library, or it was built with another custom_pypto or torch than is installed.
    """
    library = f"{package}.{package}_lib"
    if importlib.util.find_spec(library) is None:
        _take_installed(package)
    _check_versions()
    try:
        importlib.import_module(library)
    except ImportError as error:
        raise ImportError(
            f"{package} was built with other versions than are installed, custom_pypto {version('custom_pypto')} and "
            f"torch {torch.__version__}: build and install it again ({error})"
        ) from error
    from .graph.converters import register  # not before: our own folder is the installed one only now
    from .graph.on_bases import on_bases
    from .routes import routes

    on_bases(package)
    register(package)
    sys.modules[package].routes = functools.partial(routes, package)


def _check_versions() -> None:
    """The torch that custom_pypto was built for is in its version, 0.2.0+torch2.13.0; torch_npu is of the same one."""
    from ._version import __version__  # of the installed package

    built_for = __version__.partition("+torch")[2]
    found = {package: version(package) for package in ("torch", "torch_npu")}
    if any(Version(each).base_version != built_for for each in found.values()):
        raise ImportError(
            f"custom_pypto {__version__} was built for torch and torch_npu {built_for}; installed are torch "
            f"{found['torch']} and torch_npu {found['torch_npu']}: pip install 'torch=={built_for}' "
            f"'torch_npu=={built_for}.*', or build custom_pypto again for these"
        )


def _take_installed(package: str) -> None:
    """Lets a source folder, which has no compiled library and comes first in sys.path, be the installed package."""
    path = sys.modules[package].__path__
    here = os.path.realpath(os.path.dirname(path[0]))
    others = [folder for folder in sys.path if os.path.realpath(folder) != here]
    installed = importlib.machinery.PathFinder.find_spec(package, others)
    if installed is None:
        raise ImportError(f"{path[0]} is {package}'s source folder, and no compiled {package} is installed")
    path[:] = installed.submodule_search_locations
