# SPDX-License-Identifier: Apache-2.0
"""`python -m custom_pypto new|new_project|check`: for authors of operators; each has --help."""

import argparse
import importlib
import sys

COMMANDS = ("new", "new_project", "check")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m custom_pypto", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    command = parser.parse_args(sys.argv[1:2]).command
    return importlib.import_module(f"{__package__}.authoring.{command}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
