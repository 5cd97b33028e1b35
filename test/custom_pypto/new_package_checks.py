# SPDX-License-Identifier: Apache-2.0
"""Prints what custom_pypto.authoring.check finds of every operator of a package, as JSON: {operator: [line, ...]}.

python new_package_checks.py PACKAGE, in the folder of its sources.
"""

import importlib
import json
import sys
import warnings
from pathlib import Path

from custom_pypto.authoring import check
from custom_pypto.graph import prototypes

package = importlib.import_module(sys.argv[1])
importlib.import_module("torchair")  # lets the package register its converters
warnings.simplefilter("ignore")
names = prototypes.operators(package.__name__)
print(json.dumps({name: [*check.check(check.Operator(package, name, Path()))] for name in names}))
